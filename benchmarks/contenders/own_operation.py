"""A user's operation as in FFCV's documentation; the same code for FFCV and for gpubeton."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

__all__ = ["make_operation"]


def make_operation(operation: type, compiler: Any, query: Any) -> type:
    """Derive the operation from the base class of either library."""

    class Negative(operation):  # type: ignore[misc]  # the base class is an argument
        """Write negatives of samples with odd indices, and copies of the others."""

        def declare_state_and_memory(self, previous_state: Any) -> tuple[Any, Any]:
            """Allocate an image of the same size."""
            return replace(previous_state, jit_mode=True), query(previous_state.shape, previous_state.dtype)

        def generate_code(self) -> Callable[..., Any]:
            """Return the function to compile."""
            rows = compiler.get_iterator()

            def negative(images: Any, memory: Any, indices: Any) -> Any:
                for row in rows(images.shape[0]):
                    if indices[row] % 2 == 1:
                        memory[row] = 255 - images[row]
                    else:
                        memory[row] = images[row]
                return memory

            negative.is_parallel = True  # type: ignore[attr-defined]  # attributes of FFCV
            negative.with_indices = True  # type: ignore[attr-defined]
            return negative

    return Negative
