"""The self-test of a GPU: at its first use, each way to decode makes a small batch, which has to be the CPU's.

The batch lies in ``self_test.npz``, with all that the CPU does for it, so that nothing is compiled for the CPU.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import numpy as np

from gpubeton.errors import DeviceError
from gpubeton.fields.image_decoders import CenterCropRGBImageDecoder
from gpubeton.format import ImageMode
from gpubeton.gpu.gpu_executor import GpuExecutor
from gpubeton.gpu.gpu_options import GpuOptions
from gpubeton.gpu.gpu_resources import GpuResources
from gpubeton.gpu.libraries import driver_version
from gpubeton.gpu.nvjpeg_backends import BatchedBackend
from gpubeton.gpu.other_libraries import reason
from gpubeton.plan.cpu_services import CpuServices
from gpubeton.plan.fusion import compile_image_program
from gpubeton.plan.image_executor import ImageJob, Usage
from gpubeton.plan.jpeg_parts import Intervals, JpegParts
from gpubeton.plan.lanes import HEIGHT, WIDTH, Lane
from gpubeton.transforms.normalize import NormalizeImage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton.gpu.batch_state import DecodeBackends
    from gpubeton.gpu.cuda import Device
    from gpubeton.plan.program import ImageProgram

VARIABLE = "GPUBETON_SELF_TEST"

SIZE = 16, 24
"""Height and width of the images that the test makes."""

TOLERANCE = 7
"""Levels by which the engines, which round in their own way, may differ from the CPU."""

_NORMALIZE = NormalizeImage((120, 110, 100), (60, 50, 40))
_NAMES = {Lane.HARDWARE: "its JPEG engines", Lane.OWN: "the decoder in CUDA", Lane.CPU: "kernels after the CPU"}

# The fault of each way to decode of a device; empty: none.
_faults: WeakKeyDictionary[Device, dict[Lane, str]] = WeakKeyDictionary()
_lock = threading.Lock()


def with_self_test(open_backends: Callable[[Device], DecodeBackends], device: Device) -> DecodeBackends:
    """Open backends, and close those that do not pass; DeviceError if the GPU cannot even finish the CPU's images."""
    opened = open_backends(device)
    if os.environ.get(VARIABLE) == "0":
        return opened
    tested: dict[Lane, BatchedBackend | None] = {Lane.CPU: None}
    tested |= {lane: own for lane, own in opened.backends.items() if isinstance(own, BatchedBackend)}
    tested |= {Lane.OWN: None} if opened.takes_entries else {}
    with _lock:
        known = _faults.setdefault(device, {})
        for lane, backend in tested.items():
            is_new = lane not in known
            fault = known[lane] = _find_fault(device, lane, backend) if is_new else known[lane]
            if not fault:
                continue
            message = (
                f"{device.name} (cuda:{device.number}) fails the self-test of {_NAMES[lane]}: {fault}. {_versions()}. "
                f"Try another version of the driver or of these libraries; {VARIABLE}=0 skips the test"
            )
            if lane is Lane.CPU:
                del known[lane]
                raise DeviceError(f"{message}.")
            opened.notes[lane] = f"closed, as it fails the self-test: {fault}"
            if is_new:
                opened.warning = f"{opened.warning} {message}. Other decoders, or the CPU, take its images.".strip()
            if backend is None:
                opened.takes_entries = False
            else:
                del opened.backends[lane]
    return opened


def read_faults(device: Device) -> dict[str, str]:
    """Return the fault of each way to decode that was tested; empty: none."""
    return {lane.name.lower(): fault for lane, fault in _faults.get(device, {}).items()}


@cache
def stored_batch() -> dict[str, NDArray[Any]]:
    """Load the JPEGs, the draws, all that the CPU reads in their headers, and the levels that it makes of them."""
    with np.load(Path(__file__).with_suffix(".npz")) as file:
        return dict(file)


def program_on(device: str) -> ImageProgram:
    """Prepare the program of the test."""
    side = np.array([100])
    return compile_image_program("self-test", 0, [CenterCropRGBImageDecoder(SIZE, 1), _NORMALIZE], side, side, device)


