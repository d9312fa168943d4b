"""Pixels taken apart and put together: the same on machines of every kind of shuffle."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from gpubeton._cpu.interleave import best_span, deinterleave, interleave, load_planes, store_planes
from gpubeton._cpu.simd import I8, Vector, VectorBuilder, vector_kernel
from tests.cpu.guarded import guarded

SPANS = [(16, 16), (32, 16), (32, 32), (64, 16), (64, 64)]


@pytest.mark.parametrize(("count", "span"), SPANS)
def test_pixels_come_apart_into_channels_and_back(count, span):
    @vector_kernel
    def apart(emit: VectorBuilder, pixels: Vector, planes: Vector) -> None:
        for number, channel in enumerate(deinterleave(emit, pixels, count, span)):
            emit.store(channel, planes + count * number)

    @vector_kernel
    def together(emit: VectorBuilder, planes: Vector, pixels: Vector) -> None:
        channels = [emit.load(planes + count * number, I8, count) for number in range(3)]
        interleave(emit, channels, pixels, span)

    @numba.njit
    def both(pixels, planes, back):
        apart(pixels.ctypes.data, planes.ctypes.data)
        together(planes.ctypes.data, back.ctypes.data)

    pixels = guarded(np.random.default_rng(count).integers(0, 256, (count, 3), np.uint8))
    planes, back = guarded(np.zeros((3, count), np.uint8)), guarded(np.zeros((count, 3), np.uint8))
    both(pixels, planes, back)
    assert np.array_equal(planes, pixels.T)
    assert np.array_equal(back, pixels)


@pytest.mark.parametrize(
    ("chosen", "span"),
    [
        (None, 16),
        ("+sse4.2,+avx2", 16),
        ("+avx512f,+avx512vbmi,+avx512bw", 64),
        ("+avx512bw,-avx512vbmi,+avx512vbmi2", 16),
    ],
    ids=str,
)
def test_the_span_is_that_of_the_machine_that_numba_compiles_for(monkeypatch, chosen, span):
    monkeypatch.setattr(numba.config, "CPU_NAME", "generic")
    monkeypatch.setattr(numba.config, "CPU_FEATURES", chosen)
    assert best_span(64) == span


@pytest.mark.parametrize(("features", "span"), [({"avx2": True}, 16), ({"avx512vbmi": True}, 64)], ids=str)
def test_without_a_choice_it_is_that_of_this_machine(monkeypatch, features, span):
    monkeypatch.setattr(numba.config, "CPU_NAME", None)
    monkeypatch.setattr(numba.config, "CPU_FEATURES", None)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: features)
    assert best_span(64) == span


def test_without_avx_it_is_that_of_any_machine(monkeypatch):
    """As ``NUMBA_ENABLE_AVX=0`` has it: LLVM ends the process if it is asked for an instruction that it may not use."""
    monkeypatch.setattr(numba.config, "CPU_NAME", None)
    monkeypatch.setattr(numba.config, "CPU_FEATURES", None)
    monkeypatch.setattr(numba.config, "ENABLE_AVX", 0)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: {"avx512vbmi": True})
    assert best_span(64) == 16


WIDTHS = [1, 2, 15, 16, 17, 31, 32, 33, 48, 50, 224]


@numba.njit
def load(row, line):
    load_planes(row, line)


@numba.njit
def store(line, row):
    store_planes(line, row)


@pytest.mark.parametrize("width", WIDTHS)
def test_pixels_are_copied_apart_and_back_and_nothing_beyond_is_touched(width):
    row = guarded(np.random.default_rng(width).integers(0, 256, (width, 3), np.uint8))
    line = guarded(np.full((3, width), -1, np.int32))
    load(row, line)
    assert np.array_equal(line, row.T)
    back = guarded(np.zeros((width, 3), np.uint8))
    store(line, back)
    assert np.array_equal(back, row)
