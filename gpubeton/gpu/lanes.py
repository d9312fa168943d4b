"""The lanes of a GPU: which of them it has, and why it lacks the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpubeton.errors import DeviceError
from gpubeton.gpu.batched_lane import BatchedLane
from gpubeton.gpu.nvjpeg import Backend, Flags, Library
from gpubeton.gpu.single_lane import SingleLane
from gpubeton.plan.lanes import Lane

if TYPE_CHECKING:
    from gpubeton.gpu.decode_lane import DecodeLane
    from gpubeton.gpu.device import Device
    from gpubeton.gpu.options import GpuOptions

# Each engine should find the next image as soon as it is done with one; more only takes memory.
_IMAGES_PER_ENGINE = 4

# Since this version nvJPEG can interpolate chroma.
_SMOOTH_SINCE = (12, 1)

# Smaller batches are decoded with the CPU's help, which is what this lane is to avoid.
_LEAST_FOR_SM = 51


@dataclass(eq=False)
class Lanes:
    """The ways to decode JPEGs that a GPU has.

    Parameters
    ----------
    lanes : dict of Lane to DecodeLane
        Those that it has.
    notes : dict of Lane to str
        What is worth knowing of each, or why it is missing.
    """

    lanes: dict[Lane, DecodeLane] = field(default_factory=dict)
    notes: dict[Lane, str] = field(default_factory=dict)


def open_nvjpeg_lanes(device: Device, library: Library, options: GpuOptions, largest: tuple[int, int]) -> Lanes:
    """Open the ways in which nvJPEG can decode on a GPU.

    Parameters
    ----------
    device : Device
        The GPU, current in this thread.
    library : Library
        NVIDIA's library.
    options : GpuOptions
        Which ways are wanted.
    largest : tuple of int
        Largest height and width of an image that will come, in pixels.

    Returns
    -------
    Lanes
        What there is.

    Raises
    ------
    DeviceError
        If there is none at all.
    """
    opening = _Opening(device, library, options, largest)
    openers = {Lane.HARDWARE: opening.hardware, Lane.SM: opening.sm, Lane.HYBRID: opening.hybrid}
    found = Lanes()
    for lane, opener in openers.items():
        if lane not in options.allowed:
            found.notes[lane] = "not wanted"
            continue
        try:
            found.lanes[lane], found.notes[lane] = opener()
        except DeviceError as error:
            found.notes[lane] = str(error)
    if not found.lanes:
        reasons = "; ".join(f"{lane.name.lower()}: {note}" for lane, note in found.notes.items())
        raise DeviceError(f"{device.name} (cuda:{device.number}): nvJPEG cannot decode there. {reasons}")
    return found


class _Opening:
    """Opens lanes, one by one."""

    def __init__(self, device: Device, library: Library, options: GpuOptions, largest: tuple[int, int]) -> None:
        self.device, self.library, self.options, self.largest = device, library, options, largest
        is_smooth = options.smooth_chroma and library.version[:2] >= _SMOOTH_SINCE
        self.flags = Flags.UPSAMPLING_WITH_INTERPOLATION if is_smooth else Flags.NONE

    def hardware(self) -> tuple[DecodeLane, str]:
        handle = self.library.create(Backend.HARDWARE, self.flags)
        engines, cores = handle.hardware_engines()
        most = self.options.images_per_call or max(engines * cores, 1) * _IMAGES_PER_ENGINE
        lane = BatchedLane(self.device, handle, most=most)
        height, width = self.largest
        lane.reserve(width, height)
        return lane, f"{engines} JPEG engines, {most} images a call"

    def sm(self) -> tuple[DecodeLane, str]:
        handle = self.library.create(Backend.GPU_HYBRID, self.flags)
        most = self.options.images_per_sm_call
        lane = BatchedLane(self.device, handle, most=most, least=_LEAST_FOR_SM, num_states=2, is_urgent=False)
        return lane, f"the GPU's processors, {most} images a call"

    def hybrid(self) -> tuple[DecodeLane, str]:
        handle = self.library.create(Backend.DEFAULT, self.flags)
        return SingleLane(self.device, handle), "image by image, with the CPU's help"
