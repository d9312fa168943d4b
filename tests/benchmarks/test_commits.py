from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import commits
from benchmarks.corpus import make_corpus
from benchmarks.results import latest

ROOT = Path(__file__).resolve().parents[2]


def is_checkout():
    try:
        return subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not is_checkout(), reason="needs a git checkout")
def test_two_commits_run_by_turns_and_the_result_is_kept(tmp_path):
    """With a child that needs nothing compiled: it answers with the length of its arguments."""
    child = "import sys\nfor line in sys.stdin: print(len(line), flush=True)"
    commits.main("HEAD", "HEAD", rounds=2, images=3, data=tmp_path / "data", results=tmp_path / "results", child=child)
    result = latest("commits", tmp_path / "results") or {}
    assert result["commits"][0] == result["commits"][1]
    assert list(result["runs"]) == list(commits.WORKLOADS)
    for workload, run in result["runs"].items():
        assert run["cpu_ms_an_image"] == {which: [len(workload) + 3.0] * 2 for which in ("before", "after")}
        assert run["ratio"] == {"median": 1, "least": 1}


def test_the_process_of_a_commit_answers_each_workload_with_its_milliseconds(tmp_path):
    corpus = make_corpus(tmp_path, 3, Console())
    requests = "".join(f"{workload} {epoch}\n" for epoch in (1, 2) for workload in commits.WORKLOADS)
    command = [sys.executable, "-c", commits.CHILD, corpus.jpg, corpus.raw]
    answers = subprocess.run(command, cwd=ROOT, input=requests, check=True, capture_output=True, text=True)
    assert len([float(line) for line in answers.stdout.splitlines()]) == 2 * len(commits.WORKLOADS)
