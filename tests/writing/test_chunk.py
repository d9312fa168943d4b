from __future__ import annotations

import zlib
from tempfile import NamedTemporaryFile
from types import SimpleNamespace

import numpy as np
import pytest

from gpubeton._writing import ChunkPlace, Job, Task, TaskQueue, open_encoders
from gpubeton.errors import RegionTooLargeError, SampleError
from gpubeton.fields import BytesField, IntField
from gpubeton.fields.base import ARG_TYPE, Field
from gpubeton.format.layout import metadata_dtype

FIELDS = {"blob": BytesField(), "label": IntField()}
PAGE, METADATA = 1 << 21, 1000


def encode(dataset, fields=FIELDS, indices=None, first_row=0, offset=None, *, skip=False):
    """Encode rows as one chunk, whose samples go to `offset`; give the sizes, the rows and the bytes of the file."""
    rows, results = [*[None] * first_row, *(indices or range(len(dataset)))], []

    def place(_, regions):
        results.append(regions)
        return ChunkPlace(0, np.array([0] * len(regions.counts) if offset is None else offset, np.uint64))

    with NamedTemporaryFile() as file:
        job = Job(dataset, rows, fields, PAGE, METADATA, file.name, skip=skip, checksums=True)
        with open_encoders(job, 1, None) as encoder:
            encoder.run(TaskQueue([[Task(first_row, len(rows))]]), place, lambda _: None)
        content = file.read()
    row = metadata_dtype([field.metadata_type for field in fields.values()])
    metadata = np.frombuffer(content, row, len(results[0].counts), METADATA)
    return SimpleNamespace(regions=results[0], metadata=metadata, content=content)


def has(chunk, placed):
    """Whether the regions lie at their offsets."""
    return all(chunk.content[offset : offset + len(region)] == region for offset, region in placed.items())


def test_pointers_become_offsets_once_samples_are_placed():
    chunk = encode([(b"abc", 7), (b"", 8), (b"de", 9)], offset=[100, 103, 200])
    assert chunk.regions.sizes.tolist() == [3, 0, 2]
    assert has(chunk, {100: b"abc", 200: b"de"})
    assert chunk.metadata["f0"].tolist() == [(100, 3), (103, 0), (200, 2)]
    assert chunk.metadata["f1"].tolist() == [7, 8, 9]


class ManyField(Field):
    """Several regions, pointed to from inside a struct: also into a region and to its end."""

    metadata_type = np.dtype([("count", "<u2"), ("starts", "<u8", (2,)), ("inside", "<i8"), ("end", "<u8")])
    from_binary = staticmethod(lambda _: ManyField())
    get_decoder_class = None

    def to_binary(self):
        return np.zeros(1, ARG_TYPE)[0]

    def encode(self, destination, value, malloc):
        destination["count"] = len(value)
        for number, part in enumerate(value):
            pointer, region = malloc(len(part))
            assert not region.any()
            region[:] = np.frombuffer(part, np.uint8)
            destination["starts"][0, number] = pointer
        destination["inside"] = pointer + 1
        destination["end"] = pointer + len(part)


def test_all_pointers_of_a_users_field_are_found():
    fields = {"a": ManyField(), "b": ManyField()}
    chunk = encode([((b"abc", b"de"), (b"f",)), ((b"g", b"hi"), (b"jk", b"l"))], fields, offset=[100, 500])
    assert has(chunk, {100: b"abcdef", 500: b"ghijkl"})
    for column, starts, ends in [
        ("f0", [[100, 103], [500, 501]], [105, 503]),
        ("f1", [[105, 0], [503, 505]], [106, 506]),
    ]:
        assert chunk.metadata[column]["starts"].tolist() == starts
        assert chunk.metadata[column]["end"].tolist() == ends
    assert chunk.metadata["f0"]["inside"].tolist() == [104, 502]


def test_an_integer_that_looks_like_a_pointer_is_not_changed():
    lookalike = 0x7BE7 << 48
    chunk = encode([(b"abc", lookalike)], offset=[100])
    assert chunk.metadata["f1"].tolist() == [lookalike]


