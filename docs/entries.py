"""The entries of the gallery: for every transform, the operations as a user writes them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ENTRIES", "Entry"]


@dataclass(frozen=True)
class Entry:
    """A picture of the gallery.

    Parameters
    ----------
    name : str
        Name of the transform or decoder, and of the file.
    code : str
        Operations of a pipeline, separated by commas; evaluated unchanged, and shown.
    group : str
        Heading of the gallery.
    photo : str
        The photograph of all samples; "all" for one of each.
    kind : {"pixels", "labels", "boxes", "points", "mask", "views", "batch", "sizes", "gray", "gray16"}
        The kind of picture: images before and after; labels before and after; boxes or points over images; masks below
        images; views below images; type and shape of the batch; images of several sizes, in color, gray, or gray with
        16 bits.
    note : str
        A sentence about the picture.
    """

    name: str
    code: str
    group: str
    photo: str = "cat"
    kind: str = "pixels"
    note: str = ""

    @property
    def is_text(self) -> bool:
        """Whether a batch is described in words."""
        return self.kind in {"labels", "batch"}


_NORMALIZE = "NormalizeImage(255 * np.array([0.485, 0.456, 0.406]), 255 * np.array([0.229, 0.224, 0.225]), np.float32)"
_DECODE_LABEL = "IntDecoder()"

ENTRIES = (
    *(
        Entry(name, code, "Decoders", "coffee", "sizes", note)
        for name, code, note in (
            (
                "RandomResizedCropRGBImageDecoder",
                "RandomResizedCropRGBImageDecoder((144, 144))",
                "Only the part that is needed is decoded.",
            ),
            ("CenterCropRGBImageDecoder", "CenterCropRGBImageDecoder((144, 144), 224 / 256)", ""),
            (
                "PadRGBImageDecoder",
                "PadRGBImageDecoder((144, 144), fill=114)",
                "The whole image with its proportions kept (letterbox).",
            ),
        )
    ),
    Entry(
        "RandomResizedCropImageDecoder",
        "RandomResizedCropImageDecoder((144, 144))",
        "Gray images, 16 bits",
        "cat",
        "gray",
        'Of a field `ImageField("gray")`; those of RGBA and 16 bits decode the same way.',
    ),
    Entry(
        "CenterCropImageDecoder",
        "CenterCropImageDecoder((144, 144), 1), RandomTranslate(36), NormalizeImage(0, 65535, np.float32)",
        "Gray images, 16 bits",
        "cat",
        "gray16",
        'Of a field `ImageField("gray16")`: light as a sensor counts it, from 0 to 65535.',
    ),
    Entry(
        "PipelineSpec",
        'PipelineSpec("image", RandomResizedCropRGBImageDecoder((144, 144)), [ColorJitter(0.4, 0.4, 0.4, 0.2)])',
        "Several views of one image",
        "coffee",
        "views",
        "The lower row, made from the same decode as the upper one, which is the image's own: "
        "`RandomResizedCropRGBImageDecoder((144, 144), scale=(0.3, 1)), RandomHorizontalFlip()`.",
    ),
    *(
        Entry(name, code, "Crops and places", photo, note=note)
        for name, code, photo, note in (
            ("RandomHorizontalFlip", "RandomHorizontalFlip()", "cat", ""),
            ("RandomVerticalFlip", "RandomVerticalFlip()", "cat", ""),
            ("RandomQuarterTurn", "RandomQuarterTurn()", "coffee", ""),
            ("RandomResizedCrop", "RandomResizedCrop((0.08, 1), (3 / 4, 4 / 3), size=144)", "cat", ""),
            ("RandomCrop", "RandomCrop(144, padding=24)", "astronaut", ""),
            ("CornerCrop", "CornerCrop(80)", "astronaut", ""),
            ("Pad", "Pad((20, 10), fill=(255, 200, 0))", "coffee", "It draws nothing: all are the same."),
            ("RandomTranslate", "RandomTranslate(36)", "cat", ""),
            ("RandomRotation", 'RandomRotation(30, "bilinear")', "coffee", ""),
            (
                "RandomAffine",
                'RandomAffine(15, translate=(0.1, 0.1), scale=(0.7, 1.2), shear=15, interpolation="bilinear")',
                "astronaut",
                "",
            ),
            ("RandomPerspective", "RandomPerspective(0.6, p=0.8)", "coffee", ""),
        )
    ),
    *(
        Entry(name, code, "Colors", photo, note=note)
        for name, code, photo, note in (
            ("RandomBrightness", "RandomBrightness(0.6, p=1)", "flower", ""),
            ("RandomContrast", "RandomContrast(0.8, p=1)", "flower", ""),
            ("RandomSaturation", "RandomSaturation(1.0, p=1)", "flower", ""),
            ("ColorJitter", "ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.2)", "flower", ""),
            ("RandomHSV", "RandomHSV(hue=0.1)", "flower", ""),
            ("RandomGrayscale", "RandomGrayscale(p=0.5)", "flower", ""),
            ("RandomSolarization", "RandomSolarization(threshold=128, p=0.5)", "flower", ""),
            ("RandomPosterize", "RandomPosterize(bits=2, p=0.5)", "astronaut", ""),
            ("RandomInvert", "RandomInvert(p=0.5)", "astronaut", ""),
            ("RandomAutocontrast", "RandomAutocontrast(p=0.5)", "cat", ""),
            ("RandomEqualize", "RandomEqualize(p=0.5)", "cat", ""),
            (
                "PerSample",
                "PerSample(lambda image, generator: np.roll(image, generator.integers(96), axis=1))",
                "cat",
                "Your Python function of one image.",
            ),
            (
                "NormalizeImage",
                _NORMALIZE,
                "astronaut",
                "Drawn with black for the least and white for the greatest value of the batch.",
            ),
        )
    ),
    *(
        Entry(name, code, "Sharpness and holes", photo)
        for name, code, photo in (
            ("RandomGaussianBlur", "RandomGaussianBlur(15, sigma=(0.1, 3), p=0.8)", "cat"),
            ("RandomAdjustSharpness", "RandomAdjustSharpness(4, p=0.5)", "cat"),
            ("Cutout", "Cutout(48, fill=(124, 116, 104))", "astronaut"),
            ("RandomErasing", "RandomErasing(p=0.8)", "astronaut"),
            ("Poison", "Poison(mask, alpha, indices=[7, 9])", "coffee"),
        )
    ),
    *(
        Entry(name, code, "Policies", photo)
        for name, code, photo in (
            ("RandAugment", "RandAugment(num_ops=2, magnitude=9)", "astronaut"),
            ("TrivialAugmentWide", "TrivialAugmentWide()", "astronaut"),
            ("AutoAugment", 'AutoAugment("imagenet")', "astronaut"),
            ("AugMix", "AugMix(severity=5)", "astronaut"),
            ("TimmAugment", 'TimmAugment("rand-m9-mstd0.5-inc1")', "astronaut"),
            ("ThreeAugment", "ThreeAugment()", "flower"),
            ("RandomApply", "RandomApply([ColorJitter(0.8, 0.8, 0.8, 0.2), RandomGrayscale(0.2)], p=0.8)", "flower"),
            ("RandomChoice", "RandomChoice([RandomRotation(30), RandomInvert(1), Cutout(48)])", "coffee"),
            ("RandomOrder", "RandomOrder([RandomRotation(30), RandomErasing(1), RandomVerticalFlip()])", "cat"),
        )
    ),
    Entry("ImageMixup", "ImageMixup(alpha=1.0, same_lambda=False)", "Mixing of samples", "all"),
    Entry("ImageCutMix", "ImageCutMix(alpha=1.0, same_lambda=False)", "Mixing of samples", "all"),
    Entry(
        "ImageMixupOrCutMix",
        "ImageMixupOrCutMix(mixup_alpha=1.0, cutmix_alpha=1.0, same_lambda=False)",
        "Mixing of samples",
        "all",
    ),
    Entry("Mosaic", "Mosaic(center=(0.25, 0.75))", "Mixing of samples", "all", note="Boxes, points and masks follow."),
    *(
        Entry(name, f"{_DECODE_LABEL}, {code}", "Mixing of samples", "all", "labels", note)
        for name, code, note in (
            (
                "LabelMixup",
                "LabelMixup(alpha=1.0, same_lambda=False)",
                "Columns: own label, other label, share of the own, for the images of `ImageMixup` above.",
            ),
            (
                "LabelCutMix",
                "LabelCutMix(alpha=1.0, same_lambda=False, size=(144, 144))",
                "Columns: own label, other label, share of the own, for the images of `ImageCutMix` above.",
            ),
            (
                "LabelMixupOrCutMix",
                "LabelMixupOrCutMix(mixup_alpha=1.0, cutmix_alpha=1.0, same_lambda=False, size=(144, 144))",
                "Columns: own label, other label, share of the own, for the images of `ImageMixupOrCutMix` above.",
            ),
            (
                "MixupToOneHot",
                "LabelMixup(alpha=1.0, same_lambda=False), ToTensor(), MixupToOneHot(num_classes=4)",
                "A share for each class.",
            ),
        )
    ),
    Entry(
        "TransformBoxes",
        'RaggedDecoder(), TransformBoxes(image="image"), ToTensor()',
        "Labels, boxes and masks",
        "cat",
        "boxes",
        "The image's pipeline: `RandomResizedCropRGBImageDecoder((144, 144), scale=(0.3, 1)), RandomHorizontalFlip()`.",
    ),
    Entry(
        "TransformKeypoints",
        'RaggedDecoder(), TransformKeypoints(image="image"), ToTensor()',
        "Labels, boxes and masks",
        "cat",
        "points",
        "The image's pipeline is the same as above, and a `RandomPerspective(0.6, p=1)`.",
    ),
    Entry(
        "FollowImage",
        'FollowImage("image")',
        "Labels, boxes and masks",
        "cat",
        "mask",
        "A decoder for masks. The image's pipeline is the same as above.",
    ),
    Entry(
        "ReplaceLabel",
        f"{_DECODE_LABEL}, ReplaceLabel(indices=[6, 12], new_label=7)",
        "Labels, boxes and masks",
        "all",
        "labels",
    ),
    *(
        Entry(name, code, "Tensors", kind="batch")
        for name, code in (
            ("ToTensor", "ToTensor()"),
            ("ToTorchImage", "ToTensor(), ToTorchImage()"),
            ("ToDevice", 'ToTensor(), ToDevice("cpu")'),
            ("Convert", "ToTensor(), Convert(torch.float32)"),
            ("View", "ToTensor(), View(torch.int8)"),
        )
    ),
    Entry("Squeeze", f"{_DECODE_LABEL}, ToTensor(), Squeeze(1)", "Tensors", kind="labels"),
    Entry(
        "ModuleWrapper",
        "ToTensor(), ToTorchImage(), Convert(torch.float32), ModuleWrapper(torch.nn.AvgPool2d(12))",
        "Tensors",
        "astronaut",
        note="Any torch module works. In a pipeline you need not wrap it.",
    ),
)
