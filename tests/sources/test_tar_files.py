from __future__ import annotations

import io
import tarfile
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubeton._bytes import open_bytes
from gpubeton._sources import find_files
from gpubeton._sources.tar_files import list_samples
from gpubeton.errors import FormatError, GpubetonError, OptionError, TruncatedError
from tests.bytes.versioned_source import put, requests_of

CONTENT = {"a/0.jpg": b"picture", "a/0.cls": b"1", "._a.jpg": b"macOS", "b.seg.png": b"", "b.CLS": b"2", "README": b"x"}
LONG = "/".join(["deep" * 20] * 4) + "/0.jpg"


def write(path, content, format=tarfile.GNU_FORMAT, **values):
    """Write a tar file with these names and contents."""
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for key, value in values.items():
                setattr(member, key, value)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def tar_path(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("a"))
        folder = tarfile.TarInfo("b")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in CONTENT.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return tmp_path / "a.tar"


def members_of(path):
    """List the files of samples in a tar file: name, with its ending in lower case, offset and size."""
    with open_bytes(path) as source:
        samples = list(list_samples(source, Counter()))
    return [(f"{sample.key}.{ending}", *place) for sample in samples for ending, place in sample.members.items()]


def members_or_error(path):
    try:
        return members_of(path)
    except GpubetonError as error:
        return error


def contents_of(path):
    with open_bytes(path) as source:
        return {name: source.read_exactly(start, size) for name, start, size in members_of(path)}


def with_block(path, at, content):
    """Overwrite a part of a file."""
    data = bytearray(path.read_bytes())
    data[at : at + len(content)] = content
    path.write_bytes(data)
    return path


def with_header(path, at, field, content):
    """Overwrite a field of the header at a place, and its checksum."""
    with_block(path, at + field, content)
    header = path.read_bytes()[at : at + 512]
    total = sum(header) - sum(header[148:156]) + 256
    return with_block(path, at + 148, b"%06o\0 " % total)


def test_a_sample_is_the_files_with_one_name_before_the_first_dot_and_their_bytes_lie_at_their_offsets(tar_path):
    with open_bytes(tar_path) as source:
        samples = list(list_samples(source, hidden := Counter(), "cls"))
    assert {sample.key: list(sample.members) for sample in samples} == {"a/0": ["jpg", "cls"], "b": ["seg.png", "cls"]}
    assert [sample.label for sample in samples] == [b"1", b"2"]
    assert hidden == {"hidden": 1}
    names = "a/0.jpg", "a/0.cls", "b.seg.png", "b.CLS"
    assert contents_of(tar_path) == {name.lower(): CONTENT[name] for name in names}


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_names_of_other_letters_are_whole(tmp_path, format):
    content = {LONG: b"long", "kurz.jpg": b"short", "größe/äöü.jpg": b"letters", f"ä{LONG}": b"both"}
    assert contents_of(write(tmp_path / "a.tar", content, format)) == content
    prefixed = {LONG[-200:]: b"x"}
    assert contents_of(write(tmp_path / "b.tar", prefixed, tarfile.USTAR_FORMAT)) == prefixed


def test_sizes_of_records_and_of_base_256_count(tmp_path):
    path = write(tmp_path / "a.tar", {"a.jpg": b"abc", "b.jpg": b"x"})
    assert contents_of(with_header(path, 0, 124, b"\x80" + bytes(10) + b"\3")) == {"a.jpg": b"abc", "b.jpg": b"x"}
    path = write(tmp_path / "b.tar", {"a.jpg": b"abc", "b.jpg": b"x"}, tarfile.PAX_FORMAT, pax_headers={"size": "3"})
    assert contents_of(with_header(path, 1024, 124, b"0" * 11)) == {"a.jpg": b"abc", "b.jpg": b"xx"[:1] + bytes(2)}


