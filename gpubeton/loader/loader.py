"""Loader: FFCV's signature, checked and handed down."""

from __future__ import annotations

import threading
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from gpubeton.cpu.crew import Crew
from gpubeton.engine import Plan, compile_outputs
from gpubeton.errors import LoaderClosedError
from gpubeton.format.data_files import Paths, listed_paths
from gpubeton.gpu.gpu_options import GpuOptions
from gpubeton.loader import arguments
from gpubeton.loader.arguments import DEFAULT_OS_CACHE, DEFAULT_PROCESS_CACHE
from gpubeton.loader.copies import Copyable
from gpubeton.loader.epochs import Epochs
from gpubeton.loader.familiar import Familiar
from gpubeton.loader.gpu_choice import checked_decoder, choose_gpu
from gpubeton.loader.iterator import LoaderIterator
from gpubeton.loader.line import Memory, make_engine
from gpubeton.loader.order_option import ORDER_MAP, ORDER_TYPE, OrderOption, order_class
from gpubeton.loader.reporting import Reporting
from gpubeton.loader.selection import scanning_arguments, select_samples
from gpubeton.loader.settings import Settings
from gpubeton.loader.statistics import EpochRecord, Statistics
from gpubeton.pipeline.compiler import Compiler
from gpubeton.prefetch import Prefetcher
from gpubeton.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from gpubeton.engine.outputs import Pipeline
    from gpubeton.fields.registry import CustomFields
    from gpubeton.gpu.gpu_executor import Gpu
    from gpubeton.plan.image_executor import StartExecutor
    from gpubeton.traversal_order import TraversalOrder

__all__ = ["DEFAULT_OS_CACHE", "DEFAULT_PROCESS_CACHE", "ORDER_MAP", "ORDER_TYPE", "Loader", "OrderOption"]


