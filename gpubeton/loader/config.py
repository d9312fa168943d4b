"""LoaderConfig: a loader's arguments, checked once, and which of them may be assigned later."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, auto
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar, cast, get_args, overload

import numpy as np

from gpubeton._bytes.open_files import CACHE_VARIABLE
from gpubeton._bytes.remote_options import RemoteOptions
from gpubeton._engine.bad_images import OnError
from gpubeton._gpu.options import GpuOptions
from gpubeton._machine import count_cores
from gpubeton._plan.order import EpochBatches, IdRange, LazyIds
from gpubeton.errors import OptionError, PipelineError
from gpubeton.format.data_files import listed_paths
from gpubeton.pipeline.pipeline_spec import DrawnParameters, PipelineSpec
from gpubeton.pipeline.validation import check_choice, check_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import ParamSpec, Self

    P = ParamSpec("P")

T = TypeVar("T")

Decoder = Literal["auto", "entries", "nvjpeg", "cpu"]

# Arguments of torch's DataLoader, and what does the same here.
_OF_DATALOADER = {
    "shuffle": "order=OrderOption.RANDOM shuffles, and without it the samples come in the order of the file",
    "sampler": "order= takes an option or a class, indices= chooses samples, distributed=True shares them among ranks",
    "batch_sampler": "order= takes an option or a class, which lists the samples of an epoch",
    "collate_fn": "a batch is made in one piece: call the function on it in your loop",
    "pin_memory": 'ToDevice("cuda:0") in a pipeline moves a batch to the GPU',
    "prefetch_factor": "batches_ahead= counts batches for the whole loader",
    "persistent_workers": "leave it out: threads are kept between epochs",
    "worker_init_fn": "leave it out: seed= decides all random draws, for any number of workers",
    "generator": "seed= decides the order and all random draws",
}

# The workers pass from one batch to the next without waiting for each other; a third keeps them busy while the first
# is being finished. The others of `batches_ahead` are ready, and need no memory but their own.
_MAX_IN_FLIGHT = 3


def name_replacements(make: Callable[P, None]) -> Callable[P, None]:
    """Wrap a loader's __init__: arguments of torch's DataLoader are a TypeError with what to use."""

    @wraps(make)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        if names := _OF_DATALOADER.keys() & kwargs:
            advice = "; ".join(f"{name}: {_OF_DATALOADER[name]}" for name in sorted(names))
            raise TypeError(f"Loader takes other arguments than torch's DataLoader. Instead of {advice}")
        make(*args, **kwargs)

    return checked


class Effect(Enum):
    """When an assignment to the loader's attribute takes effect."""

    NEXT_EPOCH = auto()
    NEVER = auto()
    NEVER_OURS = auto()  # FFCV's loader has no such attribute: classes derived from it may have their own


class Argument(NamedTuple):
    """How an argument is checked, and when an assignment to it takes effect."""

    check: Callable[[Any], Any]
    effect: Effect


def default_os_cache() -> bool:
    """Whether files are mapped by default: unless FFCV_DEFAULT_CACHE_PROCESS is 1, as in FFCV."""
    return os.environ.get("FFCV_DEFAULT_CACHE_PROCESS", "0").strip() in ("", "0")


DEFAULT_OS_CACHE = default_os_cache()
"""The default when gpubeton was imported: FFCV's name for it."""
DEFAULT_PROCESS_CACHE = int(not DEFAULT_OS_CACHE)
"""The opposite, FFCV's name too."""


def check_fname(fname: Any) -> str | tuple[str, ...]:
    """List the files; a single one is a string."""
    paths = listed_paths(fname)
    return paths if len(paths) > 1 else paths[0]


def check_workers(num_workers: Any) -> int:
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
            stacklevel=5,  # where the loader is made
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


def check_decoder(decoder: Any) -> Decoder:
    """Check the decoder of a GPU."""
    choices: tuple[Decoder, ...] = get_args(Decoder)
    return check_choice("decoder", decoder, choices)


def _rule(check: Callable[[Any], Any], effect: Effect = Effect.NEVER) -> dict[str, Argument]:
    return {"argument": Argument(check, effect)}


def _check_os_cache(value: Any) -> bool:
    return default_os_cache() if value is None else bool(value)


def _check_seed(value: Any) -> int | None:
    return None if value is None else check_whole("seed", value)


def _check_cache_dir(value: Any) -> str | None:
    return os.environ.get(CACHE_VARIABLE) or None if value is None else os.path.expanduser(value)  # noqa: PTH111  as given


def _check_cache_limit(value: Any) -> int | None:
    if value is None:
        return None
    from gpubeton._bytes.node_cache import parse_size  # few loaders need it

    return parse_size("cache_limit", value)


