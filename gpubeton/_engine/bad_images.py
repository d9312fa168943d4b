"""Bad images: the reasons by sample, the error about them, and the samples that may replace them.

The executors decide which images are bad: `gpubeton._cpu.bad_images`, if the libraries refuse what the crop decoder
has refused, and `GpuExecutor` in `gpubeton._gpu.executor`. The engine then raises, skips or replaces
(`Engine._handle_bad_images`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from gpubeton.errors import BadImageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from gpubeton._plan.image_job import BadImage
    from gpubeton._plan.order import IdRange

OnError = Literal["raise", "skip", "replace"]

MAX_TRIES = 16
"""Samples that are tried as replacements of a bad one."""

_MAX_BAD_LISTED = 5  # by the text of an error; its attributes have all of them
_MAX_LISTED = 8  # by a note of an error


class BadSample(NamedTuple):
    """A sample with an image that could not be decoded."""

    sample: int  # sample id
    reason: str  # output and reason; with several files, first the file and the number there


def bad_image_error(where: str, bad: Sequence[BadSample], advice: str) -> BadImageError:
    """Make the error that names bad samples; `where` is the file, batch and epoch."""
    named = "; ".join(f"sample {sample}: {reason}" for sample, reason in bad[:_MAX_BAD_LISTED])
    more = f"; and {len(bad) - _MAX_BAD_LISTED} more" if len(bad) > _MAX_BAD_LISTED else ""
    return BadImageError(
        f"{where}: {named}{more}. {advice}", [sample for sample, _ in bad], [reason for _, reason in bad]
    )


def bad_rows(
    images: Iterable[BadImage],
    names: Sequence[tuple[str, str]],  # of each program: its output and its field
    samples: NDArray[np.uint64],  # (N,) ids of the batch's samples
    origin: Callable[[int], str],  # the file and the number there of a sample, with several files
) -> dict[int, BadSample]:
    """Find the rows of a batch whose images are bad, and the reasons. The executors decide which images are."""
    # Several outputs of one image may give the same reason: only the first is named.
    reasons: dict[int, dict[tuple[str, str], str]] = {}
    for image in sorted(images, key=lambda image: (image.row, image.program)):
        output, field = names[image.program]
        reasons.setdefault(image.row, {}).setdefault((field, image.reason), f"{output}: {image.reason}")
    rows = {}
    for row, texts in reasons.items():
        sample, reason = int(samples[row]), "; ".join(texts.values())
        rows[row] = BadSample(sample, f"{origin(sample)}: {reason}" if origin(sample) else reason)
    return rows


def listed(samples: NDArray[np.uint64]) -> str:
    """Format sample ids, (N,), for a note: the first few of many."""
    text = ", ".join(map(str, samples[:_MAX_LISTED].tolist()))
    return text if len(samples) <= _MAX_LISTED else f"{text}, ... ({len(samples)} in all)"


class Successors:
    """Finds replacements of bad samples: those that follow in the loader's indices; the first follows the last."""

    def __init__(self, indices: NDArray[np.uint64] | IdRange) -> None:  # (N,)
        self._ids = indices
        self._by_id: NDArray[np.intp] | None = None

    def of(self, sample: int) -> Iterator[int]:
        """Yield the ids of up to `MAX_TRIES` other samples to try."""
        if len(self._ids) == 0:
            return
        if self._by_id is None:  # sorted at the first bad image: mostly there is none
            self._indices = np.asarray(self._ids, np.uint64)
            self._by_id = np.argsort(self._indices, kind="stable")
        # A user's order may have samples that are not among the indices: then the next greater id.
        at = np.searchsorted(self._indices, np.uint64(sample), sorter=self._by_id) % len(self._indices)
        position = self._by_id[at]
        seen = {sample}
        for step in range(len(self._indices)):
            candidate = int(self._indices[(position + step) % len(self._indices)])
            if candidate not in seen:
                yield candidate
                seen.add(candidate)
            if len(seen) > MAX_TRIES:
                return
