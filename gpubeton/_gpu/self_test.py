"""The self-test of a GPU: at its first use, each way to decode makes small batches, which have to be the CPU's.

The batches lie in ``self_test.npz``, with all that the CPU does for them, so that nothing is compiled for the CPU.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np

from gpubeton._gpu.executor import GpuExecutor
from gpubeton._gpu.gpu_resources import GpuResources
from gpubeton._gpu.libraries import driver_version
from gpubeton._gpu.nvjpeg_backends import DecodeBackends
from gpubeton._gpu.options import GpuOptions
from gpubeton._plan.fusion import compile_image_program
from gpubeton._plan.image_job import CpuServices, ImageJob, Usage
from gpubeton._plan.jpeg_windows import CropWindows, Intervals
from gpubeton._plan.routes import HEIGHT, WIDTH, DecodeRoute
from gpubeton.errors import DeviceError
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder
from gpubeton.format import ImageMode
from gpubeton.transforms.blur import RandomGaussianBlur
from gpubeton.transforms.color_jitter import ColorJitter
from gpubeton.transforms.levels import RandomEqualize
from gpubeton.transforms.normalize import NormalizeImage
from gpubeton.transforms.warps import RandomAffine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._gpu.cuda import Device
    from gpubeton._gpu.nvjpeg_backends import BatchedBackend
    from gpubeton._plan.program import ImageProgram
    from gpubeton.pipeline.operation import Operation

VARIABLE = "GPUBETON_SELF_TEST"

_SIZE = 16, 24

FULL_SIZE = 160, 208
"""Height and width of the image of the batch "full", which is not resized: each of its coefficients counts."""

TOLERANCE = 7
"""Levels by which the engines, which round in their own way, may differ from the CPU."""

_NORMALIZE = NormalizeImage((120, 110, 100), (60, 50, 40))
_PIPELINES: dict[str, tuple[list[Operation], ...]] = {
    "small": (
        [CenterCropRGBImageDecoder(_SIZE, 1), _NORMALIZE],
        [
            CenterCropRGBImageDecoder(_SIZE, 1, "bicubic"),
            ColorJitter(0.5, 0.5, 0.5, 0.2),
            RandomAffine(20, (0.1, 0.1), (0.8, 1.2), interpolation="bilinear"),
            RandomGaussianBlur(5),
            RandomEqualize(),
            _NORMALIZE,
        ],
    ),
    "full": ([CenterCropRGBImageDecoder(FULL_SIZE, 1)],),
}
_NAMES = {
    DecodeRoute.HARDWARE: "its JPEG engines",
    DecodeRoute.ENTRIES: "the decoder in CUDA",
    DecodeRoute.CPU: "kernels after the CPU",
}

# The fault of each way to decode of a device; empty: none.
_faults: WeakKeyDictionary[Device, dict[DecodeRoute, str]] = WeakKeyDictionary()
_lock = threading.Lock()


def with_self_test(open_backends: Callable[[Device], DecodeBackends], device: Device) -> DecodeBackends:
    """Open backends, and close those that do not pass; DeviceError if the GPU cannot even finish the CPU's images."""
    opened = open_backends(device)
    if os.environ.get(VARIABLE) == "0":
        return opened
    tested: dict[DecodeRoute, BatchedBackend | None] = {DecodeRoute.CPU: None, **opened.backends}
    tested |= {DecodeRoute.ENTRIES: None} if opened.takes_entries else {}
    with _lock:
        faults = _faults.setdefault(device, {})
        for route, backend in tested.items():
            is_new = route not in faults
            fault = faults[route] = _find_fault(device, route, backend) if is_new else faults[route]
            if not fault:
                continue
            message = (
                f"{device.name} (cuda:{device.number}) fails the self-test of {_NAMES[route]}: {fault}. {_versions()}. "
                f"Try another version of the driver or of these libraries; {VARIABLE}=0 skips the test"
            )
            if route is DecodeRoute.CPU:
                del faults[route]
                raise DeviceError(f"{message}.")
            opened.notes[route] = f"closed, as it fails the self-test: {fault}"
            if is_new:
                opened.warning = f"{opened.warning} {message}. Other decoders, or the CPU, take its images.".strip()
            if backend is None:
                opened.takes_entries = False
            else:
                del opened.backends[route]
    return opened


def read_faults(device: Device) -> dict[str, str]:
    """Return the fault of each way to decode that was tested; empty: none."""
    return {route.name.lower(): fault for route, fault in _faults.get(device, {}).items()}


@cache
def stored_batch(name: str) -> dict[str, NDArray[Any]]:
    """Load JPEGs, draws, all that the CPU reads in the headers, the levels of each output, and the CRC-32 of images."""
    with np.load(Path(__file__).with_suffix(".npz")) as file:
        return {key.partition("/")[2]: file[key] for key in file if key.startswith(f"{name}/")}


def programs_on(device: str, name: str) -> list[ImageProgram]:
    """Prepare the outputs of a batch."""
    side = np.array([208])
    return [compile_image_program("self-test", 0, pipeline, side, side, device) for pipeline in _PIPELINES[name]]


