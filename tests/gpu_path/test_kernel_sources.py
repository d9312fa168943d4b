from __future__ import annotations

import re

import pytest

from gpubeton.errors import KernelError
from gpubeton.gpu import gpu_kernels
from gpubeton.gpu.gpu_kernels import folder, kernel_names, source_of


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder of kernels to write into, as if the checkout's were there."""
    monkeypatch.setattr(gpu_kernels, "_INSTALLED", tmp_path / "none")
    monkeypatch.setattr(gpu_kernels, "_CHECKOUT", tmp_path)
    source_of.cache_clear()
    yield tmp_path
    source_of.cache_clear()


def test_every_kernel_of_the_checkout_has_one_text_without_includes():
    jpegs = [f"jpeg_{part}" for part in ("across", "down", "huffman", "idct", "taps")]
    assert kernel_names() == ["canary", "color", "color_sum", "gather", *jpegs, "mix", "resample", "taps"]
    for kernel in kernel_names():
        source = source_of(kernel)
        assert not re.search(r"^#include|^#pragma once", source, re.MULTILINE)
        assert len(re.findall(rf'extern "C" __global__ void[^(]*(?:\([^)]*\))?\s+{kernel}\(', source)) == 1


def test_every_line_says_where_it_comes_from():
    for kernel in kernel_names():
        where, number, lines = "", 0, {}
        for line in source_of(kernel).splitlines():
            named = re.fullmatch(r'#line (\d+) "kernels/(.*)"', line)
            if named:
                where, number = named[2], int(named[1])
                lines.setdefault(where, (folder() / where).read_text().splitlines())
                continue
            assert lines[where][number - 1] in (line, "#pragma once"), (where, number)
            number += 1
        assert f"{kernel}.cu" in lines


def test_a_header_comes_once_and_before_what_includes_it(files):
    (files / "one.cuh").write_text('#pragma once\n#include "two.cuh"\nint one;\n')
    (files / "two.cuh").write_text("#pragma once\nint two;\n")
    (files / "main.cu").write_text('#include "one.cuh"\n#include "two.cuh"\nint main;\n')
    assert source_of("main").split("\n") == [
        '#line 1 "kernels/main.cu"',
        '#line 1 "kernels/one.cuh"', "",
        '#line 1 "kernels/two.cuh"', "", "int two;",
        '#line 3 "kernels/one.cuh"', "int one;",
        '#line 2 "kernels/main.cu"',
        '#line 3 "kernels/main.cu"', "int main;",
        "",
    ]  # fmt: skip


def test_an_installed_package_has_them_within(files, monkeypatch):
    installed = files / "gpubeton" / "_kernels"
    installed.mkdir(parents=True)
    (installed / "only.cu").write_text("int only;\n")
    monkeypatch.setattr(gpu_kernels, "_INSTALLED", installed)
    assert folder() == installed
    assert kernel_names() == ["only"]


def test_a_kernel_that_does_not_exist_is_named_beside_those_that_do(files):
    (files / "real.cu").write_text("")
    with pytest.raises(KernelError, match=r"'unreal'.* real"):
        source_of("unreal")


def test_a_header_that_is_missing_is_named(files):
    (files / "real.cu").write_text('#include "gone.cuh"\n')
    with pytest.raises(KernelError, match=r"gone\.cuh"):
        source_of("real")


def test_an_installation_without_kernels_says_where_it_looked(files, monkeypatch):
    monkeypatch.setattr(gpu_kernels, "_CHECKOUT", files / "nowhere")
    with pytest.raises(KernelError, match=r"none.*nowhere"):
        kernel_names()
