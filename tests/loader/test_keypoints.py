"""Points follow their image: its pixels hold the place in the stored image from which they come."""

from __future__ import annotations

import numpy as np
import pytest

from gpubeton.errors import PipelineError
from gpubeton.fields import ImageField, IntField, NDArrayField, RaggedField
from gpubeton.fields.decoders import (
    FollowImage,
    NDArrayDecoder,
    PadImageDecoder,
    RaggedDecoder,
    RandomResizedCropImageDecoder,
)
from gpubeton.loader import Loader
from gpubeton.transforms import (
    CornerCrop,
    Mosaic,
    Pad,
    PerSample,
    RandomAffine,
    RandomChoice,
    RandomCrop,
    RandomHorizontalFlip,
    RandomOrder,
    RandomPerspective,
    RandomQuarterTurn,
    RandomResizedCrop,
    RandomRotation,
    RandomTranslate,
    RandomVerticalFlip,
    ToTensor,
    TransformBoxes,
    TransformKeypoints,
)
from tests.small_files import write

LENGTH, POINTS, UNIT = 16, 24, 600


def scene(number):
    """An image with x in red, y in green and the sample's number in blue; points, their boxes and a mask."""
    rng = np.random.default_rng(number)
    height, width = rng.integers(60, 90, 2)
    y, x = np.mgrid[:height, :width] + 0.5
    image = np.stack([x * UNIT, y * UNIT, np.full_like(x, 2000 * (number + 1))], axis=2).astype(np.uint16)
    points = rng.uniform(0, [width, height], (POINTS, 2))
    boxes = np.concatenate([points - 2, points + 2, np.full((POINTS, 1), number)], axis=1)
    flat = np.concatenate([points, np.ones((POINTS, 1))], axis=1).ravel()
    mask = np.full((height, width), number + 1, np.uint8)
    fractions = points / [width, height]
    return image, points, flat, points[:, None], boxes, fractions, mask, number


FIELDS = {
    "image": ImageField("rgb16", "raw"),
    "points": NDArrayField(np.dtype("f8"), (POINTS, 2)),
    "flat": NDArrayField(np.dtype("f8"), (3 * POINTS,)),
    "objects": RaggedField("<f8", (-1, 1, 2)),
    "boxes": RaggedField("<f8", (-1, 5)),
    "fractions": NDArrayField(np.dtype("f8"), (POINTS, 2)),
    "mask": ImageField("gray", "raw"),
    "label": IntField(),
}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write(tmp_path_factory.mktemp("points") / "points.beton", FIELDS, [scene(n) for n in range(LENGTH)])


def make(path, image, batch_size=LENGTH, **pipelines):
    everything = {**dict.fromkeys(FIELDS), "image": [*image, ToTensor()], **pipelines}
    return Loader(path, batch_size, num_workers=1, seed=3, drop_last=False, pipelines=everything)


def only_batch(*arguments, **named):
    (batch,) = make(*arguments, **named)
    return batch


def read_at(image, point):
    """The place in the stored image and the sample's number at a point; None near a border inside the picture."""
    column, row = np.floor(point - 0.5).astype(int)
    around = image[row - 1 : row + 3, column - 1 : column + 3]
    if min(row, column) < 3 or row + 6 > len(image) or column + 6 > image.shape[1] or np.ptp(around[..., 2]) > 0:
        return None
    part_x, part_y = point - 0.5 - (column, row)
    upper, lower = ((1 - part_x) * line[1] + part_x * line[2] for line in around[1:3].astype(float))
    red, green, blue = (1 - part_y) * upper + part_y * lower
    return np.array([red, green]) / UNIT, blue / 2000 - 1


def slack_of(operations):
    """Levels are rounded after each operation, places to 2**-11; means over a pixel's area are not quite linear."""
    return 0.2 if any(isinstance(operation, RandomResizedCrop) for operation in operations) else 0.03


