from __future__ import annotations

import numpy as np
import pytest

from gpubeton.errors import FieldTypeError
from gpubeton.fields import FloatField, IntField, RGBImageField
from gpubeton.format import index
from gpubeton.reader import Reader
from tests.fields.test_registry import CaptionField
from tests.golden_files import save, sidecar
from tests.small_files import write


def test_a_reader_has_the_attributes_of_ffcvs(tmp_path):
    path = save("img_raw_fixed", tmp_path)
    reader = Reader(str(path))
    described = sidecar("img_raw_fixed")
    assert reader.file_name == str(path)
    assert (reader.num_samples, reader.num_fields, reader.page_size) == (10, 3, 2 << 20)
    assert reader.field_names == ["label", "image", "score"]
    assert [type(field) for field in reader.handlers.values()] == [IntField, RGBImageField, FloatField]
    assert reader.metadata.dtype == reader.metadata_type
    assert reader.metadata["f0"].tolist() == [sample["label"] for sample in described["samples"]]
    assert [list(row) for row in reader.alloc_table.tolist()] == described["alloc_table"]
    assert np.array_equal(reader.index.allocations, reader.alloc_table)


def test_a_custom_field_needs_its_class(tmp_path):
    path = save("custom", tmp_path)
    with pytest.raises(FieldTypeError):
        Reader(path)
    assert isinstance(Reader(path, {"caption": CaptionField}).handlers["caption"], CaptionField)


def test_a_file_may_be_removed_once_it_was_read(tmp_path):
    path = save("scalars", tmp_path)
    reader = Reader(path)
    path.unlink()
    assert reader.metadata["f0"][1] == 1


def test_a_file_that_is_replaced_while_it_is_opened_is_read_as_it_was(tmp_path, monkeypatch):
    path = write(tmp_path / "numbers.beton", {"a": IntField()}, [(1,)])
    read = index.read_fields

    def replaced_afterwards(source):
        result = read(source)
        write(path, {"b": IntField()}, [(1,), (2,)])
        return result

    monkeypatch.setattr(index, "read_fields", replaced_afterwards)
    reader = Reader(path)
    assert (reader.field_names, reader.num_samples) == (["a"], 1)
    assert Reader(path, {"b": IntField}).field_names == ["b"]
