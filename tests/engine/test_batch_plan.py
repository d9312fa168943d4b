"""Batches that are planned together are those that are planned one by one."""

from __future__ import annotations

import numpy as np
import pytest

from gpubeton._plan.image_job import ImageJob
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import ColorJitter, Cutout, RandomHorizontalFlip
from tests.small_files import write_photos

ROWS = "height", "width", "mode", "draws", "steps", "samples"


class Own(RandomResizedCropRGBImageDecoder):
    """The same crop for all images of a batch."""

    def boxes(self, heights, widths, uniform):
        counts.append(len(heights))
        return np.minimum.reduce(super().boxes(heights, widths, uniform), keepdims=True).repeat(len(heights), axis=0)


counts: list[int] = []


@pytest.fixture
def plan(tmp_path):
    path = write_photos(tmp_path / "photos.beton", 23)

    def make(batch_size, decoder=RandomResizedCropRGBImageDecoder, drop_last=False):
        image = [decoder((8, 9)), RandomHorizontalFlip(), Cutout(3), ColorJitter(0.4)]
        pipelines = {"image": image}
        return Loader(
            path, batch_size, order=OrderOption.RANDOM, seed=3, drop_last=drop_last, pipelines=pipelines
        ).plan()

    return make


@pytest.mark.parametrize(("batch_size", "first", "count"), [(4, 0, 6), (4, 5, 1), (4, 3, 3), (23, 0, 1), (600, 0, 1)])
def test_batches_planned_together_are_those_planned_one_by_one(plan, batch_size, first, count):
    plans = plan(batch_size)
    together = plans.ahead(first)
    assert [plan.number for plan in together] == [*range(first, first + count)]
    for plan_together in together:
        alone = plans[plan_together.number]
        assert np.array_equal(plan_together.samples, alone.samples)
        assert np.array_equal(plan_together.places, alone.places)
        assert plan_together.images.keys() == alone.images.keys()
        for name, job in plan_together.images.items():
            assert isinstance(job, ImageJob)
            for column in ROWS:
                assert np.array_equal(getattr(job, column), getattr(alone.images[name], column)), column


def test_a_last_smaller_batch_that_is_left_out_is_not_planned(plan):
    assert [len(batch_plan.samples) for batch_plan in plan(5, drop_last=True).ahead(2)] == [5, 5]
    assert [len(batch_plan.samples) for batch_plan in plan(5).ahead(2)] == [5, 5, 3]


def test_a_users_decoder_sees_one_batch_at_a_time(plan):
    plans = plan(4, Own)
    counts.clear()
    (batch_plan,) = plans.ahead(1)
    assert counts == [4]
    assert len(np.unique(batch_plan.images["image"].draws[:, :4], axis=0)) == 1
