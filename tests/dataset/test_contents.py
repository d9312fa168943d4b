from __future__ import annotations

import hashlib
import io
import json
import zlib

import numpy as np
import pytest
from PIL import Image

from gpubeton.dataset import Contents, StoredImage, summarize, verify
from gpubeton.dataset.contents import class_name
from gpubeton.errors import BadImageError, NoSuchFieldError, OptionError, StorageError
from gpubeton.fields import BytesField, FloatField, ImageField, IntField, JSONField, RaggedField, RGBImageField
from gpubeton.fields.codecs import PNG
from tests.golden_files import CUSTOM_TYPES, save, sidecar
from tests.small_files import Photos, damage, picture, write, write_photos


@pytest.mark.parametrize("write_mode", ["jpg", "raw"])
def test_values_are_those_that_were_written(write_mode, tmp_path):
    contents = Contents(write_photos(tmp_path / "a.beton", 8, write_mode=write_mode))
    for sample in range(8):
        image, label, weight, note, info, vector = Photos(8)[sample]
        stored = contents.value(sample, "image")
        assert (stored.kind, stored.height, stored.width) == (write_mode, *image.shape[:2])
        difference = np.abs(stored.pixels().astype(int) - image)
        assert difference.mean() < (4 if write_mode == "jpg" else 1e-9)
        assert contents.value(sample, "label") == label
        assert contents.value(sample, "weight") == weight
        assert contents.value(sample, "note") == note.tobytes()
        assert contents.value(sample, "info") == info
        assert np.array_equal(contents.value(sample, "vector"), vector)


def test_values_as_files(tmp_path):
    contents = Contents(write_photos(tmp_path / "a.beton", 3, write_mode="raw"))
    ending, content = contents.to_file(2, "image")
    assert ending == ".png"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(content))), Photos(3)[2][0])
    assert contents.to_file(2, "note") == (".bin", Photos(3)[2][3].tobytes())
    assert contents.to_file(2, "label") == (".txt", b"20")
    assert json.loads(contents.to_file(2, "info")[1]) == {"number": 2}
    ending, content = contents.to_file(2, "vector")
    assert (ending, np.load(io.BytesIO(content)).tolist()) == (".npy", [[2, 2, 2]] * 2)


def test_a_jpeg_file_is_given_as_it_is(tmp_path):
    file = io.BytesIO()
    Image.fromarray(picture(0, 30, 20)).save(file, "JPEG", quality=77)
    contents = Contents(write(tmp_path / "a.beton", {"image": RGBImageField("jpg")}, [(file.getvalue(),)]))
    assert contents.to_file(0, "image") == (".jpg", file.getvalue())
    assert contents.value(0, "image").content == file.getvalue()


def test_arrays_of_varying_length_come_back(tmp_path):
    boxes = np.arange(8, dtype=np.float32).reshape(2, 4)
    contents = Contents(write(tmp_path / "a.beton", {"boxes": RaggedField("<f4", (-1, 4))}, [(boxes,), (boxes[:0],)]))
    assert np.array_equal(contents.value(0, "boxes"), boxes)
    assert contents.value(1, "boxes").shape == (0, 4)


def test_ffcvs_values_come_back(tmp_path):
    contents, described = Contents(save("all_fields", tmp_path)), sidecar("all_fields")
    for sample, values in enumerate(described["samples"]):
        assert contents.value(sample, "label") == values["label"]
        assert contents.value(sample, "weight").hex() == values["weight"]["hex"]
        assert contents.value(sample, "meta") == values["meta"]["json"]
        for name in ("image", "blob", "meta", "vec", "ten"):
            assert hashlib.sha256(contents.stored(sample, name)).hexdigest() == values[name]["stored_sha256"]


@pytest.mark.parametrize(("size", "mode"), [(1, "L"), (2, "I;16"), (3, "RGB"), (4, "RGBA")])
def test_raw_pixels_of_any_kind_become_png_files(size, mode):
    content = bytes(range(12 * size))
    ending, file = StoredImage("raw", 3, 4, content).to_file()
    image = Image.open(io.BytesIO(file))
    assert (ending, image.mode, image.size) == (".png", mode, (4, 3))
    assert np.asarray(image).tobytes() == content


