"""Fetch ``.beton`` files from object stores to a folder of this machine, to read them there."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import (
    FormatError,
    OptionError,
    RemoteDamagedError,
    RemoteDeniedError,
    RemoteMissingError,
    StorageError,
)
from gpubeton.files.byte_locks import locked_byte
from gpubeton.files.cache_filler import CacheFiller
from gpubeton.files.cached_file import CachedFile, allocate, make_object
from gpubeton.files.descriptors import read_at, write_some
from gpubeton.files.node_cache import PAGE_SIZE
from gpubeton.files.object_store import list_objects
from gpubeton.files.open_files import list_files, open_bytes
from gpubeton.format import Index, read_notes
from gpubeton.format.entry_layout import index_path
from gpubeton.format.manifest import COLUMNS, DESCRIPTION, StoredIndex
from gpubeton.machine import count_cores
from gpubeton.writing.atomic_file import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpubeton.files.byte_source import ByteSource
    from gpubeton.files.remote_options import RemoteOptions

__all__ = ["Fetched", "fetch"]

_REGIONS_AT_ONCE = 256


@dataclass(frozen=True)
class Fetched:
    """A file that was fetched.

    Made by `fetch`.

    Attributes
    ----------
    url : str
        Where it came from.
    path : Path
        The file on this machine.
    bytes : int
        Its size.
    was_there : bool
        Whether an earlier call had fetched this version of it.
    checksums : int
        Regions that were compared with a recorded checksum; 0 if the file has none.
    """

    url: str
    path: Path
    bytes: int
    was_there: bool
    checksums: int


def fetch(
    url: str,
    folder: str | os.PathLike[str],
    *,
    share: tuple[int, int] = (0, 1),
    remote: RemoteOptions | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> list[Fetched]:
    """Fetch a ``.beton`` file, or the shards of a dataset, to a folder of this machine, and check them.

    A file appears under its name when it is complete and its regions agree with its checksums, if it has some. After an
    interruption of any kind the same call continues; it begins again if the server names no versions of files (a strong
    ETag), as object stores do. A call for files that are there compares them with the store's
    versions and with their checksums, and fetches those that differ. It replaces no file that an earlier call has not
    fetched. Several processes may make the same call.

    Parameters
    ----------
    url : str
        The file; or, if it ends in "/", the prefix of the shards, of which those named ``*.beton`` are fetched, with
        the entry points beside them; with the last of them comes the index of all, if there is one. Of a web server,
        which has no list, those that ``index.json`` describes are fetched.
    folder : str or path
        The folder, which is made if it is missing.
    share : tuple of int and int, optional
        Part ``k`` of ``n``: every n-th shard from the k-th on, counted from 0, in the order of their names. A single
        file is that of part 0.
    remote : RemoteOptions, optional
        How the store is reached.
    on_progress : callable, optional
        Called with the bytes that are there and those of the file that is being fetched.

    Returns
    -------
    list of Fetched
        The files, in the order of their names.

    Raises
    ------
    OptionError
        If the share is not one.
    FormatError
        If a file is damaged, has another size than the index of its folder tells, or a shard is not named ``*.beton``.
    StorageError
        If a file cannot be read from the store or written, is replaced meanwhile, or differs from its checksums; if a
        file of its name is there that was not fetched.

    Examples
    --------
    A URL such as ``s3://bucket/train.beton`` is fetched like this file, which is on this machine:

    >>> [file] = fetch("train.beton", "data")
    >>> file.path.name, file.bytes == Path("train.beton").stat().st_size
    ('train.beton', True)
    """
    number, count = share
    if not 0 <= number < count:
        raise OptionError(f"share is {number} of {count}; expected k and n with 0 <= k < n, as SLURM_NODEID counts")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    if not url.endswith("/"):
        return [_fetch_one(url, target, remote, on_progress)] if number == 0 else []
    shards, sizes = _list(url, remote)
    for name in (shard.rpartition("/")[2] for shard in shards):
        if not name.endswith(".beton") or name.startswith("."):
            raise FormatError(f"{url}: a shard is named {name!r}; expected a name as train.beton, without a dot before")
    with_entries = (each for shard in shards[number::count] for each in (shard, index_path(shard)))
    found = [_fetch_one(each, target, remote, on_progress, sizes[each]) for each in with_entries if each in sizes]
    if all((target / shard.rpartition("/")[2]).exists() for shard in shards):
        manifest = (url + name for name in (COLUMNS, DESCRIPTION))
        found += [_fetch_one(each, target, remote, on_progress, sizes[each]) for each in manifest if each in sizes]
    return found


def _list(url: str, remote: RemoteOptions | None) -> tuple[Sequence[str], dict[str, int | None]]:
    """List the shards of a folder, and all its files; without a list of the store, with the sizes in its index."""
    try:
        return list_files(url, remote), dict.fromkeys(name for name, _, _ in list_objects(url, remote))
    except (OptionError, RemoteDeniedError):  # web servers; rights to read, but not to list
        with suppress(RemoteMissingError, RemoteDeniedError):
            try:
                manifest = StoredIndex(url + DESCRIPTION, url + COLUMNS, remote).manifest
            except FormatError as error:
                raise FormatError(f"{url}{DESCRIPTION}: {error}. Write it again: gpubeton index FOLDER") from error
            sizes: dict[str, int | None] = {url + COLUMNS: manifest.num_bytes, url + DESCRIPTION: None}
            for shard in manifest.shards:
                sizes[url + shard.name] = shard.size
                if shard.entry_place and shard.entry_place.beside:
                    sizes[index_path(url + shard.name)] = shard.entry_place.beside[0]
            return [url + shard.name for shard in manifest.shards], sizes
        raise


def _fetch_one(
    url: str,
    folder: Path,
    remote: RemoteOptions | None,
    on_progress: Callable[[int, int], object] | None,
    expected: int | None = None,  # bytes
) -> Fetched:
    """Fetch a file if its version is not there, and check it."""
    name = _without_query(url).rpartition("/")[2]
    if name in ("", ".", ".."):
        raise OptionError(f"{url}: this is not the name of a file; that of a folder ends in /")
    path = folder / name
    # Another process that fetches the same file waits here.
    with _locked(path) as record, open_bytes(url, remote=remote) as source:
        if expected is not None and source.size != expected:
            raise FormatError(
                f"{url}: the file has {source.size} bytes, expected {expected} as in the {DESCRIPTION} beside it. If "
                "it was replaced, write the index again: gpubeton index FOLDER"
            )
        key, recorded = source.identity().cache_key, read_at(record, 1 << 16, 0)
        if path.exists() and not recorded:
            raise StorageError(
                f"{path}: there is a file of this name that was not fetched, and it is not replaced. Move it, or fetch "
                "to another folder."
            )
        if key is not None and path.exists() and recorded == _record(path, key):
            with suppress(RemoteDamagedError, FormatError):  # since then; it is fetched again
                return Fetched(url, path, source.size, True, _check(url, path))
        version = blake2b((key or "").encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        work = path.with_name(f".{path.name}.{version}.fetching")
        of_any_version = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{16}}\.fetching")
        for other in folder.iterdir():
            if of_any_version.fullmatch(other.name) and (other != work or key is None):
                shutil.rmtree(other)
        try:
            _download(source, work, on_progress)
            compared = _check(url, work / "data")
        except (RemoteDamagedError, FormatError):
            shutil.rmtree(work)
            raise
        # Written first, and never empty: a process that is killed now has fetched what then has the name.
        recorded = _record(work / "data", key)
        write_some(record, recorded, 0)
        os.ftruncate(record, len(recorded))
        (work / "data").replace(path)
        shutil.rmtree(work)
        sync_folder(folder)
        return Fetched(url, path, source.size, False, compared)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Give the record of a fetched file, locked; `StorageError` where that cannot be done."""
    with ExitStack() as stack:
        try:
            record = stack.enter_context(locked_byte(path.with_name(f".{path.name}.fetched"), 0))
        except OSError as error:
            raise StorageError(
                error.errno,
                f"{path.parent}: files cannot be fetched here: {error}. It has to be a folder that this user may write "
                "to, on a file system that can lock parts of files, such as ext4 or XFS.",
            ) from error
        assert record is not None, "it was waited for"
        yield record


