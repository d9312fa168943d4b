"""Attributes that scripts use: of FFCV's loader, although they are undocumented, and of torch's DataLoader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.pipeline_spec import DrawnParameters, PipelineSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.fields.base import Field
    from gpubeton.loader.schedule import EpochSchedule
    from gpubeton.reader import Reader


class _Replaced:
    """An attribute of FFCV or torch that does not exist here: AttributeError names the replacement."""

    # A derived class may assign to it. `__getattr__` on the loader would hide the name of an attribute that a derived
    # class's property does not find.

    def __init__(self, hint: str) -> None:
        self.hint = hint

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}. In gpubeton, {self.hint}")


class FfcvIteratorSurface:
    """The part of an epoch's iterator that FFCV's users know from its source."""

    output_queue = _Replaced("next() of this class gives a batch, which run_pipeline may change")


class FfcvSurface:
    """The part of a loader that FFCV's users know from its source."""

    reader: Reader
    pipelines: dict[str, Any]
    _schedule: EpochSchedule
    _generation: int

    #: FFCV's compiled pipelines; None would mean that they still have to be compiled.
    code: ClassVar[tuple[()]] = ()

    graph = _Replaced("plan() describes an epoch, and explain() where each operation runs")
    dataset = _Replaced("reader is the file and indices are the samples; DataLoaderAdapter(loader) has a dataset")
    memory_manager = _Replaced("os_cache decides how the file is read, and reader.index locates every region")

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(
            "a loader has no samples by index: it takes the place of torch's DataLoader, not of a dataset. Go through "
            "its batches with `for`; for libraries that use a DataLoader's attributes: "
            "gpubeton.integrations.DataLoaderAdapter(loader)"
        )

    def next_traversal_order(self) -> NDArray[np.uint64]:
        """List the samples of the next epoch, (N,) ids in order, with those that ``drop_last`` leaves out."""
        return np.array(self._schedule.plan(self._schedule.next.epoch).order, np.uint64)

    @property
    def first_traversal_order(self) -> NDArray[np.uint64]:
        """The samples of epoch 0, in order.

        An assignment changes nothing: FFCV's ``len`` depends on this, but here ``len`` asks the order.
        """
        return np.array(self._schedule.plan(0).order, np.uint64)

    @first_traversal_order.setter
    def first_traversal_order(self, samples: Any) -> None:
        del samples

    def generate_code(self) -> None:
        """Check that the pipelines can be planned as they are now, and compile users' functions again.

        Raises PipelineError if they cannot. Changes count from the next epoch on without it.
        """
        self._generation = Compiler.forget()
        self._compile_outputs()

    def _compile_outputs(self) -> tuple[Any, ...]:
        raise NotImplementedError

    @property
    def pipeline_specs(self) -> dict[str, PipelineSpec]:
        """Pipeline of each output, its decoder apart from the other operations.

        They hold the very operations that the loader was given: changes of these count from the next epoch on.
        """
        fields, pipelines = self.reader.handlers, self.pipelines
        specs = {}
        for name in dict.fromkeys([*fields, *pipelines]):
            pipeline = pipelines.get(name, ())
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