def test_links_devices_and_folders_are_no_samples(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            member = tarfile.TarInfo("a.jpg")
            member.type, member.linkname = kind, LONG
            tar.addfile(member)
        tar.addfile(tarfile.TarInfo("b.jpg"))
    assert contents_of(tmp_path / "a.tar") == {"b.jpg": b""}


def test_a_tar_file_without_zeros_at_its_end_may_be_cut(tmp_path):
    path = write(tmp_path / "a.tar", {"a.jpg": b"abc"})
    path.write_bytes(path.read_bytes()[:1024])
    with pytest.warns(UserWarning, match=r"a\.tar: ends after 1024 bytes without .* may be cut"):
        assert contents_of(path) == {"a.jpg": b"abc"}


def test_what_follows_the_end_of_a_tar_file_is_warned_of(tmp_path):
    first, second = (write(tmp_path / f"{name}.tar", {f"{name}.jpg": b"abc"}).read_bytes() for name in "ab")
    (tmp_path / "both.tar").write_bytes(first + second)
    (tmp_path / "hole.tar").write_bytes(first + bytes(2 << 20))
    for name in ("both", "hole"):
        with pytest.warns(UserWarning, match=rf"{name}\.tar: .* follow its end mark, at 1024"):
            assert list(contents_of(tmp_path / f"{name}.tar")) == ["a.jpg"]


def test_two_files_of_a_sample_with_one_ending_are_refused(tmp_path):
    path = write(tmp_path / "a.tar", {"0.jpg": b"abc", "0.cls": b"1", "./0.jpg": b"x"})
    assert len(members_of(path)) == 3
    path = write(tmp_path / "b.tar", {"0.jpg": b"abc", "0.cls": b"1", "0.JPG": b"x"})
    what = r"b\.tar: the sample '0' has two files that end in \.jpg, .* 512 and .* 2560"
    with open_bytes(path) as source, pytest.raises(FormatError, match=what):
        list(list_samples(source, Counter()))


def test_sparse_files_are_refused(tmp_path):
    path = write(tmp_path / "a.tar", {"a.jpg": b"abc"})
    with pytest.raises(OptionError, match=r"a\.tar: .*--sparse"):
        members_of(with_header(path, 0, 156, b"S"))
    path = write(tmp_path / "b.tar", {"a.jpg": b"abc"}, tarfile.PAX_FORMAT, pax_headers={"GNU.sparse.major": "1"})
    with pytest.raises(OptionError, match=r"b\.tar: .*--sparse"):
        members_of(path)


@pytest.mark.parametrize(
    "size",
    [
        b"\xff" * 12,
        b"\xff" * 10 + b"\xf8\0",
        b"\x80" + b"\xff" * 11,
        b"-0000000001\0",
        b"77777777777\0",
        b"0000000zzzz\0",
        b"\x81" * 12,
    ],
)
def test_sizes_that_are_negative_beyond_the_end_or_no_numbers_are_refused(tmp_path, size):
    for kind in (b"0", b"D", b"L"):
        path = write(tmp_path / "a.tar", {"a.jpg": b"abc", "b.jpg": b"x"})
        with pytest.raises(FormatError, match=r"a\.tar: .* has -?\d+ bytes from 1536 on|the 512 bytes from 1024"):
            members_of(with_header(with_header(path, 1024, 156, kind), 1024, 124, size))


@pytest.mark.parametrize("value", ["-1", "1e3", "9" * 30, ""])
def test_sizes_of_records_that_are_negative_beyond_the_end_or_no_numbers_are_refused(tmp_path, value):
    path = write(tmp_path / "a.tar", {"a.jpg": b"abc"}, tarfile.PAX_FORMAT, pax_headers={"size": value})
    with pytest.raises(FormatError, match=r"a\.tar"):
        members_of(path)


@pytest.mark.parametrize(
    "records", [b"30 path=x\n", b"9 path=x\n", b"0 a=b\n", b"path=x\n", b"8 pathx\n", b"+9 path=x\n"]
)
def test_damaged_records_are_refused(tmp_path, records):
    path = write(tmp_path / "a.tar", {"a.jpg": b"abc"}, tarfile.PAX_FORMAT, pax_headers={"comment": "12345678"})
    with pytest.raises(FormatError, match=r"a\.tar: the records from byte 512"):
        members_of(with_block(path, 512, records.ljust(20, b" ")))


def test_records_for_all_files_may_be_comments_and_nothing_else(tmp_path):
    for name, value in (("comment", "x"), ("path", "x"), ("size", "1")):
        with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT, pax_headers={name: value}) as tar:
            tar.addfile(tarfile.TarInfo("a.jpg"))
        if name == "comment":
            assert contents_of(tmp_path / "a.tar") == {"a.jpg": b""}
        else:
            with pytest.raises(FormatError, match=r"a\.tar: .*all files"):
                members_of(tmp_path / "a.tar")


