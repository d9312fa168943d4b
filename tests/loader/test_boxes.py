from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.fields import IntField, RaggedField, RGBImageField
from gpubeton.fields.decoders import (
    CenterCropRGBImageDecoder,
    PadRGBImageDecoder,
    RaggedDecoder,
    RandomResizedCropRGBImageDecoder,
)
from gpubeton.loader import Loader
from gpubeton.pipeline import DrawnParameters, PipelineSpec
from gpubeton.transforms import (
    AutoAugment,
    CornerCrop,
    Cutout,
    NormalizeImage,
    Pad,
    PerSample,
    RandAugment,
    RandomAffine,
    RandomApply,
    RandomCrop,
    RandomGaussianBlur,
    RandomHorizontalFlip,
    RandomInvert,
    RandomOrder,
    RandomPerspective,
    RandomQuarterTurn,
    RandomResizedCrop,
    RandomRotation,
    RandomTranslate,
    RandomVerticalFlip,
    ToTensor,
    ToTorchImage,
    TransformBoxes,
    TrivialAugmentWide,
)
from tests.small_files import write


def rectangle(number):
    """A white rectangle in a black image, and a box around it."""
    rng = np.random.default_rng(number)
    height, width = rng.integers(60, 120, 2)
    image = np.zeros((height, width, 3), np.uint8)
    top, left = rng.integers(0, [height - 24, width - 24])
    bottom, right = np.add((top, left), rng.integers(12, 25, 2))
    image[top:bottom, left:right] = 255
    box = np.array([[left, top, right, bottom]])
    fractions = box / [width, height, width, height]
    return image, np.append(box, [[number]], axis=1).astype(np.float32), fractions, number


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    fields = {"image": RGBImageField("raw"), "boxes": RaggedField("<f4", (-1, 5))}
    fields |= {"fractions": RaggedField("<f8", (-1, 4)), "label": IntField()}
    path = tmp_path_factory.mktemp("boxes") / "raw.beton"
    return write(path, fields, [rectangle(number) for number in range(24)])


MARKED = (TransformBoxes(keep="all"), ToTensor())


def make(path, image, boxes=MARKED, **arguments):
    pipelines = {
        "image": [*image, ToTensor()],
        "boxes": [RaggedDecoder(), *boxes],
        **dict.fromkeys(["fractions", "label"]),
    }
    return Loader(
        path, **{"batch_size": 5, "num_workers": 1, "seed": 3, "drop_last": False, "pipelines": pipelines, **arguments}
    )


SQUARE = RandomResizedCropRGBImageDecoder((56, 56), scale=(0.3, 1))
AUGMENTED = [RandomResizedCropRGBImageDecoder((48, 64), scale=(0.3, 1)), RandomHorizontalFlip()]


@pytest.mark.parametrize(
    "image",
    [
        [CenterCropRGBImageDecoder((40, 56), 1)],
        [PadRGBImageDecoder((64, 48))],
        [PadRGBImageDecoder((40, 80), position="top-left"), RandomHorizontalFlip(), RandomTranslate(6)],
        AUGMENTED,
        [*AUGMENTED, RandomTranslate(6)],
        [AUGMENTED[0], RandomTranslate(6), RandomHorizontalFlip(), RandomTranslate(3)],
        [*AUGMENTED, Pad(3), RandomCrop((50, 60), padding=2), RandomHorizontalFlip(), CornerCrop((40, 52))],
        [*AUGMENTED, RandomResizedCrop((0.5, 1), (0.8, 1.25), 44), RandomTranslate(2), RandomHorizontalFlip()],
        [SQUARE, RandomQuarterTurn(), RandomHorizontalFlip(), RandomVerticalFlip(), RandomTranslate(4)],
        [SQUARE, RandomOrder([RandomQuarterTurn(), RandomApply([RandomTranslate(4), RandomInvert(0)])]), AUGMENTED[1]],
    ],
    ids=[
        "center",
        "padded",
        "padded and moved",
        "crop and flip",
        "then a translate",
        "a flip between translates",
        "windows",
        "cropped again",
        "turned",
        "at random",
    ],
)
def test_the_box_encloses_the_visible_part_of_the_object(raw, image):
    num_seen = num_gone = 0
    loader = make(raw, image, order="random")
    for _ in range(3):
        for images, boxes in loader:
            for pixels, (box,) in zip(images.numpy(), boxes, strict=True):
                left, top, right, bottom, _, is_visible = box.tolist()
                seen = pixels[..., 0] > 127
                if right - left < 2 or bottom - top < 2:
                    num_gone += 1
                    # A rest of less than two pixels may be lost by rounding, or painted over at the border.
                    assert seen.sum() <= 2 * 64 + 2 * 48
                    continue
                assert is_visible
                num_seen += 1
                rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
                results = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
                # A border falls inside a pixel that is more or less than half white. A translate back over a border
                # that was painted leaves up to its padding black.
                # So does a window that reaches into the padding; and an image resized twice is blurred twice.
                slack = 1 + (3 if len(image) > 3 else 0)
                np.testing.assert_allclose(results, [left, top, right, bottom], rtol=0, atol=slack)
    assert num_seen > 40
    assert num_seen + num_gone == 72


