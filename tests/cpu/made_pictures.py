"""Images and draws of all kinds; ``python -m tests.cpu.made_pictures FOLDER`` makes them, or compares with them.

The first run makes the files and the results, a later one, on another type of CPU, decodes the same files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gpubeton._compile.simd import HAS_AVX2
from gpubeton._plan.draw_rows import TOP, WIDTH
from gpubeton._plan.fusion import compile_image_program
from gpubeton._plan.philox import fill_uniform
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.transforms.normalize import NormalizeImage
from tests.cpu.decoder import gray_jpeg, random_blocks
from tests.cpu.making import INTERPOLATIONS, draw_of, indexed, make_one, program_of, stored_jpeg, stored_raw
from tests.cpu.pictures import SAMPLINGS, jpeg, photo


def results(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Make everything, with names."""
    box = 11, 9, 101, 140
    stored = {"raw": stored_raw(photo(123, 161))}
    for sampling in SAMPLINGS:
        file = folder / sampling.replace(":", "")
        if not file.exists():
            file.write_bytes(jpeg(photo(123, 161), sampling=sampling))
        stored[file.name] = stored_jpeg(file.read_bytes())
        stored[f"{file.name}-indexed"] = indexed(stored[file.name])
    # Sums of 16 bits wrap around in the transform of such coefficients.
    for bits in (3, 7, 10):
        blocks = random_blocks(256, (1 << bits) - 1, 0.4, bits)
        blocks[:, 0] = blocks[:, 0].clip(-127, 127)
        file = folder / f"wild{bits}"
        if not file.exists():
            file.write_bytes(gray_jpeg(blocks, np.arange(4, 257, 4).clip(max=255)))
        yield file.name, make_one(program_of(128, 128), stored_jpeg(file.read_bytes()))
    for name, image in stored.items():
        for interpolation in INTERPOLATIONS:
            program = program_of(48, 64, interpolation)
            yield f"{name}-{interpolation}", make_one(program, image, draw_of(program, box, flip=1))
    for dtype in (np.float16, np.float32):
        program = program_of(48, 64, "area", NormalizeImage([1, 2, 3], [4, 5, 6], dtype))
        yield f"normalized-{dtype.__name__}", make_one(program, stored["420"], draw_of(program, box))
    samples = np.arange(1000, dtype=np.uint64)
    numbers = np.zeros((8, len(samples)))
    fill_uniform(1, 2, 3, samples, np.array([[4, 5], [6, 7]], np.uint32), numbers)
    yield "numbers", numbers
    height, width = np.round(numbers[:2] * 500 + 8).astype(np.int32)
    crop = compile_image_program("image", 0, [RandomResizedCropRGBImageDecoder((48, 64))], height, width)
    yield "boxes", crop.draw(1, 2, samples, height, width)[:, TOP : WIDTH + 1]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for name, result in results(target):
        path = target / f"{name}.npy"
        if path.exists():
            assert np.array_equal(np.load(path), result), name
        else:
            np.save(path, result)
    print("with AVX2" if HAS_AVX2 else "without AVX2")
