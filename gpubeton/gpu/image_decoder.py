"""ImageDecoder: the interface to other libraries that decode JPEGs on a GPU, and functions that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpubeton.gpu.device import Stream


class ImageDecoder(Protocol):
    """Decodes JPEGs into memory of the device, a list at a time; for one thread at a time."""

    @property
    def name(self) -> str:
        """Its name for `open_decoder`."""

    def decode(self, data: Sequence[memoryview], targets: Sequence[Any], stream: Stream) -> list[tuple[int, str]]:
        """Decode into uint8 targets (height, width, 3); waits; returns (index, reason) of each failed image."""


def place(images: Sequence[Any], targets: Sequence[Any]) -> list[tuple[int, str]]:
    """Copy images, or record why there is none, to their targets; return (index, reason) of the failed ones."""
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
    """Decode with a package that fails for a whole list if one image is bad: halve the list until it is alone."""
    try:
        return list(decode(data)) if len(data) else []
    except errors as error:
        if len(data) == 1:
            return [reason(error)]
        middle = len(data) // 2
        return decode_apart(decode, data[:middle], errors) + decode_apart(decode, data[middle:], errors)


def reason(error: Exception) -> str:
    """Format an error as one line: its class and its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