def test_a_pointer_of_another_sample_is_a_number_like_any_other():
    seen = []

    class Nosy(BytesField):
        def encode(self, destination, value, malloc):
            pointer, _ = malloc(1)
            seen.append(pointer)
            destination["ptr"], destination["size"] = seen[0], 1

    chunk = encode([(0,), (0,)], {"x": Nosy()}, offset=[100, 200])
    assert chunk.metadata["f0"]["ptr"].tolist() == [100, seen[0]]


def test_samples_may_be_mappings_arrays_of_one_number_per_field_or_longer_tuples_as_in_ffcv():
    assert encode([{"label": 3, "blob": b"a", "more": None}]).metadata["f1"].tolist() == [3]
    assert encode([(b"a", 1, "more")]).metadata["f1"].tolist() == [1]
    chunk = encode(np.array([[1, 2], [3, 4]]), {"x": IntField(), "y": IntField()})
    assert chunk.metadata["f1"].tolist() == [2, 4]


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ((b"a",), "1 values for 2 fields; expected one each for 'blob', 'label'"),
        ({"label": 3}, "a mapping without 'blob'"),
        ("abc", "a str, expected a tuple of 2 values for 'blob', 'label'"),
        (3, "a int, expected a tuple"),
    ],
)
def test_samples_that_do_not_match_the_fields_are_named(sample, message):
    with pytest.raises(SampleError, match=rf"sample 0 \(row 10 .*\): {message}") as caught:
        encode([sample], first_row=10)
    assert caught.value.sample == 0


def test_a_dataset_that_raises_is_named_with_the_index_that_it_was_asked_for():
    with pytest.raises(SampleError, match=r"sample 5 \(row 11 .*KeyError: 5") as caught:
        encode({3: (b"a", 1)}, indices=[3, 5], first_row=10)
    assert caught.value.sample == 5
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_value_that_its_field_refuses_is_named_with_the_field():
    with pytest.raises(SampleError, match=r"sample 1 .*field 'label': OverflowError: .*too (large|big)"):
        encode([(b"a", 1), (b"a", 2**63)])


@pytest.mark.parametrize(
    ("size", "advice"),
    [
        (PAGE + 1, rf"{PAGE + 1} bytes, but a page has {PAGE}\. Use page_size={2 * PAGE}\."),
        (2 * PAGE, rf"page_size={2 * PAGE}\."),
        (5 * PAGE, "page_size=16777216"),
    ],
)
def test_a_sample_larger_than_a_page_names_the_page_that_would_do(size, advice):
    with pytest.raises(RegionTooLargeError, match=rf"sample 1 .*{advice}") as caught:
        encode([(b"", 0), (bytes(size), 1)])
    assert caught.value.sample == 1


def test_a_sample_of_exactly_one_page_is_accepted_and_one_that_no_page_can_hold_is_to_be_split():
    class Huge(BytesField):
        def encode(self, destination, value, malloc):
            malloc(3 << 30)

    assert encode([(bytes(PAGE), 0)]).regions.sizes.tolist() == [PAGE]
    with pytest.raises(RegionTooLargeError, match="split the sample"):
        encode([(0,)], {"x": Huge()})


def test_a_sample_that_is_left_out_leaves_no_bytes():
    samples = [(b"abc", 7), (b"lost", "no number"), 5, (b"de", 9)]
    chunk = encode(samples, FIELDS, range(4), 10, [100, 103], skip=True)
    assert [sample.row for sample in chunk.regions.skipped] == [11, 12]
    assert "sample 1 (row 11 of the file), field 'label': " in chunk.regions.skipped[0].reason
    assert (chunk.regions.counts.tolist(), chunk.regions.sizes.tolist()) == ([1, 1], [3, 2])
    assert has(chunk, {100: b"abcde"})
    assert chunk.metadata["f0"].tolist() == [(100, 3), (103, 2)]
    assert chunk.metadata["f1"].tolist() == [7, 9]


def test_a_sample_larger_than_a_page_is_not_left_out():
    with pytest.raises(RegionTooLargeError):
        encode([(bytes(PAGE + 1), 1)], skip=True)


def test_checksums_are_those_of_the_regions():
    chunk = encode([(b"abc", 7), (b"", 8)])
    assert chunk.regions.checksums.tolist() == [zlib.crc32(b"abc"), 0]
