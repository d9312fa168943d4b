"""Functions for users' compiled code, with FFCV's arguments: copy bytes, decode a JPEG, resize a crop.

Numba loses the errors that compiled code raises in parallel loops, so each is also noted for the caller.
"""

from __future__ import annotations

import ctypes
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.resize import resize_crops
from gpubeton._cpu.bad_images import bytes_at
from gpubeton.errors import GpubetonError, OperationError
from gpubeton.fields.jpeg import decode_rgb, jpeg_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_copy: Any = ctypes.memmove
_notes: deque[str] = deque(maxlen=100)


def note_nopython_error(message: str) -> None:
    """Note what went wrong; may be called by any thread."""
    _notes.append(message)


def take_nopython_errors() -> list[str]:
    """Give the messages noted since the last call."""
    messages: dict[str, None] = {}
    with suppress(IndexError):  # others take from it, too
        while True:
            messages[_notes.popleft()] = None
    return list(messages)


def memcpy(source: Any, dest: Any) -> None:
    """Copy the bytes of one array into another; their types and shapes may differ.

    Parameters
    ----------
    source : ndarray
        C-contiguous.
    dest : ndarray
        C-contiguous, and at least as large in bytes.

    Raises
    ------
    ValueError
        If it is smaller.

    Examples
    --------
    >>> dest = np.zeros(2, np.int16)
    >>> memcpy(np.array([1, 1, 2], np.uint8), dest)
    >>> dest.tolist()
    [257, 2]
    """
    size, room = source.size * source.itemsize, dest.size * dest.itemsize
    if size > room:
        _refuse_copy(size, room)
        raise ValueError("memcpy: the destination is smaller than the source")
    _copy(dest.ctypes.data, source.ctypes.data, size)


def imdecode(
    source: Any,
    dst: Any,
    source_height: Any,
    source_width: Any,
    crop_height: Any = None,
    crop_width: Any = None,
    offset_x: Any = 0,
    offset_y: Any = 0,
    scale_factor_num: Any = 1,
    scale_factor_denom: Any = 1,
    enable_crop: bool = False,
    do_flip: bool = False,
) -> None:
    """Decode a whole JPEG.

    Parameters
    ----------
    source : ndarray of uint8, shape (S,)
        The file's content.
    dst : ndarray of uint8
        C-contiguous; its first height x width x 3 bytes are written, RGB.
    source_height, source_width : int
        Expected size in pixels.
    crop_height, crop_width, offset_x, offset_y : int
        Without effect, as in FFCV if `enable_crop` is false.
    scale_factor_num, scale_factor_denom, enable_crop, do_flip
        Only the default values, which FFCV's decoders use, are supported.

    Raises
    ------
    ValueError
        If it cannot be decoded, is of another size, or does not fit.

    Examples
    --------
    >>> from io import BytesIO
    >>> from PIL import Image
    >>> file = BytesIO()
    >>> Image.new("RGB", (3, 2), (128, 128, 128)).save(file, "JPEG")
    >>> pixels = np.empty((2, 3, 3), np.uint8)
    >>> imdecode(np.frombuffer(file.getvalue(), np.uint8), pixels, 2, 3)
    >>> pixels[0, 0].tolist()
    [128, 128, 128]
    """
    if enable_crop or do_flip or scale_factor_num != scale_factor_denom:
        _refuse_ways()
        raise ValueError("imdecode: decodes only whole images; crop, flip and resize the decoded image")
    if _decode(source.ctypes.data, source.size, dst.ctypes.data, dst.size, source_height, source_width) != 0:
        raise ValueError("imdecode: the image could not be decoded")


def resize_crop(source: Any, start_row: Any, end_row: Any, start_col: Any, end_col: Any, destination: Any) -> None:
    """Resize a part of an image, as OpenCV's INTER_AREA does.

    Parameters
    ----------
    source : ndarray of uint8, shape (H, W, 3)
        C-contiguous.
    start_row, end_row, start_col, end_col : int
        The part; the ends are excluded.
    destination : ndarray of uint8, shape (h, w, 3)
        C-contiguous; written.

    Raises
    ------
    ValueError
        If there is no such part.

    Examples
    --------
    >>> small = np.empty((1, 1, 3), np.uint8)
    >>> resize_crop(np.arange(27, dtype=np.uint8).reshape(3, 3, 3), 1, 3, 1, 3, small)
    >>> small.tolist()
    [[[18, 19, 20]]]
    """
    failed = _resize(
        source.ctypes.data,
        source.shape[0],
        source.shape[1],
        start_row,
        end_row,
        start_col,
        end_col,
        destination.ctypes.data,
        destination.shape[0],
        destination.shape[1],
    )
    if failed != 0:
        raise ValueError("resize_crop: no such part of the image")


def _pixels(address: int, height: int, width: int) -> NDArray[np.uint8]:
    """View the pixels at an address; the caller keeps them alive."""
    memory: Any = (ctypes.c_uint8 * (height * width * 3)).from_address(address)
    return np.frombuffer(memory, np.uint8).reshape(height, width, 3)


def _callback(name: str, count: int) -> Callable[[Callable[..., None]], Any]:
    """Make a C function of so many int64 numbers; it returns 0, or 1 for an error, which is noted."""

    # Compiled code calls it from any thread, without the interpreter's lock, and cannot catch an error.
    def decorate(function: Callable[..., None]) -> Any:
        def call(*numbers: int) -> int:
            try:
                function(*numbers)
            except GpubetonError as error:
                note_nopython_error(f"{name}: {error}")
            except Exception as error:  # noqa: BLE001 - as above
                note_nopython_error(f"{name}: {type(error).__name__}: {error}")
            else:
                return 0
            return 1

        return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)(call)

    return decorate


@_callback("memcpy", 2)
def _refuse_copy(size: int, room: int) -> None:
    raise OperationError(f"{size} bytes do not fit into an array of {room}; ask for a larger one in AllocationQuery")


@_callback("imdecode", 0)
def _refuse_ways() -> None:
    raise OperationError(
        "enable_crop, do_flip and scale factors are not supported; decode the whole image, then crop, flip and resize "
        "it"
    )


@_callback("imdecode", 6)
def _decode(address: int, size: int, target: int, room: int, height: int, width: int) -> None:
    data = bytes_at(address, size)
    sides = jpeg_size(data)
    if sides != (height, width) or height * width * 3 > room:
        raise OperationError(
            f"an image of {sides[0]} x {sides[1]} pixels (height x width), expected {height} x {width}; "
            f"they need {height * width * 3} bytes, and the destination has {room}"
        )
    pixels = decode_rgb(data)
    ctypes.memmove(target, pixels.ctypes.data, pixels.nbytes)


@_callback("resize_crop", 10)
def _resize(source: int, rows: int, columns: int, *place: int) -> None:
    top, bottom, left, right, target, height, width = place
    if not (0 <= top < bottom <= rows and 0 <= left < right <= columns):
        raise OperationError(
            f"rows {top} to {bottom} and columns {left} to {right} of an image of {rows} x {columns} "
            f"(height x width); expected a part of it"
        )
    box = np.array([[top, left, bottom - top, right - left]], np.int32)
    resize_crops(_pixels(source, rows, columns)[None], box, _pixels(target, height, width)[None])
