from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest
import typer

from benchmarks.gpu import session
from benchmarks.gpu.environment import COMMIT_VARIABLE
from benchmarks.gpu.sanitizer import TOOLS
from benchmarks.gpu.simulation import VARIABLE
from benchmarks.gpu.steps import STEPS, Scale, Step, read_json, read_tests, run_step
from benchmarks.gpu.tables import draw_gpu, summary
from benchmarks.results import RESULTS, latest

ROOT = Path(__file__).resolve().parents[2]


def step(code, read=read_json, name="step"):
    return Step(name, 1, lambda _, result: ["-c", code, str(result)], read)


WRITE = "import json, sys; json.dump({'found': 7}, open(sys.argv[1], 'w'));"


def run(code, tmp_path, seconds=60.0, read=read_json, **options):
    return run_step(step(code, read), Scale(tmp_path, True, seconds), tmp_path, tmp_path / "log", **options)


# --- one step


def test_a_step_returns_its_result_and_its_status_also_after_a_failure(tmp_path):
    result = run(WRITE + "print('in the log')", tmp_path)
    assert (result["ended"], result["found"]) == ("done", {"found": 7})
    assert "in the log" in (tmp_path / "log").read_text()
    result = run(WRITE + "raise SystemExit(3)", tmp_path)
    assert (result["ended"], result["found"]) == ("ended with status 3", {"found": 7})


def test_a_step_without_a_result_is_an_error(tmp_path):
    assert "no result" in run("pass", tmp_path)["found"]["error"]


def test_a_step_whose_time_is_up_is_interrupted_and_its_result_is_kept(tmp_path):
    found = run(WRITE + "import time; time.sleep(600)", tmp_path, seconds=5)
    assert found["ended"] == "stopped: its time was up"
    assert found["found"] == {"found": 7}
    assert "KeyboardInterrupt" in (tmp_path / "log").read_text()


def test_a_step_that_cannot_be_interrupted_is_killed(tmp_path):
    code = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN);" + WRITE + "time.sleep(600)"
    assert run(code, tmp_path, seconds=5, grace=1)["found"] == {"found": 7}


def test_tests_are_counted_and_those_that_did_not_pass_are_named(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert 1 == 2, 'one is not two'\n"
        "@pytest.mark.skip(reason='no reason')\n"
        "def test_skipped(): pass\n"
    )
    code = (
        "import pytest, sys; pytest.main(['-p', 'no:cacheprovider', '-c', '/dev/null', '--rootdir', '.', "
        f"{str(tmp_path / 'test_some.py')!r}, '--junitxml=' + sys.argv[1].replace('.json', '.xml')])"
    )
    found = run(code, tmp_path, read=read_tests)["found"]
    assert (found["tests"], found["passed"]) == (3, 1)
    texts = {name.rpartition("::")[2]: text for name, text in found["not_passed"].items()}
    assert "one is not two" in texts["test_bad"]
    assert texts["test_skipped"].startswith("skipped")
    assert "1 of 3 passed" in summary("tests", found)


