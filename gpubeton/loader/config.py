"""Checks of a loader's arguments, and the values that its epochs read."""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gpubeton._bytes.open_files import CACHE_VARIABLE
from gpubeton._bytes.store_client import RemoteOptions
from gpubeton._machine import count_cores
from gpubeton._plan.order import IdRange
from gpubeton.errors import OptionError, PipelineError
from gpubeton.format.dataset import list_paths
from gpubeton.loader.mixture import Mixture
from gpubeton.pipeline.pipeline_spec import DrawnParameters, PipelineSpec
from gpubeton.pipeline.validation import check_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import ParamSpec

    from gpubeton._gpu.options import GpuOptions

    P = ParamSpec("P")

Decoder = Literal["auto", "entries", "nvjpeg", "cpu"]

# Arguments of torch's DataLoader, and what does the same here.
_OF_DATALOADER = {
    "dataset": "the first argument is a path, such as the folder of an ImageFolder",
    "transform": 'pipelines={"image": [...]} takes a list of gpubeton.transforms, or a recipe of gpubeton.recipes',
    "shuffle": "order=OrderOption.RANDOM shuffles, and without it the samples come in the order of the file",
    "sampler": "order= takes an option or a class, indices= chooses samples, distributed=True shares them among ranks",
    "batch_sampler": "order= takes an option or a class, which lists the samples of an epoch",
    "collate_fn": "a batch is made in one piece: call the function on it in your loop",
    "pin_memory": 'ToDevice("cuda:0") in a pipeline moves a batch to the GPU',
    "prefetch_factor": "batches_ahead= counts batches for the whole loader",
    "persistent_workers": "leave it out: threads are kept between epochs",
    "timeout": "leave it out: an error in a thread is raised in your loop",
    "multiprocessing_context": "leave it out: there are no worker processes",
    "worker_init_fn": "leave it out: seed= decides all random draws, for any number of workers",
    "generator": "seed= decides the order and all random draws",
    # Of forks of FFCV.
    "custom_field_mapper": 'pipelines={"view2": PipelineSpec("image", ...)} gives a field twice, from one decode',
}


def name_replacements(make: Callable[P, None]) -> Callable[P, None]:
    """Wrap a loader's __init__: arguments of torch's DataLoader are a TypeError with what to use."""

    @wraps(make)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        if names := _OF_DATALOADER.keys() & kwargs:
            advice = "; ".join(f"{name}: {_OF_DATALOADER[name]}" for name in sorted(names))
            raise TypeError(f"Loader takes other arguments than DataLoader and forks of FFCV. Instead of {advice}")
        make(*args, **kwargs)

    return checked


def default_os_cache() -> bool:
    """Whether files are mapped by default: unless FFCV_DEFAULT_CACHE_PROCESS is 1, as in FFCV."""
    return os.environ.get("FFCV_DEFAULT_CACHE_PROCESS", "0").strip() in ("", "0")


DEFAULT_OS_CACHE = default_os_cache()
"""The default when gpubeton was imported: FFCV's name for it."""
DEFAULT_PROCESS_CACHE = int(not DEFAULT_OS_CACHE)
"""The opposite, FFCV's name too."""


def check_fname(fname: Any) -> str | tuple[str, ...] | Mixture:
    """List the files; a single one is a string, and a mixture stays."""
    if isinstance(fname, Mixture):
        return fname
    paths = list_paths(fname)
    return paths if len(paths) > 1 else paths[0]


def check_containers(containers: Any) -> tuple[str, ...]:
    """List the folders and URLs whose files an index may name."""
    places = (containers,) if isinstance(containers, str | os.PathLike) else tuple(containers)
    if not all(isinstance(place, str | os.PathLike) for place in places):
        raise OptionError(f"containers is {containers!r}; expected folders or URLs, such as ['/data/tars']")
    return tuple(map(os.fspath, places))


def check_workers(num_workers: Any, *, stacklevel: int) -> int:
    """Count decoding threads; less than 1 means one for each core that this process may use."""
    import numba

    limit: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # set when numba is imported
    if isinstance(num_workers, int | np.integer) and num_workers < 1:
        return min(count_cores(), limit)
    count = check_whole("num_workers", num_workers, 1)
    if count > limit:
        warnings.warn(
            f"num_workers is {num_workers}, but this process may use {limit} threads: it gets {limit}. num_workers=-1 "
            "takes one for each core; the environment variable NUMBA_NUM_THREADS allows for more.",
            stacklevel=stacklevel,
        )
    return min(count, limit)


