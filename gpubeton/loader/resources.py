"""Open what a loader reads; Resources: its files, their cache, memory and the GPU, kept from epoch to epoch."""

from __future__ import annotations

import os
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._bytes.open_files import CacheFiller, OpenSources, source_type
from gpubeton._bytes.store_client import shown
from gpubeton._cpu.worker_pool import WorkerPool
from gpubeton._engine.buffers import ArrayPool, Staging
from gpubeton._engine.engine import Engine
from gpubeton._engine.outputs import ImageOutput
from gpubeton._engine.sources import READS_AHEAD
from gpubeton._engine.storage import FIRST_REQUESTS, LoadedStorage, MappedStorage
from gpubeton._machine import read_machine
from gpubeton._plan.page_plan import MAX_REQUEST, PagePlan
from gpubeton._sources import is_container, open_source
from gpubeton._writing import make_index
from gpubeton.errors import DeviceError, LoaderClosedError, NotesError, OptionError, RemoteMissingError, StorageError
from gpubeton.format import ImageMode
from gpubeton.format.data_files import MAX_FILES
from gpubeton.format.dataset import join
from gpubeton.format.entry_points import open_entry_points
from gpubeton.format.header import Descriptor
from gpubeton.format.index import Index
from gpubeton.format.layout import ARGUMENTS_SIZE, FieldType
from gpubeton.format.regions import FieldRows
from gpubeton.loader.gpus import NO_ENTRY_POINTS, GpuChoice, choose_gpu, make_gpu
from gpubeton.loader.mixture import Mixture
from gpubeton.reader import Reader, reader_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from gpubeton._bytes.node_cache import NodeCache
    from gpubeton._engine.batch_plan import Plan
    from gpubeton._engine.engine import EpochConfig
    from gpubeton._engine.output_graph import Output, Pipeline
    from gpubeton._engine.storage import Storage
    from gpubeton._engine.timing import StageTimers
    from gpubeton._gpu.gpu import Gpu
    from gpubeton._plan.order import EpochBatches
    from gpubeton.format.data_files import DataFile
    from gpubeton.format.entry_points import EntryPoints
    from gpubeton.loader.config import LoaderConfig
    from gpubeton.loader.resident_images import ResidentImages
    from gpubeton.traversal_order.mixed import MixtureRules


# Seconds of indexing from which on a loader says how to spare them, and images that a warning names.
_LONG = 2.0
_MOST_NAMED = 3

# Warnings about GPUs, each of which is given once.
_warned = {""}

_GIB = 1 << 30
# An epoch warns of its requests if they are so many times what its bytes need in parts of the usual size, and some.
_TOO_MANY = 4
_LEAST_REQUESTS = 100
_FEW_FILES = 64  # whose notes are read at once
# Pages that no sample is in (metadata, the allocation table) are fetched, so that the files can be mapped: up to this
# share of all, or as much as two pages of each file. The epoch waits for them only if they have few bytes.
_FEW = 1 / 8
_FEW_BYTES = 1 << 30


def open_all(
    fname: str | tuple[str, ...] | Mixture, config: LoaderConfig, num_workers: int
) -> tuple[Reader, tuple[MixtureRules, list[int]] | None]:
    """Open the data of a loader; of a mixture, with the first sample of each source, and the number of all."""
    if not isinstance(fname, Mixture):
        return _with_classes(open_data(fname, config, num_workers)), None
    mixture, starts, containers = fname, [0], set[bool]()

    def parts() -> Iterator[Index]:
        for source in mixture.sources:
            index = open_data(source, config, num_workers).index
            starts.append(starts[-1] + index.num_samples)
            containers.update(file.is_container for file in index.files)
            yield index

    index = join(parts())
    if len(index.files) > MAX_FILES:
        raise OptionError(f"{mixture!r}: {len(index.files)} files; expected at most {MAX_FILES}")
    if len(containers) > 1:  # of containers and others, whose names are in notes, none
        index.class_names = ()
    if mixture.field is not None:
        if mixture.field in index.names:
            raise OptionError(f"{mixture!r}: field {mixture.field!r} is in its sources. Take another name")
        descriptors = (*index.descriptors, Descriptor(mixture.field, int(FieldType.INT), bytes(ARGUMENTS_SIZE)))
        rows = (*index.rows, FieldRows(np.repeat(np.arange(len(starts) - 1), np.diff(starts)).astype("<i8")))
        index = Index(index.files, index.header, descriptors, rows, class_names=index.class_names)
    return _with_classes(reader_of(mixture.files, index, config.custom_fields)), (mixture.rules, starts)


