"""A user's operation, as FFCV's documentation has them; the same text for FFCV and for gpubeton."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

__all__ = ["make_operation"]


def make_operation(operation: type, compiler: Any, query: Any) -> type:
    """Derive the operation from either library's base.

    Parameters
    ----------
    operation : type
        ``Operation``.
    compiler : object
        ``Compiler``.
    query : type
        ``AllocationQuery``.

    Returns
    -------
    type
        An operation on images: the negative of every second sample, written into memory that was asked for; compiled,
        in parallel, with the samples' indices.
    """

    class Negative(operation):  # type: ignore[misc]  # the base is given
        """Writes the negatives of samples with odd indices, and the others as they are."""

        def declare_state_and_memory(self, previous_state: Any) -> tuple[Any, Any]:
            """Ask for an image of the same size."""
            return replace(previous_state, jit_mode=True), query(previous_state.shape, previous_state.dtype)

        def generate_code(self) -> Callable[..., Any]:
            """Make the function."""
            rows = compiler.get_iterator()

            def negative(images: Any, made: Any, indices: Any) -> Any:
                for row in rows(images.shape[0]):
                    if indices[row] % 2 == 1:
                        made[row] = 255 - images[row]
                    else:
                        made[row] = images[row]
                return made

            negative.is_parallel = True  # type: ignore[attr-defined]  # how a function says so
            negative.with_indices = True  # type: ignore[attr-defined]
            return negative

    return Negative