CROP = RandomResizedCropImageDecoder((96, 96), scale=(0.4, 1), interpolation="bilinear")  # larger: exact
MOVES = {
    "crop": [CROP],
    "padded": [PadImageDecoder((100, 96), interpolation="bilinear"), RandomHorizontalFlip()],
    "turns": [CROP, RandomVerticalFlip(), RandomQuarterTurn(), RandomTranslate(5), RandomHorizontalFlip()],
    "rotation": [CROP, RandomHorizontalFlip(), RandomRotation(60, "bilinear")],
    "affine": [CROP, RandomAffine(30, (0.1, 0.1), (0.8, 1.2), (-20, 10, 5, 20), "bilinear"), RandomVerticalFlip()],
    "perspective": [CROP, RandomPerspective(0.4, 0.9), RandomTranslate(5)],
    "order": [CROP, RandomOrder([RandomPerspective(0.2), RandomTranslate(5), RandomHorizontalFlip(1)])],
    "choice": [CROP, RandomChoice([RandomRotation(30, "bilinear"), RandomPerspective(0.2), RandomVerticalFlip()])],
    "on the finished batch": [
        *(CROP, Pad((1, 2, 3, 4)), RandomRotation(20, "bilinear"), RandomCrop((90, 88), padding=2), CornerCrop(80)),
        *(RandomResizedCrop((0.6, 0.9), (0.8, 1.2), 96), RandomHorizontalFlip()),
    ],
}


@pytest.mark.parametrize("image", MOVES.values(), ids=MOVES)
def test_the_pixel_at_a_point_comes_from_where_the_point_was(scenes, image):
    num_seen = 0
    moved = {"points": [NDArrayDecoder(), TransformKeypoints()]}
    moved["fractions"] = [NDArrayDecoder(), TransformKeypoints(relative=True)]
    moved["flat"] = [NDArrayDecoder(), TransformKeypoints(columns=3)]
    images, points, flat, fractions = only_batch(scenes, image, **moved)
    size = images.shape[2], images.shape[1]
    assert np.array_equal(flat.reshape(-1, POINTS, 3)[..., 2] == 0, np.isnan(points[..., 0]))
    assert np.array_equal(flat.reshape(-1, POINTS, 3)[..., :2], np.nan_to_num(points))
    np.testing.assert_allclose(fractions * size, points, atol=1e-9)
    for number, (pixels, after) in enumerate(zip(images.numpy().astype(int), points, strict=True)):
        for before, point in zip(scene(number)[1], after, strict=True):
            if np.isnan(point).any() or (read := read_at(pixels, point)) is None:
                continue
            num_seen += 1
            np.testing.assert_allclose(read[0], before, rtol=0, atol=slack_of(image))
            assert read[1] == number
    assert num_seen > 100


@pytest.mark.parametrize("image", MOVES.values(), ids=MOVES)
def test_absent_points_are_those_that_show_nothing_of_their_image(scenes, image):
    both = {"points": [NDArrayDecoder(), TransformKeypoints()]}
    images, points = only_batch(scenes, image, **both)
    both["points"] = [NDArrayDecoder(), TransformKeypoints(outside="keep")]
    _, everywhere = only_batch(scenes, image, **both)
    is_absent = np.isnan(points[..., 0])
    assert np.array_equal(points[~is_absent], everywhere[~is_absent])
    size = np.array([images.shape[2], images.shape[1]])
    assert ((points[~is_absent] >= 0) & (points[~is_absent] <= size)).all()
    # Those that are absent are outside now, or a part of the image was cut off there by an operation before the last.
    for number, place in zip(*np.nonzero(is_absent), strict=True):
        point = everywhere[number, place]
        if (point > 6).all() and (point < size - 6).all():
            read = read_at(images[number].numpy().astype(int), point)
            assert read is None or read[1] == -1 or np.abs(read[0] - scene(number)[1][place]).max() > 0.5


