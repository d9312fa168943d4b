from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton.dataset import index_shards
from gpubeton.errors import FieldMismatchError, OptionError
from gpubeton.fields import BytesField, IntField, NDArrayField
from gpubeton.fields.registry import open_index
from gpubeton.format.data_files import MAX_FILE_SIZE, MAX_FILES, find_file, first_offset, split_offsets
from gpubeton.format.dataset import join, list_files, list_paths, open_dataset, renew_fingerprint
from gpubeton.format.header import read_header
from tests.golden_files import CUSTOM_TYPES, NAMES, save
from tests.small_files import write


@given(st.lists(st.tuples(st.integers(0, MAX_FILES - 1), st.integers(0, MAX_FILE_SIZE)), max_size=20))
def test_a_place_is_a_file_and_an_offset_and_sorts_as_they_do(pairs):
    places = np.array([int(first_offset(file)) + offset for file, offset in pairs], np.uint64)
    files, offsets = split_offsets(places)
    assert list(zip(files.tolist(), offsets.tolist(), strict=True)) == pairs
    assert np.argsort(places, kind="stable").tolist() == sorted(range(len(pairs)), key=lambda at: pairs[at])
    assert (places.astype(np.int64) >= 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_joined_with_itself_has_each_region_twice_once_in_either_file(name, tmp_path):
    part = open_dataset(save(name, tmp_path), CUSTOM_TYPES)
    whole = join([part, part])
    assert (whole.num_samples, whole.names, whole.file_size) == (2 * part.num_samples, part.names, 2 * part.file_size)
    for field in part.names:
        assert whole.has_regions(field) == part.has_regions(field)
        if part.has_regions(field):
            regions, both = part.regions(field), whole.regions(field)
            files, offsets = split_offsets(both.offset)
            assert files.tolist() == [0] * part.num_samples + [1] * part.num_samples
            assert offsets.tolist() == regions.offset.tolist() * 2
            assert both.size.tolist() == regions.size.tolist() * 2
    table = whole.allocations
    assert np.all(table["ptr"][:-1] <= table["ptr"][1:])
    assert table["size"].tolist() == part.allocations["size"].tolist() * 2
    samples = part.allocations["sample_id"].tolist()
    assert table["sample_id"].tolist() == samples + [sample + part.num_samples for sample in samples]


@pytest.mark.parametrize("name", ["all_fields", "custom", "img_jpg_fixed", "ndarrays"])
def test_pointers_in_the_metadata_are_those_of_the_regions(name, tmp_path):
    part = open_dataset(save(name, tmp_path), CUSTOM_TYPES)
    whole = join([part, part, part])
    for field in part.names:
        column = whole.column(field)
        if not part.has_regions(field):
            assert column.tolist() == part.column(field).tolist() * 3
            continue
        pointer = column
        if column.dtype.names is not None:
            (pointer_name,) = {"ptr", "data_ptr"} & set(column.dtype.names)
            pointer = column[pointer_name]
            for rest in set(column.dtype.names) - {pointer_name}:
                assert column[rest].tolist() == part.column(field)[rest].tolist() * 3
        solid = whole.regions(field).size > 0
        assert solid.any()
        assert pointer[solid].tolist() == whole.regions(field).offset[solid].tolist()


def test_a_dataset_of_torchvision_is_answered_with_its_folder():
    with pytest.raises(OptionError, match=r"Of an ImageFolder, that is 'photos/train'"):
        open_dataset(SimpleNamespace(root="photos/train"))


def test_samples_are_found_in_their_files_and_pages_are_numbered_through(tmp_path):
    values = [(np.full(1_500_000, number, np.uint8),) for number in range(4)]
    field = {"bytes": BytesField()}
    small = write(tmp_path / "small.beton", field, values[:3])
    large = write(tmp_path / "large.beton", field, values, page_size=1 << 23)
    whole = open_index([small, large, small])[0]
    assert [file.first_sample for file in whole.files] == [0, 3, 7]
    assert [find_file(whole.files, sample).path for sample in (0, 2, 3, 6, 7, 9)] == [str(small)] * 2 + [
        str(large)
    ] * 2 + [str(small)] * 2
    assert whole.origin(5) == f"sample 2 of {large}"
    assert open_index(small)[0].origin(2) == ""
    for wrong in (-1, 10):
        with pytest.raises(IndexError, match="expected 0 to 9"):
            find_file(whole.files, wrong)
    # The table of a small file begins in its fifth page, that of the large one in its third.
    assert whole.page_runs().to_array().tolist() == [1, 2, 3, 6, 6, 6, 6, 9, 10, 11]
    assert whole.title == f"{small} and 2 more"


def test_fields_in_another_order_are_put_into_that_of_the_first_file(tmp_path):
    single = write(tmp_path / "one.beton", {"a": IntField(), "b": BytesField()}, [(1, np.ones(3, np.uint8))])
    two = write(tmp_path / "two.beton", {"b": BytesField(), "a": IntField()}, [(np.ones(5, np.uint8), 2)])
    whole = open_index([single, two])[0]
    assert whole.names == ("a", "b")
    assert whole.column("a").tolist() == [1, 2]
    assert whole.regions("b").size.tolist() == [3, 5]


def test_pointers_of_empty_values_point_nowhere_in_any_of_the_files(tmp_path):
    values = [(np.ones(5, np.uint8),), (np.zeros(0, np.uint8),), (np.ones(7, np.uint8),)]
    plain = write(tmp_path / "plain.beton", {"bytes": BytesField()}, values)
    odd = tmp_path / "odd.beton"
    odd.write_bytes(plain.read_bytes())
    with odd.open("r+b") as file:
        file.seek(read_header(odd).metadata_offset + 16)  # after a pointer and a size
        file.write((12345).to_bytes(8, "little"))
    part = open_dataset(plain).regions("bytes")
    for paths in ([plain, odd, plain], [odd, plain]):
        files, offsets = split_offsets(open_index(paths)[0].regions("bytes").offset)
        assert files.tolist() == [number for number in range(len(paths)) for _ in range(3)]
        assert offsets.tolist() == part.offset.tolist() * len(paths)
        joined = open_index(paths)[0]  # its states are of no index of containers
        assert [renew_fingerprint(joined, text) for text in (joined.fingerprint, "other")] == [
            joined.fingerprint,
            "other",
        ]


ARRAY = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("fields", "sample", "message"),
    [
        ({"label": IntField()}, (1,), r"field 'array' is in .*first.beton, but not in .*other.beton.*'label'"),
        (
            {"label": IntField(), "array": NDArrayField(np.float32, (2, 3)), "more": IntField()},
            (1, ARRAY, 1),
            r"field 'more' is in .*other.beton, but not in .*first.beton.*'label', 'array'",
        ),
        (
            {"label": IntField(), "array": NDArrayField(np.float32, (3, 2))},
            (1, ARRAY.T.copy()),
            r"field 'array' is of shape \(2, 3\) and float32 .*in the first and of shape \(3, 2\)",
        ),
        (
            {"label": IntField(), "array": BytesField()},
            (1, np.zeros(3, np.uint8)),
            r"field 'array' is of shape .*NDARRAY\) in the first and a field of type 3 \(BYTES\) in the second",
        ),
    ],
)
def test_files_with_different_fields_are_refused_with_both_names_and_the_field(fields, sample, message, tmp_path):
    first = write(
        tmp_path / "first.beton", {"label": IntField(), "array": NDArrayField(np.float32, (2, 3))}, [(1, ARRAY)]
    )
    other = write(tmp_path / "other.beton", fields, [sample])
    with pytest.raises(FieldMismatchError, match=f"first.beton .*other.beton .*{message}"):
        open_index([first, first, other])


