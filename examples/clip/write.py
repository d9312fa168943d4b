"""Write images and their captions as a .beton file; the captions are stored as tokens of a fixed number.

    python -m examples.clip.write train.csv train.beton --tokenizer openai/clip-vit-base-patch32

The table has the columns `image`, a path relative to the table, and `caption`. `--tokenizer` is one of Hugging Face's,
or `bytes`: each byte of the UTF-8 text is a token. Token 0 fills the end.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpubeton.fields import NDArrayField, RGBImageField
from gpubeton.writer import DatasetWriter


class Pairs:
    """The rows of a table."""

    def __init__(self, table: Path, encode: Callable[[str], list[int]], length: int) -> None:
        self.folder, self.encode, self.length = table.parent, encode, length
        with open(table, newline="", encoding="utf-8") as file:
            self.rows = [(row["image"], row["caption"]) for row in csv.DictReader(file)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Path, NDArray[np.int32]]:
        """Return an image's file and its tokens."""
        image, caption = self.rows[index]
        result = self.encode(caption)[: self.length]
        tokens = np.zeros(self.length, np.int32)
        tokens[: len(result)] = result
        return self.folder / image, tokens


def encode_bytes(text: str) -> list[int]:
    """Return one token for each byte, from 2, after the token 1 of the beginning."""
    return [1, *(byte + 2 for byte in text.encode())]


def tokenizer_of(name: str) -> tuple[Callable[[str], list[int]], int]:
    """Return a function that makes tokens from 1, and the number of tokens with the filling."""
    if name == "bytes":
        return encode_bytes, 258
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name)
    return lambda text: [token + 1 for token in tokenizer(text, truncation=True)["input_ids"]], len(tokenizer) + 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("beton", type=Path)
    parser.add_argument("--tokenizer", default="bytes")
    parser.add_argument("--length", type=int, default=77, help="tokens of a text; longer ones are cut")
    parser.add_argument("--max-side", type=int, default=256, help="larger images are made smaller")
    parser.add_argument("--workers", type=int, default=-1)
    options = parser.parse_args(arguments)
    encode, vocabulary = tokenizer_of(options.tokenizer)
    fields = {
        "image": RGBImageField(write_mode="jpg", max_resolution=options.max_side),
        "tokens": NDArrayField(np.dtype("<i4"), (options.length,)),
    }
    notes = {"tokenizer": options.tokenizer, "vocabulary": vocabulary, "length": options.length}
    writer = DatasetWriter(options.beton, fields, num_workers=options.workers, notes=notes)
    writer.from_indexed_dataset(Pairs(options.table, encode, options.length))


if __name__ == "__main__":
    main()
