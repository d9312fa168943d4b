from __future__ import annotations

import re

import pytest

from gpubeton._gpu.kernels import FOLDERS, folder, kernel_names, source_of
from gpubeton.errors import KernelError


def test_every_kernel_of_the_checkout_has_one_text_without_includes():
    jpegs = [f"jpeg_{part}" for part in ("across", "down", "huffman", "idct", "taps")]
    assert kernel_names() == ["canary", "gather", "image_steps", *jpegs, "mix", "resample", "taps"]
    for kernel in kernel_names():
        source = source_of(kernel)
        assert not re.search(r"^#include|^#pragma once", source, re.MULTILINE)
        assert len(re.findall(rf'extern "C" __global__ void[^(]*(?:\([^)]*\))?\s+{kernel}\(', source)) == 1


def test_every_line_has_its_file_and_number():
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


def test_a_header_comes_once_and_before_the_files_that_include_it(tmp_path):
    (tmp_path / "one.cuh").write_text('#pragma once\n#include "two.cuh"\nint one;\n')
    (tmp_path / "two.cuh").write_text("#pragma once\nint two;\n")
    (tmp_path / "main.cu").write_text('#include "one.cuh"\n#include "two.cuh"\nint main;\n')
    assert re.findall(r"int (\w+);", source_of("main", (tmp_path,))) == ["two", "one", "main"]


def test_an_installed_package_has_them_within(tmp_path):
    installed = tmp_path / "gpubeton" / "_kernels"
    installed.mkdir(parents=True)
    (installed / "only.cu").write_text("int only;\n")
    places = (installed, tmp_path)
    assert folder(places) == installed
    assert kernel_names(places) == ["only"]
    assert [place.name for place in FOLDERS] == ["_kernels", "kernels"]


def test_a_kernel_or_header_that_does_not_exist_and_an_installation_without_kernels_are_named(tmp_path):
    (tmp_path / "real.cu").write_text('#include "gone.cuh"\n')
    with pytest.raises(KernelError, match=r"'unreal'.* real"):
        source_of("unreal", (tmp_path,))
    with pytest.raises(KernelError, match=r"gone\.cuh"):
        source_of("real", (tmp_path,))
    with pytest.raises(KernelError, match=r"none.*nowhere"):
        kernel_names((tmp_path / "none", tmp_path / "nowhere"))
