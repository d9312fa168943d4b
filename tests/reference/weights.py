"""Weights with which the pixels of a line become the pixels of a resized line, for each interpolation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np


def resize_weights(source: int, target: int, interpolation: str, *, shrinks: bool | None = None) -> np.ndarray:
    """Weights of each source pixel in each target pixel.

    Parameters
    ----------
    source, target : int
        Lengths of the line before and after, in pixels.
    interpolation : {"area", "bilinear", "antialias", "nearest", "bicubic"}
        How to resize.
    shrinks : bool, optional
        For ``area``: whether neither axis of the image grows. By default, whether this line does not.

    Returns
    -------
    ndarray of float64, shape (target, source)
        Each row sums to 1.
    """
    if source == target:
        return np.eye(target)
    scale = source / target
    if interpolation == "area":
        shrinks = scale >= 1 if shrinks is None else shrinks
        return _box(source, target, scale) if shrinks else _area_of_two(source, target)
    if interpolation == "nearest":
        return _nearest(source, target)
    if interpolation == "antialias":
        return _triangle(source, target, max(scale, 1.0))
    if interpolation == "bicubic":
        return _cubic(source, target, max(scale, 1.0))
    return _triangle(source, target, 1.0)


def resize(
    image: np.ndarray, size: tuple[int, int], interpolation: str, most: float | np.ndarray | None = None
) -> np.ndarray:
    """Resize an image.

    Parameters
    ----------
    image : ndarray, shape (h, w, 3)
        The image, of any type.
    size : tuple of int
        Height and width wanted.
    interpolation : {"area", "bilinear", "antialias", "nearest", "bicubic"}
        How to resize.
    most : float or ndarray, optional
        For ``bicubic``: the largest level, of the image's type by default.

    Returns
    -------
    ndarray of float64, shape (H, W, 3)
        Levels before rounding.
    """
    height, width = image.shape[:2]
    if interpolation == "bicubic":
        # Weights may be negative: sums are limited to the levels in both directions, as in Pillow.
        most = np.iinfo(image.dtype).max if most is None else most
        columns = np.clip(np.einsum("yh,hwc->ywc", resize_weights(height, size[0], interpolation), image), 0, most)
        return np.clip(np.einsum("xw,ywc->yxc", resize_weights(width, size[1], interpolation), columns), 0, most)
    shrinks = height >= size[0] and width >= size[1]
    rows = resize_weights(height, size[0], interpolation, shrinks=shrinks)
    columns = resize_weights(width, size[1], interpolation, shrinks=shrinks)
    return np.einsum("yh,hwc,xw->yxc", rows, image.astype(np.float64), columns, optimize=True)


def _nearest(source: int, target: int) -> np.ndarray:
    """The pixel in which each target pixel's center lies; of two that meet there, the second."""
    weights = np.zeros((target, source))
    for x in range(target):
        weights[x, math.floor(Fraction(2 * x + 1, 2) * source / target)] = 1
    return weights


def _box(source: int, target: int, scale: float) -> np.ndarray:
    """Mean over the footprint of each target pixel, as OpenCV's INTER_AREA when both axes shrink.

    OpenCV drops the pixel at either end of a footprint when less than a thousandth of it is covered.
    """
    start = np.arange(target)[:, None] * scale
    stop = np.minimum(start + scale, source)
    pixel = np.arange(source)[None, :]
    covered = np.clip(np.minimum(stop, pixel + 1) - np.maximum(start, pixel), 0, 1)
    covered[covered <= 1e-3] = 0
    return covered / covered.sum(axis=1, keepdims=True)


def _area_of_two(source: int, target: int) -> np.ndarray:
    """OpenCV's INTER_AREA when an axis of the image grows: two pixels, mixed only where a target pixel covers both."""
    weights = np.zeros((target, source))
    inverse = target / source
    scale = 1 / inverse  # not source / target: OpenCV rounds twice, which decides where footprints end at a border
    for x in range(target):
        first = int(np.floor(x * scale))
        share = np.float32((x + 1) - (first + 1) * inverse)  # in float32 a share of almost 1 is 1, and 1 is taken as 0
        share = 0.0 if share <= 0 else share - np.floor(share)
        weights[x, min(first, source - 1)] += 1 - share
        weights[x, min(first + 1, source - 1)] += share
    return weights


def _triangle(source: int, target: int, support: float) -> np.ndarray:
    """Triangle of that half-width around each target pixel's center.

    A half-width of 1 gives the two taps of bilinear interpolation, pixels beyond the border taking the border's value;
    wider, Pillow's and torch's antialiasing, which leave pixels beyond the border out and give the rest their weight.
    """
    center = (np.arange(target)[:, None] + 0.5) * (source / target)
    if support > 1:
        pixel = np.arange(source)[None, :]
        weights = np.clip(1 - np.abs((pixel + 0.5 - center) / support), 0, None)
        return weights / weights.sum(axis=1, keepdims=True)
    weights = np.zeros((target, source))
    position = np.clip(center[:, 0] - 0.5, 0, source - 1)
    first = np.minimum(position.astype(int), source - 1)
    share = position - first
    rows = np.arange(target)
    np.add.at(weights, (rows, first), 1 - share)
    np.add.at(weights, (rows, np.minimum(first + 1, source - 1)), share)
    return weights


def _cubic(source: int, target: int, stretch: float) -> np.ndarray:
    """Keys' cubic with a = -0.5 around each target pixel's center; pixels beyond the border are left out."""
    center = (np.arange(target)[:, None] + 0.5) * (source / target)
    x = np.abs((np.arange(source)[None, :] + 0.5 - center) / stretch)
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    weights = np.where(x < 1, near, np.where(x < 2, far, 0))
    return weights / weights.sum(axis=1, keepdims=True)