def job_of(stored: Mapping[str, NDArray[Any]], jpegs: int, out: Any) -> ImageJob:
    """Describe the batch, whose JPEGs lie at an address."""
    size, survey = stored["size"].astype(np.uint64), stored["survey"]
    return ImageJob(
        height=survey[:, HEIGHT].copy(),
        width=survey[:, WIDTH].copy(),
        mode=np.full(len(size), ImageMode.JPG, np.uint8),
        draws=stored["draws"],
        samples=np.arange(len(size), dtype=np.uint64),
        address=np.cumsum(size) - size + np.uint64(jpegs),
        size=size,
        out=out,
        is_pinned=True,
    )


class _StoredCpu:
    """What the CPU does for the batch: `CpuServices`, `ReadJpegs` and `ImageExecutor` as far as they are used."""

    usage = Usage()

    def __init__(self) -> None:
        self.repaired = 0  # images that a decoder left to the CPU

    def survey(self, _address: object, _size: object, out: NDArray[Any]) -> None:
        out[...] = stored_batch()["survey"]

    def read(self, *_given: object) -> JpegParts:
        return JpegParts(*(stored_batch()[name] for name in JpegParts._fields))

    def list_intervals(self, *_given: object) -> Intervals:
        return Intervals(*(stored_batch()[name] for name in Intervals._fields))

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        for job in jobs:
            job.out[...] = stored_batch()["levels"][job.samples]

    def collect(self) -> list[Any]:
        return []

    def decode(self, _program: int, job: ImageJob) -> list[Any]:
        self.submit([job])
        self.repaired += 1
        return []

    def close(self) -> None:
        pass


def _find_fault(device: Device, lane: Lane, backend: BatchedBackend | None) -> str:
    """Make the batch by one lane; return its fault, or an empty text."""
    # A state for the largest images would take memory that the loader may not need.
    trials = {} if backend is None else {lane: replace(backend, largest=(1, 1), num_states=1)}
    try:
        resources = GpuResources(device, trials, 1, takes_entries=lane is Lane.OWN)
        try:
            return _compare(device, lane, resources)
        finally:
            # The handle stays, for the loader.
            resources.backends = {}
            with suppress(DeviceError):
                for trial in trials.values():
                    trial.release()
                resources.close()
    except Exception as error:  # noqa: BLE001 - whatever it is, this lane cannot be used
        return reason(error)


def _compare(device: Device, lane: Lane, resources: GpuResources) -> str:
    cpu, stored = _StoredCpu(), stored_batch()
    levels, count = stored["levels"], len(stored["levels"])
    pinned = device.allocate_pinned(stored["jpegs"].nbytes)
    pinned.array[: stored["jpegs"].nbytes] = stored["jpegs"]
    part: Any = cpu
    # Pinned bytes are not packed, and have no checksums.
    services = CpuServices(cpu.survey, part.collect, part.collect, part.collect, lambda _: part, 1, part)
    program = program_on(f"cuda:{device.number}")
    executor = GpuExecutor(resources, [program], services, GpuOptions(), lambda _: None, {})
    try:
        with executor.tail():
            # Memory of an earlier test may hold the right result.
            out = executor.take(0, count).fill_(float("nan"))
        executor.submit([job_of(stored, pinned.address, out)])
        executor.collect()
        found = executor.fetch(out).numpy()
    finally:
        with suppress(DeviceError):
            executor.close()
    if cpu.repaired:
        return f"{cpu.repaired} of {count} images were not decoded"
    expected = cast("NDArray[Any]", program.table)[levels, np.arange(3)]
    if lane is not Lane.HARDWARE:
        wrong = (found.view(np.uint16) != expected.view(np.uint16)).any(axis=(1, 2, 3)).sum()
        return f"{wrong} of {count} images are not the CPU's" if wrong else ""
    difference = np.abs(found.astype(np.float32) - expected) * np.array(_NORMALIZE.std, np.float32)
    most = float(difference.max())
    return "" if most <= TOLERANCE + 0.5 else f"images differ from the CPU's by up to {most:.0f} levels"


def _versions() -> str:
    """Name the driver, and the libraries of NVIDIA and CuPy that are installed."""
    driver = ".".join(map(str, driver_version() or ("unknown",)))
    named = sorted(f"{one.name} {one.version}" for one in distributions() if one.name.startswith(("cupy", "nvidia-")))
    return f"Driver for CUDA {driver}; {', '.join(named) or 'no libraries from PyPI'}"
