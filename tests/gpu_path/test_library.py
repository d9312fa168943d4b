from __future__ import annotations

import ctypes
import shutil
import sys
import types
from pathlib import Path

import pytest

from benchmarks.gpu import nvjpeg_parts
from gpubeton._gpu import libraries, nvjpeg
from gpubeton._gpu.libraries import driver_version, install_cuda, load
from gpubeton.errors import DeviceError, LibraryError
from tests.gpu_path.nvjpeg_wheel import installed_nvjpeg
from tests.gpu_path.recording_library import RecordingLibrary

NAME = "nvthing"  # no machine has a library of this name
VARIABLE = "GPUBETON_NVTHING"


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch):
    """No variable of this machine counts, and cuda-pathfinder is not installed."""
    for variable in (VARIABLE, "GPUBETON_NVJPEG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)


def put_library(path: Path) -> str:
    """Put a library that can be loaded somewhere; it is the C library's mathematics under another name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(load("m", path="libm.so.6")[1], path)
    return str(path)


def put_text(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("INPUT(libnvthing.so.13)")
    return str(path)


def put_copy(monkeypatch, tmp_path) -> str:
    """Put a library that can be loaded into the wheel of another package."""
    (tmp_path / "carrier").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    return put_library(tmp_path / "carrier.libs/libnvthing.36e11081.so.12")


def put_pathfinder(monkeypatch, find_one):
    """Install a cuda-pathfinder."""
    module = types.ModuleType("cuda.pathfinder")
    module.load_nvidia_dynamic_lib = find_one
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", module)


def find(*arguments, **keywords):
    return list(libraries.find(*arguments, **keywords))


def reasons(places):
    return {place.origin: place.reason for place in places}


# --- where is looked


def test_a_library_named_by_the_variable_is_the_only_place(monkeypatch, tmp_path):
    put_copy(monkeypatch, tmp_path)
    monkeypatch.setenv(VARIABLE, "/somewhere/else.so")
    (place,) = find(NAME, variable=VARIABLE)
    assert (place.origin, place.path, place.is_explicit) == (f"${VARIABLE}", "/somewhere/else.so", True)


def test_a_variable_that_names_no_library_is_an_error_and_not_passed_over(monkeypatch, tmp_path):
    put_copy(monkeypatch, tmp_path)
    monkeypatch.setenv(VARIABLE, "/somewhere/else.so")
    with pytest.raises(LibraryError, match=r"\$GPUBETON_NVTHING: /somewhere/else\.so: cannot open"):
        load(NAME, variable=VARIABLE, bundled_in=("carrier",))


def test_cuda_pathfinder_is_asked_before_all_others(monkeypatch):
    asked = []

    def find_one(name):
        asked.append(name)
        return types.SimpleNamespace(abs_path="/opt/found.so")

    put_pathfinder(monkeypatch, find_one)
    paths = [place.path for place in find(NAME, variable=VARIABLE) if place.path]
    assert paths[:2] == ["/opt/found.so", "libnvthing.so.13"]
    assert asked == [NAME]


def test_the_message_of_cuda_pathfinder_is_the_reason(monkeypatch):
    def find_one(name):
        raise RuntimeError('Failure finding "libnvthing.so"\nand a long list')

    put_pathfinder(monkeypatch, find_one)
    assert reasons(find(NAME))["cuda-pathfinder"] == 'Failure finding "libnvthing.so"'


def test_a_missing_cuda_pathfinder_is_a_reason():
    assert "not installed" in reasons(find(NAME))["cuda-pathfinder"]


def test_the_dynamic_loader_tries_each_version_number_of_cuda():
    results = [place.path for place in find(NAME) if place.origin.startswith("the dynamic loader")]
    assert results == ["libnvthing.so.13", "libnvthing.so.12", "libnvthing.so"]


def test_a_copy_in_another_package_comes_last_and_the_package_is_not_imported(monkeypatch, tmp_path):
    package = tmp_path / "carrier"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    file = put_text(tmp_path / "carrier.libs/libnvthing.36e11081.so.13")
    monkeypatch.syspath_prepend(tmp_path)
    last = find(NAME, bundled_in=("carrier",))[-1]
    assert (last.origin, last.path) == ("carrier's copy", file)


def test_a_package_that_is_not_installed_carries_nothing():
    assert find(NAME, bundled_in=("carrier",))[-1].reason == "no libnvthing.so (carrier is not installed)"


# --- the choice


def test_a_library_that_cannot_be_loaded_gives_way_to_the_next(monkeypatch, tmp_path):
    broken, file = put_text(tmp_path / "libnvthing.so.13"), put_copy(monkeypatch, tmp_path)
    put_pathfinder(monkeypatch, lambda _: types.SimpleNamespace(abs_path=broken))
    library, path, _ = load(NAME, bundled_in=("carrier",))
    assert path == file
    assert library.floor is not None


def test_a_library_that_the_check_refuses_gives_way_to_the_next(monkeypatch, tmp_path):
    refused, taken = put_library(tmp_path / "libnvthing.so.13"), put_copy(monkeypatch, tmp_path)
    put_pathfinder(monkeypatch, lambda _: types.SimpleNamespace(abs_path=refused))

    def read_version(library):
        if library._name == refused:
            raise OSError("no version")
        return 12, 5

    assert load(NAME, read_version, bundled_in=("carrier",))[1:] == (taken, (12, 5))


def test_a_file_that_was_refused_once_is_not_tried_again(monkeypatch, tmp_path):
    file = put_copy(monkeypatch, tmp_path)
    put_pathfinder(monkeypatch, lambda _: types.SimpleNamespace(abs_path=file))
    checked = []

    def read_version(library):
        checked.append(library._name)
        raise OSError("no version")

    with pytest.raises(LibraryError, match="no version"):
        load(NAME, read_version, bundled_in=("carrier",))
    assert checked == [file]


def test_the_error_lists_every_place_with_its_reason_and_the_package_to_install(monkeypatch, tmp_path):
    broken = put_text(tmp_path / "libnvthing.so.13")
    put_pathfinder(monkeypatch, lambda _: types.SimpleNamespace(abs_path=broken))
    with pytest.raises(LibraryError) as caught:
        load(NAME, variable=VARIABLE, bundled_in=("carrier",))
    first, *lines = str(caught.value).splitlines()
    assert f"Try {install_cuda()}, or set GPUBETON_NVTHING to the file" in first
    assert len(lines) == len(find(NAME, variable=VARIABLE, bundled_in=("carrier",)))
    for line in (
        "$GPUBETON_NVTHING: not set",
        f"cuda-pathfinder: {broken}: ",
        "libnvthing.so.12: cannot open",
        "carrier's copy: no libnvthing.so",
    ):
        assert line in str(caught.value)
    assert isinstance(caught.value, DeviceError)
    assert isinstance(caught.value, OSError)


def test_a_path_that_is_given_is_the_only_one_tried(monkeypatch, tmp_path):
    put_copy(monkeypatch, tmp_path)
    with pytest.raises(LibraryError) as caught:
        load(NAME, path=str(tmp_path / "missing.so"), variable=VARIABLE)
    assert len(str(caught.value).splitlines()) == 2


def test_the_path_is_the_file_that_the_dynamic_loader_took():
    assert Path(load("m", path="libm.so.6")[1]).is_absolute()


# --- the driver


def put_driver(monkeypatch, version, status=0):
    """Let the driver report a version; None where there is no driver."""

    def ask(pointer):
        pointer._obj.value = version
        return status

    def open_library(name):
        if version is None:
            raise OSError("libcuda.so.1: cannot open shared object file")
        assert name == "libcuda.so.1"
        return types.SimpleNamespace(cuDriverGetVersion=ask)

    monkeypatch.setattr(libraries, "ctypes", types.SimpleNamespace(**{**vars(ctypes), "CDLL": open_library}))


@pytest.mark.parametrize(("number", "version"), [(13000, (13, 0)), (12090, (12, 9)), (13020, (13, 2))])
def test_the_driver_reports_its_version_of_cuda(monkeypatch, number, version):
    put_driver(monkeypatch, number)
    assert driver_version() == version


@pytest.mark.parametrize(("number", "status"), [(None, 0), (0, 0), (13000, 34)])
def test_a_driver_that_is_missing_or_does_not_answer_has_no_version(monkeypatch, number, status):
    put_driver(monkeypatch, number, status)
    assert driver_version() is None


# --- nvJPEG


def test_nvjpeg_gives_its_version_without_a_gpu():
    library = nvjpeg.load(str(installed_nvjpeg()))
    assert library.version >= (12, 0, 0)
    assert library.version[0] == int(library.path.rpartition(".so.")[2])
    assert nvjpeg_parts.cuda_version(library)[0] == library.version[0]


def test_the_version_of_cuda_has_a_separate_function():
    functions = RecordingLibrary()
    library = nvjpeg.Library(functions, "libnvjpeg.so.13", (13, 0, 0))
    assert nvjpeg_parts.cuda_version(library) == (0, 0, 0)
    assert functions.names() == ["nvjpegGetCudartProperty"] * 3
    assert [arguments[0] for _, arguments in functions.calls] == [0, 1, 2]


def test_another_library_is_not_taken_for_nvjpeg(tmp_path):
    with pytest.raises(LibraryError, match="nvjpegGetProperty"):
        nvjpeg.load(put_library(tmp_path / "libnvjpeg.so.13"))


def test_an_nvjpeg_that_is_too_new_for_the_driver_is_passed_over_unless_it_was_named(monkeypatch):
    wheel = installed_nvjpeg()
    put_pathfinder(monkeypatch, lambda _: types.SimpleNamespace(abs_path=str(wheel)))
    monkeypatch.setattr("gpubeton._gpu.libraries.driver_version", lambda: (11, 8))
    with pytest.raises(LibraryError, match=r"CUDA 1\d.*CUDA 11\.8") as caught:
        nvjpeg.load()
    assert "torchvision's copy" in str(caught.value)
    monkeypatch.setenv("GPUBETON_NVJPEG", str(wheel))
    assert nvjpeg.load().path == str(wheel)
