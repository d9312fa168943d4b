from __future__ import annotations

import pytest

from gpubeton.errors import OptionError
from gpubeton.gpu.gpu_options import GpuOptions
from gpubeton.plan.lanes import Lane


def test_all_lanes_are_allowed_by_default():
    assert GpuOptions().allowed == {Lane.HARDWARE, Lane.SM, Lane.HYBRID}
    assert GpuOptions().deterministic


@pytest.mark.parametrize(
    ("lanes", "allowed"),
    [
        (("hardware",), {Lane.HARDWARE}),
        (("sm", "hybrid"), {Lane.SM, Lane.HYBRID}),
        (["hybrid"], {Lane.HYBRID}),
        ((), set()),
    ],
)
def test_lanes_are_named(lanes, allowed):
    assert GpuOptions(lanes=lanes).allowed == allowed


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"lanes": ("hardware", "nvdec")}, "lanes holds 'nvdec'; expected some of 'hardware', 'sm', 'hybrid'"),
        ({"lanes": ("cpu",)}, "lanes holds 'cpu'"),
        ({"lanes": "hardware"}, "lanes holds 'h'"),
        ({"raw": "gpu"}, "raw is 'gpu'; expected one of 'auto', 'cpu', 'bytes'"),
        ({"images_per_call": -1}, "images_per_call is -1; expected at least 0"),
        ({"images_per_sm_call": 50}, "images_per_sm_call is 50; expected at least 51"),
        ({"images_per_sm_call": 0}, "images_per_sm_call is 0"),
    ],
)
def test_an_option_out_of_its_range_is_named(wrong, says):
    with pytest.raises(OptionError, match=says):
        GpuOptions(**wrong)


def test_options_are_values():
    assert GpuOptions(raw="cpu") == GpuOptions(raw="cpu") != GpuOptions()
    assert len({GpuOptions(), GpuOptions(), GpuOptions(deterministic=False)}) == 2
    with pytest.raises(AttributeError):
        GpuOptions().raw = "cpu"
