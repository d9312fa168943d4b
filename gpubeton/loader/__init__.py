"""Loader: batches of a ``.beton`` file, ready for training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton._bytes.store_client import RemoteOptions
from gpubeton._gpu.options import GpuOptions
from gpubeton.loader.batch_decoder import BatchDecoder, DecodedBatch, decode_image
from gpubeton.loader.iterator import LoaderIterator
from gpubeton.loader.loader import Loader
from gpubeton.loader.mixture import Mixture
from gpubeton.loader.schedule import OrderOption
from gpubeton.loader.stats import LoaderStats

if TYPE_CHECKING:
    from pathlib import Path

    from gpubeton._bytes import Progress

__all__ = [
    "BatchDecoder",
    "DecodedBatch",
    "GpuOptions",
    "Loader",
    "LoaderIterator",
    "LoaderStats",
    "Mixture",
    "OrderOption",
    "RemoteOptions",
    "decode_image",
    "warm_up",
]


def warm_up(on_progress: Progress | None = None) -> Path:
    """Compile the machine code that loaders need on this CPU, and keep it, so that no loader waits for it.

    It takes up to half a minute, or nothing if the code is there. ``gpubeton warm-up`` calls this function, for example
    while a container image is built.

    Parameters
    ----------
    on_progress : callable, optional
        Called with the number of finished functions and of all functions.

    Returns
    -------
    Path
        The folder of the machine code.

    Raises
    ------
    StorageError
        If no folder can be written that could keep the code.

    Examples
    --------
    >>> warm_up().is_dir()                                                                           # doctest: +SKIP
    True
    """
    from gpubeton._cpu.precompile import precompile  # it imports all that is compiled

    return precompile(on_progress)
