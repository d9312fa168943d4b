from __future__ import annotations

import pytest

from tests.ctrl_c import ctrl_c
from tests.quick_garbage import quick_garbage
from tests.small_files import write_photos

__all__ = ["ctrl_c", "quick_garbage"]


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A file of 50 samples with JPEG images of varying size."""
    return write_photos(tmp_path_factory.mktemp("photos") / "photos.beton")


@pytest.fixture(scope="session")
def raw_photos(tmp_path_factory):
    """A file of 20 samples with raw images of 48 x 64 pixels."""
    path = tmp_path_factory.mktemp("raw") / "raw.beton"
    return write_photos(path, 20, write_mode="raw", size=(48, 64))
