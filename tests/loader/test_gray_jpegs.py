"""JPEGs of one component: decoded by the crop decoder, as in RGB fields, and written as one channel."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from gpubeton.fields import ImageField, RGBImageField
from gpubeton.fields.decoders import (
    ImageDecoder,
    RandomResizedCropImageDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.fields.registry import open_index
from gpubeton.transforms import Cutout, NormalizeImage, RandomErasing, RandomHorizontalFlip, RandomTranslate
from tests.loader.test_image_kinds import SIZE, all_of, make
from tests.small_files import picture, write


@pytest.mark.parametrize("name", ["gray", "rgb"])
def test_jpegs_come_as_pillow_decodes_them(tmp_path, name):
    photos = [picture(number, *SIZE) for number in range(5)]
    samples = [(photo if name == "rgb" else photo[..., 0],) for photo in photos]
    path = write(tmp_path / "jpg.beton", {"image": ImageField(name, "jpg")}, samples)
    (result,) = all_of(make(path, {"image": [ImageDecoder()]}))
    regions = open_index(path)[0].regions("image")
    content = path.read_bytes()
    for number in range(5):
        start = int(regions.offset[number])
        image = Image.open(io.BytesIO(content[start : start + int(regions.size[number])]))
        assert image.mode == ("L" if name == "gray" else "RGB")
        assert np.abs(result[number].squeeze().astype(int) - np.asarray(image)).max() <= (1 if name == "gray" else 3)


def test_gray_jpegs_are_cropped_as_in_an_rgb_field(tmp_path):
    """The same files in both: all that differs is how many channels are written."""

    files = [io.BytesIO() for _ in range(12)]
    for number, file in enumerate(files):
        Image.fromarray(picture(number, 60, 70)[..., 0]).save(file, "JPEG", quality=60 + 3 * number)
    samples = [(file.getvalue(),) for file in files]
    gray_file = write(tmp_path / "gray.beton", {"image": ImageField("gray", "jpg")}, samples)
    other = write(tmp_path / "rgb.beton", {"image": RGBImageField("jpg")}, samples)
    for after in (
        [],
        [RandomHorizontalFlip(), Cutout(4, 77), RandomTranslate(3)],
        [RandomErasing(1, value=5), NormalizeImage(100, 50)],
        [NormalizeImage(100, 50, np.float32)],
    ):
        (gray,) = all_of(make(gray_file, {"image": [RandomResizedCropImageDecoder((20, 24)), *after]}))
        (rgb,) = all_of(make(other, {"image": [RandomResizedCropRGBImageDecoder((20, 24)), *after]}))
        assert gray.shape == (12, 20, 24, 1)
        assert np.array_equal(gray[..., 0], rgb[..., 0])


def test_the_brightness_of_a_color_jpeg_is_taken(tmp_path):
    photos = [(picture(number, 16, 16), picture(number, 16, 16)[..., 0]) for number in range(3)]
    path = write(tmp_path / "two.beton", {"rgb": RGBImageField("jpg"), "gray": ImageField("gray", "jpg")}, photos)
    index = open_index(path)[0]
    row, dtype = index.metadata[:1].copy(), index.metadata.dtype
    row["f1"]["data_ptr"] = row["f0"]["data_ptr"]  # a foreign writer's: nothing forbids it
    with path.open("r+b") as file:
        file.seek(index.header.metadata_offset)
        file.write(row.tobytes())
    assert dtype.names == ("f0", "f1")
    rgb, gray = all_of(make(path, {"rgb": [SimpleRGBImageDecoder()], "gray": [ImageDecoder()]}))
    weighed = rgb[0] @ np.array([0.299, 0.587, 0.114])
    assert np.abs(gray[0, ..., 0] - weighed).max() <= 0.51
