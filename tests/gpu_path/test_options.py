from __future__ import annotations

import pytest

from gpubeton._gpu.gpu_options import GpuOptions
from gpubeton._plan.lanes import Lane
from gpubeton.errors import OptionError


def test_the_engines_and_our_decoder_are_allowed_by_default():
    assert GpuOptions().allowed == {Lane.HARDWARE, Lane.OWN}


@pytest.mark.parametrize(("lanes", "allowed"), [(["hardware"], {Lane.HARDWARE}), (["own"], {Lane.OWN}), ((), set())])
def test_lanes_are_named(lanes, allowed):
    assert GpuOptions(lanes=lanes).allowed == allowed


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lanes": ("hardware", "nvdec")}, "lanes holds 'nvdec'; expected some of 'hardware', 'own'$"),
        ({"lanes": ("cpu",)}, "lanes holds 'cpu'"),
        ({"lanes": "hardware"}, "lanes holds 'h'"),
        ({"raw": "gpu"}, "raw is 'gpu'; expected one of 'auto', 'cpu', 'bytes'"),
        ({"images_per_call": -1}, "images_per_call is -1; expected at least 0"),
    ],
)
def test_an_option_out_of_its_range_is_named(wrong, message):
    with pytest.raises(OptionError, match=message):
        GpuOptions(**wrong)


def test_options_are_values():
    assert GpuOptions(raw="cpu") == GpuOptions(raw="cpu") != GpuOptions()
    assert len({GpuOptions(), GpuOptions(), GpuOptions(raw="cpu")}) == 2
    with pytest.raises(AttributeError):
        GpuOptions().raw = "cpu"
