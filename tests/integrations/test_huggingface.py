from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from gpubeton.conversion import convert, open_source
from gpubeton.errors import NotesError, OptionError, SampleError
from gpubeton.fields import FloatField, IntField, JSONField, NDArrayField
from gpubeton.inspection import Contents
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter
from tests.small_files import picture, write_photos

datasets = pytest.importorskip("datasets")
from gpubeton.integrations.huggingface import read_features, write_dataset  # noqa: E402  (after the import of datasets)

QUICK = {"num_workers": 1, "progress": False, "page_size": 1 << 21}
#: Kind of a column, and its values.
COLUMNS = {
    "photo": (datasets.Image(), [Image.fromarray(picture(number, 20, 30 + number)) for number in range(3)]),
    "label": (datasets.ClassLabel(names=["owl", "cat", "eel"]), [2, 0, 1]),
    "weight": (datasets.Value("float32"), [0.5, 0.25, 2.0]),
    "small": (datasets.Value("int8"), [-1, 0, 7]),
    "seen": (datasets.Value("bool"), [True, False, True]),
    "caption": (datasets.Value("string"), ["one", "zwölf", None]),
    "file": (datasets.Value("binary"), [b"12", b"", b"\0a"]),
    "point": (datasets.Sequence(datasets.Value("float32"), length=2), [[1, 2], [3, 4], [5, 6]]),
    "grid": (datasets.Array2D((2, 2), "int16"), [np.full((2, 2), number).tolist() for number in range(3)]),
    "boxes": (datasets.Sequence(datasets.Value("int32")), [[], [1], [2, 3]]),
    "about": ({"by": datasets.Value("string"), "year": datasets.Value("int64")}, [{"by": "a", "year": 1}] * 3),
}


def dataset_of(*names):
    features = datasets.Features({name: COLUMNS[name][0] for name in names})
    return datasets.Dataset.from_dict({name: COLUMNS[name][1] for name in names}, features=features)


def plain(value):
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_all_columns_come_back_with_their_features(tmp_path):
    dataset = dataset_of(*COLUMNS)
    write_dataset(dataset, tmp_path / "a.beton", **QUICK)
    assert read_features(tmp_path / "a.beton") == dataset.features
    assert Reader(tmp_path / "a.beton").class_names == ("owl", "cat", "eel")
    contents = Contents(tmp_path / "a.beton")
    for row, expected in enumerate(dataset):
        assert contents.value(row, "photo").pixels().shape == np.asarray(expected["photo"]).shape
        for name in list(COLUMNS)[1:]:
            assert plain(contents.value(row, name)) == expected[name], name


def test_features_follow_a_dataset_with_another_order_of_columns_and_a_format(tmp_path):
    dataset = dataset_of("point", "boxes", "label").with_format("torch").select([2, 0])
    write_dataset(dataset, tmp_path / "a.beton", **QUICK)
    assert list(read_features(tmp_path / "a.beton")) == ["point", "boxes", "label"]
    assert Contents(tmp_path / "a.beton").value(0, "point").tolist() == [5, 6]


@pytest.mark.parametrize("place", ["inside", "path"])
def test_image_files_are_stored_as_they_are(tmp_path, place):
    written = io.BytesIO()
    Image.fromarray(picture(1, 24, 32)).save(written, "jpeg")
    (tmp_path / "1.jpg").write_bytes(written.getvalue())
    image = {"bytes": written.getvalue(), "path": None} if place == "inside" else str(tmp_path / "1.jpg")
    dataset = datasets.Dataset.from_dict({"image": [image]}, features=datasets.Features({"image": datasets.Image()}))
    write_dataset(dataset, tmp_path / "a.beton", **QUICK)
    assert Contents(tmp_path / "a.beton").stored(0, "image") == written.getvalue()


def test_a_column_can_have_another_field_and_the_file_other_notes(tmp_path):
    dataset = dataset_of("small", "label")
    given = {"small": FloatField()}
    write_dataset(dataset, tmp_path / "a.beton", given, **QUICK, notes={"by": "me", "class_names": ["x", "y", "z"]})
    reader = Reader(tmp_path / "a.beton")
    assert isinstance(reader.handlers["small"], FloatField)
    assert (reader.notes["by"], reader.class_names) == ("me", ("x", "y", "z"))


def test_a_missing_number_is_an_error_that_a_json_field_avoids(tmp_path):
    features = datasets.Features({"small": datasets.Value("int8")})
    dataset = datasets.Dataset.from_dict({"small": [1, None]}, features=features)
    with pytest.raises(SampleError, match="sample 1"):
        write_dataset(dataset, tmp_path / "a.beton", **QUICK)
    write_dataset(dataset, tmp_path / "a.beton", {"small": JSONField()}, **QUICK)
    assert Contents(tmp_path / "a.beton").value(1, "small") is None


def test_what_cannot_be_stored_is_refused_before_anything_is_written(tmp_path):
    target = tmp_path / "a.beton"
    with pytest.raises(OptionError, match=r"DatasetDict with 'train'; expected one split"):
        write_dataset(datasets.DatasetDict({"train": dataset_of("label")}), target)
    with pytest.raises(OptionError, match=r"\['labels'\]; expected columns of the dataset: 'label'"):
        write_dataset(dataset_of("label"), target, {"labels": IntField()})
    times = datasets.Features({"time": datasets.Value("timestamp[s]")})
    with pytest.raises(OptionError, match=r"column 'time' is of type .*remove_columns\('time'\)"):
        write_dataset(datasets.Dataset.from_dict({"time": [0]}, features=times), target)
    assert not target.exists()


def test_files_without_features_have_those_of_their_fields(tmp_path):
    photos = read_features(write_photos(tmp_path / "a.beton", 3))
    expected = {
        "image": datasets.Image(), "label": datasets.Value("int64"), "weight": datasets.Value("float64"),
        "note": datasets.Value("binary"), "info": datasets.Value("string"),
    }  # fmt: skip
    assert {name: photos[name] for name in expected} == expected
    assert datasets.Dataset.from_dict({"vector": [np.ones((2, 3))]}).cast_column("vector", photos["vector"])
    dataset_of("photo", "label").save_to_disk(tmp_path / "saved")
    convert(open_source(tmp_path / "saved"), tmp_path / "b.beton", num_workers=1)
    assert read_features(tmp_path / "b.beton") == datasets.Features(
        {"image": datasets.Image(), "label": COLUMNS["label"][0]}
    )


@pytest.mark.parametrize(
    "noted",
    [7, [], {}, {"x": {"_type": "NoSuchType"}}, {"x": {"_type": "Value"}}, {"y": {"dtype": "int64", "_type": "Value"}},
     {"x": {"_type": "Value", "dtype": 3}}, {"x": {"_type": "ClassLabel", "names": 5}}],
)  # fmt: skip
def test_damaged_features_are_an_error(tmp_path, noted):
    writer = DatasetWriter(tmp_path / "a.beton", {"x": NDArrayField("<i8", (1,))}, **QUICK, notes={"features": noted})
    writer.from_indexed_dataset([(np.ones(1, np.int64),)])
    with pytest.raises(NotesError, match=r"a\.beton: its notes hold no features .*of the fields \['x'\]"):
        read_features(tmp_path / "a.beton")
