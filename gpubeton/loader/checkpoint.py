"""Checkpoint: the position of a loader, so that another one can resume there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import StateError

if TYPE_CHECKING:
    from gpubeton.format.index import Index
    from gpubeton.loader.config import LoaderConfig
    from gpubeton.loader.schedule import EpochCursor, Sampling

_VERSION = 1

# The entries that have to be equal, and how an error calls them.
_MEANINGS = {
    "file": "the file (its fields and metadata)",
    "num_samples": "number of samples in the file",
    "indices": "indices",
    "order": "order",
    "seed": "the seed",
    "batch_size": "batch_size",
    "drop_last": "drop_last",
    "world_size": "number of ranks",
}


@dataclass(frozen=True)
class Checkpoint:
    """The position of a loader, and all that decides which batches follow."""

    epoch: int  # the current epoch, or the next
    batch: int  # the first one that was not received
    seed: int
    file: str  # fingerprint
    num_samples: int  # of the file
    indices: str  # fingerprint
    order: str  # its class and arguments
    batch_size: int
    drop_last: bool
    world_size: int  # number of ranks

    def to_dict(self) -> dict[str, Any]:
        """Convert to strings and numbers, which JSON and torch.save can store."""
        return {"version": _VERSION, **asdict(self)}

    @classmethod
    def of(
        cls, config: LoaderConfig, cursor: EpochCursor, sampling: Sampling, *, file: str, num_samples: int, ranks: int
    ) -> Checkpoint:
        """Describe a position: in an epoch, of samples that were chosen like this."""
        indices, order = sampling.fingerprints
        return cls(
            epoch=cursor.epoch,
            batch=cursor.batch,
            seed=config.seed,
            file=file,
            num_samples=num_samples,
            indices=indices,
            order=order,
            batch_size=cursor.batching.batch_size,
            drop_last=cursor.batching.drop_last,
            world_size=ranks,
        )

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Checkpoint:
        """Read and check the result of `to_dict`."""
        if not isinstance(state, Mapping):
            raise StateError(f"a loader's state is a dict, not {type(state).__name__}")
        if state.get("version") != _VERSION:
            raise StateError(
                f"the state has version {state.get('version')!r}, expected {_VERSION}. "
                "It was saved by another release, or is not the state of a loader."
            )
        found: dict[str, Any] = {}
        for entry in fields(cls):
            value = state.get(entry.name)
            if type(value).__name__ != entry.type:
                raise StateError(f"the state's entry {entry.name!r} is {value!r}, expected one of type {entry.type}")
            found[entry.name] = value
        if found["epoch"] < 0 or found["batch"] < 0 or found["seed"] < 0:
            raise StateError(
                f"the state has epoch {found['epoch']}, batch {found['batch']}, seed {found['seed']}; expected at "
                "least 0"
            )
        return cls(**found)

    def check_against(self, own: Checkpoint, *, seed_is_fixed: bool) -> None:
        """Refuse the state if the loader's `own` checkpoint differs in anything that decides what batches hold."""
        differences = [
            f"{meaning} is {getattr(own, name)!r} here and {getattr(self, name)!r} in the state"
            for name, meaning in _MEANINGS.items()
            if (name != "seed" or seed_is_fixed) and getattr(own, name) != getattr(self, name)
        ]
        if differences:
            raise StateError(
                f"the state belongs to another loader: {'; '.join(differences)}. "
                "Make the loader with the arguments of the saved one."
            )


def file_fingerprint(index: Index) -> str:
    """Hash the fields and the metadata, which locate every region; gives 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for descriptor in index.descriptors:
        digest.update(repr((descriptor.name, descriptor.type_id)).encode())
    digest.update(np.ascontiguousarray(index.metadata).view(np.uint8).data)
    return digest.hexdigest()
