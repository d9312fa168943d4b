from __future__ import annotations

import pytest

from gpubeton.errors import OptionError
from gpubeton.loader import GpuOptions
from tests.gpu_path.gpu_room import DecodeRoute


def test_routes_are_named_and_the_engines_and_our_decoder_are_allowed_by_default():
    assert GpuOptions().allowed == {DecodeRoute.HARDWARE, DecodeRoute.ENTRIES}
    for routes, allowed in ((["hardware"], {DecodeRoute.HARDWARE}), (["entries"], {DecodeRoute.ENTRIES}), ((), set())):
        assert GpuOptions(routes=routes).allowed == allowed
    assert GpuOptions(raw="cpu") == GpuOptions(raw="cpu") != GpuOptions()
    with pytest.raises(AttributeError):
        GpuOptions().raw = "cpu"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"routes": ("hardware", "nvdec")}, "routes holds 'nvdec'; expected some of 'hardware', 'entries'$"),
        ({"routes": ("cpu",)}, "routes holds 'cpu'"),
        ({"routes": "hardware"}, "routes holds 'h'"),
        ({"raw": "gpu"}, "raw is 'gpu'; expected one of 'auto', 'cpu', 'bytes'"),
        ({"images_per_call": -1}, "images_per_call is -1; expected at least 0"),
    ],
)
def test_an_option_out_of_its_range_is_named(wrong, message):
    with pytest.raises(OptionError, match=message):
        GpuOptions(**wrong)
