"""The operations around torch: ToTensor, ToDevice, ToTorchImage, Convert and View."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.image_batch import as_nchw
from gpubeton.errors import DeviceError, PipelineError
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.pixel_type import is_torch_dtype, torch_dtype
from gpubeton.pipeline.ragged import Ragged
from gpubeton.transforms.checks import image_size
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.state import State


class ToTensor(Transform):
    """Hand the numpy array on as a torch tensor over the same memory; a `Ragged` of arrays as one of tensors.

    Notes
    -----
    torch's ``from_numpy``.

    Examples
    --------
    >>> ToTensor().apply(np.arange(3))
    tensor([0, 1, 2])
    """

    takes_ragged: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.NOTHING

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        try:
            dtype = torch_dtype(previous_state.dtype)
        except TypeError as error:
            raise PipelineError(f"ToTensor: {error}") from error
        return replace(previous_state, jit_mode=False, dtype=dtype), None

    def is_view(self) -> bool:
        return True

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        import torch

        if isinstance(batch, Ragged):
            return batch.tensors()
        return torch.from_numpy(batch) if isinstance(batch, np.ndarray) else batch


class ToDevice(Transform):
    """Move the tensor to a device.

    Parameters
    ----------
    device : torch.device, str or int
        Where to, e.g. ``torch.device("cuda:0")``.
    non_blocking : bool
        Whether the copy to a GPU may still run when the batch is handed on; torch's streams keep the order. A copy to
        the CPU is always waited for: nothing else would keep readers from coming too early.

    Notes
    -----
    FFCV's, and torch's ``Tensor.to``. In a loader it also decides where images are decoded: see `Loader`'s `device`.

    Examples
    --------
    >>> import torch
    >>> ToDevice("cpu").apply(torch.zeros(2)).device
    device(type='cpu')
    """

    takes_ragged: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.NOTHING

    def __init__(self, device: Any, non_blocking: bool = True) -> None:
        import torch

        # Of a number alone torch makes a device only where there is one.
        self.device = torch.device(f"cuda:{device}" if isinstance(device, int) else device)
        self.non_blocking = bool(non_blocking)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        _require_tensor(self, previous_state)
        query = AllocationQuery(previous_state.shape, previous_state.dtype, self.device)
        return replace(previous_state, jit_mode=False, device=self.device), query

    def is_view(self) -> bool:
        return bool(self.device.type == "cpu")

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        import torch

        try:
            return batch.to(self.device, non_blocking=self.non_blocking and self.device.type != "cpu")
        except (AssertionError, RuntimeError) as error:
            if self.device.type != "cuda" or torch.cuda.is_available():
                raise
            raise DeviceError(
                f"ToDevice({str(self.device)!r}): torch sees no GPU ({error}). Where there is none, leave the "
                'operation out or write ToDevice("cuda" if torch.cuda.is_available() else "cpu"); where there is one, '
                "look at `nvidia-smi`, and whether this torch was built with CUDA."
            ) from error


class ToTorchImage(Transform):
    """Put the channels first: NHWC tensors become NCHW.

    Parameters
    ----------
    channels_last : bool
        True gives a view in channels_last memory, strides (3HW, 1, 3W, 3), which torch's convolutions like best; False
        a contiguous copy.
    convert_back_int16 : bool
        Whether int16 that hold the bits of halves, as ``NormalizeImage`` leaves them before ``ToTensor``, become
        float16.

    Notes
    -----
    FFCV's. channels_last is torch's ``memory_format=torch.channels_last``.

    Examples
    --------
    >>> import torch
    >>> ToTorchImage().apply(torch.zeros((2, 20, 30, 3))).shape
    torch.Size([2, 3, 20, 30])
    """

    moves: ClassVar[Moves] = Moves.NOTHING

    def __init__(self, channels_last: bool = True, convert_back_int16: bool = True) -> None:
        self.channels_last = bool(channels_last)
        self.convert_back_int16 = bool(convert_back_int16)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        _require_tensor(self, previous_state)
        image_size(self, previous_state, any_channels=True)
        height, width, channels = previous_state.shape
        if height == 3 and channels > 4:
            raise PipelineError(
                f"ToTorchImage puts channels first, but in a shape of {tuple(previous_state.shape)} they are there "
                "already. Leave it out here."
            )
        dtype = previous_state.dtype
        if self.convert_back_int16 and dtype == torch_dtype("int16"):
            dtype = torch_dtype("float16")
        shape = (channels, height, width)
        query = None if self.channels_last else AllocationQuery(shape, dtype, previous_state.device)
        return replace(previous_state, jit_mode=False, shape=shape, dtype=dtype), query

    def is_view(self) -> bool:
        return True

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        import torch

        if self.convert_back_int16 and batch.dtype == torch.int16:
            batch = batch.view(torch.float16)
        images = as_nchw(batch)
        return images if self.channels_last else images.contiguous()


class Convert(Transform):
    """Convert the elements to another type, as ``tensor.to(dtype)`` and ``array.astype(dtype)`` do.

    Parameters
    ----------
    target_dtype : torch.dtype, numpy.dtype, type or str
        The type wanted.

    Notes
    -----
    FFCV's; values are converted as torch or numpy convert them.

    Examples
    --------
    >>> Convert(np.float32).apply(np.array([1, 2]))
    array([1., 2.], dtype=float32)
    """

    takes_ragged: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.NOTHING

    def __init__(self, target_dtype: Any) -> None:
        self.target_dtype = target_dtype

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        dtype = _same_library(self, previous_state, self.target_dtype)
        return replace(previous_state, jit_mode=False, dtype=dtype), None

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        if isinstance(batch, Ragged):
            return batch.map(self.apply)
        if isinstance(batch, np.ndarray):
            return batch.astype(self.target_dtype, copy=False)
        return batch.to(torch_dtype(self.target_dtype))


class View(Transform):
    """Read the same bytes as another type of the same size, as ``tensor.view(dtype)`` does.

    Parameters
    ----------
    target_dtype : torch.dtype, numpy.dtype, type, str or int
        The type wanted; or -1, for a tensor with one number for each sample: a batch of shape (N,), as of `Squeeze`.

    Notes
    -----
    FFCV's; torch's ``Tensor.view``.

    Examples
    --------
    >>> View(np.float16).apply(np.array([0x3C00], np.int16))
    array([1.], dtype=float16)
    """

    moves: ClassVar[Moves] = Moves.NOTHING

    def __init__(self, target_dtype: Any) -> None:
        self.target_dtype = target_dtype

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        if isinstance(self.target_dtype, int):
            return self._flat(previous_state), None
        dtype = _same_library(self, previous_state, self.target_dtype)
        if dtype.itemsize != previous_state.dtype.itemsize:
            raise PipelineError(
                f"View: {previous_state.dtype} has {previous_state.dtype.itemsize} bytes and {dtype} has "
                f"{dtype.itemsize}; expected types of one size. Use Convert to change the values' type."
            )
        return replace(previous_state, jit_mode=False, dtype=dtype), None

    def _flat(self, state: State) -> State:
        _require_tensor(self, state)
        if self.target_dtype != -1 or prod(state.shape) != 1:
            raise PipelineError(
                f"View({self.target_dtype}): each sample has the shape {state.shape} here; expected a type, or -1 "
                "where each sample is one number"
            )
        return replace(state, jit_mode=False, shape=())

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        if isinstance(self.target_dtype, int):
            return batch.reshape(len(batch))
        if isinstance(batch, np.ndarray):
            return batch.view(self.target_dtype)
        return batch.view(torch_dtype(self.target_dtype))


def moves_to(operation: ToDevice, device: Any) -> bool:
    """Return whether a batch on a device, such as cuda:0, is already on the target of an operation."""
    # A target without a number means the current GPU, and a loader works on no other.
    return bool(operation.device.type == device.type and operation.device.index in (None, device.index))


def _require_tensor(operation: Transform, state: State) -> None:
    if not is_torch_dtype(state.dtype):
        name = type(operation).__name__
        raise PipelineError(f"{name} works on torch tensors, but here the batch is a numpy array. Put ToTensor before.")


def _same_library(operation: Transform, state: State, dtype: Any) -> Any:
    """Return numpy's or torch's type of that name: that of the batch."""
    try:
        return torch_dtype(dtype) if is_torch_dtype(state.dtype) else np.dtype(dtype)
    except TypeError as error:
        name = type(operation).__name__
        raise PipelineError(
            f"{name}: the batch is a numpy array here, which cannot be of type {dtype}. Put ToTensor before."
        ) from error