@cache
def help_of(module):
    command = [sys.executable, "-m", module, "--help"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("own", STEPS, ids=lambda own: own.name)
def test_the_options_of_every_step_are_those_of_its_module(own, tmp_path):
    for is_small in (False, True):
        arguments = own.arguments(Scale(tmp_path, is_small, 100), tmp_path / "result.json")
        assert arguments[0] == "-m"
        if own.name == "tests":
            continue
        for argument in arguments[2:]:
            assert f"{argument.partition('=')[0]} " in help_of(arguments[1]), (own.name, argument)


# --- compute-sanitizer


@pytest.fixture
def run_sanitizer(tmp_path):
    """Run the step with a program in the place of compute-sanitizer; return its output, status and result."""

    def run(program=None, *, simulated="0", seconds=60):
        for tool in ("sh", "timeout", "sleep"):
            (tmp_path / tool).symlink_to(shutil.which(tool))
        if program is not None:
            (tmp_path / "compute-sanitizer").write_text(f"#!/bin/sh\n{program}\n")
            (tmp_path / "compute-sanitizer").chmod(0o755)
        out = tmp_path / "out.json"
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu.sanitizer", f"--seconds={seconds}", f"--out={out}"],
            cwd=ROOT,
            env={**os.environ, "PATH": str(tmp_path), "CUDA_HOME": str(tmp_path / "none"), VARIABLE: simulated},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout, done.returncode, json.loads(out.read_text())

    return run


def test_each_tool_of_the_sanitizer_gets_the_tests_of_our_decoder(run_sanitizer):
    output, status, found = run_sanitizer('echo "$@"; echo "========= ERROR SUMMARY: 0 errors"')
    assert status == 0
    for tool in TOOLS:
        assert found[tool]["passed"]
        assert f"--tool {tool} " in found[tool]["output"]
        assert "tests/gpu/test_entry_decoder.py" in found[tool]["output"]
        assert f"{tool}: passed; 0 errors" in output
        assert f"{tool}: passed; 0 errors" in summary("sanitizer", found)


def test_faults_that_a_tool_finds_are_kept_and_the_other_tools_run(run_sanitizer):
    program = 'echo "========= RACECHECK SUMMARY: 3 hazards displayed"; [ $2 != racecheck ] || exit 99'
    _, status, found = run_sanitizer(program)
    assert status == 1
    assert [found[tool]["passed"] for tool in TOOLS] == [True, False, True]
    assert found["racecheck"]["verdict"] == "faults were found; 3 hazards displayed"


def test_a_tool_whose_time_is_up_is_stopped(run_sanitizer):
    _, status, found = run_sanitizer("sleep 600", seconds=3)
    assert (status, found["synccheck"]["verdict"]) == (1, "its time was up")


@pytest.mark.parametrize("simulated", ["0", "1"])
def test_without_the_sanitizer_the_step_is_done_and_reports_that(run_sanitizer, simulated):
    output, status, found = run_sanitizer(simulated=simulated)
    assert status == 0
    assert f"skipped: {found['skipped']}" in output
    assert ("compute-sanitizer is missing" in output) == (simulated == "0")
    assert f"skipped: {found['skipped']}" in summary("sanitizer", found)


# --- the session


@pytest.fixture
def run_step_named(tmp_path, monkeypatch):
    """Run a session of one step; return its result file."""
    for variable in (VARIABLE, COMMIT_VARIABLE, "GPUBETON_REQUIRE_GPU"):  # set by a session for its steps
        monkeypatch.setenv(variable, "")
    out = tmp_path / "gpu.json"

    def run(name, code=WRITE, commit="abc"):
        own, end = [step(code, name=name)], time.monotonic() + 600
        session.run_session(own, out, end, commit, tmp_path, simulated=True, warms_up=False)
        return json.loads(out.read_text())

    return run


def test_a_simulated_session_is_marked_and_never_taken_for_one_on_a_gpu(tmp_path, run_step_named):
    result = run_step_named("one")
    assert result["simulated"] is True
    assert result["kind"] == "gpu-simulated"
    assert result["steps"]["one"]["found"] == {"found": 7}
    assert (result["gpubeton"]["commit"], result["steps"]["one"]["commit"]) == ("abc", "abc")
    assert latest("gpu", tmp_path) is None
    assert RESULTS not in session.default_path(result["environment"]).parents


def test_steps_of_a_former_session_are_kept_if_the_commit_is_the_same(run_step_named):
    run_step_named("one")
    assert list(run_step_named("two")["steps"]) == ["one", "two"]
    assert list(run_step_named("two", commit="def")["steps"]) == ["two"]


def test_a_session_with_a_step_that_failed_ends_with_a_status(tmp_path, run_step_named):
    with pytest.raises(typer.Exit):
        run_step_named("one", "raise SystemExit(1)")
    assert json.loads((tmp_path / "gpu.json").read_text())["steps"]["one"]["ended"] == "ended with status 1"


def test_a_result_that_cannot_be_summarized_is_written_and_the_session_goes_on(run_step_named):
    laps = {"all cores": {"contenders": {"it": {"laps": [{"images": 0, "wall_seconds": 1, "cpu_seconds": 1}]}}}}
    code = f"import json, sys; json.dump({laps}, open(sys.argv[1], 'w'))"
    assert run_step_named("race", code)["steps"]["race"]["found"] == laps


def test_an_unknown_step_is_refused(tmp_path):
    with pytest.raises(typer.BadParameter, match="wishes"):
        session.main(out=tmp_path / "gpu.json", steps="wishes")


def test_the_whole_script_runs_on_the_simulated_gpu(tmp_path):
    """Two of its steps; `benchmarks/gpu_session.sh --simulated` runs them all."""
    out = tmp_path / "gpu.json"
    command = ["bash", "benchmarks/gpu_session.sh", "--simulated", "--steps", "kernels,training", "--seconds", "500"]
    done = subprocess.run(
        [*command, "--out", str(out), "--data", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + out.with_suffix(".log").read_text()[-3000:]
    result = json.loads(out.read_text())
    assert result["simulated"] is True
    kernels, training = (result["steps"][name]["found"] for name in ("kernels", "training"))
    assert kernels["is_complete"]
    assert training["is_complete"]
    timed = [own["kernels"] for own in kernels.values() if isinstance(own, dict) and "kernels" in own]
    launched = {kernel for own in timed for kernel in own}
    launched |= kernels["own decoder"]["decoder"].keys()
    assert launched == {path.stem for path in (ROOT / "kernels").glob("*.cu")}, "every kernel is timed"
    assert "of the bound" in done.stdout
    assert "Our own decoder, for 4 images: jpeg_taps" in done.stdout
    drawn = draw_gpu(result)
    assert "| float16 |" in drawn
    assert "| bicubic |" in drawn
    assert "jpeg_huffman" in drawn
    assert "| resnet8 | engines |" in drawn
    assert "simulated" in drawn


# --- the tests on a GPU


def run_gpu_tests(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *arguments],
        cwd=ROOT,
        env={**os.environ, "GPUBETON_REQUIRE_GPU": "0", VARIABLE: "0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_gpu_the_tests_on_a_gpu_are_skipped_and_required_ones_fail():
    one = "tests/gpu/test_device.py::test_memory_begins_where_the_kernels_want_it"
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    done = run_gpu_tests(one, **hidden)
    assert (done.returncode, "1 skipped" in done.stdout) == (0, True), done.stdout
    done = run_gpu_tests(one, **hidden, GPUBETON_REQUIRE_GPU="1")
    assert done.returncode == 1, done.stdout
    assert "GPUBETON_REQUIRE_GPU is set, and this was skipped" in done.stdout


def test_the_tests_on_a_gpu_run_on_the_simulated_one():
    """A part of each file; the others differ only in their inputs."""
    chosen = "gather or uint8 or wait or by_the_next or every_time or whole or float16-cpu-read or power_on"
    done = run_gpu_tests("tests/gpu", "-k", chosen, GPUBETON_SIMULATED="1")
    assert done.returncode == 0, done.stdout[-5000:]
    assert "skipped" not in done.stdout.splitlines()[-1]
