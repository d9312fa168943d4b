from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._batch.step_rows import TURN
from gpubeton.errors import PipelineError
from gpubeton.pipeline import State
from gpubeton.transforms import RandomQuarterTurn, RandomVerticalFlip
from gpubeton.transforms.placements import PlacementList
from tests.apply import LAYOUTS, as_nhwc_array, in_layout
from tests.cpu.carried_out import KINDS, carried_out, row_of
from tests.transforms.random_numbers import numbers

SQUARE = State(True, torch.device("cpu"), (11, 11, 3), np.dtype("uint8"))


def noise(shape, dtype=np.uint8):
    return np.random.default_rng(0).integers(0, np.iinfo(dtype).max, shape, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_some_images_are_mirrored_top_to_bottom(layout):
    images, flip = noise((40, 7, 11, 3)), RandomVerticalFlip(0.4)
    rows = flip.draw(numbers, 20_000, SQUARE)[:40]
    is_done = flip.drawn(numbers, 20_000, SQUARE)[""]
    assert abs(is_done.mean() - 0.4) < 0.015
    expected = np.where(is_done[:40, None, None, None], images[:, ::-1], images)
    assert np.array_equal(as_nhwc_array(flip.apply(in_layout(images, layout), rows), layout), expected)


@pytest.mark.parametrize(("channels", "dtype"), KINDS.values(), ids=KINDS)
def test_images_turn_by_quarters(channels, dtype):
    images, turn = noise((40, 11, 11, channels), dtype), RandomQuarterTurn()
    turn.check_state(State(True, "cpu", images.shape[1:], images.dtype))
    turns = turn.drawn(numbers, 20_000, SQUARE)[""]
    assert abs(np.bincount(turns) / 20_000 - 0.25).max() < 0.015
    result = turn.apply(images.copy(), turn.draw(numbers, 20_000, SQUARE)[:40])
    for image, output, times in zip(images, result, turns[:40], strict=True):
        assert np.array_equal(output, np.rot90(image, times))


@pytest.mark.parametrize(("channels", "dtype"), KINDS.values(), ids=KINDS)
def test_images_of_every_width_are_mirrored(channels, dtype):
    for width in range(1, 70):
        image = noise((5, width, channels), dtype)
        assert np.array_equal(carried_out(image, row_of(TURN, 1)), image[:, ::-1]), width
        assert np.array_equal(carried_out(image, row_of(TURN, 3)), image[::-1, ::-1]), width


def test_images_that_are_not_square_cannot_be_turned():
    with pytest.raises(PipelineError, match="images are 7 x 11; expected square"):
        RandomQuarterTurn().declare_state_and_memory(State(True, "cpu", (7, 11, 3), np.dtype("uint8")))


def test_a_turn_is_a_placement():
    turn = RandomQuarterTurn(1)
    placed = PlacementList(20_000, (11, 11))
    turn.fold(placed, turn.draw(numbers, 20_000, SQUARE))
    (placement,) = placed.placements
    bits = np.array([0, 5, 3, 6])[turn.drawn(numbers, 20_000, SQUARE)[""]]
    assert (placement.rows[:, 4] == bits).all()
    assert (np.delete(placement.rows, 4, axis=1) == [0, 0, 11, 11, 0, 0, 11, 11, 11, 11]).all()
