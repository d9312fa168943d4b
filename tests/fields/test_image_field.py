from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from gpubeton.fields import ImageField
from gpubeton.fields.jpeg import encode_jpeg
from gpubeton.fields.png import decode_png, encode_png
from gpubeton.format.field_arguments import IMAGE_KINDS
from gpubeton.format.layout import ImageMode
from tests.fields.memory import encode

KINDS = list(IMAGE_KINDS.values())
COLORS = np.random.default_rng(0).integers(0, 256, (30, 20, 3), np.uint8)


def noise(kind, height=13, width=17):
    rng = np.random.default_rng(kind.channels)
    return rng.integers(0, kind.max_level + 1, (height, width, kind.channels)).astype(kind.dtype)


def file_of(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def stored_pixels(field, row, region):
    """What a field has stored without loss."""
    kind, size = field.kind, (int(row["height"]), int(row["width"]))
    if row["mode"] == ImageMode.PNG:
        return decode_png(region, kind, size)
    return np.frombuffer(region, kind.dtype).reshape(*size, kind.channels)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("write_mode", ["raw", "png"])
def test_arrays_and_tensors_are_stored_to_the_bit(kind, write_mode):
    pixels, field = noise(kind), ImageField(kind.name, write_mode)
    values = [pixels, pixels[:, ::-1][:, ::-1], pixels.astype(kind.dtype.newbyteorder(">")), torch.from_numpy(pixels)]
    if kind.channels == 1:
        values.append(pixels[..., 0])
    for value in values:
        row, region = encode(field, value)
        assert row[["mode", "width", "height"]].item() == (ImageMode[write_mode.upper()], 17, 13)
        assert np.array_equal(stored_pixels(field, row, region), pixels)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.bits == 8])
def test_images_of_pillow_are_stored_and_converted(kind):
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[kind.channels]
    field = ImageField(kind.name)
    for image in (
        Image.fromarray(COLORS),
        Image.fromarray(COLORS).convert("L"),
        Image.fromarray(COLORS).convert("RGBA"),
    ):
        pixels = stored_pixels(field, *encode(field, image))
        assert np.array_equal(pixels.squeeze(), np.asarray(image.convert(mode)))


@pytest.mark.parametrize("mode", ["I;16", "I"])
def test_images_of_16_bits_keep_every_bit(mode):
    levels = np.random.default_rng(0).integers(0, 65536, (9, 8)).astype("u2")
    image = Image.fromarray(levels) if mode == "I;16" else Image.fromarray(levels.astype("i4"))
    assert image.mode == mode
    field = ImageField("gray16")
    for value in (image, file_of(Image.fromarray(levels), "PNG"), file_of(Image.fromarray(levels), "TIFF")):
        assert np.array_equal(stored_pixels(field, *encode(field, value))[..., 0], levels)


@pytest.mark.parametrize("name", ["rgb16", "rgba16"])
def test_colors_of_16_bits_are_read_from_png_files(name):
    pixels, field = noise(IMAGE_KINDS[name]), ImageField(name)
    assert np.array_equal(stored_pixels(field, *encode(field, encode_png(pixels))), pixels)


def test_files_that_fit_are_taken_over_as_they_are(tmp_path):
    gray = file_of(Image.fromarray(COLORS).convert("L"), "JPEG", quality=70)
    for field in (ImageField("gray", "jpg"), ImageField("rgb", "jpg"), ImageField("gray", "jpg", max_resolution=30)):
        row, region = encode(field, gray)
        assert (row["mode"], region) == (ImageMode.JPG, gray)
    color = encode_jpeg(COLORS, 80)
    assert encode(ImageField("rgb", "jpg"), color)[1] == color
    for kind in KINDS:
        content = encode_png(noise(kind), 1)
        path = tmp_path / "image.png"
        path.write_bytes(content)
        row, region = encode(ImageField(kind.name, "png"), path)
        assert (row["mode"], region) == (ImageMode.PNG, content)


def test_files_that_do_not_fit_are_encoded_again():
    color = encode_jpeg(COLORS, 80)
    row, region = encode(ImageField("gray", "jpg"), color)
    image = Image.open(io.BytesIO(region))
    assert (row["mode"], image.mode, image.size) == (ImageMode.JPG, "L", (20, 30))
    row, region = encode(ImageField("gray", "jpg", max_resolution=15), file_of(Image.fromarray(COLORS[..., 0])))
    assert Image.open(io.BytesIO(region)).size == (10, 15)
    interlaced_like = file_of(Image.fromarray(COLORS), "PNG", transparency=(1, 2, 3))
    field = ImageField("rgb", "png")
    assert np.array_equal(stored_pixels(field, *encode(field, interlaced_like)), COLORS)


def test_smart_and_proportion_choose_between_files_and_pixels():
    pixels = noise(IMAGE_KINDS["rgba16"])
    assert encode(ImageField("rgba16", "smart", smart_threshold=pixels.nbytes), pixels)[0]["mode"] == ImageMode.RAW
    assert encode(ImageField("rgba16", "smart", smart_threshold=pixels.nbytes - 1), pixels)[0]["mode"] == ImageMode.PNG
    assert encode(ImageField("gray", "smart", smart_threshold=10), COLORS[..., 0])[0]["mode"] == ImageMode.JPG
    field = ImageField("gray16", "proportion", compress_probability=0.3, seed=4)
    modes = [int(encode(field, noise(field.kind, 2, 2), sample)[0]["mode"]) for sample in range(300)]
    assert 60 < modes.count(ImageMode.PNG) < 120
    assert modes == [int(encode(field, noise(field.kind, 2, 2), sample)[0]["mode"]) for sample in range(300)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_larger_images_are_averaged(kind):
    pixels, field = noise(kind, 60, 40), ImageField(kind.name, max_resolution=30)
    row, region = encode(field, pixels)
    means = pixels.astype(np.float64).reshape(30, 2, 20, 2, kind.channels)
    if kind.has_alpha:
        weighted = means[..., :3] * means[..., 3:]
        alpha = means[..., 3:].mean(axis=(1, 3))
        colors = weighted.mean(axis=(1, 3)) / alpha
        expected = np.concatenate([colors, alpha], axis=2)
    else:
        expected = means.mean(axis=(1, 3))
    # Single precision has 24 bits.
    assert np.abs(stored_pixels(field, row, region) - expected).max() <= 0.5 + kind.max_level / 2**22


def test_larger_masks_keep_their_labels():
    mask = np.random.default_rng(0).choice(np.array([0, 7, 200], np.uint8), (61, 47))
    field = ImageField("gray", "png", max_resolution=20, interpolation="nearest")
    small = stored_pixels(field, *encode(field, mask))[..., 0]
    expected = np.asarray(Image.fromarray(mask).resize((15, 20), Image.Resampling.NEAREST))
    assert np.array_equal(small, expected)
