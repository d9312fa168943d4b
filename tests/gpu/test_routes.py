"""Decode routes: each decodes the images that are meant for it, and no other decoder does."""

from __future__ import annotations

import torch

from benchmarks.gpu.pipelines import usual_pipeline
from tests.gpu.comparing import counted, epoch, images_loader


def test_the_engines_decode_everything_at_the_first_try_or_nothing(gpu, photos):
    for routes in (("hardware",), ()):
        with counted() as counts:
            images = epoch(images_loader(photos.beton, usual_pipeline(32), routes=routes, batch_size=64))
        assert counts == ({"engines": len(images)} if routes else {})


def test_the_same_epoch_has_the_same_pixels_every_time(gpu, photos):
    for routes in (("hardware",), ()):
        first, second = (
            epoch(images_loader(photos.beton, usual_pipeline(64), routes=routes, order="random", batch_size=64))
            for _ in range(2)
        )
        assert torch.equal(first, second)
