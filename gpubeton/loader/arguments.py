"""A loader's arguments, checked one by one, each with an error that says what to try."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from gpubeton.engine.bad_images import OnError
from gpubeton.errors import OptionError, PipelineError
from gpubeton.machine import count_cores
from gpubeton.pipeline.pipeline_spec import DrawnParameters, PipelineSpec

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_PIPELINES = (Sequence, PipelineSpec, DrawnParameters)


def default_os_cache() -> bool:
    """Whether files are mapped if nothing else is said: unless FFCV_DEFAULT_CACHE_PROCESS is 1, as in FFCV.

    Returns
    -------
    bool
        The default of ``os_cache``.
    """
    return os.environ.get("FFCV_DEFAULT_CACHE_PROCESS", "0").strip() in ("", "0")


DEFAULT_OS_CACHE = default_os_cache()
"""What it was when gpubeton was imported: FFCV's name for it."""
DEFAULT_PROCESS_CACHE = int(not DEFAULT_OS_CACHE)
"""The opposite, FFCV's name too."""


def checked_count(name: str, value: int) -> int:
    """Check a number of things.

    Parameters
    ----------
    name : str
        The argument, for the error.
    value : int
        What it is.

    Returns
    -------
    int
        The same, as a Python number.

    Raises
    ------
    OptionError
        If it is not a whole number of at least 1.
    """
    try:
        count = operator.index(value)
    except TypeError as error:
        raise OptionError(f"{name} is {value!r}; expected a whole number") from error
    if count < 1:
        raise OptionError(f"{name} is {count}; expected at least 1")
    return count


def checked_workers(num_workers: int) -> int:
    """Find the number of decoding threads.

    Parameters
    ----------
    num_workers : int
        The number wanted; less than 1 means one for each core that this process may use, by its affinity and by its
        container's quota of processor time.

    Returns
    -------
    int
        The number of threads.

    Raises
    ------
    OptionError
        If there are fewer cores.
    """
    import numba

    limit: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # set when numba is imported
    if num_workers < 1:
        return min(count_cores(), limit)
    if checked_count("num_workers", num_workers) > limit:
        raise OptionError(
            f"num_workers is {num_workers}, but this process may use {limit} threads; expected 1 to {limit}. "
            "num_workers=-1 takes one for each core; set the environment variable NUMBA_NUM_THREADS to allow for more."
        )
    return operator.index(num_workers)


def checked_pipelines(pipelines: Any) -> dict[str, Any]:
    """Check that pipelines come by name, and each as a list.

    Parameters
    ----------
    pipelines : mapping or None
        The argument.

    Returns
    -------
    dict
        A copy, which shares the lists.

    Raises
    ------
    PipelineError
        If it is no mapping, or one of them is a single operation.
    """
    if pipelines is None:
        return {}
    if not isinstance(pipelines, Mapping):
        raise PipelineError(
            f"pipelines is a {type(pipelines).__name__}; expected a dict with a list of operations for each field: "
            '{"image": [...], "label": [...]}'
        )
    for name, pipeline in pipelines.items():
        if pipeline is not None and not isinstance(pipeline, _PIPELINES):
            raise PipelineError(
                f"the pipeline of {name!r} is {pipeline!r}; expected a list of operations, even of one: [...]; "
                "a PipelineSpec, DrawnParameters or None"
            )
    return dict(pipelines)


def warn_of_no_batch(title: str, num_samples: int, num_batches: int, batch_size: int) -> None:
    """Warn that a loop is over before it begins.

    Parameters
    ----------
    title : str
        The file.
    num_samples : int
        The loader's samples, of all ranks.
    num_batches : int
        Batches of an epoch.
    batch_size : int
        Samples in a batch.
    """
    if num_samples and not num_batches:
        warnings.warn(
            f"{title}: an epoch has no batch: {num_samples} samples are fewer than one batch of {batch_size} for each "
            "process, and drop_last=True, the default, leaves incomplete batches out. Take a smaller batch_size, or "
            "drop_last=False.",
            stacklevel=3,
        )


def checked_seed(seed: int | None, *, distributed: bool) -> int:
    """Find the seed.

    Parameters
    ----------
    seed : int or None
        The seed wanted. None draws one from numpy's global generator, as FFCV does; several ranks have to agree on
        one, so they get 0.
    distributed : bool
        Whether there are several ranks.

    Returns
    -------
    int
        At least 0.

    Raises
    ------
    OptionError
        If it is negative or no whole number.
    """
    if seed is None:
        return 0 if distributed else int(np.random.randint(0, np.iinfo(np.int32).max))  # noqa: NPY002  so that np.random.seed holds
    try:
        number = operator.index(seed)
    except TypeError as error:
        raise OptionError(f"seed is {seed!r}; expected a whole number or None") from error
    if number < 0:
        raise OptionError(f"seed is {number}; expected at least 0")
    return number


def checked_indices(name: str, indices: ArrayLike | None, num_samples: int) -> NDArray[np.uint64]:
    """Find the samples that a loader is to give.

    Parameters
    ----------
    name : str
        The argument, for the error.
    indices : array_like of int, shape (N,), or None
        Sample ids, in any order, possibly repeated; None for all.
    num_samples : int
        Samples of the file.

    Returns
    -------
    ndarray of uint64, shape (N,)
        Their ids.

    Raises
    ------
    OptionError
        If they are no ids of samples of the file.
    """
    if indices is None:
        return np.arange(num_samples, dtype=np.uint64)
    ids = np.asarray(indices)
    if ids.size == 0:
        return np.zeros(0, np.uint64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        advice = " For a mask, use np.flatnonzero(mask)." if ids.dtype.kind == "b" else ""
        raise OptionError(
            f"{name} has shape {ids.shape} and dtype {ids.dtype}; expected a list of whole numbers.{advice}"
        )
    wrong = ids[(ids < 0) | (ids >= num_samples)]
    if len(wrong):
        raise OptionError(
            f"{name} holds {wrong[0]} ({len(wrong)} such numbers), but the file has {num_samples} samples; expected "
            f"0 to {num_samples - 1}"
        )
    return ids.astype(np.uint64)


def checked_on_error(on_error: Any) -> OnError:
    """Check what is to happen to bad images.

    Parameters
    ----------
    on_error : str
        The argument.

    Returns
    -------
    {"raise", "skip", "replace"}
        The same.

    Raises
    ------
    OptionError
        If it is none of the three.
    """
    for choice in get_args(OnError):
        if on_error == choice:
            found: OnError = choice
            return found
    raise OptionError(f"on_error is {on_error!r}; expected one of {', '.join(map(repr, get_args(OnError)))}")


def checked_device(device: Any) -> str:
    """Check where batches are to be made.

    Parameters
    ----------
    device : str, int or torch.device
        The argument.

    Returns
    -------
    str
        "auto", "cpu", or a GPU as torch names it.

    Raises
    ------
    OptionError
        If it is none of these.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        device = f"cuda:{device}"
    name = str(device)
    if name in ("auto", "cpu"):
        return name
    kind, _, number = name.partition(":")
    if kind == "cuda" and (not number or number.isdecimal()):
        return name
    raise OptionError(f"device is {device!r}; expected 'auto', 'cpu', or a GPU such as 'cuda:0'")
