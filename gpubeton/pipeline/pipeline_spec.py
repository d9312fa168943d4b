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
        The decoder; by default the first of `transforms` if it is one, else the field's own.
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

    ===============================  ==============================================================================
    key                              is
    ===============================  ==============================================================================
    ``size``                         height and width of the stored image, int32 (N, 2)
    ``crop``                         box of the stored image that became the output: what the decoder took
    RandomHorizontalFlip             whether it was mirrored, bool (N,)
    RandomTranslate                  how far down and to the right it was moved, int32 (N, 2)
    Cutout, RandomErasing            box that was painted over
    RandomResizedCrop                box that was taken; where it is fused with the decoder, ``crop`` is that box
    RandomCrop, CornerCrop           box that was taken; may begin outside, where there is padding
    RandomBrightness, -Contrast,     factor, float64 (N,); 1 for images that stay
    -Saturation, -AdjustSharpness
    RandomGrayscale, -Solarization,  whether it was done, bool (N,)
    -Posterize, -Invert,
    -Autocontrast, -Equalize
    ``ColorJitter.order``            kinds in the order in which they were carried out, int32 (N, K): 0 brightness,
                                     1 contrast, 2 saturation, 3 hue; those whose range is not just the neutral value
    ``ColorJitter.brightness``,      factors, float64 (N,); hue in parts of a full circle. 1, for hue 0, where an image
    ``.contrast``, ``.saturation``,  stays
    ``.hue``
    PixelOperation                   whether it was done, bool (N,)
    ``PixelOperation.NAME``          its parameter of that name, float32 (N,)
    RandomGaussianBlur               standard deviation in pixels, float64 (N,); 0 for images that stay
    RandomRotation                   degrees counter-clockwise, float64 (N,)
    ``RandomAffine.angle``           degrees clockwise, float64 (N,)
    ``RandomAffine.translate``       pixels to the right and down, float64 (N, 2)
    ``RandomAffine.scale``           factor, float64 (N,)
    ``RandomAffine.shear``           degrees along x and y, float64 (N, 2)
    ``RandAugment.operation``        which operations, int64 (N, num_ops): places in
    (TrivialAugmentWide likewise)    `gpubeton.transforms.rand_augment.RAND_AUGMENT` (``TRIVIAL_AUGMENT_WIDE``)
    ``RandAugment.magnitude``        their magnitudes, float64 (N, num_ops), negative to the left, up, ...
    ``ImageMixup.partner``           row of the batch that was mixed in, int64 (N,); all mixes have it
    ``ImageMixup.share``             share of the image (or of the label) itself, float64 (N,); all mixes have it
    ``ImageCutMix.box``              box that shows the partner
    ===============================  ==============================================================================

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
