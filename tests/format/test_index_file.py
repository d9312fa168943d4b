"""Index files that are cut, damaged or hostile raise errors with a name, and nothing outside their files is read."""

from __future__ import annotations

import io
import json
import tarfile
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpubeton import Loader
from gpubeton.dataset import index_source, open_source, write_index
from gpubeton.errors import FormatError, OptionError, StorageError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.format import open_dataset
from gpubeton.format.index_file import FIRST_COLUMN, MAGIC, TRAILER
from gpubeton.transforms import ToTensor
from tests.cpu.pictures import jpeg, photo
from tests.picture_folders import write_tar
from tests.small_files import picture

PHOTO = jpeg(photo(300, 400), 90)


@pytest.fixture
def index(tmp_path):
    """An index of a tar file of 12 images."""
    with tarfile.open(tmp_path / "photos.tar", "w") as tar:
        for number in range(12):
            buffer = io.BytesIO()
            Image.fromarray(picture(number, 20, 24)).save(buffer, "JPEG")
            for ending, content in (("jpg", buffer.getvalue()), ("cls", str(number).encode())):
                member = tarfile.TarInfo(f"{number:04}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    path = tmp_path / "photos.index"
    index_source(open_source(tmp_path / "photos.tar"), path, num_workers=1)
    return path


def contents(path):
    """Read all that a loader reads of an index."""
    with Loader(path, 4, num_workers=1, drop_last=False) as loader:
        return [(images.numpy().tobytes(), labels.tolist()) for images, labels in loader]


def test_flipped_bytes_are_noticed_or_change_nothing(index):
    expected, sound = contents(index), index.read_bytes()
    random = np.random.default_rng(0)
    places = {*random.integers(0, len(sound), 60).tolist(), *range(FIRST_COLUMN, FIRST_COLUMN + 20), *range(16)}
    noticed = 0
    for place in sorted(places):
        damaged = bytearray(sound)
        damaged[place] ^= 1 << int(random.integers(8))
        index.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of entry points that cannot be used
            try:
                assert contents(index) == expected
            except (FormatError, StorageError):
                noticed += 1
    assert noticed > 40


def test_a_cut_index_is_no_index(index):
    sound = index.read_bytes()
    for size in (0, 10, FIRST_COLUMN, len(sound) // 2, len(sound) - 1):
        index.write_bytes(sound[:size])
        with pytest.raises(FormatError, match=r"photos\.index"):
            open_dataset(index)


def test_entry_points_of_a_beton_file_are_no_index_of_containers(tmp_path):
    (tmp_path / "train.beton.index").write_bytes(b"entries" * 100)
    with pytest.raises(FormatError, match=r"entry points of the \.beton file beside it"):
        open_dataset(tmp_path / "train.beton.index")


def rewrite(path, change, columns=None):
    """Change the description of an index, or its columns, as a person who knows the format could."""
    content = path.read_bytes()
    start, size, _ = TRAILER.unpack(content[-TRAILER.size :])
    description = json.loads(content[start : start + size])["content"]
    body = bytearray(content[:start])
    if columns is not None:
        stop = FIRST_COLUMN + description["num_bytes"]
        body[FIRST_COLUMN:stop] = columns(np.frombuffer(bytes(body[FIRST_COLUMN:stop]), np.uint8).copy()).tobytes()
        description["checksums"] = [zlib.crc32(body[FIRST_COLUMN:stop])]
    change(description)
    text = json.dumps(description)
    text = json.dumps({"checksum": zlib.crc32(text.encode()), "content": description}).encode()
    path.write_bytes(bytes(body) + text + TRAILER.pack(len(body), len(text), MAGIC))


OFFSETS = 12 * 16 + 12 * 4 + 16  # of 12 images: after the metadata and the sizes, at a multiple of 64 bytes


@pytest.mark.parametrize("value", [1 << 62, 1 << 63, (1 << 64) - 1, (1 << 48) + 512, 1 << 40])
def test_offsets_outside_the_containers_are_refused(index, value):
    def change(columns):
        columns[OFFSETS : OFFSETS + 8].view("<u8")[0] = value
        return columns

    assert np.frombuffer(index.read_bytes(), np.uint8)[FIRST_COLUMN + OFFSETS :][:8].view("<u8")[0] == 512
    rewrite(index, lambda _: None, change)
    with pytest.raises(FormatError, match="sample 0, field 'image': a region that is not in"):
        open_dataset(index)


def test_overlapping_images_are_refused_and_equal_ones_are_not(index):
    def overlap(columns):
        offsets = columns[OFFSETS : OFFSETS + 96].view("<u8")
        offsets[5] = offsets[4] + np.uint64(1)
        return columns

    rewrite(index, lambda _: None, overlap)
    with pytest.raises(FormatError, match="samples 4 and 5, field 'image': their values share bytes"):
        open_dataset(index)
    tar = index.with_name("photos.tar")
    rows = [(tar, 512, 700, {"label": number}) for number in range(3)]
    assert write_index(index, rows, overwrite=True).samples == 3


@pytest.mark.parametrize(
    "name", ["../elsewhere.tar", "/etc/passwd", "https://example.com/a.tar", "files:///etc", "a/../../b"]
)
def test_names_elsewhere_are_refused(index, name):
    def change(description):
        description["shards"][0]["name"] = name

    rewrite(index, change)
    with pytest.raises(FormatError, match="does not lie in its folder"):
        open_dataset(index)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", 0),
        ("size", -1),
        ("samples", 11),
        ("samples", 1 << 62),
        ("page_size", 3),
        ("metadata_end", 64),
        ("names", [0, 1 << 60]),
    ],
)
def test_wrong_numbers_in_the_description_are_refused(index, key, value):
    def change(description):
        description["shards"][0][key] = value

    rewrite(index, change)
    with pytest.raises(FormatError):
        open_dataset(index)