def _dict(mapping: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict(mapping or {})


def _as_given(value: T) -> T:
    return value  # checked by the loader: the check takes the file, or the loader itself


_check_on_error = partial(check_choice, "on_error", choices=get_args(OnError))


class Batching(NamedTuple):
    """The arguments that decide how the samples of an epoch become batches."""

    batch_size: int
    drop_last: bool

    def cut(self, samples: NDArray[Any] | LazyIds) -> EpochBatches:
        """Make batches of the samples, (N,), of an epoch in their order."""
        return EpochBatches(samples, self.batch_size, self.drop_last)


@dataclass(frozen=True, eq=False, kw_only=True)
class LoaderConfig:
    """A loader's arguments, as they were resolved. One line for each: its type, its check, and when it may change."""

    fname: str | tuple[str, ...] = field(metadata=_rule(check_fname))
    batch_size: int = field(metadata=_rule(partial(check_whole, "batch_size", least=1), Effect.NEXT_EPOCH))
    num_workers: int = field(metadata=_rule(check_workers, Effect.NEXT_EPOCH))
    os_cache: bool = field(metadata=_rule(_check_os_cache, Effect.NEVER_OURS))
    order: Any = field(metadata=_rule(_as_given, Effect.NEXT_EPOCH))
    distributed: bool = field(metadata=_rule(bool))
    seed: int = field(metadata=_rule(_check_seed))
    indices: NDArray[np.uint64] | IdRange = field(metadata=_rule(_as_given, Effect.NEXT_EPOCH))  # (N,)
    pipelines: dict[str, Any] = field(metadata=_rule(check_pipelines))
    custom_fields: dict[str, Any] = field(metadata=_rule(_dict, Effect.NEVER_OURS))
    drop_last: bool = field(metadata=_rule(bool, Effect.NEXT_EPOCH))
    batches_ahead: int = field(metadata=_rule(partial(check_whole, "batches_ahead", least=1), Effect.NEXT_EPOCH))
    recompile: bool = field(metadata=_rule(bool, Effect.NEXT_EPOCH))
    order_kwargs: dict[str, Any] = field(metadata=_rule(_dict))
    device: str = field(metadata=_rule(check_device, Effect.NEVER_OURS))
    decoder: Decoder = field(metadata=_rule(check_decoder, Effect.NEVER_OURS))
    gpu_options: GpuOptions = field(metadata=_rule(lambda value: value or GpuOptions(), Effect.NEVER_OURS))
    on_error: OnError = field(metadata=_rule(_check_on_error, Effect.NEXT_EPOCH))
    remote: RemoteOptions = field(metadata=_rule(check_remote, Effect.NEVER_OURS))
    cache_dir: str | None = field(metadata=_rule(_check_cache_dir, Effect.NEVER_OURS))
    cache_limit: int | None = field(metadata=_rule(_check_cache_limit, Effect.NEVER_OURS))
    checksums: bool = field(metadata=_rule(bool, Effect.NEVER_OURS))
    seed_is_given: bool = True  # no argument: whether the user chose the seed

    @classmethod
    def resolve(cls, arguments: Mapping[str, Any]) -> LoaderConfig:
        """Check all arguments. Those without a seed get one."""
        checked = {}
        for name, argument in ARGUMENTS.items():  # a comprehension may be a frame: warnings count frames
            checked[name] = argument.check(arguments[name])
        seed_is_given = checked["seed"] is not None
        if not seed_is_given:
            # All ranks need the same. Otherwise as in FFCV: from numpy's global generator.
            drawn = 0 if checked["distributed"] else np.random.randint(0, np.iinfo(np.int32).max)  # noqa: NPY002  so that np.random.seed holds
            checked["seed"] = int(drawn)
        return cls(**checked, seed_is_given=seed_is_given)

    def replace(self, **changes: Any) -> Self:
        """Copy with other values, which are checked."""
        checked = {
            name: ARGUMENTS[name].check(value) if name in ARGUMENTS else value for name, value in changes.items()
        }
        return replace(self, **checked)

    @property
    def batching(self) -> Batching:
        """How an epoch's samples become batches."""
        return Batching(self.batch_size, self.drop_last)

    @property
    def num_in_flight(self) -> int:
        """Number of batches that the workers have at once."""
        return min(self.batches_ahead, _MAX_IN_FLIGHT)

    def as_arguments(self) -> dict[str, Any]:
        """Collect the arguments by name: `Loader` takes them."""
        is_all = isinstance(self.indices, IdRange)
        return {name: None if name == "indices" and is_all else getattr(self, name) for name in ARGUMENTS}


ARGUMENTS: Final[dict[str, Argument]] = {
    entry.name: entry.metadata["argument"] for entry in fields(LoaderConfig) if entry.metadata
}


class _Configured(Protocol):
    _config: LoaderConfig

    def _assign(self, name: str, value: Any) -> None: ...


class ConfigAttribute(Generic[T]):
    """An argument as an attribute of a loader: reads its config; the loader checks an assignment, or refuses it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name
        self._may_be_shadowed = ARGUMENTS[name].effect is Effect.NEVER_OURS

    @overload
    def __get__(self, loader: None, owner: type) -> ConfigAttribute[T]: ...
    @overload
    def __get__(self, loader: _Configured, owner: type) -> T: ...
    def __get__(self, loader: _Configured | None, owner: type) -> ConfigAttribute[T] | T:
        if loader is None:
            return self
        own = vars(loader)
        is_shadowed = self._name in own and (self._may_be_shadowed or "_config" not in own)
        found: Any = own[self._name] if is_shadowed else getattr(loader._config, self._name)  # noqa: SLF001  its part
        return cast("T", found.array if isinstance(found, IdRange) else found)

    def __set__(self, loader: _Configured, value: T) -> None:
        own = vars(loader)
        # A derived class may use the names that FFCV leaves free, and any name before it calls the loader's __init__.
        if "_config" not in own or (self._may_be_shadowed and type(loader) is not self._owner):
            own[self._name] = value
        else:
            loader._assign(self._name, value)  # noqa: SLF001  this is a part of the loader


def fixed_argument_error(title: str, name: str) -> OptionError:
    """Explain that a loader's attribute cannot be changed."""
    settable = [name for name, argument in ARGUMENTS.items() if argument.effect is Effect.NEXT_EPOCH]
    return OptionError(
        f"{title}: {name} of a loader cannot be changed once it is made. Make a new one: Loader(..., {name}=...). "
        f"These may be set, and count from the next epoch on: {', '.join(settable)}, traversal_order, next_epoch; "
        "changes of a pipeline's operations count from then on, too."
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
