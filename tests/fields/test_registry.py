from __future__ import annotations

import numpy as np
import pytest

from gpubeton.errors import FieldArgumentsError, FieldTypeError, FormatError
from gpubeton.fields import BytesField, IntField, NDArrayField, RGBImageField
from gpubeton.fields.decoders import IntDecoder, NDArrayDecoder, SimpleRGBImageDecoder
from gpubeton.fields.registry import open_index, type_id_of
from gpubeton.format import FieldType
from tests.golden_files import NAMES, content, save, sidecar


class CaptionField(NDArrayField):
    """A user's field, derived from one of the library's own as FFCV's documentation does it."""

    def __init__(self):
        super().__init__(np.dtype("u1"), (40,))

    @classmethod
    def from_binary(cls, _):
        return cls()


class BrokenField(CaptionField):
    @classmethod
    def from_binary(cls, _):
        raise RuntimeError("not today")


@pytest.mark.parametrize("name", NAMES)
def test_each_field_of_ffcv_becomes_one_that_describes_itself_alike(name, tmp_path):
    index, fields = open_index(save(name, tmp_path), {"caption": CaptionField})
    assert tuple(fields) == index.names
    for descriptor, field in zip(index.descriptors, fields.values(), strict=True):
        assert field.to_binary().tobytes() == descriptor.arguments
        assert field.metadata_type == index.column(descriptor.name).dtype
        expected = sidecar(name)["fields"][index.names.index(descriptor.name)]["type_id"]
        if expected != FieldType.TORCH_TENSOR:  # read back as an array field, as in FFCV
            assert type_id_of(field) == expected


def test_every_field_gives_its_decoder(tmp_path):
    _, fields = open_index(save("all_fields", tmp_path))
    decoders = {name: field.get_decoder_class() for name, field in fields.items()}
    assert decoders["image"] is SimpleRGBImageDecoder
    assert decoders["label"] is IntDecoder
    assert decoders["vec"] is decoders["ten"] is NDArrayDecoder


def test_a_derived_class_is_custom_and_without_arguments_reads_itself_back():
    assert type_id_of(CaptionField()) == FieldType.CUSTOM
    assert type_id_of(type("MyBytes", (BytesField,), {})()) == FieldType.CUSTOM
    derived = type("MyInt", (IntField,), {})
    assert type(derived.from_binary(np.zeros(1024, np.uint8))) is derived


@pytest.mark.parametrize("custom", [CaptionField, CaptionField()])
def test_a_custom_field_may_be_given_as_class_or_instance(custom, tmp_path):
    index, fields = open_index(save("custom", tmp_path), {"caption": custom, "not there": CaptionField})
    assert isinstance(fields["caption"], CaptionField)
    assert index.regions("caption").size.tolist() == [40] * 10
    mine = type("MyImage", (RGBImageField,), {})
    _, fields = open_index(save("img_raw_var", tmp_path), {"image": mine})
    assert type(fields["image"]) is mine


def test_a_missing_class_and_one_that_cannot_read_its_arguments_are_named(tmp_path):
    path = save("custom", tmp_path)
    with pytest.raises(FieldTypeError, match="custom_fields="):
        open_index(path)
    with pytest.raises(FieldArgumentsError, match=r"'caption'.*not today.*BrokenField"):
        open_index(path, {"caption": BrokenField})


def test_a_damaged_shape_is_a_format_error_for_all_readers(tmp_path):
    path = tmp_path / "damaged.beton"
    file = bytearray(content("ndarray_big"))
    file[24 + 17 + 256] = 0
    path.write_bytes(file)
    with pytest.raises(FormatError, match="field 'x'"):
        open_index(path)
