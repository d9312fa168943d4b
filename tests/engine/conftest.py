from __future__ import annotations

import pytest

from tests.quick_garbage import quick_garbage
from tests.small_files import write_photos

__all__ = ["quick_garbage"]


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A file of 50 samples with JPEG images of varying size."""
    return write_photos(tmp_path_factory.mktemp("photos") / "photos.beton")
