"""Vertical resampling of Y, Cb and Cr, and from them RGB (JFIF 1.02): one output row of 8-bit pixels."""

from __future__ import annotations

from gpubeton.cpu.lanes import I8, I16, I32, Emitter, Lanes, vector_kernel

# Output pixels made at a time.
GROUP = 16
_UNROLLED = (2, 3, 4)

# JFIF's factors as 14-bit fractions: times a sample with 8 fractional bits, the low 16 bits dropped, leaves 6.
_CR_TO_RED = round(1.402 * (1 << 14))
_CB_TO_GREEN = round(0.344136286 * (1 << 14))
_CR_TO_GREEN = round(0.714136286 * (1 << 14))
_CB_TO_BLUE = round(1.772 * (1 << 14))


def _product(value: Lanes, factor: int) -> Lanes:
    """Return (value * factor) >> 16 of signed 16-bit lanes."""
    return (value.sign_extend(I32) * factor).shift_right(16).narrow(I16)


def _to_rgb(luma: Lanes, blue_difference: Lanes, red_difference: Lanes) -> list[Lanes]:
    """Turn 8.8 fixed-point Y, Cb, Cr into 8-bit R, G, B, rounded and clamped."""
    # Half a unit of the result, and half a unit of what the products below lose by rounding down.
    base = luma.shift_right_logical(2) + 32
    cb = blue_difference ^ -0x8000
    cr = red_difference ^ -0x8000
    red = base + _product(cr, _CR_TO_RED)
    green = base - _product(cb, _CB_TO_GREEN) - _product(cr, _CR_TO_GREEN)
    blue = base + _product(cb, _CB_TO_BLUE)
    return [colour.shift_right(6).clamp(0, 255).narrow(I8) for colour in (red, green, blue)]


def _interleave(red: Lanes, green: Lanes, blue: Lanes) -> Lanes:
    """Return R, G, B of each pixel side by side."""
    return red.join(green).shuffle(
        blue.join(blue), [lane for i in range(GROUP) for lane in (i, GROUP + i, 2 * GROUP + i)]
    )


@vector_kernel
def colour_row(
    emit: Emitter,
    luma: Lanes,
    blue_difference: Lanes,
    red_difference: Lanes,
    stride: Lanes,
    luma_words: Lanes,
    luma_taps: Lanes,
    chroma_words: Lanes,
    chroma_taps: Lanes,
    pixels: Lanes,
    groups: Lanes,
) -> None:
    """Make one row of RGB pixels.

    Parameters
    ----------
    luma, blue_difference, red_difference : address of uint16
        First row that takes part, of each plane; samples times 256.
    stride : int
        Bytes from one row of a plane to the next.
    luma_words, chroma_words : address of uint32
        Weights of the rows, see `taps`.
    luma_taps, chroma_taps : int
        Rows to sum.
    pixels : address of uint8, shape (GROUP * groups, 3)
        Written.
    groups : int
        Pixels / GROUP, rounded up.
    """

    def fraction(word: Lanes) -> Lanes:
        return emit.splat(emit.load(word, I32, align=4), GROUP // 2).bits(I16, GROUP)

    def few(plane: Lanes, words: Lanes, count: int) -> Lanes:
        # Weights are loaded anew for each group. Kept in registers across the loop, LLVM would widen them to 32 bits
        # before it, and no longer see that 16-bit multiplications suffice.
        total = emit.load(plane, I16, GROUP).times_fraction(fraction(words))
        for k in range(1, count):
            total = total + emit.load(plane + stride * k, I16, GROUP).times_fraction(fraction(words + 4 * k))
        return total

    def many(plane: Lanes, words: Lanes, count: Lanes) -> Lanes:
        running = emit.variable(emit.lost(count, GROUP))
        with emit.loop(count) as k:
            row = emit.load(plane + stride * k, I16, GROUP)
            running.set(running.get() + row.times_fraction(fraction(words + k * 4)))
        return running.get()

    def row(case: int | None) -> None:
        with emit.loop(groups) as group:
            across = group * (2 * GROUP)
            planes = []
            for plane, words, count in (
                (luma, luma_words, luma_taps),
                (blue_difference, chroma_words, chroma_taps),
                (red_difference, chroma_words, chroma_taps),
            ):
                start = plane + across
                planes.append(few(start, words, case) if case else many(start, words, count))
            emit.store(_interleave(*_to_rgb(*planes)), pixels + group * (3 * GROUP))

    emit.switch(_larger(emit, luma_taps, chroma_taps), _UNROLLED, row)


def _larger(emit: Emitter, one: Lanes, other: Lanes) -> Lanes:
    bigger = emit.builder.icmp_signed(">", one.value, other.value)
    return Lanes(emit.builder, emit.builder.select(bigger, one.value, other.value))
