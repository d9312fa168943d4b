"""How fast nvJPEG decodes, by way of calling it: the reasons for the executor's defaults."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.gpu.ceiling import BareLoop, Rate, Setting, keep_decoding
from benchmarks.gpu.encoded import Encoded, Piece, load_encoded
from benchmarks.gpu.hazards.finding import Finding
from benchmarks.gpu.hazards.ways import StepByStep
from benchmarks.gpu.nvjpeg_steps import Backend, DecodeParams, ScaleFactor
from benchmarks.gpu.target import Target
from gpubeton.errors import DeviceError
from gpubeton.gpu.nvjpeg import Handle
from gpubeton.gpu.nvjpeg_backends import IMAGES_PER_ENGINE, STATES

__all__ = [
    "do_processors_help",
    "do_scale_and_region_help",
    "does_pinned_memory_help",
    "how_many_at_once",
    "is_step_by_step_faster",
]


def how_many_at_once(
    target: Target, encoded: Encoded, *, seconds: float = 0.7, images: tuple[int, ...] = (1, 2, 4, 8, 16)
) -> Finding:
    """Measure how many images a call of the engines should have, and how many calls should run at once."""
    figures: dict[str, Any] = {}
    cores = _cores(target)
    for per_core in images:
        for states in (1, 2, 3, 4):
            name = f"{per_core * cores} images, {states} calls"
            setting = Setting(Backend.HARDWARE, per_core * cores, states)
            figures[name] = _measured(partial(_rate, target, encoded, setting, seconds))
    best, rate = _best(figures)
    usual = f"{IMAGES_PER_ENGINE * cores} images, {STATES} calls"
    chosen = figures.get(usual, {})
    verdict = (
        f"fastest: {best}, {rate:,.0f} images/s; the default ({usual}) reaches "
        f"{chosen.get('images_per_second', 0):,.0f}, and the host spends "
        f"{chosen.get('call_microseconds_per_image', 0):.1f} µs an image inside the call"
    )
    return Finding("images of a call", "How many images should a call have?", verdict, figures)


def is_step_by_step_faster(target: Target, encoded: Encoded, *, seconds: float = 2) -> Finding:
    """Measure whether the engines are faster image by image, with two states for each, than in batches."""
    figures = {
        "batches": _measured(partial(_rate, target, encoded, _usual(target), seconds)),
        "step by step": _measured(partial(_step_by_step, target, encoded, seconds)),
    }
    best, rate = _best(figures)
    verdict = f"faster: {best}, {rate:,.0f} images/s"
    return Finding("step by step", "Are the engines faster image by image?", verdict, figures)


def do_processors_help(
    target: Target, encoded: Encoded, *, seconds: float = 1.5, images: tuple[int, ...] = (64, 128, 256)
) -> Finding:
    """Measure how fast the GPU's processors decode, and how much that slows down training."""
    figures: dict[str, Any] = {}
    for number in images:
        setting = Setting(Backend.GPU_HYBRID, number, 2)
        figures[f"{number} images, 2 calls"] = _measured(partial(_rate, target, encoded, setting, seconds))
    best, rate = _best(figures)
    products: dict[str, Any] = {"alone": _measured(lambda: {"products_per_second": _products(target, seconds)})}
    for name, own in (
        ("beside the processors", Setting(Backend.GPU_HYBRID, images[0], 2)),
        ("beside the engines", _usual(target)),
    ):
        products[name] = _measured(partial(_beside, target, encoded, own, seconds))
    figures["matrix products"] = products
    kept = {
        name: found["products_per_second"] / products["alone"]["products_per_second"]
        for name, found in products.items()
        if name != "alone" and "error" not in found
    }
    left = ", ".join(f"{name} {100 * share:.0f} % of the matrix products remain" for name, share in kept.items())
    verdict = f"processors: {best}, {rate:,.0f} images/s; {left}"
    return Finding("processors", "What do the GPU's processors add, and cost?", verdict, figures)


def does_pinned_memory_help(target: Target, encoded: Encoded, beton: str, *, seconds: float = 1.5) -> Finding:
    """Measure the cost of compressed bytes in ordinary memory."""
    figures: dict[str, Any] = {}
    ordinary = load_encoded(target.device, beton, is_pinned=False, limit=len(encoded))
    for setting in (_usual(target), Setting(Backend.GPU_HYBRID, 64)):
        for name, images in (("page-locked", encoded), ("ordinary", ordinary)):
            figures[f"{setting.backend.name}, {name}"] = _measured(partial(_rate, target, images, setting, seconds))
    rates = {name: found.get("images_per_second", 0) for name, found in figures.items()}
    verdict = "; ".join(f"{name}: {rate:,.0f} images/s" for name, rate in rates.items())
    return Finding("page-locked memory", "Does page-locked memory help?", verdict, figures)


