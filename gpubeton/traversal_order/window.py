"""Window: the samples shuffled, from a window of pages that moves through the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._plan.order import LazyIds, WindowIds, WindowOrder, cut_for_nodes, ids_and_runs
from gpubeton._plan.places import HostPlaces, Rank, StreamPlaces, nodes_of_hosts
from gpubeton.errors import OptionError
from gpubeton.pipeline.validation import check_whole
from gpubeton.traversal_order.base import GlobalOrder, OrderedLoader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.format.index import Index

# Samples of a run on average, from which on the order is made block by block.
_RUN = 8
# Bytes that belong to one virtual node: a page of the node's cache.
_PART = 8 << 20
# How launchers name the number of hosts, and that of this one: torchrun and SLURM.
_LAUNCHERS = ("GROUP_WORLD_SIZE", "GROUP_RANK"), ("SLURM_NNODES", "SLURM_NODEID")


class Window(GlobalOrder):
    """The samples shuffled so that each rank reads whole pages of the file, a few at a time, each of them once.

    The samples are divided into streams of randomly chosen pages. A batch takes samples from all streams in turn; a
    stream mixes the samples of `width` pages, which move on page by page. So about ``streams * width`` pages are in use
    at a time by all ranks together, and about ``streams * width / world`` by one of them.

    Parameters
    ----------
    loader : Loader
        The loader that asks; its file must have a field with regions, whose pages count.
    streams : int
        Number of streams. If the number of ranks divides it, no two ranks read the same page, except at the ends of
        the streams. Of others, neighbors share a stream, and its pages. With more ranks than streams, each page is
        read by several.
    width : int
        Pages that a stream mixes. More pages mix better and need more memory.
    nodes : int, optional
        Number of virtual nodes, to which the pages belong in all epochs: each is a stream, in the place of `streams`. A
        host serves the same virtual nodes in all epochs, so that its `cache_dir` keeps what it needs.
    hosts : int or sequence of int, optional
        With `nodes`, the number of hosts, whose ranks follow each other, or the number of each rank's host. The default
        is that of the launcher: torchrun's GROUP_WORLD_SIZE, else SLURM_NNODES, else 1.

    Raises
    ------
    OptionError
        If `streams`, `width` or `nodes` is no whole number from 1 on, at most 65,536 but for `streams`; or if the hosts
        are more than the nodes, or do not fit the ranks.

    Notes
    -----
    With `nodes`, a batch of all ranks takes as many samples of each virtual node, or one more, and is the same for any
    hosts. If the number of hosts divides `nodes`, and `nodes` divides the samples of a batch of all ranks, each host
    takes those of its virtual nodes alone; else, a few of others. When hosts come or go, only their virtual nodes move.
    Pages are at least 8 MiB then, and belong to the same virtual nodes for all seeds.

    The order is a function of the seed, the epoch, the file's pages, `streams` and `width`. It does not depend on the
    number of ranks or the batch size: any number of ranks can go on with an epoch. Which rank has which samples of a
    batch of all ranks does: every world-th where the number of ranks divides `streams`, else those of streams next to
    each other.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> loader = Loader("train.beton", 4, order=Window, order_kwargs={"width": 2}, seed=0, indices=[4, 7, 9, 11])
    >>> sorted(loader.plan()[0].samples.tolist())
    [4, 7, 9, 11]
    """

    local_arguments = frozenset({"hosts"})

    def __init__(
        self,
        loader: OrderedLoader,
        streams: int = 64,
        width: int = 16,
        nodes: int | None = None,
        hosts: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__(loader)
        self.streams = check_whole("streams", streams, 1)
        self.width = check_whole("width", width, 1, 1 << 16)
        self.hosts: tuple[int, ...] = ()  # the number of each rank's host; nothing without virtual nodes
        if nodes is None:
            self.runs = loader.reader.index.page_runs()
            return
        self.runs = loader.reader.index.page_runs(_PART)
        self.streams = check_whole("nodes", nodes, 1, 1 << 16)
        self.hosts = (0,) if self.rank is None else hosts_of_ranks(hosts, self.rank, self.streams)
        self.caches_all = len(set(self.hosts)) == 1

    def global_ids(self, epoch: int) -> NDArray[Any] | LazyIds:
        ids, runs = ids_and_runs(self.ids, self.runs)
        window = WindowOrder(ids, runs, self.streams, self.width, self.seed, epoch, keeps_pages=bool(self.hosts))
        order = WindowIds.all(window)
        # Where neighbors are in different pages, the order takes less memory than its parts.
        return order if len(runs.page) * _RUN <= len(ids) else order[:]

    def _share(self, ids: NDArray[Any] | LazyIds, first: int) -> NDArray[Any] | LazyIds:
        if self.rank is None or (not self.hosts and self.streams % self.rank.world == 0):
            return super()._share(ids, first)
        # Every world-th sample would be from nearly all streams: each page would be read by most ranks.
        streams = self.rank, self.streams, self.loader.batch_size, first, len(ids)
        places = HostPlaces(*streams, self.hosts) if self.hosts else StreamPlaces(*streams)
        return (
            WindowIds(ids.order, places)
            if isinstance(ids, WindowIds)
            else np.asarray(ids)[places[:] % max(len(ids), 1)]
        )


def hosts_of_ranks(hosts: int | Sequence[int] | None, rank: Rank, nodes: int) -> tuple[int, ...]:
    """Find the number of each rank's host: from the argument of `Window`, else from the launcher."""
    launched: int | None = None
    if hosts is None:
        hosts, launched = _launched_hosts()
    if isinstance(hosts, Sequence | np.ndarray):
        numbers = tuple(check_whole("a number of hosts", number, 0) for number in hosts)
        title = f"hosts has {len(numbers)} numbers"
    else:
        count = check_whole("hosts", hosts, 1)
        numbers = tuple(number * count // rank.world for number in range(rank.world))
        title = f"there are {count} hosts"
        if rank.world % count:
            numbers = ()
    if len(numbers) != rank.world or (launched is not None and numbers[rank.number] != launched):
        is_number = "" if launched is None else f", this is rank {rank.number} on host {launched} by the environment"
        raise OptionError(
            f"Window: {title} for {rank.world} ranks{is_number}; expected hosts with as many ranks each, one after the "
            "other. Otherwise, pass the number of each rank's host: order_kwargs={'nodes': ..., 'hosts': [0, 0, 1, 2]}"
        )
    if max(numbers) >= nodes:
        raise OptionError(
            f"Window: a host has the number {max(numbers)}, and there are {nodes} virtual nodes; expected numbers from "
            f"0 to {nodes - 1}. Give more nodes, best a multiple of the number of hosts"
        )
    return numbers


def _launched_hosts() -> tuple[int, int | None]:
    """Ask the launcher for the number of hosts, and that of this one; a single one without a launcher."""
    for names in _LAUNCHERS:
        count, number = (os.environ.get(name, "").strip() for name in names)
        if count.isdecimal() and number.isdecimal():
            return int(count), int(number)
    return 1, None


def parts_of_host(index: Index, nodes: int, host: int | None, hosts: int | None) -> list[list[range]]:
    """Give the bytes of each file that belong to a host, by default this one: those of its virtual nodes' pages."""
    count, number = _launched_hosts()
    hosts = check_whole("hosts", count if hosts is None else hosts, 1, check_whole("nodes", nodes, 1, 1 << 16))
    host = number if host is None else host
    if host is None and hosts > 1:
        raise OptionError(
            f"hosts is {hosts}, and no launcher tells which of them this is; expected its number: --host 0"
        )
    host = check_whole("host", host or 0, 0, hosts - 1)
    runs = index.page_runs(_PART)
    run, _, _, node = cut_for_nodes(runs, nodes)
    pages = np.unique(runs.page[run[np.isin(node, nodes_of_hosts(nodes, range(hosts))[host])]])
    parts, first = [], 0
    for file in index.files:
        page_size, num_pages = file.pages_of(_PART)
        begin, end = np.searchsorted(pages, (first, first + num_pages)).tolist()
        starts = ((pages[begin:end] - first) * page_size).tolist()
        parts.append([range(start, min(start + page_size, file.size)) for start in starts])
        first += num_pages
    return parts
