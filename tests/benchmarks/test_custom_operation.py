from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console

from benchmarks import custom_operation
from benchmarks.contenders import gpubeton_loader
from benchmarks.contenders.own_operation import make_operation
from benchmarks.contenders.work import Work
from benchmarks.corpus import make_corpus
from benchmarks.harness.timing import Lap
from benchmarks.results import latest
from benchmarks.table import fill
from gpubeton.pipeline import Compiler, State
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.operation import Operation


class Timed:
    """Replaces a contender's process: a lap takes the given time."""

    versions = {"numba": "1.2"}  # noqa: RUF012 (never changed)

    def __init__(self, name, python, module, work):
        self.work = work
        self.seconds = {"": 1.0, "with": 1.5, "bare": 0.5, "instead": 0.75}[work.own_operation]
        self.seconds *= 2 if module == "ffcv_loader" else 1

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def lap(self):
        return Lap(self.work.images * self.work.passes, 1.0, self.seconds)


def test_the_comparison_is_of_the_time_that_the_operation_adds(tmp_path, monkeypatch):
    monkeypatch.setattr(custom_operation, "ContenderProcess", Timed)
    custom_operation.main(images=128, passes=2, rounds=3, data=tmp_path / "data", results=tmp_path / "results")
    result = latest("custom_operation", tmp_path / "results") or {}
    ms = 1000 / 256
    assert result["added_cpu_ms"] == {
        "in front of NormalizeImage": {"FFCV": [ms] * 3, "gpubeton": [ms / 2] * 3},
        "and nothing else does": {"FFCV": [ms / 2] * 3, "gpubeton": [ms / 4] * 3},
    }
    assert [len(lap) for lap in result["laps"].values()] == [3] * 8
    table = fill("<!-- table: custom_operation -->\n<!-- end of table -->", tmp_path / "results")
    assert "| in front of NormalizeImage | 3.906 <sub>3.906–3.906</sub> | 1.953" in table
    assert "FFCV: numba 1.2; gpubeton: numba 1.2." in table


@pytest.mark.parametrize("own", ["", "with", "bare", "instead"])
def test_gpubetons_contender_runs_each_pipeline(own, tmp_path):
    corpus = make_corpus(tmp_path, 4, Console(quiet=True))
    assert sum(gpubeton_loader.prepare(Work(corpus.raw, "", 4, 1, 1, 2, 24, own_operation=own)).lap()) == 4


def test_the_operation_writes_negatives_of_samples_with_odd_indices():
    operation = make_operation(Operation, Compiler, AllocationQuery)()
    state, query = operation.declare_state_and_memory(State(False, "cpu", (2, 2, 3), np.dtype("uint8")))
    assert (state.jit_mode, query.shape) == (True, (2, 2, 3))
    images = np.full((2, 2, 2, 3), 7, np.uint8)
    result = operation.generate_code()(images, np.empty_like(images), np.array([4, 9]))
    assert [image.max() for image in result] == [7, 248]
