"""`index_images` and ``gpubeton index``: complete, resumed after any interruption, never a half of an index."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import zlib

import pytest
from typer.testing import CliRunner

from gpubeton._writing import ResumableFile, find_all
from gpubeton.cli.app import app
from gpubeton.dataset import (
    Contents,
    Settings,
    convert,
    copy_samples,
    index_images,
    index_source,
    open_source,
    verify,
)
from gpubeton.errors import BadImageError, OptionError, StorageError
from gpubeton.fields import BytesField, RGBImageField
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder
from gpubeton.format import open_dataset
from gpubeton.format.entry_points import open_entry_points
from gpubeton.loader import Loader
from gpubeton.transforms import ToTensor
from gpubeton.writer import DatasetWriter
from tests.cpu.pictures import jpeg, photo
from tests.format.test_entry_points import expected, held
from tests.picture_folders import write_folder
from tests.small_files import Photos, damage, photo_fields, write, write_photos

COUNT = 300  # more than a thread takes at a time


def entry_points(path):
    result, _, faults = open_entry_points(open_dataset(path))
    assert faults == []
    return held(result["image"]) if result else None


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("photos") / "a.beton", COUNT).read_bytes()


@pytest.fixture
def file(photos, tmp_path):
    path = tmp_path / "a.beton"
    path.write_bytes(photos)
    return path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


class PlugError(Exception):
    """What interrupts."""


def stop_at(number):
    def advance(done, total):
        assert total == COUNT
        if done >= number:
            raise PlugError

    return advance


def test_the_index_does_not_depend_on_the_number_of_threads(file):
    done = index_images(file, num_workers=1)
    content = done.path.read_bytes()
    assert (done.images, done.indexed, done.new) == (COUNT, COUNT, COUNT)
    assert done.checksums == len(open_dataset(file).allocations)
    # The trailer and what fills up; the trailer and the content of the checksums.
    assert 0 <= len(content) - done.bytes - 80 - 4 * done.checksums - 32 - 48 < 24
    index_images(file, overwrite=True, num_workers=3)
    assert done.path.read_bytes() == content
    assert entry_points(file) == expected(file)


def test_an_interrupted_index_continues_and_is_the_same(file):
    index_images(file)
    content = (file.parent / "a.beton.index").read_bytes()
    (file.parent / "a.beton.index").unlink()
    for number in (64, 200):
        with pytest.raises(PlugError):
            index_images(file, num_workers=2, on_progress=stop_at(number))
        assert names(file.parent) == [".a.beton.index.entries", "a.beton"]
        assert entry_points(file) is None
    seen = []
    done = index_images(file, on_progress=lambda done, _: seen.append(done))
    assert seen[0] >= 200
    assert seen[-1] == COUNT
    assert done.new == COUNT - seen[0]
    assert done.path.read_bytes() == content
    assert names(file.parent) == ["a.beton", "a.beton.index"]


@pytest.mark.parametrize("change", ["cut", "bit", "append"])
def test_entry_points_that_did_not_reach_the_disk_are_found_again(file, change):
    with pytest.raises(PlugError):
        index_images(file, num_workers=1, on_progress=stop_at(200))
    unfinished = file.parent / ".a.beton.index.entries"
    content = bytearray(unfinished.read_bytes())
    if change == "cut":
        del content[-5:]
    elif change == "bit":
        content[len(content) // 2] ^= 1
    else:
        content += os.urandom(1000)
    unfinished.write_bytes(content)
    done = index_images(file)
    assert 0 < COUNT - done.new < (COUNT if change == "append" else 200)
    assert entry_points(file) == expected(file)


def test_the_unfinished_index_of_another_file_is_discarded(file, tmp_path):
    with pytest.raises(PlugError):
        index_images(file, num_workers=1, on_progress=stop_at(100))
    write_photos(file, COUNT + 1)
    assert index_images(file).new == COUNT + 1
    assert entry_points(file) == expected(file)


def test_another_process_continues_the_work_of_a_killed_one(file):
    call = f"index_images({str(file)!r}, on_progress=lambda done, _: time.sleep(300 if done > 200 else 0))"
    code = f"import time; from gpubeton.dataset.indexing import index_images; {call}"
    process = subprocess.Popen([sys.executable, "-c", code])
    unfinished = file.parent / ".a.beton.index.entries"
    while not unfinished.exists() or unfinished.stat().st_size < 5000:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert names(file.parent) == [".a.beton.index.entries", "a.beton"]
    assert 0 < index_images(file).new < COUNT
    assert entry_points(file) == expected(file)


def test_two_processes_do_not_write_one_index(file):
    def advance(done, total):
        if done < total:
            with pytest.raises(StorageError, match="another process"):
                index_images(file)

    index_images(file, on_progress=advance)


def test_a_file_that_changes_or_is_replaced_meanwhile_gets_no_index(file, tmp_path):
    with pytest.raises(StorageError, match="written to"):
        index_images(file, on_progress=lambda *_: os.utime(file, ns=(0, 0)))
    other, seen = tmp_path / "other.beton", []
    other.write_bytes(bytes(5000))

    def advance(done, _):
        seen.append(done)
        if other.exists():
            other.replace(file)

    with pytest.raises(StorageError, match="another file"):
        index_images(file, on_progress=advance)
    assert seen == [0]  # nothing was read where the samples had been
    assert "a.beton.index" not in names(file.parent)


def test_samples_beyond_the_end_of_a_file_are_not_read(file):
    index = open_dataset(file)
    file.write_bytes(bytes(5000))
    with pytest.raises(StorageError, match="replaced or cut short"):
        list(find_all(index, "image", 0))


def test_an_unfinished_index_and_an_unfinished_conversion_of_a_long_name_are_two_files(file, tmp_path):
    path = file.rename(tmp_path / ("a" * 200 + ".beton"))
    with ResumableFile(path, "key"):
        assert index_images(path).new == COUNT


def test_a_refused_index_is_made_again_also_beside_a_file_with_entry_points(file, tmp_path):
    index_images(file)
    path = copy_samples(file, tmp_path / "copy.beton")
    (tmp_path / "copy.beton.index").write_bytes((tmp_path / "a.beton.index").read_bytes()[1000:])
    done = index_images(path)
    assert (done.path, done.new) == (tmp_path / "copy.beton.index", COUNT)
    assert entry_points(path) == expected(path)


def test_a_file_that_is_written_again_loses_its_index(file):
    index = index_images(file).path
    write_photos(file, 5)
    assert not index.exists()
    index.write_bytes(b"an index of another program" * 10)
    write_photos(file, 5)
    assert index.exists()


def test_a_file_without_jpegs_gets_checksums_alone(tmp_path):
    path = write_photos(tmp_path / "a.beton", 5, write_mode="raw")
    done = index_images(path)
    assert (done.path.name, done.images, done.indexed, done.new) == ("a.beton.index", 0, 0, 0)
    index, content = open_dataset(path), path.read_bytes()
    places = zip(index.allocations["ptr"].tolist(), index.allocations["size"].tolist(), strict=True)
    expected_sums = [zlib.crc32(content[start : start + size]) for start, size in places]
    assert index.checksums.tolist() == expected_sums
    assert done.checksums == len(expected_sums)
    before = done.path.stat().st_mtime_ns
    assert index_images(path) == done
    assert done.path.stat().st_mtime_ns == before
    write_photos(path, 6, write_mode="raw")  # it takes the index of the old file away
    assert names(tmp_path) == ["a.beton"]


def test_a_file_with_checksums_and_without_jpegs_gets_no_index(tmp_path):
    path = tmp_path / "a.beton"
    DatasetWriter(path, photo_fields("raw"), num_workers=1, progress=False, notes={}).from_indexed_dataset(Photos(5))
    assert index_images(path).path is None
    assert names(tmp_path) == ["a.beton"]


def test_a_file_of_another_kind_is_replaced_only_with_overwrite(file):
    beside = file.parent / "a.beton.index"
    beside.write_text("notes")
    with pytest.raises(OptionError, match=r"a\.beton\.index.*--overwrite"):
        index_images(file)
    assert beside.read_text() == "notes"
    assert index_images(file, overwrite=True).new == COUNT
    beside.write_bytes(b"")
    assert index_images(file).new == COUNT


def test_leftovers_of_a_killed_process_beside_a_finished_index_are_removed(file):
    index_images(file)
    unfinished = file.parent / ".a.beton.index.entries"
    unfinished.write_bytes(b"left")
    with open(unfinished, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        index_images(file)
        assert unfinished.exists()  # another process writes it
    assert index_images(file).new == 0
    assert not unfinished.exists()


def test_the_command_indexes_several_files(file, tmp_path):
    other = write_photos(tmp_path / "b.beton", 5)
    done = CliRunner().invoke(app, ["index", str(file), str(other), "--json"])
    assert done.exit_code == 0
    result = json.loads(done.stdout)["files"]
    assert [output["new"] for output in result] == [COUNT, 5]
    assert [output["path"] for output in result] == [f"{file}.index", f"{other}.index"]
    again = CliRunner().invoke(app, ["index", str(file), str(tmp_path / "none.beton")])
    assert again.exit_code == 2
    assert "300 of 300 JPEG files" in again.stdout
    assert "--overwrite" in again.stdout


# --- files that bring theirs ------------------------------------------------------------------------------------------


def test_a_conversion_stores_entry_points_and_can_do_without(tmp_path):
    source = open_source(write_folder(tmp_path / "photos", 20))
    for name, settings in {
        "with": Settings(page_size=1 << 21),
        "none": Settings(page_size=1 << 21, index=False),
    }.items():
        convert(source, tmp_path / f"{name}.beton", settings, num_workers=2, chunksize=3)
    convert(source, tmp_path / "one.beton", Settings(page_size=1 << 21), num_workers=1)
    assert (tmp_path / "with.beton").read_bytes() == (tmp_path / "one.beton").read_bytes()
    assert entry_points(tmp_path / "with.beton") == expected(tmp_path / "with.beton")
    assert entry_points(tmp_path / "none.beton") is None
    assert index_images(tmp_path / "with.beton").path is None


def test_a_conversion_killed_while_entry_points_are_found_continues(tmp_path, monkeypatch):
    source, path = open_source(write_folder(tmp_path / "photos", 20)), tmp_path / "a.beton"
    settings = Settings(page_size=1 << 21)

    def fail(*_):
        raise PlugError

    monkeypatch.setattr("gpubeton._cpu.jpeg.entries.find_entries", fail)
    with pytest.raises(PlugError):
        convert(source, path, settings, num_workers=1, chunksize=3)
    monkeypatch.undo()
    assert not path.exists()
    assert convert(source, path, settings, num_workers=1, chunksize=3).resumed == 20
    convert(source, tmp_path / "b.beton", settings, num_workers=1)
    assert path.read_bytes() == (tmp_path / "b.beton").read_bytes()


def test_copies_keep_the_entry_points_of_their_samples(file, tmp_path):
    index_images(file)
    plain = write_photos(tmp_path / "plain.beton", 10)
    samples = [5, 3, COUNT - 1, COUNT, 3, COUNT + 9, *range(COUNT)]
    result = copy_samples([file, plain], tmp_path / "copy.beton", samples)
    whole = expected(file)
    assert entry_points(result) == [whole[sample] if sample < COUNT else (b"", 0) for sample in samples]
    again = copy_samples(result, tmp_path / "again.beton", [0, 3, 6])
    assert entry_points(again) == [whole[5], (b"", 0), whole[0]]
    assert entry_points(copy_samples(plain, tmp_path / "c.beton")) is None


def test_a_damaged_index_is_not_copied(file, tmp_path):
    index_images(file)
    with open(f"{file}.index", "r+b") as index:
        index.truncate(1000)
    with pytest.warns(UserWarning, match="gpubeton index --overwrite"):
        result = copy_samples(file, tmp_path / "copy.beton")
    assert entry_points(result) is None


def test_records_of_an_unfinished_index_are_bounded_by_its_size(file):
    with pytest.raises(PlugError):
        index_images(file, num_workers=1, on_progress=stop_at(100))
    unfinished = file.parent / ".a.beton.index.entries"
    content = bytearray(unfinished.read_bytes())
    content[32 + 4 : 32 + 16] = b"\xff" * 12  # images and entries of the first record
    unfinished.write_bytes(content)
    assert index_images(file).new == COUNT


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_damaged_image_is_named_and_is_bad_whatever_a_crop_needs(kind, tmp_path):
    path, number = write_photos(tmp_path / "a.beton", 5, size=(240, 320)), 3
    size = len(Contents(path).stored(number, "image"))
    damage(path, number, at=size - size // 8, content=bytes(size // 16))
    crop = {"image": [CenterCropRGBImageDecoder((8, 8), 0.1), ToTensor()]}
    assert len(next(iter(Loader(path, 5, num_workers=1, pipelines=crop)))[0]) == 5  # the crop does not need the damage
    if kind == "folder":
        (tmp_path / "photos").mkdir()
        for sample in range(5):
            (tmp_path / f"photos/{sample}.jpg").write_bytes(Contents(path).stored(sample, "image"))
        path, place = tmp_path / "photos.index", r"3\.jpg, field 'image'"
        with pytest.warns(UserWarning, match=f"photos.index: 1 damaged JPEG, .*{place}"):
            index_source(open_source(str(tmp_path / "photos")), path)
    else:
        with pytest.warns(UserWarning, match=r"a.beton: 1 damaged JPEG, .* sample 3, field 'image'"):
            assert index_images(path).indexed == 4
    loader = Loader(path, 5, num_workers=1, pipelines=crop, on_error="skip")
    assert [len(images) for images, *_ in loader] == [4]
    ((_, sample, reason),) = loader.bad_samples
    assert sample == number
    assert "cannot be decoded, as `gpubeton index` noticed" in reason
    findings = [finding.what for finding in verify(path).findings if finding.sample == number]
    assert [what.count("cannot be decoded") for what in findings] == [1]


def test_an_empty_file_among_images_is_no_sound_one(tmp_path):
    folder = write_folder(tmp_path / "photos", 3, ("cat",))
    sorted(folder.rglob("*.jpg"))[1].write_bytes(b"")
    index_source(open_source(str(folder)), path := tmp_path / "photos.index")
    assert verify(path).bad_samples == [1]
    (finding,) = verify(path).findings
    assert "0 bytes: an empty file" in finding.what
    with pytest.raises(BadImageError, match="it has 0 bytes: an empty file"):
        list(Loader(path, 3, num_workers=1, pipelines={"image": [CenterCropRGBImageDecoder((8, 8), 1), ToTensor()]}))


def test_an_empty_value_at_the_place_of_a_damaged_image_stays_good(tmp_path):
    samples = [(b"", jpeg(photo(64, 64, number))) for number in range(3)]
    path = write(tmp_path / "a.beton", {"note": BytesField(), "image": RGBImageField("jpg")}, samples)
    size = len(samples[1][1])
    damage(path, 1, at=size // 2, content=bytes(size // 4))
    empty, image = open_dataset(path).allocations[2:4].copy()
    moved = empty.copy()
    moved["ptr"] = image["ptr"]  # as other writers place it
    content = path.read_bytes()
    assert content.count(empty.tobytes()) == 1
    path.write_bytes(content.replace(empty.tobytes(), moved.tobytes()))
    with pytest.warns(UserWarning, match="1 damaged JPEG"):
        index_images(path)
    table = open_dataset(path)
    assert table.checksums[table.allocations["size"] == 0].tolist() == [0] * 3
    assert verify(path).bad_samples == [1]
