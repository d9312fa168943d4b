"""What limits the JPEG engines: threads that call, images of a call, and memory that is allocated before."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from benchmarks.gpu.ceiling import BareLoop, Rate, Setting
from benchmarks.gpu.encoded import Encoded
from benchmarks.gpu.hazards.finding import Finding
from benchmarks.gpu.nvjpeg_steps import Backend
from benchmarks.gpu.target import Target
from gpubeton.errors import DeviceError
from gpubeton.gpu.nvjpeg import Handle, State

__all__ = ["do_threads_help", "what_does_allocating_before_take"]

#: Width and height; the last is the largest image of ImageNet.
SIZES = ((1, 1), (500, 500), (9331, 6530))


def do_threads_help(
    target: Target,
    encoded: Encoded,
    *,
    seconds: float = 0.7,
    images: tuple[int, ...] = (1, 16, 56, 64, 256),
    threads: tuple[int, ...] = (1, 2, 3),
) -> Finding:
    """Measure calls of so many images from so many threads: how fast, and how long the host is inside a call."""
    figures: dict[str, Any] = {}
    for number in images:
        for count in threads:
            found: dict[str, Any]
            try:
                found = _rate(target, encoded, number, count, seconds)
            except DeviceError as error:
                found = {"error": str(error)}
            figures[f"{number} images, {count} threads"] = found
    rates = {name: found.get("images_per_second", 0.0) for name, found in figures.items()}
    best = max(rates, key=lambda name: rates[name])
    one = max((rate for name, rate in rates.items() if name.endswith(f"{threads[0]} threads")), default=0.0)
    verdict = f"fastest: {best}, {rates[best]:,.0f} images/s; {threads[0]} thread: {one:,.0f} at most"
    return Finding("threads", "How many threads should call the engines, with how many images?", verdict, figures)


def what_does_allocating_before_take(target: Target) -> Finding:
    """Measure the memory of the GPU that a state takes for 28 images of a size."""
    figures: dict[str, Any] = {}
    for width, height in SIZES:
        handle = Handle(target.library, Backend.HARDWARE)
        state = State(handle)
        before = _free(target)
        try:
            state.preallocate(28, width, height)
            figures[f"{width} x {height}"] = before - _free(target)
        except DeviceError as error:
            figures[f"{width} x {height}"] = str(error)
        state.close()
        handle.close()
    verdict = "; ".join(f"{size}: {nbytes} bytes" for size, nbytes in figures.items())
    return Finding("memory", "What does allocating before take?", verdict, figures)


def _rate(target: Target, encoded: Encoded, images: int, threads: int, seconds: float) -> dict[str, float]:
    """Decode from several threads at once; rates are of all together, times inside a call their mean."""
    rates: list[Rate] = []
    errors: list[BaseException] = []

    def decode(loop: BareLoop) -> None:
        try:
            with target.device.active():
                rates.append(loop.run(seconds))
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    with ExitStack() as stack:
        setting = Setting(Backend.HARDWARE, images)
        loops = [stack.enter_context(BareLoop(target, encoded, setting)) for _ in range(threads)]
        running = [threading.Thread(target=decode, args=(loop,)) for loop in loops]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    if errors:
        raise errors[0]
    done = sum(rate.images for rate in rates)
    return {
        "images_per_second": sum(rate.images / rate.wall_seconds for rate in rates),
        "call_microseconds_per_image": 1e6 * sum(rate.call_seconds for rate in rates) / max(done, 1),
    }


def _free(target: Target) -> int:
    """Return the free bytes of the GPU."""
    if target.is_simulated:
        return -int(target.faults.live_memory(0))
    import torch

    return int(torch.cuda.mem_get_info(0)[0])
