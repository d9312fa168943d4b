"""Time a loader over a web server beside one over a local file, in alternation: speed, processor time, requests.

    python -m benchmarks.remote

The server is nginx on this machine, in a process that has the same cores. Writes a file into benchmarks/results
and draws its table in benchmarks/README.md. "local" is the mapped file; "cache" is an epoch from `cache_dir`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.contenders.gpubeton_remote import RemoteWork
from benchmarks.contenders.process import LineProcess
from benchmarks.harness.photos import PhotoSet, list_photos, write_photos
from benchmarks.harness.timing import race
from benchmarks.harness.web_server import WebServer, serving
from benchmarks.results import RESULTS
from benchmarks.sparse_file import write_jpeg_beton
from benchmarks.table import save_and_draw
from gpubeton._machine import count_cores

KINDS = ("local", "HTTP", "HTTPS", "cache")
_MOST_WARM_UPS = 10  # epochs before the timed ones
_QUALITY = 97  # of photos of ImageNet's mean size, 110 kB: 75 of them fill a page
_PHOTOS = 78


def main(
    images: Annotated[int, typer.Option(min=256, help="Number of images.")] = 6144,
    rounds: Annotated[int, typer.Option(min=1, help="Timed epochs of each kind.")] = 5,
    streams: Annotated[int, typer.Option(min=1, help="Streams of the window order.")] = 8,
    width: Annotated[int, typer.Option(min=1, help="Pages that a stream mixes.")] = 4,
    folder: Annotated[Path | None, typer.Option(help="Folder for the files. Default: a temporary one.")] = None,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Time a loader over a web server beside one over a local file."""
    console = Console()
    races = []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        root = Path(place) / "root"
        root.mkdir()
        with console.status(f"Writing {images} photos"):
            photos = Path(place) / "photos"
            write_photos(photos, PhotoSet(_PHOTOS, (_QUALITY, _QUALITY)))
            write_jpeg_beton(root / "train.beton", images, [path.read_bytes() for path, _ in list_photos(photos)])
        with serving(root, Path(place) / "nginx") as server:
            # With a thread less than there are cores one is free to receive.
            for workers in sorted({max(count_cores() - 1, 1), count_cores()}):
                work = RemoteWork(str(root / "train.beton"), workers, streams, width)
                races.append(run_race(console, server, _works(server, work, Path(place) / "cache"), rounds))
        size = (root / "train.beton").stat().st_size
    save_and_draw("remote", {"images": images, "file_bytes": size, "races": races}, results, console)


def _works(server: WebServer, work: RemoteWork, cache: Path) -> dict[str, RemoteWork]:
    """Give the work of each kind; the cache is empty."""
    shutil.rmtree(cache, ignore_errors=True)
    http, https = f"{server.http}/train.beton", f"{server.https}/train.beton"
    kinds = {
        "local": work,
        "HTTP": replace(work, beton=http),
        "HTTPS": replace(work, beton=https),
        "cache": replace(work, beton=http, cache_dir=str(cache)),
    }
    return {kind: kinds[kind] for kind in KINDS}


def run_race(console: Console, server: WebServer, works: dict[str, RemoteWork], rounds: int) -> dict[str, Any]:
    """Run epochs of all kinds in alternation."""
    environment = {**os.environ, "SSL_CERT_FILE": str(server.certificate)}
    command = [sys.executable, "-m", "benchmarks.contenders.gpubeton_remote"]
    with ExitStack() as stack:
        running: dict[str, LineProcess] = {}
        opened: dict[str, dict[str, Any]] = {}
        for kind, work in works.items():
            with console.status(f"{work.workers} threads, {kind}: opening, compiling and an epoch"):
                running[kind] = stack.enter_context(LineProcess(kind, command, environment=environment))
                opened[kind] = json.loads(running[kind].ask(json.dumps(asdict(work))))
                warm = _lap(server, running[kind])
                # From its second epoch on, an epoch asks for the beginning of the next. A cache may need some more,
                # until the pages that no sample is in have come in the background.
                for _ in range(_MOST_WARM_UPS):
                    if not (_lap(server, running[kind])["served_requests"] and work.cache_dir):
                        break
            console.print(f"{work.workers} threads, {kind}: {_described(warm)}")
            if work.cache_dir:
                opened[kind]["first_epoch"] = warm

        laps = race({kind: partial(_lap, server, contender) for kind, contender in running.items()}, rounds)
        for kind, own_laps in laps.items():
            check_counts(kind, own_laps)
    for kind, own_laps in laps.items():
        console.print(f"{work.workers} threads, {kind}: {_described(own_laps[-1])}")
    kinds = {kind: {**opened[kind], "laps": lap} for kind, lap in laps.items()}
    work = next(iter(works.values()))
    return {"workers": work.workers, "streams": work.streams, "width": work.width, "kinds": kinds}


def _lap(server: WebServer, process: LineProcess) -> dict[str, Any]:
    """Run an epoch; return its figures, and what the server answered meanwhile: for the next epoch, too."""
    before, began = server.traffic(), server.cpu_seconds()
    figures: dict[str, Any] = json.loads(process.ask("lap"))
    taken, served = server.cpu_seconds() - began, server.traffic() - before
    counts = {"served_requests": served.requests, "served_bytes": served.sent_bytes}
    return {**figures, **counts, "server_cpu_seconds": taken}


def check_counts(kind: str, laps: list[dict[str, Any]]) -> None:
    """Refuse a loader's counts that the server's contradict."""
    counted = sum(lap["requests"] for lap in laps)
    served = sum(lap["served_requests"] for lap in laps)
    # The first lap got parts that were asked for before it, the last one asked for parts of the next: at most all.
    if abs(served - counted) > max(lap["requests"] for lap in laps):
        raise RuntimeError(f"{kind}: the loader counted {counted} requests in {len(laps)} epochs, the server {served}")


def _described(lap: dict[str, Any]) -> str:
    speed, requests = lap["images"] / lap["wall_seconds"], 1000 * lap["requests"] / lap["images"]
    cpu = 1000 * lap["cpu_seconds"] / lap["images"]
    return f"{speed:,.0f} images/s, {cpu:.2f} CPU s and {requests:.1f} requests for each 1000"


if __name__ == "__main__":
    typer.run(main)
