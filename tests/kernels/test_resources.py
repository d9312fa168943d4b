from __future__ import annotations

import json
import re
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from gpubeton._gpu.kernels import function_of
from gpubeton._gpu.launch import KernelImages, ProgramConstants, gather, launch_jpegs, mix_images, write_canaries
from gpubeton.pipeline.interpolation import INTERPOLATIONS
from tests.kernels.compilers import WHY_NONE, compiler
from tools.kernel_resources import ARCHITECTURES, RESOURCES, all_kernels, measured, resources_of, text_of

#: Of a multiprocessor: registers of 32 bits, and bytes of shared memory that blocks may have together.
REGISTERS = 65536
SHARED = {"sm_75": 64, "sm_80": 164, "sm_86": 100, "sm_89": 100, "sm_90": 228, "sm_100": 228, "sm_120": 100}
THREADS = 128
#: What a block may have without asking for more.
SHARED_OF_A_BLOCK = 48 * 1024
# CUDA keeps 1 kB of each block's for itself, from Ampere on.
RESERVED = 1024


@pytest.fixture(scope="module")
def resources():
    return json.loads(RESOURCES.read_text())


def test_the_file_has_every_kernel_on_every_architecture(resources):
    assert sorted(resources["kernels"]) == all_kernels()
    assert all(tuple(figures) == ARCHITECTURES for figures in resources["kernels"].values())


def test_the_file_is_as_the_tool_writes_it(resources):
    assert text_of(resources) == RESOURCES.read_text()


def test_no_kernel_spills(resources):
    for kernel in resources["kernels"].values():
        assert all(figures["spilled"] == 0 for figures in kernel.values())


@pytest.mark.parametrize("kernel", all_kernels())
def test_enough_threads_are_on_a_multiprocessor_at_a_time(resources, kernel):
    for architecture, figures in resources["kernels"][kernel].items():
        threads = LAUNCHES[kernel][0][0]
        assert REGISTERS // (figures["registers"] * threads) * threads >= 6 * THREADS
        assert SHARED[architecture] * 1024 // (figures["shared"] + RESERVED) * threads >= 3 * THREADS


def launches():
    """How the program launches each kernel: the threads of a block, and the bytes of each argument."""
    results = {}

    def launch(kernel, _grid, block, arguments, _stream):
        results[kernel] = block, [argument.nbytes for argument in arguments]

    device: Any = SimpleNamespace(launch=launch)
    gather(device, 0, 1, 1, None)
    write_canaries(device, 0, 1, 0, None)
    mix_images(device, (1, 8, 8), 0, 0, 0, 4, 0, None)
    places = dict.fromkeys(("status", "draws", "columns", "most", "most_taps", "taps"), 0)
    of_images = dict.fromkeys(("pictures", "levels", "steps"), 0)
    of_jpegs = dict.fromkeys(("jpegs", "tables", "groups", "intervals", "out"), 0)
    for rule in INTERPOLATIONS.values():
        constants = ProgramConstants(rule, 8, 8, 0, 0, 1, 1, frozenset(), (0, 4))
        images = KernelImages(constants, 1, **places, **of_images).begin(0, 0)
        images.resample(device, None)
        images.carry_out_steps(device, None)
        launch_jpegs(device, constants, None, count=1, num_groups=1, most_blocks=1, **places, **of_jpegs)
    return results


LAUNCHES = launches()


def test_the_program_launches_every_kernel():
    assert sorted(LAUNCHES) == all_kernels()


def limits_of(code, function):
    """What machine code is made for: the threads of a block, and the bytes of each argument."""
    (start,), (size, count, names) = struct.unpack_from("<Q", code, 0x28), struct.unpack_from("<HHH", code, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", code, start + number * size) for number in range(count)]
    expected = b".nv.info." + function.encode() + b"\0"
    place, nbytes = next(
        section[4:] for section in sections if code.startswith(expected, sections[names][4] + section[0])
    )
    block, arguments, stop = None, {}, place + nbytes
    while place < stop:
        form, kind, value = struct.unpack_from("<BBH", code, place)
        place += 4
        if form != 4:  # its value is all there is
            continue
        if kind == 5:
            block = struct.unpack_from("<III", code, place)
        elif kind == 0x17:
            _, number, _, flags = struct.unpack_from("<IHHI", code, place)
            arguments[number] = flags >> 18
        place += value
    return block, [arguments[number] for number in sorted(arguments)]


@pytest.mark.skipif(compiler() is None, reason=WHY_NONE)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kernel", all_kernels())
def test_a_kernel_compiles_without_a_warning_to_the_resources_in_the_file(kernel, architecture, resources):
    """The result of another version of the compiler may differ, but may not spill either."""
    if int(architecture[3:]) not in compiler().architectures:
        pytest.skip(f"NVRTC {compiler().version} does not compile for {architecture}")
    compiled = measured(compiler(), kernel, architecture)
    assert compiled.code[:4] == b"\x7fELF"
    assert function_of(kernel).encode() in compiled.code
    assert [line for line in compiled.log.splitlines() if not re.match(r"ptxas (info|  +\.)", line)] == []
    figures = resources_of(compiled.log)
    assert figures["spilled"] == 0
    assert figures["shared"] <= SHARED_OF_A_BLOCK
    assert limits_of(compiled.code, function_of(kernel)) == LAUNCHES[kernel], "CUDA would refuse or misread it"
    assert 16 <= figures["registers"] <= REGISTERS // (6 * THREADS)
    if ".".join(map(str, compiler().version)) == resources["nvrtc"]:
        assert figures == resources["kernels"][kernel][architecture], (
            "run python -m tools.kernel_resources, and look at what changed"
        )
