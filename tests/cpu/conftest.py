from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    """Whichever test first makes an image waits until the kernels are compiled."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))
