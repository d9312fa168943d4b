"""ModuleWrapper: a torch module as an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gpubeton.errors import PipelineError
from gpubeton.pipeline.pixel_type import is_torch_dtype
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from gpubeton.pipeline.state import State


class ModuleWrapper(Transform):
    """Apply a torch module, such as a transform of torchvision, to the whole batch.

    A module in a pipeline is wrapped by itself. Random numbers that it draws are torch's own: one set for the batch,
    and not of the loader's seed.

    Parameters
    ----------
    module : torch.nn.Module
        Called with the batch, without gradients.

    Notes
    -----
    FFCV's.

    Examples
    --------
    >>> import torch
    >>> ModuleWrapper(torch.nn.ReLU()).apply(torch.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """

    moves: ClassVar[Moves] = Moves.NOTHING  # as far as the library knows
    needs_declared_device: ClassVar[bool] = True

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def check_state(self, state: State) -> None:
        if not is_torch_dtype(state.dtype):
            raise PipelineError(
                f"{type(self.module).__name__} is a torch module, but here the batch is a numpy array. "
                f"Put ToTensor (and ToTorchImage, for images) before it."
            )

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        import torch

        with torch.no_grad():
            return self.module(batch)
