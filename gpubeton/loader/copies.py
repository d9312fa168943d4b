"""Copies of a loader: others made with its arguments, here or in another process."""

from __future__ import annotations

import copy
import pickle
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gpubeton.errors import StorageError
from gpubeton.loader.resumable import Resumable

if TYPE_CHECKING:
    from typing_extensions import Self

    from gpubeton.loader.loader import Loader
    from gpubeton.plan.image_executor import StartExecutor


class _Beginning(NamedTuple):
    """Where a copy begins, besides its arguments."""

    seed_was_given: bool
    epoch: int
    batch: int
    file: str


class Copyable(Resumable):
    """The part of a loader that makes copies of it. `Loader` has the arguments.

    A copy is a new loader with the arguments of this one as they are now, assigned settings included. It opens the
    file again and has its own threads and memory. Its next loop begins where the next loop of this one would: an epoch
    that is under way stays with this one. Pickling takes the arguments along, so that a loader can be given to
    processes that are spawned.
    """

    _own: dict[str, Any]
    _make_crew: StartExecutor

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = self._checked_args()
        for name, value in arguments.items():
            self._check_picklable(name, value)
        return _make, (type(self), arguments), self._beginning()

    def __setstate__(self, state: _Beginning) -> None:
        if self._file_fingerprint != state.file:
            raise StorageError(
                f"{self.reader.index.title}: the fields or the metadata of this file differ from those of the file of "
                "the loader that was copied. The file was replaced, or has another name here; make a new Loader."
            )
        self._seed_was_given = state.seed_was_given
        self._epochs.go_to(state.epoch, state.batch, self._origin)

    def __copy__(self) -> Self:
        made = type(self)(**self._checked_args())
        made.__setstate__(self._beginning())
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = type(self)(**copy.deepcopy(self._checked_args(), memo))
        made.__setstate__(self._beginning())
        return made

    def _beginning(self) -> _Beginning:
        now = self._epochs.next
        return _Beginning(self._seed_was_given, now.epoch, now.batch, self._file_fingerprint)

    def _checked_args(self) -> dict[str, Any]:
        """Give the arguments, if they are all that this loader goes by."""
        title, own_class = self.reader.index.title, cast("type[Loader]", type(self))
        if own_class.__init__ is not _loader_class().__init__:
            raise TypeError(
                f"{title}: {own_class.__name__} has an __init__ of its own, so that its arguments are not known. "
                "Give the class a __reduce__ that returns them, or make the loader in the process that uses it."
            )
        if self._order_was_assigned or self._origin.is_changed:
            raise TypeError(
                f"{title}: the loader cannot be copied or pickled, because an object was assigned to its "
                "traversal_order, or to the indices or the sampler of that. Make the loader with order=... and "
                "order_kwargs=..., or make it in the process that uses it."
            )
        return self._args

    def _check_picklable(self, name: str, value: Any) -> None:
        try:
            pickle.dumps(value)
        except Exception as error:
            raise TypeError(
                f"{self.reader.index.title}: the loader cannot be pickled, because its argument {name!r} cannot: "
                f"{error}. Define its classes and functions at the top of a module; or make the loader in the process "
                "that uses it."
            ) from error

    def _with(self, **changes: Any) -> Loader:
        """Make a loader with other arguments."""
        loader = _loader_class()(**{**self._args, **changes})
        for file, found in zip(self.reader.index.files, loader.reader.index.files, strict=True):
            file.identity.check(file.path, found.identity)  # else the indices would be those of other samples
        vars(loader).update(_make_crew=self._make_crew, _seed_was_given=self._seed_was_given)
        return loader

    @property
    def _args(self) -> dict[str, Any]:  # every argument is an attribute of the same name; FFCV's users know this one
        return {name: self._own.get(name, vars(self).get(name)) for name in signature(_loader_class()).parameters}


def _make(loader_class: type[Loader], arguments: dict[str, Any]) -> Loader:
    return loader_class(**arguments)


def _loader_class() -> type[Loader]:
    from gpubeton.loader.loader import Loader  # which is derived from the class above

    return Loader
