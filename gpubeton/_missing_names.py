"""Names of FFCV and of its forks that gpubeton does not have: importing one is an error that says what to write."""

from __future__ import annotations

_REPLACEMENTS: dict[tuple[str, ...], str] = {
    ("transforms.RandomColorJitter", "transforms.color_jitter.RandomColorJitter", "transforms.colorjitter"): (
        "`ColorJitter(brightness, ..., p=p)` of `transforms`: here the probability comes last, and by name only"
    ),
    ("transforms.solarization",): (
        "`RandomSolarization(threshold, p=p)` of `transforms`: here the threshold comes first, and p by name only"
    ),
    ("transforms.grayscale",): "`RandomGrayscale(p)` of `transforms`",
    ("transforms.GaussianBlur", "transforms.gaussian_blur"): "`RandomGaussianBlur` of `transforms`",
    ("transforms.Rotate", "transforms.rotate"): "`RandomRotation` of `transforms`",
    ("transforms.resized_crop", "transforms.CenterCrop"): (
        "`RandomResizedCropRGBImageDecoder(size)` and `CenterCropRGBImageDecoder` of `fields.decoders`; `CornerCrop` "
        "of `transforms`"
    ),
    ("transforms.PadRGBImageDecoder",): (
        "`PadRGBImageDecoder((height, width))` of `fields.decoders`: you choose the size, and images are made smaller "
        "or larger to fit"
    ),
    (
        "transforms.LabelRandomResizedCrop",
        "transforms.LabelColorJitter",
        "transforms.LabelGrayscale",
        "transforms.LabelSolarization",
        "transforms.LabelTranslate",
        "transforms.LabelGaussianBlur",
    ): 'one output `DrawnParameters("image")` of `pipeline`: the draws of every operation of the image\'s pipeline',
    ("transforms.Collate",): "nothing: operations get whole batches",
    ("traversal_order.SequentialContiguous",): "`OrderOption.SEQUENTIAL` of `loader`, with `indices` for each rank",
    ("memory_managers", "memory_allocator"): (
        "`os_cache`, an argument of `Loader`, chooses how files are read; `loader.reader.index` has the place of each "
        "region"
    ),
    ("pipeline.graph", "pipeline.Pipeline", "pipeline.pipeline"): (
        "`loader.plan()` shows the batches of an epoch, `loader.explain()` where each operation runs"
    ),
    ("types", "utils"): "`read_header` and `open_dataset` of `format`; `Reader` of `reader`",
}

REPLACEMENTS = {name: text for names, text in _REPLACEMENTS.items() for name in names}
"""For each name, what to write instead, in Markdown; docs/guides/from_ffcv.md has the same as a table."""


def missing_attribute(module: str, name: str) -> AttributeError:
    """Make the error of a name that a module does not have, with what to write instead if that is known."""
    replacement = REPLACEMENTS.get(f"{module}.{name}".removeprefix("gpubeton."), "").replace("`", "")
    return AttributeError(f"module {module!r} has no attribute {name!r}{replacement and f'. Instead: {replacement}'}")


class MissingNames:
    """A finder of modules, asked after all others: also for ``from gpubeton.transforms import NAME``."""

    @staticmethod
    def find_spec(fullname: str, *_: object) -> None:
        """Raise ImportError if it is one of these names."""
        replacement = REPLACEMENTS.get(fullname.removeprefix("gpubeton."))
        if replacement is not None and fullname.startswith("gpubeton."):
            text = replacement.replace("`", "")
            raise ImportError(f"gpubeton has no {fullname.removeprefix('gpubeton.')}. Instead: {text}", name=fullname)
