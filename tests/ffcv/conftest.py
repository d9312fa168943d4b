from __future__ import annotations

import pytest

from tests.ffcv.results import golden_file


@pytest.fixture(scope="session")
def surface_file(tmp_path_factory):
    """The file that FFCV wrote for the cases."""
    return golden_file(tmp_path_factory.mktemp("surface"))
