"""Compare nvJPEG's pixels with those of libjpeg-turbo, and how both interpolate chroma."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from benchmarks.gpu.encoded import Encoded
from benchmarks.gpu.hazards.finding import Finding
from benchmarks.gpu.hazards.ways import Batched, Single, Way
from benchmarks.gpu.nvjpeg_steps import Backend, Flags
from benchmarks.gpu.target import Target
from gpubeton.errors import DeviceError

__all__ = ["decode_all", "difference", "do_pixels_agree"]

Pixels = NDArray[np.uint8]

_BACKENDS = {
    "engines": Backend.HARDWARE,
    "processors": Backend.GPU_HYBRID,
    "one by one": Backend.DEFAULT,
}


def decode_all(target: Target, way: Way, contents: list[bytes]) -> list[Pixels]:
    """Decode JPEGs in one way, and copy the pixels to the host."""
    encoded = encode_into_memory(target, contents)
    piece = encoded.piece(np.arange(len(encoded)))
    arena = target.device.allocate(piece.nbytes)
    seen = target.device.allocate_pinned(piece.nbytes)
    stream = target.device.make_stream()
    way.decode(piece, piece.targets(arena.address), stream)
    stream.synchronize()
    target.device.copy(seen.address, arena.address, piece.nbytes, stream)
    stream.synchronize()
    images = []
    for offset, pitch, height, width in zip(piece.offset, piece.pitch, piece.height, piece.width, strict=True):
        rows = seen.array[int(offset) : int(offset) + int(pitch) * int(height)].reshape(int(height), int(pitch))
        images.append(rows[:, : 3 * int(width)].reshape(int(height), int(width), 3).copy())
    arena.free()
    return images


def encode_into_memory(target: Target, contents: list[bytes]) -> Encoded:
    """Copy JPEGs into page-locked memory."""
    headers = [simplejpeg.decode_jpeg_header(content) for content in contents]
    size = np.array([len(content) for content in contents], np.uint64)
    room = -(-size.astype(np.int64) // 16) * 16
    place = np.cumsum(room) - room
    memory = target.device.allocate_pinned(int(room.sum())).array
    for start, content in zip(place.tolist(), contents, strict=True):
        memory[start : start + len(content)] = np.frombuffer(content, np.uint8)
    address = (place + memory.ctypes.data).astype(np.uint64)
    height, width = (np.array([header[which] for header in headers], np.int32) for which in range(2))
    return Encoded(memory, address, size, height, width)


def difference(found: list[Pixels], wanted: list[Pixels]) -> dict[str, float]:
    """Compare two sets of images."""
    apart = [np.abs(a.astype(np.int16) - b) for a, b in zip(found, wanted, strict=True)]
    together = np.concatenate([own.reshape(-1) for own in apart])
    mean_square = float(np.square(together.astype(np.float64)).mean())
    return {
        "images": len(apart),
        "most": int(together.max()),
        "mean": float(together.mean()),
        "worst_mean_of_an_image": max(float(own.mean()) for own in apart),
        **{f"share_above_{level}": float((together > level).mean()) for level in (1, 2, 4, 16)},
        "decibels": 99.0 if mean_square == 0 else float(10 * np.log10(255**2 / mean_square)),
    }


def do_pixels_agree(target: Target, contents: list[bytes], *, images: int = 64) -> Finding:
    """Compare all backends, with and without interpolated chroma, with libjpeg-turbo."""
    photos = [_part(simplejpeg.decode_jpeg(contents[number % len(contents)]), number) for number in range(images)]
    figures: dict[str, Any] = {}
    wrong, smooth = [], []
    for sampling in ("444", "422", "420", "440", "Gray"):
        files = [_encode(photo, sampling) for photo in photos]
        wanted = {
            "interpolated": [simplejpeg.decode_jpeg(file) for file in files],
            "repeated": [simplejpeg.decode_jpeg(file, fastupsample=True) for file in files],
        }
        figures[f"{sampling}, libjpeg-turbo itself"] = difference(wanted["repeated"], wanted["interpolated"])
        bound = figures[f"{sampling}, libjpeg-turbo itself"]["worst_mean_of_an_image"] + 1
        for who, backend in _BACKENDS.items():
            for flags in (Flags.NONE, Flags.UPSAMPLING_WITH_INTERPOLATION):
                name = f"{sampling}, {who}, {'interpolated' if flags else 'repeated'}"
                try:
                    found = _decode(target, backend, flags, files)
                except DeviceError as error:
                    figures[name] = {"error": str(error)}
                    continue
                apart = {kind: difference(found, pixels) for kind, pixels in wanted.items()}
                figures[name] = apart
                if apart["interpolated"]["worst_mean_of_an_image"] > bound:
                    wrong.append(name)
                if sampling == "420" and flags and apart["interpolated"]["mean"] < apart["repeated"]["mean"]:
                    smooth.append(who)
    verdict = f"Chroma is interpolated by: {', '.join(smooth) or 'none'}. " + (
        f"FAR FROM LIBJPEG-TURBO: {', '.join(wrong)}" if wrong else "All are near libjpeg-turbo."
    )
    measured = any("error" not in found for name, found in figures.items() if "turbo" not in name)
    return Finding("pixels", "How far is nvJPEG from libjpeg-turbo?", verdict, figures, measured and not wrong)


def _part(photo: Pixels, number: int) -> Pixels:
    """Cut out about 160 pixels a side, enough to compare, with partial blocks."""
    return np.ascontiguousarray(photo[: 150 + number % 17, : 150 + number % 19])


def _encode(photo: Pixels, sampling: str) -> bytes:
    if sampling == "Gray":
        gray = np.ascontiguousarray(photo.mean(axis=2, keepdims=True).astype(np.uint8))
        return bytes(simplejpeg.encode_jpeg(gray, 92, colorspace="GRAY", colorsubsampling="Gray"))
    return bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(photo), 92, colorsubsampling=sampling))


def _decode(target: Target, backend: Backend, flags: Flags, files: list[bytes]) -> list[Pixels]:
    with ExitStack() as stack:
        way: Way = (
            Single(target, backend, flags, states=len(files))
            if backend is Backend.DEFAULT
            else Batched(target, backend, flags)
        )
        return decode_all(target, stack.enter_context(way), files)
