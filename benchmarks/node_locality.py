"""Count the bytes that hosts with caches of a part of the dataset ask for, with virtual nodes and without.

    python -m benchmarks.node_locality

Eight hosts, each a process with a cache of its own, read a file from a server on this machine that counts: in
`order="window"` with `nodes`, in plain `"window"` and in `"random"`. With `nodes`, six hosts then go on, and eight.
Pages have 2 MiB, so that the file is small. Then: how many pairs of samples in a batch have the same label, of a file
that is sorted by class, and what it takes to plan an epoch of 10^8 samples. Nothing but that is timed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.contenders.process import LineProcess
from benchmarks.results import RESULTS, save
from gpubeton._plan.order import IdRange, WindowIds, WindowOrder, random
from gpubeton._plan.places import HostPlaces, Rank, nodes_of_hosts
from gpubeton.fields import BytesField, IntField
from gpubeton.format.index import PageRuns
from gpubeton.writer import DatasetWriter

_PAGE, _PER_PAGE = 2 << 20, 16
_PAGES, _NODES, _WIDTH, _BATCH = 247, 24, 2, 192  # the batch of all ranks
_CACHE = 1.15 / 6  # of the file, for each host
_ORDERS: dict[str, dict[str, Any]] = {
    "window, nodes": {"order": "window", "order_kwargs": {"nodes": _NODES, "width": _WIDTH}},
    "window": {"order": "window", "order_kwargs": {"streams": _NODES, "width": _WIDTH}},
    "random": {"order": "random"},
}
# A file like a tenth of ImageNet, with pages of 8 MiB, in batches of 256.
_SAMPLES, _CLASSES, _IN_PAGE = 128_000, 100, 73


def main(
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
    folder: Annotated[Path | None, typer.Option(help="Folder for the files. Default: a temporary one.")] = None,
) -> None:
    """Count the bytes that hosts with caches of a part of the dataset ask for."""
    console = Console()
    planned, pairs = plan_many(), label_pairs()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        root = Path(place)
        size = _write_file(root / "train.beton")
        with ExitStack() as stack:
            server = stack.enter_context(ByteCounter(root))
            epochs = []
            for name, arguments in _ORDERS.items():
                numbers = count()
                for hosts in (8, 6, 8) if "nodes" in name else (8,):
                    with console.status(f"{name}, {hosts} hosts"):
                        epochs += run_epochs(server, root, name, arguments, hosts, [next(numbers) for _ in range(3)])
    _show_epochs(console, epochs, size)
    _show(console, "pairs of a batch with the same label", pairs)
    _show(console, "planning of 10^8 samples", planned)
    moved = {
        f"{before} to {after}": sum(
            len(set(numbers) - set(nodes_of_hosts(64, range(before)).get(host, [])))
            for host, numbers in nodes_of_hosts(64, range(after)).items()
        )
        for before, after in ((8, 6), (6, 8), (8, 4), (8, 7))
    }
    _show(console, "of 64 virtual nodes move, if hosts change", moved)
    shares = {
        f"{hosts} hosts, batch {batch}": other_share(64, hosts, batch)
        for hosts in (8, 6, 5, 3)
        for batch in (1920, 2000)
    }
    _show(console, "share of samples from virtual nodes of other hosts, of 64", shares)
    measured = {"shares": shares, "file_bytes": size, "epochs": epochs, "pairs": pairs, "plan": planned, "moved": moved}
    console.print(f"Written: {save('node_locality', measured, results)}", soft_wrap=True)


def _write_file(path: Path) -> int:
    rng = np.random.default_rng(0)
    block = rng.integers(0, 256, _PAGE // _PER_PAGE - 64, np.uint8)
    samples = [(np.roll(block, number), number) for number in range(_PAGES * _PER_PAGE)]
    writer = DatasetWriter(
        path, {"image": BytesField(), "label": IntField()}, num_workers=1, progress=False, page_size=_PAGE
    )
    writer.from_indexed_dataset(samples)
    return path.stat().st_size


class ByteCounter:
    """A web server for files of a folder, ``/HOST/NAME``, that counts the bytes it sends to each host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sent: Counter[str] = Counter()
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def url(self, host: int) -> str:
        """The address of the file for a host."""
        return f"http://127.0.0.1:{self._server.server_port}/{host}/train.beton"

    def __enter__(self) -> ByteCounter:
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, counter: ByteCounter, *arguments: Any) -> None:
        self.counter = counter
        super().__init__(*arguments)

    def do_GET(self) -> None:
        _, host, name = self.path.split("/")
        path = self.counter.root / name
        if not path.exists():
            self.send_error(404)
            return
        status = path.stat()
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, stop = (int(match[1]), min(int(match[2]) + 1, status.st_size)) if match else (0, status.st_size)
        self.send_response(206 if match else 200)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", f'"{status.st_mtime_ns}-{status.st_size}"')
        if match:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{status.st_size}")
        self.end_headers()
        if self.command == "GET":
            with path.open("rb") as file:
                file.seek(start)
                self.wfile.write(file.read(stop - start))
            with self.counter.lock:
                self.counter.sent[host] += stop - start

    do_HEAD = do_GET  # noqa: N815  the library's name

    def log_message(self, *arguments: object) -> None:
        pass


