"""Loader: FFCV's signature, on top of a schedule, resources and statistics."""

from __future__ import annotations

import threading
import warnings
import weakref
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import numpy as np

from gpubeton._engine.batch_plan import Plan
from gpubeton._engine.engine import EpochConfig, OnError
from gpubeton._engine.likely_mistakes import likely_mistakes
from gpubeton._engine.output_graph import compile_outputs
from gpubeton._engine.prefetch import Prefetcher
from gpubeton._gpu.options import GpuOptions
from gpubeton._plan.order import IdRange
from gpubeton.errors import LoaderClosedError, NoSuchFieldError, OptionError
from gpubeton.loader import config
from gpubeton.loader.config import DEFAULT_OS_CACHE, DEFAULT_PROCESS_CACHE, Batching, Decoder, LoaderConfig
from gpubeton.loader.describe import LoaderInfo, describe
from gpubeton.loader.ffcv_compat import FfcvSurface
from gpubeton.loader.iterator import LoaderIterator
from gpubeton.loader.resources import Resources, open_all
from gpubeton.loader.schedule import (
    ORDER_MAP,
    ORDER_TYPE,
    Checkpoint,
    EpochCursor,
    EpochSchedule,
    OrderOption,
    Sampling,
    order_class,
    with_current_indices,
)
from gpubeton.loader.stats import EpochStats, LoaderStats, StatsHistory
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.validation import check_choice, check_whole
from gpubeton.traversal_order import TraversalOrder
from gpubeton.traversal_order.base import check_ranks
from gpubeton.traversal_order.mixed import order_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

    from gpubeton._bytes.store_client import RemoteOptions
    from gpubeton._engine.output_graph import Pipeline
    from gpubeton._gpu.gpu import Gpu
    from gpubeton.fields.registry import CustomFields
    from gpubeton.format.dataset import Paths
    from gpubeton.loader.gpus import GpuChoice
    from gpubeton.loader.mixture import Mixture
    from gpubeton.loader.schedule import OrderName

__all__ = ["DEFAULT_OS_CACHE", "DEFAULT_PROCESS_CACHE", "ORDER_MAP", "ORDER_TYPE", "Loader", "OrderOption"]


# FFCV's loader has attributes of these names too, but to assign to them would change nothing.
_FIXED = frozenset({"fname", "distributed", "seed", "pipelines", "order_kwargs"})


