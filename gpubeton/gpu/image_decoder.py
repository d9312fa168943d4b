"""ImageDecoder: the interface to other libraries that decode JPEGs on a GPU, and what their modules share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpubeton.gpu.device import Stream


class ImageDecoder(Protocol):
    """Decodes JPEGs into memory of the device, a list at a time; for one thread at a time."""

    @property
    def name(self) -> str:
        """By which `open_decoder` knows it."""
        ...

    def decode(self, data: Sequence[memoryview], targets: Sequence[Any], stream: Stream) -> list[tuple[int, str]]:
        """Decode images; returns when all of them are done, and nothing of them is used any more.

        Parameters
        ----------
        data : sequence of memoryview
            The bytes of each JPEG, in the host's memory.
        targets : sequence of Tensor
            Where each image goes: uint8, shape (height, width, 3), on the device; rows need not be dense.
        stream : Stream
            Torch's current one. Everything is done in its order.

        Returns
        -------
        list of tuple of int and str
            Images that could not be decoded, by their place in the list, and why; their targets hold anything. All
            others are complete.
        """
        ...


def place(images: Sequence[Any], targets: Sequence[Any]) -> list[tuple[int, str]]:
    """Copy images to where they belong, in the order of torch's current stream.

    Parameters
    ----------
    images : sequence of Tensor or str
        Each image, uint8, shape (height, width, 3); or why there is none.
    targets : sequence of Tensor
        Where each image goes: uint8, shape (height, width, 3).

    Returns
    -------
    list of tuple of int and str
        Images that are missing or of another size than expected, by their place, and why.
    """
    failed = []
    for index, (image, target) in enumerate(zip(images, targets, strict=True)):
        if isinstance(image, str):
            failed.append((index, image))
        elif tuple(image.shape) != tuple(target.shape):
            found = " x ".join(map(str, image.shape))
            expected = " x ".join(map(str, target.shape))
            failed.append((index, f"decoded to {found}; the file says {expected}"))
        else:
            target.copy_(image)
    return failed


def decode_apart(
    decode: Callable[[Sequence[Any]], Sequence[Any]], data: Sequence[Any], errors: tuple[type[Exception], ...]
) -> list[Any]:
    """Decode with a package that gives up all images of a list for one bad one.

    The list is halved until the bad ones are alone.

    Parameters
    ----------
    decode : callable
        Takes a list of some of `data` and gives as many images, or raises.
    data : sequence
        The JPEGs.
    errors : tuple of type
        What it raises if one of them is bad.

    Returns
    -------
    list
        For each JPEG its image, or a str: why there is none.

    Examples
    --------
    >>> decode_apart(lambda some: [1 // one for one in some], [1, 0, 1], (ZeroDivisionError,))[1]
    'ZeroDivisionError: integer division or modulo by zero'
    """
    try:
        return list(decode(data)) if len(data) else []
    except errors as error:
        if len(data) == 1:
            return [reason(error)]
        middle = len(data) // 2
        return decode_apart(decode, data[:middle], errors) + decode_apart(decode, data[middle:], errors)


def reason(error: Exception) -> str:
    """Give an error as one line.

    Parameters
    ----------
    error : Exception
        What was raised.

    Returns
    -------
    str
        Its class and its words.
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