@pytest.mark.parametrize("later", [[], [RandomHorizontalFlip(), RandomResizedCrop((0.5, 1), (0.8, 1.2), 120)]])
def test_a_mosaic_brings_the_points_the_boxes_and_the_masks_of_its_images(scenes, later):
    moved = {
        "objects": [RaggedDecoder(), TransformKeypoints()],
        "boxes": [RaggedDecoder(), TransformBoxes(keep="all")],
        "mask": [FollowImage(), ToTensor()],
    }
    num_seen = num_images = 0
    for images, objects, boxes, masks in make(scenes, [CROP, Mosaic(0.9), *later], 7, **moved):
        assert np.array_equal(objects.offsets, boxes.offsets)
        for pixels, mask, points, around in zip(images.numpy().astype(int), masks.numpy(), objects, boxes, strict=True):
            num_images += len(points) > POINTS
            assert len(points) in (POINTS, *(POINTS * count for count in (1, 2, 4)))
            assert (around[:, 5] >= ~np.isnan(points[:, 0, 0])).all()  # a box may be seen without its middle
            for order, ((point,), (left, top, right, bottom, number, _)) in enumerate(zip(points, around, strict=True)):
                if np.isnan(point).any() or (read := read_at(pixels, point)) is None:
                    continue
                num_seen += 1
                before = scene(int(number))[1][order % POINTS]
                np.testing.assert_allclose(read[0], before, rtol=0, atol=slack_of(later))
                assert read[1] == number
                assert mask[int(point[1]), int(point[0])] == number + 1
                assert left <= point[0] <= right
                assert top <= point[1] <= bottom
    assert num_seen > 4 * POINTS
    assert num_images > LENGTH / 2


def test_boxes_of_a_mosaic_are_clipped_at_their_tile_and_left_out_beyond_it(scenes):
    decoders = [RaggedDecoder(), TransformBoxes(min_visible=0.5)]
    images, boxes = only_batch(scenes, [CROP, Mosaic()], boxes=decoders)
    every = only_batch(scenes, [CROP, Mosaic()], boxes=[RaggedDecoder(), TransformBoxes(keep="all")])[1]
    assert 0 < len(boxes.values) < len(every.values)
    sides = boxes.values[:, 2:4] - boxes.values[:, :2]
    assert (sides > 0).all()
    for pixels, some in zip(images.numpy().astype(int), boxes, strict=True):
        for left, top, right, bottom, number in some:
            inside = pixels[round(top + 0.01) : round(bottom - 0.01), round(left + 0.01) : round(right - 0.01), 2]
            assert (inside == 2000 * (number + 1)).all()


def test_left_and_right_change_places_in_mirrored_images_only(scenes):
    pairs = [(2 * pair, 2 * pair + 1) for pair in range(POINTS // 2)]
    image = [CROP, RandomHorizontalFlip(), RandomVerticalFlip(), RandomQuarterTurn(), RandomRotation(20)]
    _, points = only_batch(scenes, image, points=[NDArrayDecoder(), TransformKeypoints(outside="keep")])
    swapping = [NDArrayDecoder(), TransformKeypoints(outside="keep", flip_pairs=pairs)]
    _, swapped = only_batch(scenes, image, points=swapping)
    exchanged = np.arange(POINTS) ^ 1
    num_mirrored = 0
    for number, (plain, other) in enumerate(zip(points, swapped, strict=True)):
        before = scene(number)[1]
        turns = [np.linalg.det(corners[1:3] - corners[0]) > 0 for corners in (before, plain)]
        num_mirrored += turns[0] != turns[1]
        assert np.array_equal(other, plain if turns[0] == turns[1] else plain[exchanged])
    assert 2 < num_mirrored < LENGTH - 2


@pytest.mark.parametrize(
    ("image", "pipelines", "message"),
    [
        (
            [RandomResizedCropImageDecoder((9, 9)), PerSample(np.flip)],
            {"points": [NDArrayDecoder(), TransformKeypoints()]},
            "cannot follow PerSample",
        ),
        ([CROP, Mosaic()], {"points": [NDArrayDecoder(), TransformKeypoints()]}, r"Mosaic.*RaggedField.*\(-1, K, 2\)"),
        ([CROP], {"points": [NDArrayDecoder(), TransformKeypoints("mask")]}, r"TransformKeypoints\(image='mask'\)"),
        ([CROP], {"points": [NDArrayDecoder(), TransformKeypoints(columns=3)]}, r"works on arrays of floats.*3 K num"),
        ([CROP], {"points": [NDArrayDecoder(), ToTensor(), TransformKeypoints()]}, "right after the decoder"),
        ([CROP], {"points": [NDArrayDecoder(), TransformKeypoints(flip_pairs=[(0, POINTS)])]}, f"are {POINTS} points"),
    ],
)
def test_what_points_cannot_follow_is_refused_by_the_constructor(scenes, image, pipelines, message):
    with pytest.raises(PipelineError, match=message):
        make(scenes, [*image], **pipelines)