def _download(source: ByteSource, work: Path, on_progress: Callable[[int, int], object] | None) -> None:
    """Fetch the pages that are missing into a folder, as the cache does: each is there completely or not at all."""
    size, done = source.size, 0
    if not size:
        raise StorageError(f"{source.name}: it has no bytes; expected a complete file. Write it again.")

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if on_progress is not None:
            on_progress(done, size)

    try:
        make_object(work, size, PAGE_SIZE)
        file = CachedFile(source, work, PAGE_SIZE, _WholeDisk())
        CacheFiller([lambda: file], waits=True, on_page=advance).join()
        with (work / "data").open("rb") as data:
            os.fsync(data.fileno())
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            error.errno,
            f"{work}: {source.name}, {size} bytes, cannot be written here: {error.strerror}. The same command "
            "continues when there is room.",
        ) from error


class _WholeDisk:
    """Room for all pages of a file, or an error."""

    is_full = False

    def reserve(self, descriptor: int, start: int, size: int) -> bool:
        allocate(descriptor, start, size)
        return True

    def count(self, *, kept: int = 0, fetched: int = 0) -> None:
        pass

    def warn(self, error: OSError) -> None:
        raise error


def _check(url: str, path: Path) -> int:
    """Compare the regions of a file with their checksums; return how many have one."""
    if not _without_query(url).endswith(".beton"):
        return 0
    notes = read_notes(path)
    if notes is None or notes.checksums is None:
        return 0
    index, sums = Index.open(path), notes.checksums
    with index.files[0].open() as source, ThreadPoolExecutor(count_cores()) as pool:
        rows = range(0, len(sums), _REGIONS_AT_ONCE)

        def find_wrong(first: int) -> list[int]:
            part = index.allocations[first : first + _REGIONS_AT_ONCE]
            found = [zlib.crc32(source.load(int(row["ptr"]), int(row["size"]))) for row in part]
            samples: list[int] = part["sample_id"][
                np.array(found, np.uint32) != sums[first : first + len(part)]
            ].tolist()
            return samples

        wrong = sorted({sample for samples in pool.map(find_wrong, rows) for sample in samples})
    if wrong:
        raise RemoteDamagedError(
            f"{url}: the bytes of {len(wrong)} samples, the first is {wrong[0]}, differ from their checksums in "
            f"{path}. Fetch it again; if that does not help, the object in the store is damaged."
        )
    return len(sums)


def _without_query(url: str) -> str:
    """Cut off what asks a web server for a file; in the name of an object "?" is a character like others."""
    return url.partition("?")[0] if url.startswith(("http://", "https://")) else url


def _record(path: Path, key: str | None) -> bytes:
    """Describe a file that was fetched."""
    found = path.stat()
    return json.dumps({"version": key, "size": found.st_size, "mtime_ns": found.st_mtime_ns}).encode()
