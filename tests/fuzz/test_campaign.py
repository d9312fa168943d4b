"""The first cases of each campaign have no finding, and a planted fault is found."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.campaign import CAMPAIGNS
from tests.fuzz.children import Task, run, run_here
from tests.fuzz.report import as_json, as_text


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_first_cases_of_a_campaign_find_nothing(name, tmp_path):
    record = run_here(name, 1, range(CAMPAIGNS[name].pytest_cases), tmp_path)
    assert record.cases == CAMPAIGNS[name].pytest_cases
    assert record.faults == {}, as_text([record])


PLANTED = """
import ctypes, os, signal, time
from tests.fuzz.campaign import Outcome

class Campaign:
    def __init__(self, seed, folder):
        self.seed = seed

    def case(self, number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        if number == 4:
            time.sleep(600)
        if number == 5:
            raise KeyError("planted")
        if number == 6:
            os._exit(9)
        return [Outcome("wrong", "two levels") if number == 7 else Outcome("fine")]

    def close(self):
        return []
"""


def test_crashes_hangs_and_exceptions_are_named_and_the_rest_is_tried(tmp_path, monkeypatch):
    (tmp_path / "planted_faults").mkdir()
    (tmp_path / "planted_faults" / "campaign.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(tmp_path)
    record = run(Task("planted_faults.campaign", 5, 2, 12, 5), 300)
    assert record.cases == 12
    results = {(finding["kind"], finding["case"]) for finding in record.findings}
    assert results >= {("crash", 3), ("hang", 4), ("crash", 6), ("wrong", 7)}
    assert [finding["case"] for finding in record.findings if "planted" in finding["text"]] == [5]
    assert {finding["text"] for finding in record.findings if finding["kind"] == "crash"} == {
        "SIGSEGV",
        "exit status 9",
    }
    assert record.verdicts["fine"] > 0
    report = as_json([record])
    assert report["sound"] is False
    assert report["campaigns"]["planted_faults.campaign"]["crashes"] == 2
    assert report["campaigns"]["planted_faults.campaign"]["hangs"] == 1
    assert "--seed 5 --case 3" in as_text([record])


@pytest.mark.parametrize("at_end", [True, False])
def test_nothing_but_the_array_can_be_touched_at_the_border_of_an_arena(at_end):
    import ctypes

    from tests.cpu.guarded import PAGE
    from tests.fuzz.arena import Arena

    arena = Arena(2, 100)
    arena.begin(at_end=at_end)
    array = arena.array(np.arange(7, dtype=np.uint8))
    start = array.ctypes.data
    assert (start + array.nbytes if at_end else start) % PAGE == 0
    assert ctypes.string_at(start, 7) == bytes(range(7))
