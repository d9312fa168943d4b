"""Resources: files, memory and the GPU that a loader keeps from epoch to epoch."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpubeton.cpu.worker_pool import WorkerPool
from gpubeton.engine import ArrayPool, Engine, EngineOptions, Output, Plan
from gpubeton.engine.output_graph import GpuTarget, Pipeline
from gpubeton.engine.outputs import ImageOutput
from gpubeton.errors import DeviceError, LoaderClosedError
from gpubeton.files.open_files import OpenSources
from gpubeton.format import ImageMode
from gpubeton.format.entry_points import open_entry_points
from gpubeton.pipeline.pipeline_spec import DrawnParameters, PipelineSpec
from gpubeton.storage import MappedStorage, ReadStorage, Staging, Storage
from gpubeton.transforms.ops import ToDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from gpubeton.engine.timing import StageTimers
    from gpubeton.format.index import Index
    from gpubeton.gpu.decode_backend import DecodeBackends
    from gpubeton.gpu.device import Device
    from gpubeton.gpu.gpu_executor import Gpu
    from gpubeton.loader.config import Decoder, LoaderConfig
    from gpubeton.loader.resident_images import ResidentImages


# Warnings about GPUs, each of which is given once.
_warned = {""}


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


class Resources:
    """Files, memory and the GPU of a loader, kept from epoch to epoch because it takes time to make them."""

    def __init__(self, index: Index, config: LoaderConfig) -> None:
        self.gpu: Gpu | None = None
        self.resident: ResidentImages | None = None
        self.gpu_choice = choose_gpu(config.device, config.decoder, config.pipelines)
        self._index = index
        self.entry_points, faults = open_entry_points(index)
        for fault in faults:
            warnings.warn(f"{fault}. Until then, images are decoded without them.", stacklevel=3)
        # They stay open: all epochs read the files that were checked, also when these are renamed or deleted.
        self._files = OpenSources(((file.path, file.identity) for file in index.files), is_random=not config.os_cache)
        self._files.hold()
        self._mapped = MappedStorage(self._files) if config.os_cache and self._files.is_mappable else None
        self._staging = Staging()
        self._pool = ArrayPool()

    def open_gpu(self, config: LoaderConfig, outputs: Iterable[Output]) -> None:
        """Open the chosen GPU, if it makes any output; if it cannot be used, warn, or raise if the user insisted."""
        choice = self.gpu_choice
        images = [output for output in outputs if isinstance(output, ImageOutput) and output.program.device != "cpu"]
        if choice.target is None or not images:
            return
        try:
            self.gpu = _open_gpu(choice.target, images, config)
        except DeviceError as error:
            if choice.is_forced:
                raise
            reason = f"{choice.target.device} cannot decode: {error}"
            warnings.warn(f"{self._index.title}: images are decoded on the CPU. {reason}", stacklevel=3)
            self.gpu_choice = GpuChoice(None, reason, is_forced=False)
        else:
            self._staging = Staging(self._allocate_pinned, is_pinned=True)
            if self.gpu.warning not in _warned:
                _warned.add(self.gpu.warning)
                warnings.warn(self.gpu.warning, stacklevel=3)
            from gpubeton.loader.resident_images import ResidentImages

            self.resident = ResidentImages(self.gpu, self._mapped, self._index, [output.source for output in images])
            try:
                self.resident.choose(config.indices)
            except DeviceError:
                self.close()
                raise

    def open_epoch(self, config: LoaderConfig, plan: Plan, first_batch: int, stages: StageTimers) -> Engine:
        """Make the engine that carries out an epoch; the caller closes it."""
        options = EngineOptions(
            path=self._index.title,
            num_workers=config.num_workers,
            num_in_flight=config.num_in_flight,
            on_error=config.on_error,
            origin=self._index.origin,
        )
        storage: Storage
        if self._mapped is None:
            storage = ReadStorage(self._files, self._staging)
        else:
            self._mapped.check()
            storage = self._mapped
        if self.resident is not None:
            self.resident.choose(config.indices)
            self.resident.load()
        # Batches in work or ready, one or two in the hands of the loop, and one that is being handed over.
        self._pool.begin_epoch((config.batches_ahead + 3) * len(plan.outputs))
        try:
            return Engine(
                plan,
                storage,
                WorkerPool,
                self._pool,
                indices=config.indices,
                options=options,
                first_batch=first_batch,
                start_gpu_executor=None if self.gpu is None else self.gpu.crew,
                on_gpu={} if self.gpu is None else {name: own.holds for name, own in self.gpu.resident.items()},
                timers=stages,
            )
        except BaseException:
            storage.close()
            raise

    def close(self) -> None:
        """Free everything; memory in use is freed when its user is done."""
        if self.gpu is not None:
            self.gpu.close()
        self._mapped = None
        self._files.close()
        self._staging = Staging()
        self._pool.close()

    def _allocate_pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """Allocate memory from which the GPU reads without another copy."""
        if self.gpu is None:
            raise LoaderClosedError("the loader was closed while a batch was read")
        with self.gpu.device.active():
            return self.gpu.device.allocate_pinned(nbytes).array


def _open_gpu(target: GpuTarget, outputs: list[ImageOutput], config: LoaderConfig) -> Gpu:
    from gpubeton.gpu.cuda import open_device
    from gpubeton.gpu.decode_backend import DecodeBackends, with_entries
    from gpubeton.gpu.gpu_executor import Gpu
    from gpubeton.gpu.self_test import with_self_test
    from gpubeton.plan.lanes import Lane

    device, options = open_device(target.device), config.gpu_options
    takes_entries = config.decoder in ("auto", "own") and Lane.OWN in options.allowed
    opener: Callable[[Device], DecodeBackends]
    if config.decoder in ("auto", "nvjpeg"):
        from gpubeton.gpu.nvjpeg_backends import open_nvjpeg_backends

        largest, is_needed = _largest(outputs), not takes_entries
        opener = partial(
            open_nvjpeg_backends, library=None, options=options, largest=largest, is_library_needed=is_needed
        )
    elif config.decoder == "own":
        opener = lambda _: DecodeBackends()  # noqa: E731
    else:
        from gpubeton.gpu.other_libraries import open_library_backends

        opener = partial(open_library_backends, config.decoder)
    if takes_entries:
        opener = partial(with_entries, opener)
    return Gpu(device, options, partial(with_self_test, opener), num_slots=config.num_in_flight)


def _moves(pipelines: Iterable[Pipeline]) -> list[ToDevice]:
    own = [pipeline for pipeline in pipelines if not isinstance(pipeline, DrawnParameters)]
    lists = [pipeline.transforms if isinstance(pipeline, PipelineSpec) else pipeline for pipeline in own]
    return [operation for operations in lists for operation in operations or () if isinstance(operation, ToDevice)]


def _numbered(device: str) -> str:
    """Add the number of the current GPU to a name that has none."""
    if ":" in device:
        return device
    import torch

    if not torch.cuda.is_available():
        return "cuda:0"
    return f"cuda:{torch.cuda.current_device()}"


def _largest(outputs: list[ImageOutput]) -> tuple[int, int]:
    """Return height and width of the largest JPEG, in pixels."""
    largest = 1, 1
    for column in (output.source.column for output in outputs):
        height, width = column["height"].astype(np.int64), column["width"].astype(np.int64)
        pixels = height * width * (column["mode"] == ImageMode.JPG)
        place = int(pixels.argmax())
        if pixels[place] > largest[0] * largest[1]:
            largest = int(height[place]), int(width[place])
    return largest
