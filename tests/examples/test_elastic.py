"""The elastic example: processes are lost and come back, and each sample of an epoch is used once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from gpubeton.fields import IntField, RGBImageField
from tests.examples.example import EXAMPLES, json_lines
from tests.examples.example import run as run_example
from tests.small_files import write
from tests.waiting import wait_until

NUM_SAMPLES = 60
RECORDER = EXAMPLES.parent / "tests" / "examples" / "recorder.py"


def write_images(path):
    """Write a file of small images."""
    samples = [(np.full((20, 20, 3), 4 * number, np.uint8), number) for number in range(NUM_SAMPLES)]
    return write(path, {"image": RGBImageField(write_mode="jpg"), "label": IntField()}, samples)


@pytest.fixture
def run(tmp_path):
    """Start agents of torchrun, as on several nodes; those that are left are killed at the end."""
    path = write_images(tmp_path / "train.beton")
    records = tmp_path / "records"
    records.mkdir()
    (records / "limit").write_text("4")
    rendezvous_store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    agents = []

    def start(group="elastic"):
        fast = "is_host=false,last_call_timeout=10,keep_alive_interval=1,keep_alive_max_attempt=15,join_timeout=120"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1"]
        endpoint = f"--rdzv-endpoint=127.0.0.1:{rendezvous_store.port}"
        rendezvous = ["--rdzv-backend=c10d", endpoint, f"--rdzv-id={group}"]
        script = [RECORDER, EXAMPLES / "elastic.py", path, "--folder", tmp_path / "run"]
        sizes = ["--batch-size=4", "--side=16", "--epochs=1", "--save-every=2", "--classes=1000", "--num-workers=1"]
        local = ["--max-restarts=10", f"--rdzv-conf={fast}", "--monitor-interval=0.2", "--local-addr=127.0.0.1"]
        environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"}
        environment |= {"RECORDS": str(records), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        with open(tmp_path / f"log{len(agents)}", "w") as log:
            agents.append(
                subprocess.Popen(
                    [str(word) for word in (*torchrun, *rendezvous, *local, *script, *sizes)],
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        return agents[-1]

    yield start, records, tmp_path
    for agent in agents:
        kill(agent)


def processes(records):
    """The records of each process that has any, by the time of the first."""
    files = [path for path in records.glob("*.jsonl") if path.stat().st_size]
    results = {int(path.stem): [json.loads(line) for line in path.read_text().splitlines()] for path in files}
    return dict(sorted(results.items(), key=lambda value: value[1][0]["time"]))


def kill(agent):
    """Kill an agent and its processes, as when a node is lost."""
    if agent.poll() is not None:
        return
    agent.send_signal(signal.SIGSTOP)  # so that the numbers of its processes stay theirs until they are killed
    with_parents = subprocess.run(["ps", "-eo", "pid=,ppid="], check=True, capture_output=True, text=True).stdout
    for pid, parent in (map(int, line.split()) for line in with_parents.splitlines()):
        if parent == agent.pid:
            os.kill(pid, signal.SIGKILL)
    agent.kill()
    agent.wait()


def wait_for(records, world, batches):
    """Wait until a process of so many has received some batches."""

    def are_there():
        results = list(processes(records).values())
        return results and results[-1][0]["world"] == world and len(results[-1]) >= batches

    wait_until(are_there)


# https://github.com/pytorch/pytorch/issues/123678
@pytest.mark.skipif(torch.__version__ < "2.4", reason="torchrun of torch 2.3 cannot start processes again")
def test_a_node_is_lost_and_another_comes_and_each_sample_of_the_epoch_is_used_once(run):
    start, records, folder = run
    first, second = start(), start()
    wait_for(records, 2, 4)
    kill(second)
    (records / "limit").write_text("5")  # the next batch shows the first process that the second is gone
    wait_for(records, 1, 5)
    start()
    wait_for(records, 2, 1)
    (records / "limit").unlink()
    assert first.wait() == 0, (folder / "log0").read_text()
    places, worlds, begins = {}, [], []
    for batches in processes(records).values():
        worlds.append(batches[0]["world"])
        begins.append(batches[0]["end"] - batches[0]["world"] * batches[0]["batch_size"])
        for batch in batches:
            begin = batch["end"] - batch["world"] * batch["batch_size"]
            for row, sample in enumerate(batch["samples"]):
                place = begin + row * batch["world"] + batch["rank"]
                # Samples repeated after a checkpoint are the same.
                assert places.setdefault(place, sample) == sample
    assert worlds == [2, 2, 1, 2, 2]
    # From one checkpoint to the next.
    assert begins[:2] == [0, 0]
    assert 0 < begins[2] < begins[3] == begins[4]
    assert sorted(places[place] for place in range(NUM_SAMPLES)) == list(range(NUM_SAMPLES))
    (line,) = re.findall(r"\{.*\}", "".join(log.read_text() for log in folder.glob("log*")))
    assert json.loads(line)["processes"] == 2
    # Started once more, it has nothing to do.
    before = len(processes(records))
    assert start("another").wait() == 0
    assert len(processes(records)) == before


def test_one_process_resumes_where_it_stopped_and_with_another_batch_size(tmp_path):
    options = [str(write_images(tmp_path / "train.beton")), "--folder", str(tmp_path), "--side=16", "--num-workers=1"]
    assert [line["epoch"] for line in json_lines(run_example("elastic.py", *options, "--epochs=1"))] == [0]
    (line,) = json_lines(run_example("elastic.py", *options, "--epochs=2", "--batch-size=7"))
    assert (line["epoch"], line["processes"]) == (1, 1)
    assert run_example("elastic.py", *options, "--epochs=2") == ""
