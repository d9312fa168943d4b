from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.stateful import Stateful

from gpubeton._plan.order import IdRange
from gpubeton.errors import StateError
from gpubeton.fields import FloatField, IntField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.loader.schedule import Sampling
from gpubeton.transforms import Cutout, RandomHorizontalFlip, ToTensor
from gpubeton.traversal_order import TraversalOrder, Weighted
from tests.loader.pipelines import same
from tests.small_files import write, write_photos

AUGMENTED = {"image": [RandomResizedCropRGBImageDecoder((16, 16)), RandomHorizontalFlip(), Cutout(3), ToTensor()]}


def make(path, **changes):
    arguments = {"num_workers": 1, "order": OrderOption.RANDOM, "seed": 11, "drop_last": False, "pipelines": AUGMENTED}
    return Loader(path, **{"batch_size": 8, **arguments, **changes})


WEIGHTED = {"order": Weighted, "order_kwargs": {"weights": [number % 7 for number in range(50)]}}


@pytest.mark.parametrize("order", [*({"order": option} for option in OrderOption), WEIGHTED])
@pytest.mark.parametrize("num_received", [0, 1, 3, 6, 7])
def test_a_resumed_loader_gives_exactly_the_batches_that_were_still_to_come(photos, num_received, order):
    loader = make(photos, **order)
    list(loader)
    batches = iter(loader)
    for _ in range(num_received):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    rest, following = list(batches), list(loader)

    resumed = make(photos, **order, num_workers=2, os_cache=False, batches_ahead=1)
    resumed.load_state_dict(state)
    assert same(list(resumed), rest)
    assert same(list(resumed), following)


def test_the_state_is_that_of_the_next_epoch_before_and_after_one(photos):
    loader = make(photos)
    positions = [loader.state_dict()]
    list(loader)
    positions.append(loader.state_dict())
    next(iter(loader))  # a loop that is left
    loader.set_epoch(5)
    positions.append(loader.state_dict())
    assert [(state["epoch"], state["samples"]) for state in positions] == [(0, 0), (1, 0), (5, 0)]


def test_the_state_in_the_body_of_the_last_batch_leaves_nothing_of_its_epoch(photos):
    loader = make(photos)
    for _ in loader:
        state = loader.state_dict()
    resumed = make(photos)
    resumed.load_state_dict(state)
    assert resumed.next_epoch == 0
    assert list(resumed) == []
    assert resumed.next_epoch == 1


def test_a_loader_may_go_back_to_an_earlier_state(photos):
    loader = make(photos)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = list(batches)
    list(loader)
    loader.load_state_dict(state)
    assert same(list(loader), rest)


PROGRAM = """
import json, sys
sys.path[:0] = {path!r}
from tests.loader.test_state import digest, make
loader = make({file!r})
loader.load_state_dict(json.loads({state!r}))
print(digest(list(loader)))
"""


def digest(batches):
    return [[float(output.double().sum()) for output in batch] for batch in batches]


def test_a_new_process_gives_the_same_batches(photos):
    loader = make(photos)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    root = str(Path(__file__).parents[2])
    program = PROGRAM.format(path=[root, *sys.path], file=str(photos), state=json.dumps(loader.state_dict()))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=root)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == digest(batches)


def test_a_resumed_epoch_begins_with_the_first_iterator_that_gives_a_batch(photos):
    loader = make(photos)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    expected = digest(batches)
    resumed = make(photos)
    resumed.load_state_dict(state)
    assert [len(iter(resumed)) for _ in range(3)] == [len(loader) - 1] * 3
    assert resumed.state_dict() == state
    assert digest(resumed) == expected
    assert resumed.next_epoch == 1
    assert len(iter(resumed)) == len(iter(resumed)) == len(resumed)  # of epochs that begin, each is the next


def test_samples_skipped_as_bad_do_not_shift_the_batches(photos, tmp_path):
    from tests.small_files import damage

    path = shutil.copy(photos, tmp_path / "damaged.beton")
    order = make(path).traversal_order.sample_order(0)
    for sample in order[:8].tolist():  # nothing of the first batch is left
        damage(path, sample)
    loader = make(path, on_error="skip")
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    assert state["samples"] == 16
    resumed = make(path, on_error="skip")
    resumed.load_state_dict(state)
    assert same(list(resumed), list(batches))


