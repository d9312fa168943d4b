"""The segmentation example: masks have the crops of their images, and a network learns them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from examples.imagenet.resnet import make_resnet
from examples.pyramid import Pyramid
from examples.recipe import settings_of
from examples.segmentation import __main__ as segmentation
from examples.segmentation import write
from gpubeton.fields import ImageField, RGBImageField
from gpubeton.fields.decoders import PadRGBImageDecoder
from gpubeton.writer import DatasetWriter
from tests.examples.example import check_resuming, json_lines


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Options for a small network and files of made-up images."""
    folder = tmp_path_factory.mktemp("segmentation")
    for name, count in (("train", "24"), ("val", "4")):
        write.main([str(folder / f"{name}.beton"), "--shapes", count, "--workers", "1"])
    sizes = ["--num-classes", "3", "--side", "64", "--width", "32", "--batch-size", "8", "--num-workers", "1"]
    return ["--train", f"{folder}/train.beton", "--val", f"{folder}/val.beton", *sizes, "--warmup", "0"]


def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(toy, tmp_path, capsys):
    results = check_resuming(segmentation, tmp_path, *toy, "--epochs", "2", stop_after=4)
    assert 0 <= results["mean_iou"] <= results["pixel_accuracy"] <= 1
    first, last, *_ = [line["loss"] for line in json_lines(capsys.readouterr().out) if "loss" in line]
    assert last < first


@pytest.mark.parametrize("training", [True, False])
def test_a_mask_has_the_crop_of_its_image(tmp_path, training):
    class Same:
        """Images that are their own masks."""

        def __len__(self):
            return 8

        def __getitem__(self, index):
            blocks = np.random.default_rng(index).integers(0, 4, (9, 12, 1), np.uint8)
            mask = blocks.repeat(8, axis=0).repeat(8, axis=1)
            return mask.repeat(3, axis=2) * 60, mask * 5

    path = tmp_path / "same.beton"
    fields = {"image": RGBImageField(write_mode="raw"), "mask": ImageField("gray", write_mode="png")}
    DatasetWriter(path, fields, num_workers=1, progress=False).from_indexed_dataset(Same())
    options = ["--batch-size", "8", "--side", "48", "--num-workers", "1", "--folder", str(tmp_path)]
    run = segmentation.Run(settings_of(segmentation.Settings, [*options, "--train", str(path), "--val", str(path)]))
    tested = run.open_validation(run.pipelines(PadRGBImageDecoder((48, 48))))
    images, masks = next(iter(run.loader if training else tested))
    run.loader.close()
    tested.close()
    assert images.shape == (8, 3, 48, 48)
    assert masks.shape == (8, 48, 48, 1)
    assert set(masks.unique().tolist()) == {0, 5, 10, 15, 255}
    for image, mask in zip(images[:, 0].numpy(), masks[..., 0].numpy(), strict=True):
        is_labelled = mask != 255
        assert np.corrcoef(image[is_labelled], mask[is_labelled])[0, 1] > 0.9


def test_folders_are_paired_by_name_and_a_palettes_numbers_are_classes(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    classes = np.random.default_rng(0).choice(np.array([0, 1, 2, 255], np.uint8), (24, 32))
    for name in ("a", "b", "c"):
        Image.new("RGB", (32, 24), (name == "a" and "red") or "blue").save(tmp_path / "images" / f"{name}.jpg")
    palette = Image.fromarray(classes)
    palette.putpalette(np.random.default_rng(1).integers(0, 256, 768).tolist())  # makes it a palette's
    palette.save(tmp_path / "masks" / "b.png")
    Image.fromarray(classes.T.copy()).save(tmp_path / "masks" / "d.png")
    pairs = write.Pairs(tmp_path / "images", tmp_path / "masks")
    assert len(pairs) == 1
    image, mask = pairs[0]
    assert image == tmp_path / "images" / "b.jpg"
    assert np.array_equal(mask, classes)
    (tmp_path / "names.txt").write_text("a\nc\n")
    with pytest.raises(FileNotFoundError, match="no file"):
        write.Pairs(tmp_path / "images", tmp_path / "masks", tmp_path / "names.txt")
    (tmp_path / "masks" / "b.png").unlink()
    with pytest.raises(FileNotFoundError, match="no file"):
        write.Pairs(tmp_path / "images", tmp_path / "masks")


def test_the_score_is_the_mean_overlap_of_the_classes_that_occur():
    rng = np.random.default_rng(0)
    result, true = rng.integers(0, 3, (2, 4, 6, 5))
    masks = np.where(rng.random(true.shape) < 0.2, 255, true)
    masks[masks == 2] = 1
    is_labelled = masks != 255
    result[result == 2] = 0
    overlaps = [
        ((result == kind) & (masks == kind)).sum() / (((result == kind) & is_labelled) | (masks == kind)).sum()
        for kind in (0, 1)
    ]
    halves = [(torch.tensor(result[part]), torch.tensor(masks[part])) for part in (slice(3), slice(3, None))]
    counts = sum(segmentation.confusion(*half, 3) for half in halves)
    assert segmentation.mean_overlap(counts) == pytest.approx(np.mean(overlaps), rel=1e-6)


def test_a_pyramid_keeps_the_size_and_sees_far():
    network = segmentation.Segmenter(segmentation.Settings(width=32, num_classes=5)).eval()
    image = torch.randn(1, 3, 64, 80, requires_grad=True)
    logits = network(image)
    assert logits.shape == (1, 5, 64, 80)
    (gradient,) = torch.autograd.grad(logits[0, :, 32, 40].sum(), image)
    rows = gradient[0].abs().sum((0, 2)).nonzero()
    assert int(rows.max() - rows.min()) > 48  # over several levels


@pytest.mark.parametrize("blurpool", [False, True])
def test_weights_of_other_recipes_are_loaded(tmp_path, blurpool):
    resnet = make_resnet("resnet18", 7, blurpool=blurpool)
    torch.save({"network": resnet.state_dict()} if blurpool else resnet.state_dict(), tmp_path / "weights.pt")
    loaded = Pyramid("resnet18", 32, str(tmp_path / "weights.pt")).resnet.state_dict()
    expected = resnet.state_dict()
    assert {*expected} - {*loaded} == {"fc.weight", "fc.bias"}
    assert all(torch.equal(loaded[name], expected[name]) for name in loaded)


def test_images_without_masks_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        write.main([str(tmp_path / "some.beton"), "--images", str(tmp_path)])
    assert "expected --images and --masks" in capsys.readouterr().err
