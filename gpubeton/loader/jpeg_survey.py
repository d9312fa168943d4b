"""Survey of JPEG files, for reports: how many are of which kind, and which decoder of a GPU would take them."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._cpu.jpeg.markers import probe_jpegs
from gpubeton._plan.routes import (
    KIND,
    PROBE_COLUMNS,
    SAMPLING,
    DecodeRoute,
    JpegKind,
    Sampling,
    assign_routes,
    routes_by_kind,
)
from gpubeton.format import ImageMode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._bytes import ByteSource

_RATIOS = {
    Sampling.FULL: "4:4:4",
    Sampling.HALF_ACROSS: "4:2:2",
    Sampling.HALF_BOTH: "4:2:0",
    Sampling.HALF_DOWN: "4:4:0",
    Sampling.QUARTER_ACROSS: "4:1:1",
    Sampling.EIGHTH: "4:1:0",
    Sampling.GRAY: "gray",
}


@dataclass(frozen=True)
class JpegSurvey:
    """How many JPEG files are of each kind."""

    # "damaged", "baseline", "elaborate" (such as progressive) and "foreign" (such as CMYK); "other" files
    kinds: dict[str, int]
    samplings: dict[str, int]  # by chroma sampling, such as "4:2:0"; without damaged files
    routes: dict[str, int]  # by the part of a machine that decodes them if its GPU has JPEG engines: "hardware", "cpu"

    def __add__(self, other: JpegSurvey) -> JpegSurvey:
        """Count the files of both."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return JpegSurvey(
            *({name: mine.get(name, 0) + its.get(name, 0) for name in {**mine, **its}} for mine, its in pairs)
        )


def survey_jpegs(
    source: ByteSource,
    offset: NDArray[np.uint64],  # (N,)
    size: NDArray[np.uint64],  # (N,) bytes
    height: NDArray[np.int32],  # (N,) by the file's metadata; the CPU decodes an image whose markers have another
    width: NDArray[np.int32],  # (N,)
    *,
    gpu_decodes: bool = True,  # whether a GPU decodes images of this field
) -> JpegSurvey:
    """Read the markers of JPEG files, and choose decode routes as a loader does; decode nothing."""
    probed = np.zeros((len(offset), PROBE_COLUMNS), np.int32)
    if source.is_mappable and len(offset):
        content = source.map()
        probe_jpegs(np.uint64(content.ctypes.data) + offset, size, probed)
    else:  # one after the other: all of them may not fit into memory
        for row in range(len(offset)):
            content = np.frombuffer(source.read_exactly(int(offset[row]), int(size[row])), np.uint8)
            probe_jpegs(np.array([content.ctypes.data], np.uint64), size[row : row + 1], probed[row : row + 1])
    routes, mode = np.empty(len(offset), np.int8), np.full(len(offset), ImageMode.JPG, np.uint8)
    by_kind = routes_by_kind((DecodeRoute.HARDWARE,) if gpu_decodes else ())
    assign_routes(mode, size, height, width, probed, by_kind, int(DecodeRoute.BYTES), routes)
    kinds = {kind.name.lower(): int((probed[:, KIND] == kind).sum()) for kind in JpegKind}
    damaged = np.flatnonzero((probed[:, KIND] == JpegKind.DAMAGED) & (size > 1)).tolist()
    if others := sum(source.read(int(offset[row]), 2) != b"\xff\xd8" for row in damaged):
        kinds["damaged"], kinds["other"] = kinds["damaged"] - others, others
    return JpegSurvey(
        kinds=kinds,
        samplings=_count_samplings(probed[probed[:, KIND] != JpegKind.DAMAGED, SAMPLING]),
        routes={route.name.lower(): int((routes == route).sum()) for route in (DecodeRoute.HARDWARE, DecodeRoute.CPU)},
    )


def _count_samplings(samplings: NDArray[np.int32]) -> dict[str, int]:
    counts = {ratio: int((samplings == sampling).sum()) for sampling, ratio in _RATIOS.items()}
    counts["other"] = len(samplings) - sum(counts.values())
    return {ratio: count for ratio, count in counts.items() if count}
