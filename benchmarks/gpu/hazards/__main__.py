"""Check on a GPU what the design assumes.

python -m benchmarks.gpu.hazards
python -m benchmarks.gpu.hazards --only order --out findings.json
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image
from rich.console import Console

from benchmarks.gpu.encoded import Encoded, load_encoded
from benchmarks.gpu.hazards import graphs, limits, order, pixels, presence, rates, sentinels
from benchmarks.gpu.hazards.finding import Finding
from benchmarks.gpu.photos import IMAGENET_LIKE, QUALITIES, Photos, make_photos
from benchmarks.gpu.record import Record, leave_when_told
from benchmarks.gpu.target import Target, open_target
from benchmarks.results import DATA

# Images that are scaled down in decoding are this many times larger.
_LARGER = 3


def main(
    images: Annotated[int, typer.Option(help="Number of images.")] = 2000,
    seconds: Annotated[float, typer.Option(help="Approximate time for everything.")] = 150,
    only: Annotated[str, typer.Option(help="Only checks with this in their name.")] = "",
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    out: Annotated[Path | None, typer.Option(help="File for the findings.")] = None,
) -> None:
    """Check on a GPU what the design assumes."""
    leave_when_told()
    console = Console()
    photos = make_photos(data, images, QUALITIES[IMAGENET_LIKE])
    record = Record(out, corpus={"name": IMAGENET_LIKE, **photos.facts})
    with open_target() as target:
        for name, ask in _questions(target, photos, seconds / 150).items():
            if only not in name:
                continue
            start = time.perf_counter()
            try:
                finding = ask()
            except Exception as error:  # noqa: BLE001 - the other checks run all the same
                finding = Finding(name, "", f"{type(error).__name__}: {error}", {}, holds=False)
            took = round(time.perf_counter() - start, 1)
            record.add(name, {**finding._asdict(), "seconds": took})
            sign = {True: "holds", False: "FAILS", None: "seen"}[finding.holds]
            console.print(f"{sign} {name} ({took:.0f} s): {finding.verdict}", soft_wrap=True)
    record.complete()


def _questions(target: Target, photos: Photos, pace: float) -> dict[str, Callable[[], Finding]]:
    """Return the checks; `pace` is 1 for about 150 seconds on a data-center GPU."""
    device = target.device
    encoded = load_encoded(device, photos.beton)
    # nvJPEG does not decode fewer images on the processors.
    calls: dict[str, tuple[int, ...]] = {"hardware": (1, 4), "sm": (64,)} if target.is_simulated else {}
    few = 2 if target.is_simulated else 0
    trials = max(int(20 * pace), 2)
    # The simulated GPU's tensors are on the CPU.
    capture = (lambda: True) if target.is_simulated else graphs.capture_graph
    return {
        "T0 engines": lambda: presence.are_the_engines_there(target),
        "T11 threads": lambda: limits.do_threads_help(
            target, encoded, seconds=0.35 * pace, **({"images": (1, 4), "threads": (1, 2)} if few else {})
        ),
        "T12 memory": lambda: limits.what_does_allocating_before_take(target),
        "T1 order before": lambda: order.does_it_write_early(target, encoded, trials=trials),
        "T2 order after": lambda: order.is_it_done_when_the_stream_is(target, encoded, trials=trials),
        "T4 T8 images of a call": lambda: rates.how_many_at_once(
            target, encoded, seconds=0.7 * pace, images=calls.get("hardware", (1, 2, 4, 8, 16))
        ),
        "T5 step by step": lambda: rates.is_step_by_step_faster(target, encoded, seconds=1.5 * pace),
        "T6 processors": lambda: rates.do_processors_help(
            target, encoded, seconds=1.2 * pace, images=calls.get("sm", (64, 128, 256))
        ),
        "T7 page-locked memory": lambda: rates.does_pinned_memory_help(target, encoded, photos.beton, seconds=pace),
        "T9 pixels": lambda: pixels.do_pixels_agree(target, _contents(encoded, 64), images=few or 64),
        "T10 scale and region": lambda: rates.do_scale_and_region_help(
            target, pixels.encode_into_memory(target, _enlarged(encoded, few or 56)), seconds=pace
        ),
        "T13 graphs": lambda: graphs.can_graphs_be_captured(photos.beton, capture=capture),
        "T13 graphs, own decoder": lambda: graphs.can_graphs_be_captured(photos.indexed, capture=capture),
        # Last, because it uses all remaining time.
        "T3 sentinels": lambda: sentinels.is_every_image_written(photos.beton, seconds=60 * pace),
    }


def _contents(encoded: Encoded, count: int) -> list[bytes]:
    return [encoded.content(number) for number in range(min(count, len(encoded)))]


def _enlarged(encoded: Encoded, count: int) -> list[bytes]:
    """Return images of more than a megapixel."""
    rng = np.random.default_rng(0)
    files = []
    for content in _contents(encoded, count):
        with Image.open(io.BytesIO(content)) as image:
            large = image.resize((_LARGER * image.width, _LARGER * image.height), Image.Resampling.BICUBIC)
        noisy = np.asarray(large) + rng.normal(0, 3, (large.height, large.width, 1))
        written = io.BytesIO()
        Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(written, "jpeg", quality=90, subsampling="4:2:0")
        files.append(written.getvalue())
    return files


if __name__ == "__main__":
    typer.run(main)
