"""PerSample: a user's Python function, called for each sample of a batch, in threads."""

from __future__ import annotations

import inspect
import os
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._machine import count_cores
from gpubeton.errors import OperationError, OptionError, PipelineError
from gpubeton.pipeline.pixel_type import is_torch_dtype
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import DTypeLike, NDArray

    from gpubeton.pipeline.operation import Memory, Uniform
    from gpubeton.pipeline.state import State
    from gpubeton.transforms.transform import BatchKey

_TASKS_PER_WORKER = 4
_WORDS = 2  # of 32 bits, of the key of a sample's generator


class PerSample(Transform):
    """Call a Python function for each sample, in threads.

    This is the place for the code of libraries that work on one image at a time, such as albumentations or
    torchvision's transforms v2. It costs what these cost, and the fused pass ends before it: put the crop, flips and
    colors of this library first, so that the function gets small images.

    Parameters
    ----------
    function : callable
        Called as ``function(sample, generator)`` with an array, for images uint8 (height, width, channels), which it
        may change, and a `numpy.random.Generator`. The numbers of the generator depend on the seed, the epoch and the
        sample only. Returns an array or tensor of `shape` and `dtype`. Several threads call it at once.
    shape : sequence of int, optional
        Shape of a result; by default that of a sample.
    dtype : dtype, optional
        Type of a result; by default that of a sample.
    num_workers : int
        How many threads; -1 for one per core that this process may use. Several are quicker than one if most of the
        function's time is in OpenCV, NumPy or torch, which let other threads run.
    moves_pixels : bool
        Whether the function may move pixels. Masks and boxes (`FollowImage`, `TransformBoxes`) can follow the output
        only if it does not: then pass False.

    Raises
    ------
    OptionError
        If `function` does not take two arguments.

    Notes
    -----
    The loader does not seed the global generators of Python, NumPy and torch, which all threads share: draw from the
    function's `generator`.

    Examples
    --------
    >>> def roll(image, generator):
    ...     return np.roll(image, generator.integers(8), axis=1)
    >>> from gpubeton import Loader
    >>> from gpubeton.fields.decoders import CenterCropRGBImageDecoder
    >>> from gpubeton.transforms import ToTensor
    >>> pipeline = [CenterCropRGBImageDecoder((32, 32), 1), PerSample(roll), ToTensor()]
    >>> images, _ = next(iter(Loader("train.beton", 8, seed=0, pipelines={"image": pipeline})))
    >>> images.shape
    torch.Size([8, 32, 32, 3])
    """

    is_random: ClassVar[bool] = True
    usual_numbers: ClassVar[int] = _WORDS
    takes_memory: ClassVar[bool] = True
    needs_declared_device: ClassVar[bool] = True

    def __init__(
        self,
        function: Callable[[Any, np.random.Generator], Any],
        shape: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        num_workers: int = -1,
        *,
        moves_pixels: bool = True,
    ) -> None:
        _check_arguments(function)
        self.function = function
        self.shape = None if shape is None else tuple(map(int, shape))
        self.dtype = None if dtype is None else np.dtype(dtype)
        self.num_workers = num_workers
        self.moves_pixels = moves_pixels
        self._threads = _Threads(num_workers if num_workers > 0 else count_cores())

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"PerSample({name}, num_workers={self._threads.size})"

    @property
    def moves(self) -> Moves:
        return Moves.UNKNOWN if self.moves_pixels else Moves.NOTHING

    def check_state(self, state: State) -> None:
        if is_torch_dtype(state.dtype):
            raise PipelineError(
                "PerSample calls its function with arrays, but here the batch is a tensor. Put it before ToTensor"
            )

    def check_unfused(self, device: str) -> None:
        if device != "cpu":
            raise PipelineError("PerSample runs on the CPU. Put it before ToDevice, or use device='cpu'")

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        self.check_state(previous_state)
        shape = tuple(previous_state.shape) if self.shape is None else self.shape
        return replace(previous_state, shape=shape, dtype=self.dtype or previous_state.dtype), None

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.uint64]:
        words = (uniform(_WORDS) * 2.0**32).astype(np.uint64)
        keys: NDArray[np.uint64] = (words[:, :1] << np.uint64(32)) | words[:, 1:]
        return keys

    def draw_batch(self, key: BatchKey, uniform: Uniform | None, state: State) -> NDArray[Any] | None:
        draw = super().draw_batch(key, uniform, state)
        return None if draw is None else np.column_stack([draw, key.samples])  # the ids are for errors

    def apply(self, batch: Any, draw: NDArray[Any] | None = None, take: Callable[..., Any] = np.empty) -> Any:
        assert draw is not None
        samples = batch if isinstance(batch, np.ndarray) else batch.numpy()
        shape = samples.shape[1:] if self.shape is None else self.shape
        results = take((len(samples), *shape), self.dtype or samples.dtype)
        self._threads.run(self.function, samples, draw, results)
        return results


def _check_arguments(function: Any) -> None:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise OptionError(
            f"PerSample calls function(sample, generator), but {function!r} does not fit: {error}. For a function of "
            "the sample alone: PerSample(lambda sample, generator: function(sample))"
        ) from None
    except ValueError:  # some functions of C have no signature
        return


class _Threads:
    """Threads, begun when they are needed. A copy shares them, and one in another process begins its own."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._process: int | None = None  # that has the threads
        self._executor: ThreadPoolExecutor

    def __reduce__(self) -> Any:
        return _Threads, (self.size,)

    def __deepcopy__(self, memo: Any) -> _Threads:
        return self

    def run(
        self, function: Callable[..., Any], samples: NDArray[Any], draws: NDArray[np.uint64], results: NDArray[Any]
    ) -> None:
        """Call a function for each sample; `draws` are keys of generators, and perhaps sample ids, (N, 1 or 2)."""
        if self._process != os.getpid():  # a forked process has no threads
            self._executor, self._process = ThreadPoolExecutor(self.size), os.getpid()
        step = max(1, -(-len(samples) // (_TASKS_PER_WORKER * self.size)))
        coming = [
            self._executor.submit(_call, function, samples, results, first, draws[first : first + step])
            for first in range(0, len(samples), step)
        ]
        try:
            for task in coming:
                task.result()
        finally:
            wait([task for task in coming if not task.cancel()])  # after an error, too: they write into this memory


def _call(
    function: Callable[..., Any],
    samples: NDArray[Any],
    results: NDArray[Any],
    first: int,  # row
    draws: NDArray[np.uint64],  # of as many rows
) -> None:
    """Call a function for some rows of a batch."""
    for row, (key, *number) in enumerate(draws.tolist(), first):
        result: Any = None
        where = " ".join(["PerSample, sample", *map(str, number)])
        try:
            result = function(samples[row], np.random.Generator(np.random.Philox(key=key)))
            result = np.asarray(result)
        except Exception as error:
            several = " The function returned a tuple; expected one array: each output of a batch has a pipeline"
            text = f"{type(error).__name__}: {error}{several * isinstance(result, tuple)}"
            raise OperationError(f"{where}: {text}") from error
        if result.shape != results.shape[1:] or result.dtype != results.dtype:
            raise OperationError(
                f"{where}: the function returned {result.dtype} {result.shape}; expected "
                f"{results.dtype} {results.shape[1:]}. Declare the result: shape=..., dtype=..."
            )
        results[row] = result
