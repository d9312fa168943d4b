r"""Train with a number of processes that may change at any time, from a local file or from an object store.

    python examples/elastic.py train.beton --folder run             # one process
    torchrun --nnodes 1:4 --nproc-per-node 8 --max-restarts 20 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \
        examples/elastic.py s3://bucket/train.beton --folder /shared/run

When a process or a machine is lost, or another one comes, torchrun starts all processes again. They go on from the last
checkpoint in the shared folder, with each sample of the epoch once, for any number of them now. Set
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun: without it, a machine that comes later waits for ever. torchrun of
torch 2.3 cannot start them again: take 2.4 or later.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from train import MEAN, STD, make_network

from gpubeton.fields.basics import IntDecoder
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage


def main() -> None:
    """Train, or go on with training, as one of several processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="a file with the fields image and label, or its URL")
    parser.add_argument("--folder", type=Path, required=True, help="for the checkpoint; all machines see it")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=1024, help="of all processes together")
    parser.add_argument("--side", type=int, default=160, help="image size")
    parser.add_argument("--num-workers", type=int, default=-1)
    parser.add_argument("--save-every", type=int, default=100, help="batches between two checkpoints")
    options = parser.parse_args()

    if not dist.is_torchelastic_launched():
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    gpu = int(os.environ["LOCAL_RANK"]) if torch.cuda.is_available() else None
    device = torch.device("cpu" if gpu is None else f"cuda:{gpu}")
    dist.init_process_group("gloo" if gpu is None else "nccl")
    rank, world = dist.get_rank(), dist.get_world_size()

    image = [RandomResizedCropRGBImageDecoder((options.side, options.side)), RandomHorizontalFlip()]
    loader = Loader(
        options.file,
        max(1, options.batch_size // world),
        options.num_workers,
        order="window",  # whole pages: few requests to an object store, and the same order for any number of processes
        distributed=True,
        seed=0,
        drop_last=False,
        pipelines={
            "image": [*image, NormalizeImage(MEAN, STD, np.float32), ToTensor(), ToTorchImage()],
            "label": [IntDecoder(), ToTensor(), Squeeze(1)],
        },
        device=device,
    )
    torch.manual_seed(0)
    network = DistributedDataParallel(make_network(options.classes).to(device))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9)
    parts: dict[str, Any] = {"network": network, "optimizer": optimizer, "loader": loader}
    checkpoint = options.folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        for name, part in parts.items():
            part.load_state_dict(saved[name])

    while (epoch := loader.next_epoch) < options.epochs:
        losses = []
        for number, (images, labels) in enumerate(loader, 1):
            loss: Any = nn.functional.cross_entropy(network(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if rank == 0 and number % options.save_every == 0:
                save(parts, checkpoint)
        if rank == 0:
            save(parts, checkpoint)
            print(json.dumps({"epoch": epoch, "processes": world, "loss": float(np.mean(losses or [0]))}), flush=True)
    loader.close()
    dist.destroy_process_group()


def save(parts: dict[str, Any], checkpoint: Path) -> None:
    """Write a checkpoint that is whole or not there, whenever the process is killed."""
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    partial = checkpoint.with_suffix(".part")
    torch.save({name: part.state_dict() for name, part in parts.items()}, partial)
    partial.replace(checkpoint)


if __name__ == "__main__":
    main()
