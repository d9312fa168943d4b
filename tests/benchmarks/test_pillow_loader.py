from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks.harness.pillow_loader import MEAN, STD, PillowDataset, collate, random_crop


def save(path, color):
    Image.new("RGB", (64, 48), color).save(path)
    return path


@pytest.mark.parametrize("size", [(64, 48), (1, 500), (500, 1), (3, 2)])
def test_crops_lie_inside_the_image(size):
    torch.manual_seed(0)
    for _ in range(50):
        left, top, width, height = random_crop(*size)
        assert width >= 1
        assert height >= 1
        assert 0 <= left <= left + width <= size[0]
        assert 0 <= top <= top + height <= size[1]


def test_an_image_is_normalized_by_imagenets_mean_and_deviation_and_a_cutout_has_the_mean_color(tmp_path):
    dataset = PillowDataset([(save(tmp_path / "a.png", (255, 0, 51)), 3)], size=20)
    pixels, label = dataset[0]
    expected = (np.array([1, 0, 0.2]) - MEAN) / STD
    np.testing.assert_allclose(pixels.numpy(), np.broadcast_to(expected[:, None, None], (3, 20, 20)), atol=1e-6)
    assert (label, len(dataset)) == (3, 1)
    cut, _ = PillowDataset([(tmp_path / "a.png", 0)], size=20, cutout=6)[0]
    assert (cut == 0).sum().item() == 3 * 6 * 6


def test_images_are_cropped_and_mirrored(tmp_path):
    ramp = np.broadcast_to(np.arange(64, dtype=np.uint8)[None, :, None] * 4, (48, 64, 3))
    Image.fromarray(np.ascontiguousarray(ramp)).save(tmp_path / "ramp.png")
    dataset = PillowDataset([(tmp_path / "ramp.png", 0)], size=20)
    torch.manual_seed(0)
    rises = [(pixels[0, 10, -1] - pixels[0, 10, 0]).item() for pixels, _ in (dataset[0] for _ in range(20))]
    assert min(rises) < 0 < max(rises), "none is mirrored, or all are"
    assert max(map(abs, rises)) > 1.5 * min(map(abs, rises)), "all show the same width"


def test_batches_are_float16_channels_last():
    images, labels = collate([(torch.zeros(3, 4, 5), 1), (torch.ones(3, 4, 5), 2)])
    assert images.dtype is torch.float16
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert labels.tolist() == [1, 2]
