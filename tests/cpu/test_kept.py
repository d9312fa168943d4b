"""Machine code on disk: never that of older sources, and no loader depends on a folder that can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from gpubeton._compile import kept
from gpubeton._compile.compile import compiled as compile_
from gpubeton._compile.compile import keep
from gpubeton._compile.kept import KeptCode, folders, is_source, source_files
from tests.cpu.machine_code_sources import Sources

pytestmark = pytest.mark.campaign

PACKAGE = Path(kept.__file__).resolve().parent.parent

#: Copies the second pixel of an image of two, see `pack_crops`.
SECOND_PIXEL = """
import numpy as np
from gpubeton._cpu.stored_bytes import pack_crops
image, out = np.array([1, 2, 3, 4, 5, 6], np.uint8), np.zeros(3, np.uint8)
places = [np.array([array.ctypes.data], np.uint64) for array in (image, out)]
numbers = [np.array([each], np.int32) for each in (2, [0, 1, 1, 1, 0, 0, 0, 0], 3)]
pack_crops(places[0], numbers[0], numbers[1], places[1], numbers[2])
print(out.tolist(), sum(pack_crops.stats.cache_misses.values()))
"""


#: Mixes two images with one to four channels, as two of the package's own closures that differ by a number only.
MIXED = """
import sys
import numpy as np
from gpubeton._batch.mix import _compiled
mixes, code = np.array([[1, 1 << 14, 0, 0, 1, 1], [1, 1 << 15, 0, 0, 0, 0]], np.int64), {}
for channels in map(int, sys.argv[1:]):
    code[channels] = _compiled(channels)
    images = np.array([[[0] * 4], [[100] * 4]], np.uint8)
    code[channels](images, mixes, images[1:].copy())
    print(images[0].tolist(), end=" ")
