"""Time gpubeton beside LitData, MosaicML Streaming and WebDataset, all over HTTP from one nginx, without a cache.

    benchmarks/streaming_environment.sh .venv-streaming
    GPUBETON_STREAMING_PYTHON=$PWD/.venv-streaming/bin/python python -m benchmarks.remote_peers

nginx answers GET requests as S3 does and does not look at signatures. Its log counts requests and bytes. Each lap is an
epoch with an empty cache, the loader's start included. Writes benchmarks/results/DATE-remote_peers-....json.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.contenders.process import Contender, ContenderError, ContenderProcess
from benchmarks.contenders.work import Work
from benchmarks.corpus import make_corpus
from benchmarks.harness.timing import Lap, median_cpu, median_rate, race
from benchmarks.harness.web_server import Traffic, serving
from benchmarks.machine import describe_machine
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton._machine import count_cores

_STREAMING = "GPUBETON_STREAMING_PYTHON"
_CONTENDERS = (
    Contender("gpubeton", "gpubeton_stream", "gpubeton"),
    Contender("LitData", "litdata_stream", "litdata", _STREAMING),
    Contender("MosaicML Streaming", "mosaicml_stream", "streaming", _STREAMING),
    Contender("WebDataset", "webdataset_stream", "webdataset", _STREAMING),
)


def main(
    images: Annotated[int, typer.Option(min=128, help="Number of images.")] = 3000,
    rounds: Annotated[int, typer.Option(min=1, help="Timed laps of each contender.")] = 3,
    cores: Annotated[int, typer.Option(min=0, help="Cores for each; 0: all.")] = 0,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Time gpubeton beside other streaming loaders."""
    console = Console()
    machine = describe_machine()
    machine["cores"] = cores = cores or count_cores()
    corpus = make_corpus(data, images, console)
    served = _publish(data / f"served-{images}", corpus.folder, corpus.jpg, console)
    shards = data / f"served-{images}-shards.txt"
    shards.write_text("\n".join(path.name for path in sorted((served / "bucket" / "wds").glob("*.tar"))))
    work = Work(str(shards), "s3://bucket", images, 1, cores)
    left_out: dict[str, str] = {}
    with TemporaryDirectory(prefix="nginx-") as place, serving(served, Path(place)) as nginx, ExitStack() as stack:
        os.environ.update(
            AWS_ENDPOINT_URL=nginx.http,
            AWS_ACCESS_KEY_ID="any",
            AWS_SECRET_ACCESS_KEY="any",
            AWS_REGION="us-east-1",
            AWS_ALLOW_HTTP="true",
        )
        running: dict[str, ContenderProcess] = {}
        for contender in _CONTENDERS:
            with console.status(f"{contender.name}: starting and warming up"):
                try:
                    contender.check_installed()
                    process = ContenderProcess(contender.name, contender.python, contender.module, work)
                    running[contender.name] = stack.enter_context(process)
                    process.lap()
                except ContenderError as error:
                    running.pop(contender.name, None)
                    left_out[contender.name] = str(error)
                    console.print(f"{contender.name}: left out: {error}")

        def lap(process: ContenderProcess) -> tuple[Lap, Traffic]:
            before = nginx.traffic()
            one = process.lap()
            return one, nginx.traffic() - before

        with console.status(f"{rounds} rounds"):
            measured = race({name: partial(lap, process) for name, process in running.items()}, rounds)
        versions = {name: process.versions for name, process in running.items()}
    for name, laps_of_peer in measured.items():
        laps = [lap for lap, _ in laps_of_peer]
        console.print(f"{name}: {median_rate(laps):,.0f} images/s, {median_cpu(laps):.2f} CPU s / 1000 images")
    result: dict[str, Any] = {
        "machine": machine,
        "work": {"images": images, "cores": cores, "batch_size": work.batch_size, "side": work.side},
        "corpus": corpus.facts["jpg"],
        "contenders": {
            name: {"versions": versions[name], "laps": [{**asdict(lap), **asdict(seen)} for lap, seen in laps_of_peer]}
            for name, laps_of_peer in measured.items()
        },
        "left_out": left_out,
    }
    save_and_draw("remote_peers", result, results, console)


def _publish(folder: Path, photos: str, beton: str, console: Console) -> Path:
    """Write the photos in every format, below `folder`/bucket; use what an earlier run wrote."""
    bucket = folder / "bucket"
    if not bucket.exists():
        unfinished = folder / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        python = os.environ.get(_STREAMING) or sys.executable
        with console.status("Writing the photos in the formats of the others"):
            command = [python, "-m", "benchmarks.contenders.streamed_files", photos, str(unfinished)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.copyfile(beton, unfinished / "train.beton")
        unfinished.rename(bucket)
    return folder


if __name__ == "__main__":
    typer.run(main)
