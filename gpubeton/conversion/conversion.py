"""Conversion: makes a ``.beton`` file from a source, and goes on where it was interrupted."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton import __version__
from gpubeton.conversion.examined import Examined
from gpubeton.conversion.settings import Settings
from gpubeton.errors import NoSamplesError, OptionError, SampleError
from gpubeton.format.layout import metadata_dtype
from gpubeton.machine import count_cores
from gpubeton.writing.assembly import Assembly, describe
from gpubeton.writing.encoder import Encoder
from gpubeton.writing.processes import Processes, default_start_method
from gpubeton.writing.resumable_file import Finished, ResumableFile
from gpubeton.writing.tasks import Job, Placed, Task, TaskQueue

if TYPE_CHECKING:
    from gpubeton.conversion.source import Source
    from gpubeton.writing.extent import Extent, Refusal

__all__ = ["BadSource", "Conversion", "convert"]

#: Samples of a chunk: what is lost at most when a process is killed, times two for each process.
_CHUNK = 64

Progress = Callable[[int, int], object]
"""Called with the samples that are done, and with all of them."""


@dataclass(frozen=True)
class BadSource:
    """A sample of a source that could not be taken over.

    Parameters
    ----------
    name : str
        Where it comes from.
    reason : str
        What is wrong with it.

    Examples
    --------
    >>> BadSource("train/cat/7.jpg", "no image").name
    'train/cat/7.jpg'
    """

    name: str
    reason: str


@dataclass(frozen=True)
class Conversion:
    """What came of a conversion.

    Parameters
    ----------
    path : Path
        The file.
    samples : int
        Samples in it.
    resumed : int
        Samples of the source that an interrupted conversion had done before.
    bytes : int
        Size of the file.
    class_names : tuple of str or None
        Names of the classes, whose position is the label.
    skipped : list of BadSource
        Samples that were left out.
    passed_over : dict of str to int
        How many files of the source are no images by their names, or in no class, by their ending.
    began_anew : bool
        Whether an interrupted conversion by other settings, or of another source, was thrown away.
    changed : dict of str to int
        How many images are not what they were: "alpha" (transparency left out), "bits" (16 of a colour cut to 8),
        "colours" (made gray), "levels" (numbers of 1, 2 or 4 bits, or of PGM files, scaled to 255 or 65535), "palette"
        (its numbers kept, not its colours).

    Examples
    --------
    >>> from gpubeton.conversion import convert, open_source
    >>> made = convert(open_source("train"), "made.beton", num_workers=1)
    >>> made.samples, made.skipped
    (300, [])
    """

    path: Path
    samples: int
    resumed: int
    bytes: int
    class_names: tuple[str, ...] | None
    skipped: list[BadSource] = field(default_factory=list)
    passed_over: dict[str, int] = field(default_factory=dict)
    began_anew: bool = False
    changed: dict[str, int] = field(default_factory=dict)


def convert(
    source: Source,
    path: str | os.PathLike[str],
    settings: Settings | None = None,
    *,
    on_error: str = "raise",
    num_workers: int = -1,
    fresh: bool = False,
    start_method: str | None = None,
    on_progress: Progress | None = None,
) -> Conversion:
    """Make a ``.beton`` file from a source.

    Whatever interrupts it, the same call goes on where it was: what is finished is compared with its checksums and
    stays, unless its source has changed since. The file is the same, byte for byte, however often that happens and
    however many processes there are. Its notes hold the names of the classes, the settings, and a checksum of each
    region; ``Reader.notes`` gives them.

    Parameters
    ----------
    source : Source
        The samples, see `open_source`.
    path : str or path
        The file.
    settings : Settings, optional
        How they are stored.
    on_error : {"raise", "skip"}
        What happens to a sample that cannot be read or encoded.
    num_workers : int
        Number of processes; less than 1 means one for each core.
    fresh : bool
        Whether what an interrupted conversion has left is thrown away.
    start_method : {"fork", "forkserver", "spawn"}, optional
        How processes are started.
    on_progress : callable, optional
        Called with the samples done and all of them, now and then.

    Returns
    -------
    Conversion
        What came of it.

    Raises
    ------
    SampleError
        If a sample cannot be read or encoded, and `on_error` is "raise".
    NoSamplesError
        If there is none, or none is left.
    WriteError
        If the file cannot be written, or a process dies.

    Examples
    --------
    >>> from gpubeton.conversion import open_source
    >>> done = convert(open_source("photos"), "photos.beton", Settings(max_resolution=512))      # doctest: +SKIP
    """
    settings = settings or Settings()
    if on_error not in ("raise", "skip"):
        raise OptionError(f"on_error is {on_error!r}, expected 'raise' or 'skip'")
    chosen = _choose(len(source), settings)
    if not chosen:
        raise NoSamplesError(f"{os.fspath(path)}: the source has 0 samples, at least 1 is needed")
    work = _Work(source, Path(path), settings, chosen, skip=on_error == "skip")
    with ResumableFile(path, work.key, fresh=fresh) as file:
        return work.carry_out(file, num_workers, start_method or default_start_method(), on_progress or _ignore)


class _Work:
    """One conversion: what is written from what, and how far it is."""

    def __init__(self, source: Source, path: Path, settings: Settings, chosen: Sequence[int], *, skip: bool) -> None:
        self.source, self.path, self.settings, self.chosen, self.skip = source, path, settings, chosen, skip
        self.fields = settings.fields(dict(source.fields))
        self.row_size = metadata_dtype([each.metadata_type for each in self.fields.values()]).itemsize
        self.descriptors = describe(self.fields)
        self.key = _digest(
            [
                __version__,
                source.kind,
                repr(sorted(settings.to_dict().items())),
                repr(source.class_names),
                repr([(each.name, each.type_id) for each in self.descriptors]),
                str(len(chosen)),
                str(skip),
            ]
        )

    def carry_out(
        self, file: ResumableFile, num_workers: int, start_method: str | None, on_progress: Progress
    ) -> Conversion:
        total = len(self.chosen)
        kept, assembly = self._look_at_what_is_there(file, on_progress)
        resumed = done = kept[-1].task.stop if kept else 0
        unplaced = {}

        def place(task: Task, extent: Extent) -> Placed:
            placed = assembly.place(task, extent)
            unplaced[task.start] = extent, placed
            return placed

        def note(task: Task) -> None:
            nonlocal done
            extent, placed = unplaced.pop(task.start)
            rows = self._rows(assembly, placed, extent)
            file.note(Finished(task, extent, file.checksum(*rows), self._identity(task)))
            done += task.stop - task.start
            on_progress(done, total)

        on_progress(done, total)
        job = Job(
            Examined(self.source, self.settings),
            self.chosen,
            self.fields,
            self.settings.page_size,
            assembly.metadata_offset,
            os.fspath(file.temporary),
            skip=self.skip,
            checksums=True,
            remarks=True,
        )
        tasks = [Task(start, min(start + _CHUNK, total)) for start in range(done, total, _CHUNK)]
        workers = min(num_workers if num_workers >= 1 else count_cores(), len(tasks))
        try:
            with Encoder(job) if workers <= 1 else Processes(job, workers, start_method) as encoders:
                encoders.run(TaskQueue.of_single(tasks), place, note)
        except SampleError as error:
            raise type(error)(
                f"{self.source.name(error.sample)}: {error}. What is done is kept: mend it, or leave such samples out "
                "(on_error='skip'; --on-error skip of the command), and start again",
                error.sample,
            ) from error
        skipped = self._name(assembly.refused)
        if assembly.rows == 0:
            raise NoSamplesError(
                f"{self.path}: of {total} samples of the source none could be read. The first is "
                f"{skipped[0].name}: {skipped[0].reason}"
            )
        assembly.finish(self._notes(skipped))
        file.commit()
        size = self.path.stat().st_size
        return Conversion(
            self.path, assembly.rows, resumed, size, self.source.class_names, skipped, dict(self.source.passed_over),
            file.begins_anew, dict(sorted(assembly.remarks.items())),
        )  # fmt: skip

    def _look_at_what_is_there(self, file: ResumableFile, on_progress: Progress) -> tuple[list[Finished], Assembly]:
        """Keep the finished chunks that are whole, and whose samples are still the same."""
        assembly = self._new_assembly(file)
        kept: list[Finished] = []
        for chunk in file.finished():
            if chunk.task.stop > len(self.chosen) or chunk.identity != self._identity(chunk.task):
                break
            placed = assembly.place(chunk.task, chunk.extent)
            if not file.holds(chunk, placed, self._rows(assembly, placed, chunk.extent)):
                # It has been given a place already: begin anew with those before it.
                assembly = self._new_assembly(file)
                for before in kept:
                    assembly.place(before.task, before.extent)
                break
            kept.append(chunk)
            on_progress(chunk.task.stop, len(self.chosen))
        used = assembly.metadata_offset + assembly.rows * self.row_size
        unused = (len(self.chosen) - assembly.rows) * self.row_size
        file.begin(kept, assembly.end if kept else 0, (used, unused))
        return kept, assembly

    def _new_assembly(self, file: ResumableFile) -> Assembly:
        return Assembly(file, self.descriptors, self.row_size, self.settings.page_size, len(self.chosen))

    def _rows(self, assembly: Assembly, placed: Placed, extent: Extent) -> tuple[int, int]:
        return assembly.metadata_offset + placed.first_row * self.row_size, len(extent.counts) * self.row_size

    def _identity(self, task: Task) -> str:
        return _digest(self.source.identity(index) for index in self.chosen[task.start : task.stop])

    def _name(self, refused: Iterable[Refusal]) -> list[BadSource]:
        return [BadSource(self.source.name(each.index), _without_place(each.reason)) for each in refused]

    def _notes(self, skipped: Sequence[BadSource]) -> dict[str, Any]:
        notes: dict[str, Any] = {
            "made_by": f"gpubeton {__version__}",
            "source": self.source.kind,
            "settings": self.settings.to_dict(),
            "skipped": [{"name": each.name, "reason": each.reason} for each in skipped],
        }
        if self.source.class_names is not None:
            notes["class_names"] = list(self.source.class_names)
        return notes


def _ignore(done: int, total: int) -> None:
    del done, total


def _choose(count: int, settings: Settings) -> list[int]:
    order = np.random.default_rng(settings.seed).permutation(count) if settings.shuffle else np.arange(count)
    chosen: list[int] = order[: settings.limit].tolist()
    return chosen


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()


def _without_place(reason: str) -> str:
    """Leave out the sample's number from a reason: its name says more."""
    return reason.partition("the file)")[2].lstrip(":, ") or reason
