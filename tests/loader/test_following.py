"""Masks follow their images: where both store the same pixels, both come out the same to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._plan.draw_rows import HEIGHT, LEFT, TOP, WIDTH
from gpubeton.errors import PipelineError
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import (
    CenterCropRGBImageDecoder,
    FollowImage,
    PadRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.loader import Loader
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import (
    AugMix,
    AutoAugment,
    CornerCrop,
    Cutout,
    ImageCutMix,
    NormalizeImage,
    Pad,
    PerSample,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomApply,
    RandomBrightness,
    RandomChoice,
    RandomCrop,
    RandomErasing,
    RandomGaussianBlur,
    RandomGrayscale,
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
    TrivialAugmentWide,
)
from gpubeton.transforms.transform import Moves, Transform
from tests.loader.pipelines import equal
from tests.small_files import write

LENGTH = 24
LARGEST = 250


def pair(number, size=None):
    """Noise without the level 255; the mask is the same, and `double` has four pixels of each."""
    rng = np.random.default_rng(number)
    height, width = size or rng.integers(40, 70, 2)
    image = rng.integers(1, LARGEST, (height, width, 3), np.uint8)
    return image, image, image.repeat(2, axis=0).repeat(2, axis=1), number


def fields(mode="raw"):
    return {
        "image": RGBImageField(mode),
        **{name: RGBImageField("raw") for name in ("mask", "double")},
        "n": IntField(),
    }


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return write(tmp_path_factory.mktemp("pairs") / "pairs.beton", fields(), [pair(number) for number in range(LENGTH)])


def loader(path, image, mask=None, more=None, **arguments):
    mask = [FollowImage()] if mask is None else mask
    pipelines = {"image": [*image, ToTensor()], "mask": [*mask, ToTensor()], "double": None, **(more or {})}
    usual = {"batch_size": 5, "num_workers": 1, "seed": 3, "drop_last": False}
    return Loader(path, pipelines=pipelines, **{**usual, **arguments})


def crop(size=(24, 32), interpolation="nearest"):
    return RandomResizedCropRGBImageDecoder(size, scale=(0.2, 1), interpolation=interpolation)


class Melt(Transform):
    def declare_state_and_memory(self, previous_state):
        return previous_state, None

    def apply(self, batch, draw=None):
        return batch


class Darken(Melt):
    moves = Moves.NOTHING

    def apply(self, batch, draw=None):
        return batch // 2


FLIP = RandomHorizontalFlip()
GEOMETRY = {
    "center": [CenterCropRGBImageDecoder((20, 28), 0.9, "nearest")],
    "padded": [PadRGBImageDecoder((40, 60), interpolation="nearest"), FLIP, RandomTranslate(5), FLIP],
    "crop and flip": [crop(), FLIP],
    "moved to and fro": [crop(), RandomTranslate(6), FLIP, RandomTranslate(5), FLIP],
    "rotation": [crop(), FLIP, RandomRotation(40)],
    "affine": [crop(), RandomAffine(20, translate=(0.2, 0.1), scale=(0.7, 1.3), shear=9)],
    "windows": [crop(), Pad(3), RandomCrop((20, 21), padding=4), CornerCrop((15, 16))],
    "quarter turns": [crop((24, 24)), RandomQuarterTurn(), FLIP, RandomVerticalFlip(), RandomTranslate(3)],
    "perspective": [crop(), RandomPerspective(0.5, 0.8, "nearest")],
    "at random": [
        crop(),
        RandomOrder([RandomRotation(40), RandomApply([RandomVerticalFlip(), RandomTranslate(5)]), FLIP]),
    ],
    "turned, then mirrored and moved": [crop(), RandomRotation(40), FLIP, RandomTranslate(4)],
}


def assert_same(batches, length=LENGTH):
    seen = 0
    for images, *masks, _ in batches:
        assert masks
        assert all(torch.equal(images, mask) for mask in masks)
        seen += len(images)
    assert seen == length


@pytest.mark.parametrize("image", GEOMETRY.values(), ids=GEOMETRY)
def test_masks_are_cut_and_moved_as_their_image_also_one_of_twice_its_size(pairs, image):
    result = loader(pairs, image, more={"double": [FollowImage(), ToTensor()]}, order="random")
    for _ in range(2):
        assert_same(result)


def test_the_part_of_a_mask_of_another_size_is_the_same_to_half_a_pixel(tmp_path):
    rng, samples = np.random.default_rng(0), []
    for number in range(60):
        image, mask = (rng.integers(1, LARGEST, (*rng.integers(1, 90, 2), 3), np.uint8) for _ in range(2))
        samples.append((image, image if number % 5 == 0 else mask, image, number))
    result = loader(write(tmp_path / "sizes.beton", fields(), samples), [crop()], more={"double": [FollowImage()]})
    for batch in (batch for epoch in range(20) for batch in result.plan(epoch)):
        image, mask, same = (batch.images[name] for name in ("image", "mask", "double"))
        assert np.array_equal(image.draws[:, TOP : WIDTH + 1], same.draws[:, TOP : WIDTH + 1])
        for side, first, length in ("height", TOP, HEIGHT), ("width", LEFT, WIDTH):
            start, stop = mask.draws[:, first], mask.draws[:, first] + mask.draws[:, length]
            assert (start >= 0).all()
            assert (start < stop).all()
            assert (stop <= getattr(mask, side)).all()
            scale = getattr(mask, side) / getattr(image, side)
            # A part that would be empty is a pixel beside the border.
            largest = np.where(stop - start == 1, 1, 0.5) + 1e-6
            assert (np.abs(start - image.draws[:, first] * scale) <= largest).all()
            assert (np.abs(stop - (image.draws[:, first] + image.draws[:, length]) * scale) <= largest).all()


def test_whole_images_have_whole_masks_and_a_crop_after_their_decoder_is_followed(tmp_path):
    path = write(tmp_path / "fixed.beton", fields(), [pair(number, (40, 50)) for number in range(LENGTH)])
    assert_same(loader(path, [SimpleRGBImageDecoder(), FLIP]))
    assert_same(loader(path, [FLIP], more={"mask": None, "double": [FollowImage(), ToTensor()]}))
    fused = loader(
        path, [SimpleRGBImageDecoder(), RandomResizedCrop((0.2, 1), (0.8, 1.2), 24)], [FollowImage("image", "area")]
    )
    assert_same(fused)


def test_a_crop_of_finished_images_is_followed_pixel_by_pixel(pairs):
    """The image's pixels are means there, the mask's are none: only levels of the stored image appear."""
    image = [crop((48, 48)), FLIP, RandomResizedCrop((0.2, 1), (0.8, 1.2), 24)]
    for images, masks, numbers in loader(pairs, image, batch_size=1):
        stored = pair(int(numbers))[1]
        assert images.shape == masks.shape == (1, 24, 24, 3)
        levels = {tuple(pixel) for pixel in stored.reshape(-1, 3).tolist()}
        assert {tuple(pixel) for pixel in masks.reshape(-1, 3).tolist()} <= levels
        assert (images.float() - masks.float()).abs().mean() < 60


POLICIES = [
    RandAugment(),
    TrivialAugmentWide(),
    AutoAugment("svhn"),
    RandomChoice([RandomInvert(1), RandomRotation(20)]),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_the_geometric_part_of_a_policy_is_followed(pairs, policy):
    """Where only that was drawn, mask and image are the same; and the mask keeps to its set of levels."""
    same = changed = 0
    result = loader(pairs, [crop(), policy], [FollowImage(fill=255)], batch_size=1)
    plain = loader(pairs, [crop()], [FollowImage(fill=255)], batch_size=1)
    for (image, mask, number), (unmoved, _, _) in zip(result, plain, strict=True):
        is_outside = (mask == 255).all(dim=-1)
        levels = {tuple(pixel) for pixel in pair(int(number))[1].reshape(-1, 3).tolist()}
        assert {tuple(pixel) for pixel in mask[~is_outside].tolist()} <= levels
        same += torch.equal(image[~is_outside], mask[~is_outside])
        changed += not torch.equal(mask, unmoved)
    assert same >= 3
    assert changed >= 3


@pytest.mark.parametrize(
    "moves", [[RandomTranslate(9)], [FLIP, RandomRotation(40)], [RandomCrop(24, padding=9)]], ids=str
)
def test_pixels_from_outside_have_the_followers_fill(pairs, moves):
    outside = 0
    for images, masks, _ in loader(pairs, [crop((24, 24)), *moves], [FollowImage(fill=(255, 254, 253))]):
        is_outside = (images == 0).all(dim=-1)
        outside += int(is_outside.sum())
        assert torch.equal(images[~is_outside], masks[~is_outside])
        assert (masks[is_outside] == torch.tensor([255, 254, 253])).all()
    assert outside > 100


@pytest.mark.parametrize(
    "changes",
    [
        [RandomGaussianBlur(5, p=1)],
        [RandomAdjustSharpness(2, p=1)],
        [PerSample(lambda image, _: 255 - image, moves_pixels=False)],
        [Darken()],
        [Cutout(8), RandomErasing(1), RandomBrightness(0.9, 1), RandomGrayscale(1)],
        [NormalizeImage([120] * 3, [60] * 3, np.float16)],
    ],
    ids=lambda changes: type(changes[0]).__name__,
)
def test_operations_that_move_no_pixel_do_not_change_the_mask(pairs, changes):
    plain = loader(pairs, GEOMETRY["moved to and fro"])
    changed = loader(pairs, [*GEOMETRY["moved to and fro"], *changes])
    for (images, masks, _), (others, same, _) in zip(plain, changed, strict=True):
        assert torch.equal(masks, same)
        assert not torch.equal(images, others)


def test_a_mask_may_have_more_operations(pairs):
    mask = [FollowImage(), Cutout(6, (7, 7, 7)), RandomHorizontalFlip(1), ToTensor(), ToTorchImage()]
    for images, masks, _ in loader(pairs, [crop(), FLIP], mask):
        mirrored = masks.permute(0, 2, 3, 1).flip(2)
        is_cut = (mirrored == 7).all(dim=-1)
        assert is_cut.sum() == 36 * len(masks)
        assert torch.equal(images[~is_cut], mirrored[~is_cut])


def test_a_mask_is_mixed_as_its_image_by_the_same_operation_in_both_pipelines(pairs):
    mix = ImageCutMix(1.0, same_lambda=False)
    mixed = loader(pairs, [crop(), FLIP, mix], [FollowImage(), mix])
    assert_same(mixed)
    plain = loader(pairs, [crop(), FLIP])
    assert not all(torch.equal(batch[1], plain_batch[1]) for batch, plain_batch in zip(mixed, plain, strict=True))


def test_each_view_of_an_image_has_a_separate_mask(pairs):
    views = [crop(), FLIP, RandomTranslate(3)]
    more = {
        "second": PipelineSpec("image", transforms=[*views, ToTensor()]),
        "its mask": PipelineSpec("mask", decoder=FollowImage("second"), transforms=[ToTensor()]),
    }
    for images, masks, _, seconds, their_masks in loader(pairs, views, more=more):
        assert torch.equal(images, masks)
        assert torch.equal(seconds, their_masks)
        assert not torch.equal(images, seconds)


def test_a_follower_may_be_followed_and_adds_its_operations(pairs):
    mask = [FollowImage("image"), RandomTranslate(4), RandomHorizontalFlip()]
    more = {"double": [FollowImage("mask"), ToTensor()]}
    for _, masks, doubles, _ in loader(pairs, [crop(), FLIP], mask, more):
        assert torch.equal(masks, doubles)


@pytest.mark.parametrize("is_first", [True, False])
def test_branches_of_an_image_can_be_followed_and_a_mask_can_have_branches(pairs, is_first):
    turn, follow = RandomRotation(40), FollowImage("branch")
    image = PipelineSpec("image", transforms=[crop(), turn, RandomRotation(170), ToTensor()])
    more = {
        "branch": PipelineSpec(turn, transforms=[RandomHorizontalFlip(), RandomTranslate(3), ToTensor()]),
        "mask": [follow, ToTensor()],
        "masks branch": PipelineSpec(follow, transforms=[ToTensor()]),
    }
    names = ["mask", "masks branch", "branch"] if is_first else ["branch", "mask", "masks branch"]
    pipelines = {"image": image, "double": None, "n": None, **{name: more[name] for name in names}}
    loader = Loader(pairs, 5, num_workers=1, seed=3, drop_last=False, pipelines=pipelines)
    order = [name for name in ("image", "mask", *names) if name in pipelines]
    order = list(dict.fromkeys(order))
    for batch in loader:
        result = dict(zip(order, batch, strict=True))
        assert torch.equal(result["mask"], result["branch"])
        assert torch.equal(result["masks branch"], result["branch"])
        assert not torch.equal(result["image"], result["branch"])


def test_masks_depend_on_the_sample_alone(pairs):
    image = GEOMETRY["turned, then mirrored and moved"]
    rows = [
        {int(number): mask for _, masks, numbers in batches for mask, number in zip(masks, numbers, strict=True)}
        for batches in (loader(pairs, image), loader(pairs, image, batch_size=7, order="random", num_workers=2))
    ]
    assert len(rows[0]) == LENGTH
    assert equal(*rows)


@pytest.mark.parametrize(
    ("image", "mask", "more", "message"),
    [
        ([crop()], [FollowImage("imag")], {}, "'mask'.*'image', 'n'"),
        ([crop()], [FollowImage("mask")], {}, "follows another output"),
        ([crop()], [FollowImage("n")], {}, "'n' .*'image'"),
        ([FollowImage("mask")], [FollowImage("image")], {}, "in a circle"),
        ([crop()], [crop(), FollowImage()], {}, "FollowImage.* is a decoder, and has to come first"),
        ([crop(), Melt()], [FollowImage()], {}, r"cannot follow .*Melt.* moves = Moves\.NOTHING"),
        ([crop(), PerSample(np.flip)], [FollowImage()], {}, "cannot follow PerSample.* moves_pixels=False"),
        ([crop(), AugMix()], [FollowImage()], {}, "cannot follow AugMix"),
        ([crop(), RandomTranslate(3)], [FollowImage(fill=300)], {}, "fill .300, 300, 300."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_operation_that_cannot_be_followed_is_named(pairs, image, mask, more, message):
    with pytest.raises(PipelineError, match=message):
        list(loader(pairs, image, mask, more))


def test_explain_marks_draws_that_are_for_another_field(pairs, capsys):
    loader(pairs, [crop(), FLIP, Cutout(4), RandomRotation(9)]).explain()
    text = capsys.readouterr().out
    lines = text[text.index("mask: 24 x 32, nearest") :].splitlines()
    assert "FollowImage(image='image'" in lines[1]
    assert lines[2].lstrip().startswith("boxes of RandomResizedCropRGBImageDecoder(")
    assert lines[3].lstrip().startswith("RandomHorizontalFlip(")
    assert lines[4].lstrip().startswith("RandomRotation(")
    assert all(line.endswith("fused, as drawn for 'image'") for line in lines[2:5])
    assert lines[5].lstrip().startswith("ToTensor()")
