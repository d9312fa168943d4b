"""Write ImageNet's folders as .beton files.

    python -m examples.imagenet.write /data/imagenet/train train.beton --max-side 500
    python -m examples.imagenet.write /data/imagenet/val val.beton --max-side 500

FFCV's published accuracies used images of at most 500 pixels, half of them JPEG, for ResNet-50
(``--raw 0.5``), and of 400, a tenth of them JPEG, for ResNet-18 (``--max-side 400 --raw 0.9``). Raw images need less
CPU time and many times the space. Here the default is JPEG for all images; small enough files are copied without
encoding them again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gpubeton.fields import IntField, RGBImageField
from gpubeton.writer import DatasetWriter


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="holds one folder of images per class")
    parser.add_argument("beton", type=Path)
    parser.add_argument("--max-side", type=int, default=500, help="larger images are made smaller")
    parser.add_argument("--raw", type=float, default=0.0, help="share of the images that are stored as raw pixels")
    parser.add_argument("--quality", type=int, default=90, help="of the JPEGs that have to be encoded")
    parser.add_argument("--workers", type=int, default=-1, help="processes; by default one for each core")
    options = parser.parse_args(arguments)
    image = RGBImageField(
        write_mode="proportion",
        max_resolution=options.max_side,
        compress_probability=1 - options.raw,
        jpeg_quality=options.quality,
    )
    writer = DatasetWriter(options.beton, {"image": image, "label": IntField()}, num_workers=options.workers)
    # The order in the file is shuffled, so that even quasi-random batches hold many classes.
    classes = writer.from_image_folder(options.folder, shuffle_indices=True, seed=0)
    print(f"{options.beton}: {len(classes)} classes, {options.beton.stat().st_size / 1e9:.3f} GB")


if __name__ == "__main__":
    main()
