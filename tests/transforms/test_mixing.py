from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline import Compiler, State
from gpubeton.transforms import (
    Cutout,
    ImageCutMix,
    ImageMixup,
    ImageMixupOrCutMix,
    LabelCutMix,
    LabelMixup,
    LabelMixupOrCutMix,
    MixupToOneHot,
    RandomHorizontalFlip,
    ToTensor,
)
from gpubeton.transforms.mixup import symmetric_beta
from tests.apply import LAYOUTS, apply, as_nhwc_array, in_layout
from tests.reference.color import ONE
from tests.reference.mixing import BOTTOM, LEFT, PARTNER, RIGHT, TOP, WEIGHT, cutmix, cutmix_box, mixup, one_hot
from tests.transforms.random_numbers import numbers

COUNT = 9
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 20, 30, 3), np.uint8)
LABELS = np.array([[3], [1], [4], [1], [1], [9], [2], [6], [5]])
SAMPLES = np.array([8, 3, 11, 5, 0, 7, 2, 40, 6], np.uint64)
CPU = torch.device("cpu")
NHWC = State(True, CPU, (20, 30, 3), np.dtype("uint8"))
LABEL = State(True, CPU, (1,), np.dtype("int64"))
PAIRS = [
    (ImageMixup(0.4, False), LabelMixup(0.4, False)),
    (ImageMixup(0.4, True), LabelMixup(0.4, True)),
    (ImageCutMix(1.0, False), LabelCutMix(1.0, False, (20, 30))),
    (ImageCutMix(1.0, True), LabelCutMix(1.0, True, (20, 30))),
    (ImageMixupOrCutMix(0.4, 1.0, False), LabelMixupOrCutMix(0.4, 1.0, False, size=(20, 30))),
    (ImageMixupOrCutMix(0.4, 1.0, True), LabelMixupOrCutMix(0.4, 1.0, True, size=(20, 30))),
]
IMAGE_OPERATIONS = [image for image, _ in PAIRS]
LABEL_OPERATIONS = [label for _, label in PAIRS]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("same_lambda", [True, False])
def test_mixup_is_the_exact_mean_rounded_down(same_lambda, layout):
    mixes = ImageMixup(0.7, same_lambda).draw(numbers, 20_000, NHWC)[:COUNT]
    mixes[:, PARTNER] = np.roll(np.arange(COUNT), 1)
    result = as_nhwc_array(ImageMixup(0.7, same_lambda).apply(in_layout(IMAGES, layout), mixes), layout)
    # In float64 this is exact: a share has 15 binary digits, a level 8.
    assert np.array_equal(result, np.floor(mixup(IMAGES.astype(float), mixes[:, WEIGHT] / ONE)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cutmix_pastes_the_box_of_the_image_before(layout):
    mixes = ImageCutMix(1.0, False).draw(numbers, 20_000, NHWC)[:COUNT]
    mixes[:, PARTNER] = np.roll(np.arange(COUNT), 1)
    result = as_nhwc_array(ImageCutMix(1.0, False).apply(in_layout(IMAGES, layout), mixes), layout)
    assert np.array_equal(result, cutmix(IMAGES, mixes[:, TOP:].tolist()))
    assert not np.array_equal(result, IMAGES)


@pytest.mark.parametrize("count", [1, 2, COUNT])
@pytest.mark.parametrize("operation", IMAGE_OPERATIONS)
def test_the_partner_is_the_sample_before_and_the_firsts_is_the_last(operation, count):
    partner = operation.draw(lambda n, rows=None: np.full((count if rows is None else len(rows), n), 0.5), count, NHWC)
    assert partner[:, PARTNER].tolist() == [count - 1, *range(count - 1)]


def test_partners_may_be_any_images():
    generator = np.random.default_rng(3)
    mixes = np.zeros((COUNT, 6), np.int32)
    mixes[:, PARTNER] = generator.permutation(COUNT)
    mixes[0, PARTNER] = 0
    mixes[:, WEIGHT] = generator.integers(0, ONE + 1, COUNT)
    mixes[:, [BOTTOM, RIGHT]] = 20, 30
    result = ImageMixup(1.0, False).apply(IMAGES.copy(), mixes)
    share = (mixes[:, WEIGHT] / ONE)[:, None, None, None]
    assert np.array_equal(result, np.floor(share * IMAGES + (1 - share) * IMAGES[mixes[:, PARTNER]]))


@pytest.mark.parametrize("seed", range(3))
def test_compiled_code_and_tensors_agree_to_the_bit(seed, monkeypatch):
    generator = np.random.default_rng(seed)
    mixes = np.stack([generator.permutation(COUNT), generator.integers(0, ONE + 1, COUNT)], axis=1)
    corners = np.sort(generator.integers(0, (21, 31), (COUNT, 2, 2)), axis=1).reshape(COUNT, 4)
    mixes = np.hstack([mixes, corners]).astype(np.int32)
    compiled = ImageMixup(1.0, False).apply(IMAGES.copy(), mixes)
    monkeypatch.setattr(Compiler, "is_enabled", False)
    assert np.array_equal(ImageMixup(1.0, False).apply(IMAGES.copy(), mixes), compiled)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, torch.float16, torch.bfloat16])