def check_pipelines(pipelines: Any) -> dict[str, Any]:
    """Check that pipelines are a mapping of lists; the copy shares the lists."""
    if pipelines is None:
        return {}
    if not isinstance(pipelines, Mapping):
        raise PipelineError(
            f"pipelines is a {type(pipelines).__name__}; expected a dict with a list of operations for each field: "
            '{"image": [...], "label": [...]}'
        )
    for name, pipeline in pipelines.items():
        if type(pipeline).__name__ == "Compose":
            raise PipelineError(
                f"the pipeline of {name!r} is a Compose, for single images. Write its operations as a list, as "
                'gpubeton.transforms has them, or take a recipe: gpubeton.recipes.imagenet("torchvision", 224)'
            )
        if pipeline is not None and not isinstance(pipeline, Sequence | PipelineSpec | DrawnParameters):
            raise PipelineError(
                f"the pipeline of {name!r} is {pipeline!r}; expected a list of operations, even for a single one: "
                "[...]; a PipelineSpec, DrawnParameters or None"
            )
    return dict(pipelines)


def check_indices_or_all(
    name: str, indices: ArrayLike | IdRange | None, num_samples: int
) -> NDArray[np.uint64] | IdRange:
    """Check sample ids as `check_indices` does; all samples stay a range."""
    if indices is None:
        return IdRange(num_samples)
    if isinstance(indices, IdRange) and indices.total <= num_samples:
        return indices
    return check_indices(name, indices, num_samples)


def check_indices(name: str, indices: ArrayLike | IdRange, num_samples: int) -> NDArray[np.uint64]:
    """Check sample ids, in any order and possibly repeated."""
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


def check_device(device: Any) -> str:
    """Check a device; gives "auto", "cpu", or a GPU as torch names it."""
    if isinstance(device, int) and not isinstance(device, bool):
        device = f"cuda:{device}"
    name = str(device)
    kind, _, number = name.partition(":")
    if name in ("auto", "cpu", "cuda") or (kind == "cuda" and number.isdecimal()):
        return name
    raise OptionError(f"device is {device!r}; expected 'auto', 'cpu', or a GPU such as 'cuda:0'")


def check_remote(remote: Any) -> RemoteOptions:
    """Check how object stores are reached."""
    if remote is None or isinstance(remote, RemoteOptions):
        return remote or RemoteOptions()
    raise OptionError(f"remote is {remote!r}; expected RemoteOptions(...)")


def check_os_cache(os_cache: Any) -> bool:
    """Check whether files are mapped; None takes FFCV's default."""
    return default_os_cache() if os_cache is None else bool(os_cache)


def check_seed(seed: Any, *, distributed: bool) -> int:
    """Check the seed; None takes the one that all ranks share, or draws one."""
    if seed is not None:
        return check_whole("seed", seed)
    # As in FFCV from numpy's global generator, so that np.random.seed holds.
    return 0 if distributed else int(np.random.randint(0, np.iinfo(np.int32).max))  # noqa: NPY002


def arguments_of_ranks(
    order: object, indices: NDArray[np.uint64] | IdRange, batching: Batching
) -> dict[str, str | int]:
    """List the arguments, but for the seed, that have to be the same on all ranks."""
    ids = f"{len(indices)} samples"
    if not isinstance(indices, IdRange):
        ids += f" with the CRC-32 {zlib.crc32(indices.tobytes()):08x}"
    name = order.__name__ if isinstance(order, type) else str(order)
    return {"order": name, "indices": ids, **batching._asdict()}


def check_cache_dir(cache_dir: Any) -> str | None:
    """Check the directory of the cache; None takes the environment's."""
    if cache_dir is None:
        return os.environ.get(CACHE_VARIABLE) or None
    directory: str = os.path.expanduser(cache_dir)  # noqa: PTH111  otherwise as the user wrote it
    return directory


def check_cache_limit(cache_limit: Any) -> int | None:
    """Check the size of the cache; None stays, for the default of the cache."""
    if cache_limit is None:
        return None
    from gpubeton._bytes.open_files import parse_size  # few loaders need it

    return parse_size("cache_limit", cache_limit)


class Batching(NamedTuple):
    """The arguments that decide how the samples of an epoch become batches."""

    batch_size: int
    drop_last: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class LoaderConfig:
    """The arguments that never change, and that FFCV's loader has no attributes for."""

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


def fixed_argument_error(title: str, name: str) -> OptionError:
    """Explain that a loader's attribute cannot be changed."""
    return OptionError(
        f"{title}: {name} of a loader cannot be changed once it is made. Make a new one: Loader(..., {name}=...). "
        "These may be set, and count from the next epoch on: batch_size, num_workers, order, indices, drop_last, "
        "batches_ahead, recompile, on_error, traversal_order, next_epoch; changes of a pipeline's operations count "
        "from then on, too."
    )


def warn_of_no_batch(title: str, num_samples: int, num_batches: int, batch_size: int) -> None:
    """Warn that an epoch is too small for one batch."""
    if num_samples and not num_batches:
        warnings.warn(
            f"{title}: an epoch has no batch: {num_samples} samples are fewer than one batch of {batch_size} for each "
            "process, and drop_last=True, the default, leaves incomplete batches out. Take a smaller batch_size, or "
            "drop_last=False.",
            stacklevel=4,
        )
