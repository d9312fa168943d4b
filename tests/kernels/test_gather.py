from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._gpu.launch import GATHER
from tests.kernels.host_build import FORWARD, ORDERS, RANDOM, host_kernels, needs_compiler
from tests.kernels.host_device import placed
from tests.kernels.launching import THREADS, address, ints

pytestmark = needs_compiler

#: The bytes where nothing may be written.
AROUND = 0xEE


class Copy:
    """Rows to be copied from somewhere before an unreadable page to somewhere before another."""

    def __init__(self, rows, row_bytes, source_shift=0, target_shift=0, source_gap=0, target_gap=0):
        self.rows, self.row_bytes = rows, row_bytes
        self.pitches = row_bytes + source_gap, row_bytes + target_gap
        generator = np.random.default_rng(rows * 7919 + row_bytes)
        lengths = [max(0, (rows - 1) * pitch + row_bytes) if rows else 0 for pitch in self.pitches]
        self.source = placed(generator.integers(0, 256, lengths[0], np.uint8), source_shift)
        self.target = placed(np.full(lengths[1], AROUND, np.uint8), target_shift)

    def entry(self):
        return (self.source.ctypes.data, self.target.ctypes.data, *self.pitches, self.row_bytes, self.rows)

    def rows_of(self, memory, pitch):
        whole = np.full(self.rows * pitch, AROUND, np.uint8)
        whole[: len(memory)] = memory
        return whole.reshape(self.rows, pitch)

    def assert_done(self):
        source = self.rows_of(self.source, self.pitches[0])[:, : self.row_bytes]
        target = self.rows_of(self.target, self.pitches[1])
        assert np.array_equal(target[:, : self.row_bytes], source)
        assert (target[:, self.row_bytes :] == AROUND).all()


def gather(copies, blocks=2, order=FORWARD, seed=0):
    table = placed(np.array([copy.entry() for copy in copies], GATHER))
    arguments = [address(table), *ints(len(copies))]
    host_kernels().launch("gather", (blocks * len(copies), 1, 1), (THREADS, 1, 1), arguments, order, seed)
    for copy in copies:
        copy.assert_done()


@pytest.mark.parametrize("order", ORDERS)
def test_rows_are_copied_at_every_alignment_and_nothing_beside_them(order):
    for source_shift in range(16):
        gather(
            [Copy(3, 77, source_shift, target_shift, source_gap=5, target_gap=3) for target_shift in range(16)],
            order=order,
        )


@pytest.mark.parametrize("row_bytes", [1, 2, 3, 15, 16, 17, 31, 32, 33, 2047, 2048, 2049, 4096, 10_000])
def test_rows_of_any_length_are_copied(row_bytes):
    gather([Copy(2, row_bytes, source, target) for source, target in ((0, 0), (1, 0), (0, 1), (15, 7), (8, 8))])


@given(
    st.integers(0, 9), st.integers(0, 5000), st.integers(0, 15), st.integers(0, 15), st.integers(0, 40),
    st.integers(0, 40), st.integers(1, 5), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=200)
def test_any_rows_are_copied(rows, row_bytes, source_shift, target_shift, source_gap, target_gap, blocks, seed):
    copy = Copy(rows, row_bytes, source_shift, target_shift, source_gap, target_gap)
    gather([copy, Copy(2, 5)], blocks, RANDOM, seed)


def test_nothing_is_copied_of_no_rows_or_empty_ones():
    gather([Copy(0, 10), Copy(4, 0), Copy(1, 1)])


def test_more_images_are_copied_than_a_grid_has_blocks_along_y():
    copy = Copy(1, 3)
    table = placed(np.array([copy.entry()] * 70_000, GATHER))
    host_kernels().launch("gather", (len(table), 1, 1), (THREADS, 1, 1), [address(table), *ints(len(table))])
    copy.assert_done()
