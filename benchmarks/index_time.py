"""Time and size of the entry points of photos: ``python -m benchmarks.index_time data/jpg-2000.beton``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.results import RESULTS, save
from gpubeton._writing.make_indexes import find_all
from gpubeton.format import open_dataset
from gpubeton.format.entry_points import image_fields


def main() -> None:
    """Print and save processor time, time on all cores, and bytes of each image and of a million."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="a .beton file with JPEGs")
    parser.add_argument("--workers", type=int, default=-1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the result")
    options = parser.parse_args()
    index = open_dataset(options.file)
    (name, *_) = image_fields(index)
    stored = int(index.regions(name).size.sum())
    blocks = list(find_all(index, name, 0, options.workers))  # compiles, and reads the file into memory
    times = []
    for _ in range(options.rounds):
        cpu, wall = time.process_time(), time.perf_counter()
        blocks = list(find_all(index, name, 0, options.workers))
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu, wall = (min(pair[i] for pair in times) / index.num_samples for i in (0, 1))
    size = sum(block.nbytes for block, _, _ in blocks) / index.num_samples
    share = 100 * size * index.num_samples / stored
    print(f"{index.num_samples:,} images of {stored / index.num_samples / 1000:.1f} kB")
    print(f"{1e6 * cpu:.0f} µs of one core an image; a million: {1e6 * cpu / 60:.1f} minutes of one core")
    print(f"{1e6 * wall:.0f} µs on these cores; a million: {1e6 * wall / 60:.1f} minutes")
    print(f"{size:.0f} bytes an image, {share:.2f} %; a million: {size / 1000:.2f} GB")
    results = {"cpu_us": 1e6 * cpu, "wall_us": 1e6 * wall, "bytes": size, "share": share / 100}
    images = {"images": index.num_samples, "stored_bytes": stored}
    print(f"Written: {save('index_time', {**images, **results, 'rounds': options.rounds}, options.results)}")


if __name__ == "__main__":
    main()
