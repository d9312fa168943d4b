"""What a release is made of: the wheel and the sdist, and the files that the hosting site reads."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"

# Writes and loads a file, reads the kernels, and prints where all of it came from.
_USE_INSTALLED = """
from importlib.metadata import version
import gpubeton
from gpubeton.fields import IntField
from gpubeton._gpu.kernels import folder, kernel_names, source_of
from gpubeton.loader import Loader
from gpubeton.writer import DatasetWriter

DatasetWriter("few.beton", {"label": IntField()}, progress=False).from_indexed_dataset([(7,), (8,)])
(batch,) = Loader("few.beton", batch_size=2)
assert all(map(source_of, kernel_names()))
print(gpubeton.__file__, folder(), gpubeton.__version__, version("gpubeton"), batch[0].tolist(), sep="|")
"""


def run(*command, cwd=ROOT, **options):
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist, the wheel made from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ".")
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def test_package_indexes_accept_the_built_files(built):
    run(sys.executable, "-m", "twine", "check", "--strict", *built)
    run(sys.executable, "-m", "check_wheel_contents", built[0])


def test_the_wheel_has_the_package_and_its_kernels_and_nothing_else(built):
    names = zipfile.ZipFile(built[0]).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"gpubeton"}
    inside = {name.removeprefix("gpubeton/_kernels/") for name in names if name.startswith("gpubeton/_kernels/")}
    assert inside == {path.name for path in (ROOT / "kernels").iterdir() if path.is_file()}
    assert "gpubeton/py.typed" in names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "gpubeton").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules


def test_the_sdist_can_be_tested(built):
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for expected in ("Makefile", "constraints.txt", "tests/conftest.py", "CONTRIBUTING.md", "kernels/steps.cuh"):
        assert expected in names


def test_the_wheel_works_without_the_checkout(built, tmp_path):
    target = tmp_path / "installed"
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", target, built[0], cwd=tmp_path)
    clean = {"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin", "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    done = run(sys.executable, "-c", _USE_INSTALLED, cwd=tmp_path, env=clean)
    file, kernels, version, installed, labels = done.strip().split("|")
    assert Path(file).is_relative_to(target)
    assert Path(kernels).is_relative_to(target)
    assert version == installed == built[0].name.split("-")[1]
    assert labels == "[[7], [8]]"


def test_workflows_have_the_schema_of_their_site():
    workflows = sorted((GITHUB / "workflows").glob("*.yml"))
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)


def test_dependabot_has_the_schema_of_its_site():
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.dependabot", GITHUB / "dependabot.yml")


def test_workflows_have_no_known_weakness():
    run(Path(sys.executable).parent / "zizmor", "--offline", "--quiet", GITHUB)


def test_workflows_call_targets_that_exist():
    targets = {line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ":" in line}
    for workflow in (GITHUB / "workflows").glob("*.yml"):
        for job in yaml.safe_load(workflow.read_text())["jobs"].values():
            for step in job["steps"]:
                for line in step.get("run", "").splitlines():
                    if line.startswith("make "):
                        assert line.split()[1] in targets, f"{workflow.name}: {line}"


def test_the_changelog_has_versions_newest_first():
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    results = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) \((\d{4}-\d\d-\d\d|not released yet)\)", line) for line in headings]
    versions = [tuple(map(int, match.groups()[:3])) for match in results]  # a heading of another form fails here
    assert versions == sorted(set(versions), reverse=True)
    assert all("not released" not in line for line in headings[1:])


def test_the_container_image_copies_only_files_that_exist(tmp_path):
    """Docker does not run in the tests: the files, extras and commands that the image is made of are checked."""
    folder = ROOT / "tools/container"
    lines = (folder / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line for line in lines if line and not line.startswith("#")]
    extras = re.findall(r"EXTRAS=([\w,]+)", "\n".join(lines))
    assert len(extras) == 2
    declared = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert {extra for names in extras for extra in names.split(",")} <= set(declared)
    assert all(re.match(r"FROM python:3\.1[0-4]-", step) for step in steps if step.startswith("FROM"))
    assert [step.split()[0] for step in steps][-4:] == ["USER", "WORKDIR", "ENTRYPOINT", "CMD"]
    assert "USER 0" not in steps
    jobs = "".join(path.read_text() for path in (ROOT / "examples/kubernetes").iterdir())
    started = set(re.findall(r"/opt/gpubeton/([\w./]+)", jobs))
    assert started
    assert all(name.startswith("examples/") and (ROOT / name).is_file() for name in started)
    assert "COPY examples /opt/gpubeton/examples" in steps
    (install,) = (step for step in steps if "warm-up" in step)
    assert install.index("pip install") < install.index("gpubeton warm-up")
    allowed = (folder / "Dockerfile.dockerignore").read_text().split()
    copied = [name.removeprefix("!") for name in allowed if name.startswith("!")]
    assert all((ROOT / name).exists() for name in copied)
    assert "examples" in copied
    # A wheel can be made of the others alone.
    for name in set(copied) - {".git", "examples"}:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "wheels", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert any(name.startswith("gpubeton/_kernels/") for name in zipfile.ZipFile(wheel).namelist())