@pytest.mark.parametrize("size", [1, 511, 512 + 1, 512 + 100, 1024 + 300, 1536 + 2, 3 * 512 - 1])
def test_the_end_of_a_cut_tar_file_is_an_error(tmp_path, size):
    path = write(tmp_path / "a.tar", {"a.jpg": bytes(300), "b.jpg": b"abc"})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises((TruncatedError, OptionError), match=r"a\.tar: .*"):
        members_of(path)


def test_a_long_name_without_a_file_is_an_error(tmp_path):
    path = write(tmp_path / "a.tar", {LONG: b""})
    with pytest.raises(TruncatedError, match=r"a\.tar: ends"):
        members_of(with_block(path, 1024 + len(LONG) // 512 * 512, bytes(512)))


@given(
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT]),
    st.lists(st.tuples(st.sampled_from(["a/0.jpg", "0.cls", LONG[-150:], "ä.png", "b/"]), st.binary(max_size=700))),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=3),
    st.integers(0, 1 << 20),
)
@example(tarfile.PAX_FORMAT, [("ä.png", b"x")], [(512, 1)], 0)
@settings(max_examples=300)
@pytest.mark.filterwarnings("ignore:.*Compare it with the original")
def test_a_damaged_tar_file_is_an_error_or_what_tarfile_reads(tmp_path, format, members, flips, cut):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    content = bytearray(file.getvalue())
    for place, flip in flips:
        content[place % len(content)] ^= flip
    path = tmp_path / "a.tar"
    path.write_bytes(content[: len(content) - cut % len(content)])
    result = members_or_error(path)
    if isinstance(result, GpubetonError):
        assert str(path) in str(result)
        names = [name for name, _ in members]  # two files of a sample may have one ending
        assert flips or cut % len(content) or len(set(names)) < len(names)
        return
    with tarfile.open(path, "r:") as tar:
        files = [(member.name, member.offset_data, member.size) for member in tar if member.isfile()]
    splits = [(*name.rpartition("/")[2].partition("."), name) for name, *_ in files]
    expected = [
        (f"{name[: len(name) - len(ending)]}{ending.lower()}", *place)
        for (_, dot, ending, name), (_, *place) in zip(splits, files, strict=True)
        if dot
    ]
    assert result == expected


def test_members_are_listed_without_reading_their_bytes_and_small_ones_by_few_requests(tmp_path):
    small = {f"{number}.cls": b"1" for number in range(200)}
    path = write(tmp_path / "a.tar", {"0.jpg": bytes(8 << 20), **small, "1.jpg": bytes(8 << 20)})
    url = put(tmp_path / "a.object", path.read_bytes())
    assert members_of(url) == members_of(path)
    requests = requests_of(url)
    assert len(requests) <= 6
    assert sum(size for _, size in requests) <= (6 * 64 << 10) + (1 << 20)  # headers near each other make one long


def test_compressed_and_missing_files_are_refused(tmp_path):
    for kind, cure in (("gz", "gunzip"), ("bz2", "bunzip2"), ("xz", "unxz")):
        with tarfile.open(tmp_path / f"a.tar.{kind}", f"w:{kind}") as tar:
            tar.addfile(tarfile.TarInfo("0.jpg"))
        with pytest.raises(OptionError, match=rf"a\.tar\.{kind}: compressed.*{cure}"):
            members_of(tmp_path / f"a.tar.{kind}")
    (tmp_path / "a.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(600))
    with pytest.raises(OptionError, match="zstd"):
        members_of(tmp_path / "a.tar.zst")
    for content in (b"", b"x", b"x" * 600):
        (tmp_path / "b.tar").write_bytes(content)
        with pytest.raises(OptionError, match=r"b\.tar: not a tar file"):
            members_of(tmp_path / "b.tar")
    with pytest.raises(OptionError, match=r"a-1\.tar: no such file \(2 of 2 are missing\)"):
        find_files(f"{tmp_path}/a-{{1..2}}.tar", ".tar")
