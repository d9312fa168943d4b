"""The demo: turn photos into a .beton file, load it, and time that beside a PyTorch DataLoader.

python -m benchmarks.harness.demo --help      (`make demo` runs it)
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from benchmarks.harness.photos import PhotoSet, list_photos, write_photos
from benchmarks.harness.timing import Lap, median_cpu, median_rate, race, ratios, time_lap
from gpubeton._machine import count_cores
from gpubeton.cli.screen import Screen, printable, show_json

if TYPE_CHECKING:
    import torch

    from gpubeton.loader import Loader

__all__ = ["main", "run_demo"]

_BATCH = 32
_SIDE = 224
_HOLE = 64
USUAL = "torch DataLoader, Pillow"


def run_demo(folder: Path, images: int, rounds: int, *, passes: int = 10, json: bool = False) -> None:
    """Run the demo and print its results, with `json` as JSON on stdout and all else on stderr.

    `folder` receives the photos, the ``.beton`` file and the contact sheet; existing photos are used again. `rounds` is
    the number of timed laps of each loader, `passes` that of passes over the images in a lap of gpubeton, so that it
    takes long enough for timing.
    """
    console = Screen(stderr=json)
    photos, beton, sheet = folder / "photos", folder / "photos.beton", folder / "batch.png"
    with _progress(console) as progress:
        task = progress.add_task("Cutting photos", total=images)
        write_photos(photos, PhotoSet(images), lambda: progress.advance(task))
        progress.update(task, completed=images)
    with console.status("Importing torch and numba"):
        import_module("gpubeton.loader")
    classes = _write_beton(console, photos, beton)
    device, remark = choose_device()
    console.print(remark)
    devices = list(dict.fromkeys([device, "cpu"]))
    with console.status("Compiling the decoder for this machine, once"):
        for one in devices:
            for _ in _loader(beton, one, range(_BATCH)):
                pass
    loader = _loader(beton, device)
    first = _two_epochs(console, loader, images)
    write_contact_sheet_of(sheet, *first, classes)
    timed = {device: _loader(beton, device, np.tile(loader.indices, passes)) for device in devices}
    laps = _race(console, photos, classes, rounds, timed)
    if json:
        show_json(_figures(laps) | {"file": beton, "sheet": sheet, "images": images, "cores": count_cores()})
    else:
        console.print(_table(laps, images))
    names = [(printable(str(path)), "bold") for path in (sheet, beton)]
    console.print(Text.assemble(names[0], " shows an augmented batch, ", names[1], " is the file."))
    console.print(
        f"Next: {_command()} info {beton}; docs/quickstart.md shows how to convert your own photos", soft_wrap=True
    )


def choose_device() -> tuple[str, str]:
    """Return "cuda:0" if its GPU can decode, else "cpu", and a line about the choice."""
    from gpubeton.loader.gpus import read_gpu

    gpu = read_gpu()
    if gpu.name:
        return "cuda:0", f"Loading on {gpu.name} with nvJPEG {gpu.nvjpeg}"
    if gpu.is_present:
        return "cpu", f"Loading on the CPU: the GPU cannot be used: {gpu.reason}"
    return "cpu", f"Loading on the CPU: {gpu.reason}"


def _command() -> str:
    """Return what to type for the ``gpubeton`` command of this environment: its path, unless the shell finds it."""
    command, on_path = Path(sys.executable).with_name("gpubeton"), shutil.which("gpubeton")
    if on_path is not None and Path(on_path).resolve() == command.resolve():
        return "gpubeton"
    return os.fspath(command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command)


def write_contact_sheet_of(path: Path, images: torch.Tensor, labels: torch.Tensor, classes: tuple[str, ...]) -> None:
    """Undo the normalization of a batch, (N, 3, H, W), and draw it; labels, (N,), are positions in `classes`."""
    from benchmarks.harness.pillow_loader import MEAN, STD
    from gpubeton.cli.read_commands import write_contact_sheet

    pixels = 255 * (images.float().permute(0, 2, 3, 1).cpu().numpy() * np.array(STD, "f4") + np.array(MEAN, "f4"))
    write_contact_sheet(path, pixels, [classes[label] for label in labels.tolist()])


def _write_beton(console: Console, photos: Path, beton: Path) -> tuple[str, ...]:
    from gpubeton.fields import IntField, RGBImageField
    from gpubeton.writer import DatasetWriter

    fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
    console.print(f"Writing {beton}; the JPEG files go in as they are")
    return DatasetWriter(beton, fields, progress=False).from_image_folder(photos)


def _loader(beton: Path, device: str, indices: range | np.ndarray | None = None) -> Loader:
    from benchmarks.harness.pillow_loader import MEAN, STD
    from gpubeton.fields.basics import IntDecoder
    from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from gpubeton.loader import Loader, OrderOption
    from gpubeton.transforms import Cutout, NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

    mean, std = ([255 * level for level in levels] for levels in (MEAN, STD))
    image = [
        RandomResizedCropRGBImageDecoder((_SIDE, _SIDE)),
        RandomHorizontalFlip(),
        Cutout(_HOLE, (124, 116, 104)),
        NormalizeImage(mean, std, np.float16),
        ToTensor(),
        ToTorchImage(),
    ]
    return Loader(
        beton,
        batch_size=_BATCH,
        order=OrderOption.RANDOM,
        seed=0,
        indices=None if indices is None else np.asarray(indices),
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
        drop_last=False,
        device=device,
    )


def _two_epochs(console: Console, loader: Loader, images: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Load two epochs with a progress bar; return the last full batch."""
    kept: tuple[torch.Tensor, torch.Tensor] | None = None
    with _progress(console) as progress:
        for epoch in range(2):
            task = progress.add_task(f"Epoch {epoch}", total=images)
            for batch, labels in loader:
                if len(batch) == _BATCH:
                    kept = batch, labels
                progress.advance(task, len(batch))
    if kept is None:
        raise RuntimeError(f"two epochs of {images} images gave no full batch of {_BATCH}")
    return kept