def _with_classes(reader: Reader) -> Reader:
    """Let a reader of some local files compare the names of their classes; of many or remote ones it takes long."""
    files = reader.index.files
    if 1 < len(files) <= _FEW_FILES and not any("://" in file.path for file in files):
        with suppress(NotesError):  # a loader works with damaged notes
            reader.class_names  # noqa: B018  it warns
    return reader


def open_data(fname: str | tuple[str, ...], config: LoaderConfig, num_workers: int) -> Reader:
    """Open one source."""
    names = [fname] if isinstance(fname, str) else [*fname]
    if not all(map(is_container, names)):
        try:
            return Reader(fname, config.custom_fields, remote=config.remote, containers=config.containers)
        except RemoteMissingError:  # no .beton files
            if not (len(names) == 1 and "://" in names[0] and names[0].endswith("/")):
                raise
    start = time.perf_counter()
    source = open_source(names, remote=config.remote if "://" in names[0] else None)
    index, unread = make_index(source, num_workers=num_workers)
    seconds = time.perf_counter() - start
    name = f"{shown(names[0])}{f' and more, {len(index.files)} files' * (len(index.files) > 1)}"
    if unread:
        few = "; ".join(unread[:_MOST_NAMED])
        warnings.warn(
            f"{name}: {len(unread)} of {index.num_samples} images have no header that can be read: {few}. "
            "on_error decides what becomes of them",
            stacklevel=4,
        )
    if seconds > _LONG:
        warnings.warn(
            f"{name}: indexing {index.num_samples:,} samples took {seconds:.0f} s. To keep the index, and "
            f"to decode only what crops need: gpubeton index {shown(names[0])}{' ...' * (len(names) > 1)} -o "
            "NAME.index, then Loader('NAME.index', ...)",
            stacklevel=4,
        )
    return reader_of(fname, index)


def _is_far(file: DataFile) -> bool:
    """Whether the entry points of a file are loaded when they are needed: they are not on this machine."""
    place = file.entry_place
    if place is not None and place.path is not None:
        return not source_type(place.path).is_local
    return place is not None or not (file.is_container or source_type(file.path).is_local)


@lru_cache(maxsize=32)
def _verified_of(files: bytes, name: str, count: int) -> NDArray[np.bool_]:  # noqa: ARG001  the key
    """Give which samples of a field, (N,), this process has compared with checksums; one array for its loaders."""
    return np.zeros(count, np.bool_)