def test_floating_point_images_are_mixed_without_rounding_to_levels(dtype):
    mixes = ImageMixup(0.7, False).draw(numbers, 20_000, NHWC)[:COUNT]
    mixes[:, PARTNER] = np.roll(np.arange(COUNT), 1)
    values = np.random.default_rng(4).normal(size=IMAGES.shape)
    batch = torch.from_numpy(values).to(dtype) if isinstance(dtype, torch.dtype) else values.astype(dtype)
    exact = mixup(torch.as_tensor(batch).double().numpy(), mixes[:, WEIGHT] / ONE)
    result = ImageMixup(0.7, False).apply(batch, mixes)
    assert result is batch
    # Rounded twice at most: in float32, or finer, and to the batch's own type.
    digits = torch.finfo(result.dtype if isinstance(dtype, torch.dtype) else torch.from_numpy(result).dtype).eps
    wrong = np.abs(torch.as_tensor(result).double().numpy() - exact)
    assert (wrong <= 4 * (digits + np.finfo(np.float32).eps) * np.abs(values).max()).all()
    assert len(np.unique(torch.as_tensor(result).double().numpy())) > 256


@pytest.mark.parametrize("tensors", [True, False])
@pytest.mark.parametrize(("image", "label"), PAIRS)
def test_images_and_labels_of_different_fields_are_mixed_alike(image, label, tensors):
    images = in_layout(IMAGES, "channels_last" if tensors else "numpy")
    labels = torch.from_numpy(LABELS.copy()) if tensors else LABELS.copy()
    mixed = as_nhwc_array(apply([image], images, samples=SAMPLES), "channels_last" if tensors else "numpy")
    rows = np.asarray(apply([label], labels, samples=SAMPLES, field=3))
    assert rows.dtype == np.float32
    assert np.array_equal(rows[:, 0], LABELS[:, 0])
    assert np.array_equal(rows[:, 1], np.roll(LABELS[:, 0], 1))
    is_mean = (mixed == np.floor(mixup(IMAGES.astype(float), rows[:, 2].astype(float)))).all(axis=(1, 2, 3))
    shares = (mixed == IMAGES).all(axis=3).mean(axis=(1, 2))  # no two of these random pixels are alike
    is_cut = np.isclose(shares, rows[:, 2], atol=1e-6) & ~is_mean
    if isinstance(image, ImageMixup):
        assert is_mean.all()
    elif isinstance(image, ImageCutMix) or image.same_lambda:  # the last sample draws CutMix
        assert is_cut.all()
        assert 0.05 < shares.min() < 0.95
    else:
        assert (is_mean | is_cut).all()
        assert is_mean.any()
        assert is_cut.any()


@pytest.mark.parametrize(("image", "label"), PAIRS)
def test_a_mix_depends_on_seed_epoch_and_the_samples_of_the_batch_alone(image, label):
    rows = [
        apply([label], LABELS.copy(), samples=SAMPLES, **options)
        for options in ({}, {"field": 7}, {"seed": 1}, {"epoch": 1})
    ]
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])
    assert not np.array_equal(rows[0], rows[3])
    # With its last samples alone, a batch has other partners at its beginning and nothing else.
    images, shorter = (
        apply([image], IMAGES[rows], samples=SAMPLES[rows]) for rows in ([*range(COUNT)], [*range(4, COUNT)])
    )
    assert np.array_equal(images[5:], shorter[1:])
    assert not np.array_equal(images[4], shorter[0])


