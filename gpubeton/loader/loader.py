"""Loader: FFCV's signature, on top of a config, a schedule, resources and statistics."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
import weakref
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpubeton._bytes.open_files import SOURCES
from gpubeton._engine.batch_plan import Plan
from gpubeton._engine.output_graph import compile_outputs, likely_mistakes
from gpubeton._engine.prefetch import Prefetcher
from gpubeton.errors import LoaderClosedError, OptionError, StorageError
from gpubeton.loader.checkpoint import Checkpoint
from gpubeton.loader.config import (
    ARGUMENTS,
    DEFAULT_OS_CACHE,
    DEFAULT_PROCESS_CACHE,
    ConfigAttribute,
    Effect,
    LoaderConfig,
    check_indices_or_all,
    fixed_argument_error,
    name_replacements,
    warn_of_no_batch,
)
from gpubeton.loader.describe import LoaderSummary, explain, summarize
from gpubeton.loader.ffcv_compat import FfcvSurface
from gpubeton.loader.filter import scan_changes, select_samples
from gpubeton.loader.folder_file import SCHEME, FolderFile
from gpubeton.loader.iterator import LoaderIterator
from gpubeton.loader.resources import Resources
from gpubeton.loader.schedule import (
    ORDER_MAP,
    ORDER_TYPE,
    EpochCursor,
    EpochSchedule,
    OrderOption,
    Sampling,
    order_class,
    with_current_indices,
)
from gpubeton.loader.stats import EpochStats, LoaderStats, StatsHistory
from gpubeton.pipeline.compiler import Compiler
from gpubeton.reader import Reader
from gpubeton.traversal_order import TraversalOrder
from gpubeton.traversal_order.base import check_seed_of_ranks

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    import numpy as np
    import torch
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

    from gpubeton._bytes.remote_options import RemoteOptions
    from gpubeton._engine.bad_images import OnError
    from gpubeton._engine.output_graph import Pipeline
    from gpubeton._gpu.gpu import Gpu
    from gpubeton._gpu.options import GpuOptions
    from gpubeton._plan.order import IdRange
    from gpubeton.fields.registry import CustomFields
    from gpubeton.format.data_files import Paths
    from gpubeton.loader.config import Decoder
    from gpubeton.loader.resources import GpuChoice
    from gpubeton.loader.schedule import OrderName

SOURCES[SCHEME] = FolderFile

__all__ = ["DEFAULT_OS_CACHE", "DEFAULT_PROCESS_CACHE", "ORDER_MAP", "ORDER_TYPE", "Loader", "OrderOption"]


class _Position(NamedTuple):
    """The position of a loader for a copy, besides its arguments."""

    seed_is_given: bool
    epoch: int
    first: int
    batch: int
    for_ranks: bool | None  # whether samples are shuffled as ranks do
    file: str  # fingerprint


class Loader(FfcvSurface):
    """Iterate over a ``.beton`` file, or several as one, in batches, decoded, augmented and ready for training.

    The arguments up to `order_kwargs` are FFCV's. A batch is a tuple with an output for each field, in the order of the
    file, then the further outputs of `pipelines`. Tensors are yours to keep: they are never overwritten. For type
    checkers they are Any, as outputs may be arrays, `Ragged` or dicts: write ``images: torch.Tensor`` before the loop.

    Augmentations are a function of the seed, the epoch and the sample. They do not depend on the batch size, the number
    of workers or the rank.

    Parameters
    ----------
    fname : str, path, or sequence of them
        The file; or several with the same fields, which are read like one file that holds the samples of the first,
        then those of the second, and so on. A URL is a file in an object store or on a web server: ``s3://bucket/name``,
        ``gs://``, ``az://container/name``, ``https://`` or ``http://``, and needs ``gpubeton[remote]``. A folder, or a
        URL that ends in "/", is all ``*.beton`` in it, sorted by name; `gpubeton index` makes it quick to open.
    batch_size : int
        Samples in a batch.
    num_workers : int
        Threads that decode; -1 for one per core that this process may use, by its CPU affinity and by the CPU quota of
        its container.
    os_cache : bool
        True maps the file into memory, where the operating system caches it; best for files that fit into memory or
        that several processes read. False reads the bytes of each batch ahead of time into memory of bounded size, see
        the notes. The default is True, unless FFCV_DEFAULT_CACHE_PROCESS is 1.
    order : OrderOption, str or type of TraversalOrder
        Order of the samples: an option, its name, or a class that you wrote.
    distributed : bool
        Share each epoch between the ranks of torch's process group, as torch's ``DistributedSampler`` does. Initialize
        the group before.
    seed : int, optional
        Seed of the order and of the augmentations. By default a number from numpy's global generator; 0 if
        `distributed`, as all ranks need the same.
    indices : array_like of int, optional
        The samples to load, by default all.
    pipelines : mapping of str to sequence of Operation or torch.nn.Module, PipelineSpec, DrawnParameters, or None
        The operations of each field. A missing field, or an empty list, gets the field's decoder and ``ToTensor``; a
        list without a decoder gets the field's; None leaves the field out. A `PipelineSpec` makes a further output of a
        field, under another name and with independent random draws; `DrawnParameters` makes an output of the parameters
        that were drawn for another. The mapping and its values are not changed. Changes that you make to the operations
        count from the next epoch on.
    custom_fields : mapping of str to Field class, optional
        The class of each field whose kind is not built in.
    drop_last : bool
        Leave out the last batch if it has fewer samples.
    batches_ahead : int
        Number of batches in work or ready ahead of the loop.
    recompile : bool
        Compile functions that you wrote again for each epoch, so that changes of the global values that they read
        count: of arrays, of attributes of modules. Changes of operations, and of the result of their `generate_code`,
        count from the next epoch on in any case.
    order_kwargs : mapping, optional
        Further arguments of the order's class.
    device : str, int or torch.device
        Where images are decoded and augmented: "cpu"; a GPU such as "cuda:0", to which all tensors are moved; or
        "auto": the GPU to which a pipeline's ``ToDevice`` moves them, else the CPU. "auto" warns if that GPU cannot.
    decoder : {"auto", "entries", "nvjpeg", "cpu"}
        What decodes JPEGs for a GPU: "entries" is a CUDA decoder for images with entry points or restart markers, with
        the CPU's pixels to the bit, and the CPU for all others; "nvjpeg" uses the GPU's JPEG engines; "auto" takes
        "entries" where it can, else "nvjpeg"; "cpu" decodes on the CPU.
    gpu_options : GpuOptions, optional
        How a GPU decodes.
    on_error : {"raise", "skip", "replace"}
        The reaction to an image that cannot be decoded, or a value of any field whose bytes differ from their checksum.
        "raise": the loop gets a `BadImageError` with the samples.
        "skip": the batch arrives without the sample, in all its outputs; an empty batch does not arrive, so that there
        may be fewer than ``len(loader)``. "replace": the sample's row holds the next sample of `indices` that can be
        decoded, after up to 16 attempts; the right choice for several ranks, which all need the same number of batches.
        `bad_samples` lists the samples that were skipped or replaced.
    remote : RemoteOptions, optional
        How the stores of URLs are reached: endpoint, credentials, repeated requests, checksums.
    cache_dir : str or path, optional
        A directory on a disk of this machine that keeps pages of files in object stores, for all processes of the
        machine and for later runs. The default is the environment variable GPUBETON_CACHE_DIR; without either
        nothing is kept. Files of this machine do not need it.
    cache_limit : int or str, optional
        Most bytes of `cache_dir`, as a number or as text such as "800 GB". Kept parts stay; what does not fit is
        loaded in each epoch. The default is 75 % of the free space, and leaves at least 50 GB free.
    checksums : bool
        Compare the bytes of each value with its CRC-32, if the file or ``FILE.index`` has it; a sample that differs is
        handled as `on_error` says. What this process has compared of a file of this machine is not compared again.

    Attributes
    ----------
    fname, batch_size, num_workers, os_cache, distributed, seed, drop_last, batches_ahead, device, decoder, on_error
        The arguments, with defaults filled in. `indices`, `order` (or `traversal_order`), `batch_size`, `drop_last`,
        `num_workers`, `on_error`, `recompile` and, on the CPU, `batches_ahead` may be assigned; that counts from the
        next epoch on. To assign another raises an `OptionError`.
    gpu_choice : GpuChoice
        Which GPU decodes, if any, and why.
    indices : ndarray of uint64, shape (N,)
        The samples.
    pipelines : dict
        The pipelines, as they were given.
    reader : Reader
        The content of the file.
    bad_samples : list of tuple of (int, int, str)
        Epoch, sample id and reason of each sample that was skipped or replaced in the batches received so far.

    Raises
    ------
    FormatError
        If a file is damaged, or several have different fields.
    OptionError
        If an argument is out of its range.
    PipelineError
        If a pipeline cannot be planned.
    DeviceError
        If the device cannot be used.
    OSError
        If a file cannot be opened.

    Warns
    -----
    UserWarning
        If a mask, or another field of images, does not follow the random crops and flips of an image: see
        `gpubeton.fields.decoders.FollowImage`. If a pipeline hands out the bits of float16 numbers as int16: see
        `gpubeton.transforms.NormalizeImage`.

    Notes
    -----
    Memory with ``os_cache=False``, besides Python and its libraries, is at most the sum of

    - metadata: about 29 bytes for each sample with an image and a label, which all processes share if the index of a
      folder of this machine has them; 1 for what was compared with checksums; and up to 12 for the order;
    - staging: (min(batches_ahead, 3) + 3) x (batch_size x (largest stored sample + 4 KiB for each field with regions)
      + 1 MiB);
    - batches: (batches_ahead + 1 + those you hold) x the size of a batch, kept for the next epoch until `close`;
    - workers: num_workers x the memory for decoding the largest image (about 3 bytes for each of its pixels).

    Of files that are not on this machine whole pages are in memory instead of staging: those that later batches use
    again, and as many parts of at most 8 MiB, asked for ahead, as ``remote.requests`` allows.

    ``explain()`` prints the numbers. They do not grow with the file. Of several files at most 64 are open at a time.

    Examples
    --------
    >>> from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
    >>> from gpubeton.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage
    >>> image = [RandomResizedCropRGBImageDecoder((32, 32)), RandomHorizontalFlip(), ToTensor(), ToTorchImage()]
    >>> loader = Loader("train.beton", 100, order=OrderOption.RANDOM, seed=0, pipelines={"image": image})
    >>> for images, labels in loader:
    ...     print(images.shape, labels.shape)
    torch.Size([100, 3, 32, 32]) torch.Size([100, 1])
    torch.Size([100, 3, 32, 32]) torch.Size([100, 1])
    torch.Size([100, 3, 32, 32]) torch.Size([100, 1])

    Two datasets one after the other, here the same one twice: the samples of the second file follow those of the first.
    Parts of it are indices; `filter` finds those that meet a condition.

    >>> files = ["train.beton", "train.beton"]
    >>> both = Loader(files, 100, pipelines={"image": None})
    >>> second = both.reader.index.files[1]
    >>> both.reader.num_samples, second.first_sample
    (600, 300)
    >>> part = Loader(files, 100, indices=range(second.first_sample, both.reader.num_samples, 10))
    >>> cats = both.filter("label", lambda label: label == 2)
    >>> len(part.indices), len(cats.indices), both.reader.locate(int(cats.indices[-1]))
    (30, 200, ('train.beton', 299))
    """

    fname = ConfigAttribute[str | tuple[str, ...]]()
    batch_size = ConfigAttribute[int]()
    num_workers = ConfigAttribute[int]()
    os_cache = ConfigAttribute[bool]()
    order = ConfigAttribute[Any]()
    distributed = ConfigAttribute[bool]()
    seed = ConfigAttribute[int]()
    indices = ConfigAttribute["NDArray[np.uint64]"]()
    pipelines = ConfigAttribute[dict[str, Any]]()
    custom_fields = ConfigAttribute[dict[str, Any]]()
    drop_last = ConfigAttribute[bool]()
    batches_ahead = ConfigAttribute[int]()
    recompile = ConfigAttribute[bool]()
    order_kwargs = ConfigAttribute[dict[str, Any]]()
    device = ConfigAttribute[str]()
    decoder = ConfigAttribute["Decoder"]()
    gpu_options = ConfigAttribute["GpuOptions"]()
    on_error = ConfigAttribute["OnError"]()
    remote = ConfigAttribute["RemoteOptions"]()
    cache_dir = ConfigAttribute[str | None]()
    cache_limit = ConfigAttribute[int | None]()
    checksums = ConfigAttribute[bool]()

    @name_replacements
    def __init__(
        self,
        fname: Paths,
        batch_size: int,
        num_workers: int = -1,
        os_cache: bool | None = None,
        order: OrderOption | OrderName | type[TraversalOrder] = OrderOption.SEQUENTIAL,
        distributed: bool = False,
        seed: int | None = None,
        indices: ArrayLike | None = None,
        pipelines: Mapping[str, Pipeline] | None = None,
        custom_fields: CustomFields | None = None,
        drop_last: bool = True,
        batches_ahead: int = 3,
        recompile: bool = False,
        order_kwargs: Mapping[str, Any] | None = None,
        *,
        device: str | int | torch.device = "auto",
        decoder: Decoder = "auto",
        gpu_options: GpuOptions | None = None,
        on_error: OnError = "raise",
        remote: RemoteOptions | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
        checksums: bool = True,
    ) -> None:
        # All arguments by their names: a new one needs no line here. A copy, because debuggers change the original.
        given = dict(locals())
        config = LoaderConfig.resolve({name: given[name] for name in ARGUMENTS})
        self.reader = Reader(config.fname, config.custom_fields, remote=config.remote)
        self._config = config.replace(indices=check_indices_or_all("indices", indices, self.reader.num_samples))
        self.bad_samples: list[tuple[int, int, str]] = []
        make_order = partial(order_class(order), self, **self._config.order_kwargs)
        self._schedule = EpochSchedule(make_order, self.reader.num_samples, config.batching)
        self._resources = Resources(self.reader.index, self._config)
        self._statistics = StatsHistory()
        weakref.finalize(self, self._statistics.write)
        self._iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False
        self._generation = Compiler.begin()
        if config.distributed and seed is None and order_class(order) is not order_class("sequential"):
            warnings.warn("distributed=True without a seed: the seed is 0, so that all ranks agree", stacklevel=3)
        if config.distributed:
            title = f"{self.reader.index.title}, {order}, {len(self._config.indices)}, {config.batch_size}"
            check_seed_of_ranks(title, config.seed)
        outputs = self._compile_outputs()  # raises if a pipeline cannot be planned
        self._resources.open_gpu(self._config, outputs)
        for mistake in likely_mistakes(outputs):
            warnings.warn(f"{self.reader.index.title}: {mistake}", stacklevel=3)

    @classmethod
    def from_image_folder(cls, path: str | os.PathLike[str], batch_size: int, **arguments: Any) -> Self:
        """Load a folder of images that was not converted, to try pipelines on it.

        The samples, their order, the draws and the pixels are those of the file that ``gpubeton convert`` makes of the
        folder, with its default settings; a checkpoint goes on with that file. Nothing is written. Opening reads the
        beginning of each image, and keeps images that are no baseline JPEG files, encoded, in memory (up to 1 GiB) as
        long as there is the loader or its reader; an epoch opens each file. A converted file is quicker in all of this.

        Parameters
        ----------
        path : str or path
            A folder with a folder of images for each class, or with images alone, as for torchvision's ImageFolder.
        batch_size : int
            Samples in a batch.
        **arguments
            Those of `Loader`, but ``os_cache``: the outputs are ``image`` and ``label``.

        Returns
        -------
        Loader
            It names the classes: ``loader.reader.class_names``.

        Raises
        ------
        OptionError
            If there is no such folder, if there are no images in it or in one of its folders, or if `os_cache`
            is given.
        SampleError
            If images cannot be read, which it names whatever ``on_error`` is; or if those to be kept in memory are too
            many.

        Examples
        --------
        >>> loader = Loader.from_image_folder("train", 100, indices=range(200))
        >>> images, labels = next(iter(loader))
        >>> images.shape, labels[0], loader.reader.class_names
        (torch.Size([100, 48, 64, 3]), tensor([0]), ('class_0', 'class_1', 'class_2'))
        """
        if not Path(path).is_dir():
            raise OptionError(
                f"{path}: there is no such folder; expected a folder of images, or of one folder of images for each "
                "class. Check the path"
            )
        if "os_cache" in arguments:
            raise OptionError("os_cache: the images of a folder are read file by file, never mapped. Leave it out")
        return cls(f"{SCHEME}://{Path(path).absolute()}", batch_size, os_cache=False, **arguments)

    def __iter__(self) -> LoaderIterator:
        """Begin the next epoch, or resume the epoch of a loaded state.

        Returns
        -------
        LoaderIterator
            Its threads make batches already. Several may be in use at once, each for a different epoch.

        Raises
        ------
        LoaderClosedError, PipelineError, StorageError
            If the loader was closed, a pipeline was changed so that it cannot be planned, or the file has changed.
        """
        return self._begin()

    def _begin(self, samples: NDArray[np.uint64] | None = None) -> LoaderIterator:
        """Begin the next epoch, or an epoch of only `samples` with the number of the newest epoch."""
        with self._lock:
            if self._is_closed:
                raise LoaderClosedError(f"{self.reader.index.title}: the loader was closed. Make a new one.")
            if self._config.recompile:
                self._generation = Compiler.forget()
            elif not self._schedule.has_begun:
                # Compiled functions keep the global values that they read when the first loop begins.
                self._generation = Compiler.begin()
            config, sampling = self._config, self._sampling
            coming = self._schedule.coming(sampling, is_last=samples is not None)
            stats = EpochStats(coming.epoch, config.num_workers, is_recorded=self._statistics.is_recorded)
            order = self._schedule.plan(coming.epoch, samples, first=coming.first, asks_again=True)
            plan = Plan(self._compile_outputs(), order, config.seed, coming.epoch)
            if not coming.first:  # otherwise few samples may be left
                warn_of_no_batch(self.reader.index.title, len(config.indices), len(plan), config.batch_size)
            # A loader that is used once needs nothing of a second epoch.
            following = None if samples is not None else self._schedule.following(coming.epoch)
            engine = self._resources.open_epoch(config, plan, coming.batch, stats.stages, following)
            cursor = self._schedule.begin(coming, sampling, len(plan))
            batches = Prefetcher(engine, config.batches_ahead)
            iterator = LoaderIterator(batches, cursor, self.bad_samples, stats, len(plan))
            self._iterators.add(iterator)
            self._statistics.add(stats, self._summarize)
            return iterator

    def __len__(self) -> int:
        """Number of batches of the next epoch as a whole, also if a state was loaded that is in the middle of it.

        ``len(iter(loader))`` is the number of those that are left.
        """
        return len(self._schedule.plan(self.next_epoch))

    def close(self) -> None:
        """End all iterators of this loader, and refuse new ones. May be called twice, and from any thread.

        Examples
        --------
        >>> loader = Loader("train.beton", 50)
        >>> loader.close()
        >>> iter(loader)
        Traceback (most recent call last):
            ...
        gpubeton.errors.LoaderClosedError: train.beton: the loader was closed. Make a new one.
        """
        self._is_closed = True
        self._resources.cache.interrupt()  # for which the thread with the lock may wait
        with self._lock:
            iterators = list(self._iterators)
        for iterator in iterators:  # all have to stop before the end of any is waited for
            iterator.stop()
        self._resources.files.close()  # requests in flight are not made again
        for iterator in iterators:
            iterator.close()
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def plan(self, epoch: int | None = None) -> Plan:
        """Plan an epoch, without reading any sample.

        Parameters
        ----------
        epoch : int, optional
            Its number, by default `next_epoch`.

        Returns
        -------
        Plan
            For each batch the samples, their crops and other draws, and the byte ranges to read.

        Raises
        ------
        PipelineError
            If a pipeline cannot be planned.

        Examples
        --------
        >>> loader = Loader("train.beton", 100, seed=0)
        >>> loader.plan(epoch=7)[2].samples[:3]
        array([200, 201, 202], dtype=uint64)
        """
        epoch = self.next_epoch if epoch is None else epoch
        return Plan(self._compile_outputs(), self._schedule.plan(epoch), self._config.seed, epoch)

    def _compile_outputs(self) -> tuple[Any, ...]:
        # Compiler.set_num_threads would start Numba's own threads, which only parallel operations of users need.
        Compiler.num_threads, Compiler.generation = self._config.num_workers, self._generation
        reader, config = self.reader, self._config
        target, entry_points = self._resources.gpu_choice.target, self._resources.entry_points
        return compile_outputs(reader.index, reader.handlers, config.pipelines, config.indices, target, entry_points)

    def filter(self, field_name: str, condition: Callable[[Any], bool]) -> Loader:
        """Make a loader of those samples whose value in one field meets a condition.

        Reads the field for all samples of this loader, one batch after the other, through its pipeline.

        Parameters
        ----------
        field_name : str
            Name of the field, or of another output.
        condition : callable
            Called with each value: a row of the field's output, as of an `IntField` a tensor of shape (1,). Samples for
            which it returns something true are kept. Samples that cannot be decoded are not, unless ``on_error`` is
            "raise".

        Returns
        -------
        Loader
            With the arguments of this loader, and `indices` in the order of this loader's. May have no samples.

        Raises
        ------
        NoSuchFieldError
            If there is no such output.
        StorageError
            If a file was replaced since this loader was made.

        Examples
        --------
        >>> ones = Loader("train.beton", 50).filter("label", lambda label: label == 1)
        >>> ones.indices[:3], len(ones)
        (array([100, 101, 102], dtype=uint64), 2)
        """
        with self._with(**scan_changes(self._config, self.reader, field_name)) as scan:
            # All of them, however many samples and batches the arguments give an epoch.
            samples = select_samples(scan._begin(scan.indices), condition)  # noqa: SLF001  of this class
        return self._with(indices=samples)

    def sample_pages(self) -> NDArray[np.int64]:
        """Find the page of each sample, for orders. Page numbers of several files follow each other.

        Returns
        -------
        ndarray of int64, shape (samples of the file,)
            Page number, -1 for a sample without any bytes.

        Raises
        ------
        AllocationError
            If no field of the file has regions.

        Examples
        --------
        >>> set(Loader("train.beton", 50).sample_pages().tolist())
        {1}
        """
        return self.reader.index.sample_pages()

    # --- descriptions

    @property
    def gpu(self) -> Gpu | None:
        """The GPU that decodes, if any."""
        return self._resources.gpu

    @property
    def gpu_choice(self) -> GpuChoice:
        """Which GPU decodes, if any, and why."""
        return self._resources.gpu_choice

    def explain(self) -> None:
        """Print what runs where, operation by operation, and how much memory it takes at most."""
        lines = explain(self.reader.index.title, self._config, self.plan(), self._resources)
        print("\n".join([repr(self), *lines]))

    def stats(self, *, total: bool = False) -> LoaderStats:
        """Measure how the time is spent: in waiting, in the loop's step, in reading, decoding and the rest.

        Takes almost no time, and may be called at any time and from any thread.

        Parameters
        ----------
        total : bool
            Add up all epochs. By default only the epoch that was begun last.

        Returns
        -------
        LoaderStats
            Numbers by name; ``print`` shows them as a table.
        """
        return self._statistics.stats(total=total)

    def _summarize(self) -> LoaderSummary:
        return summarize(self._config, self.plan(), self._resources)

    def __repr__(self) -> str:
        order, kind = self._config.order, type(self._schedule.order)
        is_named = not isinstance(order, type) and order_class(order) is kind
        return (
            f"<Loader of {self.reader.index.title}: {len(self._config.indices)} samples in {len(self)} batches of "
            f"{self._config.batch_size}, {order if is_named else kind.__name__}, seed {self._config.seed}, next epoch "
            f"{self.next_epoch}>"
        )

    # --- assignments, which count from the next epoch on

    def _assign(self, name: str, value: Any) -> None:
        """Take an assignment to the attribute of an argument, or refuse it."""
        if ARGUMENTS[name].effect is not Effect.NEXT_EPOCH:
            if value is not getattr(self._config, name):
                raise fixed_argument_error(self.reader.index.title, name)
        elif name == "order":
            self.traversal_order = value
        elif name == "indices":
            self._set_indices(value)
        elif name == "batches_ahead" and self.gpu is not None:
            raise OptionError(
                f"{self.reader.index.title}: batches_ahead cannot be changed: the GPU has its memory for as many "
                "batches as the loader was made with. Make a new one: Loader(..., batches_ahead=...)."
            )
        else:
            config = self._config.replace(**{name: value})
            if config.batching != self._config.batching:
                self._schedule.set_batching(config.batching)
            self._config = config

    def __setattr__(self, name: str, value: Any) -> None:
        # Other names are free: scripts and libraries keep values on a loader.
        is_new = "_generation" in vars(self) and name not in vars(self) and not hasattr(type(self), name)
        if is_new and type(self) is Loader and (similar := get_close_matches(name, ARGUMENTS, 1, 0.8)):
            raise AttributeError(f"a Loader has no attribute {name!r}; did you mean {similar[0]!r}?")
        super().__setattr__(name, value)

    def _set_indices(self, indices: ArrayLike | None) -> None:
        before = self._config
        self._config = before.replace(indices=check_indices_or_all("indices", indices, self.reader.num_samples))
        try:
            self._schedule.set_samples()  # the order reads the new indices from the loader
        except BaseException:
            self._config = before
            raise

    @property
    def traversal_order(self) -> TraversalOrder:
        """The order, an object with ``sample_order(epoch)``.

        An assigned option, name, class or object counts from the next epoch on, and so do assignments to its own
        attributes. An object of a class that you wrote keeps its `indices` when the loader gets others.
        """
        return self._schedule.order

    @traversal_order.setter
    def traversal_order(self, order: Any) -> None:
        if isinstance(order, TraversalOrder):
            then = self._config.indices
            self._schedule.set_order(lambda: with_current_indices(order, then, self._config.indices), is_assigned=True)
        else:
            self._schedule.set_order(partial(order_class(order), self))
            self._config = self._config.replace(order=order, order_kwargs={})

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that the next ``for`` loop goes through, from 0. May be set."""
        return self._schedule.next.epoch

    @next_epoch.setter
    def next_epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next ``for`` loop goes through, from its first batch on.

        Parameters
        ----------
        epoch : int
            Its number, at least 0.

        Raises
        ------
        OptionError
            If it is negative.

        Examples
        --------
        >>> from gpubeton import Loader
        >>> loader = Loader("train.beton", 100, seed=0)
        >>> loader.set_epoch(5)
        >>> loader.next_epoch
        5
        """
        self._schedule.go_to(epoch)

    # --- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Save the position of the loader.

        Only batches that the loop has received count. During a loop it is the position of the newest iterator.

        Returns
        -------
        dict
            Only strings, numbers and truth values, for JSON or ``torch.save``. The pipelines are not saved: resume with
            a loader that has the same ones.
        """
        return self._checkpoint().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at the position of another loader: the next ``for`` loop gives exactly the remaining batches.

        A loader without a given seed takes the seed of the state. All ranks may load the state of one of them. The
        number of ranks and the batch size may be others than those of the saved loader, unless the order depends on
        them, as QUASI_RANDOM does: the samples of the epoch that are left are then shared by these ranks.

        Parameters
        ----------
        state : mapping
            The result of `state_dict`, in this process or another.

        Raises
        ------
        StateError
            If the state is of another file, order or seed; or of another batch size or number of ranks, for an order
            that depends on them.

        Examples
        --------
        >>> from gpubeton import Loader
        >>> loader = Loader("train.beton", 100, seed=0, pipelines={"image": None})
        >>> batches = iter(loader)
        >>> _ = next(batches)
        >>> resumed = Loader("train.beton", 100, seed=0, pipelines={"image": None})
        >>> resumed.load_state_dict(loader.state_dict())
        >>> len(list(resumed)) == len(list(batches)) == 2
        True
        """
        schedule, num_samples = self._schedule, self.reader.index.num_samples
        loaded = Checkpoint.from_dict(state, distributed=self._config.distributed, num_samples=num_samples)
        # The current epoch may hold other batches than the next.
        own = self._checkpoint_at(schedule.next, self._sampling)
        loaded.check_against(
            own, seed_is_fixed=self._config.seed_is_given, order=schedule.order, is_global=schedule.is_global
        )
        if loaded.seed != self._config.seed:
            self._config = self._config.replace(seed=loaded.seed)
            schedule.set_seed(loaded.seed)
        schedule.shuffle_for_ranks(loaded.distributed)
        schedule.go_to(loaded.epoch, *loaded.place_in(own, schedule), self._sampling)

    def _checkpoint(self, *, ends_with_last_batch: bool = False) -> Checkpoint:
        cursor = self._schedule.after_received if ends_with_last_batch else self._schedule.now
        return self._checkpoint_at(cursor, cursor.sampling or self._sampling)

    def _checkpoint_at(self, cursor: EpochCursor, sampling: Sampling) -> Checkpoint:
        index, ranks = self.reader.index, self._schedule.world_size
        file, num_samples = index.fingerprint, index.num_samples
        return Checkpoint.of(self._config, cursor, sampling, file=file, num_samples=num_samples, ranks=ranks)

    @property
    def _ids(self) -> NDArray[np.uint64] | IdRange:
        """The indices, without an array if they are all samples."""
        return self._config.indices

    @property
    def _sampling(self) -> Sampling:
        return Sampling.of(self._config.indices, self._schedule.order, self._config.order_kwargs)

    # --- copies: new loaders with the arguments as they are now, whose next loop begins where this one's would

    @property
    def _args(self) -> dict[str, Any]:  # FFCV's users know this one
        return self._config.as_arguments()

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = self._checked_args()
        for name, value in arguments.items():
            self._check_picklable(name, value)
        return _make, (type(self), arguments), self._position

    def _check_picklable(self, name: str, value: Any) -> None:
        try:
            pickle.dumps(value)
        except Exception as error:
            raise TypeError(
                f"{self.reader.index.title}: the loader cannot be pickled, because its argument {name!r} cannot: "
                f"{error}. Define its classes and functions at the top of a module; or make the loader in the process "
                "that uses it."
            ) from error

    def __setstate__(self, state: _Position) -> None:
        if self.reader.index.fingerprint != state.file:
            raise StorageError(
                f"{self.reader.index.title}: the fields or the metadata of this file differ from those of the file of "
                "the loader that was copied. The file was replaced, or has another name here; make a new Loader."
            )
        self._config = self._config.replace(seed_is_given=state.seed_is_given)
        self._schedule.shuffle_for_ranks(state.for_ranks)
        self._schedule.go_to(state.epoch, state.first, state.batch, self._sampling)

    def __copy__(self) -> Self:
        made = type(self)(**self._checked_args())
        made.__setstate__(self._position)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = type(self)(**copy.deepcopy(self._checked_args(), memo))
        made.__setstate__(self._position)
        return made

    @property
    def _position(self) -> _Position:
        given, coming, for_ranks = self._config.seed_is_given, self._schedule.next, self._sampling.for_ranks
        return _Position(given, coming.epoch, coming.first, coming.batch, for_ranks, self.reader.index.fingerprint)

    def _checked_args(self) -> dict[str, Any]:
        """Collect the arguments, if these determine the loader."""
        title, kind = self.reader.index.title, type(self)
        if kind.__init__ is not Loader.__init__:
            raise TypeError(
                f"{title}: {kind.__name__} has its own __init__, so that its arguments are not known. "
                "Give the class a __reduce__ that returns them, or make the loader in the process that uses it."
            )
        if self._schedule.is_order_assigned or self._sampling.is_changed:
            raise TypeError(
                f"{title}: the loader cannot be copied or pickled, because an object was assigned to its "
                "traversal_order, or to the indices or the sampler of that. Make the loader with order=... and "
                "order_kwargs=..., or make it in the process that uses it."
            )
        return self._args

    def _with(self, **changes: Any) -> Loader:
        """Make a loader with other arguments."""
        loader = Loader(**{**self._args, **changes})
        for file, found in zip(self.reader.index.files, loader.reader.index.files, strict=True):
            file.identity.check(file.path, found.identity)  # else the indices would be those of other samples
        loader._config = loader._config.replace(seed_is_given=self._config.seed_is_given)
        return loader


def _make(loader_class: type[Loader], arguments: dict[str, Any]) -> Loader:
    return loader_class(**arguments)
