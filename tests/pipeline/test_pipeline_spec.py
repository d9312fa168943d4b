from __future__ import annotations

from gpubeton.fields.image_decoders import SimpleRGBImageDecoder
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import ToTensor


def test_the_decoder_stands_before_the_transforms():
    decoder, to_tensor = SimpleRGBImageDecoder(), ToTensor()
    assert PipelineSpec("image", decoder, [to_tensor]).operations == (decoder, to_tensor)
    assert PipelineSpec("image", transforms=[to_tensor]).operations == (to_tensor,)
    assert PipelineSpec("image").operations == ()
