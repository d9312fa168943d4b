from __future__ import annotations

import pytest
import torch

from gpubeton.fields.decoders import IntDecoder, SimpleRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import (
    ImageCutMix,
    ImageMixup,
    ImageMixupOrCutMix,
    LabelCutMix,
    LabelMixup,
    LabelMixupOrCutMix,
    ToTensor,
    ToTorchImage,
)

OTHERS = dict.fromkeys(["weight", "note", "info", "vector"])


def load(path, image, label, *, epochs=1, order="random"):
    pipelines = {
        "image": [SimpleRGBImageDecoder(), *image, ToTensor(), ToTorchImage()],
        "label": [IntDecoder(), *label, ToTensor()],
        **OTHERS,
    }
    loader = Loader(path, 6, num_workers=2, order=order, seed=3, pipelines=pipelines, drop_last=False)
    return [[(images.clone(), labels.clone()) for images, labels in loader] for _ in range(epochs)]


def plain(path):
    """Image of each sample, whose label is its number times ten."""
    ((batches,),) = [load(path, [], [], order="sequential")]
    return torch.cat([images for images, _ in batches]).permute(0, 2, 3, 1).double()


@pytest.mark.parametrize(
    ("image", "label"),
    [
        (ImageMixup(0.5, False), LabelMixup(0.5, False)),
        (ImageMixup(0.5, True), LabelMixup(0.5, True)),
        (ImageCutMix(1.0, False), LabelCutMix(1.0, False, (48, 64))),
        (ImageMixupOrCutMix(0.5, 1.0, False, 0), LabelMixupOrCutMix(0.5, 1.0, False, 0)),
        (ImageMixupOrCutMix(0.5, 1.0, False, 1), LabelMixupOrCutMix(0.5, 1.0, False, 1, (48, 64))),
    ],
)
def test_images_and_labels_of_a_loader_are_mixed_alike(raw_photos, image, label):
    originals, shares = plain(raw_photos), []
    for batches in load(raw_photos, [image], [label], epochs=2):
        for images, mixed in batches:
            own, other, share = mixed.double().T
            first, second = (originals[(labels / 10).long()] for labels in (own, other))
            result = images.permute(0, 2, 3, 1).double()
            if isinstance(image, ImageMixup) or getattr(image, "p_cutmix", 1) == 0:
                weight = share[:, None, None, None]
                assert torch.equal(result, torch.floor(weight * first + (1 - weight) * second))
            else:
                assert ((result == first) | (result == second)).all()
                is_own = (result == first).all(dim=3).double().mean(dim=(1, 2))
                assert (is_own >= share - 1e-6).all()  # a few pixels may be those of both
                assert (is_own - share).max() < 0.1
            shares.append(tuple(share.tolist()))
    assert len(set(shares)) == len(shares)
