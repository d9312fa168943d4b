"""Crops of JPEGs of all samplings; ``python -m tests.cpu.made_pictures FOLDER`` makes them, or compares with them.

The first run makes the files and the crops, a later one, on another type of CPU, decodes the same files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from gpubeton.cpu.simd import HAS_AVX2
from tests.cpu.making import draw_of, make_one, program_of, stored_jpeg
from tests.cpu.pictures import SAMPLINGS, jpeg, photo

if __name__ == "__main__":
    for sampling in SAMPLINGS:
        file = Path(sys.argv[1]) / sampling.replace(":", "")
        if not file.exists():
            file.write_bytes(jpeg(photo(123, 161), sampling=sampling))
        for interpolation in ("area", "bilinear"):
            stored = stored_jpeg(file.read_bytes())
            program = program_of(48, 64, interpolation)
            crop = make_one(program, stored, draw_of(program, (11, 9, 101, 140), flip=1))
            name = file.with_name(f"{file.name}-{interpolation}.npy")
            if name.exists():
                assert np.array_equal(np.load(name), crop), name
            else:
                np.save(name, crop)
    print("with AVX2" if HAS_AVX2 else "without AVX2")