def do_scale_and_region_help(target: Target, encoded: Encoded, *, seconds: float = 1.5) -> Finding:
    """Measure what the engines save by decoding at a smaller scale, or only a part of each image."""
    least = int(encoded.width.min()), int(encoded.height.min())

    def region(params: DecodeParams, _: Piece) -> None:
        params.set_region(least[0] // 4, least[1] // 4, least[0] // 2, least[1] // 2)

    wishes: dict[str, Callable[[DecodeParams, Piece], object] | None] = {
        "whole": None,
        "half the size": lambda params, _: params.set_scale(ScaleFactor.HALF),
        "a quarter of the size": lambda params, _: params.set_scale(ScaleFactor.QUARTER),
        "a region of a quarter of the smallest image": region,
    }
    setting = _usual(target)
    figures: dict[str, Any] = {}
    for name, wish in wishes.items():
        figures[name] = _measured(partial(_rate, target, encoded, setting, seconds, wish))
    whole = figures["whole"].get("images_per_second", 0)
    gains = [
        f"{name}: {found['images_per_second'] / whole:.2f} times as fast"
        if "error" not in found
        else f"{name}: refused"
        for name, found in figures.items()
        if name != "whole" and whole
    ]
    pixels = float((encoded.width.astype(float) * encoded.height).mean()) / 1e6
    verdict = f"images of {pixels:.1f} megapixels, {whole:,.0f} images/s; " + "; ".join(gains)
    return Finding("scale and region", "Do smaller scales and regions help?", verdict, figures)


def _usual(target: Target) -> Setting:
    """Return how the loader uses the engines by default."""
    return Setting(Backend.HARDWARE, IMAGES_PER_ENGINE * _cores(target))


def _cores(target: Target) -> int:
    """Return the cores of all engines; 1 without engines."""
    try:
        handle = Handle(target.library, Backend.HARDWARE)
    except DeviceError:
        return 1
    engines, cores = handle.hardware_engines()
    handle.close()
    return max(engines * cores, 1)


def _measured(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return measure()
    except DeviceError as error:
        return {"error": str(error)}


def _best(figures: dict[str, Any]) -> tuple[str, float]:
    rates = {name: found.get("images_per_second", 0.0) for name, found in figures.items()}
    best = max(rates, key=lambda name: rates[name])
    return best, rates[best]


def _rate(
    target: Target,
    encoded: Encoded,
    setting: Setting,
    seconds: float,
    wish: Callable[[DecodeParams, Piece], object] | None = None,
) -> dict[str, float]:
    with BareLoop(target, encoded, setting, wish) as loop:
        return loop.run(seconds).figures()


def _step_by_step(target: Target, encoded: Encoded, seconds: float) -> dict[str, float]:
    pieces = encoded.pieces(1)[:512]
    with ExitStack() as stack:
        way = StepByStep(target, Backend.HARDWARE)
        stack.callback(way.close)
        stack.callback(way.settle)
        # One target per state: one image writes it at a time.
        room = max(piece.nbytes for piece in pieces)
        memory = [target.device.allocate(room) for _ in range(way.states)]
        for own in memory:
            stack.callback(own.free)

        def begin(number: int) -> float:
            piece = pieces[number % len(pieces)]
            targets = piece.targets(memory[number % len(memory)].address)
            start = time.perf_counter()
            way.decode_one(piece, targets, 0)
            return time.perf_counter() - start

        for number in range(2 * way.states):
            begin(number)
        rate: Rate = keep_decoding(begin, pieces, seconds)
        way.settle()
        return rate.figures()


def _products(target: Target, seconds: float) -> float:
    """Multiply large matrices for some time; return how many per second."""
    import torch

    side, kind, where = (64, torch.float32, "cpu") if target.is_simulated else (8192, torch.bfloat16, "cuda:0")
    a, b = (torch.randn(side, side, dtype=kind, device=where) for _ in range(2))
    number, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds or number == 0:
        for _ in range(5):
            a @ b
        if not target.is_simulated:
            torch.cuda.current_stream().synchronize()
        number += 5
    return number / (time.perf_counter() - start)


def _beside(target: Target, encoded: Encoded, setting: Setting, seconds: float) -> dict[str, float]:
    """Decode in another thread while this one multiplies matrices."""
    rates: list[Rate] = []

    def decode(loop: BareLoop) -> None:
        with target.device.active():
            rates.append(loop.run(seconds + 0.2))

    with BareLoop(target, encoded, setting) as loop:
        thread = threading.Thread(target=decode, args=(loop,))
        thread.start()
        time.sleep(0.1)  # until it has started
        products = _products(target, seconds)
        thread.join()
    return {"products_per_second": products, "images_per_second": rates[0].figures()["images_per_second"]}