def test_containers_may_be_many_and_small_and_some_without_samples(tmp_path):
    for number in range(40):
        path = tmp_path / f"{number:03}.tar"
        write_tar(path, [] if number % 9 == 4 else [("1.txt", b"x")] if number % 9 == 5 else [("1.jpg", PHOTO)])
    index_source(open_source(tmp_path), tmp_path / "all.index", num_workers=1)
    assert (tmp_path / "all.index").stat().st_size > path.stat().st_size  # with entry points after the end of any tar
    image = [CenterCropRGBImageDecoder((8, 8), 1), ToTensor()]
    for name in (tmp_path, tmp_path / "all.index"):
        with Loader(name, 7, num_workers=1, drop_last=False, pipelines={"image": image}) as loader:
            assert len({row.numpy().tobytes() for (images,) in loader for row in images}) == 1
            assert loader.reader.num_samples == 32
            assert loader.reader.locate(4) == (str(tmp_path / "006.tar"), 0)


def test_containers_in_the_manifest_of_a_folder_are_refused(index, fault_server):
    content = index.read_bytes()
    start, size, _ = TRAILER.unpack(content[-TRAILER.size :])
    description = json.loads(content[start : start + size])["content"]
    description["shards"][0]["name"] = "../photos.tar"
    text = json.dumps(description)
    whole = json.dumps({"checksum": zlib.crc32(text.encode()), "content": description}).encode()
    fault_server.objects |= {
        "folder/index.json": whole,
        "folder/index.bin": content[FIRST_COLUMN : FIRST_COLUMN + description["num_bytes"]],
        "photos.tar": index.with_name("photos.tar").read_bytes(),
    }
    with pytest.raises(FormatError, match=r"index\.json: it describes containers"):
        open_dataset(fault_server.url("folder/"))
    assert not [request for request in fault_server.requests if "photos" in request.path]


def test_places_outside_a_file_are_refused(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(100))
    for offset, size in ((0, 101), (100, 1), (1 << 40, 1), (50, 51)):
        with pytest.raises(OptionError, match=r"a\.bin: .* do not lie in its file"):
            write_index(tmp_path / "a.index", [(tmp_path / "a.bin", offset, size, {})])
    for rows in ([], [(tmp_path / "a.bin", -1, 5, {})]):
        with pytest.raises(OptionError, match="at least one, and no negative"):
            write_index(tmp_path / "a.index", rows)
    with pytest.raises(OptionError, match="row 1 has values of"):
        write_index(tmp_path / "a.index", [(tmp_path / "a.bin", 0, 5, {}), (tmp_path / "a.bin", 0, 5, {"label": 1})])
    assert not Path(tmp_path / "a.index").exists()


def test_a_file_that_is_declared_a_list_of_files_is_refused(index):
    files = index.with_name("folder")
    files.mkdir()
    Image.fromarray(picture(1, 20, 24)).save(files / "a.jpg")
    index_source(open_source(files), index, overwrite=True, num_workers=1)
    rewrite(index, lambda description: description["shards"][0].update(name="missing.tar"))
    with pytest.raises(FormatError, match=r"names of files of .*missing\.tar"):
        open_dataset(index)
