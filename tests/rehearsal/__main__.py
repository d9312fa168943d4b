"""Rehearse the GPU path with the real CuPy and torch, and no GPU: ``make gpu-rehearsal``.

    python -m tests.rehearsal                        # tests/gpu, then each mutation; writes a report
    python -m tests.rehearsal tests/gpu/test_device.py -k memory      # pytest's own arguments: no mutations, no report

The first run downloads and builds everything, under build/rehearsal (10 GB of disk).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from benchmarks.results import RESULTS, save
from tests.rehearsal.environment import ROOT, functions, prepare, python

_PYTEST = ["-m", "pytest", "-p", "tests.rehearsal.plugin", "-p", "no:cacheprovider", "-q", "--no-header"]
#: The tests that have to notice a mutation.
_FILES = [f"tests/gpu/test_{name}.py" for name in ("device", "streams", "loader")]
_WATCHING = [*_FILES, "-x", "-k", "test_device or still_reads or another_gpu or mixup"]
_VERSIONS = """
import json, sys, cupy, numpy, torch
print(json.dumps({"python": sys.version.split()[0], "torch": torch.__version__, "cupy": cupy.__version__,
                  "numpy": numpy.__version__, "nvrtc": "{}.{}".format(*cupy.cuda.nvrtc.getVersion())}))
"""
_NAMES = "import json; from tests.rehearsal.mutations import MUTATIONS; print(json.dumps(list(MUTATIONS)))"


def main() -> int:
    """Prepare, run, write the report; the exit status of pytest."""
    variables = prepare()
    if sys.argv[1:]:
        return _pytest(sys.argv[1:], variables)
    versions = _ask(_VERSIONS, variables)
    status, tests = _run(["tests/gpu"], variables)
    mutations = []
    for name in _ask(_NAMES, variables):
        _, result = _run(_WATCHING, {**variables, "GPUBETON_MUTATION": name})
        mutations.append({"left out": name, "noticed by": result["failed"]})
        print(f"rehearsal: {name}: {', '.join(result['failed']) or 'not noticed'}", flush=True)
    path = save(
        "rehearsal",
        {"versions": versions, "functions": functions(), "tests": tests, "mutations": mutations},
        RESULTS / "rehearsal",
    )
    print(f"rehearsal: {path}")
    return status


def _ask(statements, variables):
    command = [python(), "-c", statements]
    return json.loads(subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, check=True).stdout)


def _pytest(arguments, variables):
    return subprocess.run([python(), *_PYTEST, *arguments], cwd=ROOT, env=variables, check=False).returncode


def _run(arguments, variables):
    """Run tests; the exit status, and what happened."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        status = _pytest([*arguments, "--tb=short", f"--junitxml={report}"], variables)
        cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    skipped = {_name(case): reason.get("message") for case in cases if (reason := case.find("skipped")) is not None}
    failed = [_name(case) for case in cases if case.find("failure") is not None or case.find("error") is not None]
    if not cases:
        failed.append("the process ended")
    return status, {"passed": len(cases) - len(skipped) - len(failed), "skipped": skipped, "failed": failed}


def _name(case):
    return f"{case.get('classname').rpartition('.')[2]}::{case.get('name')}"


if __name__ == "__main__":
    sys.exit(main())
