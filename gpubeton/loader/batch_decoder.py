"""BatchDecoder and decode_image: image files in memory, decoded as a loader decodes those of a dataset."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import ExitStack
from functools import partial
from multiprocessing import current_process
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from gpubeton._cpu.jpeg.markers import probe_jpegs
from gpubeton._cpu.worker_pool import SingleImages, WorkerPool
from gpubeton._engine.buffers import ArrayPool
from gpubeton._engine.engine import BadSample, ImageExecutors, OnError, bad_image_error
from gpubeton._engine.output_graph import compile_images
from gpubeton._engine.run_batch_ops import Shared, allocate, finish_images
from gpubeton._engine.sources import Source
from gpubeton._gpu.options import GpuOptions
from gpubeton._plan.draw_rows import DRAW_COLUMNS, TOP
from gpubeton._plan.image_job import ImageJob
from gpubeton._plan.routes import HEIGHT, KIND, PROBE_COLUMNS, WIDTH, JpegKind
from gpubeton.errors import BadImageError, OptionError, PipelineError
from gpubeton.fields.pixels import size_of_file
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder, RGBImageField
from gpubeton.format.layout import IMAGE_DTYPE, ImageMode
from gpubeton.format.regions import Regions
from gpubeton.loader.config import check_device, check_seed, check_workers
from gpubeton.loader.gpus import choose_gpu, make_gpu
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.validation import check_choice, check_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Buffer

    from gpubeton._engine.output_graph import GpuTarget
    from gpubeton._engine.outputs import ImageOutput
    from gpubeton.pipeline.pipeline_spec import PipelineSpec


class DecodedBatch(NamedTuple):
    """A batch, and which images of a list are in it. Made by `BatchDecoder.decode`."""

    images: Any
    rows: NDArray[np.intp]  # (N,)
    bad: tuple[tuple[int, str], ...]


class BatchDecoder:
    """Decode and augment lists of encoded images, wherever they come from, as a `Loader` does.

    Of a JPEG only what crops need is decoded; PNG, WebP, BMP, TIFF and PPM files are decoded whole. With sample ids,
    seed and epoch the images are a loader's to the bit. It may be pickled, forked, and called by several threads: each
    process has separate workers from the first call on.

    Parameters
    ----------
    pipeline : sequence of Operation or torch.nn.Module, or PipelineSpec
        As of an image of a `Loader`, with a decoder that makes one size of all images. Later changes do not count.
    num_workers : int, optional
        Threads that decode, -1 for one per core: the default but in daemons, as the workers of a DataLoader, with 1.
    device, seed
        As for `Loader`, by default "cpu".
    on_error : {"raise", "skip", "replace"}
        The reaction to an image that cannot be decoded: a `BadImageError` with its position; a batch without it; or the
        next good image of the list in its place.
    field_number : int
        Number of the field of images in the loader's file: the draws of a loader depend on it.

    Raises
    ------
    OptionError, PipelineError
        If an argument is out of its range; if the pipeline cannot be planned, or leaves images their sizes.

    Notes
    -----
    Without ids the images of all calls are numbered from 0 on. The workers of a DataLoader add torch's seed to theirs,
    so that they draw different numbers; in other processes give ids, or no seed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
    >>> from gpubeton.transforms import ToTensor, ToTorchImage
    >>> decoder = BatchDecoder([RandomResizedCropRGBImageDecoder((32, 32)), ToTensor(), ToTorchImage()], seed=0)
    >>> files = [path.read_bytes() for path in sorted(Path("train").rglob("*.jpg"))]
    >>> decoder(files[:8], ids=range(8), epoch=5).shape
    torch.Size([8, 3, 32, 32])
    """

    def __init__(
        self,
        pipeline: Sequence[Any] | PipelineSpec,
        num_workers: int | None = None,
        *,
        device: str | int | torch.device = "cpu",
        seed: int | None = None,
        on_error: OnError = "raise",
        field_number: int = 0,
    ) -> None:
        # Without a given seed, a copy in another process has one of its own.
        self._remake = partial(
            type(self), pipeline, num_workers, device=device, seed=seed, on_error=on_error, field_number=field_number
        )
        self.num_workers = num_workers if num_workers is None else check_workers(num_workers, stacklevel=3)
        self.seed = check_seed(seed, distributed=False)
        self.on_error: OnError = check_choice("on_error", on_error, get_args(OnError))
        Compiler.begin()
        self._target = choose_gpu(check_device(device), "auto", {"image": pipeline}).target
        self._output = compile_images(_unknown(), pipeline, check_whole("field_number", field_number), self._target)
        if len({self._output.program.decoder.frame(side, side) for side in np.array([[1], [2]])}) > 1:
            raise PipelineError(
                f"the pipeline {pipeline!r} leaves images their sizes; expected one that begins with a decoder that "
                "makes one size of them, such as CenterCropRGBImageDecoder((224, 224))"
            )
        self._threads: dict[int, _Threads] = {}  # by process: a forked one has not those of its parent

    def __reduce__(self) -> tuple[Callable[[], BatchDecoder], tuple[()]]:
        return self._remake, ()

    def __call__(self, images: Iterable[Buffer | torch.Tensor], ids: ArrayLike | None = None, epoch: int = 0) -> Any:
        """Give the `images` of `decode`: what the pipeline ends in."""
        return self.decode(images, ids, epoch).images

    def decode(
        self, images: Iterable[Buffer | torch.Tensor], ids: ArrayLike | None = None, epoch: int = 0
    ) -> DecodedBatch:
        """Decode a batch, and tell which images are in it.

        Parameters
        ----------
        images : iterable of bytes, memoryview, or uint8 tensor or array of shape (S,)
            Image files.
        ids : array_like of int, shape (N,), optional
            Their sample ids.
        epoch : int
            Number of the epoch. The augmentations depend on both.

        Returns
        -------
        DecodedBatch
            ``images``, what the pipeline ends in, without rows if no image is left; ``rows``, the position of each in
            the list, for ``labels[rows]``; ``bad``, position and reason of those that were skipped or replaced.

        Raises
        ------
        BadImageError, OptionError
            If an image cannot be decoded or replaced: its `samples` are ids or, without ids, positions. If an image, an
            id or the epoch is no such value.
        """
        encoded, epoch = _Encoded(images), check_whole("epoch", epoch)
        process = os.getpid()
        threads = self._threads.get(process) or self._threads.setdefault(process, _Threads(self._output, self._target))
        seed, samples = self._choose_samples(ids, len(encoded.views), threads)
        plan = self._output.plan(seed, epoch, samples, (encoded.height, encoded.width), encoded.mode)
        job = encoded.place(plan)
        with threads.lock:
            bad = {**threads.run(job, self.num_workers), **encoded.faults}
            rows = self._choose_rows(bad, np.arange(len(samples)) if ids is None else samples)
            batch = threads.finish(job, rows, seed, epoch)
        return DecodedBatch(batch, rows, tuple(bad.items()))

    def close(self) -> None:
        """End the threads; the next call begins new ones."""
        if (threads := self._threads.get(os.getpid())) is not None:
            with threads.lock:
                threads.close()

    def _choose_samples(
        self, ids: ArrayLike | None, count: int, threads: _Threads
    ) -> tuple[int, NDArray[np.uint64]]:  # the seed, and ids (N,)
        if ids is not None:
            samples = np.asarray(ids)
            if count and (samples.shape != (count,) or samples.dtype.kind not in "iu" or samples.min() < 0):
                raise OptionError(f"ids is {ids!r}; expected a whole number of at least 0 for each of {count} images")
            return self.seed, samples.astype(np.uint64)
        from torch.utils.data import get_worker_info

        with threads.lock:
            first, threads.drawn = threads.drawn, threads.drawn + count
        worker, seed = get_worker_info(), self.seed
        if worker is not None:
            seed = int(np.random.SeedSequence([seed, worker.seed]).generate_state(1, np.uint64)[0])
        return seed, np.arange(first, first + count, dtype=np.uint64)

    def _choose_rows(self, bad: dict[int, str], names: NDArray[Any]) -> NDArray[np.intp]:
        """Give the position of each image of the batch; raise what is to be raised about bad ones."""
        rows = np.arange(len(names))
        good = np.setdiff1d(rows, list(bad))
        if self.on_error == "skip" or not bad:
            return good
        if self.on_error == "replace" and len(good):
            return good[np.searchsorted(good, rows) % len(good)]  # after the last comes the first
        samples = [BadSample(int(names[row]), f"position {row} of the list: {reason}") for row, reason in bad.items()]
        advice = 'Pass on_error="skip" or "replace".' if len(good) else "No image of the list is good."
        raise bad_image_error("BatchDecoder", samples, advice)


class _Threads:
    """The threads that decode in one process, and their memory; of others only `lock` and `drawn` are used."""

    def __init__(self, output: ImageOutput, target: GpuTarget | None) -> None:
        self.lock = threading.Lock()
        self.drawn = self._capacity = 0  # images without ids, of all calls; of the longest list
        self._output, self._target, self._pool = output, target, ArrayPool()
        self._executors: ImageExecutors | None = None
        self._parts = ExitStack()  # closes the executors, and their GPU
        weakref.finalize(self, self._parts.close)

    def run(self, job: ImageJob, num_workers: int | None) -> dict[int, str]:
        """Make the images of a job; give the reasons of bad ones, by row."""
        count = len(job.address)
        if count == 0:
            return {}
        executors = self._executors
        if executors is None or count > self._capacity:
            executors = self._open(count, num_workers)
        try:
            job.out = executors.take(0, count)
            executors.submit([job])
            return {image.row: image.reason for image in executors.collect()}
        except BaseException:
            self.close()  # else the next call would collect this batch, whose memory may be gone
            raise

    def finish(self, job: ImageJob, rows: NDArray[np.intp], seed: int, epoch: int) -> Any:
        """Run the operations after the pass on some rows of the images."""
        program, samples, executors = self._output.program, job.samples, self._executors
        if executors is None or samples is None or not len(rows):
            return allocate(AllocationQuery(program.state.shape, program.state.dtype, program.state.device), 0)
        with executors.torch_context():
            samples, is_whole = samples[rows], np.array_equal(rows, np.arange(len(samples)))
            mixes = program.draw_mixes(seed, epoch, samples)
            images = executors.finished(0, job.out if is_whole else job.out[rows], mixes)
            shared = Shared(self._pool.take, executors.carry_out)
            batch = finish_images(program, images, seed, epoch, samples, shared)
            arrival = executors.arrival([batch])
        if arrival is not None:
            arrival()
        return batch

    def close(self) -> None:
        """End the threads."""
        self._parts.close()
        self._executors = None

    def _open(self, count: int, num_workers: int | None) -> ImageExecutors:
        """Begin threads for lists of so many images."""
        self.close()
        self._capacity = max(16, 1 << (count - 1).bit_length())
        if num_workers is None:
            num_workers = 1 if current_process().daemon else check_workers(-1, stacklevel=1)
        start_gpu_executor = None
        if self._target is not None:
            gpu = make_gpu(self._target, (1, 1), "auto", GpuOptions(), num_slots=1)  # larger JPEGs take more memory
            self._parts.callback(gpu.close)
            start_gpu_executor = gpu.start_executor
        sizes = {"batch_size": self._capacity, "num_workers": num_workers, "num_in_flight": 1}
        self._executors = ImageExecutors([self._output], WorkerPool, start_gpu_executor, self._pool, **sizes)
        self._parts.callback(self._executors.close)
        return self._executors


def decode_image(
    data: Buffer | torch.Tensor, region: tuple[int, int, int, int] | None = None, *, as_tensor: bool = False
) -> Any:
    """Decode an image file, or a part of it, to RGB; of a JPEG only what the part needs.

    Parameters
    ----------
    data : bytes, memoryview, or uint8 tensor or array of shape (S,)
        A JPEG, PNG, WebP, BMP, TIFF or PPM file.
    region : tuple of int, optional
        Top, left, height and width of the part, in pixels; by default the whole image.
    as_tensor : bool
        Give a tensor of shape (3, height, width), a view with the channels last.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
        The pixels, in C order: those of a loader, to the bit. EXIF's orientation is not looked at.

    Raises
    ------
    BadImageError, OptionError
        If the image cannot be decoded; if the data are no bytes, or there is no such part.

    Examples
    --------
    >>> from pathlib import Path
    >>> data = Path("train/class_0/000.jpg").read_bytes()
    >>> decode_image(data).shape, decode_image(data, (8, 16, 32, 24)).shape
    ((48, 64, 3), (32, 24, 3))
    """
    encoded = _Encoded([data])
    if encoded.faults:
        raise BadImageError(f"decode_image: {encoded.faults[0]}")
    size = np.array([encoded.height[0], encoded.width[0]])
    box = np.asarray((0, 0, *size) if region is None else region)
    fits = box.shape == (4,) and box.dtype.kind in "iu" and (box[:2] >= 0).all() and (box[2:] > 0).all()
    if not fits or (box[:2] > size).any() or (box[2:] > size - box[:2]).any():
        raise OptionError(
            f"decode_image: region is {region!r}; expected top, left, height and width of a part of an image of "
            f"{size[0]} x {size[1]} pixels (height x width)"
        )
    draws = np.zeros((1, DRAW_COLUMNS), np.int32)
    draws[0, TOP : TOP + 4] = box
    job = encoded.place(ImageJob(encoded.height, encoded.width, encoded.mode, draws))
    job.out = np.empty((1, *box[2:], 3), np.uint8)
    images = getattr(_of_thread, "images", None) or _single_images()
    reason = images.decode(job)
    _of_thread.images = images if size.prod(dtype=np.int64) <= _MOST_PIXELS else None
    if reason:
        raise BadImageError(f"decode_image: {reason}")
    if as_tensor:
        import torch

        return torch.from_numpy(job.out[0]).permute(2, 0, 1)
    return job.out[0]


# Each thread that calls `decode_image` keeps its memory for the next image, but not after one with more pixels.
_of_thread = threading.local()
_MOST_PIXELS = 1 << 22


def _single_images() -> SingleImages:
    """Make the memory of a thread."""
    return SingleImages(compile_images(_unknown(), [CenterCropRGBImageDecoder((1, 1))], 0, None).program)


class _Encoded:
    """Image files in memory: where they are, and their sizes by their headers."""

    def __init__(self, images: Iterable[Any]) -> None:
        self.views = [_view(position, image) for position, image in enumerate(images)]
        self._address = np.array([view.ctypes.data for view in self.views], np.uint64)
        self._nbytes = np.array([view.size for view in self.views], np.uint64)
        probes = np.zeros((len(self.views), PROBE_COLUMNS), np.int32)
        probe_jpegs(self._address, self._nbytes, probes)
        self.height, self.width = probes[:, HEIGHT].copy(), probes[:, WIDTH].copy()
        self.mode = np.full(len(self.views), ImageMode.JPG, np.uint8)
        self.faults: dict[int, str] = {}  # reasons, by position
        for row in np.flatnonzero((probes[:, KIND] == JpegKind.DAMAGED) | (probes[:, HEIGHT : WIDTH + 1] == 0).any(1)):
            try:
                self.height[row], self.width[row] = size_of_file(self.views[row].tobytes())
            except Exception as error:  # noqa: BLE001, PERF203  Pillow raises all kinds; few images come here
                self.height[row] = self.width[row] = 1
                self.faults[int(row)] = str(error)

    def place(self, job: ImageJob) -> ImageJob:
        """Tell a job where these images are."""
        job.address, job.size, job.keep = self._address, self._nbytes, self.views
        return job


def _view(position: int, image: Any) -> NDArray[np.uint8]:
    """View the bytes of an image file."""
    try:
        array = image.numpy(force=True) if hasattr(image, "numpy") else image  # of a tensor
        if not isinstance(array, np.ndarray):
            return np.frombuffer(array, np.uint8)
        if array.ndim != 1 or array.dtype != np.uint8:
            raise TypeError(f"{array.dtype} of shape {array.shape}")
        return np.ascontiguousarray(array)
    except (TypeError, ValueError, BufferError) as error:
        raise OptionError(
            f"image {position} is of type {type(image).__name__} ({error}); expected an image file as bytes, a "
            "memoryview, or a uint8 tensor or array of one dimension. Of a path, read_bytes()"
        ) from error


def _unknown() -> Source:
    """Describe a field of JPEG files whose sizes and places are not known yet."""
    nowhere = Regions(np.zeros(1, np.uint64), np.zeros(1, np.uint64))
    return Source("image", RGBImageField(), np.array([(ImageMode.JPG, 1, 1, 0)], IMAGE_DTYPE), (nowhere,))
