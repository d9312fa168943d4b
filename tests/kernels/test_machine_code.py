"""What the compiler makes of the Huffman kernel's loop over symbols, on each architecture: nothing runs here."""

from __future__ import annotations

import re

import pytest

from benchmarks.gpu.machine_code import (
    disassemble,
    find_disassembler,
    find_loops,
    find_partings,
    operations_of,
    read_blocks,
)
from gpubeton._gpu.kernels import source_of
from tests.kernels.compilers import WHY_NONE, compiler
from tools.kernel_resources import ARCHITECTURES

try:
    DISASSEMBLER = find_disassembler()
except FileNotFoundError:
    DISASSEMBLER = None

pytestmark = [
    pytest.mark.skipif(DISASSEMBLER is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm"),
    pytest.mark.skipif(compiler() is None, reason=WHY_NONE),
]

KERNEL = "jpeg_huffman"


def text_of(architecture, source=None):
    """The machine code of the kernel, or of another text of it."""
    code = compiler().compile(source or source_of(KERNEL), KERNEL, architecture).code
    return disassemble(code, DISASSEMBLER)


def loop_over_symbols(text):
    """The blocks of the kernel, and the loop in which coefficients are stored."""
    blocks = read_blocks(text)
    (loop,) = (
        loop
        for loop in find_loops(blocks)
        if loop.depth == 0
        and any(operation.startswith(("ST.E.U16", "STG.E.U16")) for operation in operations_of(blocks, loop))
    )
    return blocks, loop


def lanes_meet_after_each_symbol(text):
    blocks, loop = loop_over_symbols(text)
    inner = [other.blocks for other in find_loops(blocks) if other.blocks < loop.blocks]
    outside = loop.blocks.difference(*inner)
    has_look_up = any(
        re.match(r"LDS\b.*U16", operation) for number in outside for operation in blocks[number].operations
    )
    return has_look_up and not find_partings(blocks, loop)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_lanes_meet_after_each_symbol(architecture):
    """A diverged warp would decode with one lane at a time, and no result would show it."""
    text = text_of(architecture)
    assert lanes_meet_after_each_symbol(text)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_symbol_takes_no_division_and_reads_only_the_compressed_data(architecture):
    operations = operations_of(*loop_over_symbols(text_of(architecture)))
    assert not any(operation.startswith("MUFU") for operation in operations)
    loads = [operation for operation in operations if operation.startswith(("LD.", "LDG."))]
    assert len(loads) == 3, "a byte, the byte after 0xFF, and the next word"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_kernel_whose_lanes_wait_at_the_end_of_each_block_would_be_noticed(architecture):
    changed = source_of(KERNEL)
    for old, new in {
        "int run, value;\n": "int run, value; do {\n",
        "        k++;\n        if (k < 64) continue;\n": "        k++; } while (k < 64);\n",
    }.items():
        assert changed.count(old) == 1
        changed = changed.replace(old, new)
    assert not lanes_meet_after_each_symbol(text_of(architecture, changed))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_missing_barrier_would_be_noticed(architecture):
    """The last one of a turn, at which lanes wait whose block has ended."""
    blocks, loop = loop_over_symbols(text_of(architecture))
    last = max(number for number in loop.blocks if blocks[number].operations[-1].startswith("BSYNC"))
    blocks[last].operations[-1] = "NOP"
    assert find_partings(blocks, loop)