def test_the_same_kind_of_field_with_other_arguments_is_refused(tmp_path):
    from gpubeton.fields import RaggedField

    first = write(tmp_path / "first.beton", {"boxes": BytesField()}, [(np.zeros(16, np.uint8),)])
    other = write(
        tmp_path / "other.beton", {"boxes": RaggedField(np.float32, (-1, 4))}, [(np.zeros((1, 4), np.float32),)]
    )
    with pytest.raises(FieldMismatchError, match=r"field 'boxes' .* byte [0-9]+ "):
        open_index([first, other])


@pytest.mark.parametrize("wrong", [[], None, 5, b"x", ["a", 5], iter(["a"])])
def test_a_value_other_than_a_list_of_files_is_refused(wrong):
    with pytest.raises(OptionError, match="expected"):
        list_paths(wrong)


def test_a_pattern_with_braces_means_several_files(tmp_path):
    for number in range(9, 12):
        write(tmp_path / f"{number:02}.beton", {"label": IntField()}, [(number,)])
    index = open_dataset(tmp_path / "{09..11}.beton")
    assert index.column("label").tolist() == [9, 10, 11]
    assert open_dataset([f"{tmp_path}/{{11,09}}.beton", tmp_path / "10.beton"]).column("label").tolist() == [11, 9, 10]
    assert list_paths("s3://bucket/{0..2}.beton") == tuple(f"s3://bucket/{number}.beton" for number in range(3))


def test_other_braces_and_wildcards_are_parts_of_the_name_of_one_file(tmp_path):
    assert list_paths("*.beton") == ("*.beton",)
    assert list_paths([tmp_path / "a", "b"]) == (str(tmp_path / "a"), "b")
    path = write(tmp_path / "{a,b}.beton", {"label": IntField()}, [(7,)])
    assert open_dataset(path).column("label").tolist() == [7]
    assert list_paths("s3://bucket/{a}/x.beton") == ("s3://bucket/{a}/x.beton",)


def test_a_manifest_means_its_folder(tmp_path, monkeypatch):
    for number in range(2):
        write(tmp_path / f"{number}.beton", {"label": IntField()}, [(number,)])
    with pytest.raises(FileNotFoundError, match=r"index\.json"):
        open_dataset(tmp_path / "index.json")
    index_shards(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in (tmp_path / "index.json", "index.json"):
        assert open_dataset(name).column("label").tolist() == [0, 1]
    assert list_files("index.json") == ("0.beton", "1.beton")
