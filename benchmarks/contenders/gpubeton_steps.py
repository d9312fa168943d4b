"""The steps as gpubeton has them, with the parameters of `tests.reference.definitions`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gpubeton._batch import step_rows as kinds
from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.run_steps import run_steps
from gpubeton._batch.step_rows import fill_columns, step_rows, words
from gpubeton._batch.warp_steps import perspective_rows
from gpubeton.transforms.blur import blur_steps
from gpubeton.transforms.warps import affine_rows, warp_steps
from tests.reference import warp
from tests.reference.definitions import Fill

__all__ = ["CHANGES"]

Images = NDArray[np.uint8]  # (N, H, W, 3)
Rows = NDArray[np.int32]  # (1, S, STEP_COLUMNS)


def _changed(images: Images, *steps: Rows) -> Images:
    images, rows = images.copy(), np.concatenate(steps, axis=1)
    run_steps(images, np.repeat(rows, len(images), axis=0))
    return images


def _row(kind: int, *columns: int) -> Rows:
    return step_rows(kind, np.array([columns], np.int32).reshape(1, -1))


def _plain(kind: int, images: Images, *columns: int) -> Images:
    return _changed(images, _row(kind, *columns))


def _scaled(kind: int, images: Images, *shares: float) -> Images:
    return _changed(images, _row(kind, *(round(share * ONE) for share in shares)))


def _affine(
    images: Images, interpolation: str, angle: float, shift: warp.Point, scale: float, shear: warp.Point, fill: Fill
) -> Images:
    return _changed(images, warp_steps(interpolation, fill, affine_rows(images.shape[1:3], angle, shift, scale, shear)))


def _perspective(images: Images, interpolation: str, start: warp.Corners, end: warp.Corners, fill: Fill) -> Images:
    numbers = words(perspective_rows(np.array([start]), np.array([end])))[0].tolist()
    return _plain(kinds.PERSPECTIVE, images, *fill_columns(fill), *numbers, interpolation == "bilinear")


def _mixture(images: Images, weight: float) -> Images:
    shares = (_row(kinds.ADD, round(share * ONE)) for share in (1 - weight, weight))
    return _changed(images, _row(kinds.SAVE), next(shares), _row(kinds.TURN, 1), next(shares), _row(kinds.FINISH))


#: Each takes images and parameters.
CHANGES: dict[str, Callable[..., Images]] = {
    "brightness": partial(_scaled, kinds.BRIGHTNESS),
    "contrast": partial(_scaled, kinds.CONTRAST),
    "saturation": partial(_scaled, kinds.SATURATION),
    "hue": partial(_scaled, kinds.HUE),
    "solarize": partial(_plain, kinds.SOLARIZE),
    "solarize_add": partial(_plain, kinds.SOLARIZE_ADD),
    "posterize": partial(_plain, kinds.POSTERIZE),
    "invert": partial(_plain, kinds.INVERT),
    "autocontrast": partial(_plain, kinds.AUTOCONTRAST),
    "equalize": partial(_plain, kinds.EQUALIZE),
    "sharpness": partial(_scaled, kinds.SHARPNESS),
    "blur": lambda images, size, sigma: _changed(images, blur_steps(np.array([sigma]), size)),
    "affine": _affine,
    "perspective": _perspective,
    "paint": lambda images, *box: _plain(kinds.PAINT, images, *box[:4], *fill_columns(box[4])),
    "turn": lambda images, *bits: _plain(kinds.TURN, images, sum(bit << place for place, bit in enumerate(bits))),
    "shift": lambda images, down, right, fill: _plain(kinds.SHIFT, images, down, right, *fill_columns(fill)),
    "hsv": partial(_scaled, kinds.HSV),
    "mixture": _mixture,
}
