"""Labels of what is under way, for profilers."""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["Label"]


class Label:
    """Marks stretches of time for torch's profiler and for NVIDIA's, if one is watching.

    Without a profiler that costs a look at a variable: ranges of NVTX are made if Nsight has put its library into the
    process (NVTX_INJECTION64_PATH) or GPUBETON_NVTX is 1, records of ``torch.profiler`` while one is running.

    Parameters
    ----------
    name : str
        What is shown, as "gpubeton: tail".

    Examples
    --------
    >>> label = Label("gpubeton: tail")
    >>> begun = label.begin()
    >>> label.end(begun)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._nvtx = _nvtx()

    def begin(self) -> Any:
        """Begin a stretch, in the calling thread.

        Returns
        -------
        object
            What `end` has to be given, in the same thread.
        """
        if self._nvtx is not None:
            self._nvtx.range_push(self.name)
        profiler = sys.modules.get("torch.autograd.profiler")  # what is not imported is not running
        if profiler is None or not getattr(profiler, "_is_profiler_enabled", False):
            return None
        record = profiler.record_function(self.name)
        record.__enter__()
        return record

    def end(self, begun: Any) -> None:
        """End a stretch.

        Parameters
        ----------
        begun : object
            What `begin` returned.
        """
        if begun is not None:
            begun.__exit__(None, None, None)
        if self._nvtx is not None:
            self._nvtx.range_pop()


def _nvtx() -> Any:
    """Give torch's NVTX, if somebody listens and torch has it; None otherwise."""
    asked = os.environ.get("GPUBETON_NVTX", "")
    if asked == "0" or not (asked or os.environ.get("NVTX_INJECTION64_PATH")):
        return None
    import torch

    return torch.cuda.nvtx if torch.cuda.is_available() else None
