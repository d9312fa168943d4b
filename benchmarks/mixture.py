"""Time a mixture of four files of a web server beside the same files alone, in alternation: speed and requests.

    python -m benchmarks.mixture

An epoch of the mixture is one pass of each file. Alone, each file has its share of the streams, as in the mixture. The
server is nginx on this machine, in a process that has the same cores. Writes a file into benchmarks/results.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.contenders.gpubeton_remote import RemoteWork, make_loader
from benchmarks.harness.photos import PhotoSet, list_photos, write_photos
from benchmarks.harness.timing import Lap, race, ratios, time_lap
from benchmarks.harness.web_server import serving
from benchmarks.results import RESULTS, save
from benchmarks.sparse_file import write_jpeg_beton
from gpubeton._machine import count_cores
from gpubeton.loader import Loader, Mixture

SHARES = (0.4, 0.3, 0.2, 0.1)
_PHOTOS, _QUALITY = 78, 97  # as in `benchmarks.remote`


def main(
    images: Annotated[int, typer.Option(min=256, help="Number of images.")] = 12288,
    rounds: Annotated[int, typer.Option(min=1, help="Timed epochs of each kind.")] = 5,
    streams: Annotated[int, typer.Option(min=1, help="Streams of the window order, of all files.")] = 10,
    width: Annotated[int, typer.Option(min=1, help="Pages that a stream mixes.")] = 4,
    folder: Annotated[Path | None, typer.Option(help="Folder for the files. Default: a temporary one.")] = None,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Time a mixture of files of a web server beside the files alone."""
    console, counts = Console(), [round(images * share) for share in SHARES]
    with tempfile.TemporaryDirectory(dir=folder) as place, ExitStack() as stack:
        root = Path(place) / "root"
        root.mkdir()
        write_photos(Path(place) / "photos", PhotoSet(_PHOTOS, (_QUALITY, _QUALITY)))
        photos = [path.read_bytes() for path, _ in list_photos(Path(place) / "photos")]
        for number, count in enumerate(counts):
            write_jpeg_beton(root / f"{number}.beton", count, photos)
        server = stack.enter_context(serving(root, Path(place) / "nginx"))
        urls = [f"{server.http}/{number}.beton" for number in range(len(counts))]
        mixture: Any = Mixture(dict(zip(urls, counts, strict=True)))
        make = partial(RemoteWork, workers=max(count_cores() - 1, 1), width=width)
        works = {
            "mixture": [make(mixture, streams=streams)],
            "alone": [
                make(url, streams=max(round(streams * share), 1)) for url, share in zip(urls, SHARES, strict=True)
            ],
        }
        loaders = {
            kind: [stack.enter_context(make_loader(work)) for work in of_kind] for kind, of_kind in works.items()
        }
        for of_kind in loaders.values():  # compiles, and the first pages of the next epoch are asked for from then on
            _lap(of_kind)
        laps = race({kind: partial(_lap, of_kind) for kind, of_kind in loaders.items()}, rounds)
    for kind, timed in laps.items():
        requests = statistics.median(counted["requests_per_1000"] for _, counted in timed)
        rate = statistics.median(lap.images_per_second for lap, _ in timed)
        console.print(f"{kind}: {rate:,.0f} images/s, {requests:.2f} requests for each 1000")
    rates = ratios(*([lap for lap, _ in laps[kind]] for kind in ("mixture", "alone")))
    console.print(f"mixture / alone: {statistics.median(rates):.3f} ({min(rates):.3f} to {max(rates):.3f})")
    kinds = {kind: [{**asdict(lap), **counted} for lap, counted in timed] for kind, timed in laps.items()}
    measured = {"images": sum(counts), "streams": streams, "width": width, "kinds": kinds, "ratios": rates}
    console.print(f"Written: {save('mixture', measured, results)}", soft_wrap=True)


def _lap(loaders: Sequence[Loader]) -> tuple[Lap, dict[str, float]]:
    """Run an epoch of each loader, one after the other."""
    lap = time_lap(lambda: sum(len(images) for loader in loaders for images, _ in loader))
    stats = [loader.stats() for loader in loaders]
    requests = sum(part.requests for part in stats)
    return lap, {
        "requests": requests,
        "requests_per_1000": 1000 * requests / lap.images,
        "fetched_per_used": sum(part.fetched_bytes for part in stats) / sum(part.stored_bytes for part in stats),
    }


if __name__ == "__main__":
    typer.run(main)
