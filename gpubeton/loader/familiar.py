"""Familiar: what scripts written for FFCV reach for in a loader, though its documentation does not name it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.pipeline_spec import DrawnParameters, PipelineSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self

    from gpubeton.fields.base import Field
    from gpubeton.loader.epochs import Epochs
    from gpubeton.reader import Reader


class _Elsewhere:
    """A part of FFCV's own machinery, which is not there, and what does its work here.

    A class derived from the loader's may assign to it. `__getattr__` would hide which name it was that a property of
    that class did not find.
    """

    def __init__(self, hint: str) -> None:
        self.hint = hint

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}. In gpubeton, {self.hint}")


class Familiar:
    """The part of a loader that FFCV's users know from its source. `Loader` sets the attributes.

    Attributes
    ----------
    reader : Reader
        What the file holds.
    pipelines : mapping of str to object
        The pipelines, as they were given.
    recompile : bool
        Whether users' functions are compiled anew for each epoch.
    """

    reader: Reader
    pipelines: Mapping[str, Any]
    _epochs: Epochs
    recompile: bool
    _generation: int

    #: FFCV's compiled pipelines; None would mean that they still have to be compiled.
    code: ClassVar[tuple[()]] = ()

    graph = _Elsewhere("plan() says what an epoch does, and explain() what runs where")
    memory_manager = _Elsewhere("os_cache says how the file is read, and reader.index where every region of it is")

    @abstractmethod
    def close(self) -> None:
        """End all iterators of this loader, and refuse new ones."""

    @abstractmethod
    def _compile_outputs(self) -> tuple[Any, ...]: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def next_traversal_order(self) -> NDArray[np.uint64]:
        """Give the samples of the next epoch, in order, with those that ``drop_last`` leaves out.

        Returns
        -------
        ndarray of uint64, shape (N,)
            Their ids.

        Examples
        --------
        >>> from gpubeton import Loader
        >>> Loader("train.beton", 100).next_traversal_order()[:3]
        array([0, 1, 2], dtype=uint64)
        """
        return self._epochs.plan(self._epochs.next.epoch).order.copy()

    @property
    def first_traversal_order(self) -> NDArray[np.uint64]:
        """The samples of epoch 0, in order.

        An assignment changes nothing: FFCV's ``len`` goes by this, but here ``len`` asks the order.
        """
        return self._epochs.plan(0).order.copy()

    @first_traversal_order.setter
    def first_traversal_order(self, samples: Any) -> None:
        del samples

    def generate_code(self) -> None:
        """Check that the pipelines can be planned as they are now, and compile users' functions anew.

        Changes count from the next epoch on without it.

        Raises
        ------
        PipelineError
            If a pipeline was changed so that it cannot be planned.

        Examples
        --------
        >>> from gpubeton import Loader
        >>> Loader("train.beton", 100).generate_code()
        """
        self._generation = Compiler.forget()
        self._compile_outputs()

    def _renew_generation(self) -> None:
        """What code reads counts as it is when the first loop begins; with `recompile`, when any does."""
        if self.recompile:
            self._generation = Compiler.forget()
        elif not self._epochs.has_begun:
            self._generation = Compiler.begin()

    @property
    def pipeline_specs(self) -> dict[str, PipelineSpec]:
        """Pipeline of each output, its decoder apart from what follows.

        They hold the very operations that the loader was given: what is changed in these counts from the next epoch on.
        """
        fields = self.reader.handlers
        specs = {}
        for name in dict.fromkeys([*fields, *self.pipelines]):
            pipeline = self.pipelines.get(name, ())
            if pipeline is not None and not isinstance(pipeline, DrawnParameters):
                is_spec = isinstance(pipeline, PipelineSpec)
                specs[name] = pipeline if is_spec else _spec(name, fields[name], list(pipeline))
        return specs

    @property
    def field_name_to_f_ix(self) -> dict[str, int]:
        """Number of each field in the file, of its column ``f0``, ``f1``, ... in ``reader.metadata``."""
        return {name: number for number, name in enumerate(self.reader.field_names)}


def _spec(name: str, field: Field, operations: list[Any]) -> PipelineSpec:
    default = field.get_decoder_class()
    if operations and isinstance(operations[0], getattr(default, "family", default)):
        return PipelineSpec(name, operations[0], operations[1:])
    return PipelineSpec(name, default(), operations)