class DatasetCache:
    """The cache of the files of a loader; nothing is cached if `node` is None."""

    def __init__(self, index: Index, config: LoaderConfig) -> None:
        remote = [file for file in index.files if not source_type(file.path).is_local]
        self._remote = [file.identity for file in remote]
        self._few_bytes = sum(2 * file.page_size for file in remote)
        self.node: NodeCache | None = None
        if remote and config.cache_dir is not None:
            from gpubeton._bytes.node_cache import open_cache  # the import takes time

            self.node = open_cache(config.cache_dir, config.cache_limit)
        # They stay open: all epochs read the files that were checked, also when these are renamed or deleted.
        files = ((file.path, file.identity) for file in index.files)
        self.files = OpenSources(files, is_random=not config.os_cache, cache=self.node)
        self.files.hold()
        self._filler: CacheFiller | None = None
        self._waited_for: CacheFiller | None = None
        self._is_interrupted = False

    @property
    def holds_dataset(self) -> bool:
        """Whether the cache is large enough for all files that are not on this machine."""
        return self.node is not None and sum(identity.size for identity in self._remote) <= self.node.limit

    def prepare(self) -> None:
        """Fetch the last pages if few are missing; the files can be mapped then, or in a later epoch."""
        if self.node is None:
            return
        (missing, total), few = self._count_missing(), 2 * len(self._remote) + self._few_bytes // self.node.page_size
        if 0 < missing <= min(few, _FEW_BYTES // self.node.page_size):
            self._waited_for = filler = self._make_filler(waits=True)
            if self._is_interrupted:
                filler.interrupt()
            with suppress(StorageError):  # without them the epoch may go on
                filler.join()
        elif 0 < missing <= max(total * _FEW, few):
            self.begin_filling()

    def begin_filling(self) -> None:
        """Fetch all missing pages in the background, as far as the limit allows it; again after an error."""
        error = None if self._filler is None else self._filler.error
        if error is not None:
            warnings.warn(f"cache_dir: filling it in the background ended, and begins again: {error}", stacklevel=2)
        if self.node is not None and (self._filler is None or error is not None):
            self._filler = self._make_filler(waits=False)

    def explain(self) -> list[str]:
        """Describe the cached part, and the limit."""
        if self.node is None:
            return []
        missing, total = self._count_missing()
        dataset = sum(identity.size for identity in self._remote)
        fits = "" if self.holds_dataset else "; what does not fit is loaded in each epoch"
        return [
            f"cache: {total - missing} of {total} pages of {dataset / 1e9:,.3f} GB are in {self.node.directory}",
            f"cache: {self.node.used / 1e9:,.3f} GB are used, of at most {self.node.limit / 1e9:,.3f} GB{fits}",
        ]

    def interrupt(self) -> None:
        """End the waiting in `prepare`; called from any thread."""
        self._is_interrupted = True
        if self._waited_for is not None:
            self._waited_for.interrupt()

    def close(self) -> None:
        """End what runs in the background, and close the files; may be called twice."""
        if self._filler is not None:
            self._filler.close()
        self.files.close()

    def _make_filler(self, *, waits: bool) -> CacheFiller:
        return CacheFiller([partial(self.files.open, number) for number in range(len(self.files))], waits=waits)

    def _count_missing(self) -> tuple[int, int]:
        """Count the pages that are not there, and all."""
        assert self.node is not None
        counts = [self.node.count_pages(identity) for identity in self._remote]
        total = sum(pages for _, pages in counts)
        return total - sum(cached for cached, _ in counts), total


class Resources:
    """Files, memory and the GPU of a loader, kept from epoch to epoch because it takes time to make them."""

    def __init__(self, index: Index, config: LoaderConfig, pipelines: Mapping[str, Pipeline]) -> None:
        self.gpu: Gpu | None = None
        self.resident: ResidentImages | None = None
        self.lacks_entries = False  # whether the GPU would decode JPEGs if they had entry points
        self.gpu_choice = choose_gpu(config.device, config.decoder, pipelines)
        self.config = config
        self._index = index
        self.cache = DatasetCache(index, config)
        self.entry_points: Mapping[str, EntryPoints]
        if any(map(_is_far, index.files)):
            from gpubeton._engine.remote_entry_points import load_when_needed

            self.entry_points = load_when_needed(index, self.cache.node, config.remote.requests)
        else:
            self.entry_points, _, faults = open_entry_points(index)
            for fault in faults:
                warnings.warn(f"{fault}. Until then, images are decoded without them.", stacklevel=4)
        self._verified: dict[str, NDArray[np.bool_]] = {}
        if config.checksums:
            for fault in filter(None, (file.fault for file in index.files)):
                warnings.warn(f"{fault}. Until then, values are not compared with checksums.", stacklevel=4)
            # The same bytes for all loaders, unless they come from another machine.
            is_local = all(source_type(file.path).is_local for file in index.files)
            find = _verified_of if is_local else _verified_of.__wrapped__
            files = blake2b(repr(index.files).encode()).digest()  # the identities of some hold memory
            self._verified = {name: find(files, name, index.num_samples) for name in index.names}
        self.files = self.cache.files
        self._mapped: MappedStorage | None = None
        self._pages: LoadedStorage | None = None  # of the epoch that began last
        self._map()
        self._staging = Staging()
        self._pool = ArrayPool()
        self._has_warned = False  # of the cost of an epoch

    def open_gpu(self, epoch: EpochConfig, outputs: Iterable[Output]) -> None:
        """Open the chosen GPU, if it makes any output; if it cannot be used, warn, or raise if the user insisted."""
        choice = self.gpu_choice
        images = [output for output in outputs if isinstance(output, ImageOutput) and output.program.device != "cpu"]
        if choice.target is None or not images:
            return
        try:
            decoder, options = self.config.decoder, self.config.gpu_options
            self.gpu = make_gpu(choice.target, _largest(images), decoder, options, epoch.num_in_flight)
        except DeviceError as error:
            if choice.is_forced:
                raise
            reason = f"{choice.target.device} cannot decode: {error}"
            warnings.warn(f"{self._index.title}: images are decoded on the CPU. {reason}", stacklevel=4)
            self.gpu_choice = GpuChoice(None, reason, is_forced=False)
        else:
            self._staging = Staging(self._allocate_pinned, is_pinned=True)
            self.lacks_entries = self.gpu.takes_entries_only and any(_lacks_entries(output) for output in images)
            if self.gpu.warning not in _warned:
                _warned.add(self.gpu.warning)
                advice = f" ({NO_ENTRY_POINTS})" if self.lacks_entries else ""
                warnings.warn(f"{self.gpu.warning}{advice}", stacklevel=4)
            from gpubeton.loader.resident_images import ResidentImages

            sources = [output.source for output in images]
            self.resident = ResidentImages(self.gpu, self._mapped, self._index, sources, self._verified)
            try:
                self.resident.choose(epoch.indices)
            except DeviceError:
                self.close()
                raise

    def open_epoch(
        self,
        epoch: EpochConfig,
        plan: Plan,
        first_batch: int,
        stages: StageTimers,
        plan_next_epoch: Callable[[], EpochBatches] | None = None,  # the one that probably comes after this one
    ) -> Engine:
        """Make the engine that carries out an epoch; the caller closes it."""
        storage = self._open_storage(epoch, plan, first_batch, stages, plan_next_epoch)
        if self.resident is not None:
            self.resident.choose(epoch.indices)
            self.resident.load()
        # Batches in work or ready, one or two in the hands of the loop, and one that is being handed over.
        self._pool.begin_epoch((epoch.batches_ahead + 3) * len(plan.outputs))
        try:
            return Engine(
                plan,
                storage,
                WorkerPool,
                self._pool,
                epoch,
                title=self._index.title,
                origin=self._index.origin,
                first_batch=first_batch,
                start_gpu_executor=None if self.gpu is None else self.gpu.start_executor,
                resident={} if self.gpu is None else {name: jpegs.holds for name, jpegs in self.gpu.resident.items()},
                verified=self._verified,
                timers=stages,
            )
        except BaseException:
            storage.close()
            raise

    def _open_storage(
        self,
        epoch: EpochConfig,
        plan: Plan,
        first_batch: int,
        stages: StageTimers,
        plan_next_epoch: Callable[[], EpochBatches] | None,
    ) -> Storage:
        counted = None if self.cache.node is None else self.cache.node.begin_counting()
        if counted is not None:
            stages.transfer = counted
        if self._mapped is None:
            if epoch.caches_all:
                self.cache.prepare()
            self._map()
        if self._mapped is not None:
            stages.transfer.is_all_cached = counted is not None
            self._mapped.check()
            return self._mapped
        if self.files.is_local:
            return LoadedStorage(self.files, staging=self._staging)
        pages = self.plan_pages(epoch, plan, first_batch)
        if _is_costly(pages):
            # Not for a small part of the samples: most of the fetched bytes would not be used.
            if epoch.caches_all and 2 * len(epoch.indices) >= self._index.num_samples:
                self.cache.begin_filling()
            if not self.cache.holds_dataset:
                self._warn_of_cost(pages)

        def plan_next() -> PagePlan:
            assert plan_next_epoch is not None, "it is called only if there is one"
            return self.plan_pages(epoch, replace(plan, batches=plan_next_epoch(), epoch=plan.epoch + 1))

        before = self._pages
        self._pages = storage = LoadedStorage(
            self.files,
            pages,
            self._staging if self._staging.is_pinned else None,
            first_requests=FIRST_REQUESTS if before is None else before.at_once,
            most_requests=self.config.remote.requests,
            prefetched=None if before is None else before.take_prefetched(),
            plan_next=None if plan_next_epoch is None else plan_next,
        )
        if counted is None:
            stages.transfer = storage.transfer
        return storage

    def _map(self) -> None:
        """Map the files into memory, once all their bytes are on this machine."""
        if self._mapped is None and self.config.os_cache and self.files.is_mappable:
            self._mapped = MappedStorage(self.files)
            if self._pages is not None:  # a loop over the last epoch may continue
                self._pages.take_prefetched()
                self._pages = None

    def plan_pages(self, epoch: EpochConfig, plan: Plan, first_batch: int = 0) -> PagePlan:
        """Decide which parts of the files an epoch loads."""
        regions = [columns for source in plan.sources for columns in source.regions]
        in_work, memory = READS_AHEAD + epoch.num_in_flight, memory_for_pages()
        return PagePlan(
            plan.batches, regions, self._index.files, first_batch=first_batch, in_work=in_work, most_bytes=memory
        )

    def _warn_of_cost(self, pages: PagePlan) -> None:
        """Warn once that an epoch takes many more requests than its bytes would need."""
        cost, most = pages.cost, memory_for_pages()
        if self._has_warned:
            return
        self._has_warned = True
        if pages.has_objects:
            reason = "its images are single objects: files that hold many take fewer (gpubeton convert). Or"
        elif most is not None and pages.whole_page_bytes > most:
            reason = (
                f"whole pages would take {pages.whole_page_bytes / _GIB:.1f} GiB of memory in this order, and may take "
                f'half of what is free, {most / _GIB:.1f} GiB. Use order="window", with smaller streams and width in '
                "order_kwargs if it is that already; or"
            )
        else:
            reason = (
                'it uses a small part of each page. If other ranks use the rest, order="window" gives each rank its '
                'own pages, if there are at least as many streams as ranks (order_kwargs={"streams": ...}, 64 by '
                "default); if none does, write a file of these samples: gpubeton subset. Or"
            )
        warnings.warn(
            f"{self._index.title}: an epoch makes {cost.requests_per_1000:.0f} requests for each 1000 images, and "
            f"fetches {cost.fetched_per_used:.2f} times the bytes that it uses: {reason} use cache_dir, with a "
            "cache_limit that the dataset fits into: it stays on this machine then.",
            stacklevel=5,
        )

    def close(self) -> None:
        """Free everything; memory in use is freed when its user is done."""
        if self._pages is not None:
            self._pages.interrupt()
            self._pages.close()
            self._pages = None
        if self.gpu is not None:
            self.gpu.close()
        self._mapped = None
        self.cache.close()
        self._staging = Staging()
        self._pool.close()

    def _allocate_pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """Allocate memory from which the GPU reads without another copy."""
        if self.gpu is None:
            raise LoaderClosedError("the loader was closed while a batch was read")
        with self.gpu.device.active():
            return self.gpu.device.allocate_pinned(nbytes).array


def _lacks_entries(output: ImageOutput) -> bool:
    """Whether there are JPEGs, and entry points for none."""
    return output.source.entry_points is None and bool((output.source.column["mode"] == ImageMode.JPG).any())


def _is_costly(pages: PagePlan) -> bool:
    """Whether an epoch takes many more requests than its bytes would need."""
    return pages.cost.requests > _LEAST_REQUESTS + _TOO_MANY * pages.cost.used_bytes // MAX_REQUEST


def memory_for_pages() -> int | None:
    """Bytes that pages of files may take in this process; None if the system does not report it."""
    # The ranks of a node share its memory; torchrun and most others that start them set this variable.
    free, ranks = read_machine().usable_memory_bytes, os.environ.get("LOCAL_WORLD_SIZE", "1")
    if not ranks.strip().isdecimal():
        raise OptionError(
            f"the environment variable LOCAL_WORLD_SIZE is {ranks!r}; expected the number of processes of this machine "
            "that load data, as torchrun sets it. Set it right, or unset it."
        )
    return None if free is None else free // (2 * max(int(ranks), 1))


def _largest(outputs: list[ImageOutput]) -> tuple[int, int]:
    """Return height and width of the largest JPEG, in pixels."""
    largest = 1, 1
    for column in (output.source.column for output in outputs):
        height, width = column["height"].astype(np.int64), column["width"].astype(np.int64)
        pixels = height * width * (column["mode"] == ImageMode.JPG)
        row = int(pixels.argmax())
        if pixels[row] > largest[0] * largest[1]:
            largest = int(height[row]), int(width[row])
    return largest
