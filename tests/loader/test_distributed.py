from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "orders.json").read_text())["cases"]
CASES = [case for case in GOLDEN if case["world"] == 2 and case["num_samples"] <= 50][:60]

PROGRAM = """
import json, os, sys, warnings
sys.path[:0] = {path!r}
import torch.distributed as dist
from gpubeton.errors import OptionError
from gpubeton.loader import Loader

child = os.fork()  # the imports take longer than all that follows
rank = 0 if child else 1
dist.init_process_group("gloo", init_method="file://{meeting}", rank=rank, world_size=2)
only_label = dict.fromkeys(["image", "weight", "note", "info", "vector"])

def make(**arguments):
    return Loader({file!r}, **{{"num_workers": 1, "distributed": True, "pipelines": only_label, **arguments}})

orders = []
for case in json.loads({cases!r}):
    if case["rank"] == rank:
        indices = range(case["num_samples"]) if case["indices"] is None else case["indices"]
        loader = make(batch_size=1, order=case["order"], seed=case["seed"], indices=indices)
        orders.append([int(batch.samples[0]) for batch in loader.plan(case["epoch"])])

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loader = make(batch_size=4, order="random")
batches = iter(loader)
first = next(batches)[0][:, 0].tolist()
state = loader.state_dict()
rest = [batch[0][:, 0].tolist() for batch in batches]
resumed = make(batch_size=4, order="random")
resumed.load_state_dict(state)
quasi = make(batch_size=2, order="quasi_random", drop_last=False)
files = [{file!r}, {file!r}]
several = [
    Loader(files, 4, num_workers=1, distributed=True, seed=1, order=order, drop_last=False, pipelines=only_label)
    for order in ("sequential", "random", "quasi_random")
]
with warnings.catch_warnings(record=True) as unlike:
    warnings.simplefilter("always")
    unlike_arguments = {{"batch_size": 4 + rank, "order": ["random", "window"][rank], "indices": range(20 + rank)}}
    Loader([{file!r}] * 3, num_workers=1, distributed=True, seed=3, pipelines=only_label, **unlike_arguments)
try:
    make(batch_size=4, order="random", seed=40 + rank, drop_last=False)
    other_seed = "accepted"
except OptionError as error:
    other_seed = str(error)
result = {{
    "other_seed": other_seed,
    "unlike": [str(warning.message) for warning in unlike],
    "orders": orders,
    "len": len(loader),
    "seed": loader.seed,
    "warned": any("the seed is 0" in str(warning.message) for warning in caught),
    "batches": [first, *rest],
    "resumed": [batch[0][:, 0].tolist() for batch in resumed],
    "state": state,
    "quasi": [int(s) for batch in quasi.plan() for s in batch.samples],
    "several": [[int(s) for batch in loader.plan() for s in batch.samples] for loader in several],
}}
with open(f"{{sys.argv[1]}}/{{rank}}.json", "w") as file:
    json.dump(result, file)
dist.destroy_process_group()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(scope="module")
def ranks(photos, tmp_path_factory):
    """What each of two processes found."""
    root, folder = str(Path(__file__).parents[2]), tmp_path_factory.mktemp("distributed")
    meeting = folder / "meeting"
    program = PROGRAM.format(path=[root, *sys.path], meeting=meeting, file=str(photos), cases=json.dumps(CASES))
    command = [sys.executable, "-W", "ignore", "-c", program, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_orders_of_two_ranks_are_ffcvs(ranks):
    for rank, results in enumerate(ranks):
        expected = [case["result"] for case in CASES if case["rank"] == rank]
        assert len(expected) >= 10
        assert results["orders"] == expected


def test_the_ranks_share_each_epoch_in_any_order_and_of_several_files(ranks):
    assert [rank["len"] for rank in ranks] == [6, 6]
    shares = [{label for batch in rank["batches"] for label in batch} for rank in ranks]
    assert not shares[0] & shares[1]
    assert len(shares[0] | shares[1]) == 48
    assert sorted(ranks[0]["quasi"] + ranks[1]["quasi"]) == list(range(50))
    for orders in zip(*(rank["several"] for rank in ranks), strict=True):
        assert sorted(sample for order in orders for sample in order) == list(range(100))


def test_without_a_seed_all_ranks_use_0_and_warn_and_another_seed_than_the_first_is_refused(ranks):
    assert [(rank["seed"], rank["warned"]) for rank in ranks] == [(0, True)] * 2
    first, second = sorted((rank["other_seed"] for rank in ranks), key=len)
    assert first == "accepted"
    assert re.search(r"seed is 4[01] on rank [01] of 2, but 4[01] on another rank", second)


def test_other_arguments_than_those_of_another_rank_are_warned_of(ranks):
    first, second = sorted((rank["unlike"] for rank in ranks), key=len)
    assert first == []
    assert re.search(
        r"rank [01] of 2 .* order is \w+ here, \w+ there; indices is 2[01] samples .*; batch_size is [45] here, [45] ",
        second[0],
    )


def test_each_rank_resumes_with_its_own_batches_from_the_state_of_any(ranks):
    for rank in ranks:
        assert rank["resumed"] == rank["batches"][1:]
    assert ranks[0]["state"] == ranks[1]["state"]
