from __future__ import annotations

import subprocess
import sys
import time

import pytest

from benchmarks.harness.timing import Lap, cpu_seconds, median_cpu, median_rate, race, ratios

SPIN = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def test_contenders_take_turns_and_each_begins_a_round_as_often():
    ran = []

    def contender(name):
        def lap():
            ran.append(name)
            return Lap(1, 1.0, 1.0)

        return lap

    announced = []
    laps = race({name: contender(name) for name in "abc"}, 3, announced.append)
    assert "".join(ran) == "abcbcacab"
    assert announced == ran
    assert {name: len(lap) for name, lap in laps.items()} == {"a": 3, "b": 3, "c": 3}


def test_figures_are_medians_of_laps_and_ratios_are_made_round_by_round():
    fast = [Lap(100, 1.0, 2.0), Lap(100, 2.0, 2.0), Lap(100, 4.0, 6.0)]
    slow = [Lap(100, 2.0, 4.0), Lap(100, 8.0, 4.0), Lap(100, 8.0, 4.0)]
    assert median_rate(fast) == 50
    assert median_cpu(fast) == 20
    assert ratios(fast, slow) == [2, 4, 2]
    with pytest.raises(ValueError, match="argument 2"):
        ratios(fast, slow[:2])


PARENT = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SPIN!r}])"


@pytest.mark.parametrize("code", [SPIN, PARENT], ids=["child", "grandchild"])
def test_time_of_children_and_theirs_counts_while_they_live_and_once_when_they_are_dead(code):
    before, process_seconds = cpu_seconds(), time.process_time()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as child:
        child.stdout.readline()
        alive = cpu_seconds()
        child.communicate("\n")
    dead = cpu_seconds()
    assert alive - before >= 0.25
    if code == SPIN:
        assert alive <= dead + 0.05
        # The 0.3 seconds are not counted twice; this process has its own share.
        assert dead - alive < 0.25 + (time.process_time() - process_seconds)