def run_epochs(
    server: ByteCounter, root: Path, name: str, arguments: dict[str, Any], hosts: int, epochs: list[int]
) -> list[dict[str, Any]]:
    """Start a process for each host, let all go through epochs together, and count what the server sends to each."""
    results = []
    folder = root / re.sub(r"\W+", "-", name)
    with ExitStack() as stack:
        running = []
        for host in range(hosts):
            # As torchrun starts them, with one process on each host.
            environment = {
                **os.environ, "RANK": str(host), "WORLD_SIZE": str(hosts), "GROUP_RANK": str(host),
                "GROUP_WORLD_SIZE": str(hosts), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29_600 + hosts),
            }  # fmt: skip
            command = [sys.executable, "-m", "benchmarks.node_locality", "host"]
            running.append(stack.enter_context(LineProcess(f"host {host}", command, environment=environment)))
        with ThreadPoolExecutor(hosts) as pool:
            works = [
                {
                    **arguments,
                    "url": server.url(host),
                    "cache_dir": str(folder / str(host)),
                    "batch_size": _BATCH // hosts,
                }
                for host in range(hosts)
            ]
            list(pool.map(lambda process, work: process.ask(json.dumps(work)), running, works))
            for epoch in epochs:
                server.sent.clear()
                cached = list(pool.map(lambda process: int(process.ask(str(epoch))), running))  # noqa: B023  they end here
                sent = [server.sent[str(host)] for host in range(hosts)]
                results.append({"order": name, "hosts": hosts, "epoch": epoch, "sent": sent, "cached": cached})
    return results


def _run_host() -> None:
    """Be a host: the first line on stdin is the work, each further one an epoch."""
    import torch.distributed as dist

    from gpubeton._bytes import node_cache
    from gpubeton.fields.decoders import IntDecoder
    from gpubeton.loader import Loader, RemoteOptions
    from gpubeton.transforms import ToTensor
    from gpubeton.traversal_order import window

    node_cache.PAGE_SIZE = window._PART = _PAGE  # noqa: SLF001  else the file would have four times the size
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    work = json.loads(sys.stdin.readline())
    dist.init_process_group("gloo")
    warnings.simplefilter("ignore")  # "random" has many requests
    limit = int(_CACHE * _PAGES * _PAGE)
    remote = RemoteOptions(requests=4)  # else a small epoch asks for most of the next
    pipelines = {"label": [IntDecoder(), ToTensor()]}
    loader = Loader(
        work.pop("url"),
        num_workers=1,
        seed=0,
        distributed=True,
        pipelines=pipelines,
        cache_limit=limit,
        remote=remote,
        **work,
    )
    answers.write("ready\n")
    for line in sys.stdin:
        loader.set_epoch(int(line))
        for _ in loader:
            pass
        answers.write(f"{loader.stats().cached_bytes}\n")
    loader.close()
    dist.destroy_process_group()


