"""Damaged JPEGs: whole images and crops between unreadable pages, and libjpeg-turbo's verdict on each.

A case is a group of mutants of one image, made one after the other with the same memory, as a worker does.
"""

from __future__ import annotations

import numpy as np

from gpubeton._cpu.jpeg.codes import WRONG_CROP
from tests.cpu.making import INTERPOLATIONS
from tests.cpu.plain_jpeg import DamagedError, read
from tests.fuzz.campaign import Outcome, rng_of
from tests.fuzz.making import FINISHES, MAX_SIDE, MEAN, STD, Bench, View, size_of, strict, with_plain_header
from tests.fuzz.mutants import bases, mutant

GROUP = 10
#: Two decoders may round differently; more is an error.
MOST_LEVELS = 2


class Campaign:
    def __init__(self, seed, folder):
        self.seed, self.bench = seed, Bench()

    def close(self):
        return []

    def case(self, number):
        rng = rng_of(self.seed, number)
        data, height, width = bases()[int(rng.integers(len(bases())))]
        mutants = [(data, "nothing"), *(mutant(data, rng) for _ in range(GROUP))]
        sizes = [size_in_metadata(mutant_data, height, width, rng) for mutant_data, _ in mutants]
        view = view_of(height, width, rng)
        images = *map(max, zip(*sizes, strict=True)), max(len(mutant_data) for mutant_data, _ in mutants)
        self.bench.prepare([view], images, at_end=number % 2 == 0)
        tried = zip(mutants, sizes, strict=True)
        return [self._try(i, mutant_data, ways, size, view) for i, ((mutant_data, ways), size) in enumerate(tried)]

    def _try(self, i, data, ways, size, view):
        (result,) = self.bench.make(data, *size, [view])
        libjpeg = strict(data)
        facts = f"mutant {i} ({ways}), {len(data)} bytes, size {size[0]} x {size[1]}, {view}"
        if result.code:
            return _refused(result, libjpeg, size, facts)
        if libjpeg.kind == "accepts":
            if libjpeg.pixels is None:
                return Outcome("both decode: inks, not compared")
            if libjpeg.pixels.shape[:2] != size:
                return Outcome("decoded with another size", f"{facts}; libjpeg-turbo: {libjpeg.pixels.shape}")
            return _compared(result.pixels, libjpeg.pixels, view, data, facts)
        if libjpeg.kind == "undecided":
            if result.is_fallback and not is_readable(data):
                return Outcome("decoded, a plain reader finds its data damaged", facts)
            return Outcome(f"decoded, libjpeg-turbo: {libjpeg.message}")
        repaired = strict(with_plain_header(data))
        if repaired.kind == "accepts":
            outcome = None if repaired.pixels is None else _compared(result.pixels, repaired.pixels, view, data, facts)
            return outcome if outcome and outcome.finding else Outcome(f"decoded, a harmless fault: {libjpeg.message}")
        whole = View(view.size, (0, 0, *size), "area")
        if view.box != whole.box and self.bench.make(data, *size, [whole])[0].code:
            return Outcome("decoded: the crop ends before the damage")
        way = " (fallback)" if result.is_fallback else ""
        return Outcome(f"decoded{way}, strict libjpeg-turbo refuses: {libjpeg.message}", facts)


def size_in_metadata(data, height, width, rng):
    """The size for the metadata: that of the sound image, or that of the damaged header."""
    result = size_of(data) if rng.random() < 0.5 else None
    return result if result and min(result) > 0 and max(result) <= MAX_SIDE else (height, width)


