"""How far pixels are from those of Pillow, torchvision and the definitions in float64, for each decoder."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.contenders.process import Contender, ContenderError
from benchmarks.differences import difference
from benchmarks.harness.photos import PhotoSet, list_photos, write_photos
from gpubeton.fields import RGBImageField
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, decode_image
from gpubeton.pipeline.interpolation import INTERPOLATIONS
from gpubeton.pipeline.pipeline_spec import DrawnParameters
from gpubeton.transforms import ToTensor
from gpubeton.writer import DatasetWriter
from tests.reference.weights import resize

__all__ = ["agreement"]

_TORCHVISION = Contender("torchvision", "torchvision_crops", "torchvision", "GPUBETON_TORCHVISION_PYTHON")
_PICTURES: Any = import_module("tests.cpu.pictures")  # tests have no types
_FILTERS = {
    "antialias": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "area": Image.Resampling.BOX,
    "nearest": Image.Resampling.NEAREST,
}

#: Kinds of files that a photo is saved as: name, mode and Pillow's options.
_FORMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "JPEG, 4:2:0": ("RGB", "JPEG", {"quality": 90, "subsampling": "4:2:0"}),
    "JPEG, 4:2:2": ("RGB", "JPEG", {"quality": 90, "subsampling": "4:2:2"}),
    "JPEG, 4:4:4": ("RGB", "JPEG", {"quality": 90, "subsampling": "4:4:4"}),
    "JPEG, gray": ("L", "JPEG", {"quality": 90}),
    "JPEG, progressive": ("RGB", "JPEG", {"quality": 90, "progressive": True}),
    "JPEG, CMYK": ("CMYK", "JPEG", {"quality": 90}),
    "PNG": ("RGB", "PNG", {}),
    "WebP": ("RGB", "WEBP", {"quality": 90}),
}

Pixels = NDArray[np.uint8]  # (H, W, 3), or (N, H, W, 3)


def agreement(folder: Path, photos: int = 40, sides: Sequence[int] = (64, 224, 448)) -> dict[str, Any]:
    """Compare decoders, interpolations and sizes; torchvision is left out where it is not installed."""
    write_photos(folder / "photos", PhotoSet(photos))
    files = {path.stem: path.read_bytes() for path, _ in list_photos(folder / "photos")}
    wholes = {f"{form}/{name}": _saved(file, form) for form in _FORMS for name, file in files.items()}
    crops = _crops(folder, files, sides)
    others, versions = _torchvision(files | wholes, list(wholes), crops)
    rows = []
    for form in _FORMS:
        names = [name for name in wholes if name.startswith(f"{form}/")]
        ours = [decode_image(wholes[name]) for name in names]
        peers = {"Pillow": [_pillow(wholes[name]) for name in names]}
        if others:
            peers["torchvision"] = [others[name] for name in names]
        beside = {peer: difference(_joined(ours), _joined(images)) for peer, images in peers.items()}
        rows.append({"name": f"{form}, whole", "settings": "", "beside": beside})
    for name, (decoder, side, interpolation, names, boxes, images) in crops.items():
        pixels = [_pillow(files[of]) for of in names]
        parts = [
            image[top : top + height, left : left + width]
            for image, (top, left, height, width) in zip(pixels, boxes, strict=True)
        ]
        exact = np.stack([resize(part, (side, side), interpolation) for part in parts])
        planes = [
            _PICTURES.planar_reference(files[of], box, (side, side), interpolation)
            for of, box in zip(names, boxes, strict=True)
        ]
        beside = {
            "planes": difference(images, np.rint(np.stack(planes)).astype(np.uint8)),
            "float64": difference(images, np.rint(exact).clip(0, 255).astype(np.uint8)),
        }
        if interpolation in _FILTERS:
            resized = [Image.fromarray(part).resize((side, side), _FILTERS[interpolation]) for part in parts]
            beside["Pillow"] = difference(images, np.stack([np.asarray(part) for part in resized]))
        if name in others:
            beside["torchvision"] = difference(images, others[name])
        rows.append({"name": f"{decoder}, `{interpolation}`", "settings": f"to {side}", "beside": beside})
    return {"photos": photos, "versions": versions | {"pillow": version("pillow")}, "rows": rows}


def _crops(folder: Path, files: dict[str, bytes], sides: Sequence[int]) -> dict[str, tuple[Any, ...]]:
    """Decode crops with each decoder, side and interpolation; return these with the files' names, boxes and pixels."""
    path = folder / "agreement.beton"
    fields = {"image": RGBImageField("jpg")}
    DatasetWriter(path, fields, num_workers=1, progress=False).from_indexed_dataset(
        [(file,) for file in files.values()]
    )
    crops: dict[str, tuple[Any, ...]] = {}
    for kind, interpolation, side in product(("center crop", "random crop"), INTERPOLATIONS, sides):
        if kind == "center crop":
            decoder: Any = CenterCropRGBImageDecoder((side, side), 224 / 256, interpolation=interpolation)
        else:
            decoder = RandomResizedCropRGBImageDecoder((side, side), interpolation=interpolation)
        pipelines: dict[str, Any] = {"image": [decoder, ToTensor()], "drawn": DrawnParameters("image")}
        with Loader(path, len(files), seed=0, num_workers=1, pipelines=pipelines, device="cpu") as loader:
            ((images, drawn),) = loader
        name = f"{kind}/{interpolation}/{side}"
        crops[name] = kind, side, interpolation, list(files), drawn["crop"].tolist(), images.numpy()
    return crops


def _torchvision(
    files: dict[str, bytes], wholes: list[str], crops: dict[str, tuple[Any, ...]]
) -> tuple[dict[str, Pixels], dict[str, str]]:
    """Return torchvision's pixels by names, and versions; nothing where it is not installed."""
    try:
        _TORCHVISION.check_installed()
    except ContenderError:
        return {}, {}
    cases = [(name, names, boxes, side, how) for name, (_, side, how, names, boxes, _) in crops.items()]
    with TemporaryDirectory() as name:
        folder = Path(name)
        arrays: dict[str, Any] = {of: np.frombuffer(file, np.uint8) for of, file in files.items()}
        np.savez(folder / "files.npz", **arrays)
        (folder / "wholes.json").write_text(json.dumps(wholes))
        (folder / "crops.json").write_text(json.dumps(cases))
        module = f"benchmarks.contenders.{_TORCHVISION.module}"
        subprocess.run([_TORCHVISION.python, "-m", module, folder], check=True, cwd=Path(__file__).parents[2])
        with np.load(folder / "results.npz") as results:
            return dict(results), json.loads((folder / "versions.json").read_text())


def _saved(file: bytes, form: str) -> bytes:
    """Save a photo as another kind of file."""
    mode, kind, options = _FORMS[form]
    saved = io.BytesIO()
    Image.open(io.BytesIO(file)).convert(mode).save(saved, kind, **options)
    return saved.getvalue()


def _pillow(file: bytes) -> Pixels:
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


def _joined(images: Sequence[Any]) -> Pixels:  # (P, 3)
    return np.concatenate([np.asarray(image).reshape(-1, 3) for image in images])
