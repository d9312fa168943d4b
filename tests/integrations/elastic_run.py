"""What each process does of an epoch that may have begun with more processes; one of them may be killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch

from gpubeton.loader import Loader


def main(path, folder, batch_size, kill_at):
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    arguments = {"order": "random", "seed": 3, "distributed": True, "drop_last": False, "num_workers": 1}
    loader = Loader(path, int(batch_size), **arguments)
    saved = Path(folder) / "state.json"
    if saved.exists():
        loader.load_state_dict(json.loads(saved.read_text()))
    seen = []
    for number, (labels,) in enumerate(loader, 1):
        torch.distributed.barrier()
        seen.append(labels.flatten().tolist())
        (Path(folder) / f"{world}-{rank}.json").write_text(json.dumps(seen))
        torch.distributed.barrier()
        if rank == 1 and number == int(kill_at):
            os.kill(os.getpid(), signal.SIGKILL)
        torch.distributed.barrier()
        if rank == 0:
            saved.write_text(json.dumps(loader.state_dict()))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
