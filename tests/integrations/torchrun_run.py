"""What one of several processes does that torchrun started: two epochs, then one with Accelerate."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator

from gpubeton.integrations.accelerate import AccelerateLoader
from gpubeton.loader import Loader
from tests.integrations.conftest import LABELS


def main(path, folder):
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    loader = Loader(path, 4, order="random", seed=3, distributed=True, pipelines=LABELS, drop_last=False)
    epochs = [[batch.tolist() for (batch,) in loader] for _ in range(2)]

    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(AccelerateLoader(loader))
    local, gathered = [], []
    for (batch,) in prepared:
        local += batch.tolist()
        gathered += accelerator.gather_for_metrics(batch).tolist()
    results = {"epochs": epochs, "own": local, "gathered": gathered, "world": prepared.total_batch_size}
    (Path(folder) / f"{rank}.json").write_text(json.dumps(results))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
