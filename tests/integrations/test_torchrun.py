"""Several processes, started by torchrun or as it does, on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gpubeton.fields import IntField
from tests.integrations.conftest import Numbers
from tests.ranks import run_ranks
from tests.small_files import write


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What both processes saw of a file of 21 samples."""
    folder = tmp_path_factory.mktemp("torchrun")
    path = write(folder / "numbers.beton", {"label": IntField()}, Numbers(21))
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m"]
    command = [*start, "tests.integrations.torchrun_run", str(path), str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def flat(batches):
    return [sample for batch in batches for sample in batch]


def test_each_epoch_is_shared_out_and_nothing_is_missing(ranks):
    for epoch in range(2):
        first, second = (flat(rank["epochs"][epoch]) for rank in ranks)
        assert set(first) | set(second) == set(range(21))
        assert len(first) == len(second) == 11
        assert len(set(first) & set(second)) <= 1  # one of 22 places is filled up, so that all ranks have as many


def test_epochs_differ(ranks):
    assert ranks[0]["epochs"][0] != ranks[0]["epochs"][1]


def test_accelerate_does_not_share_out_again(ranks):
    assert set(ranks[0]["own"]) | set(ranks[1]["own"]) == set(range(21))
    assert len(ranks[0]["own"]) == len(ranks[1]["own"]) == 11
    assert ranks[0]["world"] == 8


def test_metrics_are_of_each_sample_once_on_every_rank(ranks):
    for rank in ranks:
        assert sorted(rank["gathered"]) == list(range(21))


def test_ranks_of_lightning_share_each_epoch_and_keep_the_loaders_order(numbers, tmp_path):
    run_ranks("tests.integrations.lightning_ranks", numbers, tmp_path)
    for epoch in range(2):
        seen = []
        for rank in "01":
            lines = [line.split(" ", 2) for line in (tmp_path / rank).read_text().splitlines()]
            seen.append(
                [
                    sample
                    for _, line_epoch, samples in lines
                    if int(line_epoch) == epoch
                    for sample in json.loads(samples)
                ]
            )
        assert [len(samples_seen) for samples_seen in seen] == [
            8,
            8,
        ]  # of 11 each, a last batch of 3 is left out in training
        assert len(set(seen[0] + seen[1])) == 16
    assert (tmp_path / "0.sampler").read_text() == "gpubeton.integrations.data_loader"


def test_after_a_rank_was_killed_another_number_of_ranks_resumes_the_epoch(tmp_path):
    path = write(tmp_path / "numbers.beton", {"label": IntField()}, Numbers(60))
    run_ranks("tests.integrations.elastic_run", path, tmp_path, 4, 2, processes=3, fails=True)
    state = json.loads((tmp_path / "state.json").read_text())
    assert 0 < state["samples"] < 60
    run_ranks("tests.integrations.elastic_run", path, tmp_path, 3, -1, processes=2)
    seen = {
        world: [json.loads((tmp_path / f"{world}-{rank}.json").read_text()) for rank in range(world)]
        for world in (3, 2)
    }
    # What the killed ranks received after the last state counts as not received.
    before = [sample for share in seen[3] for batch in share[: state["samples"] // 12] for sample in batch]
    after = [sample for share in seen[2] for batch in share for sample in batch]
    assert sorted(before + after) == list(range(60))


@pytest.mark.parametrize(("before", "after"), [(2, 3), (2, 1), (1, 2)])
def test_with_accelerate_another_number_of_processes_resumes_and_gathers_each_sample_once(tmp_path, before, after):
    path = write(tmp_path / "numbers.beton", {"label": IntField()}, Numbers(23))
    run_ranks("tests.integrations.accelerate_elastic_run", path, tmp_path, 2, processes=before)
    run_ranks("tests.integrations.accelerate_elastic_run", path, tmp_path, -1, processes=after)
    first, rest = (
        [json.loads((tmp_path / f"{world}-{rank}.json").read_text()) for rank in range(world)]
        for world in (before, after)
    )
    for rank in rest:
        assert sorted(first[0]["gathered"] + rank["gathered"]) == list(range(23))
        # Skipping as many batches gives what the saved state gives.
        assert rank["skipped"] == rank["own"]
