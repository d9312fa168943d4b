"""Which torch and which extras make's targets install on which machine. Nothing is installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.rehearsal.environment import installed

SCRIPT = Path(__file__).parents[2] / "tools" / "environment.sh"

PYTHON = """#!/bin/sh
case "$*" in
    *sys.version_info*) echo 3.12.1 ;;
    *"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *"pip install"*) echo "$*" >>"$INSTALLED" ;;
esac
"""
MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}.65.06  Sun Jul 27 07:13:13 UTC 2025\n"


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def linux(root, version):
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text(MODULE.format(version))


def wsl(root, version=None):
    (root / "dev").mkdir()
    (root / "dev/dxg").touch()
    executable(root / "usr/lib/wsl/lib/libcuda.so.1", "")
    if version:
        executable(root / "usr/lib/wsl/lib/nvidia-smi", f"#!/bin/sh\necho {version}.97\n")


MACHINES = {
    "no GPU": (lambda _: None, ".[demo]", True, ""),
    "new driver": (lambda root: linux(root, 580), ".[demo,cuda13]", False, ""),
    "old driver": (lambda root: linux(root, 550), ".[demo]", False, "The NVIDIA driver is 550"),
    "WSL2, new driver": (lambda root: wsl(root, 581), ".[demo,cuda13]", False, ""),
    "WSL2, old driver": (lambda root: wsl(root, 552), ".[demo]", False, "The NVIDIA driver is 552"),
    "WSL2, no nvidia-smi": (wsl, ".[demo]", False, "The NVIDIA driver is unknown"),
}


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="looks at Linux's files")
@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_gets_the_torch_and_the_extras_that_it_can_use(tmp_path, name):
    prepare, expected, is_for_the_cpu, message = MACHINES[name]
    root = tmp_path / "root"
    root.mkdir()
    prepare(root)
    script = SCRIPT.read_text()
    for place in ("/proc/driver", "/dev/dxg", "/usr/lib/wsl"):
        script = script.replace(place, f"{root}{place}")
    executable(tmp_path / "tools/environment.sh", script)
    executable(tmp_path / "python", PYTHON)
    environment = {**os.environ, "INSTALLED": str(tmp_path / "installed")}
    environment.pop("TORCH_INDEX", None)
    command = [tmp_path / "tools/environment.sh", tmp_path / "python", tmp_path / "venv", "demo"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    installed = (tmp_path / "installed").read_text().split()
    assert expected in installed
    assert ("https://download.pytorch.org/whl/cpu" in installed) == is_for_the_cpu
    assert message in done.stdout


def test_a_rehearsal_runs_with_the_torch_that_users_get(tmp_path):
    arguments = [str(argument) for argument in installed(tmp_path / "constraints.txt")]
    assert any(argument.endswith("[cuda13]") for argument in arguments)
    texts = [Path(argument).read_text() for argument in arguments if argument.endswith(".txt")]
    assert len(texts) == 2
    lines = [line for text in texts for line in text.splitlines()]
    assert not [line for line in lines if line.startswith(("torch=", "nvidia-"))]
    assert [line for line in lines if line.startswith("numpy==")]
