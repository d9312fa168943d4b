"""Write a folder of photos in the formats of the streaming loaders; runs in their environment.

python -m benchmarks.contenders.streamed_files PHOTOS OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import webdataset
from litdata import optimize
from streaming import MDSWriter

from benchmarks.harness.photos import list_photos

_SHARD = 64 << 20  # bytes; the default of LitData and MDS


def sample(photo: tuple[str, int]) -> dict[str, object]:
    """Read a photo."""
    path, label = photo
    return {"jpeg": Path(path).read_bytes(), "label": label}


def main(photos: Path, out: Path) -> None:
    """Write all formats."""
    result = list_photos(photos)
    classes = sorted({name for _, name in result})
    files = [(str(path), classes.index(name)) for path, name in result]
    with MDSWriter(out=str(out / "mds"), columns={"jpeg": "bytes", "label": "int"}, size_limit=_SHARD) as writer:
        for file in files:
            writer.write(sample(file))
    optimize(sample, files, str(out / "litdata"), chunk_bytes=_SHARD, num_workers=1)
    (out / "wds").mkdir()
    with webdataset.ShardWriter(str(out / "wds" / "%06d.tar"), maxsize=_SHARD, verbose=0) as shards:
        for number, file in enumerate(files):
            read = sample(file)
            shards.write({"__key__": f"{number:08d}", "jpg": read["jpeg"], "cls": str(read["label"]).encode()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
