"""nvJPEG alone at full speed: the ceiling of every loader that decodes with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue

from benchmarks.gpu.ceiling import BareLoop, Setting
from benchmarks.gpu.contenders.service import Ready, serve
from benchmarks.gpu.contenders.work import GpuWork
from benchmarks.gpu.encoded import load_encoded
from benchmarks.gpu.nvjpeg_parts import Backend
from benchmarks.gpu.target import Target, open_target
from gpubeton._gpu.nvjpeg import Handle

_SM_PER_CALL = 128


def prepare(work: GpuWork, stack: ExitStack) -> Ready:
    """Load the images into memory. Variants: "engines", "processors", "both"."""
    target = stack.enter_context(open_target())
    encoded = load_encoded(target.device, work.beton)
    settings = {"engines": [_engines(target)], "processors": [_processors(target)]}
    settings["both"] = settings["engines"] + settings["processors"]
    loops = [stack.enter_context(BareLoop(target, encoded, setting)) for setting in settings[work.variant]]
    return Ready(
        partial(_together, target, loops, [setting.per_call for setting in settings[work.variant]]),
        lambda: None,
        warm_up=6 * len(loops),
        versions={"nvjpeg": ".".join(map(str, target.library.version))},
    )


def _engines(target: Target) -> Setting:
    handle = Handle(target.library, Backend.HARDWARE)
    engines, cores = handle.hardware_engines()
    handle.close()
    return Setting(Backend.HARDWARE, max(engines * cores, 1) * 8)


def _processors(target: Target) -> Setting:
    return Setting(Backend.GPU_HYBRID, 64 if target.is_simulated else _SM_PER_CALL)


def _together(target: Target, loops: list[BareLoop], images: list[int]) -> Generator[int, None, None]:
    """Yield the number of images of each call; each loop waits for its oldest call."""
    if len(loops) == 1:
        number = 0
        try:
            while True:
                loops[0].begin(number)
                number += 1
                yield images[0]
        finally:
            loops[0].settle()
    done: SimpleQueue[int | BaseException] = SimpleQueue()
    is_over = threading.Event()

    def decode(begin: Callable[[int], None], per_call: int) -> None:
        number = 0
        try:
            with target.device.active():
                while not is_over.is_set():
                    begin(number)
                    number += 1
                    done.put(per_call)
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer
            done.put(error)

    threads = [
        threading.Thread(target=decode, args=(loop.begin, image)) for loop, image in zip(loops, images, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        while True:
            count = done.get()
            if isinstance(count, BaseException):
                raise count
            yield count
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        for loop in loops:
            loop.settle()


if __name__ == "__main__":
    serve(prepare)
