from __future__ import annotations

from itertools import chain

import pytest
import torch

from gpubeton.errors import NoSuchFieldError
from gpubeton.loader import Loader
from tests.loader.pipelines import ONLY_LABEL, augmented, labels


def test_filter_keeps_the_samples_that_meet_the_condition_also_with_indices(photos):
    loader = Loader(
        photos, 2, num_workers=1, order="random", seed=1, indices=range(48, 3, -5), pipelines=ONLY_LABEL, drop_last=True
    )
    seen = []
    filtered = loader.filter("label", lambda value: (seen.append(value), int(value) % 20 == 10)[1])
    assert [int(value) for value in seen] == list(range(480, 30, -50))
    assert filtered.indices.tolist() == [43, 33, 23, 13]
    assert sorted(chain(*labels(filtered))) == [130, 230, 330, 430]
    assert (filtered.order, filtered.seed, filtered.drop_last, filtered.batch_size) == ("random", 1, True, 2)
    assert loader.next_epoch == 0


def test_filter_gives_a_row_of_the_pipelines_result(photos):
    shapes = set()
    loader = Loader(photos, 7, num_workers=1, pipelines={"image": augmented()})
    loader.filter("label", lambda value: shapes.add((type(value), tuple(value.shape))))
    loader.filter("image", lambda value: shapes.add((type(value), tuple(value.shape))))
    assert shapes == {(torch.Tensor, (1,)), (torch.Tensor, (3, 24, 20))}


def test_filter_works_on_fields_that_are_switched_off_and_may_keep_nothing(photos):
    loader = Loader(photos, 7, num_workers=1, pipelines=ONLY_LABEL, on_error="skip")
    assert loader.filter("weight", lambda value: value > 12).indices.tolist() == [49]
    nothing = loader.filter("weight", lambda value: value > 13)
    assert len(nothing) == 0
    assert list(nothing) == []
    with pytest.raises(NoSuchFieldError, match=r"'picture'; .* 'image', 'label'"):
        loader.filter("picture", bool)


def test_a_filtered_loader_without_a_seed_can_be_resumed(photos):
    saved, resumed = (
        Loader(photos, 4, num_workers=1, order="random", pipelines=ONLY_LABEL).filter("weight", lambda value: value > 5)
        for _ in range(2)
    )
    assert saved.seed != resumed.seed
    resumed.load_state_dict(saved.state_dict())
    assert labels(resumed) == labels(saved)
