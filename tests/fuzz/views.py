"""Two to four views of an image in one pass, and each of them alone: equal pixels, and verdicts that fit.

Damage within reach of one view counts for all views that are made together, so that fewer are made together
than alone; never more.
"""

from __future__ import annotations

import numpy as np

from tests.fuzz.campaign import Outcome, rng_of
from tests.fuzz.jpeg import MOST_LEVELS, is_ordinary, size_in_metadata, view_of
from tests.fuzz.making import STD, Bench
from tests.fuzz.mutants import bases, mutant

GROUP = 6


class Campaign:
    def __init__(self, seed, folder):
        self.seed, self.bench = seed, Bench()

    def close(self):
        return []

    def case(self, number):
        rng = rng_of(self.seed, number)
        data, height, width = bases()[int(rng.integers(len(bases())))]
        images = [(data, "nothing"), *(mutant(data, rng) for _ in range(GROUP))]
        sizes = [size_in_metadata(jpeg_data, height, width, rng) for jpeg_data, _ in images]
        views = [view_of(height, width, rng) for _ in range(int(rng.integers(2, 5)))]
        room = *map(max, zip(*sizes, strict=True)), max(len(jpeg_data) for jpeg_data, _ in images)
        together, apart = [], [[] for _ in images]
        self.bench.prepare(views, room, at_end=number % 2 == 0)
        for (jpeg_data, _), size in zip(images, sizes, strict=True):
            together.append([_copied(result) for result in self.bench.make(jpeg_data, *size, views)])
        for view in views:
            self.bench.prepare([view], room, at_end=number % 2 == 0)
            for (jpeg_data, _), size, result in zip(images, sizes, apart, strict=True):
                result.append(_copied(self.bench.make(jpeg_data, *size, [view])[0]))
        facts = [f"{ways}, size {size}, {len(views)} views" for (_, ways), size in zip(images, sizes, strict=True)]
        tried = zip(together, apart, facts, images, strict=True)
        return [
            outcome for first, other, fact, (data, _) in tried for outcome in _outcomes(first, other, views, data, fact)
        ]


def _copied(result):
    return result._replace(pixels=result.pixels.copy())


def _outcomes(together, apart, views, data, facts):
    for i, (shared, other) in enumerate(zip(together, apart, strict=True)):
        if shared.code and other.code:
            yield Outcome("refused together and alone")
        elif shared.code:
            yield Outcome("refused together, made alone")
        elif other.code:
            yield Outcome("made together, refused alone", f"view {i}: {other.reason}; {facts}")
        elif np.array_equal(shared.pixels, other.pixels):
            yield Outcome("made together and alone: equal")
        elif (
            shared.is_fallback
            and not other.is_fallback
            and (_are_close(shared, other, views[i]) or not is_ordinary(data))
        ):
            # Another view reaches what the crop decoder refuses and libjpeg-turbo does not, which rounds otherwise.
            yield Outcome("made together and alone: by two decoders")
        else:
            yield Outcome("made together and alone: other pixels", f"view {i}: {facts}")


def _are_close(first, other, view):
    """Whether two decoders may differ as much: resampled, levels that were clamped before differ from those after."""
    if view.box[2:] != view.size:
        return True
    off = np.abs(first.pixels.astype(np.float64) - other.pixels).max()
    return off <= (MOST_LEVELS if first.pixels.dtype == np.uint8 else 1.02 * MOST_LEVELS / STD)
