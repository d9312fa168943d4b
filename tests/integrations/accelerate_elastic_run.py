"""What one of several processes receives of an epoch with Accelerate, which others may have begun."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch
from accelerate import Accelerator

from gpubeton.integrations.accelerate import AccelerateLoader, skip_first_batches
from gpubeton.loader import Loader
from tests.integrations.conftest import LABELS


def make(accelerator, path):
    loader = Loader(path, 3, order="random", seed=3, distributed=True, pipelines=LABELS, drop_last=False)
    return accelerator.prepare(AccelerateLoader(loader))


def main(path, folder, num_batches):
    warnings.simplefilter("ignore")  # about states of random generators, which further processes do not find
    torch.distributed.init_process_group("gloo")
    accelerator = Accelerator(cpu=True)
    loader = make(accelerator, path)
    saved = Path(folder) / "state"
    skipped = None
    if saved.exists():
        total, number = json.loads((saved / "received.json").read_text())
        skipped = [labels.tolist() for (labels,) in skip_first_batches(loader, number, total_batch_size=total)]
        accelerator.load_state(str(saved))
    local, gathered = [], []
    for number, (labels,) in enumerate(loader, 1):
        local.append(labels.tolist())
        gathered += accelerator.gather_for_metrics(labels).tolist()
        if number == int(num_batches):
            break
    if skipped is None:
        accelerator.save_state(str(saved))
        (saved / "received.json").write_text(json.dumps([loader.total_batch_size, number]))
    results = {"own": local, "gathered": gathered, "skipped": skipped}
    (Path(folder) / f"{accelerator.num_processes}-{accelerator.process_index}.json").write_text(json.dumps(results))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