class Loader(Familiar, Copyable, Reporting, Settings):
    """Iterate over a ``.beton`` file, or several as one, in batches, decoded, augmented and ready for training.

    The arguments up to `order_kwargs` are FFCV's. A batch is a tuple with an output for each field, in the order of the
    file, then the outputs that are no field's. Tensors belong to whoever receives them and are never overwritten.

    Augmentations are a function of the seed, the epoch and the sample: the same whatever the batch size, the number of
    workers or the rank.

    Parameters
    ----------
    fname : str, path, or sequence of them
        The file; or several with the same fields, whose samples are numbered through: then all is as with one file that
        holds the samples of the first, then those of the second, and so on.
    batch_size : int
        Samples in a batch.
    num_workers : int
        Threads that decode; -1 for one per core that this process may use: those that it may run on, or as many as its
        container's CPU quota is worth, if that is fewer.
    os_cache : bool
        True maps the file into memory and leaves it to the operating system what stays there; best for files that fit
        into memory or that several processes read. False reads the bytes of each batch ahead of time into memory of
        bounded size, see the notes. The default is True, unless FFCV_DEFAULT_CACHE_PROCESS is 1.
    order : OrderOption, str or type of TraversalOrder
        Order of the samples: an option, its name, or a class of your own.
    distributed : bool
        Share each epoch between the ranks of torch's process group, as torch's ``DistributedSampler`` does. It has to
        be initialised before.
    seed : int, optional
        What order and augmentations depend on. By default a number from numpy's global generator; 0 if `distributed`,
        as all ranks have to use the same.
    indices : array_like of int, optional
        The samples to give, by default all.
    pipelines : mapping of str to sequence of Operation or torch.nn.Module, PipelineSpec, DrawnParameters, or None
        What is done to each field. A field that is missing here, and an empty list, get the field's decoder and
        ``ToTensor``; a list without a decoder gets the field's; None leaves the field out. A `PipelineSpec` makes
        further outputs of a field, under names of their own and with draws of their own; `DrawnParameters` an output
        that says what was drawn for another. Neither the mapping nor what
        it holds is changed. Changes that you make to the operations count from the next epoch on.
    custom_fields : mapping of str to Field class, optional
        The class of each field of a kind of your own.
    drop_last : bool
        Leave out a last batch of fewer samples.
    batches_ahead : int
        Batches that are in work or ready ahead of the loop.
    recompile : bool
        Compile your own functions anew for each epoch, so that changes of what they read from outside count: of global
        arrays, of attributes of modules. What operations and their `generate_code` give counts from the next epoch on
        in any case.
    order_kwargs : mapping, optional
        Further arguments of the order's class.
    device : str, int or torch.device
        Where images are decoded and augmented: "cpu"; a GPU such as "cuda:0", on which all tensors are left at the end;
        or "auto": the GPU to which a pipeline's ``ToDevice`` moves them, else the CPU. "auto" warns if that GPU cannot.
    decoder : {"auto", "nvjpeg", "cpu", "dali", "pynvjpeg"}
        What decodes JPEGs for a GPU: "auto" is nvJPEG; "cpu" leaves all to the CPU; the rest need their own packages.
    gpu_options : GpuOptions, optional
        How a GPU decodes.
    on_error : {"raise", "skip", "replace"}
        What happens to a sample with an image that cannot be decoded. "raise": the loop gets a `BadImageError` with the
        samples. "skip": the batch arrives without the sample, in all its outputs; a batch of which nothing is left does
        not arrive at all, so that there may be fewer than ``len(loader)``. "replace": the sample's row holds the next
        sample of `indices` that can be decoded, of up to 16; the right choice for several ranks, which all have to get
        the same number of batches. Samples skipped or replaced are listed in `bad_samples`.

    Attributes
    ----------
    fname, batch_size, num_workers, os_cache, distributed, seed, drop_last, batches_ahead, device, decoder, on_error
        The arguments, as they were resolved. `indices`, `order` (or `traversal_order`), `batch_size`, `drop_last`,
        `num_workers`, `on_error`, `recompile` and, on the CPU, `batches_ahead` may be set; that counts from the next
        epoch on. Setting others is an `OptionError`.
    gpu_choice : GpuChoice
        Which GPU decodes, if any, and why.
    indices : ndarray of uint64, shape (N,)
        The samples. Those that are set count from the next epoch on.
    pipelines : dict
        The pipelines, as they were given.
    reader : Reader
        What the file holds.
    bad_samples : list of tuple of (int, int, str)
        Epoch, sample id and reason of each sample that was skipped or replaced in a batch that was received.

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

    Notes
    -----
    Memory with ``os_cache=False``, besides Python and its libraries, is at most the sum of

    - metadata: about 60 bytes for each sample and field of the file;
    - staging: (min(batches_ahead, 3) + 3) x (batch_size x (largest stored sample + 4 KiB for each field with regions)
      + 1 MiB);
    - batches: (batches_ahead + 1 + those you hold) x the size of a batch, kept for the next epoch until `close`;
    - workers: num_workers x what decoding the largest image takes (about 3 bytes for each of its pixels).

    ``explain()`` puts numbers into it. However large the file is, a pass over it takes no more.

    Of several files 64 at most are kept open, however many there are.

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

    def __init__(
        self,
        fname: Paths,
        batch_size: int,
        num_workers: int = -1,
        os_cache: bool | None = None,
        order: OrderOption | str | type[TraversalOrder] = OrderOption.SEQUENTIAL,
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
        device: Any = "auto",
        decoder: str = "auto",
        gpu_options: GpuOptions | None = None,
        on_error: str = "raise",
    ) -> None:
        self._own: dict[str, Any] = {
            "device": arguments.checked_device(device),
            "decoder": checked_decoder(decoder),
            "gpu_options": gpu_options or GpuOptions(),
            "os_cache": arguments.default_os_cache() if os_cache is None else bool(os_cache),
            "custom_fields": dict(custom_fields or {}),
        }
        vars(self).update(self._own)  # classes derived from FFCV's, which has none of these, may have properties there
        paths = listed_paths(fname)
        self.fname: str | tuple[str, ...] = paths if len(paths) > 1 else paths[0]
        self.batch_size = arguments.checked_count("batch_size", batch_size)
        self.num_workers = arguments.checked_workers(num_workers)
        self.order = order
        self.order_kwargs = dict(order_kwargs or {})
        self.distributed = bool(distributed)
        self.drop_last = bool(drop_last)
        self.batches_ahead = arguments.checked_count("batches_ahead", batches_ahead)
        self.recompile = bool(recompile)
        self.on_error = arguments.checked_on_error(on_error)
        self.pipelines = arguments.checked_pipelines(pipelines)
        self._seed_was_given = seed is not None
        self.seed = arguments.checked_seed(seed, distributed=self.distributed)
        self.reader = Reader(self.fname, custom_fields)
        self.indices = arguments.checked_indices("indices", indices, self.reader.num_samples)
        self.bad_samples: list[tuple[int, int, str]] = []
        make_order = partial(order_class(order), self, **self.order_kwargs)
        self._epochs = Epochs(make_order, self.reader.num_samples, self.batch_size, drop_last=self.drop_last)
        self._memory = Memory(self.reader.index.files, is_mapped=self._own["os_cache"])
        self._make_crew: StartExecutor = Crew
        self._iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False
        self._generation = Compiler.begin()
        self._statistics = Statistics()
        if self.distributed and seed is None and order_class(order) is not order_class("sequential"):
            warnings.warn("distributed=True without a seed: the seed is 0, so that all ranks agree", stacklevel=2)
        self.gpu_choice = choose_gpu(self._own["device"], self._own["decoder"], self.pipelines)
        self.gpu_choice = self._memory.open_gpu(self, self._compile_outputs())  # what cannot be planned is told here

    def __iter__(self) -> LoaderIterator:
        """Begin the next epoch, or go on where a loaded state says.

        Returns
        -------
        LoaderIterator
            Has begun to make batches. Several may be in use at once; each is an epoch of its own.

        Raises
        ------
        LoaderClosedError, PipelineError, StorageError
            If the loader was closed, a pipeline was changed so that it cannot be planned, or the file has changed.
        """
        return self._begin()

    def _begin(self, samples: NDArray[np.uint64] | None = None) -> LoaderIterator:
        """Begin the next epoch; or one of these samples, as if it were the last that was counted."""
        with self._lock:
            if self._is_closed:
                raise LoaderClosedError(f"{self.reader.index.title}: the loader was closed. Make a new one.")
            self._renew_generation()
            origin = self._origin
            begun = self._epochs.coming(is_last=samples is not None, origin=origin)
            record = EpochRecord(begun.epoch, self.num_workers)
            order = self._epochs.plan(begun.epoch, samples, anew=True)
            plan = Plan(self._compile_outputs(), order, self.seed, begun.epoch)
            arguments.warn_of_no_batch(self.reader.index.title, len(self.indices), len(plan), self.batch_size)
            engine = make_engine(self, plan, begun.batch, self._memory, self._make_crew, record.stages)
            progress = self._epochs.begin(begun, origin, len(plan))
            batches = Prefetcher(engine, self.batches_ahead)
            iterator = LoaderIterator(batches, progress, self.bad_samples, record, len(plan))
            self._iterators.add(iterator)
            self._statistics.add(record, self)
            return iterator

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
        with self._lock:
            iterators = list(self._iterators)
        for iterator in iterators:  # none is to go on while another one's end is waited for
            iterator.stop()
        for iterator in iterators:
            iterator.close()
        self._memory.close()

    def plan(self, epoch: int | None = None) -> Plan:
        """Decide what an epoch consists of, without reading any sample.

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
        return Plan(self._compile_outputs(), self._epochs.plan(epoch), self.seed, epoch)

    @property
    def gpu(self) -> Gpu | None:
        """The GPU that decodes, if any."""
        return self._memory.gpu

    def sample_pages(self) -> NDArray[np.int64]:
        """Give the page of each sample of the file, or of the files, whose pages are numbered through.

        Orders may ask for it.

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
        scan = self._with(**scanning_arguments(self, field_name))
        return self._with(indices=select_samples(scan, condition))

    def _compile_outputs(self) -> tuple[Any, ...]:
        # Compiler.set_num_threads would start Numba's own threads, which only parallel operations of users need.
        Compiler.num_threads, Compiler.generation = self.num_workers, self._generation
        target = self.gpu_choice.target
        return compile_outputs(self.reader.index, self.reader.handlers, self.pipelines, self.indices, target)
