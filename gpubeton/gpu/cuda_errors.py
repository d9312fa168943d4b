"""What CUDA's errors are turned into."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpubeton.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def explained(cuda: Any, place: str, doing: str) -> Iterator[None]:
    """Say of an error of CUDA where it appeared, and that it may be of earlier work.

    Parameters
    ----------
    cuda : module
        ``cupy.cuda``.
    place : str
        Which GPU.
    doing : str
        What was asked of it.

    Yields
    ------
    None
        Once.

    Raises
    ------
    DeviceError
        If CUDA reports an error meanwhile.
    """
    try:
        yield
    except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as error:
        raise DeviceError(
            f"{place}: {doing}: {error}. Kernels and copies report late: what failed may be earlier work, training's "
            "included. CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer show which"
        ) from error
