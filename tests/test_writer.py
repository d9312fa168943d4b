from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gpubeton.errors import (
    FieldNameError,
    NoSamplesError,
    OptionError,
    PageSizeError,
    RegionTooLargeError,
    SampleError,
)
from gpubeton.fields import (
    BytesField,
    FloatField,
    IntField,
    JSONField,
    NDArrayField,
    RGBImageField,
    TorchTensorField,
)
from gpubeton.fields.jpeg import encode_jpeg
from gpubeton.fields.registry import open_index
from gpubeton.format import FieldType, open_dataset
from gpubeton.format.field_arguments import ArrayArguments
from gpubeton.writer import DatasetWriter
from tests.fields.test_registry import CaptionField
from tests.golden.make_opencv_writer import picture
from tests.golden_files import NAMES, save, sidecar
from tests.waiting import wait_until

PAGE = 2 << 20
#: Written by one process of FFCV, with built-in fields. The output of several depends on their timing.
BY_ONE_PROCESS = [
    name for name in NAMES if sidecar(name)["writer"]["num_workers"] == 1 and name not in ("custom", "names")
]


def write(path, fields, dataset, num_workers=1, page_size=PAGE, **arguments):
    writer = DatasetWriter(path, fields, page_size, num_workers, progress=False)
    writer.from_indexed_dataset(dataset, **arguments)
    return path.read_bytes()


def regions(index, name):
    file = index.path.read_bytes()
    result = index.regions(name)
    return [
        file[start : start + size] for start, size in zip(result.offset.tolist(), result.size.tolist(), strict=True)
    ]


def field_and_values(index, descriptor):
    """The field that wrote a column of a golden file, and the values that it was given or that give the same bytes."""
    column = index.column(descriptor.name)
    match descriptor.type_id:
        case FieldType.INT:
            return IntField(), column.tolist()
        case FieldType.FLOAT:
            return FloatField(), column.tolist()
        case FieldType.BYTES:
            return BytesField(), regions(index, descriptor.name)
        case FieldType.JSON:
            return JSONField(), [
                JSONField.unpack(np.frombuffer(text, "u1")) for text in regions(index, descriptor.name)
            ]
        case FieldType.RGB_IMAGE:
            # Compressed images are copied; those that FFCV stored raw are compressed or not by FFCV's threshold.
            sizes = column[["mode", "height", "width"]].tolist()
            images = [
                np.frombuffer(stored, "u1").reshape(height, width, 3) if mode else stored
                for stored, (mode, height, width) in zip(regions(index, descriptor.name), sizes, strict=True)
            ]
            modes = {mode for mode, _, _ in sizes}
            write_mode = "smart" if len(modes) == 2 else ("jpg", "raw")[modes.pop()]
            return RGBImageField(write_mode, smart_threshold=20000), images
    arguments = ArrayArguments.from_bytes(descriptor.arguments)
    arrays = [
        np.frombuffer(stored, arguments.dtype).reshape(arguments.shape) for stored in regions(index, descriptor.name)
    ]
    if descriptor.type_id == FieldType.TORCH_TENSOR:
        tensors = [torch.from_numpy(array.copy()) for array in arrays]
        return TorchTensorField(tensors[0].dtype, arguments.shape), tensors
    return NDArrayField(arguments.dtype, arguments.shape), arrays


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("name", BY_ONE_PROCESS)
def test_the_file_is_that_of_ffcv_to_the_byte(name, num_workers, tmp_path):
    index = open_dataset(save(name, tmp_path))
    fields, columns = {}, []
    for descriptor in index.descriptors:
        fields[descriptor.name], values = field_and_values(index, descriptor)
        columns.append(values)
    samples = list(zip(*columns, strict=True))
    written = write(tmp_path / "again.beton", fields, samples, num_workers, index.header.page_size, chunksize=3)
    assert hashlib.sha256(written).hexdigest() == sidecar(name)["sha256"]