print(sum(sum(each.stats.cache_misses.values()) for each in code.values()))
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of the package, as an editable install has it."""
    shutil.copytree(PACKAGE, tmp_path / "gpubeton", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "gpubeton"


def second_pixel(copy, *start, **variables):
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(copy.parent), **variables}
    command = [*start, sys.executable, "-W", "error", "-c", SECOND_PIXEL]
    done = subprocess.run(command, cwd=copy.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pixel, _, misses = done.stdout.strip().rpartition(" ")
    return pixel, int(misses)


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def compiled(folder, *, has_notice=False):
    """A function as `compile.compiled` makes it, kept in a folder."""

    def add(x):
        return x + 1

    dispatcher = numba.njit(add)
    dispatcher._cache = KeptCode(add, [*folder] if isinstance(folder, list) else [folder], has_notice)
    return dispatcher


def misses(dispatcher):
    return sum(dispatcher.stats.cache_misses.values())


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (
            "_compile/intrinsics.py",
            "emit.pointer(source, I8), size.value, 1)",
            "emit.pointer(target, I8), size.value, 1)",
        ),
        ("_plan/draw_rows.py", "TOP, LEFT, HEIGHT, WIDTH,", "LEFT, TOP, HEIGHT, WIDTH,"),
    ],
    ids=["function", "constant"],
)
def test_new_code_runs_after_a_change_in_another_file_than_the_kept_functions(copy, file, old, new):
    assert second_pixel(copy) == ("[4, 5, 6]", 1)
    assert second_pixel(copy) == ("[4, 5, 6]", 0)
    edit(copy / file, old, new)
    changed, was_compiled = second_pixel(copy)
    assert changed != "[4, 5, 6]"
    assert was_compiled == 1
    edit(copy / file, new, old)
    assert second_pixel(copy) == ("[4, 5, 6]", 0)


def test_every_source_file_is_part_of_the_folders_name(copy):
    sources = source_files(copy)
    assert copy / "_cpu" / "ring.py" in sources
    assert copy / "_plan" / "philox.py" in sources
    seen = {folders(copy)[0]}
    for source in sources:
        source.write_bytes(source.read_bytes() + b"\n")
        seen.add(folders(copy)[0])
    (copy / "_cpu" / "another.py").touch()
    seen.add(folders(copy)[0])
    (copy / "_cpu" / "ring.py").rename(copy / "_cpu" / "ring_.py")
    seen.add(folders(copy)[0])
    assert len(seen) == len(sources) + 3


def test_a_change_that_no_machine_code_can_have_compiles_nothing(copy):
    assert second_pixel(copy) == ("[4, 5, 6]", 1)
    others = set(copy.rglob("*.py")) - set(source_files(copy))
    assert {copy / "transforms" / "flip.py", copy / "_plan" / "order.py", copy / "format" / "index.py"} <= others
    for path in others:
        path.write_bytes(path.read_bytes() + b"# another comment\n")
    assert second_pixel(copy) == ("[4, 5, 6]", 0)


def test_machine_code_is_made_of_sources_alone():
    """Functions and constants that compiled functions use are hashed with them, through imports and other constants."""
    sources = Sources(PACKAGE)
    compiled = sources.compiled()
    # These read what users wrote, and take functions, so that they are never kept.
    assert {definition for definition in compiled if not is_source(definition[0])} == {
        ("gpubeton._engine.run_batch_ops", "read_region"),
        ("gpubeton.fields.image_decoders", "_crop_all"),
    }
    reached = sources.reached({definition for definition in compiled if is_source(definition[0])})
    assert {"gpubeton.format.layout", "gpubeton.fields.png", "gpubeton._plan.draw_rows"} <= reached
    assert {module for module in reached if not is_source(module)} == set()


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("from gpubeton.other import SIZE\n@compiled\ndef f(): return SIZE", "gpubeton.other"),
        ("from gpubeton.other import SIZE\nTWICE = 2 * SIZE\n@compiled\ndef f(): return TWICE", "gpubeton.other"),
        ("from gpubeton import other\n@compiled\ndef f(): return other.SIZE", "gpubeton.other"),
        ("from gpubeton.other import g\n@compiled\ndef f(): return g()", "gpubeton.third"),
        ("from gpubeton.other import g\nf = device_function(g)", "gpubeton.third"),
        (
            "from gpubeton.other import g\ndef outer():\n  def f(): return g()\n  return Compiler.compile(f)",
            "gpubeton.third",
        ),
    ],
)
def test_names_are_followed_to_the_module_that_decides_on_them(tmp_path, text, module):
    (tmp_path / "gpubeton").mkdir()
    (tmp_path / "gpubeton" / "first.py").write_text(text)
    (tmp_path / "gpubeton" / "other.py").write_text("from gpubeton.third import N\nSIZE = 3\ndef g(): return N")
    (tmp_path / "gpubeton" / "third.py").write_text("N = 4")
    sources = Sources(tmp_path / "gpubeton")
    assert module in sources.reached(sources.compiled())


def test_functions_of_other_modules_than_the_sources_are_not_kept():
    def add(x):
        return x + 1

    add.__module__ = "gpubeton._plan.order"
    assert not isinstance(compile_(add)._cache, KeptCode)
    add.__module__ = "gpubeton._plan.philox"
    assert isinstance(compile_(add)._cache, KeptCode)


def test_numba_cache_dir_comes_first(copy, tmp_path):
    chosen = tmp_path / "chosen"
    assert second_pixel(copy, NUMBA_CACHE_DIR=str(chosen))[1] == 1
    assert [path for path in chosen.rglob("*pack_crops*") if path.is_file()]
    assert second_pixel(copy)[1] == 1


def test_code_without_checks_is_not_used_where_indices_are_checked(copy):
    assert [second_pixel(copy, NUMBA_BOUNDSCHECK=checks)[1] for checks in "0101"] == [1, 1, 0, 0]


def test_code_in_a_folder_that_cannot_be_written_is_used_and_new_code_goes_to_the_next(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    compiled(first)(1)
    # The superuser may write everywhere.
    monkeypatch.setattr(os, "access", lambda folder, _: folder != first)
    again = compiled([first, second])
    assert (again(1), misses(again)) == (2, 0)
    assert (again(1.5), misses(again)) == (2.5, 1)
    later = compiled([first, second])
    assert (later(1.5), misses(later)) == (2.5, 0)
    assert len(list(first.iterdir())) == len(list(second.iterdir())) == 1


@pytest.mark.parametrize("is_chosen", [False, True])
def test_without_any_folder_to_write_to_everything_works_with_a_warning(is_chosen, caplog, monkeypatch):
    nowhere = Path(os.devnull) / "folder"
    if is_chosen:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(nowhere))
    else:
        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    assert compiled(nowhere, has_notice=True)(1) == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert (f"NUMBA_CACHE_DIR={nowhere} cannot be written" if is_chosen else "set NUMBA_CACHE_DIR to") in caplog.text


def test_neither_the_package_nor_a_home_need_to_be_writable(copy, tmp_path):
    """As in a container that is not root and cannot write to its image."""
    home = tmp_path / "home"
    home.mkdir()
    for path in (*copy.rglob("*"), copy, home):
        path.chmod(path.stat().st_mode & 0o555)
    # The superuser may write everywhere, unless it gives that up.
    rights = "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"
    start = ["setpriv", *rights] if os.geteuid() == 0 else []
    if start and shutil.which("setpriv") is None:
        pytest.skip("setpriv is of util-linux, which Linux has")
    variables = {"HOME": str(home), "XDG_CACHE_HOME": ""}
    for _ in range(2):
        assert second_pixel(copy, *start, **variables) == ("[4, 5, 6]", 1)
    assert not list(home.iterdir())
    assert second_pixel(copy, *start, **variables, NUMBA_CACHE_DIR=str(tmp_path / "chosen"))[1] == 1
    assert second_pixel(copy, *start, **variables, NUMBA_CACHE_DIR=str(tmp_path / "chosen"))[1] == 0


def test_a_damaged_file_is_compiled_again(tmp_path):
    compiled(tmp_path)(1)
    (file,) = tmp_path.iterdir()
    for size in (0, 100):
        os.truncate(file, size)
        again = compiled(tmp_path)
        assert (again(1), misses(again)) == (2, 1)
    later = compiled(tmp_path)
    assert (later(1), misses(later)) == (2, 0)


def test_of_older_sources_those_used_last_stay(tmp_path):
    states = [tmp_path / str(number) for number in range(6)]
    for hours, state in zip((5, 1, 4, 2, 3), states, strict=False):
        compiled(state)(1)
        os.utime(state, (1e9 - 3600 * hours,) * 2)
    compiled(states[5])(1)
    assert {path.name for path in tmp_path.iterdir()} == {"1", "3", "4", "5"}


def test_one_of_several_processes_logs_that_it_compiles_and_names_the_folder(tmp_path, caplog):
    for _ in range(2):
        function = compiled(tmp_path, has_notice=True)
        function(1)  # compiles, then loads
    assert [str(tmp_path) in record.message for record in caplog.records] == [True]
    # The lock is held until this process ends; another open file is to it what another process is.
    other = compiled(tmp_path, has_notice=True)
    assert (other(1.5), misses(other)) == (2.5, 1)
    assert len(caplog.records) == 1


def test_functions_that_differ_in_a_captured_number_are_kept_apart(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent)}
    shown = [
        subprocess.run(
            [sys.executable, "-c", MIXED, *channels], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()
        for channels in (["1"], ["3"], ["1", "3"])
    ]
    assert shown == [
        "[[50, 0, 0, 0]] 1",
        "[[50, 50, 50, 0]] 1",
        "[[50, 0, 0, 0]] [[50, 50, 50, 0]] 0",
    ]


def test_functions_that_capture_values_of_this_process_are_not_kept():
    values, number = np.arange(3), 7

    def with_values(x):
        return x + values[0]

    def with_number(x):
        return x + number

    dispatchers = [numba.njit(function) for function in (with_values, with_number, with_number)]
    for dispatcher in dispatchers[:2]:
        dispatcher.py_func.__module__ = "gpubeton._batch.mix"
        keep(dispatcher)
    with_number.__module__ = "__main__"  # of a user
    keep(dispatchers[2])
    assert [isinstance(dispatcher._cache, KeptCode) for dispatcher in dispatchers] == [False, True, False]


def test_functions_of_a_function_are_not_kept(tmp_path):
    def call(function, x):
        return function(x)

    dispatcher = numba.njit(call)
    dispatcher._cache = KeptCode(call, [tmp_path], False)
    assert dispatcher(numba.njit(lambda x: x + 1), 1) == 2
    assert list(tmp_path.iterdir()) == []
