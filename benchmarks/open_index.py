"""Time opening a .beton file of the size of ImageNet.

The file is sparse: header, metadata and allocation table are real, the images are holes.

    python -m benchmarks.open_index
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.results import RESULTS
from benchmarks.sparse_file import write_sparse_beton
from benchmarks.table import save_and_draw
from gpubeton.format.dataset import open_dataset
from gpubeton.loader import Loader, OrderOption


def main(
    samples: Annotated[int, typer.Option(min=1, help="Number of samples.")] = 1_300_000,
    image_bytes: Annotated[int, typer.Option(min=1, help="Bytes of each image.")] = 110_000,
    repeats: Annotated[int, typer.Option(min=1, help="How often each way is timed.")] = 7,
    folder: Annotated[Path | None, typer.Option(help="Folder for the file. Default: a temporary one.")] = None,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Time opening a .beton file of the size of ImageNet."""
    console = Console()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        in_order, mixed = Path(place) / "in-order.beton", Path(place) / "mixed.beton"
        with console.status(f"Writing two sparse files of {samples:,} samples"):
            write_sparse_beton(in_order, samples, image_bytes)
            write_sparse_beton(mixed, samples, image_bytes, chunk=100)
        ways: dict[str, Callable[[], object]] = {
            "index, one worker wrote it": lambda: open_dataset(in_order),
            "index, several workers wrote it": lambda: open_dataset(mixed),
            "loader, several workers wrote it": lambda: _open_loader(mixed),
        }
        _open_loader(in_order)  # import everything before the timing
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(repeats):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                seconds[name].append(time.perf_counter() - start)
                console.print(f"{name}: {seconds[name][-1]:.3f} s")
        file_bytes = in_order.stat().st_size
    save_and_draw("open_index", {"samples": samples, "file_bytes": file_bytes, "seconds": seconds}, results, console)


def _open_loader(path: Path) -> None:
    Loader(path, batch_size=256, order=OrderOption.RANDOM, seed=0, pipelines={"image": None}).close()


if __name__ == "__main__":
    typer.run(main)
