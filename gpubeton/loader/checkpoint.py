"""Checkpoint: the position of a loader, so that another one can resume there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from gpubeton._plan.order import Rank
from gpubeton.errors import StateError
from gpubeton.loader.schedule import old_range_fingerprint, range_fingerprint

if TYPE_CHECKING:
    from gpubeton.loader.config import LoaderConfig
    from gpubeton.loader.schedule import EpochCursor, EpochSchedule, Sampling
    from gpubeton.traversal_order.base import TraversalOrder

_VERSION = 3

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
    "distributed": "distributed",
}
# Those that may differ if the order is global.
_ANY_RANKS = {"batch_size", "world_size", "distributed"}


@dataclass(frozen=True)
class Checkpoint:
    """The position of a loader, and all that decides which batches follow."""

    epoch: int  # the current epoch, or the next
    samples: int  # received of it by all ranks together, as if all had received as many batches
    first: int  # of these, the samples before batch 0: received from a loader of other ranks or batches
    seed: int
    file: str  # fingerprint
    num_samples: int  # of the file
    indices: str  # fingerprint
    order: str  # its class and arguments
    batch_size: int
    drop_last: bool
    world_size: int  # number of ranks
    distributed: bool  # whether samples are shuffled as ranks do

    @property
    def batch(self) -> int:
        """The first batch that was not received."""
        return (self.samples - self.first) // (self.batch_size * self.world_size)

    def to_dict(self) -> dict[str, Any]:
        """Convert to strings and numbers, which JSON and torch.save can store."""
        return {"version": _VERSION, **asdict(self), "batch": self.batch}

    @classmethod
    def of(
        cls, config: LoaderConfig, cursor: EpochCursor, sampling: Sampling, *, file: str, num_samples: int, ranks: int
    ) -> Checkpoint:
        """Describe a position: in an epoch, of samples that were chosen like this."""
        indices, order = sampling.fingerprints
        return cls(
            epoch=cursor.epoch,
            samples=cursor.first + cursor.batch * cursor.batching.batch_size * ranks,
            first=cursor.first,
            seed=config.seed,
            file=file,
            num_samples=num_samples,
            indices=indices,
            order=order,
            batch_size=cursor.batching.batch_size,
            drop_last=cursor.batching.drop_last,
            world_size=ranks,
            distributed=config.distributed if sampling.for_ranks is None else sampling.for_ranks,
        )

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], *, distributed: bool, num_samples: int) -> Checkpoint:
        """Read and check the result of `to_dict`; the loader's arguments are for older versions."""
        if not isinstance(state, Mapping):
            raise StateError(f"a loader's state is a dict, not {type(state).__name__}")
        if state.get("version") not in range(1, _VERSION + 1):
            raise StateError(
                f"the state has version {state.get('version')!r}, expected 1 to {_VERSION}. "
                "It was saved by another release, or is not the state of a loader."
            )
        names = {entry.name: entry.type for entry in fields(cls)}
        if state["version"] == 1:  # it did not save `distributed`, and counted the batches of a rank
            names = {name: kind for name, kind in names.items() if name not in ("samples", "first", "distributed")}
            names["batch"] = "int"
        found: dict[str, Any] = {}
        for name, kind in names.items():
            value: Any = state.get(name)
            if type(value).__name__ != kind:
                raise StateError(f"the state's entry {name!r} is {value!r}, expected one of type {kind}")
            least = 1 if name in ("batch_size", "world_size") else 0
            if kind == "int" and value < least:
                raise StateError(f"the state's entry {name!r} is {value}, expected at least {least}")
            found[name] = value
        if "batch" in found:
            samples = found.pop("batch") * found["batch_size"] * found["world_size"]
            found.update(samples=samples, first=0, distributed=distributed or found["world_size"] > 1)
        # Before version 3, all ids were hashed, also if they are those of all samples.
        if state["version"] < 3 and found["indices"] == old_range_fingerprint(num_samples):
            found["indices"] = range_fingerprint(num_samples)
        loaded = cls(**found)
        if loaded.samples < loaded.first or (loaded.samples - loaded.first) % (loaded.batch_size * loaded.world_size):
            raise StateError(
                f"the state has {loaded.samples} samples after {loaded.first}, expected whole batches of "
                f"{loaded.world_size} times {loaded.batch_size}"
            )
        return loaded

    def check_against(self, own: Checkpoint, *, seed_is_fixed: bool, order: TraversalOrder, is_global: bool) -> None:
        """Refuse the state if the loader's `own` checkpoint differs in anything that decides what batches hold."""
        may_differ = (set() if seed_is_fixed else {"seed"}) | (_ANY_RANKS if is_global else set())
        names = [name for name in _MEANINGS if name not in may_differ and getattr(own, name) != getattr(self, name)]
        if not names:
            return
        differences = "; ".join(
            f"{_MEANINGS[name]} is {getattr(own, name)!r} here and {getattr(self, name)!r} in the state"
            for name in names
        )
        advice = "Make the loader with the arguments of the saved one."
        if _ANY_RANKS.issuperset(names):
            advice += (
                f" The batches of {type(order).__name__} depend on them. With order='window' or 'random', another "
                "number of ranks and another batch size can go on with an epoch."
            )
        raise StateError(f"the state belongs to another loader: {differences}. {advice}")

    def place_in(self, own: Checkpoint, schedule: EpochSchedule) -> tuple[int, int]:
        """Give `first` and `batch` of a loader with the ranks and the batches of `own` that goes on here."""
        is_alike = (self.batch_size, self.world_size) == (own.batch_size, own.world_size)
        if is_alike:
            num_samples, num_batches = 0, len(schedule.plan(self.epoch, first=self.first))
        else:
            num_samples = schedule.num_samples_of(self.epoch)
            share = Rank(0, self.world_size).share(max(num_samples - self.first, 0))
            num_batches = share // self.batch_size if self.drop_last else -(-share // self.batch_size)
        if self.batch > num_batches:
            raise StateError(f"the state is at batch {self.batch}, but epoch {self.epoch} has {num_batches}")
        if is_alike:
            return self.first, self.batch
        # Nothing is left of an epoch that is over, also if its last samples made no whole batch.
        return (max(self.samples, num_samples) if self.batch == num_batches else self.samples), 0
