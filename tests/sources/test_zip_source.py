from __future__ import annotations

import io
import struct
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton.dataset import open_source
from gpubeton.errors import FormatError, GpubetonError, OptionError
from tests.bytes.versioned_source import put
from tests.picture_folders import write_folder
from tests.sources.samples import contents, placed


def write(path, content, compression=zipfile.ZIP_STORED, **options):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in content.items():
            with file.open(name, "w", **options) as member:
                member.write(data)
    return path


def packed(folder, path):
    """Pack a folder without compression."""
    names = sorted(
        (name.relative_to(folder).as_posix() for name in folder.rglob("*.*") if name.is_file()), reverse=True
    )
    return write(path, {name: (folder / name).read_bytes() for name in names})


def test_a_zip_file_has_the_samples_of_its_folder_in_the_same_order(tmp_path):
    folder = write_folder(tmp_path / "photos", 12)
    for name in ("cat/a-b/1.jpg", "cat/a/2.jpg", "cat/a b/3.jpg", "cat/.hidden/4.jpg", "dog/notes.txt", "top.jpg"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(name.encode())
    source, expected = open_source(packed(folder, tmp_path / "photos.zip")), open_source(folder)
    assert contents(source) == contents(expected)
    assert source.class_names == expected.class_names == ("cat", "dog", "eel")
    assert source.passed_over == expected.passed_over
    assert placed(source) == [image for image, _ in contents(source)] == placed(expected)
    assert source.name(0) == f"{tmp_path}/photos.zip: cat/0000.jpg"


def test_a_zip_file_without_folders_has_no_labels_and_what_macos_adds_is_hidden(tmp_path):
    path = write(tmp_path / "a.zip", {"b.jpg": b"b", "__MACOSX/._b.jpg": b"x", "./a.jpg": b"a"})
    source = open_source(path)
    assert (contents(source), source.fields, source.passed_over) == ([(b"a",), (b"b",)], {}, {"hidden": 1})


def test_zip64_long_headers_and_bytes_before_the_archive_are_read(tmp_path):
    path = write(tmp_path / "a.zip", {"a/1.jpg": b"abc", "a/2.jpg": b""}, force_zip64=True)
    assert placed(open_source(path)) == [b"abc", b""]
    path.write_bytes(b"#!a program" + path.read_bytes())
    assert placed(open_source(path)) == [b"abc", b""]


def test_a_zip_file_elsewhere_is_read_by_few_requests(tmp_path):
    path = packed(write_folder(tmp_path / "photos"), tmp_path / "a.zip")
    url = put(tmp_path / "object.zip", path.read_bytes())
    assert contents(open_source(url)) == contents(open_source(path)) == contents(open_source(tmp_path / "photos"))
    assert placed(open_source(url)) == placed(open_source(path))


def test_compressed_and_encrypted_images_are_refused_and_other_files_may_be_compressed(tmp_path):
    path = write(tmp_path / "a.zip", {"a/1.jpg": b"abc" * 50}, zipfile.ZIP_DEFLATED)
    with pytest.raises(OptionError, match=r"a\.zip: 'a/1\.jpg' is compressed.*zip -0 -r"):
        open_source(path)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("a/1.jpg", b"abc")
        file.writestr("a/notes.txt", b"abc" * 50, zipfile.ZIP_DEFLATED)
    assert contents(open_source(tmp_path / "b.zip")) == [(b"abc", 0)]
    content = bytearray((tmp_path / "b.zip").read_bytes())
    content[content.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "c.zip").write_bytes(content)
    with pytest.raises(OptionError, match=r"c\.zip: 'a/1\.jpg' is encrypted"):
        open_source(tmp_path / "c.zip")


def test_a_class_without_images_is_named(tmp_path):
    with pytest.raises(OptionError, match=r"b\.zip/empty: no images"):
        open_source(write(tmp_path / "b.zip", {"a/1.jpg": b"", "empty/": b""}))


def test_entries_outside_the_file_are_refused(tmp_path):
    path = write(tmp_path / "a.zip", {"a/1.jpg": b"abcdef"})
    content = path.read_bytes()
    start = content.index(b"PK\1\2")
    for field, *values in ((42, 7), (42, 1 << 31), (20, 1 << 30), (24, 5), (20, 1 << 30, 1 << 30)):
        damaged = bytearray(content)
        damaged[start + field : start + field + 4 * len(values)] = struct.pack(f"<{len(values)}I", *values)
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=r"a\.zip"):
            open_source(path)
    for size in (0, 10, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(FormatError, match=r"a\.zip"):
            open_source(path)


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=4), st.integers(0, 1 << 20))
@settings(max_examples=300)
def test_a_damaged_zip_file_is_a_named_error_or_has_places_in_it(tmp_path, flips, cut):
    file = io.BytesIO()
    write(file, {"a/1.jpg": b"abc", "b/2.jpg": b"defg", "b/notes.txt": b""})
    content = bytearray(file.getvalue())
    for place, flip in flips:
        content[place % len(content)] ^= flip
    path = tmp_path / "a.zip"
    path.write_bytes(content[: len(content) - cut % len(content)])
    try:
        places = open_source(path).places()
    except GpubetonError as error:
        damage = str(error)
        assert str(path) in damage
        return
    assert (places.offset + places.size <= path.stat().st_size).all()
