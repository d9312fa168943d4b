from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu.machine_code import figures, find_loops, read_blocks
from benchmarks.kernel_facts import lanes_at_work, occupancy, symbols_of_blocks

#: A loop of five instructions, two of which are left out on one way; then code after the end that jumps back.
TEXT = """
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_2:
        /*0010*/                   LDS R1, [R0] ;
        /*0020*/                   BSSY B0, `(.L_x_1) ;
        /*0030*/              @!P0 BRA `(.L_x_0) ;
        /*0040*/                   IADD3 R1, R1, 0x1, RZ ;
        /*0050*/                   STG.E desc[UR4][R2.64], R1 ;
.L_x_0:
        /*0060*/                   BSYNC B0 ;
.L_x_1:
        /*0070*/               @P1 BRA `(.L_x_2) ;
        /*0080*/                   EXIT ;
.L_x_3:
        /*0090*/                   BRA `(.L_x_3);
"""


def test_a_loop_has_all_its_instructions_and_a_shortest_way_around():
    blocks = read_blocks(TEXT)
    (loop,) = find_loops(blocks)
    assert (sum(len(blocks[number].operations) for number in loop.blocks), loop.shortest, loop.depth) == (7, 5, 0)
    result = figures(blocks)
    assert result["instructions"] == 10
    assert result["loops"][0]["kinds"] == {"branches": 4, "shared memory": 1, "integers": 1, "global memory": 1}


@pytest.mark.parametrize(
    ("architecture", "threads", "registers", "shared", "warps"),
    [
        ("sm_90", 128, 32, 0, 64),
        ("sm_90", 128, 64, 18 << 10, 32),
        ("sm_75", 128, 72, 18 << 10, 12),
        ("sm_90", 64, 32, 0, 64),
    ],
)
def test_occupancy_is_limited_by_registers_and_shared_memory(architecture, threads, registers, shared, warps):
    assert occupancy(architecture, threads, registers, shared)[0] == warps


def test_symbols_are_those_of_the_standards_runs():
    blocks = np.zeros((4, 64), np.int16)
    blocks[1, 63] = 1  # after 62 zeros: three runs of 16, then one of 14 with the coefficient; no end of block
    blocks[2, [0, 1]] = 5
    blocks[3] = 1
    assert symbols_of_blocks(blocks).tolist() == [2, 5, 3, 64]


def test_lanes_wait_for_the_longest_of_their_warp():
    assert lanes_at_work(np.full(64, 7)) == 1
    assert lanes_at_work(np.array([10] + [0] * 31)) == 1 / 32
    assert lanes_at_work(np.array([10] * 32 + [4] * 16)) == (320 + 64) / (320 + 128)