def view_of(height, width, rng):
    """The whole image as it is, or a crop: as it is, or resampled."""
    way = rng.random()
    if way < 0.4:
        return View((height, width), (0, 0, height, width), "area")
    top, left = int(rng.integers(height)), int(rng.integers(width))
    box = top, left, int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1))
    size = box[2:] if way < 0.7 else (int(2 ** rng.uniform(0, 6.2)), int(2 ** rng.uniform(0, 6.2)))
    interpolation = INTERPOLATIONS[int(rng.integers(len(INTERPOLATIONS)))]
    shift = rng.integers(-5, 6, 2).tolist() if rng.random() < 0.3 else (0, 0)
    finish = int(rng.integers(len(FINISHES))) if rng.random() < 0.3 else 0
    return View(size, box, interpolation, int(rng.integers(2)), tuple(shift), finish)


def _refused(result, libjpeg, size, facts):
    if result.code == WRONG_CROP:
        return Outcome("refused: the crop passes the border that the metadata have")
    if libjpeg.kind == "refuses":
        return Outcome("both refuse")
    if libjpeg.kind == "undecided":
        return Outcome(f"refused, libjpeg-turbo: {libjpeg.message}")
    if libjpeg.pixels is None or libjpeg.pixels.shape[:2] != size:
        return Outcome("refused: another size than in the metadata")
    return Outcome("refused, strict libjpeg-turbo accepts", f"{facts}; {result.reason}")


def _compared(result, pixels, view, data, facts):
    """Compare what both decode: level by level if nothing was resampled, else by the range of the crop's levels."""
    if view.finish:
        result = np.rint(result.astype(np.float64) * STD + MEAN)
    top, left, height, width = view.box
    crop = pixels[top : top + height, left : left + width].astype(int)
    rows, columns = view.size
    y, x = view.shift
    inside = result[max(0, -y) : max(0, rows - y), max(0, -x) : max(0, columns - x)].astype(int)
    if inside.size == 0:
        return Outcome("both decode: nothing of the crop is shown")
    most = MOST_LEVELS
    if (height, width) == view.size:
        crop = crop[:, ::-1] if view.flip else crop
        shown = crop[max(0, y) : max(0, y) + inside.shape[0], max(0, x) : max(0, x) + inside.shape[1]]
        off, way = np.abs(inside - shown).max(), "level by level"
    else:
        # One pixel around the crop has a part in it: interpolated chroma reaches that far.
        around = pixels[max(0, top - 1) : top + height + 1, max(0, left - 1) : left + width + 1].astype(int)
        low, high = around.min(axis=(0, 1)), around.max(axis=(0, 1))
        if view.interpolation == "bicubic":
            # Negative weights of up to an eighth a direction pass the range.
            beyond = -(-(high - low) // 3)
            low, high = low - beyond, high + beyond
            most *= 2  # weights whose magnitudes add up to 1.28 a direction: 1.64 times the difference of the decoders
        off, way = max((low - inside).max(), (inside - high).max()), "within the crop's range"
    if off <= most:
        return Outcome(f"both decode: at most {most} levels apart, {way}")
    if not is_ordinary(data):
        return Outcome("both decode: coefficients beyond 16-bit arithmetic, not compared")
    return Outcome("both decode: other pixels", f"{off} levels apart, {way}; {facts}")


def is_readable(data):
    """Whether a plain reader finds a code for all data of a baseline file, and enough data."""
    try:
        read(with_plain_header(data))
    except DamagedError as error:
        return "pass the end of the block" in str(error)  # which libjpeg-turbo takes, too
    except (KeyError, IndexError, ValueError, UnboundLocalError):
        return True  # not one that this reader knows
    return True


def is_ordinary(data):
    """Whether coefficients are sound, and small enough for libjpeg-turbo's 16-bit arithmetic.

    It lets coefficients pass the end of a block without a warning, and its sums of extreme ones wrap around: between
    its two passes they are four times the sum of up to sqrt(2) * cos(pi / 16) = 1.387 of each.
    """
    try:
        return all(np.abs(blocks).sum(axis=-1).max() < 5900 for blocks in read(data).values())
    except (DamagedError, KeyError, IndexError, ValueError, UnboundLocalError):
        return False
