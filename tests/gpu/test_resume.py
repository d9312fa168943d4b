"""A resumed loader gives the remaining batches of the saved one, bit by bit."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
import torch

from benchmarks.gpu.pipelines import image_pipelines
from tests.gpu.comparing import images_loader

PIPELINES = image_pipelines(32)


def loader_of(photos, name, routes):
    return images_loader(photos.beton, PIPELINES[name], order="random", batch_size=16, routes=routes)


@pytest.mark.parametrize("routes", [("hardware",), ()], ids="+".join)
@pytest.mark.parametrize("name", ["float16", "paints", "mixup"])
def test_the_rest_of_an_epoch_and_the_next_are_the_same(gpu, photos, name, routes):
    with closing(loader_of(photos, name, routes)) as loader:
        whole = [batch.cpu() for _ in range(2) for (batch,) in loader]
    with closing(loader_of(photos, name, routes)) as loader:
        iterator = iter(loader)
        before = [next(iterator)[0].cpu()]
        state = json.loads(json.dumps(loader.state_dict()))
        iterator.close()
    with closing(loader_of(photos, name, routes)) as loader:
        loader.load_state_dict(state)
        after = [batch.cpu() for (batch,) in loader] + [batch.cpu() for (batch,) in loader]
    assert len(before + after) == len(whole)
    for ours, theirs in zip(before + after, whole, strict=True):
        assert torch.equal(ours, theirs)
