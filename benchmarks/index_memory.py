"""Measure the memory that an index keeps, and the time to open it: from the files, and by a manifest.

    python -m benchmarks.index_memory --samples 100000000 --files 1000

The files are sparse, and all of a folder are links to one. Each way runs in a separate process.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from benchmarks.results import RESULTS
from benchmarks.sparse_file import write_sparse_beton
from benchmarks.table import save_and_draw

if TYPE_CHECKING:
    from gpubeton.loader.schedule import OrderName

_ROOT = Path(__file__).resolve().parent.parent
_REGION = 20_000  # bytes of an image


def main(
    samples: Annotated[int, typer.Option(min=1, help="Number of samples.")] = 10_000_000,
    files: Annotated[int, typer.Option(min=1, help="Number of files that hold them.")] = 100,
    folder: Annotated[Path | None, typer.Option(help="Folder for the files. Default: a temporary one.")] = None,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Measure the memory that an index keeps, and the time to open it."""
    console = Console()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        shards = Path(place) / "shards"
        shards.mkdir()
        (Path(place) / "warm" / "shards").mkdir(parents=True)
        write_sparse_beton(Path(place) / "warm" / "shards" / "small.beton", 10_000, _REGION)
        write_sparse_beton(Path(place) / "shard.beton", samples // files, _REGION)
        for number in range(files):
            (shards / f"{number:05}.beton").symlink_to(Path(place) / "shard.beton")
        runs = []
        for way in _WAYS:
            with console.status(way):
                command = [sys.executable, "-m", "benchmarks.index_memory", way, place]
                done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
            runs.append({"way": way, **json.loads(done.stdout)})
            console.print(runs[-1])
        columns = (shards / "index.bin").stat().st_size
    measured = {"samples": samples, "files": files, "shared_bytes": columns, "runs": runs}
    save_and_draw("index_memory", measured, results, console)


def measure(way: str, place: Path) -> dict[str, Any]:
    """Go one way in this process; give bytes of its private memory, those that stay and the most, and seconds."""
    act = _WAYS[way]
    act(place / "warm")  # imports and compilations
    before = _own_memory()
    Path("/proc/self/clear_refs").write_text("5")  # reset the recorded peak
    start, start_cpu = time.perf_counter(), time.process_time()
    result = act(place)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    after, peak = _own_memory(), _status("VmHWM") - _status("RssFile") - before
    del result
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "kept_bytes": after - before, "peak_bytes": peak}


def _own_memory() -> int:
    """Bytes that this process shares with no other."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return _status("RssAnon")


def _status(name: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def _open_files(place: Path) -> object:
    from gpubeton.fields.registry import open_index

    return open_index(sorted(map(str, (place / "shards").glob("*.beton"))))


def _write_manifest(place: Path) -> object:
    from gpubeton.dataset import index_shards

    return index_shards(place / "shards")


def _open_folder(place: Path) -> object:
    from gpubeton.fields.registry import open_index

    return open_index(str(place / "shards"))


def _load(place: Path, order: OrderName, ranks: int = 1) -> object:
    from gpubeton._plan.places import Rank
    from gpubeton.loader import Loader

    loader = Loader(place / "shards", 256, order=order, seed=0, pipelines={"image": None})
    if ranks > 1:  # without a process group
        loader.traversal_order.rank = Rank(ranks // 2, ranks)
        loader.traversal_order.for_ranks = loader.traversal_order.for_ranks is not None or None
    batches = loader.plan().batches
    batches.samples(len(batches) // 2)
    loader.state_dict()
    return loader, batches


_WAYS: dict[str, Callable[[Path], object]] = {
    "files, one by one": _open_files,
    "writing the manifest": _write_manifest,
    "manifest, all checked": _open_folder,
    "loader and state, SEQUENTIAL": lambda place: _load(place, "sequential"),
    "loader and state, RANDOM": lambda place: _load(place, "random"),
    "loader and state, WINDOW": lambda place: _load(place, "window"),
    "loader and state, RANDOM, rank of 8": lambda place: _load(place, "random", 8),
    "loader and state, WINDOW, rank of 8": lambda place: _load(place, "window", 8),
}


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in _WAYS:
        print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
    else:
        typer.run(main)
