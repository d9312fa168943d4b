"""PerSample: a user's Python function, called for each sample of a batch, in threads or processes."""

from __future__ import annotations

import inspect
import mmap
import multiprocessing
import os
import pickle
import random
import signal
import sys
import tempfile
import threading
import warnings
import weakref
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton.errors import OperationError, OptionError, PipelineError
from gpubeton.machine import count_cores
from gpubeton.pipeline.pixel_type import is_torch_dtype
from gpubeton.pipeline.validation import check_choice
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
    """Call a Python function for each sample, in threads or worker processes.

    This is the place for the code of libraries that work on one image at a time, such as albumentations or
    torchvision's transforms v2. It costs what these cost, and the fused pass ends before it: put the crop, flips and
    colors of this library first, so that the function gets small images.

    Parameters
    ----------
    function : callable
        Called as ``function(sample, generator)`` with an array, for images uint8 (height, width, channels), which it
        may change, and a `numpy.random.Generator`. The numbers of the generator depend on the seed, the epoch and the
        sample only. Returns an array or tensor of `shape` and `dtype`.
    shape : sequence of int, optional
        Shape of a result; by default that of a sample.
    dtype : dtype, optional
        Type of a result; by default that of a sample.
    workers : {"threads", "processes"}
        Where the function runs. Threads are quicker if most of its time is in OpenCV, NumPy or torch, which let other
        threads run. Processes run any Python code side by side. There the global generators of Python, NumPy and torch
        are seeded for each sample as well, as these libraries need it.
    num_workers : int
        How many; -1 for one per core that this process may use.
    moves_pixels : bool
        Whether the function may move pixels. Masks and boxes (`FollowImage`, `TransformBoxes`) can follow the output
        only if it does not: then pass False.

    Raises
    ------
    OptionError
        If `workers` is another word, or `function` does not take two arguments.

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
        workers: Literal["threads", "processes"] = "threads",
        num_workers: int = -1,
        *,
        moves_pixels: bool = True,
    ) -> None:
        _check_arguments(function)
        self.function = function
        self.shape = None if shape is None else tuple(map(int, shape))
        self.dtype = None if dtype is None else np.dtype(dtype)
        self.workers = check_choice("workers", workers, ("threads", "processes"))
        self.num_workers = num_workers
        self.moves_pixels = moves_pixels
        self._pool = _Pool(workers == "processes", num_workers if num_workers > 0 else count_cores())

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"PerSample({name}, workers={self.workers!r}, num_workers={self._pool.size})"

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
        self._pool.run(self.function, samples, draw, results)
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


@dataclass(frozen=True)
class _Task:
    """Rows of a batch that a worker goes through."""

    first: int  # row
    draws: NDArray[np.uint64]  # (N, 1 or 2): key of the generator, and sample id


class _Pool:
    """Threads or processes; begun when they are needed. A copy shares threads, and one from another process nothing."""

    def __init__(self, has_processes: bool, size: int) -> None:
        self.has_processes = has_processes
        self.size = size
        self._reset()

    def __reduce__(self) -> Any:
        return _Pool, (self.has_processes, self.size)

    def __deepcopy__(self, memo: Any) -> _Pool:
        # Processes have the function of their pool, and a copy has a function of its own, if that is an object.
        return _Pool(self.has_processes, self.size) if self.has_processes else self

    def run(
        self,
        function: Callable[..., Any],
        samples: NDArray[Any],  # (N, ...)
        draws: NDArray[np.uint64],  # (N, 1 or 2)
        results: NDArray[Any],  # (N, ...), filled
    ) -> None:
        """Call a function for each sample."""
        if self._process != os.getpid():
            self._reset()
        step = max(1, -(-len(samples) // (_TASKS_PER_WORKER * self.size)))
        tasks = [_Task(first, draws[first : first + step]) for first in range(0, len(samples), step)]
        if not self.has_processes:
            self._map(ThreadPoolExecutor, partial(_call, function, samples, results), tasks)
            return
        with self._lock:
            self._run_in_processes(function, samples, results, tasks)

    def _reset(self) -> None:
        """Forget the threads and processes, which a forked process does not have."""
        self._process = os.getpid()
        self._executor: Executor | None = None
        self._function: Any = None  # that the processes call
        self._memory: _SharedMemory | None = None
        self._lock = threading.Lock()  # several loops may run at once

    def _run_in_processes(
        self, function: Callable[..., Any], samples: NDArray[Any], results: NDArray[Any], tasks: list[_Task]
    ) -> None:
        if self._function is not function:
            self._function, self._executor = function, None
        if self._memory is None or self._memory.size < samples.nbytes + results.nbytes:
            self._memory = _SharedMemory(samples.nbytes + results.nbytes)
        layouts = _layout(samples), _layout(results)
        shared, made = _arrays(self._memory.map, *layouts)
        shared[:] = samples
        call = partial(_call_in_process, (self._memory.path, self._memory.size), *layouts)
        try:
            self._map(partial(_begin_processes, function), call, tasks)
        except BrokenProcessPool as error:
            self._executor = self._memory = None
            raise OperationError(
                "PerSample: a worker process ended while it worked. It may have been killed for the memory that it "
                "took: try fewer num_workers, or workers='threads'"
            ) from error
        results[:] = made

    def _map(self, begin: Callable[..., Executor], call: Callable[[_Task], None], tasks: list[_Task]) -> None:
        if self._executor is None:
            self._executor = begin(self.size)
            weakref.finalize(self, self._executor.shutdown, wait=False, cancel_futures=True)
        coming = [self._executor.submit(call, task) for task in tasks]
        try:
            for each in coming:
                each.result()
        finally:
            wait([each for each in coming if not each.cancel()])  # after an error, too: they write into this memory


_Layout = tuple[tuple[int, ...], str]
"""Shape and type of an array."""


def _layout(array: NDArray[Any]) -> _Layout:
    return array.shape, array.dtype.str


class _SharedMemory:
    """Memory that other processes open by its path: not in ``/dev/shm``, of which a container has little."""

    def __init__(self, size: int) -> None:
        self.size = size
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("gpubeton")
            self._file: Any = os.fdopen(descriptor, "r+b")
            self.path = f"/proc/{os.getpid()}/fd/{descriptor}"
        else:
            self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115  closed with this object
            self.path = self._file.name
        self._file.truncate(size)
        self.map = mmap.mmap(self._file.fileno(), size)
        weakref.finalize(self, self._file.close)


def _arrays(memory: Any, first: _Layout, second: _Layout) -> tuple[NDArray[Any], NDArray[Any]]:
    """View memory as two arrays, one after the other."""
    one: NDArray[Any] = np.ndarray(first[0], first[1], memory)
    return one, np.ndarray(second[0], second[1], memory, one.nbytes)


def _begin_processes(function: Callable[..., Any], size: int) -> Executor:
    if multiprocessing.current_process().daemon:
        raise OperationError(
            "PerSample(workers='processes') in a daemonic process, such as a worker of a DataLoader: it may start no "
            "processes. Use workers='threads'"
        )
    # As torch's DataLoader: a function of a notebook works, and scripts need no `if __name__ == "__main__"`.
    context: Any = copy(multiprocessing.get_context("fork" if sys.platform == "linux" else None))
    # A process of multiprocessing waits at its end for its children, and ends only daemons before.
    context.Process = partial(context.Process, daemon=True)
    executor = ProcessPoolExecutor(size, context, _begin_process, (function,))
    with warnings.catch_warnings():
        # Python 3.12 and later warn of forking a process with threads. The new ones call only the user's function.
        warnings.simplefilter("ignore", DeprecationWarning)
        executor.submit(_begun).result()  # all of them are forked with the first task
    return executor


def _call(function: Callable[..., Any], samples: NDArray[Any], results: NDArray[Any], task: _Task) -> None:
    """Call a function for the rows of a task."""
    for row, (key, *number) in enumerate(task.draws.tolist(), task.first):
        result: Any = None
        where = " ".join(["PerSample, sample", *map(str, number)])
        try:
            result = np.asarray(function(samples[row], np.random.Generator(np.random.Philox(key=key))))
        except Exception as error:
            raise OperationError(f"{where}: {type(error).__name__}: {error}") from error
        if result.shape != results.shape[1:] or result.dtype != results.dtype:
            raise OperationError(
                f"{where}: the function returned {result.dtype} {result.shape}; expected "
                f"{results.dtype} {results.shape[1:]}. Declare the result: shape=..., dtype=..."
            )
        results[row] = result


# --- in a worker process

_process: dict[str, Any] = {}


def _begin_process(function: Callable[..., Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loader's process ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # so: without what the user's script does then
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _process["function"] = function
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _end_with_parent() -> None:
    """End this process when the loader's is killed."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _begun() -> None:
    """Do nothing."""


def _call_in_process(memory: tuple[str, int], samples: _Layout, results: _Layout, task: _Task) -> None:
    if _process.get("file") != memory:  # with the size: a later one may have the path of one before
        path, size = memory
        with open(path, "r+b") as file:
            _process.update(file=memory, memory=mmap.mmap(file.fileno(), size))
    try:
        _call(partial(_seeded, _process["function"]), *_arrays(_process["memory"], samples, results), task)
    except BaseException as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # noqa: BLE001  it could not be sent, and would pass for the death of this process
            raise OperationError(f"PerSample: {type(error).__name__}: {error}") from None
        raise


def _seeded(function: Callable[..., Any], sample: NDArray[Any], generator: np.random.Generator) -> Any:
    """Call a function with the global generators seeded, too."""
    state: Any = generator.bit_generator.state
    seed = int(state["state"]["key"][0]) & 0xFFFFFFFF
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  what the user's code may draw from
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(seed)  # a GPU is of no use here
    return function(sample, generator)
