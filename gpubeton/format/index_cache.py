"""IndexCache: indices of datasets in a directory of a machine, as pairs of files that its processes map."""

from __future__ import annotations

import os
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from gpubeton.errors import FormatError, StorageError
from gpubeton.files.byte_locks import locked_byte
from gpubeton.files.cached_file import boot_tag
from gpubeton.files.local_file import FileIdentity
from gpubeton.files.node_cache import make_directory, unusable
from gpubeton.files.open_files import find_identity, open_bytes
from gpubeton.format.compact_index import BLOCK
from gpubeton.format.manifest import FORMAT, NUM_THREADS, Shard, StoredIndex, write_file, write_pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpubeton.files.byte_source import ByteSource, SourceIdentity
    from gpubeton.files.remote_options import RemoteOptions
    from gpubeton.format.index import Index

_MIN_CACHED = 1 << 20  # bytes of columns that are worth two files
_MAX_AGE = 30 * 86400  # seconds after which a cache forgets what no process has opened


class IndexCache:
    """Indices in a directory of this machine, which its processes map: one copy for all of them."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._folder = Path(directory) / "indexes"
        make_directory(Path(directory), self._folder)

    def find(
        self, paths: Sequence[str], remote: RemoteOptions | None = None, folders: Iterable[StoredIndex] = ()
    ) -> StoredIndex | None:
        """Find the index of some files as they are now; None if there is none, or it is damaged."""
        there = {
            file[0]: (file[1], place)
            for each in folders
            for file, place in zip(each.files, each.entry_places, strict=True)
        }
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            states = list(threads.map(lambda path: there.get(path) or (find_identity(path, remote), None), paths))
        identities = [identity for identity, _ in states]
        key = _key(paths, identities)
        if key is None:
            return None
        try:
            found = StoredIndex(str(self._folder / f"{key}.json"), str(self._folder / f"{key}.bin"))
        except (OSError, FormatError):
            return None
        found.files, found.entry_places = list(zip(paths, identities, strict=True)), [place for _, place in states]
        with suppress(OSError):
            os.utime(self._folder / f"{key}.json")
        return found if len(found.manifest.shards) == len(paths) else None

    def keep(self, index: Index) -> bool:
        """Write the index of files that were just opened, if it is large; return whether it was."""
        key = _key([file.path for file in index.files], [file.identity for file in index.files])
        if key is None or sum(own.nbytes for own in index.rows) < _MIN_CACHED:
            return False
        self._forget()
        shards = tuple(
            Shard(Path(file.path).name, file.size, file.num_samples, file.page_size, None, None, 0, None)
            for file in index.files
        )
        try:
            write_pair(self._folder, key, index, shards)
        except OSError as error:
            self._warn(error)
            return False
        return True

    def _warn(self, error: OSError) -> None:
        warnings.warn(
            f"{self._folder}: the index cannot be kept here: {error}. Each process reads it from the files. Check the "
            "free space and the rights of the directory.",
            stacklevel=2,
        )

    @contextmanager
    def lock(self, paths: Sequence[str]) -> Iterator[None]:
        """Let one process at a time open some files: the next ones find its result."""
        # Without locks, several processes make the same files at once, each under another name at first.
        with ExitStack() as stack:
            try:
                place = zlib.crc32("\0".join(paths).encode())
                stack.enter_context(locked_byte(self._folder / "lock", place, is_needed=False))
            except OSError as error:
                raise unusable(self._folder.parent, error) from error
            yield

    def copy_of(self, source: ByteSource, description: bytes, *, is_damaged: bool = False) -> ByteSource:
        """Copy columns into the directory, unless they are there; open the copy, or the source if the disk fails."""
        stem = self._folder / blake2b(description, digest_size=16).hexdigest()
        columns = stem.with_suffix(".bin")
        try:
            with locked_byte(self._folder / "lock", 1 << 32, is_needed=False):
                if is_damaged or not columns.exists() or columns.stat().st_size != source.size:
                    self._forget()
                    write_file(columns, _load_blocks(source))
                stem.with_suffix(".json").write_bytes(description)  # its time is that of the last use
            return open_bytes(columns)
        except StorageError:  # of the source
            raise
        except OSError as error:
            self._warn(error)
            return source

    def is_checked(self, key: str) -> bool:
        """Whether a process of this boot has checked some columns, and found them right."""
        mark = self._folder / f"{key}.checked"
        try:
            is_checked = mark.read_text() == str(boot_tag())
            os.utime(mark)
        except OSError:
            return False
        return is_checked

    def mark_checked(self, key: str) -> None:
        """Let other processes know that some columns are right."""
        with suppress(OSError):  # the next process checks them again
            write_file(self._folder / f"{key}.checked", [str(boot_tag()).encode()])

    def _forget(self) -> None:
        """Remove what no process has opened for a month."""
        with suppress(OSError):
            used: dict[str, float] = {}
            for path in self._folder.glob("*.*"):
                used[path.stem] = max(used.get(path.stem, 0), path.stat().st_mtime)
            for path in self._folder.glob("*.*"):
                if used[path.stem] < time.time() - _MAX_AGE:
                    path.unlink()


def _load_blocks(source: ByteSource) -> Iterator[memoryview]:
    """Read a file from its start to its end, some blocks at a time."""
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        for first in range(0, source.size, NUM_THREADS * BLOCK):
            starts = range(first, min(first + NUM_THREADS * BLOCK, source.size), BLOCK)
            yield from threads.map(lambda at: source.load(at, min(BLOCK, source.size - at)), starts)


def _key(paths: Sequence[str], identities: Sequence[SourceIdentity]) -> str | None:
    """Hash what identifies the states of some files; None if nothing does, as of an object without a strong ETag."""
    if not all(identity.cache_key or isinstance(identity, FileIdentity) for identity in identities):
        return None
    named = [path if "://" in path else str(Path(path).absolute()) for path in paths]
    states = [identity.cache_key or repr(identity) for identity in identities]
    return blake2b(repr([FORMAT, named, states]).encode(), digest_size=16).hexdigest()
