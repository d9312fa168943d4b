from __future__ import annotations

import subprocess
import sys
import time

from gpubeton.cli.cpu_time import cpu_seconds

SPIN = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def test_time_of_a_child_counts_while_it_lives_and_once_when_it_is_dead():
    before, own = cpu_seconds(), time.process_time()
    with subprocess.Popen(
        [sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alive = cpu_seconds()
        child.communicate("\n")
    dead = cpu_seconds()
    assert alive - before >= 0.25
    assert alive <= dead + 0.05
    # Whatever the child used after it spoke, it was not the same 0.3 seconds again; this process has its own share.
    assert dead - alive < 0.25 + (time.process_time() - own)


def test_time_of_a_grandchild_counts():
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SPIN!r}])"
    before = cpu_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alive = cpu_seconds()
        child.communicate("\n")
    assert alive - before >= 0.25
