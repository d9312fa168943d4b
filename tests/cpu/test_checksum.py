"""CRC-32 in compiled code is that of zlib, by every way in which it is computed."""

from __future__ import annotations

import zlib

import llvmlite.binding
import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from gpubeton._compile.simd import Vector, VectorBuilder
from gpubeton._cpu import stored_bytes
from gpubeton._cpu.stored_bytes import crc_by_table, find_damage

BYTES = np.random.default_rng(0).integers(0, 256, (1 << 22) + 64, dtype=np.uint8)


@numba.njit
def by_table(address, size):
    return crc_by_table(0xFFFFFFFF, address, size) ^ 0xFFFFFFFF


def one_by_one(content, starts, sizes):
    return [by_table(content.ctypes.data + start, size) for start, size in zip(starts, sizes, strict=True)]


def at_once(content, starts, sizes):
    result = np.zeros(len(starts), np.uint64)
    address = np.array(starts, np.uint64) + np.uint64(content.ctypes.data)
    stored_bytes.compute_checksums(address, np.array(sizes, np.uint64), result)
    return result.tolist()


WAYS = pytest.mark.parametrize("way", [at_once, one_by_one])


def expected(content, starts, sizes):
    return [zlib.crc32(content[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


@WAYS
def test_all_short_sizes_at_all_alignments(way):
    starts, sizes = (axis.ravel().tolist() for axis in np.mgrid[0:17, 0:301])
    assert way(BYTES, starts, sizes) == expected(BYTES, starts, sizes)


@WAYS
@given(st.binary(max_size=2000), st.lists(st.tuples(st.integers(0, 63), st.integers(0, 1 << 22)), max_size=8))
def test_any_bytes_and_large_sizes(way, content, places):
    data = np.frombuffer(content, np.uint8)
    assert way(data, [0], [len(data)]) == [zlib.crc32(content)]
    starts, sizes = [list(column) for column in zip(*places, strict=True)] or [[], []]
    assert way(BYTES, starts, sizes) == expected(BYTES, starts, sizes)


def test_regions_that_differ_are_marked_and_counted():
    starts, sizes = np.arange(8) * 1000, np.array([0, 1, 15, 64, 65, 500, 999, 1000])
    sums = np.array(expected(BYTES, starts, sizes), np.uint64)
    sums[[1, 6]] ^= np.uint64(1 << 31)
    sums[3] = 0  # not known
    is_damaged = np.ones(8, np.bool_)
    arguments = starts.astype(np.uint64) + np.uint64(BYTES.ctypes.data), sizes.astype(np.uint64), sums, is_damaged
    assert find_damage(*arguments) == 2
    assert np.flatnonzero(is_damaged).tolist() == [1, 6]


def test_arm64_has_an_instruction_for_it():
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.IntType(64), [ir.IntType(64)] * 3), "crc")
    builder = ir.IRBuilder(function.append_basic_block())
    arguments = (Vector(builder, argument) for argument in function.args)
    builder.ret(stored_bytes.add_words(VectorBuilder(builder), *arguments).value)
    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    target = llvmlite.binding.Target.from_triple("aarch64-unknown-linux-gnu")
    assembly = target.create_target_machine(features="+crc").emit_assembly(llvmlite.binding.parse_assembly(str(module)))
    assert "crc32x" in assembly
