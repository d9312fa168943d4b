"""Measure the peak memory of a loader with os_cache=False over a much larger file, beside the documented bound.

    python -m benchmarks.memory --gigabytes 10

The raw-stored file is sparse; the JPEG-stored one needs its full size on the disk.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.contenders.work import MEAN, STD
from benchmarks.harness.photos import PhotoSet, list_photos, write_photos
from benchmarks.results import RESULTS
from benchmarks.sparse_file import write_jpeg_beton, write_sparse_beton
from benchmarks.table import save_and_draw

_ROOT = Path(__file__).resolve().parent.parent
_RAW_SIDE = 256
_BATCH = 256


@dataclass(frozen=True)
class Peak:
    """Memory of a loader, without Python and its libraries."""

    bound_bytes: int  # by the formula in the documentation of `gpubeton.loader.Loader`
    peak_bytes: int  # measured


def main(
    gigabytes: Annotated[float, typer.Option(help="Size of each file.")] = 10,
    folder: Annotated[Path | None, typer.Option(help="Folder for the files. Default: a temporary one.")] = None,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Measure the peak memory of a loader with os_cache=False over a much larger file."""
    console = Console()
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        warm, large = Path(place) / "warm.beton", Path(place) / "large.beton"
        photos = Path(place) / "photos"
        write_photos(photos, PhotoSet(200, (90, 90)))
        contents = [path.read_bytes() for path, _ in list_photos(photos)]
        for storage in ("raw", "jpg"):
            with console.status(f"{storage}: writing {gigabytes:g} GB"):
                if storage == "raw":
                    region = 3 * _RAW_SIDE**2
                    write_sparse_beton(warm, 2 * _BATCH, region, raw_side=_RAW_SIDE)
                    write_sparse_beton(large, int(gigabytes * 1e9 / region), region, raw_side=_RAW_SIDE)
                else:
                    write_jpeg_beton(warm, 2 * _BATCH, contents)
                    mean = sum(map(len, contents)) / len(contents)
                    write_jpeg_beton(large, int(gigabytes * 1e9 / mean), contents)
            with console.status(f"{storage}: an epoch of it, batches of {_BATCH}"):
                run = [sys.executable, "-m", "benchmarks.memory", str(warm), str(large)]
                done = subprocess.run(run, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
            peak = Peak(**json.loads(done.stdout))
            name = f"{'raw' if storage == 'raw' else 'JPEG'}-stored, {large.stat().st_size / 1e9:.1f} GB"
            console.print(f"{name}: {peak.peak_bytes / 2**20:,.0f} of {peak.bound_bytes / 2**20:,.0f} MiB")
            runs.append({"name": name, "batch_size": _BATCH, **vars(peak)})
    save_and_draw("memory", {"runs": runs}, results, console)


def measure(warm: Path, large: Path) -> Peak:
    """Load an epoch of `large` in this process, after one of `warm`, which allocates everything that is made once."""
    _epoch(warm)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # reset the recorded peak
    before = _status("VmRSS")
    bound = _epoch(large)
    return Peak(bound, _status("VmHWM") - before)


def _epoch(path: Path) -> int:
    """Load an epoch; return the documented bound of its memory."""
    import numpy as np

    from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from gpubeton.loader import Loader, OrderOption
    from gpubeton.loader.describe import max_batch_bytes, max_staging_bytes
    from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

    image = [
        RandomResizedCropRGBImageDecoder((224, 224)),
        RandomHorizontalFlip(),
        NormalizeImage(MEAN, STD, np.float16),
        ToTensor(),
        ToTorchImage(),
    ]
    loader = Loader(
        path, _BATCH, os_cache=False, order=OrderOption.RANDOM, seed=0, pipelines={"image": image}, device="cpu"
    )
    for _ in loader:
        pass
    index, plan = loader.reader.index, loader.plan()
    images = index.column("image")
    pixels = int((images["width"].astype(np.int64) * images["height"]).max())
    loader.close()
    return (
        60 * index.num_samples * len(index.names)
        + max_staging_bytes(plan, min(loader.batches_ahead, 3))
        + (loader.batches_ahead + 2) * max_batch_bytes(plan)  # this loop holds one batch
        + 3 * pixels * loader.num_workers
    )


def _status(name: str) -> int:
    """Read a size from /proc, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    if len(sys.argv) == 3 and not sys.argv[1].startswith("-"):
        print(json.dumps(vars(measure(Path(sys.argv[1]), Path(sys.argv[2])))))
    else:
        typer.run(main)
