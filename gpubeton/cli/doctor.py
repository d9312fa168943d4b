"""Watch a training loop: over a file, over a given loader, or in a command."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._bytes.open_files import source_type
from gpubeton._machine import read_machine
from gpubeton.cli.advice import Measurements
from gpubeton.cli.environment import FilePlace, OtherPrograms, measure_disk, read_file_place, read_gpu
from gpubeton.cli.runs import image_field, run_loader, training_loader
from gpubeton.errors import FormatError, OptionError
from gpubeton.loader import Loader, LoaderStats
from gpubeton.loader.describe import LoaderInfo
from gpubeton.loader.stats import DOCTOR_VARIABLE
from gpubeton.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class LoopOptions:
    """A loop to watch; the options without a comment are those of `Loader`."""

    step_seconds: float = 0.0  # duration of a step, during which the CPU is idle
    seconds: float = 5.0  # how long the loop is watched
    size: int = 224  # side of the crops
    batch_size: int = 64
    num_workers: int = -1
    batches_ahead: int = 3
    os_cache: bool | None = None
    device: str = "cpu"
    field: str | None = None  # the field with images


def examine_file(path: str | os.PathLike[str], options: LoopOptions) -> Measurements:
    """Loop over a file with random crops, flips and normalization."""
    reader = Reader(path)
    field = image_field(reader, options.field)
    place = read_file_place(path)  # before the loop brings the file into the page cache
    make = partial(
        training_loader,
        path,
        reader,
        field,
        options.size,
        options.batch_size,
        num_workers=options.num_workers,
        os_cache=options.os_cache,
        batches_ahead=options.batches_ahead,
        device=options.device,
    )
    measured = examine_loader(make(), make(), options, places=(place,))
    if field is None or options.device != "cpu":
        return measured
    return replace(measured, augment_share=_augment_share(make(is_augmented=False), make(), options))


def examine_loader(
    rehearsal: Loader, loader: Loader, options: LoopOptions, places: tuple[FilePlace, ...] | None = None
) -> Measurements:
    """Loop over a loader; the rehearsal, an equal one, compiles first. Closes both."""
    # `places` were read before the rehearsal brought the files into memory.
    facts = loader._describe()  # noqa: SLF001  no method for users
    places = _places(facts) if places is None else places
    try:
        run_loader(rehearsal, seconds=0.0)
        others = OtherPrograms()
        run = run_loader(loader, seconds=options.seconds, step_seconds=options.step_seconds, is_recorded=True)
        other_cores = others.cores()
    finally:
        rehearsal.close()
        loader.close()
    measured = _measurements(run.stats, facts, places, is_measured=True)
    return replace(measured, other_cores=other_cores, timeline=run.timeline)


def examine_command(command: Sequence[str], *, seconds_to_end: float = 10.0) -> tuple[int, list[Measurements]]:
    """Run a command and watch its loaders until it ends or Ctrl-C; returns its exit code and a result per loader."""
    with tempfile.TemporaryDirectory() as folder:
        # Its output goes to stderr: stdout is for the result of `gpubeton doctor`.
        running = subprocess.Popen(command, env={**os.environ, DOCTOR_VARIABLE: folder}, stdout=sys.stderr)
        try:
            code = running.wait()
        except KeyboardInterrupt:
            code = _ended(running, seconds_to_end)
            # Ctrl-C may end a long training early: its results so far count.
            if not (loops := _read_loops(Path(folder))):
                raise
            return code, loops
        return code, _read_loops(Path(folder))


def _read_loops(folder: Path) -> list[Measurements]:
    """Read what the loaders of a command wrote, the longest loop first."""
    loops = []
    for path in folder.glob("*.json"):
        numbers = json.loads(path.read_text(encoding="utf-8"))
        stats, facts = LoaderStats.from_dict(numbers["total"]), LoaderInfo.from_dict(numbers["info"])
        loops.append(_measurements(stats, facts, _places(facts), is_measured=False))
    return sorted(loops, key=lambda loop: -loop.stats.seconds)


def _ended(running: subprocess.Popen[bytes], seconds_to_end: float) -> int:
    """Wait for a command that also received Ctrl-C; terminate it if it does not end."""
    try:
        return running.wait(seconds_to_end)
    except subprocess.TimeoutExpired:
        running.terminate()
    try:
        return running.wait(seconds_to_end)
    except subprocess.TimeoutExpired:
        running.kill()
        return running.wait()


def make_loader(path: str) -> Loader:
    """Import and call a user's ``module:function`` that makes a loader."""
    module, _, name = path.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        loader: Any = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"--loader is {path!r}; expected module:function, and {error}") from error
    loader = getattr(loader, "loader", loader)  # unwrap a DataLoaderAdapter
    if not isinstance(loader, Loader):
        raise OptionError(f"--loader: {path} returned {type(loader).__name__}, expected a Loader")
    return loader


def _augment_share(plain: Loader, full: Loader, options: LoopOptions) -> float:
    """Return the share of the processor time of an image that augmenting takes."""
    rates = []
    for loader in (plain, full):
        rates.append(run_loader(loader, seconds=options.seconds / 4).images_per_cpu_second)
        loader.close()
    return 0.0 if not rates[0] else max(0.0, 1 - rates[1] / rates[0])


def _exists(path: str) -> bool:
    try:
        source_type(path).find_identity(path)
    except (OSError, FormatError):
        return False
    return True


def _places(facts: LoaderInfo) -> tuple[FilePlace, ...]:
    return tuple(read_file_place(path) for path in facts.files if _exists(path))


def _measurements(
    stats: LoaderStats, facts: LoaderInfo, places: tuple[FilePlace, ...], *, is_measured: bool
) -> Measurements:
    speed = measure_disk(places[0].path, seconds=0.5).cold_bytes_per_second if is_measured and places else None
    return Measurements(stats, facts, read_machine(), places, read_gpu(), speed)
