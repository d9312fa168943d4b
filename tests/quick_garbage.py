"""Collecting garbage takes long beside torch and Numba, unless their objects are left out of it."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def quick_garbage():
    """Leave out of every collection the objects that exist already."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
