from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import pytest

from gpubeton._gpu import gpu_kernels, nvrtc
from gpubeton._gpu.gpu_kernels import cache_folder, load_machine_code
from gpubeton.errors import KernelError


class Compiler:
    """Stands in for NVRTC, and counts."""

    def __init__(self):
        self.version = (13, 0)
        self.compiled = []

    def compile(self, source, name, architecture, options):
        self.compiled.append((name, architecture))
        return nvrtc.Compiled(f"{self.version} {architecture} {source}".encode(), "")


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    stand_in = Compiler()
    monkeypatch.setattr(nvrtc, "load", lambda: stand_in)
    monkeypatch.setenv(gpu_kernels.VARIABLE, str(tmp_path / "a" / "cache"))
    return stand_in


def entries():
    return sorted(cache_folder().iterdir())


def test_a_kernel_is_compiled_once(compiler):
    first = load_machine_code("canary", "sm_90")
    assert load_machine_code("canary", "sm_90") == first
    assert compiler.compiled == [("canary", "sm_90")]
    assert [entry.name.rpartition("-")[0] for entry in entries()] == ["canary-sm_90"]


def test_another_kernel_or_architecture_is_another_entry(compiler):
    codes = {load_machine_code(*which) for which in (("canary", "sm_90"), ("canary", "sm_80"), ("resample", "sm_90"))}
    assert len(codes) == len(entries()) == 3


def test_it_is_compiled_anew_when_the_source_the_compiler_or_the_options_change(compiler, monkeypatch):
    load_machine_code("canary", "sm_90")
    compiler.version = (13, 1)
    load_machine_code("canary", "sm_90")
    load_machine_code("canary", "sm_90", ("--std=c++17",))
    monkeypatch.setattr(gpu_kernels, "source_of", lambda _: "another")
    assert load_machine_code("canary", "sm_90").endswith(b"another")
    assert len(compiler.compiled) == len(entries()) == 4


@pytest.mark.parametrize("damage", [b"", b"short", None, b"x" * 500])
def test_a_damaged_entry_is_made_again(compiler, damage):
    first = load_machine_code("canary", "sm_90")
    (entry,) = entries()
    content = entry.read_bytes()
    entry.write_bytes(content[:-1] + b"?" if damage is None else damage)
    assert load_machine_code("canary", "sm_90") == first
    assert entry.read_bytes() == content
    assert len(compiler.compiled) == 2


def test_an_entry_of_nothing_is_made_again(compiler):
    import hashlib

    load_machine_code("canary", "sm_90")
    (entry,) = entries()
    entry.write_bytes(hashlib.sha256(b"").digest())
    assert load_machine_code("canary", "sm_90") != b""


def test_a_cache_that_cannot_be_written_costs_only_time(compiler, monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"")
    monkeypatch.setenv(gpu_kernels.VARIABLE, str(file / "below"))
    assert load_machine_code("canary", "sm_90") == load_machine_code("canary", "sm_90")
    assert len(compiler.compiled) == 2


def test_a_kernel_that_does_not_compile_is_not_kept(compiler, monkeypatch):
    def fail(source, name, architecture, options):
        raise KernelError("no")

    monkeypatch.setattr(compiler, "compile", fail)
    with pytest.raises(KernelError, match="no"):
        load_machine_code("canary", "sm_90")
    assert not cache_folder().exists()


def test_a_kernel_that_does_not_exist_is_named(compiler):
    with pytest.raises(KernelError, match="no kernel 'none'"):
        load_machine_code("none", "sm_90")


def test_the_folder_is_the_users_cache_or_that_of_the_environment_variable(monkeypatch):
    monkeypatch.setenv(gpu_kernels.VARIABLE, "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.setenv(gpu_kernels.VARIABLE, "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/gpubeton/kernels")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/a_user")
    assert cache_folder() == Path("/home/a_user/.cache/gpubeton/kernels")


def test_a_user_without_a_home_compiles_each_time(compiler, monkeypatch):
    def homeless(self):
        raise RuntimeError("Could not determine home directory.")

    for variable in (gpu_kernels.VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    assert load_machine_code("canary", "sm_90") == load_machine_code("canary", "sm_90")
    assert len(compiler.compiled) == 2


def _load_often(folder, source):
    """In a process of its own."""
    import os

    os.environ[gpu_kernels.VARIABLE] = folder
    nvrtc.load = Compiler
    gpu_kernels.source_of = lambda _: source
    codes = {load_machine_code("canary", "sm_90") for _ in range(50)}
    sys.exit(0 if codes == {f"(13, 0) sm_90 {source}".encode()} else 1)


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
