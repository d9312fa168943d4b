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


_OTHER_RANDOM_NAMES = {
    *("AugMix", "AutoAugment", "ColorJitter", "ElasticTransform", "GaussianBlur", "RandAugment", "ScaleJitter"),
    "TrivialAugmentWide",
}


def _random_parts(part: Any) -> list[str]:
    """List torchvision's transforms that draw once for a batch, also those inside of others."""
    kind, inner = type(part), getattr(part, "transforms", None)  # Compose keeps them in a plain list
    if not isinstance(inner, (list, tuple)):
        inner = list(part.children()) if hasattr(part, "children") else []
    is_random = kind.__name__.startswith("Random") or kind.__name__ in _OTHER_RANDOM_NAMES
    names = [kind.__name__] if is_random and kind.__module__.startswith("torchvision.") else []
    return names + [name for other in inner for name in _random_parts(other)]


class ModuleWrapper(Transform):
    """Apply a torch module, such as a transform of torchvision, to the whole batch.

    A module in a pipeline is wrapped by itself. Random numbers that it draws are torch's own: one set for the batch,
    and not of the loader's seed. The loader warns of torchvision's random transforms, which change all images alike.

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
        self.advice = ""  # what to write instead, where the library has the same

    @property
    def random_parts(self) -> list[str]:
        """Names of torchvision's transforms in the module that draw once for a batch."""
        return _random_parts(self.module)

    def check_state(self, state: State) -> None:
        if not is_torch_dtype(state.dtype):
            advice = " Put ToTensor (and ToTorchImage, for images) before it."
            if parts := self.random_parts:
                advice = f" It would draw once for all images of a batch ({', '.join(parts)}).{self.advice}"
            raise PipelineError(
                f"{type(self.module).__name__} is a torch module, but here the batch is a numpy array.{advice}"
            )

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        import torch

        with torch.no_grad():
            return self.module(batch)
