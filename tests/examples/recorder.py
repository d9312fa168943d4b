"""Run a script, and write down each batch that its loader gives: in $RECORDS, one file for each process.

A file `limit` there has the number of batches after which each process waits.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from pathlib import Path

from gpubeton.loader import Loader, LoaderIterator

_loaders, _received = [], []
_make, _next = Loader.__init__, LoaderIterator.__next__


def _remember(loader, *arguments, **options):
    _make(loader, *arguments, **options)
    _loaders.append(loader)


def _limit():
    try:
        return int((Path(os.environ["RECORDS"]) / "limit").read_text() or 0)
    except FileNotFoundError:
        return float("inf")


def _record(batches):
    while len(_received) >= _limit():
        time.sleep(0.1)
    outputs = _next(batches)
    _received.append(time.time())
    state = _loaders[-1].state_dict()
    record = {"epoch": batches.epoch, "end": state["samples"], "samples": batches.samples.tolist()}
    record |= {"world": state["world_size"], "batch_size": state["batch_size"]}
    record |= {"rank": int(os.environ["RANK"]), "time": _received[-1]}
    with open(Path(os.environ["RECORDS"]) / f"{os.getpid()}.jsonl", "a") as file:
        file.write(json.dumps(record) + "\n")
    return outputs


if __name__ == "__main__":
    Loader.__init__, LoaderIterator.__next__ = _remember, _record
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
