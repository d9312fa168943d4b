from __future__ import annotations

from gpubeton.pipeline import PipelineSpec


def test_a_spec_without_decoder_and_transforms_leaves_both_to_the_field():
    spec = PipelineSpec("image")
    assert (spec.source, spec.decoder, spec.transforms) == ("image", None, None)
