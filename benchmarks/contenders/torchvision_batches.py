"""torchvision v2 on whole batches of uint8: workers decode, crop and mirror; one draw then changes a whole batch."""

from __future__ import annotations

from importlib.metadata import version

import torch
from torchvision.transforms import v2

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.torchvision_images import AUGMENTATIONS, finish, make_loader, normalization
from benchmarks.contenders.work import Work


def prepare(work: Work) -> Ready:
    """Make the loader."""
    torch.set_num_threads(work.cores)
    loader = make_loader(work, [], torch.stack)
    change = v2.Compose([*AUGMENTATIONS[work.recipe], *normalization(work.recipe)])
    packages = ("torch", "torchvision")
    return Ready(lambda: (len(finish(change(images))) for images in loader), {name: version(name) for name in packages})


if __name__ == "__main__":
    serve(prepare)
