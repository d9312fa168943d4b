"""Hostile `.beton` files: numbers that cannot be, cuts and junk, in FFCV's golden files and in ones with notes.

Each is opened, gone through by loaders, verified, summarized and taken apart. Only errors that gpubeton documents may
come out of it, and the memory is bounded.
"""

from __future__ import annotations

import contextlib
import resource
from dataclasses import asdict
from pathlib import Path

import numpy as np

from gpubeton.dataset import Contents, summarize, verify
from gpubeton.dataset.contents import class_name
from gpubeton.errors import GpubetonError
from gpubeton.fields import BytesField, IntField, JSONField, NDArrayField, RGBImageField
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.fields.registry import open_index
from gpubeton.format import FieldType, open_dataset, read_notes
from gpubeton.format.layout import ALLOCATION_DTYPE, DESCRIPTOR_DTYPE, HEADER_DTYPE
from gpubeton.loader import Loader
from gpubeton.transforms import ToTensor
from gpubeton.writer import DatasetWriter
from tests.fuzz.campaign import Outcome, rng_of, unexpected
from tests.golden_files import NAMES, content
from tests.small_files import picture

#: Address space that a case may take, beyond what the process has.
_ROOM = 2 << 30
_SAMPLES = 12
_NUMBERS = [0, 1, 2, 7, 23, 24, 255, 256, 4095, 4096, 2**16 - 1, 2**31, 2**32 - 1, 2**40, 2**48, 2**53, 2**63]
#: Larger golden files take longer, and hold nothing else.
_LARGEST = 20 << 20


class Campaign:
    def __init__(self, seed, folder):
        self.seed, self.path = seed, folder / "hostile.beton"
        self.files = [content(name) for name in NAMES if len(content(name)) <= _LARGEST]
        self.files += [_noted(folder / "sound.beton", mode) for mode in ("jpg", "raw")] * 4
        for file in self.files[-2:]:
            self.path.write_bytes(file)
            for outcome in _uses(self.path):
                if outcome.finding:
                    raise ValueError(f"a sound file: {outcome}")

    def close(self):
        return []

    def case(self, number):
        rng = rng_of(self.seed, number)
        file = bytearray(self.files[int(rng.integers(len(self.files)))])
        ways = [one_of(rng, WAYS) for _ in range(int(rng.integers(1, 4)))]
        for way in ways:
            if len(file) >= 1200:
                file = way(file, rng)
        self.path.unlink(missing_ok=True)
        self.path.write_bytes(file)
        with bounded_memory():
            outcomes = _uses(self.path)
        names = ", ".join(way.__name__ for way in ways)
        return [outcome._replace(finding=outcome.finding and f"{names}; {outcome.finding}") for outcome in outcomes]


def _noted(path, mode):
    """A file with notes, checksums, class names and every kind of field."""
    fields = {
        "image": RGBImageField(mode),
        "label": IntField(),
        "info": JSONField(),
        "note": BytesField(),
        "vector": NDArrayField(np.dtype("<f4"), (2, 3)),
    }
    samples = [
        (picture(i, 20 + i, 30), i, {"number": i}, np.arange(i % 3, dtype=np.uint8), np.full((2, 3), i, "f4"))
        for i in range(6)
    ]
    notes = {"class_names": ["cat", "dog", "eel"]}
    DatasetWriter(path, fields, 2 << 20, 1, progress=False, notes=notes).from_indexed_dataset(samples)
    return path.read_bytes()


