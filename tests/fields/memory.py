"""A `Malloc` for tests: it keeps what a field stores."""

from __future__ import annotations

import numpy as np


class SampleMemory:
    """Allocates at address 1000, as a page of a file would."""

    def __init__(self, sample=0):
        self.sample = sample
        self.regions = {}
        self.next = 1000

    def __call__(self, size):
        region = np.zeros(size, np.uint8)
        pointer, self.next = self.next, self.next + size
        self.regions[pointer] = region
        return pointer, region


def encode(field, value, sample=0):
    """One value, encoded: its metadata and the bytes of its region (None without one)."""
    row = np.zeros(1, field.metadata_type)
    memory = SampleMemory(sample)
    field.encode(row, value, memory)
    regions = [region.tobytes() for region in memory.regions.values()]
    return row[0], regions[0] if regions else None


def gather_from(values):
    """What the engine gives decoders: the regions of a batch, each followed by zeros."""
    return lambda width: np.array([list(value.ljust(width, b"\0")[:width]) for value in values], np.uint8).reshape(
        len(values), width
    )
