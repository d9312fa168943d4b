"""Hostile tar, zip and Arrow files, and indices of them, which loaders read in place.

A named error comes of it, or samples whose bytes lie in their files. Of a damaged index, or of containers that were
damaged after they were indexed, no sample is another one without a word. Of a forged index, with right checksums, it
may be, but no file outside of its folder is opened.
"""

from __future__ import annotations

import errno
import io
import math
import os
import shutil
import tarfile
import zipfile
from importlib.util import find_spec

from gpubeton._bytes import FileListIdentity
from gpubeton.dataset import index_source, open_source
from gpubeton.errors import GpubetonError
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import ToTensor
from tests.bytes.versioned_source import put
from tests.cpu.pictures import jpeg, photo
from tests.format.test_index_file import rewrite
from tests.fuzz.campaign import Outcome, rng_of
from tests.fuzz.container import bounded_memory, hostile_number, one_of
from tests.sources.samples import contents, placed

_COUNT = 8
_ARCHIVES = ["tar", "zip", *["arrow"] * (find_spec("pyarrow") is not None)]
_TEXTS = [
    "",
    "..",
    "../a.tar",
    "/etc/passwd",
    "a\0b",
    "https://example.com/a.tar",
    "files:///etc",
    "files://..",
    "x" * 300,
]
_OTHERS = [None, True, [], {}, 0.5, math.nan, "1", -1, 1 << 70]


class Campaign:
    def __init__(self, seed, folder):
        self.seed, self.folder, self.sound = seed, folder, folder / "sound"
        images = [jpeg(photo(90 + 5 * number, 100, number), 85) for number in range(_COUNT)]
        for kind, write in {
            "tar": _write_tar,
            "zip": _write_zip,
            "arrow": _write_arrow,
            "folder": _write_folder,
        }.items():
            if kind in (*_ARCHIVES, "folder"):
                (self.sound / kind).mkdir(parents=True)
                write(self.sound / kind / f"a.{kind}", images)
                index_source(open_source(self.sound / kind / f"a.{kind}"), self.sound / kind / "a.index", num_workers=1)
        self.expected = _crops(self.sound / "tar" / "a.tar")[0]
        for kind in (*_ARCHIVES, "folder"):
            for name in (f"a.{kind}", "a.index"):
                if _crops(self.sound / kind / name) != (self.expected, []):
                    raise ValueError(f"a sound {name} of {kind} gives other samples")

    def close(self):
        return []

    def case(self, number):
        rng = rng_of(self.seed, number)
        way = one_of(rng, (_archive, _archive, _archive, _damaged_index, _forged_index, _forged_index, _containers))
        kind = one_of(rng, _ARCHIVES if way is _archive else [*_ARCHIVES, "folder"])
        # Each time another name: a process compares values of a file with their checksums once.
        folder = shutil.copytree(self.sound / kind, self.folder / f"case{number}")  # with the times of all files
        facts = f"{way.__name__[1:].replace('_', ' ')}, {kind}"
        with bounded_memory():
            try:
                verdict, finding = way(rng, kind, folder, self.expected)
            except GpubetonError as error:
                verdict, finding = type(error).__name__, ""
            except OSError as error:
                if error.errno != errno.ENAMETOOLONG:  # there is no such file, as there is none of a shorter name
                    raise
                verdict, finding = "no such file", ""
            finally:
                shutil.rmtree(folder)
        return [Outcome(f"{facts}: {verdict}", finding)]


def _crops(path, **options):
    """The crop of each label, and the bad samples; of an index an error if it names a file outside of its folder."""
    image = [RandomResizedCropRGBImageDecoder((12, 12), scale=(0.01, 0.3)), ToTensor()]
    usual = {"num_workers": 1, "order": "random", "seed": 3, "drop_last": False, "on_error": "skip", "device": "cpu"}
    with Loader(path, 5, pipelines={"image": image}, **usual, **options) as loader:
        for file in loader.reader.index.files if str(path).endswith(".index") else ():
            listed = file.identity.files if isinstance(file.identity, FileListIdentity) else None
            paths = [file.path] if listed is None else [listed.path(number) for number in range(len(listed.sizes))]
            if outside := [name for name in paths if not os.path.normpath(name).startswith(f"{path.parent}/")]:
                raise ValueError(f"outside: {outside}")
        samples = {
            label: crop.numpy().tobytes()
            for crops, *labels in loader
            for label, crop in zip(labels[0][:, 0].tolist() if labels else range(len(crops)), crops, strict=True)
        }
        return samples, [sample for _, sample, _ in loader.bad_samples]


# --- ways --------------------------------------------------------------------------------------------------------