def test_with_the_same_lambda_all_of_a_batch_are_mixed_as_its_last():
    for label in (LabelMixup(1.0, True), LabelCutMix(1.0, True)):
        separate, same = (
            apply([type(label)(1.0, choice)], LABELS.copy(), samples=SAMPLES)[:, 2] for choice in (False, True)
        )
        assert set(same) == {separate[-1]}
        assert len(set(separate)) == COUNT
    boxes = ImageCutMix(1.0, True).draw(numbers, 20_000, NHWC)[:, TOP:]
    assert (boxes == boxes[0]).all()


def test_either_mixing_chooses_cutmix_as_often_as_asked():
    for p_cutmix, same_lambda in ((0.0, False), (0.3, False), (1.0, False), (0.5, True)):
        mixes = ImageMixupOrCutMix(0.4, 1.0, same_lambda, p_cutmix).draw(numbers, 20_000, NHWC)
        is_cut = mixes[:, WEIGHT] == 0
        is_whole = (mixes[:, TOP:] == [0, 0, 20, 30]).all(axis=1)
        assert (is_cut | is_whole).all()
        if same_lambda:
            assert (mixes[:, WEIGHT:] == mixes[0, WEIGHT:]).all()
        else:
            assert abs((is_cut & ~is_whole).mean() - p_cutmix) <= 0.02 * (p_cutmix > 0)


def test_the_choice_of_the_mixing_is_independent_of_shares_and_boxes():
    either, mixup_alone, cutmix_alone = (
        operation.draw(numbers, 20_000, NHWC)
        for operation in (ImageMixupOrCutMix(0.4, 1.0, False), ImageMixup(0.4, False), ImageCutMix(1.0, False))
    )
    is_cut = either[:, WEIGHT] == 0
    away, expected = (np.abs(mixes[:, WEIGHT] / ONE - 0.5).mean() for mixes in (either[~is_cut], mixup_alone))
    assert abs(away - expected) < 0.01
    areas = (
        ((mixes[:, BOTTOM] - mixes[:, TOP]) * (mixes[:, RIGHT] - mixes[:, LEFT])).mean() / 600
        for mixes in (either[is_cut & (either[:, TOP:] != [0, 0, 20, 30]).any(axis=1)], cutmix_alone)
    )
    assert abs(next(areas) - next(areas)) < 0.02


def test_sharing_does_not_move_the_numbers_of_other_operations():
    images, cuts = IMAGES // 2, [RandomHorizontalFlip(), Cutout(5, (255, 255, 255))]
    with_mix, without = (apply([cuts[0], *mix, cuts[1]], images.copy()) for mix in ([ImageMixup(1.0, False)], []))
    assert np.array_equal(with_mix == 255, without == 255)
    assert not np.array_equal(with_mix, without)


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5, 1.0, 2.0, 20.0])
def test_shares_are_beta_distributed(alpha):
    ours = np.sort(symmetric_beta(alpha, np.random.default_rng(0).random((20_000, 2))))
    theirs = np.sort(np.random.default_rng(1).beta(alpha, alpha, 20_000))
    assert ours[0] >= 0
    assert ours[-1] <= 1
    # Kolmogorov and Smirnov: two samples of one distribution are further apart once in a thousand times. Shares of a
    # small alpha lie so near to 0 or 1 that float64 rounds them to it; NumPy's shares are counted in the same way.
    places = np.linspace(0.001, 0.999, 999)
    apart = np.abs(np.searchsorted(ours, places) - np.searchsorted(theirs, places)).max() / 20_000
    assert apart < 1.95 * np.sqrt(2 / 20_000)


@pytest.mark.parametrize("alpha", [1e-4, 0.2, 1.0, 1e4])
def test_every_random_number_gives_a_share(alpha):
    ends = np.array([0.0, 2.0**-32, 0.5, 1 - 2.0**-32])
    shares = symmetric_beta(alpha, np.stack(np.meshgrid(ends, [0.0, 0.25, 0.5, 0.75, *ends]), axis=-1).reshape(-1, 2))
    assert np.isfinite(shares).all()
    assert shares.min() >= 0
    assert shares.max() <= 1
    if alpha == 1e4:  # with a standard deviation of 0.0035
        assert np.abs(shares - 0.5).max() < 0.03


