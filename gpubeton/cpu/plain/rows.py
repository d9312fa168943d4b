"""Rows of numbers of 8 or 16 bits, summed down and across with weights, in single precision.

An output level is the exact weighted mean, rounded, but for sums that lie within a few millionths of a half.
"""

from __future__ import annotations

from typing import Any

from gpubeton.cpu.lanes import F32, I8, I16, I32, I64, Emitter, Lanes, vector_kernel

# Numbers of a row that are summed at a time.
LANES = 16
_PIXEL = 4


def _weight(emit: Emitter, address: Lanes, lanes: int) -> Lanes:
    return emit.splat(emit.load(address, F32, align=4), lanes)


def _down(
    emit: Emitter, element: Any, line: Lanes, source: Lanes, stride: Lanes, weights: Lanes, taps: Lanes, chunks: Lanes
) -> None:
    size = element.width // 8
    with emit.loop(chunks) as chunk:
        start = source + chunk * (LANES * size)
        running = emit.variable(emit.fill(F32, LANES, 0.0))
        with emit.loop(taps) as tap:
            values = emit.load(start + stride * tap, element, LANES).zero_extend(I32).to_float()
            running.set(running.get() + values * _weight(emit, weights + tap * 4, LANES))
        emit.store(running.get(), line + chunk * (4 * LANES))


@vector_kernel
def sum_down_8(
    emit: Emitter, line: Lanes, source: Lanes, stride: Lanes, weights: Lanes, taps: Lanes, chunks: Lanes
) -> None:
    """Sum rows of bytes, each times its weight.

    Parameters
    ----------
    line : address of float32, shape (chunks * LANES,)
        Written.
    source : address of uint8
        First row.
    stride : int
        Bytes from one row to the next.
    weights : address of float32, shape (taps,)
        Weights.
    taps : int
        Rows.
    chunks : int
        How many times LANES numbers are made.
    """
    _down(emit, I8, line, source, stride, weights, taps, chunks)


@vector_kernel
def sum_down_16(
    emit: Emitter, line: Lanes, source: Lanes, stride: Lanes, weights: Lanes, taps: Lanes, chunks: Lanes
) -> None:
    """Sum rows of uint16, each times its weight; arguments as for `sum_down_8`."""
    _down(emit, I16, line, source, stride, weights, taps, chunks)


def _opaque_down(
    emit: Emitter, element: Any, line: Lanes, source: Lanes, stride: Lanes, weights: Lanes, taps: Lanes, width: Lanes
) -> None:
    size = element.width // 8
    with emit.loop(width) as x:
        start = source + x * (_PIXEL * size)
        running = emit.variable(emit.fill(F32, _PIXEL, 0.0))
        with emit.loop(taps) as tap:
            values = emit.load(start + stride * tap, element, _PIXEL).zero_extend(I32).to_float()
            # Colours times alpha, and alpha itself.
            opacity = values.shuffle(values.like(1.0), [3, 3, 3, 4])
            running.set(running.get() + values * opacity * _weight(emit, weights + tap * 4, _PIXEL))
        emit.store(running.get(), line + x * (4 * _PIXEL))


@vector_kernel
def sum_opaque_down_8(
    emit: Emitter, line: Lanes, source: Lanes, stride: Lanes, weights: Lanes, taps: Lanes, width: Lanes
) -> None:
    """Sum rows of `width` RGBA pixels of 8 bits, colours times alpha; else as `sum_down_8`."""
    _opaque_down(emit, I8, line, source, stride, weights, taps, width)


@vector_kernel
def sum_opaque_down_16(
    emit: Emitter, line: Lanes, source: Lanes, stride: Lanes, weights: Lanes, taps: Lanes, width: Lanes
) -> None:
    """Sum rows of `width` RGBA pixels of 16 bits, colours times alpha; else as `sum_down_8`."""
    _opaque_down(emit, I16, line, source, stride, weights, taps, width)


@vector_kernel
def sum_across(
    emit: Emitter,
    pixels: Lanes,
    line: Lanes,
    first: Lanes,
    counts: Lanes,
    weights: Lanes,
    weight_stride: Lanes,
    columns: Lanes,
    channels: Lanes,
) -> None:
    """Sum pixels of a row, each times its weight.

    Parameters
    ----------
    pixels : address of float32, shape (columns, channels), and three more
        Written; each pixel writes four numbers, of which the next overwrites what is too many.
    line : address of float32, shape (n, channels), and three more
        Source row.
    first, counts : address of int32, shape (columns,)
        First source pixel of each output pixel, and how many there are.
    weights : address of float32
        Weights.
    weight_stride : int
        Bytes from one output pixel's weights to the next's.
    columns : int
        Output pixels.
    channels : int
        Numbers of a pixel, up to four.
    """
    with emit.loop(columns) as x:
        begin = emit.load(first + x * 4, I32, align=4).sign_extend(I64)
        start = line + begin * channels * 4
        own = weights + x * weight_stride
        running = emit.variable(emit.fill(F32, _PIXEL, 0.0))
        with emit.loop(emit.load(counts + x * 4, I32, align=4).sign_extend(I64)) as tap:
            values = emit.load(start + tap * channels * 4, F32, _PIXEL)
            running.set(running.get() + values * _weight(emit, own + tap * 4, _PIXEL))
        emit.store(running.get(), pixels + x * channels * 4)
