"""Decide which places of an epoch each rank takes, and which host serves which virtual nodes of the window order.

Pages belong to virtual nodes for all epochs, and a host serves the same virtual nodes in all of them: its cache has
what it needs. The batches of all ranks are stretches of the order, whatever the hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Rank:
    """One of several processes that share an epoch."""

    number: int  # from 0
    world: int  # number of ranks

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.world:
            raise OptionError(f"rank {self.number} of {self.world}; expected a rank from 0 to {self.world - 1}")

    def share(self, count: int) -> int:
        """Samples of each rank, repeated ones included."""
        return -(-count // self.world)

    def cut(self, rows: NDArray[np.intp], batch_size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Give this rank's part of each batch of all ranks, (B, batch_size), and of the last, smaller one, (1, N)."""
        batches, rest = np.split(rows, [len(rows) // (batch_size * self.world) * batch_size * self.world])
        return batches.reshape(-1, self.world, batch_size)[:, self.number], rest.reshape(self.world, -1)[[self.number]]


@dataclass(frozen=True)
class Places:
    """Every `step`-th place of an epoch, from the first on."""

    count: int
    first: int = 0
    step: int = 1

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice) -> NDArray[np.int64]:
        return self.first + self.step * np.arange(*rows.indices(self.count))


@dataclass(frozen=True)
class StreamPlaces:
    """The places of a rank that has streams next to each other; places after the last are those of the next round."""

    # Of each batch of all ranks, so that after any of them the same samples are left as with any other ranks.

    rank: Rank
    streams: int
    batch_size: int  # of each rank
    first: int  # of all ranks
    total: int

    @property
    def step(self) -> int:
        """Places of all ranks for each of this rank."""
        return self.rank.world

    def __len__(self) -> int:
        return self.rank.share(max(self.total - self.first, 0))

    def __getitem__(self, rows: slice) -> NDArray[np.int64]:
        start, stop, _ = rows.indices(len(self))
        batch, world = self.batch_size, self.rank.world
        begin, end = start // batch * batch, min(-(-stop // batch) * batch, len(self))
        place = self.first + np.arange(begin * world, end * world)
        place = place[np.lexsort([place % self.streams, np.arange(len(place)) // (batch * world)])]
        return np.concatenate([part.ravel() for part in self.rank.cut(place, batch)])[start - begin : stop - begin]


def nodes_of_hosts(nodes: int, hosts: Collection[int]) -> dict[int, list[int]]:
    """Deal virtual nodes to hosts by their numbers: as many to each, or one more."""
    # Host n takes what it gets from the hosts below it, and they keep the rest. Hosts that are missing leave theirs to
    # those with the fewest. So only the nodes of hosts that come or go move, and those that come back get theirs again.
    held = {0: list(range(nodes))}
    for new in range(1, max(hosts) + 1):
        size, rest = divmod(nodes, new + 1)
        taken: list[int] = []
        for host, numbers in held.items():
            count = len(numbers) - size - (host < rest)
            # Far from each other: the places of a short stretch of the order are then of as many hosts as possible.
            taken += [numbers[(2 * nth + 1) * len(numbers) // (2 * count)] for nth in range(count)]
            held[host] = sorted(set(numbers).difference(taken))
        held[new] = sorted(taken)
    for missing in sorted(set(held).difference(hosts)):
        for number in held.pop(missing):
            present = held.keys() & set(hosts)
            held[min(present, key=lambda host: (len(held[host]), host))].append(number)
    return held


@dataclass(frozen=True)
class HostPlaces(StreamPlaces):
    """The places of a rank that takes the virtual nodes of its host; after the last come those of the next round."""

    # Of each batch of all ranks, so that after any of them the same samples are left as with any other hosts. A host
    # takes the samples of its nodes alone if the number of nodes divides such a batch, and that of hosts the number of
    # nodes. A stream is a node.

    hosts: tuple[int, ...]  # the number of the host of each rank

    def __getitem__(self, rows: slice) -> NDArray[np.int64]:
        start, stop, _ = rows.indices(len(self))
        period = self._whole.size
        whole = len(self) // self.batch_size * self.batch_size
        turn, row = np.divmod(np.arange(start, min(stop, whole)), max(period, 1))
        place = self.first + turn * period * self.rank.world + self._whole.reshape(-1)[row]
        if stop <= whole:
            return place
        return np.concatenate([place, self._rest[max(start - whole, 0) : stop - whole]])

    @cached_property
    def _whole(self) -> NDArray[np.int64]:
        """The places of the first batches after `first`, (N, batch_size): those of later ones repeat them."""
        size = self.batch_size * self.rank.world
        count = min(self.streams // gcd(self.streams, size), len(self) // self.batch_size)
        places = [self._chosen(np.arange(start, start + size)) for start in range(0, count * size, size)]
        return np.array(places, np.int64).reshape(count, self.batch_size)

    @cached_property
    def _rest(self) -> NDArray[np.int64]:
        """The places of the last, incomplete batch, (N,)."""
        start = len(self) // self.batch_size * self.batch_size * self.rank.world
        return self.first + self._chosen(np.arange(start, len(self) * self.rank.world))

    @cached_property
    def _host_of(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The host of each rank, (W,), and of each virtual node, (streams,), by its place among the hosts."""
        numbers, of_rank = np.unique(self.hosts, return_inverse=True)
        dealt, of_node = nodes_of_hosts(self.streams, numbers.tolist()), np.empty(self.streams, np.intp)
        for place, number in enumerate(numbers.tolist()):
            of_node[dealt[number]] = place
        return of_rank, of_node

    def _chosen(self, place: NDArray[np.int64]) -> NDArray[np.int64]:
        """Choose this rank's places, which rise, among those of one batch of all ranks; from `first` on, (N,)."""
        of_rank, of_node = self._host_of
        size = len(place) // self.rank.world
        room = np.bincount(of_rank) * size  # of each host
        node = (self.first + place) % self.streams
        by_node = np.lexsort([node, of_node[node]])
        host = of_node[node[by_node]]
        # What is too much for a host, the last of its nodes, goes to those that have too little: by batches that the
        # number of nodes does not divide, or by hosts that do not divide it.
        is_over = np.arange(len(host)) - np.searchsorted(host, host) >= room[host]
        host[is_over] = np.repeat(np.arange(len(room)), np.maximum(room - np.bincount(host, minlength=len(room)), 0))
        own_host = of_rank[self.rank.number]
        chosen = np.sort(by_node[host == own_host])
        # The ranks of a host share its nodes, so that each reads few pages.
        chosen = chosen[np.argsort(node[chosen], kind="stable")]
        begin = np.count_nonzero(of_rank[: self.rank.number] == own_host) * size
        return np.sort(place[chosen[begin : begin + size]])
