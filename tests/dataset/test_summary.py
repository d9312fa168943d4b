from __future__ import annotations

import io
import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gpubeton.dataset import index_images, summarize
from gpubeton.dataset.summary import spread_of
from gpubeton.errors import OptionError
from gpubeton.fields import FloatField, IntField, NDArrayField, RGBImageField
from gpubeton.fields.base import Malloc
from tests.golden_files import NAMES, save
from tests.small_files import picture, write, write_photos


def progressive(number):
    file = io.BytesIO()
    Image.fromarray(picture(number, 24, 32)).save(file, "JPEG", progressive=True, subsampling="4:4:4")
    return file.getvalue()


class TakenOver(RGBImageField):
    """Takes JPEG files of any kind over as they are, to have some in a file."""

    def encode(self, destination, value: bytes, malloc: Malloc) -> None:
        destination["mode"], destination["height"], destination["width"] = 0, 24, 32
        destination["data_ptr"], region = malloc(len(value))
        region[:] = np.frombuffer(value, np.uint8)


def test_a_summary_describes_the_written_values(tmp_path):
    path = write_photos(tmp_path / "a.beton", 12, size=(40, 60))
    summary = summarize(path)
    assert (summary.samples, summary.pages, summary.page_size) == (12, 1, 1 << 21)
    assert summary.bytes == path.stat().st_size
    fields = {field.name: field for field in summary.fields}
    assert [field.type for field in summary.fields] == [
        "RGBImageField", "IntField", "FloatField", "BytesField", "JSONField", "NDArrayField",
    ]  # fmt: skip
    image = fields["image"].image
    assert (image.stored["jpg"], image.stored["raw"], image.most_common) == (12, 0, [(40, 60, 12)])
    assert (image.kinds["baseline"], image.samplings) == (12, {"4:2:0": 12})
    assert image.routes == {"hardware": 12, "cpu": 0}
    assert fields["label"].counts == {number * 10: 1 for number in range(12)}
    assert (fields["weight"].values.minimum, fields["weight"].values.maximum) == (0, 2.75)
    assert fields["vector"].bytes.mean == 24
    used = sum(12 * field.bytes.mean for field in summary.fields if field.bytes)
    assert summary.page_use == pytest.approx(used / (1 << 21))
    json.dumps(asdict(summary))


def test_jpeg_files_that_the_engines_do_not_take_are_counted(tmp_path):
    write(tmp_path / "a.beton", {"image": TakenOver()}, [(progressive(number),) for number in range(3)])
    image = summarize(tmp_path / "a.beton", {"image": RGBImageField}).fields[0].image
    assert (image.kinds["elaborate"], image.samplings) == (3, {"4:4:4": 3})
    assert image.routes == {"hardware": 0, "cpu": 3}


def test_no_more_jpeg_files_are_looked_at_than_asked(tmp_path):
    path = write_photos(tmp_path / "a.beton", 12)
    assert summarize(path, look_at=5).fields[0].image.looked_at == 5
    assert summarize(path, look_at=None).fields[0].image.looked_at == 12
    with pytest.raises(OptionError, match="look_at is 0"):
        summarize(path, look_at=0)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "custom"])
def test_ffcvs_files_are_summarized(name, tmp_path):
    summary = summarize(save(name, tmp_path))
    assert 0 <= summary.page_use <= 1
    assert not summary.has_checksums
    for field in summary.fields:
        if field.image is not None:
            assert sum(field.image.routes.values()) == field.image.stored["jpg"]


def test_files_without_pages_have_none(tmp_path):
    summary = summarize(write(tmp_path / "a.beton", {"x": IntField(), "y": FloatField()}, [(1, 2.0)]))
    assert (summary.pages, summary.page_use) == (0, 0)


def test_raw_images_are_counted(tmp_path):
    path = write(tmp_path / "a.beton", {"image": RGBImageField(), "a": NDArrayField(np.dtype("u1"), (3,))}, [
        (picture(0, 8, 9), np.zeros(3, np.uint8)),
    ])  # fmt: skip
    image = summarize(path).fields[0].image
    assert (image.stored, image.looked_at) == ({"jpg": 0, "png": 0, "raw": 1}, 0)


def test_few_whole_numbers_have_a_bin_each():
    spread = spread_of(np.array([3, 5, 5, 6], np.uint16))
    assert (spread.edges, spread.counts) == ([3, 4, 5, 6, 7], [1, 0, 2, 1])


def test_numbers_that_are_not_finite_are_counted_apart(tmp_path):
    path = write(tmp_path / "a.beton", {"x": FloatField(), "y": FloatField()}, [(1.0, np.nan), (np.inf, np.nan)])
    x, y = summarize(path).fields
    assert (x.not_finite, x.values.counts, y.not_finite, y.values) == (1, [1], 2, None)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_every_number_is_in_a_bin_however_large(values):
    spread = spread_of(np.array(values))
    assert sum(spread.counts) == len(values)
    assert spread.minimum <= spread.mean <= spread.maximum


def test_entry_points_are_counted_and_their_faults_reported(tmp_path):
    path = write_photos(tmp_path / "a.beton", 6)
    assert summarize(path).fields[0].image.indexed == 0
    done = index_images(path)
    image = summarize(path).fields[0].image
    assert (image.indexed, image.entry_bytes) == (6, done.bytes)
    assert image.entry_points == (done.bytes - 6 * 4 - 7 * 8) // 10
    done.path.write_bytes(b"damaged")
    summary = summarize(path)
    assert summary.fields[0].image.indexed == 0
    assert len(summary.index_faults) == 1
