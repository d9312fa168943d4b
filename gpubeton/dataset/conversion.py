"""Conversion: make a ``.beton`` file from a source, and continue after an interruption."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton import __version__
from gpubeton._machine import worker_count
from gpubeton._sources import Source
from gpubeton._writing import (
    MAX_CHUNKSIZE,
    ChunkPlace,
    FileBuilder,
    FinishedChunk,
    Job,
    RegionSizes,
    ResumableFile,
    Task,
    TaskQueue,
    check_on_error,
    check_target,
    default_start_method,
    index_file,
    make_descriptors,
    open_encoders,
    split_rows,
    without_place,
)
from gpubeton.dataset.file_settings import Settings, choose_samples, fields_of, to_json
from gpubeton.dataset.validated_source import ValidatedSource
from gpubeton.errors import NoSamplesError, OptionError, SampleError
from gpubeton.format.layout import metadata_dtype, round_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpubeton._bytes import Progress


@dataclass(frozen=True)
class SkippedSample:
    """A sample of a source that could not be read or encoded. Made by `convert`."""

    name: str  #: its name in the source
    reason: str  #: the error


@dataclass(frozen=True)
class Conversion:
    """The result of a conversion. Made by `convert`."""

    path: Path  #: the file
    samples: int  #: samples in it
    resumed: int  #: samples of the source that an interrupted conversion had finished before
    bytes: int  #: size of the file
    class_names: tuple[str, ...] | None  #: names of the classes, whose position is the label
    skipped: list[SkippedSample] = field(default_factory=list)  #: samples that were left out
    #: How many files of the source are not images by their names, or in no class, by their ending.
    passed_over: dict[str, int] = field(default_factory=dict)
    #: Whether an interrupted conversion was discarded: its settings were others, or its source has changed since.
    began_anew: bool = False
    #: How many images have lost something: "alpha" (transparency left out), "bits" (16 of a color cut to 8), "colours"
    #: (made gray), "jpeg" (encoded as baseline JPEG: other formats, and progressive or CMYK JPEG files), "levels"
    #: (numbers of 1, 2 or 4 bits, or of PGM files, scaled to 255 or 65535), "palette" (its numbers kept, not its
    #: colors). And how many have an EXIF "orientation" that was ignored, were "turned" by it, or kept a GPS "position"
    #: in their metadata.
    changed: dict[str, int] = field(default_factory=dict)
    unused: tuple[str, ...] = ()  #: columns, or endings of files in tar files, that were not stored
    has_labels: bool = True  #: whether samples have labels, or other fields beside the image


def convert(
    source: Source,
    path: str | os.PathLike[str],
    settings: Settings | None = None,
    *,
    on_error: str = "raise",
    num_workers: int = -1,
    fresh: bool = False,
    overwrite: bool = False,
    start_method: str | None = None,
    on_progress: Progress | None = None,
    chunksize: int = 64,
) -> Conversion:
    """Make a ``.beton`` file from a source.

    After an interruption of any kind, the same call continues, also with another `on_error`: finished samples are
    compared with their checksums and kept. With other settings, or if samples of the source were added, removed,
    changed or have another order, it starts anew. The file is the same, byte for byte, with any number of interruptions
    and processes. Its notes, see ``Reader.notes``, hold the names of the classes, the settings, and a checksum of each
    region.

    Parameters
    ----------
    source : Source
        The samples, from `open_source`.
    path : str or path
        The file.
    settings : Settings, optional
        How they are stored.
    on_error : {"raise", "skip"}
        Whether a sample that cannot be read or encoded raises an error or is left out.
    num_workers : int
        Number of processes; less than 1 means one for each core.
    fresh : bool
        Whether to discard the result of an interrupted conversion.
    overwrite : bool
        Whether to replace a file that exists. A file that the source reads is never replaced.
    start_method : {"fork", "forkserver", "spawn"}, optional
        How processes are started.
    on_progress : callable, optional
        Called with the number of finished samples and of all samples, from time to time.
    chunksize : int
        Samples that a process encodes at a time, at most 256. An interruption loses up to two chunks of each process.

    Returns
    -------
    Conversion
        The result.

    Raises
    ------
    OptionError
        If the file exists, and `overwrite` is False, or the source reads it.
    SampleError
        If a sample cannot be read or encoded, and `on_error` is "raise".
    NoSamplesError
        If there are no samples, or all are left out.
    WriteError
        If the file cannot be written, or a process dies.

    Examples
    --------
    >>> from gpubeton.dataset import open_source
    >>> done = convert(open_source("train"), "made.beton", Settings(max_resolution=512), num_workers=1)
    >>> done.samples, done.skipped
    (300, [])
    """
    settings = settings or Settings()
    skip = check_on_error(on_error)
    if not 1 <= chunksize <= MAX_CHUNKSIZE:
        raise OptionError(f"chunksize is {chunksize}, expected 1 to {MAX_CHUNKSIZE}")
    check_target(path, source.input_files(), overwrite=overwrite)
    chosen = choose_samples(len(source), settings).tolist()
    if not chosen:
        raise NoSamplesError(f"{os.fspath(path)}: the source has 0 samples, at least 1 is needed")
    num_workers = worker_count(num_workers)
    run = _Run(source, Path(path), settings, chosen, num_workers, start_method, chunksize, skip=skip)
    with ResumableFile(path, run.key, fresh=fresh, overwrite=overwrite) as file:
        return run.write(file, on_progress or (lambda *_: None))


class _Run:
    """One conversion."""

    def __init__(
        self, source: Source, path: Path, settings: Settings, chosen: Sequence[int],
        num_workers: int, start_method: str | None, chunksize: int, *, skip: bool,
    ) -> None:  # fmt: skip
        self.source, self.path, self.settings, self.chosen, self.skip = source, path, settings, chosen, skip
        self.num_workers, self.chunksize = num_workers, chunksize
        # The library that reads object stores does not work after a fork.
        is_remote = any("://" in os.fspath(file) for file in source.input_files())
        self.start_method = start_method or ("forkserver" if is_remote else default_start_method())
        self.fields = fields_of(settings, dict(source.fields))
        self.row_size = metadata_dtype([field.metadata_type for field in self.fields.values()]).itemsize
        self.descriptors = make_descriptors(self.fields)
        # Entry points are found when all samples are there.
        stored = sorted((name, value) for name, value in to_json(settings).items() if name != "index")
        parts = (
            __version__,
            source.kind,
            str(len(chosen)),
            repr(stored),
            # Of samples that are known by their names only, labels would change unnoticed.
            repr(source.class_names if getattr(type(source), "identity", None) is Source.identity else None),
            repr([(descriptor.name, descriptor.type_id) for descriptor in self.descriptors]),
        )
        text = "".join(f"{part}\0" for part in parts)
        self.key = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        self.began_anew = False

    def write(self, file: ResumableFile, on_progress: Progress) -> Conversion:
        done, builder = self._resume(file, on_progress)
        on_progress(done, len(self.chosen))
        job = Job(
            ValidatedSource(self.source, self.settings),
            self.chosen,
            self.fields,
            self.settings.page_size,
            builder.metadata_offset,
            os.fspath(file.temporary),
            skip=self.skip,
            checksums=True,
            list_changes=True,
        )
        self._encode(job, file, builder, done, on_progress)
        name = self.source.name
        skipped = [SkippedSample(name(self.chosen[bad.row]), without_place(bad.reason)) for bad in builder.skipped]
        if builder.rows == 0:
            raise NoSamplesError(
                f"{self.path}: of {len(self.chosen)} samples of the source none could be read. The first is "
                f"{skipped[0].name}: {skipped[0].reason}"
            )
        index = partial(index_file, file.temporary, {}, file.write, num_workers=self.num_workers)
        changed = dict(sorted(builder.changes.items()))
        builder.finish(self._notes(skipped, changed), index if self.settings.index else None)
        file.commit()
        size = self.path.stat().st_size
        return Conversion(
            self.path, builder.rows, done, size, self.source.class_names, skipped, dict(self.source.passed_over),
            self.began_anew, changed, tuple(self.source.unused), bool(self.source.fields),
        )  # fmt: skip

    def _encode(self, job: Job, file: ResumableFile, builder: FileBuilder, done: int, on_progress: Progress) -> None:
        """Encode and write the samples from `done` on."""
        total = len(self.chosen)
        unwritten: dict[int, tuple[RegionSizes, ChunkPlace]] = {}
        identities: dict[int, tuple[bytes, ...]] = {}

        def tasks() -> Iterator[list[Task]]:
            for task in split_rows(done, total, self.chunksize):
                # Before they are read: a file that changes meanwhile is noticed after an interruption.
                identities[task.start] = self._identities(task)
                yield [task]

        def place(first: int, regions: RegionSizes) -> ChunkPlace:
            unwritten[first] = regions, builder.place(first, regions)
            return unwritten[first][1]

        def record(task: Task) -> None:
            nonlocal done
            regions, position = unwritten.pop(task.start)
            rows = self._rows(builder, position, regions)
            file.record(FinishedChunk(task, regions, file.checksum(*rows), identities.pop(task.start)))
            done += task.stop - task.start
            on_progress(done, total)

        workers = min(self.num_workers, -(-(total - done) // self.chunksize))
        try:
            with open_encoders(job, workers, self.start_method) as encoders:
                encoders.run(TaskQueue(tasks()), place, record)
        except SampleError as error:
            raise type(error)(
                f"{self.source.name(error.sample)}: {error}. Finished samples are kept: mend this one, or leave "
                "such samples out (on_error='skip'; --on-error skip of the command), and start again",
                error.sample,
            ) from error

    def _resume(self, file: ResumableFile, on_progress: Progress) -> tuple[int, FileBuilder]:
        """Keep the first finished chunks, as far as the file holds them; return the number of their samples."""
        total = len(self.chosen)
        chunks = self._usable(file)
        builder, count = self._new_builder(file), 0
        for chunk in chunks:
            place = builder.place(chunk.task.start, chunk.regions)
            if not file.holds(chunk, place, self._rows(builder, place, chunk.regions)):
                # It has a place already: begin again with the chunks before it.
                builder = self._new_builder(file)
                for before in chunks[:count]:
                    builder.place(before.task.start, before.regions)
                break
            count += 1
            on_progress(chunk.task.stop, total)
        used = builder.metadata_offset + builder.rows * self.row_size
        pages_start = round_up(builder.metadata_offset + total * self.row_size, self.settings.page_size)
        file.begin(chunks[:count], builder.end if count else 0, (used, pages_start - used))
        return chunks[count - 1].task.stop if count else 0, builder

    def _usable(self, file: ResumableFile) -> list[FinishedChunk]:
        """List the first finished chunks of the same samples; none if one of them has changed."""
        chunks = file.finished
        is_same = all(chunk.identities == self._identities(chunk.task) for chunk in chunks)
        self.began_anew = file.has_other_key or not is_same
        # Without `skip`, a bad sample raises its error again.
        return [] if self.began_anew else list(takewhile(lambda chunk: self.skip or not chunk.regions.skipped, chunks))

    def _new_builder(self, file: ResumableFile) -> FileBuilder:
        return FileBuilder(file, self.descriptors, self.row_size, self.settings.page_size, len(self.chosen))

    def _rows(self, builder: FileBuilder, place: ChunkPlace, regions: RegionSizes) -> tuple[int, int]:
        """Find the offset and the size of the metadata of a chunk."""
        return builder.metadata_offset + place.first_row * self.row_size, len(regions.counts) * self.row_size

    def _identities(self, task: Task) -> tuple[bytes, ...]:
        """Compute 16 bytes for each sample that change with it, and with all else that its encoded bytes depend on."""
        samples = self.chosen[task.start : task.stop]
        texts = (self.source.identity(sample).encode("utf-8", "surrogateescape") for sample in samples)
        return tuple(hashlib.blake2b(text, digest_size=16).digest() for text in texts)

    def _notes(self, skipped: Sequence[SkippedSample], changed: Mapping[str, int]) -> dict[str, Any]:
        notes: dict[str, Any] = {
            "made_by": f"gpubeton {__version__}",
            "source": self.source.kind,
            "settings": to_json(self.settings),
            "skipped": [vars(bad) for bad in skipped],
            **self.source.notes,
        }
        if self.source.class_names is not None:
            notes["class_names"] = list(self.source.class_names)
        if changed:
            notes["changed"] = changed
        return notes
