"""Calls: nvJPEG's functions by name, with the status of each looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubeton.errors import NvjpegError
from gpubeton.gpu.nvjpeg.prototypes import bind
from gpubeton.gpu.nvjpeg.status import explain

if TYPE_CHECKING:
    import ctypes


class Calls:
    """The functions of a loaded library.

    They are looked up when they are first called: a version of nvJPEG that lacks one can be used for the others.

    Parameters
    ----------
    library : CDLL
        The library. Its calls let other Python threads run.
    name : str
        What it is, for errors.
    """

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.name = name
        self._library = library
        self._functions: dict[str, Any] = {}

    def __call__(self, function: str, *arguments: Any) -> None:
        """Call a function.

        Parameters
        ----------
        function : str
            Its name.
        *arguments
            As its prototype says.

        Raises
        ------
        NvjpegError
            If it returns another status than success, or is missing in this version.
        """
        status = self.status(function, *arguments)
        if status:
            raise NvjpegError(f"{explain(function, status)} ({self.name})", function, status)

    def status(self, function: str, *arguments: Any) -> int:
        """Call a function and give its status."""
        return int((self._functions.get(function) or self._bind(function))(*arguments))

    def _bind(self, name: str) -> Any:
        try:
            function = self._functions[name] = bind(self._library, name)
        except AttributeError as error:
            raise NvjpegError(
                f"{name} is missing in {self.name}. Install another version: nvidia-nvjpeg 13 or nvidia-nvjpeg-cu12 12",
                name,
            ) from error
        return function
