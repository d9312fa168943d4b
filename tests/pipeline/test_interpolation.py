from __future__ import annotations

import re
from pathlib import Path

from gpubeton.pipeline.interpolation import AREA_ENLARGING, INTERPOLATIONS

TAPS = Path(__file__).resolve().parents[2] / "kernels" / "taps.cuh"


def test_the_kernels_number_the_interpolations_as_the_table_does():
    (names,) = re.findall(r"enum Rule \{(.*?)\};", TAPS.read_text(), re.DOTALL)
    numbers = {name.strip().lower(): number for number, name in enumerate(names.split(","))}
    assert numbers == {**INTERPOLATIONS, "area_enlarging": AREA_ENLARGING}
