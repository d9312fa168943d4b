"""GPUs: which one decodes for a loader, whether it can, and which JPEGs it would take."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpubeton._cpu.jpeg.markers import probe_jpegs
from gpubeton._engine.output_graph import GpuTarget
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
from gpubeton.errors import DeviceError
from gpubeton.format import ImageMode
from gpubeton.pipeline.pipeline_spec import DrawnParameters, PipelineSpec
from gpubeton.transforms.ops import ToDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from gpubeton._bytes import ByteSource
    from gpubeton._engine.output_graph import Pipeline
    from gpubeton._gpu.cuda import Device
    from gpubeton._gpu.gpu import Gpu
    from gpubeton._gpu.nvjpeg_backends import DecodeBackends
    from gpubeton._gpu.options import GpuOptions
    from gpubeton.loader.config import Decoder

NO_ENTRY_POINTS = "the file has no entry points: `gpubeton index FILE` lets the GPU decode its JPEGs"

_RATIOS = {
    Sampling.FULL: "4:4:4",
    Sampling.HALF_ACROSS: "4:2:2",
    Sampling.HALF_BOTH: "4:2:0",
    Sampling.HALF_DOWN: "4:4:0",
    Sampling.QUARTER_ACROSS: "4:1:1",
    Sampling.EIGHTH: "4:1:0",
    Sampling.GRAY: "gray",
}


class GpuChoice(NamedTuple):
    """Which GPU decodes, and why."""

    target: GpuTarget | None  # None if the CPU decodes
    reason: str
    is_forced: bool  # the user asked for it: doing without is an error


def choose_gpu(device: str, decoder: Decoder, pipelines: Mapping[str, Pipeline]) -> GpuChoice:
    """Choose the GPU that decodes: with "auto" the first that a pipeline moves its batches to. Opens nothing."""
    is_forced = device.startswith("cuda")
    if device == "cpu":
        return GpuChoice(None, "device='cpu' was asked for", is_forced=False)
    if decoder == "cpu":
        moved_to = GpuTarget(_numbered(device), takes_everything=True, decodes=False) if is_forced else None
        return GpuChoice(moved_to, "decoder='cpu' was asked for", is_forced=False)
    if is_forced:
        return GpuChoice(GpuTarget(_numbered(device), takes_everything=True), f"device={device!r} was asked for", True)
    for operation in _moves(pipelines.values()):
        if operation.device.type == "cuda":
            target = GpuTarget(_numbered(str(operation.device)), takes_everything=False)
            return GpuChoice(target, f"a pipeline moves its batches to {operation.device}", decoder != "auto")
    unused = "" if decoder == "auto" else f", so that decoder={decoder!r} has nothing to do"
    return GpuChoice(None, f"no pipeline moves its batches to a GPU{unused}", is_forced=False)


def make_gpu(target: GpuTarget, largest: tuple[int, int], decoder: Decoder, options: GpuOptions, num_slots: int) -> Gpu:
    """Open a GPU and its decoders, for `num_slots` batches at once and JPEGs of up to a height and width, or more."""
    from gpubeton._gpu.cuda import open_device
    from gpubeton._gpu.gpu import Gpu
    from gpubeton._gpu.nvjpeg_backends import DecodeBackends, open_nvjpeg_backends, with_entries
    from gpubeton._gpu.self_test import with_self_test

    device = open_device(target.device)
    takes_entries = decoder in ("auto", "entries") and DecodeRoute.ENTRIES in options.allowed
    opener: Callable[[Device], DecodeBackends] = lambda _: DecodeBackends()  # noqa: E731
    if decoder in ("auto", "nvjpeg"):
        opener = partial(
            open_nvjpeg_backends, library=None, options=options, largest=largest, is_library_needed=not takes_entries
        )
    if takes_entries:
        opener = partial(with_entries, opener)
    return Gpu(device, options, partial(with_self_test, opener), num_slots=num_slots)


def _moves(pipelines: Iterable[Pipeline]) -> Iterator[ToDevice]:
    for pipeline in pipelines:
        if not isinstance(pipeline, DrawnParameters):
            operations = pipeline.transforms if isinstance(pipeline, PipelineSpec) else pipeline
            yield from (operation for operation in operations or () if isinstance(operation, ToDevice))


def _numbered(device: str) -> str:
    """Add the number of the current GPU to a name that has none."""
    if ":" in device:
        return device
    import torch

    if not torch.cuda.is_available():
        return "cuda:0"
    return f"cuda:{torch.cuda.current_device()}"


@dataclass(frozen=True)
class GpuState:
    """Whether the GPU of this process can decode, and if not, why."""

    name: str = ""  # empty if there is none that can decode
    reason: str = ""  # why it cannot decode
    is_present: bool = False  # whether the driver or torch sees one
    driver: str = ""  # its version; empty if unknown
    nvjpeg: str = ""  # its version; empty if it cannot be loaded
    # A note for each way to decode; "missing: " and the reason for one that could not be opened.
    routes: dict[str, str] = field(default_factory=dict)
    # The fault that the self-test has seen in each way to decode, and in the kernels after the CPU.
    self_test: dict[str, str] = field(default_factory=dict)

    def missing(self, route: str) -> bool:
        """Whether a way to decode, such as "hardware" for the JPEG engines, was tried and could not be opened."""
        return self.routes.get(route, "").startswith("missing: ")


def read_gpu() -> GpuState:
    """Try the GPU, its driver, nvJPEG and its ways to decode."""
    import torch

    driver = _driver()
    try:
        torch.cuda.current_device()
    except (RuntimeError, AssertionError) as error:  # the latter: built without CUDA
        reason = f"torch sees no GPU: {error}"
        return GpuState(reason=reason, is_present=bool(driver), driver=driver)
    from gpubeton._gpu.cuda import open_device
    from gpubeton._gpu.nvjpeg import load
    from gpubeton._gpu.nvjpeg_backends import open_nvjpeg_backends, with_entries
    from gpubeton._gpu.options import GpuOptions
    from gpubeton._gpu.self_test import read_faults, with_self_test

    nvjpeg = ""
    try:
        device = open_device("cuda:0")
        library = load()
        nvjpeg = ".".join(map(str, library.version))
        with device.active():
            opener = partial(open_nvjpeg_backends, library=library, options=GpuOptions(), largest=(1024, 1024))
            decoders = with_self_test(partial(with_entries, opener), device)
            usable = {*decoders.backends, *([DecodeRoute.ENTRIES] if decoders.takes_entries else [])}
            notes = decoders.notes.items()
            routes = {route.name.lower(): note if route in usable else f"missing: {note}" for route, note in notes}
            for backend in decoders.backends.values():
                backend.close()
    except DeviceError as error:
        return GpuState(reason=str(error), is_present=True, driver=driver, nvjpeg=nvjpeg)
    return GpuState(device.name, "", True, driver, nvjpeg, routes, read_faults(device))


def _driver(
    path: Path = Path("/proc/driver/nvidia/version"),
    wsl: tuple[Path, ...] = (Path("/dev/dxg"), Path("/usr/lib/wsl/lib/libcuda.so.1")),
) -> str:
    """Return the version of NVIDIA's kernel module: the first word of its line that looks like a version."""
    try:
        words = path.read_text().split()
    except OSError:
        return "that of Windows (WSL2)" if all(place.exists() for place in wsl) else ""
    return next((word for word in words if word[0].isdigit() and "." in word), "")


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