def test_mixup_shares_of_images_are_the_drawn_ones():
    shares = symmetric_beta(0.4, numbers(2))
    assert np.abs(ImageMixup(0.4, False).draw(numbers, 20_000, NHWC)[:, WEIGHT] / ONE - shares).max() <= 2**-16
    assert (ImageMixup(0.4, False).draw(numbers, 20_000, NHWC)[:, TOP:] == [0, 0, 20, 30]).all()


def test_cutmix_boxes_are_torchvisions():
    drawn = numbers(4)
    lam, rows, columns = symmetric_beta(0.9, drawn[:, :2]), drawn[:, 2] * 20, drawn[:, 3] * 30
    expected = [
        cutmix_box(*draw, (20, 30)) for draw in zip(lam.tolist(), rows.astype(int), columns.astype(int), strict=True)
    ]
    mixes = ImageCutMix(0.9, False).draw(numbers, 20_000, NHWC)
    assert np.array_equal(mixes[:, TOP:], expected)
    assert (mixes[:, WEIGHT] == 0).all()
    assert mixes[:, [TOP, LEFT]].min(axis=0).tolist() == [0, 0]
    assert mixes[:, [BOTTOM, RIGHT]].max(axis=0).tolist() == [20, 30]


def test_without_a_size_cutmix_labels_are_those_of_a_box_that_is_not_rounded():
    exact, near = (LabelCutMix(1.0, False, size).draw(numbers, 20_000, LABEL)[:, 1] for size in ((20, 30), None))
    assert 0 < np.abs(exact - near).max() <= 2 / 20 + 2 / 30
    finer = LabelCutMix(1.0, False, (20_000, 30_000)).draw(numbers, 20_000, LABEL)[:, 1]
    assert np.abs(finer - near).max() <= 2 / 20_000 + 2 / 30_000


@pytest.mark.parametrize("tensors", [True, False])
def test_one_hot_vectors_are_torchvisions_mixed_labels(tensors):
    mixed = apply([LabelMixup(1.0, False)], LABELS.copy(), samples=SAMPLES)
    vectors = MixupToOneHot(10).apply(torch.from_numpy(mixed.copy()) if tensors else mixed.copy())
    assert isinstance(vectors, torch.Tensor if tensors else np.ndarray)
    assert np.allclose(vectors, one_hot(LABELS[:, 0], mixed[:, 2].astype(float), 10), atol=2**-23)
    # Rows 3 and 4 are both of class 1: FFCV leaves only what the second has of it.
    assert float(vectors[4, 1]) == 1.0


def test_a_label_beyond_the_classes_is_named():
    mixed = np.array([[0, 3, 0.5]], np.float32)
    with pytest.raises(OptionError, match=r"num_classes .*3, .* 3; .* 0 to 2"):
        MixupToOneHot(3).apply(mixed)
    with pytest.raises(OptionError, match="a label is -1"):
        MixupToOneHot(3).apply(-mixed[:, [1, 0, 2]] / 3)


def test_ffcvs_chain_of_label_operations_has_its_states_and_takes_labels_of_one_dimension():
    vectors = apply([LabelMixup(0.5, True), ToTensor(), MixupToOneHot(10)], LABELS.copy())
    assert (tuple(vectors.shape), vectors.dtype) == ((COUNT, 10), torch.float32)
    assert apply([ToTensor(), LabelCutMix(0.5, True)], LABELS.copy()).dtype is torch.float32
    assert apply([LabelMixup(0.5, True)], LABELS.copy()).dtype == np.float32
    mix = [PAIRS[0][1]]
    assert np.array_equal(apply(mix, LABELS[:, 0].copy()), apply(mix, LABELS.copy()))


@pytest.mark.parametrize("operation", LABEL_OPERATIONS)
def test_labels_of_several_numbers_are_refused(operation):
    with pytest.raises(PipelineError, match=r"labels, .*\(20, 30, 3\)"):
        operation.declare_state_and_memory(NHWC)
    with pytest.raises(PipelineError, match=r"LabelMixup .*\(1,\)"):
        MixupToOneHot(3).declare_state_and_memory(LABEL)


def test_mixup_and_cutmix_draw_different_numbers():
    first, second = (
        apply([label], LABELS.copy(), samples=SAMPLES)[:, 2]
        for label in (LabelMixup(1.0, False), LabelCutMix(1.0, False))
    )
    assert not np.array_equal(first, second)
