"""What users import, and what that costs."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpubeton
from gpubeton._missing_names import REPLACEMENTS
from tests.golden_files import save
from tests.public_names import FFCV, PUBLIC
from tests.small_files import write_photos

ROOT = Path(__file__).resolve().parent.parent


def test_ffcvs_exported_names_have_the_same_paths() -> None:
    modules = {module: importlib.import_module(f"gpubeton.{module}") for module in FFCV}
    names = [(module, name) for module in FFCV for name in FFCV[module]]
    assert [pair for pair in names if not hasattr(modules[pair[0]], pair[1])] == []


def test_arguments_are_ffcvs_in_ffcvs_order_and_ours_come_after_them() -> None:
    faults = []
    for module, name in [(module, name) for module, names in FFCV.items() for name, value in names.items() if value]:
        called = getattr(importlib.import_module(f"gpubeton.{module}"), name)
        ours, theirs = list(inspect.signature(called).parameters.values()), FFCV[module][name]
        first = [written(argument, "=" in other) for argument, other in zip(ours, theirs, strict=False)]
        if first != list(theirs) or any(argument.default is argument.empty for argument in ours[len(theirs) :]):
            faults.append((module, name, first))
    assert faults == []


def written(parameter: inspect.Parameter, with_default: bool) -> str:
    default = repr(parameter.default) if isinstance(parameter.default, str) else str(parameter.default)
    return f"{parameter.name}={default}" if with_default else parameter.name


def test_exported_names_of_public_modules_exist() -> None:
    modules = [importlib.import_module(name) for name in PUBLIC]
    assert [module for module in modules if hasattr(module, "__path__") and not hasattr(module, "__all__")] == []
    exported = [(module, name) for module in modules for name in getattr(module, "__all__", [])]
    assert [(module.__name__, name) for module, name in exported if not hasattr(module, name)] == []


def test_the_package_itself_exports_loader_and_writer() -> None:
    from gpubeton.loader import Loader
    from gpubeton.writer import DatasetWriter

    assert gpubeton.Loader is Loader
    assert gpubeton.DatasetWriter is DatasetWriter
    with pytest.raises(AttributeError, match="no attribute 'Lader'"):
        _ = gpubeton.Lader


def missing_names() -> dict[str, str]:
    """The names of FFCV and its forks that the guide has replacements for, and what it says."""
    guide = (ROOT / "docs/guides/from_ffcv.md").read_text()
    (table,) = re.findall(r"<!-- table: missing names.*?-->\n(.*?)<!-- end of table -->", guide, re.DOTALL)
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]
    return {name: text for names, text in rows for name in re.findall(r"`([^`]+)`", names)}


def test_importing_a_name_of_ffcvs_forks_is_an_error_with_its_replacement() -> None:
    names = missing_names()
    assert names == REPLACEMENTS
    for name, advice in names.items():
        module, _, last = f"gpubeton.{name}".rpartition(".")
        imports = f"from {module} import {last}", f"import {module}.{last}.deeper", f"from {module}.{last} import X"
        for program in imports:
            with pytest.raises(ImportError) as caught:
                exec(program)
            if not name.startswith("transforms.color_jitter") or program.endswith(last):  # which is no package
                assert advice.replace("`", "") in str(caught.value)
        for exported, package in re.findall(r"((?:`\w+[^`]*`(?: and |, )?)+) of `([\w.]+)`", advice):
            ours = importlib.import_module(f"gpubeton.{package}")
            assert [name for name in re.findall(r"`(\w+)", exported) if not hasattr(ours, name)] == []


def test_other_names_that_are_missing_are_pythons_errors() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'gpubeton\.nothing'"):
        importlib.import_module("gpubeton.nothing")
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from gpubeton.transforms.color_jitter import Nothing")
    transforms = importlib.import_module("gpubeton.transforms")
    assert not hasattr(transforms, "RandomColorJitter")
    with pytest.raises(AttributeError, match=r"no attribute 'Rotate'\. Instead: RandomRotation of transforms"):
        _ = transforms.Rotate
    with pytest.raises(AttributeError, match=r"no attribute 'Rotat'$"):
        _ = transforms.Rotat


def test_completion_lists_the_names_that_are_imported_when_they_are_used() -> None:
    program = "import gpubeton, sys; print(dir(gpubeton)); print('torch' in sys.modules)"
    names, has_torch = run(program).splitlines()
    assert {"DatasetWriter", "Loader", "__version__", "fields", "transforms"} <= set(ast.literal_eval(names))
    assert has_torch == "False"


def test_submodules_that_import_ffcv_loads_are_loaded_by_import_gpubeton() -> None:
    program = """
import gpubeton
print(gpubeton.transforms.ToTensor.__name__, gpubeton.loader.loader.OrderOption.RANDOM.name)
print(gpubeton.fields.rgb_image.RGBImageField.__name__, gpubeton.pipeline.operation.Operation.__name__)
print(gpubeton.traversal_order.base.TraversalOrder.__name__, gpubeton.reader.Reader.__name__)
print(gpubeton.writer.DatasetWriter.__name__, gpubeton.libffcv.memcpy.__name__)
"""
    expected = "ToTensor RANDOM RGBImageField Operation TraversalOrder Reader DatasetWriter memcpy"
    assert " ".join(run(program).split()) == expected


LIGHT = ["gpubeton", "gpubeton.errors", "gpubeton.format", "gpubeton.cli", "gpubeton.dataset", "gpubeton.cli.app"]


@pytest.mark.parametrize("module", LIGHT)
def test_light_imports_stay_light(module: str) -> None:
    loaded = set(ast.literal_eval(run(f"import {module}, sys; print(sorted(sys.modules))")))
    assert {"torch", "numba", "PIL", "simplejpeg", "obstore"} & loaded == set()
    assert module in LIGHT[4:] or not {"rich", "typer"} & loaded


def test_a_header_can_be_read_with_numpy_alone(tmp_path: Path) -> None:
    path = save("one_int", tmp_path)
    program = f"""
import sys
from importlib.machinery import PathFinder

class Refuse:
    allowed = {{"numpy", "gpubeton"}} | set(sys.stdlib_module_names)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.allowed:
            raise ModuleNotFoundError(f"{{name}} is not numpy", name=name)
        return PathFinder.find_spec(name, path, target)

sys.meta_path.insert(0, Refuse())
from gpubeton.format.header import read_header
from gpubeton.format.dataset import open_dataset
print(read_header({str(path)!r}).num_samples, open_dataset({str(path)!r}).num_samples)
"""
    assert run(program) == "1 1"


def test_a_loader_on_the_cpu_imports_of_the_gpu_room_only_its_options(tmp_path: Path) -> None:
    path = write_photos(tmp_path / "photos.beton", 10)
    program = f"""
import sys
from gpubeton.loader import Loader
loader = Loader({str(path)!r}, 2, num_workers=1, pipelines={{"image": None}}, device="cpu")
loader.explain(), list(loader)
print(sorted(name for name in sys.modules if name.startswith("gpubeton._gpu")))
"""
    assert run(program).splitlines()[-1] == "['gpubeton._gpu', 'gpubeton._gpu.options']"


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
