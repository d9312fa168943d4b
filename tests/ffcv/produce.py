"""Run the cases with FFCV or gpubeton, and write their results.

    PYTHON tests/ffcv/produce.py PACKAGE FILE.beton RESULTS.npz [CASE ...]

The file is written first if it is not there. `golden/` was made with FFCV 1.0.2 (benchmarks/ffcv_environment.sh):

    .venv-ffcv/bin/python tests/ffcv/produce.py ffcv surface.beton tests/ffcv/golden/surface.npz
    xz -9e --stdout surface.beton > tests/ffcv/golden/surface.beton.xz
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.ffcv.cases import CASES
from tests.ffcv.package import Package, Samples, fields_of


def results_of(package, path, cases=CASES):
    """Everything that the cases give, as arrays that can be stored: elements and strides by ``case/number``."""
    arrays = {}
    for name, case in cases.items():
        for number, output in enumerate(case(package, path)):
            array = output.numpy() if isinstance(output, torch.Tensor) else output
            arrays[f"{name}/{number}"] = np.ascontiguousarray(array)
            arrays[f"{name}/{number}/strides"] = np.array(array.strides)
    return arrays


def main():
    name, path, results, *only = sys.argv[1:]
    package = Package.named(name)
    if not Path(path).exists():
        writer = package.DatasetWriter(path, fields_of(package), page_size=1 << 21, num_workers=1)
        writer.from_indexed_dataset(Samples())
    cases = {case: CASES[case] for case in only or CASES}
    np.savez_compressed(results, **results_of(package, path, cases))


if __name__ == "__main__":
    main()
