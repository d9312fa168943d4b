"""Examining a loop: with a step of a given length, or the loop of a command or of someone who is running."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton.diagnosis.disk import measure_disk
from gpubeton.diagnosis.file_place import FilePlace, read_file_place
from gpubeton.diagnosis.gpu_state import read_gpu
from gpubeton.diagnosis.laps import long_indices, run_lap
from gpubeton.diagnosis.pipelines import image_field, pipelines_for
from gpubeton.diagnosis.reading import Reading
from gpubeton.diagnosis.stats_lines import read_stats
from gpubeton.errors import OptionError
from gpubeton.loader import Loader, LoaderStats, OrderOption
from gpubeton.loader.facts import LoaderFacts, facts_of
from gpubeton.loader.stats_log import STATS_VARIABLE
from gpubeton.machine import read_machine
from gpubeton.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LoopOptions", "examine_command", "examine_file", "examine_loader", "examine_log", "made_loader"]

_SECONDS_TO_END = 10.0


@dataclass(frozen=True)
class LoopOptions:
    """A loop over a file.

    Parameters
    ----------
    step_seconds : float
        How long its step takes. The processor is left alone meanwhile, as by a step on a GPU.
    seconds : float
        How long the loop is watched.
    size : int
        Side of the crops in pixels.
    batch_size, num_workers, batches_ahead : int
        As for `Loader`.
    os_cache : bool or None
        As for `Loader`.
    device : str
        As for `Loader`.
    field : str, optional
        The field with images.
    """

    step_seconds: float = 0.0
    seconds: float = 5.0
    size: int = 224
    batch_size: int = 64
    num_workers: int = -1
    batches_ahead: int = 3
    os_cache: bool | None = None
    device: str = "cpu"
    field: str | None = None


def examine_file(path: str | os.PathLike[str], options: LoopOptions) -> Reading:
    """Loop over a file with random crops, flips and normalising, and a step.

    Parameters
    ----------
    path : str or path
        The file.
    options : LoopOptions
        The loop.

    Returns
    -------
    Reading
        For `advise`.

    Raises
    ------
    FormatError, OSError, DeviceError
        If the file or the device cannot be used.
    """
    reader = Reader(path)
    field = image_field(reader, options.field)
    batch_size = min(options.batch_size, reader.num_samples)
    place = read_file_place(path)  # before the loop brings the file into memory

    def make(*, is_augmented: bool = True) -> Loader:
        return Loader(
            path,
            batch_size,
            options.num_workers,
            options.os_cache,
            OrderOption.RANDOM,
            seed=0,
            indices=long_indices(reader.num_samples, batch_size),
            pipelines=pipelines_for(reader, field, options.size, is_augmented=is_augmented),
            batches_ahead=options.batches_ahead,
            device=options.device,
            on_error="skip",
        )

    reading = examine_loader(make(), make(), options, places=(place,))
    if field is None or options.device != "cpu":
        return reading
    return replace(reading, augment_share=_augment_share(make(is_augmented=False), make(), options))


def examine_loader(
    rehearsal: Loader, loader: Loader, options: LoopOptions, places: tuple[FilePlace, ...] | None = None
) -> Reading:
    """Loop over a loader with a step.

    Parameters
    ----------
    rehearsal : Loader
        One like it, that compiles what has to be compiled; closed afterwards.
    loader : Loader
        The loader; closed afterwards.
    options : LoopOptions
        The loop.
    places : tuple of FilePlace, optional
        Where its files were before the rehearsal.

    Returns
    -------
    Reading
        For `advise`.
    """
    facts = facts_of(loader)
    places = _places(facts) if places is None else places
    try:
        run_lap(rehearsal, seconds=0.0)
        stats = run_lap(loader, seconds=options.seconds, step_seconds=options.step_seconds).stats
    finally:
        rehearsal.close()
        loader.close()
    return _reading(stats, facts, places, is_measured=True)


def examine_log(path: str | os.PathLike[str]) -> list[Reading]:
    """Look at loops that write, or have written, their statistics because GPUBETON_STATS names a file.

    Parameters
    ----------
    path : str or path
        That file.

    Returns
    -------
    list of Reading
        One for each loader, the one with the most time first.

    Raises
    ------
    FormatError, OSError
        If it cannot be read.
    """
    return [_reading(stats, facts, _places(facts), is_measured=False) for facts, stats in read_stats(path)]


def examine_command(command: Sequence[str]) -> tuple[int, list[Reading]]:
    """Run a command, and look at the loops of all loaders in it: to its end, or until Ctrl-C.

    Parameters
    ----------
    command : sequence of str
        The command with its arguments, such as ``["python", "train.py"]``.

    Returns
    -------
    tuple of int and list of Reading
        Its exit code, and a reading for each loader.

    Raises
    ------
    OSError
        If there is no such command.
    KeyboardInterrupt
        If it came before any loader had written anything.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "stats.jsonl"
        # What it prints is not the result of this command.
        running = subprocess.Popen(command, env={**os.environ, STATS_VARIABLE: str(log)}, stdout=sys.stderr)
        try:
            code = running.wait()
        except KeyboardInterrupt:
            code = _ended(running)
            # Whoever has seen enough of a long training wants to know what was seen.
            if not log.exists():
                raise
        return code, examine_log(log) if log.exists() else []


def _ended(running: subprocess.Popen[bytes]) -> int:
    """Wait for a command that a terminal has sent Ctrl-C, too; end it if it was not, or does not listen."""
    try:
        return running.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        running.terminate()
    try:
        return running.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        running.kill()
        return running.wait()


def made_loader(where: str) -> Loader:
    """Call a user's function that makes a loader.

    Parameters
    ----------
    where : str
        "module:function"; the module may stand in the current folder.

    Returns
    -------
    Loader
        What it returned.

    Raises
    ------
    OptionError
        If there is no such function, or it returns something else.
    """
    module, _, name = where.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        loader: Any = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"--loader is {where!r}; expected module:function, and {error}") from error
    loader = getattr(loader, "loader", loader)  # an adapter's
    if not isinstance(loader, Loader):
        raise OptionError(f"--loader: {where} returned {type(loader).__name__}, expected a Loader")
    return loader


def _augment_share(plain: Loader, full: Loader, options: LoopOptions) -> float:
    """Share of the processor's time that an image takes less if it is not augmented."""
    rates = []
    for loader in (plain, full):
        rates.append(run_lap(loader, seconds=options.seconds / 4).images_per_cpu_second)
        loader.close()
    return 0.0 if not rates[0] else max(0.0, 1 - rates[1] / rates[0])


def _places(facts: LoaderFacts) -> tuple[FilePlace, ...]:
    return tuple(read_file_place(path) for path in facts.files if Path(path).exists())


def _reading(stats: LoaderStats, facts: LoaderFacts, places: tuple[FilePlace, ...], *, is_measured: bool) -> Reading:
    speed = measure_disk(places[0].path, seconds=0.5).cold_bytes_per_second if is_measured and places else None
    return Reading(stats, facts, read_machine(), places, read_gpu(), speed)