WINDOWS = {
    "window": [RandomCrop(30)],
    "into the padding": [RandomHorizontalFlip(), RandomCrop((40, 60), padding=9), RandomHorizontalFlip()],
    "corner": [CornerCrop((24, 40)), RandomTranslate(5)],
    "padded": [Pad((1, 2, 3, 4)), RandomTranslate(5), RandomHorizontalFlip()],
    "part": [RandomResizedCrop((0.1, 0.8), (0.5, 2), 33)],
    "all, as tensors": [
        *(RandomTranslate(4), ToTensor(), Pad(5), RandomHorizontalFlip(), ToTorchImage(), RandomCrop((50, 60))),
        *(NormalizeImage([0] * 3, [1] * 3, np.float32), RandomResizedCrop((0.3, 0.9), (0.5, 2), 40), CornerCrop(36)),
        *(RandomHorizontalFlip(), RandomTranslate(3)),
    ],
}


def reference(box, size, operations, row):
    """One box after all operations, from the draws of its image, in plain Python: x and y by themselves."""
    x, y = [[box[0], box[2]], [box[1], box[3]]]
    height, width = (float(side) for side in size)

    def take(top, left, rows, columns, out_rows, out_columns):
        nonlocal x, y, height, width
        x = [min(max((edge - left) * out_columns / columns, 0), out_columns) for edge in x]
        y = [min(max((edge - top) * out_rows / rows, 0), out_rows) for edge in y]
        height, width = out_rows, out_columns

    take(*row["crop"], 48, 64)
    counts = {}
    for operation in operations:
        name = type(operation).__name__
        counts[name] = counts.get(name, 0) + 1
        drawn = row.get(name if counts[name] == 1 else f"{name}_{counts[name]}")
        if isinstance(operation, RandomHorizontalFlip) and drawn:
            x = [width - x[1], width - x[0]]
        elif isinstance(operation, RandomTranslate):
            take(-drawn[0], -drawn[1], height, width, height, width)
        elif isinstance(operation, RandomCrop | CornerCrop):
            take(*drawn, *drawn[2:])
        elif isinstance(operation, RandomResizedCrop):
            take(*drawn, operation.size, operation.size)
        elif isinstance(operation, Pad):
            left, top, right, bottom = operation.padding
            size = height + top + bottom, width + left + right
            take(-top, -left, *size, *size)
    return [x[0], y[0], x[1], y[1]]


@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS)
def test_boxes_move_by_the_draws_of_their_image(raw, windows):
    as_written = make(raw, AUGMENTED).pipelines | {"image": [*AUGMENTED, *windows]}
    # The names of the flips are counted from the first on, which is in the one pass.
    pipelines = as_written | {"drawn": DrawnParameters("image")}
    loader = Loader(raw, 5, num_workers=1, seed=3, drop_last=False, order="random", pipelines=pipelines)
    num_visible = 0
    for _ in range(2):
        for images, boxes, drawn in loader:
            assert len(images) == len(boxes)
            for number, (box,) in enumerate(boxes):
                row = {name: values[number].tolist() for name, values in drawn.items()}
                _, corners, _, _ = rectangle(int(box[4]))
                expected = reference(corners[0, :4].tolist(), row["size"], [AUGMENTED[1], *windows], row)
                is_visible = expected[2] > expected[0] and expected[3] > expected[1]
                # Float64 all the way, rounded to float32 once: half a unit in the last place of numbers below 128.
                np.testing.assert_allclose(box[:4], expected, rtol=0, atol=2.0**-18)
                assert box[5] == is_visible
                num_visible += is_visible
    assert num_visible > 12