def job_of(stored: Mapping[str, NDArray[Any]], program: ImageProgram, jpegs: int, out: Any) -> ImageJob:
    """Describe an output of a batch, whose JPEGs lie at an address."""
    probes = stored["probes"]
    return ImageJob(
        height=probes[:, HEIGHT].copy(),
        width=probes[:, WIDTH].copy(),
        mode=np.full(len(probes), ImageMode.JPG, np.uint8),
        draws=stored["draws"],
        samples=np.arange(len(probes), dtype=np.uint64),
        address=stored["offset"] + np.uint64(jpegs),
        size=stored["size"],
        steps=stored["steps"] if program.num_rows else None,
        out=out,
        is_pinned=True,
    )


class _StoredCpu:
    """What the CPU does for a batch: `CpuServices`, `ReadJpegs` and `ImageExecutor` as far as they are used."""

    usage = Usage()

    def __init__(self, stored: Mapping[str, NDArray[Any]]) -> None:
        self._stored = stored
        self.repaired = 0  # images that a decoder left to the CPU

    def probe(self, _address: object, _size: object, out: NDArray[Any]) -> None:
        out[...] = self._stored["probes"]

    def read(self, *_arguments: object) -> CropWindows:
        return CropWindows(*(self._stored[name] for name in CropWindows._fields))

    def list_intervals(self, *_arguments: object) -> Intervals:
        return Intervals(*(self._stored[name] for name in Intervals._fields))

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        for number, job in enumerate(jobs):
            job.out[...] = self._stored["levels"][number, job.samples]

    def collect(self) -> list[Any]:
        return []

    def decode(self, _program: int, job: ImageJob) -> list[Any]:
        job.out[...] = 0
        self.repaired += 1
        return []

    def close(self) -> None:
        pass


def _find_fault(device: Device, route: DecodeRoute, backend: BatchedBackend | None) -> str:
    """Make the batch by one route; return its fault, or an empty text."""
    # A state for the largest images would take memory that the loader may not need.
    trials = {} if backend is None else {route: replace(backend, largest=(1, 1), num_states=1)}
    try:
        opened = DecodeBackends(trials, takes_entries=route is DecodeRoute.ENTRIES)
        resources = GpuResources(device, opened, 1)
        try:
            names = ["small", "full"] if route is DecodeRoute.ENTRIES else ["small"]
            return next((fault for name in names if (fault := _compare(device, route, resources, name))), "")
        finally:
            # The handle stays, for the loader.
            resources.backends = {}
            with suppress(DeviceError):
                for trial in trials.values():
                    trial.release()
                resources.close()
    except Exception as error:  # noqa: BLE001 - whatever it is, this route cannot be used
        return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _compare(device: Device, route: DecodeRoute, resources: GpuResources, name: str) -> str:
    """Make a batch; return its fault, or an empty text."""
    stored = stored_batch(name)
    cpu, count = _StoredCpu(stored), len(stored["size"])
    pinned = device.allocate_pinned(stored["jpegs"].nbytes)
    pinned.array[: stored["jpegs"].nbytes] = stored["jpegs"]
    part: Any = cpu
    # Pinned bytes are not packed, and have no checksums.
    services = CpuServices(cpu.probe, part.collect, part.collect, part.collect, lambda _: part, 1, part)
    # Of engines, which round in their own way, the pixels are compared before steps.
    programs = programs_on(f"cuda:{device.number}", name)[: 1 if route is DecodeRoute.HARDWARE else None]
    executor = GpuExecutor(resources, programs, services, GpuOptions(), lambda _: None, {})
    try:
        for _ in range(2):  # the second time in the memory that the first has used
            with executor.batch_ops():
                # Memory of an earlier test may hold the right result.
                outs = [executor.take(number, count).fill_(0) for number in range(len(programs))]
            outputs = zip(programs, outs, strict=True)
            executor.submit([job_of(stored, program, pinned.address, out) for program, out in outputs])
            executor.collect()
            if cpu.repaired:
                return f"{cpu.repaired} of {count * len(programs)} images were not decoded"
            images = [executor.fetch(out).numpy() for out in outs]
            is_close = route is DecodeRoute.HARDWARE
            if fault := _compare_levels(stored, programs[0], images[0]) if is_close else _check(stored, images):
                return fault
    finally:
        with suppress(DeviceError):
            executor.close()
    return ""


def _check(stored: Mapping[str, NDArray[Any]], images: Sequence[NDArray[Any]]) -> str:
    """Compare all bits of the images with the CPU's."""
    is_wrong = stored["crc"] != np.array([[crc32(image) for image in output] for output in images])
    return f"{is_wrong.sum()} of {is_wrong.size} images are not the CPU's" if is_wrong.any() else ""


def _compare_levels(stored: Mapping[str, NDArray[Any]], program: ImageProgram, images: NDArray[Any]) -> str:
    table: Any = program.table
    expected = table[stored["levels"][0], np.arange(3)]
    difference = np.abs(images.astype(np.float32) - expected) * np.array(_NORMALIZE.std, np.float32)
    most = float(difference.max())
    return "" if most <= TOLERANCE + 0.5 else f"images differ from the CPU's by up to {most:.0f} levels"


def _versions() -> str:
    """Name the driver, and the libraries of NVIDIA and CuPy that are installed."""
    driver = ".".join(map(str, driver_version() or ("unknown",)))
    named = sorted(
        f"{package.name} {package.version}"
        for package in distributions()
        if package.name.startswith(("cupy", "nvidia-"))
    )
    return f"Driver for CUDA {driver}; {', '.join(named) or 'no libraries from PyPI'}"
