"""ModuleWrapper: a torch module as an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gpubeton.errors import PipelineError
from gpubeton.pipeline.pixel_type import is_torch_dtype
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from numpy.typing import NDArray

    from gpubeton.pipeline.state import State


_OTHER_RANDOM_NAMES = {
    *("AugMix", "AutoAugment", "ColorJitter", "ElasticTransform", "GaussianBlur", "RandAugment", "ScaleJitter"),
    "TrivialAugmentWide",
}


def _parts_of(part: Any) -> Iterator[Any]:
    """List a module and those inside of it, in order."""
    inner = getattr(part, "transforms", None)  # Compose keeps them in a plain list
    if not isinstance(inner, (list, tuple)):
        inner = list(part.children()) if hasattr(part, "children") else []
    yield part
    for other in inner:
        yield from _parts_of(other)


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
    def parts(self) -> list[tuple[str, Any]]:
        """The module and those inside of it, with the names of torchvision's transforms, "" for others."""
        kinds = [(type(part), part) for part in _parts_of(self.module)]
        return [(kind.__name__ if kind.__module__.startswith("torchvision.") else "", part) for kind, part in kinds]

    @property
    def random_parts(self) -> list[str]:
        """Names of torchvision's transforms in the module that draw once for a batch."""
        return [name for name, _ in self.parts if name.startswith("Random") or name in _OTHER_RANDOM_NAMES]

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