def _race(
    console: Console, photos: Path, classes: tuple[str, ...], rounds: int, loaders: dict[str, Loader]
) -> dict[str, list[Lap]]:
    from benchmarks.harness.pillow_loader import PillowDataset, pillow_loader

    files = [(path, classes.index(name)) for path, name in list_photos(photos)]
    # Not "fork": threads are already running.
    usual = pillow_loader(
        PillowDataset(files, _SIDE, _HOLE), _BATCH, count_cores(), drop_last=False, start_method="spawn"
    )

    def lap_of(loader: Loader | torch.utils.data.DataLoader[tuple[torch.Tensor, int]]) -> Lap:
        return time_lap(lambda: sum(len(batch) for batch, _ in loader))

    with _progress(console) as progress:
        names = {device: "gpubeton" if len(loaders) == 1 else f"gpubeton, {device}" for device in loaders}
        contenders = {names[device]: partial(lap_of, loader) for device, loader in loaders.items()}
        contenders[USUAL] = partial(lap_of, usual)
        task = progress.add_task("Starting the DataLoader's processes", total=len(contenders) * (rounds + 1))
        race(contenders, 1, lambda _: progress.advance(task))
        progress.update(task, description="Timing all in turns")
        laps = race(contenders, rounds, lambda _: progress.advance(task))
        progress.update(task, completed=len(contenders) * (rounds + 1))
    return laps


def _figures(laps: dict[str, list[Lap]]) -> dict[str, Any]:
    """Return the figures of the table as JSON can hold them."""
    return {
        "loaders": {
            name: {
                "images_per_second": median_rate(lap),
                "cpu_seconds_per_1000": median_cpu(lap),
                "speed": statistics.median(ratios(lap, laps[USUAL])),
            }
            for name, lap in laps.items()
        }
    }


def _table(laps: dict[str, list[Lap]], images: int) -> Table:
    cores = count_cores()
    title = f"{images} photos: random crop to {_SIDE}, flip, cutout, float16; {cores} cores"
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in ("images/s", "per core", "CPU s / 1000 images", "speed"):
        table.add_column(heading, justify="right")
    for name, lap in laps.items():
        rate, cpu = median_rate(lap), median_cpu(lap)
        known = "" if math.isnan(cpu) else f"{cpu:.2f}"
        times = statistics.median(ratios(lap, laps[USUAL]))
        table.add_row(name, f"{rate:,.0f}", f"{rate / cores:,.0f}", known, f"{times:.1f} x")
    return table


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        yield progress


def main(
    folder: Annotated[Path, typer.Option(help="Folder for the photos, the .beton file and the picture.")] = Path(
        ".demo"
    ),
    images: Annotated[int, typer.Option(min=64, help="Number of photos.")] = 400,
    rounds: Annotated[int, typer.Option(min=1, help="Timed runs of each loader.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Turn photos into a .beton file, load it, and time that beside a PyTorch DataLoader."""
    run_demo(folder, images, rounds, json=json)


if __name__ == "__main__":
    typer.run(main)
