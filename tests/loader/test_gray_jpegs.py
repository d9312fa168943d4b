"""JPEGs of one component: decoded by the crop decoder, as in RGB fields, and written as one channel."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from gpubeton.fields import ImageField, IntField, RGBImageField
from gpubeton.fields.decoders import (
    ImageDecoder,
    RandomResizedCropImageDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.fields.registry import open_index
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import Cutout, NormalizeImage, RandomErasing, RandomHorizontalFlip, RandomTranslate
from tests.loader.test_image_kinds import SIZE, all_of, make
from tests.small_files import picture, write


@pytest.mark.parametrize("name", ["gray", "rgb"])
def test_jpegs_come_as_pillow_decodes_them(tmp_path, name):
    class Gray:
        def __len__(self):
            return 5

        def __getitem__(self, number):
            photo = picture(number, *SIZE)
            return photo if name == "rgb" else photo[..., 0], number

    path = write(tmp_path / "jpg.beton", {"image": ImageField(name, "jpg"), "label": IntField()}, Gray())
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

    class Files:
        def __len__(self):
            return 12

        def __getitem__(self, number):
            file, image = io.BytesIO(), Image.fromarray(picture(number, 60, 70)[..., 0])
            image.save(file, "JPEG", quality=60 + 3 * number)
            return file.getvalue(), number

    gray_file = write(tmp_path / "gray.beton", {"image": ImageField("gray", "jpg"), "label": IntField()}, Files())
    other = write(tmp_path / "rgb.beton", {"image": RGBImageField("jpg"), "label": IntField()}, Files())
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
    class Photos:
        def __len__(self):
            return 3

        def __getitem__(self, number):
            return picture(number, 16, 16), picture(number, 16, 16)[..., 0]

    path = write(tmp_path / "two.beton", {"rgb": RGBImageField("jpg"), "gray": ImageField("gray", "jpg")}, Photos())
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


def test_two_views_of_a_gray_jpeg_equal_each_alone(tmp_path):
    class Gray:
        def __len__(self):
            return 6

        def __getitem__(self, number):
            return picture(number, 50, 60)[..., 0], number

    path = write(tmp_path / "views.beton", {"image": ImageField("gray", "jpg"), "label": IntField()}, Gray())
    operations = [RandomResizedCropImageDecoder((20, 24)), RandomHorizontalFlip(), NormalizeImage(100, 50)]
    other = PipelineSpec("image", RandomResizedCropImageDecoder((14, 10)), [Cutout(3, 9)])
    both = all_of(make(path, {"image": operations, "small": other}))
    assert np.array_equal(both[0], all_of(make(path, {"image": operations}))[0])
    assert np.array_equal(both[1], all_of(make(path, {"image": None, "small": other}))[0])
