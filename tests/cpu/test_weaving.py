"""Pixels taken apart and put together: the same on machines of every kind of shuffle."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from gpubeton.cpu import weaving
from gpubeton.cpu.lanes import Emitter, Lanes, vector_kernel
from tests.cpu.guarded import guarded

SPANS = [(16, 16), (32, 16), (32, 32), (64, 16), (64, 64)]


@pytest.mark.parametrize(("count", "span"), SPANS)
def test_pixels_come_apart_into_channels_and_back(count, span):
    @vector_kernel
    def apart(emit: Emitter, pixels: Lanes, planes: Lanes) -> None:
        for number, channel in enumerate(weaving.load_channels(emit, pixels, count, span)):
            emit.store(channel, planes + count * number)

    @vector_kernel
    def together(emit: Emitter, planes: Lanes, pixels: Lanes) -> None:
        channels = [emit.load(planes + count * number, weaving.I8, count) for number in range(3)]
        weaving.store_channels(emit, channels, pixels, span)

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
    assert weaving.usual_span(64) == span


@pytest.mark.parametrize(("features", "span"), [({"avx2": True}, 16), ({"avx512vbmi": True}, 64)], ids=str)
def test_without_a_choice_it_is_that_of_this_machine(monkeypatch, features, span):
    monkeypatch.setattr(numba.config, "CPU_NAME", None)
    monkeypatch.setattr(numba.config, "CPU_FEATURES", None)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: features)
    assert weaving.usual_span(64) == span


def test_without_avx_it_is_that_of_any_machine(monkeypatch):
    """As ``NUMBA_ENABLE_AVX=0`` has it: LLVM ends the process if it is asked for an instruction that it may not use."""
    monkeypatch.setattr(numba.config, "CPU_NAME", None)
    monkeypatch.setattr(numba.config, "CPU_FEATURES", None)
    monkeypatch.setattr(numba.config, "ENABLE_AVX", 0)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: {"avx512vbmi": True})
    assert weaving.usual_span(64) == 16
