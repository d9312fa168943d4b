from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from gpubeton._gpu import libraries, nvrtc
from gpubeton._gpu.nvrtc import Nvrtc
from gpubeton.errors import KernelError, LibraryError
from tests.kernels.compilers import compilers

SIMPLE = '#line 1 "kernels/simple.cu"\nextern "C" __global__ void simple(int* out) { *out = blockIdx.x; }\n'


COMPILERS = compilers()

if not COMPILERS:
    pytest.skip("no NVRTC: pip install nvidia-cuda-nvrtc", allow_module_level=True)


@pytest.fixture(params=COMPILERS, ids=lambda compiler: ".".join(map(str, compiler.version)))
def compiler(request):
    return request.param


def test_products_are_only_fused_where_a_kernel_says_so(compiler):
    source = (
        'extern "C" __global__ void fused(float* x) { x[0] = x[1] * x[2] + x[3]; x[4] = __fmaf_rn(x[5], x[6], x[7]); }'
    )
    architecture = f"sm_{compiler.architectures[-1] + 1}"
    code = compiler.compile(source, "fused", architecture).code
    assert code.count(b"fma.rn.f32") == 1
    assert code.count(b"mul.rn.f32") + code.count(b"mul.f32") == 1


def test_denormal_numbers_count(compiler):
    source = 'extern "C" __global__ void tiny(float* x) { x[0] = __fmaf_rd(x[1], x[2], x[3]); }'
    code = compiler.compile(source, "tiny", f"sm_{compiler.architectures[-1] + 1}").code
    assert b"fma.rm.f32" in code
    assert b".ftz" not in code


def test_an_error_names_our_file_and_line(compiler):
    broken = SIMPLE.replace("blockIdx.x", "\n nothing")
    with pytest.raises(KernelError) as error:
        compiler.compile(broken, "simple", "sm_90")
    assert "could not compile the kernel simple for sm_90" in str(error.value)
    assert "kernels/simple.cu(2): error" in str(error.value)
    assert '"nothing" is undefined' in str(error.value)


def test_a_warning_is_handed_on(compiler):
    compiled = compiler.compile(SIMPLE.replace("{ ", "{ int unused; "), "simple", "sm_90")
    assert "kernels/simple.cu(2)" in compiled.log.replace("kernels/simple.cu(1)", "kernels/simple.cu(2)")
    assert "warning" in compiled.log


def test_a_newer_gpu_than_the_compiler_knows_is_given_ptx(compiler):
    newest = compiler.architectures[-1]
    compiled = compiler.compile(SIMPLE, "simple", f"sm_{newest + 7}")
    assert b".visible .entry simple" in compiled.code
    assert f".target sm_{newest}".encode() in compiled.code


@pytest.mark.parametrize("architecture", ["sm_30", "compute_90", "90", ""])
def test_an_architecture_that_it_does_not_compile_for_is_named_beside_those_that_it_does(compiler, architecture):
    with pytest.raises(KernelError, match=rf"{architecture}.*sm_90"):
        compiler.compile(SIMPLE, "simple", architecture)


def test_an_option_that_it_does_not_know_is_an_error(compiler):
    with pytest.raises(KernelError, match=r"(?s)nvrtcCompileProgram failed with status 5.*--no-such-thing"):
        compiler.compile(SIMPLE, "simple", "sm_90", ["--no-such-thing"])


def test_a_failing_call_is_named_with_its_status(compiler, monkeypatch):
    library = compiler._library

    class Failing:
        """The library, but that making a program fails as it would without memory."""

        def __getattr__(self, name):
            return (lambda *_: 1) if name == "nvrtcCreateProgram" else getattr(library, name)

    monkeypatch.setattr(compiler, "_library", Failing())
    with pytest.raises(KernelError, match=r"nvrtcCreateProgram failed with status 1 \(NVRTC_ERROR_OUT_OF_MEMORY\)"):
        compiler.compile(SIMPLE, "simple", "sm_90")


def test_every_program_is_given_back_also_one_that_does_not_compile(compiler, monkeypatch):
    library, calls = compiler._library, []

    class Recording:
        """The library, and which of its functions were asked for."""

        def __getattr__(self, name):
            calls.append(name)
            return getattr(library, name)

    monkeypatch.setattr(compiler, "_library", Recording())
    compiler.compile(SIMPLE, "simple", "sm_90")
    with pytest.raises(KernelError):
        compiler.compile("nothing", "simple", "sm_90")
    assert calls.count("nvrtcCreateProgram") == calls.count("nvrtcDestroyProgram") == 2


def test_libraries_that_nvrtc_loads_by_name_are_loaded_from_its_folder(compiler, monkeypatch, tmp_path):
    """Some versions cannot find it in a wheel's folder; and a damaged one is theirs to complain of."""
    (tmp_path / "libnvrtc-builtins.so.13.0").write_bytes(b"damaged")
    loaded = []

    def load(path, mode=ctypes.DEFAULT_MODE):
        loaded.append((path, mode))
        raise OSError(f"{path}: file too short")

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert str(Nvrtc(compiler._library, str(tmp_path / "libnvrtc.so.13"), (13, 0))).startswith("NVRTC 13.0")
    assert loaded == [(str(tmp_path / "libnvrtc-builtins.so.13.0"), ctypes.RTLD_GLOBAL)]


def test_a_fresh_process_can_compile(compiler):
    program = (
        "from gpubeton._gpu import nvrtc; import sys;"
        "print(len(nvrtc.load(sys.argv[1]).compile(sys.argv[2], 'simple', 'sm_90').code) > 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, compiler.path, SIMPLE], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_the_best_one_is_found_and_loaded_once():
    found = nvrtc.load()
    assert found is nvrtc.load()
    assert isinstance(found, Nvrtc)
    assert nvrtc.load().compile(SIMPLE, "simple", "sm_90") == found.compile(SIMPLE, "simple", "sm_90")


def test_the_file_that_the_environment_names_is_the_only_one(monkeypatch, tmp_path):
    monkeypatch.setenv(nvrtc.VARIABLE, str(tmp_path / "libnvrtc.so"))
    nvrtc.load.cache_clear()
    try:
        with pytest.raises(LibraryError, match=r"nvrtc.*pip install"):
            nvrtc.load()
    finally:
        nvrtc.load.cache_clear()


def test_a_library_that_is_not_nvrtc_is_named():
    with pytest.raises(LibraryError, match=r"another library.*nvrtcVersion"):
        nvrtc.load("libc.so.6")


def test_one_for_a_newer_cuda_than_the_drivers_is_passed_over(monkeypatch):
    monkeypatch.setattr(libraries, "driver_version", lambda: (11, 8))
    nvrtc.load.cache_clear()
    try:
        with pytest.raises(LibraryError, match=r"CUDA \d+.*CUDA 11\.8"):
            nvrtc.load()
        assert nvrtc.load(COMPILERS[0].path).version == COMPILERS[0].version
    finally:
        nvrtc.load.cache_clear()
