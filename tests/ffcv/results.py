"""What FFCV and gpubeton gave for the cases, case by case."""

from __future__ import annotations

import functools
import lzma
from pathlib import Path

import numpy as np

from tests.ffcv.cases import CASES
from tests.ffcv.package import Package
from tests.ffcv.produce import results_of

GOLDEN = Path(__file__).resolve().parent / "golden"


@functools.cache
def golden():
    """What FFCV 1.0.2 gave."""
    with np.load(GOLDEN / "surface.npz") as stored:
        return dict(stored)


def golden_file(folder):
    """The file that FFCV wrote for the cases."""
    path = folder / "surface.beton"
    path.write_bytes(lzma.decompress((GOLDEN / "surface.beton.xz").read_bytes()))
    return path


def of_case(results, name):
    """The arrays of one case, in order."""
    return [array for key, array in results.items() if key.partition("/")[0] == name and key.count("/") == 1]


def ours(path, name):
    """What gpubeton gives for a case."""
    return results_of(Package.named("gpubeton"), str(path), {name: CASES[name]})