def test_boxes_follow_an_output_that_goes_on_from_another_one(raw):
    flip, window = RandomHorizontalFlip(), RandomCrop((30, 40))
    view = PipelineSpec(flip, transforms=[window, RandomHorizontalFlip(), ToTensor()])
    followed = PipelineSpec("boxes", RaggedDecoder(), [TransformBoxes("view", keep="all")])
    more = {"view": view, "followed": followed, "drawn": DrawnParameters("view")}
    pipelines = make(raw, [AUGMENTED[0], flip, RandomTranslate(9)]).pipelines | more
    ((_, _, _, boxes, drawn),) = Loader(raw, 24, num_workers=1, seed=3, pipelines=pipelines)
    for number, (box,) in enumerate(boxes):
        row = {name: values[number].tolist() for name, values in drawn.items()}
        _, corners, _, _ = rectangle(int(box[4]))
        expected = reference(corners[0, :4].tolist(), row["size"], [flip, window, RandomHorizontalFlip()], row)
        np.testing.assert_allclose(box[:4], expected, rtol=0, atol=2.0**-18)


def boxes_by_sample(loader):
    batches, results = iter(loader), {}
    for batch in batches:
        results.update(zip(batches.samples.tolist(), (box.tolist() for box in batch[1]), strict=True))
    return results


def test_boxes_depend_on_the_sample_and_not_on_its_batch(raw):
    first = boxes_by_sample(make(raw, AUGMENTED))
    assert first == boxes_by_sample(make(raw, AUGMENTED, batch_size=7, order="random"))
    again = make(raw, AUGMENTED)
    again.set_epoch(1)
    assert first != boxes_by_sample(again)


def test_hidden_boxes_are_left_out_of_their_sample(raw):
    small = [RandomResizedCropRGBImageDecoder((48, 64), scale=(0.1, 0.2))]
    every = boxes_by_sample(make(raw, small))
    visible = boxes_by_sample(make(raw, small, [TransformBoxes(), ToTensor()]))
    assert visible == {sample: [box[:5] for box in boxes if box[5]] for sample, boxes in every.items()}
    assert any(not boxes for boxes in visible.values())


def test_fractions_of_the_stored_image_become_fractions_of_the_output(raw):
    loader = make(raw, AUGMENTED, [TransformBoxes()], batch_size=24)
    follows = [RaggedDecoder(), TransformBoxes(relative=True)]
    ((_, boxes, fractions),) = Loader(
        raw, 24, num_workers=1, seed=3, pipelines={**loader.pipelines, "fractions": follows}
    )
    assert len(boxes.values) > 10
    # The boxes are rounded to float32 once, at most by half a unit in the last place of numbers below 64.
    np.testing.assert_allclose(fractions.values * [64, 48, 64, 48], boxes.values[:, :4], rtol=0, atol=2.0**-19)


def test_later_operations_that_move_no_pixel_may_be_in_the_images_pipeline(raw):
    later = [RandomGaussianBlur(3, p=1), NormalizeImage([0] * 3, [1] * 3, np.float64), Cutout(4), ToTensor()]
    later += [ToTorchImage(), torch.nn.Identity()]
    assert boxes_by_sample(make(raw, [*AUGMENTED, *later])) == boxes_by_sample(make(raw, AUGMENTED))


@pytest.mark.parametrize(
    ("image", "boxes", "message"),
    [
        (AUGMENTED, [TransformBoxes("boxes")], "field 'boxes': .*'image'"),
        (AUGMENTED, [TransformBoxes("nothing")], "'nothing'"),
        ([*AUGMENTED, PerSample(np.flip)], [TransformBoxes()], "cannot follow PerSample.* moves_pixels=False"),
        *(
            (
                [*AUGMENTED, turns],
                [TransformBoxes()],
                rf"cannot follow {type(turns).__name__}\(.*crops and paddings can",
            )
            for turns in (
                *(RandomRotation(9), RandomAffine(0, (0.1, 0.1)), RandAugment(), TrivialAugmentWide()),
                *(RandomPerspective(), RandomApply([RandomHorizontalFlip(), AutoAugment()])),
            )
        ),
    ],
)
def test_operations_that_boxes_cannot_follow_are_refused_by_the_constructor(raw, image, boxes, message):
    with pytest.raises(PipelineError, match=message):
        make(raw, image, boxes)
