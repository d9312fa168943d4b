from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from gpubeton.dataset import Contents
from gpubeton.errors import SampleError
from gpubeton.reader import Reader
from tests.examples.example import run
from tests.small_files import picture

datasets = pytest.importorskip("datasets")
from examples.hugging_face import read_features, write_dataset  # noqa: E402  (after the import of datasets)

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
    dataset, path = dataset_of(*COLUMNS), tmp_path / "a.beton"
    datasets.DatasetDict({"train": dataset}).save_to_disk(tmp_path / "saved")
    printed = run("hugging_face.py", str(tmp_path / "saved"), str(path), "--split", "train", "--workers", "1")
    assert [line.split(":")[0] for line in printed.splitlines()] == list(COLUMNS)
    assert read_features(path) == dataset.features
    assert Reader(path).class_names == ("owl", "cat", "eel")
    contents = Contents(path)
    for row, expected in enumerate(dataset):
        assert contents.value(row, "photo").pixels().shape == np.asarray(expected["photo"]).shape
        for name in list(COLUMNS)[1:]:
            assert plain(contents.value(row, name)) == expected[name], name


@pytest.mark.parametrize("place", ["inside", "path"])
def test_image_files_are_stored_as_they_are(tmp_path, place):
    written = io.BytesIO()
    Image.fromarray(picture(1, 24, 32)).save(written, "jpeg")
    (tmp_path / "1.jpg").write_bytes(written.getvalue())
    image = {"bytes": written.getvalue(), "path": None} if place == "inside" else str(tmp_path / "1.jpg")
    dataset = datasets.Dataset.from_dict({"image": [image]}, features=datasets.Features({"image": datasets.Image()}))
    write_dataset(dataset, tmp_path / "a.beton", num_workers=1, progress=False)
    assert Contents(tmp_path / "a.beton").stored(0, "image") == written.getvalue()


def test_a_missing_number_is_an_error_that_json_avoids(tmp_path):
    features = datasets.Features({"small": datasets.Value("int8"), "other": datasets.Value("timestamp[s]")})
    datasets.Dataset.from_dict({"small": [1, None], "other": [0, 0]}, features=features).save_to_disk(
        tmp_path / "saved"
    )
    command = ["hugging_face.py", str(tmp_path / "saved"), str(tmp_path / "a.beton"), "--workers", "1"]
    with pytest.raises(SystemExit, match=r"column 'other' is of type .*--without"):
        run(*command)
    with pytest.raises(SampleError, match="sample 1"):
        run(*command, "--without", "other")
    run(*command, "--without", "other", "--json", "small")
    assert Contents(tmp_path / "a.beton").value(1, "small") is None
