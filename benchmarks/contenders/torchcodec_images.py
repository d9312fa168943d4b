"""torchcodec decodes, torchvision v2 does the rest, in the workers of a DataLoader: as torchcodec's pages show."""

from __future__ import annotations

import os
from functools import partial

from torchcodec.decoders import decode_jpeg

from benchmarks.contenders import torchvision_images
from benchmarks.contenders.service import serve

if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")  # workers warn, too
    packages = ("torchcodec", "torch", "torchvision")
    serve(partial(torchvision_images.prepare, decoder=decode_jpeg, packages=packages))
