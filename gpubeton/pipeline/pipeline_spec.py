"""Outputs of a batch besides lists of operations: of another field, and of the parameters drawn for an output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.pipeline.operation import Operation


@dataclass
class PipelineSpec:
    """A pipeline that reads a field of another name, so that one field may give several outputs.

    Parameters
    ----------
    source : str or Operation
        Name of the field in the file; or an operation, the very object, in the pipeline of another output:
        this one continues from its result, without a decoder. Both outputs see the same
        random choices up to there, and decode once.
    decoder : Operation, optional
        The decoder; by default the first of `transforms` if it is one, else the field's own. A list is taken as
        `transforms`.
    transforms : sequence of Operation or torch.nn.Module, optional
        What follows the decoder.

    Examples
    --------
    >>> PipelineSpec("image", transforms=[]).source
    'image'
    """

    source: str | Operation
    decoder: Any = None
    transforms: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.decoder, list | tuple) and self.transforms is None:
            self.decoder, self.transforms = None, self.decoder


@dataclass(frozen=True)
class DrawnParameters:
    """An output of the batch with the random parameters of another output's operations, for each sample.

    An entry of ``Loader(pipelines=...)`` under another name. The batch has a dict of tensors there, one row for each
    sample, under the class names of the operations; a second operation of the same class gets ``_2`` after its name.
    The numbers are those that were used: with them and the stored image, the augmentation can be done again.

    Parameters
    ----------
    output : str
        Name of the other output, of any kind.

    Notes
    -----
    Boxes are int32 of shape (N, 4): top, left, height and width, of no height where there is none. They and all shifts
    are in pixels of the image that the operation meets, only ``crop`` and ``size`` in those of the stored image.

    ``size`` is height and width of the stored image, int32 (N, 2), and ``crop`` the box of it that became the output:
    the part that the decoder took. The documentation of each transform describes its parameters. One is found under
    the name of the class, such as ``RandomHorizontalFlip``; several under ``RandomAffine.angle`` and so on.

    An operation of the library's kind that you write yourself, a `gpubeton.transforms.transform.Transform` with `draw`,
    is there with the result of `draw`. The draws of operations written as FFCV's, in compiled code, are not known.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
    >>> from gpubeton.transforms import RandomHorizontalFlip, ToTensor
    >>> image = [RandomResizedCropRGBImageDecoder((32, 32)), RandomHorizontalFlip(), ToTensor()]
    >>> pipelines = {"image": image, "label": None, "drawn": DrawnParameters("image")}
    >>> for images, drawn in Loader("train.beton", 150, pipelines=pipelines):
    ...     print(images.shape, drawn["crop"].shape, drawn["RandomHorizontalFlip"].dtype)
    torch.Size([150, 32, 32, 3]) torch.Size([150, 4]) torch.bool
    torch.Size([150, 32, 32, 3]) torch.Size([150, 4]) torch.bool
    """

    output: str