@pytest.mark.parametrize("write_mode", ["raw", "png"])
@pytest.mark.parametrize("mode", ["gray", "gray16", "rgb16", "rgba16", "rgba"])
def test_images_of_other_kinds_come_back_and_are_files_without_loss(mode, write_mode, tmp_path):
    field = ImageField(mode, write_mode)
    shape = (5, 7, field.kind.channels)
    pixels = np.random.default_rng(0).integers(0, field.kind.max_level + 1, shape).astype(field.kind.dtype)
    path = write(tmp_path / "a.beton", {"image": field}, [(pixels,)])
    contents = Contents(path)
    assert np.array_equal(contents.value(0, "image").pixels(), pixels)
    ending, file = contents.to_file(0, "image")
    assert ending == ".png"
    assert np.array_equal(PNG.decode(file, None, None), pixels)
    image = summarize(path).fields[0].image
    assert image.stored == {"jpg": 0, "png": int(write_mode == "png"), "raw": int(write_mode == "raw")}


def test_a_damaged_png_file_is_found(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 1)).astype(np.uint8)
    path = write(tmp_path / "a.beton", {"image": ImageField("gray", "png")}, [(pixels,), (pixels,)])
    assert verify(path).is_sound
    damage(path, 1, at=300, content=b"\0" * 9)
    report = verify(path)
    assert report.bad_samples == [1]
    assert "a PNG file of" in report.findings[0].what


@pytest.mark.parametrize(
    "image", [StoredImage("jpg", 2, 2, b"x"), StoredImage("png", 2, 2, b"x"), StoredImage("raw", 2, 2, b"x")]
)
def test_images_that_cannot_be_decoded_are_bad(image):
    with pytest.raises(BadImageError):
        image.pixels()


def test_missing_samples_fields_and_labels_are_reported(tmp_path):
    contents = Contents(write(tmp_path / "a.beton", {"x": IntField(), "y": FloatField()}, [(1, 2.0)]))
    assert (contents.image_fields, contents.class_names, class_name(5, contents.class_names)) == ([], None, "5")
    assert contents.labels("y") is None
    assert contents.labels() is None
    for sample in (-1, 1):
        with pytest.raises(OptionError, match=f"sample {sample}; .* 0 to 0"):
            contents.value(sample, "x")
    with pytest.raises(NoSuchFieldError):
        contents.value(0, "z")
    assert contents.stored(0, "x") == (1).to_bytes(8, "little")


def test_a_custom_field_gives_its_bytes(tmp_path):
    from gpubeton.fields.base import ArgumentlessField

    class Custom(ArgumentlessField):
        metadata_type = CUSTOM_TYPES["caption"]
        encode = get_decoder_class = None

    contents = Contents(save("custom", tmp_path), {"caption": Custom})
    assert isinstance(contents.value(0, "caption"), bytes)
    assert contents.to_file(0, "caption")[0] == ".bin"


class Packed(JSONField):
    """Stores compressed JSON, without a method that reads it."""

    def encode(self, destination, value, malloc):
        BytesField().encode(destination, zlib.compress(json.dumps(value).encode()), malloc)


class Unpacked(Packed):
    """Knows how to read what `Packed` stores."""

    def read_value(self, row, content):
        return json.loads(zlib.decompress(content))


def test_a_field_that_stores_values_in_another_way_does_not_read_them_as_its_base_class(tmp_path):
    path = write(tmp_path / "a.beton", {"info": Packed()}, [({"legs": 4},)])
    contents = Contents(path, {"info": Packed})
    assert zlib.decompress(contents.value(0, "info")) == b'{"legs": 4}'
    assert contents.to_file(0, "info") == (".bin", contents.value(0, "info"))
    assert verify(path, {"info": Packed}).is_sound


def test_a_custom_field_can_decode_its_values(tmp_path):
    path = write(tmp_path / "a.beton", {"info": Unpacked()}, [({"legs": 4},)])
    contents = Contents(path, {"info": Unpacked})
    assert contents.value(0, "info") == {"legs": 4}
    assert contents.to_file(0, "info") == (".txt", b"{'legs': 4}")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(contents.stored(0, "info"), bytes(len(contents.stored(0, "info")))))
    assert verify(path, {"info": Unpacked}).bad_samples == [0]


def test_a_value_is_not_taken_from_a_file_that_was_replaced_since_the_index_was_read(tmp_path):
    path = write_photos(tmp_path / "a.beton", 3)
    contents = Contents(path)
    write_photos(path, 3)
    with pytest.raises(StorageError, match=r"a.beton: another file"):
        contents.stored(0, "note")
