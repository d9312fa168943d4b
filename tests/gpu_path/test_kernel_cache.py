from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpubeton._gpu import kernels
from gpubeton._gpu.kernels import OPTIONS, cache_folder, load_machine_code
from gpubeton.errors import KernelError, LibraryError


class CompileError(Exception):
    """CuPy's."""


class Cupy:
    """Stands in for CuPy as far as it compiles, and counts."""

    def __init__(self):
        self.__version__ = "14.0.0"
        self.version = 13, 0
        self.compiled = 0
        self.error = None
        nvrtc = SimpleNamespace(getVersion=lambda: self.version)
        compiler = SimpleNamespace(compile_using_nvrtc=self.compile, CompileException=CompileError)
        self.cuda = SimpleNamespace(nvrtc=nvrtc, compiler=compiler)

    def compile(self, source, options, cache_in_memory):
        assert options == kernels.OPTIONS
        assert cache_in_memory
        if self.error is not None:
            raise self.error
        self.compiled += 1
        return f"{self.version} {source}".encode(), None


@pytest.fixture
def cupy(monkeypatch, tmp_path):
    monkeypatch.setenv(kernels.VARIABLE, str(tmp_path / "a" / "cache"))
    return Cupy()


def entries():
    return sorted(cache_folder().iterdir())


def test_a_kernel_is_compiled_once(cupy):
    first = load_machine_code(cupy, "canary", "sm_90")
    assert load_machine_code(cupy, "canary", "sm_90") == first
    assert cupy.compiled == 1
    assert [entry.name.rpartition("-")[0] for entry in entries()] == ["canary-sm_90"]


def test_another_kernel_or_architecture_is_another_entry(cupy):
    for which in (("canary", "sm_90"), ("canary", "sm_80"), ("resample", "sm_90"), ("resample-signed", "sm_90")):
        load_machine_code(cupy, *which)
    assert cupy.compiled == len(entries()) == 4


def test_it_is_compiled_anew_when_the_source_the_compiler_or_the_options_change(cupy, monkeypatch):
    load_machine_code(cupy, "canary", "sm_90")
    cupy.version = (13, 1)
    load_machine_code(cupy, "canary", "sm_90")
    monkeypatch.setattr(kernels, "OPTIONS", OPTIONS[:1])
    load_machine_code(cupy, "canary", "sm_90")
    cupy.__version__ = "14.0.1"
    load_machine_code(cupy, "canary", "sm_90")
    monkeypatch.setattr(kernels, "source_of", lambda _: "another")
    assert load_machine_code(cupy, "canary", "sm_90").endswith(b"another")
    assert cupy.compiled == len(entries()) == 5


@pytest.mark.parametrize("damage", [b"", b"short", None, b"x" * 500])
def test_a_damaged_entry_is_made_again(cupy, damage):
    first = load_machine_code(cupy, "canary", "sm_90")
    (entry,) = entries()
    content = entry.read_bytes()
    entry.write_bytes(content[:-1] + b"?" if damage is None else damage)
    assert load_machine_code(cupy, "canary", "sm_90") == first
    assert entry.read_bytes() == content
    assert cupy.compiled == 2


def test_an_entry_of_nothing_is_made_again(cupy):
    import hashlib

    load_machine_code(cupy, "canary", "sm_90")
    (entry,) = entries()
    entry.write_bytes(hashlib.sha256(b"").digest())
    assert load_machine_code(cupy, "canary", "sm_90") != b""


def test_a_cache_that_cannot_be_written_costs_only_time(cupy, monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"")
    monkeypatch.setenv(kernels.VARIABLE, str(file / "below"))
    assert load_machine_code(cupy, "canary", "sm_90") == load_machine_code(cupy, "canary", "sm_90")
    assert cupy.compiled == 2


def test_a_kernel_that_does_not_compile_is_not_kept(cupy):
    cupy.error = CompileError("kernels/canary.cu(7): error: no")
    with pytest.raises(KernelError, match=r"(?s)NVRTC 13\.0 .*kernel canary for sm_90:.*canary\.cu\(7\): error: no$"):
        load_machine_code(cupy, "canary", "sm_90")
    assert not cache_folder().exists()


def test_for_a_gpu_that_is_too_old_the_older_libraries_are_named(cupy):
    cupy.error = CompileError("nvrtc: error: invalid value for --gpu-architecture (-arch)\n")
    with pytest.raises(KernelError, match=r"(?s)canary for sm_60.*-arch.*Older GPUs.*\[cuda12\].*sm_50"):
        load_machine_code(cupy, "canary", "sm_60")


@pytest.mark.parametrize("error", [RuntimeError("CuPy failed to load libnvrtc.so.13"), OSError("no libnvrtc")])
def test_without_nvrtc_the_extra_is_named(cupy, error):
    def fail():
        raise error

    cupy.cuda.nvrtc.getVersion = fail
    with pytest.raises(LibraryError, match=r"NVRTC cannot be used: .*libnvrtc.*pip install .*\[cuda13\]"):
        load_machine_code(cupy, "canary", "sm_90")


def test_the_folder_is_the_users_cache_or_that_of_the_environment_variable(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.setenv(kernels.VARIABLE, "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/gpubeton/kernels")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/a_user")
    assert cache_folder() == Path("/home/a_user/.cache/gpubeton/kernels")


def test_a_user_without_a_home_compiles_each_time(cupy, monkeypatch):
    def homeless(self):
        raise RuntimeError("Could not determine home directory.")

    for variable in (kernels.VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    assert load_machine_code(cupy, "canary", "sm_90") == load_machine_code(cupy, "canary", "sm_90")
    assert cupy.compiled == 2


def _load_often(folder, source):
    """In a process of its own."""
    import os

    os.environ[kernels.VARIABLE] = folder
    kernels.source_of = lambda _: source
    codes = {load_machine_code(Cupy(), "canary", "sm_90") for _ in range(50)}
    sys.exit(0 if codes == {f"(13, 0) {source}".encode()} else 1)


def test_processes_that_write_an_entry_at_the_same_time_get_whole_ones(tmp_path):
    context = multiprocessing.get_context("spawn")
    source = "x" * 1_000_000
    workers = [context.Process(target=_load_often, args=(str(tmp_path), source)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len(list(tmp_path.iterdir())) == 1