def mixed_dataset(count=150):
    """Blobs of many sizes, some of them empty, over several pages."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 60_000, count)
    sizes[::7] = 0
    return [(rng.bytes(size), picture(5 + number % 9, 7), number) for number, size in enumerate(sizes.tolist())]


MIXED_FIELDS = {
    "blob": BytesField(),
    "image": RGBImageField("proportion", compress_probability=0.5),
    "label": IntField(),
}


def test_the_file_does_not_depend_on_the_number_of_processes_or_the_chunks(tmp_path):
    dataset = mixed_dataset()
    files = [
        write(tmp_path / "data.beton", MIXED_FIELDS, dataset, num_workers, chunksize=chunksize)
        for num_workers, chunksize in [(1, 100), (2, 100), (2, 1), (5, 7), (2, 10**6)]
    ]
    assert len({hashlib.sha256(file).hexdigest() for file in files}) == 1
    index = open_dataset(tmp_path / "data.beton")
    assert regions(index, "blob") == [blob for blob, _, _ in dataset]
    assert set(index.column("image")["mode"].tolist()) == {0, 1}
    assert len(index.page_runs().page) > 1


def test_empty_values_have_different_pointers_and_all_may_be_empty(tmp_path):
    # FFCV finds regions by their pointer alone, and with equal ones gives a neighbor the size 0.
    write(tmp_path / "data.beton", MIXED_FIELDS, mixed_dataset())
    assert len(np.unique(open_dataset(tmp_path / "data.beton").allocations["ptr"])) == 300
    write(tmp_path / "data.beton", {"blob": BytesField()}, [(b"",), (b"",)])
    assert regions(open_dataset(tmp_path / "data.beton"), "blob") == [b"", b""]


def test_indices_choose_the_samples_and_their_order_and_may_be_anything_that_the_dataset_knows(tmp_path):
    dataset = [(number,) for number in range(20)]
    for indices in ([9, 2, 5, 5, 0], np.array([9, 2, 5, 5, 0]), (9, 2, 5, 5, 0)):
        write(tmp_path / "data.beton", {"label": IntField()}, dataset, indices=indices)
        assert open_dataset(tmp_path / "data.beton").column("label").tolist() == [9, 2, 5, 5, 0]
    write(tmp_path / "data.beton", {"label": IntField()}, {"a": (1,), "b": (2,)}, indices=["b", "a"])
    assert open_dataset(tmp_path / "data.beton").column("label").tolist() == [2, 1]


def test_a_dataset_is_indexed_with_plain_integers(tmp_path):
    class Picky:
        def __getitem__(self, index):
            assert type(index) is int
            return (index,)

    write(tmp_path / "data.beton", {"label": IntField()}, Picky(), indices=np.arange(3))


def test_shuffling_is_that_of_ffcv_for_numpy_s_global_seed(tmp_path):
    np.random.seed(5)  # noqa: NPY002  (FFCV's users do)
    expected = np.arange(30)
    np.random.shuffle(expected)  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    write(tmp_path / "data.beton", {"x": IntField()}, [(number,) for number in range(30)], shuffle_indices=True)
    assert open_dataset(tmp_path / "data.beton").column("x").tolist() == expected.tolist()


def test_shuffling_with_a_seed_does_not_change_numpys_global_state(tmp_path):
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    indices = list(range(30))
    dataset = [(number,) for number in indices]
    files = [
        write(tmp_path / "data.beton", {"x": IntField()}, dataset, indices=indices, shuffle_indices=True, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert files[0] == files[1] != files[2]
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    assert indices == list(range(30))


def test_a_custom_field_comes_back(tmp_path):
    values = [np.full(40, number, "u1") for number in range(5)]
    write(tmp_path / "data.beton", {"caption": CaptionField()}, [(value,) for value in values], num_workers=2)
    index, _ = open_index(tmp_path / "data.beton", {"caption": CaptionField})
    assert index.descriptors[0].type_id == FieldType.CUSTOM
    assert regions(index, "caption") == [value.tobytes() for value in values]


def test_spawned_processes_write_the_same(tmp_path):
    fields, dataset = {"x": IntField(), "y": BytesField()}, [(number, bytes(number)) for number in range(20)]
    writer = DatasetWriter(tmp_path / "spawned.beton", fields, num_workers=2, progress=False, start_method="spawn")
    writer.from_indexed_dataset(dataset)
    assert (tmp_path / "spawned.beton").read_bytes() == write(
        tmp_path / "data.beton", fields, dataset, page_size=writer.page_size
    )


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_error_leaves_the_older_file_and_nothing_else(num_workers, tmp_path):
    path = tmp_path / "data.beton"
    path.write_bytes(b"old")
    with pytest.raises(SampleError) as caught:
        write(path, {"x": IntField()}, [(1,), (2,), (None,)], num_workers)
    assert caught.value.sample == 2
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("data.beton", b"old")]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_sample_larger_than_a_page_is_named_with_the_page_that_would_do(num_workers, tmp_path):
    small, large = picture(5, 6), np.zeros((1000, 1200, 3), np.uint8)
    dataset = [(small, small), (large, large), (small, small)]
    fields = {"left": RGBImageField("raw"), "right": RGBImageField("raw")}
    message = rf"sample 1 \(row 1 .*7200000 bytes, but a page has {PAGE}\. Use page_size=8388608"
    with pytest.raises(RegionTooLargeError, match=message):
        write(tmp_path / "data.beton", fields, dataset, num_workers)
    write(tmp_path / "data.beton", fields, dataset, num_workers, page_size=8388608)


def test_no_samples_are_refused_before_anything_is_written(tmp_path):
    for dataset, indices in (([], None), ([(1,)], [])):
        with pytest.raises(NoSamplesError, match="0 samples to write"):
            write(tmp_path / "data.beton", {"x": IntField()}, dataset, indices=indices)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("page_size", [0, 1 << 20, (2 << 20) + 1, 3 << 20, 1 << 32])
def test_page_sizes_that_the_format_does_not_know_are_refused(page_size):
    with pytest.raises(PageSizeError, match=rf"{page_size}, .* 2097152"):
        DatasetWriter("data.beton", {"x": IntField()}, page_size)


@pytest.mark.parametrize("name", ["a_name_of_17_char", "café", "a\0b"])
def test_names_that_ffcv_would_cut_or_fail_at_are_refused(name):
    with pytest.raises(FieldNameError, match="16 ASCII characters"):
        DatasetWriter("data.beton", {name: IntField()})


def test_arguments_out_of_range_are_refused(tmp_path):
    with pytest.raises(OptionError, match="fields is empty"):
        DatasetWriter("data.beton", {})
    with pytest.raises(OptionError, match=r"fields is a list.* names"):
        DatasetWriter("data.beton", [IntField()])
    for dataset, indices in ((iter([(1,)]), None), (iter([(1,)]), [0]), ({1}, None)):
        with pytest.raises(OptionError, match=r"dataset\[index\].*list\(dataset\)"):
            write(tmp_path / "data.beton", {"x": IntField()}, dataset, indices=indices)
    with pytest.raises(OptionError, match="chunksize is 0"):
        write(tmp_path / "data.beton", {"x": IntField()}, [(1,)], chunksize=0)


def test_the_arguments_have_the_order_of_ffcv():
    writer = DatasetWriter("data.beton", {"x": IntField()}, 4 << 20, 3)
    assert (writer.fname, writer.page_size, writer.num_workers) == ("data.beton", 4 << 20, 3)
    assert writer.metadata_type == np.dtype([("f0", "<i8")])
    assert DatasetWriter("data.beton", {"x": IntField()}).num_workers >= 1
    assert DatasetWriter("data.beton", {"x": IntField()}, num_workers=0).num_workers >= 1


def test_a_progress_bar_is_shown_unless_it_is_switched_off(tmp_path, capfd):
    write(tmp_path / "data.beton", {"x": IntField()}, [(1,)])
    assert capfd.readouterr().err == ""
    writer = DatasetWriter(tmp_path / "data.beton", {"x": IntField()}, num_workers=2)
    writer.from_indexed_dataset([(1,), (2,)])
    assert "2/2" in capfd.readouterr().err


def make_folder(root):
    photos = {"cat/1.jpg": encode_jpeg(picture(20, 30), 80), "dog/1.jpg": encode_jpeg(picture(80, 90), 80)}
    buffer = io.BytesIO()
    Image.fromarray(picture(10, 12)).save(buffer, "PNG")
    photos["dog/0.png"] = buffer.getvalue()
    for name, photo in photos.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(photo)
    return photos


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_folder_of_images_keeps_the_files_that_fit(num_workers, tmp_path):
    photos = make_folder(tmp_path / "photos")
    fields = {"image": RGBImageField("jpg", max_resolution=64), "label": IntField()}
    writer = DatasetWriter(tmp_path / "data.beton", fields, num_workers=num_workers, progress=False)
    assert writer.from_image_folder(tmp_path / "photos") == ("cat", "dog")
    index = open_dataset(tmp_path / "data.beton")
    assert index.column("label").tolist() == [0, 1, 1]
    assert index.column("image")[["mode", "width", "height"]].tolist() == [(0, 30, 20), (0, 12, 10), (0, 64, 56)]
    stored = regions(index, "image")
    assert stored[0] == photos["cat/1.jpg"]
    assert stored[1] == encode_jpeg(picture(10, 12), 90)


def test_a_folder_of_images_wants_two_fields(tmp_path):
    with pytest.raises(OptionError, match=r"2 values.* 1 .*'image'"):
        DatasetWriter(tmp_path / "data.beton", {"image": RGBImageField()}).from_image_folder(tmp_path)


SLOW_PROGRAM = """
import os, resource, sys, time
from gpubeton.fields import BytesField
from gpubeton.writer import DatasetWriter

