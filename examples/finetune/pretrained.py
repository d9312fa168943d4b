"""Pretrained networks of timm and Hugging Face, and the preprocessing that each of them was trained with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gpubeton.pipeline.interpolation import INTERPOLATIONS, Interpolation

PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


@dataclass(frozen=True)
class Preprocessing:
    """What a network expects of its images."""

    size: tuple[int, int]  # height and width in pixels
    ratio: float  # side of the central crop, as a share of the image's shorter side
    mean: tuple[float, ...]  # of each channel; levels go from 0 to 255
    std: tuple[float, ...]
    interpolation: Interpolation


def load_pretrained(model: str, class_names: Sequence[str], *, weights: bool) -> tuple[nn.Module, Preprocessing]:
    """Load ``timm:NAME`` or ``hf:NAME_OR_FOLDER`` with a new head for these classes."""
    source, _, name = model.partition(":")
    if source == "timm":
        return _from_timm(name, class_names, weights=weights)
    if source == "hf":
        return _from_hugging_face(name, class_names, weights=weights)
    raise ValueError(f"model is {model!r}, expected timm:NAME or hf:NAME, such as timm:resnet50.a1_in1k")


def _from_timm(name: str, class_names: Sequence[str], *, weights: bool) -> tuple[nn.Module, Preprocessing]:
    import timm

    network: nn.Module = timm.create_model(name, pretrained=weights, num_classes=len(class_names))
    result = timm.data.resolve_data_config({}, model=network)
    mean, std = (tuple(255 * value for value in result[name]) for name in ("mean", "std"))
    interpolation = interpolation_like(result["interpolation"])
    return network, Preprocessing(tuple(result["input_size"][1:]), result["crop_pct"], mean, std, interpolation)


def _from_hugging_face(name: str, class_names: Sequence[str], *, weights: bool) -> tuple[nn.Module, Preprocessing]:
    from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification

    numbers = {class_name: number for number, class_name in enumerate(class_names)}
    names = dict(enumerate(class_names))
    if weights:
        network = AutoModelForImageClassification.from_pretrained(
            name, id2label=names, label2id=numbers, ignore_mismatched_sizes=True
        )
    else:
        config = AutoConfig.from_pretrained(name, id2label=names, label2id=numbers)
        network = AutoModelForImageClassification.from_config(config)
    return Logits(network), preprocessing_of_processor(AutoImageProcessor.from_pretrained(name).to_dict())


def preprocessing_of_processor(values: Mapping[str, Any]) -> Preprocessing:
    """Translate the settings of an image processor of Hugging Face's."""
    size, crop, ratio = values["size"], values.get("crop_size"), 1.0
    edge = size.get("shortest_edge")
    if values.get("do_center_crop") and crop:
        ratio = min(1.0, crop["height"] / (edge or min(size["height"], size["width"])))
        size = crop
    elif edge:
        ratio = values.get("crop_pct") or 1.0 if edge < 384 else 1.0  # as ConvNeXt's processor does
        size = {"height": edge, "width": edge}
    factor = values.get("rescale_factor", 1 / 255) if values.get("do_rescale", True) else 1.0
    mean, std = (values["image_mean"], values["image_std"]) if values.get("do_normalize", True) else ([0] * 3, [1] * 3)
    return Preprocessing(
        (size["height"], size["width"]),
        ratio,
        tuple(value / factor for value in mean),
        tuple(value / factor for value in std),
        interpolation_like(PILLOW[int(values.get("resample", 2))]),
    )


def interpolation_like(pillow: str) -> Interpolation:
    """Choose gpubeton's interpolation for one of Pillow's, or the nearest one that there is."""
    if pillow == "bilinear":
        return "antialias"  # Pillow's bilinear; gpubeton's is torch's
    return next((name for name in INTERPOLATIONS if name == pillow), "antialias")


class Logits(nn.Module):
    """A network of Hugging Face's that takes a tensor and returns one."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of each image."""
        logits: Tensor = self.network(pixel_values=images).logits
        return logits

    def save_pretrained(self, folder: Path) -> None:
        """Write weights and class names for ``from_pretrained``."""
        self.network.save_pretrained(folder)
