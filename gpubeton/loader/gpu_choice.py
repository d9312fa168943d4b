"""Which GPU decodes a loader's images, if any."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from gpubeton.engine.outputs import GpuTarget, Output, Pipeline
from gpubeton.errors import OptionError
from gpubeton.pipeline.pipeline_spec import DrawnParameters, PipelineSpec
from gpubeton.transforms.ops import ToDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gpubeton.gpu.device import Device
    from gpubeton.gpu.gpu_executor import Gpu
    from gpubeton.gpu.gpu_options import GpuOptions
    from gpubeton.gpu.nvjpeg_backends import Lanes

Decoder = Literal["auto", "nvjpeg", "dali", "pynvjpeg", "cpu"]

#: Once values of `decoder=`.
_MOVED = ("nvimgcodec", "torchvision")


class GpuChoice(NamedTuple):
    """Which GPU decodes, and why.

    Parameters
    ----------
    target : GpuTarget or None
        The GPU; None if the CPU decodes.
    reason : str
        Why.
    is_forced : bool
        Whether the user has asked for it, so that doing without is an error.
    """

    target: GpuTarget | None
    reason: str
    is_forced: bool


def checked_decoder(decoder: Any) -> Decoder:
    """Check who is to decode.

    Parameters
    ----------
    decoder : str
        The argument.

    Returns
    -------
    str
        The same.

    Raises
    ------
    OptionError
        If there is no such decoder.
    """
    for choice in get_args(Decoder):
        if decoder == choice:
            found: Decoder = choice
            return found
    expected = f"expected one of {', '.join(map(repr, get_args(Decoder)))}"
    if decoder in _MOVED:
        moved = "its adapter moved to benchmarks/gpu/contenders/adapters.py, beside the benchmarks that compare with it"
        raise OptionError(f"decoder is {decoder!r}; {expected}: {moved}")
    raise OptionError(f"decoder is {decoder!r}; {expected}")


def choose_gpu(device: str, decoder: Decoder, pipelines: Mapping[str, Pipeline]) -> GpuChoice:
    """Choose the GPU that decodes. Pure: whether it can be used is seen when it is opened.

    Parameters
    ----------
    device : str
        "auto", "cpu", or a GPU such as "cuda:0".
    decoder : str
        "cpu" leaves decoding to the CPU, whatever the device.
    pipelines : mapping
        The user's pipelines.

    Returns
    -------
    GpuChoice
        The first GPU that a pipeline moves its batches to, if the device is "auto".

    Examples
    --------
    >>> choose_gpu("auto", "auto", {"image": [ToDevice("cuda:1")]}).target
    GpuTarget(device='cuda:1', takes_everything=False, decodes=True)
    >>> choose_gpu("auto", "auto", {}).reason
    'no pipeline moves its batches to a GPU'
    """
    is_forced = device.startswith("cuda")
    if device == "cpu":
        return GpuChoice(None, "device='cpu' was asked for", is_forced=False)
    if decoder == "cpu":
        moved_to = GpuTarget(_numbered(device), takes_everything=True, decodes=False) if is_forced else None
        return GpuChoice(moved_to, "decoder='cpu' was asked for", is_forced=False)
    if is_forced:
        return GpuChoice(GpuTarget(_numbered(device), takes_everything=True), f"device={device!r} was asked for", True)
    for wish in _wishes(pipelines.values()):
        if wish.device.type == "cuda":
            target = GpuTarget(_numbered(str(wish.device)), takes_everything=False)
            return GpuChoice(target, f"a pipeline moves its batches to {wish.device}", decoder != "auto")
    unused = "" if decoder == "auto" else f", so that decoder={decoder!r} has nothing to do"
    return GpuChoice(None, f"no pipeline moves its batches to a GPU{unused}", is_forced=False)


def open_gpu(
    choice: GpuTarget, outputs: Iterable[Output], decoder: Decoder, options: GpuOptions, *, num_slots: int
) -> Gpu:
    """Open a GPU for a loader.

    Parameters
    ----------
    choice : GpuTarget
        Which.
    outputs : iterable of Output
        What is made.
    decoder : str
        Who decodes.
    options : GpuOptions
        How.
    num_slots : int
        Batches that may be under way.

    Returns
    -------
    Gpu
        To be closed.

    Raises
    ------
    DeviceError
        If it cannot be used, with everything that was tried.
    """
    from gpubeton.gpu.cuda import open_device
    from gpubeton.gpu.gpu_executor import Gpu

    device = open_device(choice.device)
    opener: Callable[[Device], Lanes]
    if decoder in ("auto", "nvjpeg"):
        from gpubeton.gpu.nvjpeg import load
        from gpubeton.gpu.nvjpeg_backends import open_nvjpeg_lanes

        opener = partial(open_nvjpeg_lanes, library=load(), options=options, largest=_largest(outputs))
    else:
        from gpubeton.gpu.other_libraries import open_decoder_lanes

        opener = partial(open_decoder_lanes, decoder)
    return Gpu(device, options, opener, num_slots=num_slots)


def _wishes(pipelines: Iterable[Pipeline]) -> list[ToDevice]:
    own = [pipeline for pipeline in pipelines if not isinstance(pipeline, DrawnParameters)]
    lists = [pipeline.transforms if isinstance(pipeline, PipelineSpec) else pipeline for pipeline in own]
    return [operation for operations in lists for operation in operations or () if isinstance(operation, ToDevice)]


def _numbered(device: str) -> str:
    """Name a GPU with its number; without one the current GPU is meant."""
    if ":" in device:
        return device
    import torch

    if not torch.cuda.is_available():
        return "cuda:0"
    return f"cuda:{torch.cuda.current_device()}"


def _largest(outputs: Iterable[Output]) -> tuple[int, int]:
    """Largest height and width of the images that a GPU makes, in pixels."""
    columns = [output.source.column for output in outputs if getattr(output, "program", None) is not None]
    height = max((int(column["height"].max()) for column in columns), default=1)
    width = max((int(column["width"].max()) for column in columns), default=1)
    return height, width
