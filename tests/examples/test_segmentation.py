"""The segmentation example: masks have the crops of their images, and a network learns them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from gpubeton.fields import ImageField, RGBImageField
from gpubeton.writer import DatasetWriter
from tests.examples.example import module_of


@pytest.fixture
def segmentation(monkeypatch):
    return module_of(monkeypatch, "segmentation.py")


def test_a_network_learns_to_segment_shapes(segmentation, capsys):
    toy = ["--shapes", "72", "--width", "8", "--batch-size", "8", "--epochs", "8", "--side", "48", "--workers", "1"]
    score = segmentation.main(toy)
    assert score > 0.4  # all background scores below 0.3
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 9
    assert all("of the time waiting for data" in line for line in printed[:-1])
    assert printed[-1] == f"mean intersection over union on 9 images: {score:.3f}"


@pytest.mark.parametrize("training", [True, False])
def test_a_mask_has_the_crop_of_its_image(segmentation, tmp_path, training):
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
    options = segmentation.options_of(["--batch-size", "8", "--side", "48", "--workers", "1"])
    loader = segmentation.make_loader(path, options, torch.device("cpu"), np.arange(8), training=training)
    images, masks = next(iter(loader))
    loader.close()
    assert images.shape == (8, 3, 48, 48)
    assert masks.shape == (8, 48, 48, 1)
    assert set(masks.unique().tolist()) == ({0, 5, 10, 15, 255} if training else {0, 5, 10, 15})
    for image, mask in zip(images[:, 0].numpy(), masks[..., 0].numpy(), strict=True):
        known = mask != 255
        assert np.corrcoef(image[known], mask[known])[0, 1] > 0.9


def test_folders_are_paired_by_name_and_a_palettes_numbers_are_classes(segmentation, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    classes = np.random.default_rng(0).choice(np.array([0, 1, 2, 255], np.uint8), (24, 32))
    for name in ("a", "b", "c"):
        Image.new("RGB", (32, 24), (name == "a" and "red") or "blue").save(tmp_path / "images" / f"{name}.jpg")
    palette = Image.fromarray(classes)
    palette.putpalette(np.random.default_rng(1).integers(0, 256, 768).tolist())  # makes it a palette's
    palette.save(tmp_path / "masks" / "b.png")
    Image.fromarray(classes.T.copy()).save(tmp_path / "masks" / "d.png")
    pairs = segmentation.Pairs(tmp_path / "images", tmp_path / "masks")
    assert len(pairs) == 1
    image, mask = pairs[0]
    assert image == tmp_path / "images" / "b.jpg"
    assert np.array_equal(mask, classes)
    (tmp_path / "masks" / "b.png").unlink()
    with pytest.raises(FileNotFoundError, match="no file"):
        segmentation.Pairs(tmp_path / "images", tmp_path / "masks")


def test_the_score_is_the_mean_overlap_of_the_classes_that_occur(segmentation):
    rng = np.random.default_rng(0)
    found, true = rng.integers(0, 3, (2, 4, 6, 5))
    masks = np.where(rng.random(true.shape) < 0.2, 255, true)
    masks[masks == 2] = 1
    known = masks != 255
    found[found == 2] = 0
    overlaps = [
        ((found == kind) & (masks == kind)).sum() / (((found == kind) & known) | (masks == kind)).sum()
        for kind in (0, 1)
    ]
    logits = torch.nn.functional.one_hot(torch.tensor(found), 3).permute(0, 3, 1, 2).float()
    batches = [(logits[:3], torch.tensor(masks[:3, ..., None])), (logits[3:], torch.tensor(masks[3:, ..., None]))]
    score = segmentation.mean_overlap(torch.nn.Identity(), batches, 3)
    assert score == pytest.approx(np.mean(overlaps), rel=1e-6)


def test_a_unet_keeps_the_size_and_sees_far(segmentation):
    network = segmentation.UNet(4, 3, 5).eval()
    image = torch.randn(1, 3, 32, 40, requires_grad=True)
    logits = network(image)
    assert logits.shape == (1, 5, 32, 40)
    (gradient,) = torch.autograd.grad(logits[0, :, 16, 20].sum(), image)
    rows = gradient[0].abs().sum((0, 2)).nonzero()
    assert int(rows.max() - rows.min()) > 24  # over several levels


def test_images_without_masks_are_refused(segmentation, tmp_path, capsys):
    with pytest.raises(SystemExit):
        segmentation.main(["--images", str(tmp_path)])
    assert "--images and --masks belong together" in capsys.readouterr().err
