"""Every error that gpubeton raises on purpose.

::

    GpubetonError
    |- FormatError               ValueError
    |  |- VersionError
    |  |- TruncatedError         EOFError
    |  |- HeaderError
    |  |- NoSamplesError
    |  |- FieldTypeError
    |  |- FieldArgumentsError
    |  |- FieldMismatchError
    |  |- FieldNameError
    |  |- AllocationError
    |  |- ImageSizeError
    |  |- NotesError
    |  |- EntryPointsError
    |  `- RegionError
    |     |- RegionOverlapError
    |     `- RegionSizeError
    |- WriteError
    |  |- PageSizeError          ValueError
    |  |- SampleError            ValueError
    |  |  `- RegionTooLargeError
    |  `- WorkerDiedError        RuntimeError
    |- NoSuchFieldError          KeyError
    |- PipelineError             TypeError
    |- OperationError            ValueError
    |- OptionError               ValueError
    |- BadImageError             ValueError
    |- StateError                ValueError
    |- DeviceError               RuntimeError
    |  |- LibraryError           OSError
    |  |- NvjpegError
    |  `- KernelError
    |- StorageError              OSError
    |  |- RemoteMissingError     FileNotFoundError
    |  |- RemoteDeniedError      PermissionError
    |  |- RemoteChangedError
    |  |- RemoteSlowDownError
    |  |- RemoteTimeoutError     TimeoutError
    |  `- RemoteExistsError      FileExistsError
    `- LoaderClosedError         RuntimeError

Each class is a built-in error too, so that an ``except ValueError`` written
for FFCV keeps its meaning.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class GpubetonError(Exception):
    """Base of every error that gpubeton raises on purpose."""

    def __str__(self) -> str:
        # URLs without what may be secret: a user's password, and a query, which may be a signature.
        text = re.sub(r"(https?://)[^/\s@]+@", r"\1", super().__str__())
        return re.sub(r"(https?://[^\s?]*)\?\S*?(?=[:;,.)'\"]*(?:\s|$))", r"\1", text)


class FormatError(GpubetonError, ValueError):
    """A file is not what its format has to be: a ``.beton`` file of version 2, an index, a tar, zip or Arrow file."""


class VersionError(FormatError):
    """The file names another format version, or is another kind of file."""


class TruncatedError(FormatError, EOFError):
    """The file ends before what its header promises."""


class HeaderError(FormatError):
    """The numbers in the header contradict each other or the file."""


class NoSamplesError(FormatError):
    """The file holds no sample."""


class FieldTypeError(FormatError):
    """A field's type is unknown, or custom and its class was not given."""


class FieldArgumentsError(FormatError):
    """The arguments of an array field do not give a shape and a dtype."""


class FieldMismatchError(FormatError):
    """Files that are to be one dataset have different fields."""


class FieldNameError(FormatError):
    """A field name that the format cannot hold, or two that are equal."""


class AllocationError(FormatError):
    """The allocation table is damaged, or lacks a region that a sample points to."""


class ImageSizeError(FormatError):
    """An image of no width or no height."""


class NotesError(FormatError):
    """The notes on how a file was made, or the checksums of its regions, are damaged."""


class EntryPointsError(FormatError):
    """The entry points for decoding parts of images are damaged, or belong to another file."""


class RegionError(FormatError):
    """A region lies outside the data pages, or crosses from one page into the next."""


class RegionOverlapError(RegionError):
    """Two regions share bytes."""


class RegionSizeError(RegionError):
    """A region is longer or shorter than its value."""


class WriteError(GpubetonError):
    """A ``.beton`` file could not be written. Nothing exists under its name."""


class PageSizeError(WriteError, ValueError):
    """A page size that the format does not know."""


