from __future__ import annotations

import pytest

from tests.apply import EXECUTORS, SIMULATED
from tests.gpu_path.conftest import gpus
from tests.simulator.fixtures import faults

__all__ = ["faults", "gpus"]


@pytest.fixture(params=EXECUTORS)
def executor(request):
    """Each executor of `tests.apply.apply_to_images`."""
    if request.param == SIMULATED:
        request.getfixturevalue("gpus")
    return request.param
