"""The SLURM example: a file is copied once to each node in spite of failures, and training starts on the copies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from gpubeton.reader import Reader
from tests.examples.example import EXAMPLES
from tests.picture_folders import write_folder

SLURM = EXAMPLES / "slurm"
pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="flock is of util-linux, which Linux has")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "shared" / "train.beton"
    path.parent.mkdir()
    path.write_bytes(os.urandom(70_000))
    return path


@pytest.fixture
def node(tmp_path):
    """A folder on a node's disk, and a `cp` that takes a while and counts its calls."""
    commands = tmp_path / "commands"
    commands.mkdir()
    write_command(commands / "cp", f'echo copied >> {tmp_path}/calls; sleep 0.2; exec {shutil.which("cp")} "$@"')
    return tmp_path / "node"


def write_command(path, line):
    path.write_text(f"#!/usr/bin/env bash\n{line}\n")
    path.chmod(0o755)


def start(file, node):
    environment = {**os.environ, "PATH": f"{node.parent}/commands:{os.environ['PATH']}"}
    command = [str(SLURM / "stage.sh"), str(file), str(node)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def stage(file, node):
    process = start(file, node)
    printed, errors = process.communicate()
    return process.returncode, printed, errors


def calls(node):
    path = node.parent / "calls"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_of_many_tasks_one_copies_and_all_get_the_whole_file(file, node):
    tasks = [start(file, node) for _ in range(4)]
    printed = [task.communicate()[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0] * 4
    assert printed == [f"{node}/train.beton\n"] * 4
    assert calls(node) == 1
    assert (node / "train.beton").read_bytes() == file.read_bytes()
    assert sorted(path.name for path in node.iterdir()) == ["train.beton", "train.beton.lock"]


@pytest.mark.parametrize("damage", ["cut", "begin", "end", "newer"])
def test_a_copy_that_differs_from_the_file_is_copied_again(file, node, damage):
    with open(file, "r+b") as opened:  # nearly empty, but longer than its compared part
        opened.seek(40 << 20)
        opened.write(os.urandom(100))
    assert stage(file, node)[0] == 0
    assert stage(file, node)[0] == 0
    assert calls(node) == 1
    copy = node / "train.beton"
    status = copy.stat()
    if damage == "newer":
        change(file, 20 << 20)  # in the middle
        os.utime(file, (status.st_atime, status.st_mtime + 5))
    else:
        if damage == "cut":
            os.truncate(copy, status.st_size - 1)
        else:
            change(copy, 0 if damage == "begin" else status.st_size - 1)
        os.utime(copy, (status.st_atime, status.st_mtime))
    assert stage(file, node)[0] == 0
    assert calls(node) == 2
    assert copy.read_bytes() == file.read_bytes()


def change(path, offset):
    with open(path, "r+b") as opened:
        opened.seek(offset)
        (level,) = opened.read(1)
        opened.seek(offset)
        opened.write(bytes([level ^ 1]))


def test_a_task_that_was_killed_while_copying_leaves_nothing_in_the_way(file, node):
    write_command(
        node.parent / "commands" / "cp", f'echo half > "{node}/train.beton.part"; touch {node}/begun; kill -9 $PPID'
    )
    assert stage(file, node)[0] == -9
    assert (node / "begun").exists()
    assert not (node / "train.beton").exists()
    (node.parent / "commands" / "cp").unlink()
    assert stage(file, node)[0] == 0
    assert (node / "train.beton").read_bytes() == file.read_bytes()


def test_too_little_space_and_a_missing_file_are_reported(file, node):
    write_command(node.parent / "commands" / "df", "echo Avail; echo 69999")
    code, _, errors = stage(file, node)
    assert code == 1
    assert f"{file} has 70000 bytes, but {node} on " in errors
    assert "has room for 69999" in errors
    code, _, errors = stage(file.with_name("none.beton"), node)
    assert code == 1
    assert "none.beton cannot be read" in errors


def test_a_copy_of_a_file_that_changes_meanwhile_is_refused(file, node):
    write_command(node.parent / "commands" / "cp", f'{shutil.which("cp")} "$@"; echo more >> {file}')
    code, printed, errors = stage(file, node)
    assert (code, printed) == (1, "")
    assert "differs from it" in errors
    assert [path.name for path in node.iterdir()] == ["train.beton.lock"]


@pytest.fixture
def cluster(tmp_path):
    """Fakes of SLURM's commands and of those that jobs start; `tmp_path` has their arguments."""
    commands = tmp_path / "commands"
    commands.mkdir()
    # Takes srun's options away and runs the rest.
    write_command(commands / "srun", f'echo "srun $@" >> {tmp_path}/log; while [[ $1 == --* ]]; do shift; done; "$@"')
    write_command(commands / "scontrol", 'echo "$3-first"; echo "$3-second"')
    write_command(commands / "torchrun", f'printf "%s\\n" "$@" > {tmp_path}/started')
    write_command(commands / "gpubeton", f'echo "gpubeton $@" >> {tmp_path}/log')
    return commands


def submit(script, cluster, *options, **variables):
    """Run a job's script as SLURM does, on two nodes of 8 GPUs; return torchrun's arguments."""
    environment = {
        "PATH": f"{cluster}:{os.environ['PATH']}",
        "SLURM_SUBMIT_DIR": str(EXAMPLES.parent),
        "SLURM_NNODES": "2",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "nodes",
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_CPUS_PER_TASK": "64",
        **{name: str(value) for name, value in variables.items()},
    }
    command = [shutil.which("bash"), str(SLURM / script), *options]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return (cluster.parent / "started").read_text().splitlines()


def test_the_job_copies_on_every_node_and_trains_on_the_copies(file, cluster, tmp_path):
    stage = tmp_path / "node"
    started = submit("train.sbatch", cluster, "--config", "some.yaml", TRAIN=file, VAL=file, STAGE=stage)
    assert (stage / "train.beton").read_bytes() == file.read_bytes()
    options = dict(pairwise(started))
    assert options["--nnodes"] == "2"
    assert options["--nproc-per-node"] == "8"
    assert options["--rdzv-endpoint"] == "nodes-first:29500"
    assert options["--train"] == options["--val"] == str(stage / "train.beton")
    assert options["--num-workers"] == "8"
    assert options["--config"] == "some.yaml"
    assert (tmp_path / "log").read_text().count("--ntasks=2 --ntasks-per-node=1") == 3
    assert options["-m"] == "examples.imagenet"


@pytest.mark.parametrize("count", [2, 5])
def test_tasks_of_an_array_share_the_shards_and_the_last_one_finishes(count, tmp_path):
    write_folder(tmp_path / "photos")
    for task in ("1", "0"):
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SLURM_ARRAY_TASK_ID": task,
            "SLURM_ARRAY_TASK_MAX": "1",
            "SLURM_CPUS_PER_TASK": "1",
            "SLURM_TMPDIR": str(tmp_path),
            **({"SHARDS": str(count)} if count > 2 else {}),
        }
        command = ["bash", str(SLURM / "convert.sbatch"), "photos", "out", "--shuffle"]
        subprocess.run(command, env=environment, cwd=tmp_path, check=True)
        assert (tmp_path / "out" / "index.json").exists() == (task == "0")
    assert Reader(tmp_path / "out").num_samples == 9
    assert len(list((tmp_path / "out").glob("*.beton"))) == count


def test_the_job_fetches_a_file_of_an_object_store_on_every_node(file, cluster, tmp_path):
    started = submit("train.sbatch", cluster, TRAIN="s3://bucket/in/train.beton", VAL=file, STAGE=tmp_path / "node")
    log = (tmp_path / "log").read_text().splitlines()
    assert log[1] == "gpubeton fetch s3://bucket/in/train.beton"
    assert all("--ntasks=2 --ntasks-per-node=1" in line for line in log if line.startswith("srun"))
    options = dict(pairwise(started))
    assert options["--train"] == "s3://bucket/in/train.beton"
    assert options["--val"] == f"{tmp_path}/node/train.beton"


def test_the_elastic_job_takes_the_nodes_that_are_there_and_reads_the_store(cluster, tmp_path):
    started = submit("elastic.sbatch", cluster, "--folder", "/shared/run", TRAIN="s3://bucket/train.beton")
    options = dict(pairwise(started))
    assert options["--nnodes"] == "1:2"
    assert options["--nproc-per-node"] == "8"
    assert options["--rdzv-endpoint"] == "nodes-first:29500"
    assert options[f"{EXAMPLES}/elastic.py"] == "s3://bucket/train.beton"
    assert options["--num-workers"] == "8"
    assert options["--folder"] == "/shared/run"
    assert "--kill-on-bad-exit=0" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("script", sorted(path.name for path in SLURM.iterdir()))
def test_bash_understands_the_scripts(script):
    subprocess.run([shutil.which("bash"), "-n", str(SLURM / script)], check=True)
