from __future__ import annotations

import json
import re

import pytest

from gpubeton.gpu.gpu_kernels import kernel_names
from tests.kernels.compilers import compilers
from tools.kernel_resources import ARCHITECTURES, RESOURCES, measured, resources_of, text_of

#: Of a multiprocessor: registers of 32 bits, and bytes of shared memory that blocks may have together.
REGISTERS = 65536
SHARED = {"sm_75": 64, "sm_80": 164, "sm_86": 100, "sm_89": 100, "sm_90": 228, "sm_100": 228, "sm_120": 100}
THREADS = 128
# CUDA keeps 1 kB of each block's for itself, from Ampere on.
RESERVED = 1024


@pytest.fixture(scope="module")
def resources():
    return json.loads(RESOURCES.read_text())


def test_the_file_has_every_kernel_on_every_architecture(resources):
    assert sorted(resources["kernels"]) == kernel_names()
    assert all(tuple(figures) == ARCHITECTURES for figures in resources["kernels"].values())


def test_the_file_is_as_the_tool_writes_it(resources):
    assert text_of(resources) == RESOURCES.read_text()


def test_no_kernel_spills(resources):
    for kernel in resources["kernels"].values():
        assert all(figures["spilled"] == 0 for figures in kernel.values())


@pytest.mark.parametrize("kernel", kernel_names())
def test_at_least_three_blocks_are_on_a_multiprocessor_at_a_time(resources, kernel):
    for architecture, figures in resources["kernels"][kernel].items():
        assert REGISTERS // (figures["registers"] * THREADS) >= 6
        assert SHARED[architecture] * 1024 // (figures["shared"] + RESERVED) >= 3


COMPILED = [
    pytest.param(compiler, kernel, architecture, id=f"{kernel}-{architecture}-{'.'.join(map(str, compiler.version))}")
    for compiler in compilers()
    for kernel in kernel_names()
    for architecture in ARCHITECTURES
    if int(architecture[3:]) in compiler.architectures
]


@pytest.mark.skipif(not COMPILED, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize(("compiler", "kernel", "architecture"), COMPILED)
def test_a_kernel_compiles_without_a_warning_to_what_the_file_says(compiler, kernel, architecture, resources):
    """What another version of the compiler makes of it may differ, but may not spill either."""
    compiled = measured(compiler, kernel, architecture)
    assert compiled.code[:4] == b"\x7fELF"
    assert kernel.encode() in compiled.code
    assert [line for line in compiled.log.splitlines() if not re.match(r"ptxas (info|  +\.)", line)] == []
    figures = resources_of(compiled.log)
    assert figures["spilled"] == 0
    assert 16 <= figures["registers"] <= REGISTERS // THREADS // 6
    if ".".join(map(str, compiler.version)) == resources["nvrtc"]:
        assert figures == resources["kernels"][kernel][architecture], (
            "run tools/kernel_resources.py, and look at what changed"
        )