def other_share(nodes: int, hosts: int, batch: int, samples: int = 256_000) -> float:
    """Measure the share of the samples that hosts take from the virtual nodes of others."""
    dealt, others = nodes_of_hosts(nodes, range(hosts)), 0
    for host in range(hosts):
        places = HostPlaces(Rank(host, hosts), nodes, batch // hosts, 0, samples, tuple(range(hosts)))
        others += int(np.count_nonzero(~np.isin(places[:] % nodes, dealt[host])))
    return others / samples


def label_pairs() -> dict[str, dict[str, float]]:
    """Measure the share of pairs in a batch that have the same label: its mean, and percentiles over the batches."""
    runs = PageRuns.join([np.arange(_SAMPLES) // _IN_PAGE])

    def window(epoch: int, *, keeps_pages: bool) -> NDArray[Any]:
        order = WindowOrder(IdRange(_SAMPLES), runs, 64, 16, 0, epoch, keeps_pages=keeps_pages)
        return np.asarray(WindowIds.all(order))

    epochs = range(5)
    orders = {
        "random": [random(IdRange(_SAMPLES), 0, epoch) for epoch in epochs],
        "window": [window(epoch, keeps_pages=False) for epoch in epochs],
        "window, nodes": [window(epoch, keeps_pages=True) for epoch in epochs],
    }
    return {
        name: _same_label(np.concatenate([epoch[: _SAMPLES // 256 * 256] for epoch in ids]))
        for name, ids in orders.items()
    }


def _same_label(ids: NDArray[Any]) -> dict[str, float]:
    labels = (ids.astype(np.int64) * _CLASSES // _SAMPLES).reshape(-1, 256)
    counts = np.stack([np.bincount(batch, minlength=_CLASSES) for batch in labels])
    shares = (counts * (counts - 1)).sum(1) / (256 * 255)
    low, middle, high = np.percentile(shares, [5, 50, 95])
    return {"mean": shares.mean(), "5 %": low, "50 %": middle, "95 %": high}


def plan_many(samples: int = 10**8) -> dict[str, float]:
    """Plan an epoch of 64 virtual nodes for one of 512 ranks on 64 hosts: seconds of the processor, and bytes."""
    start = np.append(np.arange(0, samples, 400), samples)  # of 20 kB in pages of 8 MiB
    runs = PageRuns(start, np.arange(len(start) - 1))
    hosts = tuple(np.repeat(range(64), 8).tolist())

    def make() -> WindowIds:
        order = WindowOrder(IdRange(samples), runs, 64, 16, 0, 1, keeps_pages=True)
        ids = WindowIds(order, HostPlaces(Rank(100, 512), 64, 256, 0, samples, hosts))
        ids[:256]
        return ids

    began = time.process_time()
    ids = make()
    first = time.process_time() - began
    for place in range(0, len(ids), 256):
        ids[place : place + 256]
    whole = time.process_time() - began
    tracemalloc.start()
    ids = make()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "CPU s to the first batch": first,
        "CPU s of all batches": whole,
        "MB kept": kept / 1e6,
        "MB most": peak / 1e6,
    }


def _show_epochs(console: Console, epochs: list[dict[str, Any]], size: int) -> None:
    table = Table(title=f"MB from the server in each epoch, of a file of {size / 1e6:.0f} MB")
    for heading in ("order", "hosts", "epoch", *(f"host {host}" for host in range(8)), "all", "from the caches"):
        table.add_column(heading, justify="right")
    for row in epochs:
        sent = [f"{number / 1e6:.1f}" for number in row["sent"]]
        sent += [""] * (8 - len(sent))
        cached = sum(row["cached"]) / (sum(row["cached"]) + sum(row["sent"]))
        total = f"{sum(row['sent']) / 1e6:.1f}"
        table.add_row(row["order"], str(row["hosts"]), str(row["epoch"]), *sent, total, f"{cached:.1%}")
    console.print(table)


def _show(console: Console, title: str, rows: dict[str, Any]) -> None:
    console.print(title)
    for name, value in rows.items():
        numbers = value if isinstance(value, dict) else {"": value}
        console.print("  ", name, *(f"{key} {number:.4g}" for key, number in numbers.items()))


if __name__ == "__main__":
    if sys.argv[1:] == ["host"]:
        _run_host()
    else:
        typer.run(main)