def test_a_loader_without_a_seed_takes_over_that_of_the_state(photos):
    loader = make(photos, seed=None)
    resumed = make(photos, seed=None)
    assert loader.seed != resumed.seed
    assert len(resumed) == 7
    resumed.load_state_dict(loader.state_dict())
    assert resumed.seed == loader.seed
    assert same(list(resumed), list(loader))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drop_last": True}, "drop_last is True here and False in the state"),
        ({"order": OrderOption.SEQUENTIAL}, r"order is .*Sequential' here and .*Random' in the state"),
        ({"indices": range(49)}, "indices is '49 samples, .*' here and '50 samples, .*' in the state"),
        ({"seed": 12}, "the seed is 12 here and 11 in the state"),
        ({"seed": 9, "drop_last": True}, r"(?s)(?=.*seed is 9)(?=.*drop_last is True)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_the_state_of_another_loader_is_refused_with_the_differences(photos, changes, message):
    state = make(photos).state_dict()
    with pytest.raises(StateError, match=message):
        make(photos, **changes).load_state_dict(state)


def test_the_state_of_another_file_is_refused_but_not_that_of_a_copy(photos, tmp_path):
    state = make(photos).state_dict()
    make(shutil.copy(photos, tmp_path / "copy.beton")).load_state_dict(state)
    with pytest.raises(StateError, match=r"samples .* 49 .* 50 "):
        make(write_photos(tmp_path / "other.beton", 49)).load_state_dict(state)
    with pytest.raises(StateError, match="the file"):
        make(write_photos(tmp_path / "raw.beton", 50, write_mode="raw")).load_state_dict(state)


def test_the_state_of_a_file_with_another_field_is_refused_though_every_byte_of_its_samples_is_the_same(tmp_path):
    files = {}
    for name, field in {"label": IntField(), "weight": FloatField(), "digit": IntField()}.items():
        files[name] = write(tmp_path / f"{name}.beton", {name: field}, [(0,)] * 9)
    state = Loader(files["label"], 2, seed=1).state_dict()
    Loader(files["label"], 2, seed=1).load_state_dict(state)
    renamed = write(tmp_path / "renamed.beton", {"label": FloatField()}, [(0,)] * 9)
    for other in (files["digit"], renamed):
        with pytest.raises(StateError, match="the file"):
            Loader(other, 2, seed=1).load_state_dict(state)


def test_a_state_between_epochs_does_not_fix_the_samples(photos):
    loader = make(photos)
    loader.load_state_dict(make(photos).state_dict())
    loader.indices = range(40)
    assert loader.state_dict()["indices"] == make(photos, indices=range(40)).state_dict()["indices"]


def test_an_order_of_a_user_is_made_again_with_the_seed_that_a_state_brings(photos):
    class Shuffled(TraversalOrder):
        def __init__(self, loader):
            super().__init__(loader)
            self.shuffled = np.random.default_rng(self.seed).permutation(self.indices)

        def sample_order(self, epoch):
            return self.shuffled

    loader, resumed = make(photos, order=Shuffled), make(photos, order=Shuffled, seed=None)
    resumed.load_state_dict(loader.state_dict())
    assert resumed.next_traversal_order().tolist() == loader.next_traversal_order().tolist()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda _: 3, "is a dict, not int"),
        (lambda _: {}, "version None"),
        (lambda state: {**state, "version": 4}, "version 4, expected 1 to 3"),
        (lambda state: {**state, "version": [1]}, r"version \[1\]"),
        (lambda state: {**state, "epoch": "0"}, "'epoch' is '0', .*int"),
        (lambda state: {name: value for name, value in state.items() if name != "seed"}, "'seed' is None"),
        (lambda state: {**state, "samples": -1}, "'samples' is -1"),
        (lambda state: {**state, "epoch": -1}, "'epoch' is -1"),
        (lambda state: {**state, "seed": -1}, "'seed' is -1"),
        (lambda state: {**state, "batch_size": 0}, "'batch_size' is 0"),
        (lambda state: {**state, "samples": 64}, "batch 8, .*epoch 0 has 7"),
        (lambda state: {**state, "samples": 63}, "63 samples"),
        (lambda state: {**state, "samples": 8, "first": 16}, "8 samples"),
    ],
)
def test_an_invalid_state_is_refused(photos, broken, message):
    loader = make(photos)
    with pytest.raises(StateError, match=message):
        loader.load_state_dict(broken(loader.state_dict()))
    assert loader.state_dict()["samples"] == 0


def hashed(ids):
    """The fingerprint that ids have in states of version 2."""
    return f"{len(ids)} samples, {hashlib.blake2b(np.asarray(ids, np.uint64).tobytes(), digest_size=8).hexdigest()}"


def test_a_state_of_version_2_loads_as_before(photos):
    loader = make(photos)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    old = {**state, "version": 2, "indices": hashed(range(50))}
    rest = list(batches)
    for same_samples in ({}, {"indices": range(50)}):
        for version in (state, old):
            resumed = make(photos, **same_samples)
            resumed.load_state_dict(version)
            assert same(list(resumed), rest)
    part = make(photos, indices=range(1, 50))
    for version in (state, old):
        with pytest.raises(StateError, match="indices"):
            part.load_state_dict(version)
    part_state = part.state_dict()
    assert part_state["indices"] == hashed(range(1, 50))
    part.load_state_dict({**part_state, "version": 2})
    with pytest.raises(StateError, match="indices"):
        make(photos).load_state_dict({**part_state, "version": 2})


def test_a_state_of_all_samples_takes_no_time_for_each(photos):
    order = make(photos).traversal_order
    text, _ = Sampling(IdRange(10**15), order, {}, None, None).fingerprints
    assert text != Sampling(IdRange(10**15 + 1), order, {}, None, None).fingerprints[0]


def test_a_state_may_be_stored_by_torch_and_json_alike(photos, tmp_path):
    state = make(photos).state_dict()
    assert json.loads(json.dumps(state)) == state
    torch.save(state, tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True) == state
    assert all(type(value) in (int, str, bool) for value in state.values())
    assert np.int64 not in map(type, state.values())


def test_torchdata_and_torch_take_a_loader_for_something_with_a_state(photos):
    assert isinstance(make(photos), Stateful)


def test_loading_a_state_leaves_an_iterator_that_is_in_use_alone(photos):
    loader, whole = make(photos), list(make(photos))
    batches = iter(loader)
    state = loader.state_dict()
    received = [next(batches), next(batches)]
    loader.load_state_dict(state)
    assert same([*received, *batches], whole)
    assert same(loader, whole)
