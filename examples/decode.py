"""Decode images in the data pipeline that you have, without a .beton file: BatchDecoder in four of them.

python examples/decode.py data_loader photos          # a folder of images for each class, PyTorch's DataLoader
python examples/decode.py webdataset shard.tar        # WebDataset's tar files
python examples/decode.py hugging_face saved_dataset  # a dataset of Hugging Face with the columns image and label
python examples/decode.py ray photos                  # Ray Data
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from gpubeton import BatchDecoder
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def make_decoder() -> BatchDecoder:
    """Make the decoder that all of them use; it goes into other processes, and begins its threads there."""
    normalize = NormalizeImage([123.7, 116.3, 103.5], [58.4, 57.1, 57.4], np.float32)
    image = [RandomResizedCropRGBImageDecoder((64, 64)), RandomHorizontalFlip(), normalize, ToTensor(), ToTorchImage()]
    return BatchDecoder(image, on_error="skip")


class Collate:
    """Makes a batch of pairs of an image file and a label; bad images, and their labels, are left out."""

    def __init__(self) -> None:
        self.decoder = make_decoder()

    def __call__(self, samples: Sequence[tuple[bytes, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Make the batch."""
        files, labels = zip(*samples, strict=True)
        decoded = self.decoder.decode(files)
        return decoded.images, torch.tensor([int(label) for label in labels])[decoded.rows]


class Files(Dataset[tuple[bytes, int]]):
    """The images of a folder, as they are, and the number of the class of each."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        classes = sorted({path.parent.name for path in self.paths})
        self.labels = [classes.index(path.parent.name) for path in self.paths]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        """Read one file."""
        return self.paths[index].read_bytes(), self.labels[index]


def data_loader(folder: str, options: argparse.Namespace) -> Batches:
    """Load a folder with PyTorch's DataLoader: the decoder is its `collate_fn`."""
    workers = {"num_workers": options.workers, "persistent_workers": options.workers > 0}
    yield from DataLoader(Files(folder), options.batch_size, shuffle=True, collate_fn=Collate(), **workers)


def webdataset(urls: str, options: argparse.Namespace) -> Batches:
    """Load tar files with WebDataset: the decoder takes the place of `decode`, `map` and the collation."""
    import webdataset as wds

    dataset = wds.WebDataset(urls, shardshuffle=False, empty_check=False).shuffle(1000).to_tuple("jpg;png", "cls")
    batches = dataset.batched(options.batch_size, collation_fn=Collate())
    yield from wds.WebLoader(batches, batch_size=None, num_workers=options.workers)


def hugging_face(folder: str, options: argparse.Namespace) -> Batches:
    """Load a dataset of Hugging Face: `with_transform` decodes the rows of a batch together."""
    import datasets

    collate = Collate()

    def transform(rows: dict[str, Any]) -> dict[str, Any]:
        files = [image["bytes"] or Path(image["path"]).read_bytes() for image in rows["image"]]
        images, labels = collate(list(zip(files, rows["label"], strict=True)))
        return {"image": images, "label": labels}

    dataset = datasets.load_from_disk(folder).cast_column("image", datasets.Image(decode=False))
    decoded = dataset.with_transform(transform)
    # Lists of row numbers: `decoded[[7, 2, 9]]` is a batch.
    sampler = BatchSampler(RandomSampler(decoded), options.batch_size, drop_last=False)
    loader: Any = DataLoader(decoded, sampler=sampler, batch_size=None, num_workers=options.workers)
    for batch in loader:
        yield batch["image"], batch["label"]


class DecodeBlocks:
    """Decodes blocks of Ray Data, in a process of its own."""

    def __init__(self) -> None:
        self.decoder = make_decoder()

    def __call__(self, block: dict[str, Any]) -> dict[str, Any]:
        """Replace the files of a block by images; the class is the name of the folder."""
        decoded = self.decoder.decode(block["bytes"])
        classes = np.array([Path(path).parent.name for path in block["path"]])[decoded.rows]
        return {"image": decoded.images.numpy(), "class": classes}


def ray(folder: str, options: argparse.Namespace) -> Batches:
    """Load a folder with Ray Data: `map_batches` keeps the decoder in each of its processes."""
    import ray.data

    classes = sorted(path.name for path in Path(folder).iterdir())
    files = ray.data.read_binary_files(folder, include_paths=True)
    workers = {"batch_size": options.batch_size, "concurrency": max(options.workers, 1), "num_cpus": 1}
    blocks = files.map_batches(DecodeBlocks, **workers)
    for batch in blocks.iter_batches(batch_size=options.batch_size):
        labels = [classes.index(name) for name in batch["class"]]
        yield torch.from_numpy(np.array(batch["image"])), torch.tensor(labels)


WAYS: dict[str, Callable[[str, argparse.Namespace], Batches]] = {
    "data_loader": data_loader,
    "webdataset": webdataset,
    "hugging_face": hugging_face,
    "ray": ray,
}


def main(arguments: list[str] | None = None) -> None:
    """Go through the images once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("source", help="a folder, or tar files")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2, help="processes that decode")
    options = parser.parse_args(arguments)
    count, labels_seen = 0, set()
    shape: tuple[int, ...] = ()
    for images, labels in WAYS[options.way](options.source, options):
        count += len(images)
        labels_seen |= set(labels.tolist())
        shape = tuple(images.shape[1:])
    print(f"{count} images of {shape}, labels {sorted(labels_seen)}")


if __name__ == "__main__":
    main()
