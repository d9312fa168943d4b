"""Loader: batches of a ``.beton`` file, ready for training."""

from __future__ import annotations

from gpubeton._bytes.store_client import RemoteOptions
from gpubeton._gpu.options import GpuOptions
from gpubeton.loader.batch_decoder import BatchDecoder, DecodedBatch, decode_image
from gpubeton.loader.compile_ahead import warm_up
from gpubeton.loader.iterator import LoaderIterator
from gpubeton.loader.loader import Loader
from gpubeton.loader.mixture import Mixture
from gpubeton.loader.schedule import OrderOption
from gpubeton.loader.stats import LoaderStats

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
