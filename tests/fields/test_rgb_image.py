from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from gpubeton import libffcv
from gpubeton.fields import RGBImageField, rgb_image
from gpubeton.fields.jpeg import encode_jpeg
from tests.fields.memory import encode
from tests.golden.make_opencv_writer import picture

PIXELS = picture(60, 90)
FILE = encode_jpeg(PIXELS, 77)


def test_ffcvs_module_of_images_has_its_functions_for_files():
    file, pixels = rgb_image.encode_jpeg(PIXELS, 77), np.empty_like(PIXELS)
    assert file.tobytes() == FILE
    rgb_image.imdecode(file, pixels, 60, 90)
    assert np.array_equal(pixels, decoded(FILE))
    assert (rgb_image.memcpy, rgb_image.resize_crop) == (libffcv.memcpy, libffcv.resize_crop)
    with pytest.raises(AttributeError, match="no attribute 'imencode'"):
        _ = rgb_image.imencode


def kind_of(row):
    return row[["mode", "width", "height"]].item()


def file_of(mode="RGB", kind="JPEG", **options):
    file = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(file, kind, **options)
    return file.getvalue()


def decoded(content):
    return np.asarray(Image.open(io.BytesIO(content)))


PROGRESSIVE, GRAY = file_of(progressive=True), file_of("L")


@pytest.mark.parametrize(
    ("arguments", "value", "expected"),
    [
        ({"write_mode": "raw"}, PIXELS, PIXELS.tobytes()),
        ({"write_mode": "raw"}, Image.fromarray(PIXELS), PIXELS.tobytes()),
        ({"write_mode": "raw"}, FILE, decoded(FILE).tobytes()),
        ({"write_mode": "raw"}, PROGRESSIVE, decoded(PROGRESSIVE).tobytes()),
        ({"write_mode": "jpg", "jpeg_quality": 50}, PIXELS, encode_jpeg(PIXELS, 50)),
        ({"write_mode": "jpg"}, GRAY, GRAY),
        ({"write_mode": "jpg"}, PROGRESSIVE, encode_jpeg(decoded(PROGRESSIVE), 90)),
        ({"write_mode": "jpg"}, file_of(kind="PNG"), encode_jpeg(PIXELS, 90)),
    ],
)
def test_an_image_is_stored_row_by_row_or_as_a_baseline_file(arguments, value, expected):
    row, region = encode(RGBImageField(**arguments), value)
    assert kind_of(row) == (arguments["write_mode"] == "raw", 90, 60)
    assert region == expected


def test_a_jpeg_file_that_fits_is_taken_over_as_it_is(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(FILE)
    for value in (FILE, path, str(path)):
        for limit in (None, 90, 500):
            row, region = encode(RGBImageField("jpg", limit), value)
            assert kind_of(row) == (0, 90, 60)
            assert region == FILE


def test_a_jpeg_file_that_is_too_large_is_reduced_and_encoded():
    row, region = encode(RGBImageField("jpg", 45), FILE)
    assert kind_of(row) == (0, 45, 30)
    reduced = encode(RGBImageField("raw", 45), decoded(FILE))[1]
    assert region == encode_jpeg(np.frombuffer(reduced, np.uint8).reshape(30, 45, 3), 90)


@pytest.mark.parametrize("value", [PIXELS, FILE])
@pytest.mark.parametrize(("threshold", "mode"), [(PIXELS.nbytes, 1), (PIXELS.nbytes - 1, 0), (None, 1)])
def test_smart_compresses_images_strictly_larger_than_the_threshold(value, threshold, mode):
    row, region = encode(RGBImageField("smart", smart_threshold=threshold), value)
    assert row["mode"] == mode
    assert len(region) == PIXELS.nbytes if mode else region[:2] == b"\xff\xd8"


def modes(share, seed, samples=range(400)):
    field = RGBImageField("proportion", compress_probability=share, seed=seed)
    pixels = picture(2, 2)
    return [int(encode(field, pixels, sample)[0]["mode"]) for sample in samples]


def test_a_proportion_depends_on_seed_and_sample_alone_and_of_none_or_all_is_exact():
    drawn = modes(0.25, seed=3)
    assert 60 < drawn.count(0) < 140
    assert modes(0.25, seed=3, samples=range(399, -1, -1)) == drawn[::-1]
    assert modes(0.25, seed=4) != drawn
    assert [set(modes(share, seed=0, samples=range(50))) for share in (0, 1)] == [{1}, {0}]


def test_sides_beyond_16_bits_are_refused_instead_of_cut():
    with pytest.raises(ValueError, match=r"1 x 65536 .*65535; .*max_resolution"):
        encode(RGBImageField("raw"), np.zeros((1, 65536, 3), np.uint8))
    assert kind_of(encode(RGBImageField("raw"), np.zeros((1, 65535, 3), np.uint8))[0]) == (1, 65535, 1)


def test_the_arguments_have_the_order_of_ffcv():
    field = RGBImageField("smart", 256, 1000, 80, 0.25)
    assert (field.write_mode, field.max_resolution, field.smart_threshold) == ("smart", 256, 1000)
    assert (field.jpeg_quality, field.proportion) == (80, 0.25)
