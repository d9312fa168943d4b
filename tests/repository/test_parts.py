"""The tests that `make test` runs, and those that it leaves to `make test-rest`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

FILES = (
    "tests/gpu_path/test_checksums.py",
    "tests/cpu/test_hostile.py",
    "tests/cpu/test_hsv_step.py",
    "tests/writing/test_webdataset.py",
)
SEEDED = "tests/cpu/test_hsv_step.py::test_colors_are_the_exact_ones_and_near_those_of_opencv"
CROSSED = "tests/gpu_path/test_checksums.py::test_each_damaged_image_is_found_in_random_crops"


def collect(*arguments: str) -> set[str]:
    """List the tests that pytest would run."""
    command = [sys.executable, "-m", "pytest", "-n0", "--collect-only", "-q", *arguments, *FILES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.fixture(scope="module")
def every() -> set[str]:
    return collect()


def values_of(tests: set[str]) -> list[set[str]]:
    """List the values of each parameter of the crossed test."""
    cases = [test.partition("[")[2][:-1].split("-") for test in tests if test.startswith(CROSSED)]
    return [set(values) for values in zip(*cases, strict=True)]


@pytest.mark.parametrize("seed", ["0", "7"])
def test_the_parts_are_all_tests_and_each_value_is_in_the_first(every: set[str], seed: str) -> None:
    quick, rest = collect("--part=quick", "--thinning", seed), collect("--part=rest", "--thinning", seed)
    assert quick | rest == every
    assert not quick & rest
    assert values_of(quick) == values_of(every)
    assert sum(test.startswith(CROSSED) for test in quick) < 0.3 * sum(test.startswith(CROSSED) for test in every)
    assert all(test in quick for test in every if "test_hostile" in test)
    assert [len([test for test in tests if test.startswith(SEEDED)]) for tests in (quick, every)] == [1, 8]
    assert all(test in rest for test in every if "test_processes_may_be_started_in_other_ways" in test)


def test_another_seed_lets_other_values_meet() -> None:
    assert collect("--part=quick", "--thinning=0") != collect("--part=quick", "--thinning=7")