class SampleError(WriteError, ValueError):
    """A sample could not be read from the dataset or encoded.

    Parameters
    ----------
    message : str
        What happened to which field.
    sample : int
        Index of the sample in the dataset.
    """

    def __init__(self, message: str, sample: int) -> None:
        super().__init__(message)
        self.sample = sample

    def __reduce__(self) -> tuple[type[SampleError], tuple[str, int]]:
        return type(self), (str(self), self.sample)


class RegionTooLargeError(SampleError):
    """The regions of one sample do not fit in a page."""


class WorkerDiedError(WriteError, RuntimeError):
    """A writing process ended without a word (killed, out of memory, a crash in C).

    Parameters
    ----------
    message : str
        Which process, how it ended, and what to try.
    sample : int, optional
        Index in the dataset of the sample at hand, if there was one.
    """

    def __init__(self, message: str, sample: int | None = None) -> None:
        super().__init__(message)
        self.sample = sample


class NoSuchFieldError(GpubetonError, KeyError):
    """The file has no field of that name."""

    # KeyError shows the repr of its argument, which would put a sentence in quotes.
    __str__ = Exception.__str__


class PipelineError(GpubetonError, TypeError):
    """A pipeline that cannot be planned."""


class OperationError(GpubetonError, ValueError):
    """What compiled code of the user's asked for cannot be done."""


class OptionError(GpubetonError, ValueError):
    """An argument out of its range."""


class BadImageError(GpubetonError, ValueError):
    """Images that could not be decoded.

    Parameters
    ----------
    message : str
        Where they are and what to try.
    samples : iterable of int
        Their sample ids.
    reasons : iterable of str
        For each of them, what the decoder found.
    """

    def __init__(self, message: str, samples: Iterable[int] = (), reasons: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.samples: tuple[int, ...] = tuple(samples)
        self.reasons: tuple[str, ...] = tuple(reasons)


class StateError(GpubetonError, ValueError):
    """The state given to ``load_state_dict`` belongs to another loader."""


class DeviceError(GpubetonError, RuntimeError):
    """A device that cannot be used."""


class LibraryError(DeviceError, OSError):
    """A library of CUDA was not found, or cannot be used."""


class NvjpegError(DeviceError):
    """A call of nvJPEG failed.

    Parameters
    ----------
    message : str
        Its purpose, and advice.
    call : str
        Name of the function.
    status : int
        The ``nvjpegStatus_t`` that it returned; -1 if there was none.
    """

    def __init__(self, message: str, call: str = "", status: int = -1) -> None:
        super().__init__(message)
        self.call = call
        self.status = status


class KernelError(DeviceError):
    """A CUDA kernel could not be compiled or loaded."""


class StorageError(GpubetonError, OSError):
    """Bytes of a file could not be read or written."""


class RemoteMissingError(StorageError, FileNotFoundError):
    """An object store has no such object or bucket."""


class RemoteDeniedError(StorageError, PermissionError):
    """An object store refuses a request with these credentials."""


class RemoteChangedError(StorageError):
    """An object was replaced while it was being read."""


class RemoteSlowDownError(StorageError):
    """An object store was overloaded longer than requests are repeated."""


class RemoteTimeoutError(StorageError, TimeoutError):
    """An object store gave no complete answer for longer than requests are repeated."""


class RemoteExistsError(StorageError, FileExistsError):
    """An object store has an object of that name already, which would be overwritten."""


class LoaderClosedError(GpubetonError, RuntimeError):
    """The loader was closed while a batch was awaited."""


__all__ = [name for name in vars().copy() if name.endswith("Error")]


class _Note(str):
    """A note of `add_error_note`."""

    __slots__ = ()


def add_error_note(error: Exception, note: str, *, is_first: bool = False) -> None:
    """Add where an error happened; its type stays, so `except` clauses still match."""
    if not hasattr(error, "add_note"):  # before Python 3.11
        return
    if is_first and (notes := getattr(error, "__notes__", None)):
        # Numba raises the same object again for what it could not compile before.
        notes[:] = [earlier for earlier in notes if not isinstance(earlier, _Note)]
    error.add_note(_Note(note))