class Loader(FfcvSurface):
    """Iterate over a ``.beton`` file, or several as one, in batches, decoded, augmented and ready for training.

    The arguments up to `order_kwargs` are FFCV's. A batch is a tuple with an output for each field, in the order of the
    file, then the further outputs of `pipelines`. Tensors are yours to keep: they are never overwritten. For type
    checkers they are Any, as outputs may be arrays, `Ragged` or dicts: write ``images: torch.Tensor`` before the loop.
    Augmentations depend on seed, epoch and sample, not on the batch size, the number of workers or the rank.

    Parameters
    ----------
    fname : str, path, sequence of them, or Mixture
        The file; or several with the same fields, which are read like one file that holds their samples one after the
        other. A pattern such as ``"train-{000..146}.beton"`` names several. A URL, ``s3://bucket/name``, ``gs://``,
        ``az://container/name``, ``https://`` or ``http://``, needs ``gpubeton[remote]``. A folder, or a URL that ends
        in "/", is all ``*.beton`` in it, sorted by name; `gpubeton index` makes it quick to open.

        Images that were not converted are read in place: by their index, ``NAME.index``, which ``gpubeton index
        SOURCES -o NAME.index`` writes; or as tar files in webdataset's layout, zip files with stored entries, a folder
        with a folder of images for each class, a table (.csv, .tsv, .parquet) of paths and labels, or a folder of Arrow
        files from ``datasets``, which are indexed in memory first. The fields are ``image`` and ``label``.
    batch_size : int
        Samples in a batch.
    num_workers : int
        Threads that decode; -1 for one per core that this process may use, by its affinity and its container's quota.
    os_cache : bool
        True maps the file into memory: best for files that fit into it or that several processes read. False reads the
        bytes of each batch ahead, into bounded memory. The default is True, unless FFCV_DEFAULT_CACHE_PROCESS is 1.
    order : OrderOption, str or type of TraversalOrder
        Order of the samples: an option, its name, or a class that you wrote.
    distributed : bool
        Share each epoch between the ranks of torch's process group, made before, as ``DistributedSampler`` does.
    seed : int, optional
        Seed of the order and of the augmentations. By default from numpy's global generator; 0 if `distributed`.
    indices : array_like of int, optional
        The samples to load, by default all.
    pipelines : mapping of str to sequence of Operation or torch.nn.Module, PipelineSpec, DrawnParameters, or None
        The operations of each field. A missing field, or an empty list, gets the field's decoder and ``ToTensor``; a
        list without a decoder gets the field's; None leaves the field out. A `PipelineSpec` makes a further output of a
        field, under another name and with independent random draws; `DrawnParameters` makes one of the parameters that
        were drawn for another. Nothing is changed; your changes of the operations count from the next epoch on.
    custom_fields : mapping of str to Field class, optional
        The class of each field whose kind is not built in.
    drop_last : bool
        Leave out the last batch if it has fewer samples.
    batches_ahead : int
        Number of batches in work or ready ahead of the loop.
    recompile : bool
        Compile functions that you wrote again for each epoch, so that changes of the global values that they read
        count. Changes of operations, and of the result of their `generate_code`, do so in any case.
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
        "raise": the loop gets a `BadImageError` with the samples. "skip": the batch arrives without the sample; an
        empty batch does not arrive, so that there may be fewer than ``len(loader)``. "replace": the sample's row holds
        the next sample of `indices` that can be decoded, after up to 16 attempts; the right choice for several ranks,
        which all need the same number of batches. `bad_samples` lists the samples that were skipped or replaced.
    remote : RemoteOptions, optional
        How the stores of URLs are reached: endpoint, credentials, repeated requests, checksums.
    cache_dir : str or path, optional
        A directory of this machine that keeps pages of files in object stores, for all its processes and for later
        runs. The default is the environment variable GPUBETON_CACHE_DIR; without either nothing is kept.
    cache_limit : int or str, optional
        Most bytes of `cache_dir`, as a number or as text such as "800 GB". Kept parts stay; what does not fit is
        loaded in each epoch. The default is 75 % of the free space, and leaves at least 50 GB free.
    checksums : bool
        Compare the bytes of each value with its CRC-32, if the file or ``FILE.index`` has it, once for a file of this
        machine; `on_error` decides about a sample that differs.
    containers : str, path, or sequence of them
        Folders and URLs whose files an index may name, besides those in its own folder: an index from somebody else
        could name any file. The environment variable GPUBETON_CONTAINERS adds others, separated by ";".

    Attributes
    ----------
    fname, batch_size, num_workers, os_cache, order, distributed, seed, pipelines, drop_last, batches_ahead, on_error
        The arguments, with defaults filled in. `indices`, `order` (or `traversal_order`), `batch_size`, `drop_last`,
        `num_workers`, `on_error`, `recompile` and, on the CPU, `batches_ahead` may be assigned, for the next epochs;
        to assign another raises an `OptionError`.
    gpu_choice : GpuChoice
        Which GPU decodes, if any, and why.
    indices : ndarray of uint64, shape (N,)
        The samples.
    reader : Reader
        The content of the file.
    bad_samples : list of tuple of (int, int, str)
        Epoch, sample id and reason of each sample that was skipped or replaced in the batches received so far.

    Raises
    ------
    FormatError, OptionError, PipelineError, DeviceError, OSError
        If a file is damaged, or several have different fields; an argument is out of its range; a pipeline cannot be
        planned; the device cannot be used; a file cannot be opened.

    Warns
    -----
    UserWarning
        If a mask, or another field of images, does not follow the random crops and flips of an image, see
        `gpubeton.fields.decoders.FollowImage`; if labels are not mixed as their images are, see
        `gpubeton.transforms.ImageMixup`; if a random transform of torchvision gets whole batches, see
        `gpubeton.transforms.ModuleWrapper`; if a pipeline hands out the bits of float16 numbers as int16, see
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
    again, and as many parts of at most 8 MiB, asked for ahead, as ``remote.requests`` allows. ``explain()`` prints the
    numbers. They do not grow with the file. Of several files at most 64 are open at a time.

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

    Two datasets one after the other, here the same one twice. Parts of it are indices; `filter` finds them.

    >>> both = Loader(["train.beton", "train.beton"], 100, pipelines={"image": None})
    >>> both.reader.num_samples, both.reader.index.files[1].first_sample
    (600, 300)
    >>> cats = both.filter("label", lambda label: label == 2)
    >>> len(cats.indices), both.reader.locate(int(cats.indices[-1]))
    (200, ('train.beton', 299))
    """

    _is_ready = False  # until the end of __init__: a derived class may assign to any name before

    # Arguments that never change. FFCV's loader has no attributes of these names, so that a class derived from it may
    # have its own: the loader itself reads `_config`.
    os_cache: bool
    custom_fields: dict[str, Any]
    device: str
    decoder: Decoder
    gpu_options: GpuOptions
    remote: RemoteOptions
    cache_dir: str | None
    cache_limit: int | None
    checksums: bool
    containers: tuple[str, ...]

    @config.name_replacements
    def __init__(
        self,
        fname: Paths | Mixture,
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
        containers: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        self.fname = config.check_fname(fname)
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.order = order
        self.distributed = bool(distributed)
        self.seed = config.check_seed(seed, distributed=self.distributed)
        self.pipelines = config.check_pipelines(pipelines)
        self.drop_last = drop_last
        self.batches_ahead = batches_ahead
        self.recompile = bool(recompile)
        self.order_kwargs = dict(order_kwargs or {})
        self.on_error = on_error
        self._config = LoaderConfig(
            os_cache=config.check_os_cache(os_cache),
            custom_fields=dict(custom_fields or {}),
            device=config.check_device(device),
            decoder=check_choice("decoder", decoder, get_args(Decoder)),
            gpu_options=gpu_options or GpuOptions(),
            remote=config.check_remote(remote),
            cache_dir=config.check_cache_dir(cache_dir),
            cache_limit=config.check_cache_limit(cache_limit),
            checksums=bool(checksums),
            containers=config.check_containers(containers),
        )
        vars(self).update({**vars(self._config), **vars(self)})  # a derived class's properties and values stay
        self.reader, self._mixture = open_all(self.fname, self._config, self.num_workers)
        self._ids = config.check_indices_or_all("indices", indices, self.reader.num_samples)
        self._seed_is_given = seed is not None
        self.bad_samples: list[tuple[int, int, str]] = []
        make_order = partial(order_of, order_class(order), self, self.order_kwargs, self._mixture)
        self._schedule = EpochSchedule(make_order, self.reader.num_samples, Batching(self.batch_size, self.drop_last))
        self._resources = Resources(self.reader.index, self._config, self.pipelines)
        self._statistics = StatsHistory()
        weakref.finalize(self, self._statistics.write)
        self._iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False
        self._generation = Compiler.begin()
        if self.distributed and seed is None and order_class(order) is not order_class("sequential"):
            warnings.warn("distributed=True without a seed: the seed is 0, so that all ranks agree", stacklevel=3)
        if self.distributed:
            arguments = config.arguments_of_ranks(order, self._ids, Batching(self.batch_size, self.drop_last))
            check_ranks(self.reader.index.title, self.seed, arguments)
        outputs = self._compile_outputs()  # raises if a pipeline cannot be planned
        self._resources.open_gpu(self._epoch_config, outputs)
        for mistake in likely_mistakes(outputs):
            warnings.warn(f"{self.reader.index.title}: {mistake}", stacklevel=3)
        self._is_ready = True

    @classmethod
    def from_image_folder(cls, path: str | os.PathLike[str], batch_size: int, **arguments: Any) -> Self:
        """Load a folder of images, as ``Loader(path, batch_size, ...)`` does.

        Parameters
        ----------
        path : str or path
            A folder with a folder of images for each class, or with images alone, as for torchvision's ImageFolder.
        batch_size, **arguments
            Those of `Loader`: the outputs are ``image`` and ``label``.

        Returns
        -------
        Loader
            It names the classes: ``loader.reader.class_names``.

        Raises
        ------
        OptionError
            If there is no such folder, or no image in it or in one of its folders.

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
        return cls(path, batch_size, **arguments)

    def __iter__(self) -> LoaderIterator:
        """Begin the next epoch, or resume the epoch of a loaded state.

        Returns
        -------
        LoaderIterator
            Its threads make batches already. Several may be in use at once, for different epochs.

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
            if self.recompile:
                self._generation = Compiler.forget()
            elif not self._schedule.has_begun:
                # Compiled functions keep the global values that they read when the first loop begins.
                self._generation = Compiler.begin()
            epoch, sampling = self._epoch_config, self._sampling
            cursor = self._schedule.next_cursor(sampling, is_last=samples is not None)
            stats = EpochStats(cursor.epoch, epoch.num_workers, self._mixture[1] if self._mixture else ())
            order = self._schedule.plan(cursor.epoch, samples, first=cursor.first, refresh=True)
            plan = Plan(self._compile_outputs(), order, self.seed + self._schedule.order.draw_offset, cursor.epoch)
            if not cursor.first:  # otherwise few samples may be left
                config.warn_of_no_batch(self.reader.index.title, len(epoch.indices), len(plan), self.batch_size)
            # A loader that is used once needs nothing of a second epoch.
            plan_next_epoch = None if samples is not None else self._schedule.plan_next_epoch(cursor.epoch)
            engine = self._resources.open_epoch(epoch, plan, cursor.batch, stats.stages, plan_next_epoch)
            self._schedule.begin(cursor, sampling, len(plan))
            batches = Prefetcher(engine, epoch.batches_ahead)
            iterator = LoaderIterator(batches, cursor, self.bad_samples, stats, len(plan))
            self._iterators.add(iterator)
            self._statistics.add(stats, self._describe)
            return iterator

    def __len__(self) -> int:
        """Number of batches of the next epoch as a whole; ``len(iter(loader))`` is that of those that are left."""
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
        schedule = self._schedule
        return Plan(self._compile_outputs(), schedule.plan(epoch), self.seed + schedule.order.draw_offset, epoch)

    def _compile_outputs(self) -> tuple[Any, ...]:
        # Compiler.set_num_threads would start Numba's own threads, which only parallel operations of users need.
        Compiler.num_threads, Compiler.generation = self.num_workers, self._generation
        reader, target, entry_points = self.reader, self._resources.gpu_choice.target, self._resources.entry_points
        return compile_outputs(reader.index, reader.handlers, self.pipelines, self._ids, target, entry_points)

    def filter(self, field_name: str, condition: Callable[[Any], bool]) -> Loader:
        """Make a loader of those samples whose value in one field, which is read for all of them, meets a condition.

        Parameters
        ----------
        field_name : str
            Name of the field, or of another output.
        condition : callable
            Called with each value: a row of the field's output, as of an `IntField` a tensor of shape (1,). Samples for
            which it is true are kept; those that cannot be decoded are not, or raise with ``on_error="raise"``.

        Returns
        -------
        Loader
            With the arguments of this loader, and `indices` in the order of this loader's. May have no samples.

        Raises
        ------
        NoSuchFieldError, StorageError
            If there is no such output; if a file was replaced since this loader was made.

        Examples
        --------
        >>> ones = Loader("train.beton", 50).filter("label", lambda label: label == 1)
        >>> ones.indices[:3], len(ones)
        (array([100, 101, 102], dtype=uint64), 2)
        """
        fields, pipelines = self.reader.handlers, self.pipelines
        if field_name not in pipelines and field_name not in fields:
            names = ", ".join(map(repr, dict.fromkeys([*fields, *pipelines])))
            raise NoSuchFieldError(f"{self.reader.index.title}: no field {field_name!r}; there are {names}.")
        scan = self._with(
            order=OrderOption.SEQUENTIAL,
            distributed=False,
            order_kwargs=None,
            # A field that has been switched off gets its default pipeline.
            pipelines={**dict.fromkeys(fields), field_name: pipelines.get(field_name) or ()},
            on_error="raise" if self.on_error == "raise" else "skip",
        )
        samples: list[int] = []
        with scan:
            batches = scan._begin(scan.indices)  # noqa: SLF001  all of them, however many an epoch has
            for (values,) in batches:
                # The iterator knows the ids, also when samples were left out.
                rows = zip(batches.samples.tolist(), values, strict=True)
                samples.extend(sample for sample, value in rows if condition(value))
        return self._with(indices=np.array(samples, np.uint64))

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
        print("\n".join([repr(self), *self._describe().explanation]))

    def stats(self, *, total: bool = False) -> LoaderStats:
        """Measure how the time is spent; takes almost no time, at any time and from any thread.

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

    def _describe(self) -> LoaderInfo:
        title = self.reader.index.title
        return describe(self.fname, title, self.traversal_order, self._epoch_config, self.plan(), self._resources)

    def __repr__(self) -> str:
        order, kind = self.order, type(self._schedule.order)
        is_named = not isinstance(order, type) and order_class(order) is kind
        return (
            f"<Loader of {self.reader.index.title}: {len(self._ids)} samples in {len(self)} batches of "
            f"{self.batch_size}, {order if is_named else kind.__name__}, seed {self.seed}, next epoch "
            f"{self.next_epoch}>"
        )

    # --- arguments that may be assigned, and count from the next epoch on

    def __setattr__(self, name: str, value: Any) -> None:
        # Names that are not like an argument's are free: scripts and libraries keep values on a loader.
        if self._is_ready:
            is_derived = type(self) is not Loader
            is_fixed = name in _FIXED or (not is_derived and name in vars(self._config))
            if is_fixed and value is not getattr(self, name):
                raise config.fixed_argument_error(self.reader.index.title, name)
            is_new = name not in vars(self) and not hasattr(type(self), name)
            if is_new and not is_derived and (similar := get_close_matches(name, self._args, 1, 0.8)):
                raise AttributeError(f"a Loader has no attribute {name!r}; did you mean {similar[0]!r}?")
        super().__setattr__(name, value)

    @property
    def batch_size(self) -> int:
        return self._batch_size

    @batch_size.setter
    def batch_size(self, batch_size: int) -> None:
        batch_size = check_whole("batch_size", batch_size, 1)
        if self._is_ready:
            self._schedule.set_batching(Batching(batch_size, self.drop_last))
        self._batch_size = batch_size

    @property
    def drop_last(self) -> bool:
        return self._drop_last

    @drop_last.setter
    def drop_last(self, drop_last: bool) -> None:
        if self._is_ready:
            self._schedule.set_batching(Batching(self.batch_size, bool(drop_last)))
        self._drop_last = bool(drop_last)

    @property
    def num_workers(self) -> int:
        return self._num_workers

    @num_workers.setter
    def num_workers(self, num_workers: int) -> None:
        # A warning names the line that assigns, or the one that makes the loader.
        self._num_workers = config.check_workers(num_workers, stacklevel=4 if self._is_ready else 6)

    @property
    def batches_ahead(self) -> int:
        return self._batches_ahead

    @batches_ahead.setter
    def batches_ahead(self, batches_ahead: int) -> None:
        if self._is_ready and self.gpu is not None:
            raise OptionError(
                f"{self.reader.index.title}: batches_ahead cannot be changed: the GPU has its memory for as many "
                "batches as the loader was made with. Make a new one: Loader(..., batches_ahead=...)."
            )
        self._batches_ahead = check_whole("batches_ahead", batches_ahead, 1)

    @property
    def on_error(self) -> OnError:
        return self._on_error

    @on_error.setter
    def on_error(self, on_error: OnError) -> None:
        self._on_error: OnError = check_choice("on_error", on_error, get_args(OnError))

    @property
    def indices(self) -> NDArray[np.uint64]:
        return self._ids.array if isinstance(self._ids, IdRange) else self._ids

    @indices.setter
    def indices(self, indices: Any) -> None:
        if not self._is_ready:  # a derived class's value, which __init__ replaces
            self._ids = np.asarray(indices)
            return
        ids_before, self._ids = self._ids, config.check_indices_or_all("indices", indices, self.reader.num_samples)
        try:
            self._schedule.set_samples()  # the order reads the new indices from the loader
        except BaseException:
            self._ids = ids_before
            raise

    @property
    def order(self) -> Any:
        return self._order

    @order.setter
    def order(self, order: Any) -> None:
        if self._is_ready:
            self.traversal_order = order  # checks it
        else:
            self._order = order

    @property
    def traversal_order(self) -> TraversalOrder:
        """The order, an object with ``sample_order(epoch)``; it and its attributes may be assigned for the next epochs.

        An object of a class that you wrote keeps its `indices` when the loader gets others.
        """
        return self._schedule.order

    @traversal_order.setter
    def traversal_order(self, order: Any) -> None:
        if isinstance(order, TraversalOrder):
            ids_before = self._ids
            self._schedule.set_order(lambda: with_current_indices(order, ids_before, self._ids))
        else:
            self._schedule.set_order(partial(order_of, order_class(order), self, {}, self._mixture))
            self._order = order
            vars(self)["order_kwargs"] = {}

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
        >>> loader = Loader("train.beton", 100, seed=0)
        >>> loader.set_epoch(5)
        >>> loader.next_epoch
        5
        """
        self._schedule.go_to(epoch)
        self._schedule.set_block(epoch, 0)

    # --- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Save the position of the loader, in a loop that of the newest iterator: the batches that were received count.

        Returns
        -------
        dict
            Strings, numbers and truth values, for JSON or ``torch.save``. Resume with the same pipelines.
        """
        return self._checkpoint().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at the position of another loader: the next ``for`` loop gives exactly the remaining batches.

        A loader without a given seed takes the seed of the state. All ranks may load the state of one of them. Other
        numbers of ranks and batch sizes share the samples that are left, unless the order depends on them, as
        QUASI_RANDOM does.

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
        >>> loader = Loader("train.beton", 100, seed=0, pipelines={"image": None})
        >>> batches = iter(loader)
        >>> _ = next(batches)
        >>> resumed = Loader("train.beton", 100, seed=0, pipelines={"image": None})
        >>> resumed.load_state_dict(loader.state_dict())
        >>> len(list(resumed)) == len(list(batches)) == 2
        True
        """
        schedule = self._schedule
        loaded = Checkpoint.from_dict(state, distributed=self.distributed, index=self.reader.index)
        # The current epoch may hold other batches than the next.
        position = self._checkpoint_at(replace(schedule.next, epoch=loaded.epoch), self._sampling)
        loaded.check_against(position, schedule, seed_is_fixed=self._seed_is_given)
        if loaded.seed != self.seed:
            vars(self)["seed"] = loaded.seed
            schedule.set_seed(loaded.seed)
        schedule.take_order_of(loaded)
        schedule.go_to(loaded.epoch, *loaded.place_in(position, schedule), self._sampling)

    def _checkpoint(self, *, ends_with_last_batch: bool = False) -> Checkpoint:
        cursor = self._schedule.checkpoint_cursor if ends_with_last_batch else self._schedule.current_cursor
        return self._checkpoint_at(cursor, cursor.sampling or self._sampling)

    def _checkpoint_at(self, cursor: EpochCursor, sampling: Sampling) -> Checkpoint:
        ranks = self._schedule.world_size
        return Checkpoint.of(cursor, sampling, self.reader.index, self.seed, ranks, self.distributed)

    @property
    def _sampling(self) -> Sampling:
        return Sampling.of(self._ids, self._schedule.order, self.order_kwargs)

    # --- other loaders with these arguments

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self.reader.index.title}: a loader cannot be copied or pickled: its threads and open files belong to "
            "this process. Make another with the same arguments, in the process that uses it; load_state_dict, with "
            "the state_dict() of this one, lets it go on here"
        )

    @property
    def _args(self) -> dict[str, Any]:  # FFCV's users know this one
        """The arguments as they are now."""
        return {
            "fname": self.fname,
            "batch_size": self.batch_size,
            "num_workers": self.num_workers,
            "order": self.order,
            "distributed": self.distributed,
            "seed": self.seed,
            "indices": None if isinstance(self._ids, IdRange) else self._ids,
            "pipelines": self.pipelines,
            "drop_last": self.drop_last,
            "batches_ahead": self.batches_ahead,
            "recompile": self.recompile,
            "order_kwargs": self.order_kwargs,
            "on_error": self.on_error,
            **vars(self._config),
        }

    @property
    def _epoch_config(self) -> EpochConfig:
        caches_all = self._schedule.order.caches_all
        return EpochConfig(self._ids, self.num_workers, self.batches_ahead, self.on_error, caches_all)

    def _with(self, **changes: Any) -> Loader:
        """Make a loader with other arguments."""
        loader = Loader(**{**self._args, **changes})
        for file, reopened in zip(self.reader.index.files, loader.reader.index.files, strict=True):
            file.identity.check(file.path, reopened.identity)  # else the indices would be those of other samples
        loader._seed_is_given = self._seed_is_given
        return loader