@contextlib.contextmanager
def bounded_memory():
    """Let the process have a little more address space than it has, and no more."""
    present = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (present + _ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


# --- uses --------------------------------------------------------------------------------------------------------


def _uses(path):
    """Use a file in every way; the outcome of each."""
    return [_tried(use, path) for use in (_index, _notes, _contents, _summary, _verified, _mapped, _read)]


def _tried(use, path):
    name = use.__name__.strip("_")
    try:
        use(path)
    except GpubetonError as error:
        return Outcome(f"{name}: {type(error).__name__}")
    except Exception as error:  # noqa: BLE001 - which ones there are is what a campaign is to find out
        return unexpected(error, name)
    return Outcome(f"{name}: fine")


def _index(path):
    index = open_dataset(path)
    for name in index.names:
        if len(index.column(name)) != index.num_samples:
            raise ValueError(f"{name}: a column of another length")
        if index.has_regions(name):
            regions = index.regions(name)
            stop = regions.offset[regions.size > 0] + regions.size[regions.size > 0]
            if np.any(stop > index.file_size):
                raise ValueError(f"{name}: a region outside the file")


def _notes(path):
    read_notes(path)


def _contents(path):
    contents = Contents(path)
    for name in contents.index.names:
        for sample in range(min(_SAMPLES, contents.index.num_samples)):
            with contextlib.suppress(GpubetonError):
                value = contents.value(sample, name)
                if hasattr(value, "pixels"):
                    value.pixels()
            with contextlib.suppress(GpubetonError):
                contents.to_file(sample, name)
    with contextlib.suppress(GpubetonError):
        contents.labels()
    class_name(0, contents.class_names)


def _summary(path):
    asdict(summarize(path))


def _verified(path):
    asdict(verify(path, num_workers=1))


def _mapped(path):
    _loop(path, is_mapped=True)


def _read(path):
    _loop(path, is_mapped=False)


def _loop(path, *, is_mapped):
    index, _ = open_index(path)
    chosen = np.arange(min(_SAMPLES, index.num_samples))
    # Images, and what else may be of different sizes, are made equal.
    pipelines = {
        descriptor.name: [CenterCropRGBImageDecoder((16, 16), 1), ToTensor()]
        if descriptor.type_id == FieldType.RGB_IMAGE
        else None
        for descriptor in index.descriptors
        if descriptor.type_id in (FieldType.RGB_IMAGE, FieldType.BYTES, FieldType.JSON)
    }
    loader = Loader(
        path, 5, 1, is_mapped, indices=chosen, pipelines=pipelines, drop_last=False, on_error="skip", seed=1
    )
    try:
        for _ in loader:
            pass
    finally:
        loader.close()


# --- ways to be hostile ------------------------------------------------------------------------------------------


def one_of(rng, values):
    return values[int(rng.integers(len(values)))]


def hostile_number(rng, before, bits):
    """A number that cannot be, or nearly the one before."""
    near = [before - 1, before + 1, before + 4096, 2 * before]
    return one_of(rng, [*_NUMBERS, *near, int(rng.integers(2**62)), 2**64 - 1 - int(rng.integers(3))]) % 2**bits


def _put(file, at, size, rng):
    at = min(at, len(file) - size)
    before = int.from_bytes(file[at : at + size], "little")
    file[at : at + size] = hostile_number(rng, before, 8 * size).to_bytes(size, "little")
    return file


def _parts(file):
    """Where metadata and allocation table begin, by the header."""
    header = np.frombuffer(file, HEADER_DTYPE, 1)[0]
    metadata = 24 + DESCRIPTOR_DTYPE.itemsize * int(header["num_fields"])
    return min(metadata, len(file) - 8), min(int(header["alloc_table_ptr"]), len(file) - 8)


def header(file, rng):
    return _put(file, *one_of(rng, [(0, 2), (2, 2), (4, 4), (8, 8), (16, 8)]), rng)


def descriptor(file, rng):
    """Type, name or arguments of a field; in the arguments, which are JSON for arrays, mostly the first bytes."""
    number = int(rng.integers(min(8, max(1, int.from_bytes(file[2:4], "little")))))
    start = 24 + number * DESCRIPTOR_DTYPE.itemsize
    at = start + one_of(rng, [0, 1 + int(rng.integers(16)), 17 + int(rng.integers(60)), 17 + int(rng.integers(1024))])
    if at < len(file):
        file[at] = one_of(rng, [0, 1, 2, 3, 4, 5, 6, 7, 255, 0x22, 0x5B, 0x2F, 0xC3, int(rng.integers(256))])
    return file


def field_name(file, rng):
    """A name that another field has, an empty one, or one that is no text."""
    name = one_of(rng, [b"label", b"image", b"", b"/../x", b"\x1b[31m", b"\xff\xfe", b"a" * 16, "\u202e".encode()])
    start = 25 + int(rng.integers(2)) * DESCRIPTOR_DTYPE.itemsize
    file[start : start + 16] = name.ljust(16, b"\0")
    return file


def metadata_number(file, rng):
    at = _parts(file)[0] + 8 * int(rng.integers(60))
    return _put(file, at + one_of(rng, (0, 0, 1, 3, 5)), one_of(rng, (1, 2, 4, 8, 8)), rng)


def metadata_bytes(file, rng):
    start = _parts(file)[0]
    for _ in range(int(rng.integers(1, 9))):
        file[min(start + int(rng.integers(600)), len(file) - 1)] = int(rng.integers(256))
    return file


def table_number(file, rng):
    rows = max(1, (len(file) - _parts(file)[1]) // ALLOCATION_DTYPE.itemsize)
    return _put(file, _parts(file)[1] + 24 * int(rng.integers(rows)) + 8 * int(rng.integers(3)), 8, rng)


def table_swapped(file, rng):
    """Two rows change places."""
    start = _parts(file)[1]
    rows = max(1, (len(file) - start) // 24)
    a, b = (start + 24 * rng.integers(rows, size=2)).tolist()
    file[a : a + 24], file[b : b + 24] = file[b : b + 24], file[a : a + 24]
    return file


def pointers_swapped(file, rng):
    """Eight bytes of the metadata come from elsewhere in them, so that regions overlap."""
    a, b = (_parts(file)[0] + rng.integers(400, size=2)).tolist()
    if max(a, b) + 8 <= len(file):
        file[a : a + 8] = file[b : b + 8]
    return file


def notes(file, rng):
    """What lies before the allocation table, which is where notes are."""
    at = max(0, _parts(file)[1] - 1 - int(rng.integers(300)))
    if rng.random() < 0.5:
        file[at] = int(rng.integers(256))
        return file
    return _put(file, max(0, _parts(file)[1] - 8 * int(rng.integers(1, 5))), 8, rng)


def page_bytes(file, rng):
    """Damage the stored bytes of the samples."""
    start = int.from_bytes(file[4:8], "little")
    for _ in range(int(rng.integers(1, 40))):
        file[min(start + int(2 ** rng.uniform(0, 16)), len(file) - 1)] = int(rng.integers(256))
    return file


def json_text(file, rng):
    """A text that is hard to parse in the place of one that is easy."""
    at = file.find(b'{"')
    new = one_of(rng, [b"[" * 400, b"9" * 300, b"\xff" * 12, b'"\\ud800"', b"NaN", b"1e999"])
    if at >= 0 and at + len(new) < len(file):
        file[at : at + len(new)] = new
    return file


def cut(file, rng):
    return file[: one_of(rng, [int(rng.integers(len(file))), len(file) - int(rng.integers(1, 100)), 24, 1065])]


def appended(file, rng):
    return file + one_of(rng, [bytes(24), b"\xff" * 24, rng.bytes(int(rng.integers(1, 100))), file[-24:] * 3])


def moved(file, rng):
    """A few bytes more or fewer somewhere."""
    at, count = int(rng.integers(len(file))), int(rng.integers(1, 30))
    return file[:at] + (bytes(count) + file[at:] if rng.random() < 0.5 else file[at + count :])


WAYS = (
    header,
    descriptor,
    field_name,
    metadata_number,
    metadata_number,
    metadata_bytes,
    table_number,
    table_number,
    table_swapped,
    pointers_swapped,
    notes,
    page_bytes,
    json_text,
    cut,
    appended,
    moved,
)
