"""LoaderState: where a loader stands, so that another one can go on from there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import StateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.format.index import Index
    from gpubeton.loader.epochs import Progress
    from gpubeton.loader.origin import Origin
    from gpubeton.loader.resumable import Resumable

_VERSION = 1

# Of an order's arguments, longer lists are told apart by a fingerprint.
_LONGEST_LIST = 16

# What to call the entries that have to be equal, and where they come from.
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
class LoaderState:
    """Where a loader stands, and what decides which batches are still to come.

    Parameters
    ----------
    epoch : int
        The epoch that is under way or comes next.
    batch : int
        The first batch of it that was not received.
    seed : int
        The loader's seed.
    file : str
        Fingerprint of the file.
    num_samples : int
        Samples of the file.
    indices : str
        Fingerprint of the loader's indices.
    order : str
        The order and its arguments.
    batch_size : int
        Samples in a batch.
    drop_last : bool
        Whether a smaller last batch is left out.
    world_size : int
        Number of ranks.
    """

    epoch: int
    batch: int
    seed: int
    file: str
    num_samples: int
    indices: str
    order: str
    batch_size: int
    drop_last: bool
    world_size: int

    def to_dict(self) -> dict[str, Any]:
        """Give the state as strings and numbers, which JSON and torch.save can store.

        Returns
        -------
        dict
            What `from_dict` takes.
        """
        return {"version": _VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> LoaderState:
        """Read a state.

        Parameters
        ----------
        state : mapping
            What `to_dict` gave.

        Returns
        -------
        LoaderState
            The state.

        Raises
        ------
        StateError
            If it is no such state.
        """
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
                f"the state has epoch {found['epoch']}, batch {found['batch']}, seed {found['seed']}; none is below 0"
            )
        return cls(**found)

    def check_against(self, own: LoaderState, *, seed_is_fixed: bool) -> None:
        """Refuse the state if this loader's batches would be others.

        Parameters
        ----------
        own : LoaderState
            The state of the loader that is to go on.
        seed_is_fixed : bool
            Whether that loader was made with a seed.

        Raises
        ------
        StateError
            If they differ in anything that decides what the batches hold, with all that differs.
        """
        differences = [
            f"{meaning} is {getattr(own, name)!r} here and {getattr(self, name)!r} in the state"
            for name, meaning in _MEANINGS.items()
            if (name != "seed" or seed_is_fixed) and getattr(own, name) != getattr(self, name)
        ]
        if differences:
            raise StateError(
                f"the state belongs to another loader: {'; '.join(differences)}. "
                "Make the loader with the arguments with which the saved one was made."
            )


def state_of(loader: Resumable, now: Progress, file: str, origin: Origin, world_size: int) -> LoaderState:
    """Tell where a loader stands.

    Parameters
    ----------
    loader : Resumable
        The loader.
    now : Progress
        The epoch that is under way or comes next.
    file : str
        Fingerprint of the loader's file.
    origin : Origin
        Where that epoch's samples come from.
    world_size : int
        Number of ranks.

    Returns
    -------
    LoaderState
        Its state.
    """
    indices, order = origin.fingerprints
    return LoaderState(
        epoch=now.epoch,
        batch=now.batch,
        seed=loader.seed,
        file=file,
        num_samples=loader.reader.num_samples,
        indices=indices,
        order=order,
        batch_size=now.batch_size,
        drop_last=now.drop_last,
        world_size=world_size,
    )


def file_fingerprint(index: Index) -> str:
    """Tell a file from others by its fields and metadata, which say where every region is.

    Parameters
    ----------
    index : Index
        The file.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=16)
    for descriptor in index.descriptors:
        digest.update(repr((descriptor.name, descriptor.type_id)).encode())
    digest.update(np.ascontiguousarray(index.metadata).view(np.uint8).data)
    return digest.hexdigest()


def indices_fingerprint(indices: NDArray[np.uint64]) -> str:
    """Tell indices from others.

    Parameters
    ----------
    indices : ndarray of uint64, shape (N,)
        Sample ids.

    Returns
    -------
    str
        Their number and 16 hexadecimal digits.
    """
    digest = hashlib.blake2b(np.ascontiguousarray(indices).view(np.uint8).data, digest_size=8)
    return f"{len(indices)} samples, {digest.hexdigest()}"


def arguments_fingerprint(arguments: Mapping[str, Any]) -> str:
    """Write the arguments of an order down so that they can be told from others.

    Parameters
    ----------
    arguments : mapping of str to object
        The arguments. Arrays and long lists of numbers are given by fingerprints: written down, numpy would leave most
        of an array out.

    Returns
    -------
    str
        The arguments as Python writes a dict; nothing if there are none.

    Examples
    --------
    >>> arguments_fingerprint({"step": 2, "weights": np.ones(3)})
    "{'step': 2, 'weights': 'float64 (3,), 15e0d9b6717f8ff8'}"
    """
    return str({name: _fingerprint(value) for name, value in arguments.items()} or "")


def _fingerprint(value: Any) -> Any:
    is_long = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > _LONGEST_LIST
    if not is_long and not hasattr(value, "__array__"):
        return value
    array = np.ascontiguousarray(value)
    if array.dtype.kind not in "biuf" or array.nbytes <= array.itemsize:
        return value
    digest = hashlib.blake2b(array.reshape(-1).view(np.uint8).data, digest_size=8)
    return f"{array.dtype} {np.shape(value)}, {digest.hexdigest()}"
