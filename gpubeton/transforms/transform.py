"""Transform: an operation of the library itself, a value that says what is wanted."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton.pipeline.uniform import Uniform


class Transform(Operation):
    """An operation whose meaning is `apply`, with its random parameters drawn beforehand by `draw`.

    Loaders do not call `apply` for what they fuse into one pass over the pixels; the result is the same.
    """

    is_random: ClassVar[bool] = False
    """Whether `draw` gives parameters."""

    usual_numbers: ClassVar[int] = 4
    """Random numbers per sample that are made in advance, together with other operations'; `draw` may ask for more."""

    shared_numbers: ClassVar[int | None] = None
    """Which random numbers it shares with every operation, in whatever pipeline, that has the same here."""

    takes_samples: ClassVar[bool] = False
    """Whether `apply` is given the sample ids, uint64 of shape (N,), in place of what `draw` returns."""

    takes_ragged: ClassVar[bool] = False
    """Whether `apply` takes a `gpubeton.pipeline.ragged.Ragged`, too."""

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[Any] | None:
        """Choose the random parameters of the samples of a batch.

        Parameters
        ----------
        uniform : Uniform
            Random numbers of these samples for this operation.
        count : int
            Number of samples.
        state : State
            The batch that the operation will be applied to.

        Returns
        -------
        ndarray, shape (count, ...), or None
            Parameters for `apply`; None if the operation has none.
        """
        return None

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        """Give the random parameters of the samples of a batch as a user reads them: what `draw` chooses, named.

        Parameters
        ----------
        uniform : Uniform
            Random numbers of these samples for this operation.
        count : int
            Number of samples.
        state : State
            The batch that the operation will be applied to.

        Returns
        -------
        dict of str to ndarray, each of shape (count, ...)
            The parameters, by name; the name of an only one is "". Units and values are
            `gpubeton.pipeline.DrawnParameters`'s.
        """
        draw = self.draw(uniform, count, state)
        return {} if draw is None else {"": draw}

    @abstractmethod
    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        """Carry the operation out on a batch.

        Parameters
        ----------
        batch : ndarray or torch.Tensor, shape (N, ...)
            The batch; it may be changed in place.
        draw : ndarray, optional
            What `draw` returned for it.

        Returns
        -------
        ndarray or torch.Tensor
            The result: `batch` itself, a view of it, or a new one.
        """

    def generate_code(self) -> Callable[..., Any]:
        """Return ``code(batch, memory)``: the operation by itself, with fresh, unseeded random parameters.

        Returns
        -------
        callable
            A plain Python function. Loaders do not use it: they draw from their seed.
        """
        generator = np.random.default_rng()

        def code(batch: Any, memory: Any = None) -> Any:
            dtype = getattr(batch, "dtype", None)
            state = State(jit_mode=False, device="cpu", shape=tuple(batch.shape[1:]), dtype=dtype)

            def uniform(count: int, rows: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
                return generator.random((len(batch) if rows is None else len(rows), count))

            return self.apply(batch, self.draw(uniform, len(batch), state))

        return code

    def __repr__(self) -> str:
        arguments = (f"{name}={value!r}" for name, value in vars(self).items() if not hasattr(Operation, name))
        return f"{type(self).__name__}({', '.join(arguments)})"