class Slow:
    def __getitem__(self, index):
        if index == 40:
            os.write(1, f"{os.getpid()}\\n".encode())
            while os.path.exists(sys.argv[3]):
                time.sleep(0.01)
        return (bytes(100_000),)

if sys.argv[4] == "limited":
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))
writer = DatasetWriter(sys.argv[1], {"blob": BytesField()}, num_workers=int(sys.argv[2]), progress=False)
writer.from_indexed_dataset(Slow(), indices=range(80), chunksize=2)
"""


def start_writing(path, num_workers, brake, limited="unlimited"):
    """Start a program that writes 80 samples, and wait until one is at hand that waits until `brake` is deleted."""
    arguments = [sys.executable, "-c", SLOW_PROGRAM, path, str(num_workers), brake, limited]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    program = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    return program, program.stdout.readline().strip()


def is_gone(pid):
    """Return whether a process has ended, even if its parent has not yet read the exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_killed_program_leaves_the_older_file_and_the_next_one_tidies_up(num_workers, tmp_path):
    path = tmp_path / "data.beton"
    path.write_bytes(b"old")
    brake = tmp_path / "brake"
    brake.touch()
    program, encoding_process = start_writing(path, num_workers, brake)
    program.kill()
    program.wait()
    brake.unlink()
    program.communicate()
    assert path.read_bytes() == b"old"
    partial = [entry.name for entry in tmp_path.iterdir() if entry != path]
    assert len(partial) == 1
    assert partial[0].startswith(".data.beton.")
    assert partial[0].endswith(".partial")
    wait_until(lambda: is_gone(encoding_process))
    write(path, {"x": IntField()}, [(1,)])
    wait_until(lambda: [entry.name for entry in tmp_path.iterdir()] == ["data.beton"])
    assert open_dataset(path).num_samples == 1


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_interrupted_program_ends_at_once_and_leaves_the_older_file_alone(num_workers, tmp_path):
    path = tmp_path / "data.beton"
    path.write_bytes(b"old")
    program, encoding_process = start_writing(path, num_workers, tmp_path)
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate()
    assert "KeyboardInterrupt" in errors
    assert errors.count("Traceback") == 1
    assert is_gone(encoding_process)
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("data.beton", b"old")]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_disk_without_room_leaves_the_older_file_alone(num_workers, tmp_path):
    path = tmp_path / "data.beton"
    path.write_bytes(b"old")
    program, _ = start_writing(path, num_workers, "no brake", "limited")
    _, errors = program.communicate()
    assert program.returncode == 1
    assert "StorageError" in errors
    assert "File too large" in errors
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("data.beton", b"old")]


@pytest.mark.parametrize(
    ("field", "hint"), [(IntField, r"write IntField\(\), with brackets"), ("int", "'int'; expected an")]
)
def test_a_field_that_is_none_is_refused_before_anything_is_written(tmp_path, field, hint):
    with pytest.raises(OptionError, match=hint):
        DatasetWriter(tmp_path / "file.beton", {"label": field})