def _archive(rng, kind, folder, expected):
    """An archive itself is hostile: all that is read lies in it."""
    path = folder / f"a.{kind}"
    content = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(1, 4))):
        content = one_of(rng, (_bytes, *[_FORGERIES[kind]] * 3))(content, rng)
    path.unlink()
    path.write_bytes(content)
    name = put(folder / f"remote.{kind}", bytes(content)) if rng.random() < 0.3 else path
    source = open_source(name)
    places = source.places()
    if (places.offset + places.size > len(content)).any():
        return "outside", f"{name}: places up to {int((places.offset + places.size).max())} of {len(content)} bytes"
    try:
        is_alike = [value or b"" for value, *_ in contents(source)] == placed(source)
    except (GpubetonError, ValueError, AttributeError):  # of an image that is damaged or missing
        is_alike = True
    samples, bad = _crops(name, os_cache=bool(rng.integers(2)))
    verdict = "same samples" if samples == expected else "other samples" if samples or bad else "none"
    return verdict, "" if is_alike else "convert reads other bytes than a loader"


def _damaged_index(rng, kind, folder, expected):
    """Any bytes of an index are damaged."""
    path = folder / "a.index"
    content = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(1, 4))):
        content = _bytes(content, rng)
    path.unlink()
    path.write_bytes(content)
    return _compare(*_crops(path), expected)


def _forged_index(rng, kind, folder, expected):
    """An attacker who knows the format changes an index: its checksums are right."""
    path = folder / "a.index"
    if kind == "folder" and rng.random() < 0.4:
        _forge_names(path, rng)
    else:
        count, is_columns = int(rng.integers(1, 4)), rng.random() < 0.5

        def change(description):
            for _ in range(0 if is_columns else count):
                _forge_value(description, rng)

        def columns(content):
            for _ in range(count):
                _number(content.data, int(rng.integers(len(content))) & ~3, one_of(rng, (4, 8)), rng)
            return content

        rewrite(path, change, columns if is_columns else None)
    return "same samples" if _crops(path)[0] == expected else "other samples", ""


def _containers(rng, kind, folder, expected):
    """The files that an index names are damaged, and keep their times."""
    path = folder / f"a.{kind}"
    path = one_of(rng, sorted(path.rglob("*.jpg"))) if kind == "folder" else path
    content, state = bytearray(path.read_bytes()), path.stat()
    for _ in range(int(rng.integers(1, 30))):
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    return _compare(*_crops(folder / "a.index", os_cache=bool(rng.integers(2))), expected)


def _compare(samples, bad, expected):
    wrong = [label for label in samples if samples[label] != expected.get(label)]
    if wrong or len(samples) + len(bad) != len(expected):
        return "wrong", f"other pixels of {wrong}, {len(samples)} samples and bad {bad}, of {len(expected)}"
    return "bad images" if bad else "same samples", ""


# --- hostile content ---------------------------------------------------------------------------------------------


def _number(content, at, size, rng):
    """Put a number that cannot be in the place of one."""
    if at + size <= len(content):
        before = int.from_bytes(content[at : at + size], "little")
        content[at : at + size] = hostile_number(rng, before, 8 * size).to_bytes(size, "little")
    return content


def _bytes(content, rng):
    """Flip bits, cut, repeat, swap or add bytes anywhere."""
    first, second = sorted(rng.integers(max(1, len(content)), size=2).tolist())
    match int(rng.integers(6)):
        case 0 | 1 if content:
            for place in rng.integers(len(content), size=int(rng.integers(1, 6))).tolist():
                content[place] ^= 1 << int(rng.integers(8))
        case 2:
            del content[one_of(rng, (first, len(content) - 1)) :]
        case 3:
            del content[first : first + one_of(rng, (1, 8, 512, second - first))]
        case 4:
            content[first:first] = content[second : second + one_of(rng, (1, 8, 512))]
        case 5:
            content += one_of(rng, (bytes(512), rng.bytes(100), content[-600:]))
    return content


def _tar_header(content, rng):
    """A header with another size, kind or name, mostly with a right checksum; or one more."""
    places = [at for at in range(0, len(content) - 511, 512) if content[at + 257 : at + 262] == b"ustar"]
    if not places:
        return content
    at = one_of(rng, places)
    if rng.random() < 0.4:
        content[at:at] = _extension(rng)
        return content
    header = content[at : at + 512]
    number = hostile_number(rng, int.from_bytes(header[124:135], "big"), 64)
    match int(rng.integers(4)):
        case 0:
            header[124:136] = b"%011o\0" % (number % 8**11)
        case 1:
            header[124:136] = bytes([one_of(rng, (0x80, 0xFF, 0x90))]) + number.to_bytes(11, "big")
        case 2:
            header[156] = one_of(rng, b"0\01234567LKxXgSDMNV9")
        case 3:
            header[:100] = one_of(rng, (b"../../1.jpg", b"/1.jpg", b".1.jpg", b"1", b"", b"\xff.jpg", b"a/")).ljust(
                100, b"\0"
            )
    if rng.random() < 0.9:
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
    content[at : at + 512] = header
    return content


