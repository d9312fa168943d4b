"""Weaving: RGB pixels taken apart into their channels, and put together again, without leaving registers.

Bytes go from vector to vector by shuffles. Those that stay within their sixteen cost one instruction on any machine;
one that takes each byte from anywhere in two vectors is an instruction on some, and a dozen on others. A span says how
far bytes may go: the channels are the same.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numba

from gpubeton.cpu.lanes import I8, Emitter, Lanes

_NARROW = 16

# Published without types.
_config: Any = numba.config


def permutes_bytes() -> bool:
    """Return whether one instruction takes each byte from anywhere in two vectors of 64.

    Returns
    -------
    bool
        Whether Numba compiles for a machine that has AVX-512's instructions for bytes (VBMI): Ice Lake, Zen 4 and
        later.
    """
    chosen = _config.CPU_FEATURES
    if chosen is None and _config.CPU_NAME is None:
        return bool(_config.ENABLE_AVX and llvmlite.binding.get_host_cpu_features().get("avx512vbmi", False))
    return "+avx512vbmi" in (chosen or "").split(",")


def usual_span(count: int) -> int:
    """Return the span for vectors of `count` bytes that costs least on this machine.

    Parameters
    ----------
    count : int
        16, 32 or 64.

    Returns
    -------
    int
        16, or `count` where bytes may come from anywhere.
    """
    return count if permutes_bytes() else _NARROW


def load_channels(emit: Emitter, pixels: Lanes, count: int, span: int) -> list[Lanes]:
    """Load pixels.

    Parameters
    ----------
    emit : Emitter
        Where instructions go.
    pixels : address of uint8, shape (count, 3)
        The pixels.
    count : int
        How many; a multiple of `span`.
    span : int
        See `usual_span`.

    Returns
    -------
    list of three Lanes
        `count` bytes each: red, green and blue.
    """
    parts = [
        Lanes.joined([emit.load(pixels + start, I8, span) for start in range(span * third, 3 * count, 3 * span)])
        for third in range(3)
    ]
    channels = []
    for channel in range(3):
        early, late = [], []
        for pixel in range(count):
            third, place = divmod(3 * (pixel % span) + channel, span)
            place += pixel - pixel % span
            # Of the first two parts what they have; the rest keeps its lanes free for the third.
            early.append(place + count * (third == 1))
            late.append(place + count if third == 2 else pixel)
        channels.append(parts[0].shuffle(parts[1], early).shuffle(parts[2], late))
    return channels


def store_channels(emit: Emitter, channels: list[Lanes], pixels: Lanes, span: int) -> None:
    """Store pixels.

    Parameters
    ----------
    emit : Emitter
        Where instructions go.
    channels : list of three Lanes
        Bytes: red, green and blue.
    pixels : address of uint8, shape (count, 3)
        Written.
    span : int
        See `usual_span`.
    """
    red, green, blue = channels
    count = red.count
    for third in range(3):
        two, three = [], []
        for lane in range(count):
            pixel, channel = divmod(span * third + lane % span, 3)
            pixel += lane - lane % span
            # Red and green in their places, then blue between them.
            two.append(pixel + count * (channel == 1))
            three.append(pixel + count if channel == 2 else lane)
        part = red.shuffle(green, two).shuffle(blue, three)
        for first in range(0, count, span):
            emit.store(part.part(first, first + span), pixels + (3 * first + span * third))
