"""The table of prototypes and the enumerations, held against the library and the header that pip installed."""

from __future__ import annotations

import ctypes
import re
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_void_p

import pytest

from benchmarks.gpu import nvjpeg_parts
from gpubeton._gpu import nvjpeg
from gpubeton.errors import NvjpegError
from tests.gpu_path.gpu_room import PROTOTYPES, bind
from tests.gpu_path.nvjpeg_wheel import header, installed_nvjpeg

ENUMERATIONS = {
    "nvjpegBackend_t": ("NVJPEG_BACKEND_", nvjpeg_parts.Backend),
    "nvjpegStatus_t": ("NVJPEG_STATUS_", nvjpeg.Status),
}


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)


def prototypes_of_the_header():
    """For each function, what C calls the types of its arguments."""
    result = re.findall(r"nvjpegStatus_t\s+NVJPEGAPI\s+(\w+)\s*\(([^)]*)\)\s*;", without_comments(header()))
    return {name: [type_of(argument) for argument in arguments.split(",")] for name, arguments in result}


def type_of(argument):
    """The type of an argument, without its name and ``const``."""
    words = re.sub(r"\bconst\b", " ", argument).replace("*", " * ").split()
    stars = words.count("*")
    names = [word for word in words if word != "*"]
    kind = names if stars == 0 and len(names) == 1 else names[:-1]
    return " ".join(kind) + "*" * stars


def enumerations_of_the_header():
    result = re.findall(r"typedef\s+enum\s*\w*\s*\{(.*?)\}\s*(\w+)\s*;", without_comments(header()), flags=re.DOTALL)
    return {name: dict(re.findall(r"(\w+)\s*=\s*(-?\w+)", body)) for body, name in result}


def fits(kind, ours):
    """Return whether an argument of ours has C's type."""
    if kind.endswith("*") or kind == "cudaStream_t" or kind in OPAQUE:
        # An array or a struct goes by its address; a result has another type, which has to have the right size.
        pointee = kind.removesuffix("*")
        results = {"int": c_int, "unsigned int": c_uint, "size_t": c_size_t, "void*": c_void_p}
        results |= dict.fromkeys(OPAQUE, c_void_p) | dict.fromkeys(ENUMERATIONS, c_int)
        return ours is c_void_p or (pointee in results and ours is POINTER(results[pointee]))
    values = {"int": c_int, "unsigned int": c_uint, "size_t": c_size_t, "libraryPropertyType": c_int}
    return ours is {**values, **dict.fromkeys(enumerations_of_the_header(), c_int)}[kind]


OPAQUE = {
    "nvjpegHandle_t",
    "nvjpegJpegState_t",
    "nvjpegJpegStream_t",
}


@pytest.mark.parametrize("name", PROTOTYPES)
def test_the_prototype_is_that_of_the_header(name):
    expected = prototypes_of_the_header()[name]
    ours = PROTOTYPES[name]
    assert len(ours) == len(expected)
    wrong = [(kind, our) for kind, our in zip(expected, ours, strict=True) if not fits(kind, our)]
    assert wrong == []


def test_enumerations_constants_and_flags_are_those_of_the_header():
    result = enumerations_of_the_header()
    for kind, (prefix, ours) in ENUMERATIONS.items():
        expected = {member.removeprefix(prefix): int(value, 0) for member, value in result[kind].items()}
        assert {member.name: member.value for member in ours}.items() <= expected.items(), "all that are used"
    constants = {
        ("nvjpegBackend_t", "NVJPEG_BACKEND_HARDWARE"): nvjpeg.HARDWARE,
        ("nvjpegOutputFormat_t", "NVJPEG_OUTPUT_RGBI"): nvjpeg.RGBI,
        ("nvjpegChromaSubsampling_t", "NVJPEG_CSS_444"): nvjpeg._CSS_444,
    }
    for (kind, name), constant in constants.items():
        assert int(result[kind][name], 0) == constant
    flags = dict(re.findall(r"#define\s+NVJPEG_FLAGS_(\w+)\s+([0-9<]+)", header()))
    values = {name: int(base or 0) << int(shift or 0) for name, (base, _, shift) in split(flags).items()}
    assert values["DEFAULT"] == nvjpeg_parts.Flags.NONE
    assert values["UPSAMPLING_WITH_INTERPOLATION"] == nvjpeg.INTERPOLATED
    assert nvjpeg_parts.Flags.UPSAMPLING_WITH_INTERPOLATION == nvjpeg.INTERPOLATED


def split(result):
    return {name: text.partition("<<") for name, text in result.items()}


def test_an_image_is_as_large_as_in_c():
    planes = int(re.search(r"#define\s+NVJPEG_MAX_COMPONENT\s+(\d+)", header())[1])
    assert nvjpeg.IMAGE.itemsize == planes * (ctypes.sizeof(c_void_p) + ctypes.sizeof(c_size_t))
    assert nvjpeg.IMAGE.fields["channel"][1] == 0
    assert nvjpeg.IMAGE.fields["pitch"][1] == planes * ctypes.sizeof(c_void_p)


@pytest.mark.parametrize("name", PROTOTYPES)
def test_a_call_without_anything_is_refused_by_the_library(name):
    function = bind(ctypes.CDLL(str(installed_nvjpeg())), name)
    nothing = [None if kind is c_void_p or hasattr(kind, "contents") else 0 for kind in PROTOTYPES[name]]
    assert function(*nothing) == nvjpeg.Status.INVALID_PARAMETER


@pytest.mark.parametrize("backend", nvjpeg_parts.Backend)
def test_without_a_gpu_a_handle_is_refused_with_advice(backend):
    library = nvjpeg.load(str(installed_nvjpeg()))
    skip_where_there_is_a_gpu()
    with pytest.raises(NvjpegError, match="nvidia-smi shows a GPU") as caught:
        nvjpeg.Handle(library, backend)
    assert (caught.value.call, caught.value.status) == ("nvjpegCreateEx", nvjpeg.Status.EXECUTION_FAILED)


def skip_where_there_is_a_gpu():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    count = c_int()
    if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(byref(count)) == 0 and count.value > 0:
        pytest.skip("there is a GPU")