def _extension(rng):
    """A header for the next file, of records or a long name."""
    key = one_of(rng, (b"size", b"path", b"GNU.sparse.major", b"comment"))
    value = one_of(rng, (b"0", b"7", b"-1", b"%d" % hostile_number(rng, 600, 64), b"a.jpg", b"x" * 600, b""))
    record = b" %s=%s\n" % (key, value)
    record = b"%d" % (len(record) + one_of(rng, (1, 2, 2, 3, 3, 0, 99))) + record
    member = tarfile.TarInfo("extension")
    member.type = one_of(rng, (b"x", b"x", b"g", b"X", b"L", b"K"))
    member.size = len(record)
    return member.tobuf(tarfile.USTAR_FORMAT) + record.ljust(-(-len(record) // 512) * 512, b"\0")


#: Of each record of a zip file: its signature, and the place and size of its numbers.
_ZIP_NUMBERS = {
    b"PK\1\2": [(6, 2), (8, 2), (10, 2), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4), (42, 4)],
    b"PK\3\4": [(6, 2), (8, 2), (18, 4), (26, 2), (28, 2)],
    b"PK\5\6": [(4, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)],
}


def _zip_number(content, rng):
    signature = one_of(rng, list(_ZIP_NUMBERS))
    places = [at for at in range(len(content) - 4) if content[at : at + 4] == signature]
    place, size = one_of(rng, _ZIP_NUMBERS[signature])
    return _number(content, one_of(rng, places) + place, size, rng) if places else content


def _arrow_number(content, rng):
    """A number before the first image, or near the end: of the schema, a batch, its offsets, or the footer."""
    first = max(8, content.find(b"\xff\xd8\xff"))
    at = int(rng.integers(first)) if rng.random() < 0.6 else len(content) - int(2 ** rng.uniform(2, 10))
    return _number(content, max(0, at & ~3), one_of(rng, (1, 2, 4, 4, 8)), rng)


_FORGERIES = {"tar": _tar_header, "zip": _zip_number, "arrow": _arrow_number}


def _forge_value(description, rng):
    """Change a value at any depth."""
    value, owner, key = description, None, None
    while isinstance(value, dict | list) and value and (owner is None or rng.random() < 0.95):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        owner, key = value, one_of(rng, keys)
        value = owner[key]
    if type(value) is int and rng.random() < 0.8:
        owner[key] = hostile_number(rng, value, 64)
    else:
        owner[key] = one_of(rng, _TEXTS if isinstance(value, str) and rng.random() < 0.8 else _OTHERS)


def _forge_names(path, rng):
    """Change the list of loose files in an index, which has no checksum."""
    content, places = bytearray(path.read_bytes()), {}
    rewrite(path, lambda description: places.update(names=description["shards"][0]["names"]))
    start, stop = places["names"]
    at = start + int(rng.integers(stop - start))
    if rng.random() < 0.5:
        _number(content, at & ~3, one_of(rng, (4, 8)), rng)
    else:
        text = one_of(rng, (b"../", b"..", b"/", b"/etc/passwd", b"\0", b"./"))[: stop - at]
        content[at : at + len(text)] = text
    path.unlink()
    path.write_bytes(content)


# --- sound files -------------------------------------------------------------------------------------------------


def _write_tar(path, images):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, image in enumerate(images):
            for ending, content in (("jpg", image), ("cls", b"%d" % number)):
                member = tarfile.TarInfo(f"{number:04}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def _write_zip(path, images):
    with zipfile.ZipFile(path, "w") as file:
        for number, image in enumerate(images):
            file.writestr(f"{number:02}/a.jpg", image)


def _write_arrow(path, images):
    import pyarrow as pa

    files = pa.array([{"bytes": image, "path": None} for image in images])
    features = b'{"info": {"features": {"image": {"_type": "Image"}}}}'
    table = pa.table({"image": files, "label": list(range(len(images)))}).replace_schema_metadata(
        {"huggingface": features}
    )
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


def _write_folder(path, images):
    for number, image in enumerate(images):
        (path / f"{number:02}").mkdir(parents=True)
        (path / f"{number:02}" / "a.jpg").write_bytes(image)
