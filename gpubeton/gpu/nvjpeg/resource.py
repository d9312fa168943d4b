"""Resource: something that nvJPEG made and that has to be given back to it."""

from __future__ import annotations

import os
import weakref
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any

from gpubeton.errors import NvjpegError
from gpubeton.gpu.nvjpeg.status import explain

if TYPE_CHECKING:
    from gpubeton.gpu.nvjpeg.calls import Calls


class Resource:
    """Something that nvJPEG made; closed by `close`, or when nobody refers to it any more.

    Belongs to the device that was current when it was made, which has to be current again when it is closed. When the
    interpreter ends it is left alone: CUDA may be gone by then, and destroying it would crash.

    Parameters
    ----------
    calls : Calls
        The library.
    create, destroy : str
        The functions that make and destroy it.
    *arguments
        Those of `create`, before the pointer to the result.
    parent : Resource, optional
        What it was made of, which stays as long as it does; closing that closes this, too.
    keep : object
        Something else that has to stay as long as it does.

    Attributes
    ----------
    calls : Calls
        nvJPEG.
    children : WeakSet of Resource
        What was made of it.
    """

    def __init__(
        self,
        calls: Calls,
        create: str,
        destroy: str,
        *arguments: Any,
        parent: Resource | None = None,
        keep: object = None,
    ) -> None:
        self.calls = calls
        self.children: weakref.WeakSet[Resource] = weakref.WeakSet()
        made = c_void_p()
        calls(create, *arguments, byref(made))
        if not made.value:
            raise NvjpegError(f"{create} reported success and made nothing ({calls.name})", create, 0)
        self._destroy = destroy
        # The parent is among the arguments, so that it cannot go first.
        self._finalizer = weakref.finalize(self, _give_back, calls, destroy, made.value, os.getpid(), (parent, keep))
        self._finalizer.atexit = False
        self._pointer = made.value
        if parent is not None:
            parent.children.add(self)

    @property
    def pointer(self) -> int:
        """The address by which nvJPEG knows it."""
        if not self._finalizer.alive:
            raise NvjpegError(f"This {type(self).__name__} was closed already and cannot be used any more")
        return self._pointer

    @property
    def is_closed(self) -> bool:
        """Whether it was given back."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Give it back to nvJPEG, after all that was made of it. Nothing of it may be in use; may be called twice."""
        for child in list(self.children):
            child.close()
        status = self._finalizer()
        if status:
            raise NvjpegError(f"{explain(self._destroy, status)} ({self.calls.name})", self._destroy, status)


def _give_back(calls: Calls, destroy: str, pointer: int, process: int, _kept: object) -> int:
    """Destroy it, unless this is a forked child: it has a copy of the pointer and no CUDA."""
    return calls.status(destroy, pointer) if os.getpid() == process else 0
