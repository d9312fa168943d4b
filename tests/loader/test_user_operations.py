"""Operations of users in loaders."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from gpubeton.fields.decoders import IntDecoder
from gpubeton.fields.rgb_image import ResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import AllocationQuery, Compiler, DrawnParameters, Operation
from gpubeton.transforms import ToTensor

OTHERS = dict.fromkeys(["image", "weight", "note", "info", "vector"])


class Add(Operation):
    """Adds a number in declared memory, over as many threads as the loader has."""

    def __init__(self, number):
        super().__init__()
        self.number = number
        self.threads = []

    def generate_code(self):
        number, my_range = self.number, Compiler.get_iterator()
        self.threads.append(Compiler.num_threads)

        def add(labels, memory):
            for row in my_range(labels.shape[0]):
                memory[row] = labels[row] + number
            return memory

        add.is_parallel = True
        return add

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=True), AllocationQuery(previous_state.shape, previous_state.dtype)


def loader(path, *operations, **arguments):
    pipelines = {**OTHERS, "label": [IntDecoder(), *operations, ToTensor()]}
    return Loader(path, 10, **{"num_workers": 1, "pipelines": pipelines, **arguments})


def labels(loader):
    return [label for (batch,) in loader for label in batch.flatten().tolist()]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_compiled_code_has_the_loaders_threads_from_the_first_epoch_on(photos, num_workers, monkeypatch):
    monkeypatch.setattr(Compiler, "num_threads", 3)
    monkeypatch.setattr(Compiler, "is_enabled", False)
    add = Add(1)
    assert labels(loader(photos, add, num_workers=num_workers)) == list(range(1, 501, 10))
    assert set(add.threads) == {num_workers}


@pytest.mark.parametrize("recompile", [False, True])
def test_a_change_of_an_operation_counts_from_the_next_epoch_on(photos, recompile):
    add = Add(1)
    changing = loader(photos, add, recompile=recompile)
    assert labels(changing)[:2] == [1, 11]
    batches = iter(changing)
    add.number = 5
    assert next(batches)[0].flatten().tolist()[:2] == [1, 11]
    assert labels(changing)[:2] == [5, 15]


def test_two_loaders_with_one_list_of_operations_may_run_at_once(photos):
    add = Add(7)
    first, second = loader(photos, add), loader(photos, add, indices=range(49, -1, -1))
    results = [
        (array.flatten().tolist(), other.flatten().tolist()) for (array,), (other,) in zip(first, second, strict=True)
    ]
    ours, others = (list(chain(*batches)) for batches in zip(*results, strict=True))
    assert ours == others[::-1] == (np.arange(50) * 10 + 7).tolist()


class Spread(Operation):
    """Spreads each label over declared memory, of which a batch has more than a page."""

    def generate_code(self):
        def spread(labels, memory):
            for row in range(labels.shape[0]):
                memory[row] = labels[row, 0]
            return memory

        return spread

    def declare_state_and_memory(self, previous_state):
        shape = (10_000,)
        return replace(previous_state, jit_mode=True, shape=shape), AllocationQuery(shape, previous_state.dtype)


def test_memory_of_an_operation_is_not_used_again_while_a_batch_refers_to_it(photos):
    held = [batch for (batch,) in loader(photos, Spread())]
    assert len({batch.data_ptr() for batch in held}) == 5
    assert [label for batch in held for label in batch[:, -1].tolist()] == labels(loader(photos))


class Broken(Add):
    """Reads a name that there is not."""

    def generate_code(self):
        def broken(labels, memory):
            return labels + nothing_of_this_name  # noqa: F821  (under test)

        return broken


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have no notes")
@pytest.mark.parametrize("is_enabled", [False, True])
def test_an_error_in_an_operation_names_it_and_the_line_of_its_code(photos, is_enabled, monkeypatch):
    monkeypatch.setattr(Compiler, "is_enabled", is_enabled)
    with pytest.raises(Exception, match="nothing_of_this_name") as caught:
        next(iter(loader(photos, Broken(1))))
    line = Broken.generate_code.__code__.co_firstlineno + 1
    assert f"in Broken ({__file__}:{line})" in caught.value.__notes__


class RaisesAgain(Add):
    """Raises the same object for each batch, as Numba does for what it cannot compile."""

    error = ValueError("one object")

    def generate_code(self):
        def fail(labels, memory):
            raise self.error

        return fail

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=False), None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have no notes")
def test_an_error_that_is_raised_again_has_the_notes_of_the_last_time_alone(photos):
    for _ in range(3):
        with pytest.raises(ValueError, match="one object") as caught:
            next(iter(loader(photos, RaisesAgain(1))))
        assert sum(note.startswith("in RaisesAgain") for note in caught.value.__notes__) == 1
        assert sum("batch 0" in note for note in caught.value.__notes__) == 1


WEIGHTS = np.array([1], np.int64)
SHADE = np.array([10], np.uint8)


class AddWeight(Add):
    """Adds a number out of an array of the module."""

    def generate_code(self):
        def add_weight(labels, memory):
            memory[:] = labels + WEIGHTS[0]
            return memory

        return add_weight


class Shade(Operation):
    """Fills images with a level out of an array of the module."""

    def generate_code(self):
        def shade(images, memory):
            images[:] = SHADE[0]
            return images

        return shade

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=True), None


class Corner(ResizedCropRGBImageDecoder):
    """A box whose position is read from an array of the module."""

    scale = ratio = None

    @property
    def get_crop_generator(self):
        def corner(height, width, scale, ratio):
            return WEIGHTS[0], 0, 8, 8

        return corner


def seen(path, recompile):
    """What two epochs make of arrays of the module, which are changed in between: label, pixel, crop."""
    loader, epochs = reading(path, recompile=recompile), []
    for number in range(2):
        WEIGHTS[0], SHADE[0] = 1 + number, 10 + number
        epochs.append(next(read(loader)))
    Compiler.forget()
    return epochs


def test_with_recompile_the_code_of_each_epoch_reads_current_values(photos):
    assert seen(photos, recompile=True) == [(1, 10, 1), (2, 11, 2)]
    assert seen(photos, recompile=False) == [(1, 10, 1), (1, 10, 1)]


def read(loader):
    """What each batch of the next epoch made of arrays of the module: label, pixel, crop."""
    for images, labels, drawn in loader:
        yield int(labels[0, 0]), int(images[0, 0, 0, 0]), int(drawn["crop"][0, 0])


def reading(path, **arguments):
    pipelines = {**dict.fromkeys(["weight", "note", "info", "vector"]), "crop": DrawnParameters("image")}
    pipelines["image"] = [Corner((8, 8)), Shade(), ToTensor()]
    pipelines["label"] = [IntDecoder(), AddWeight(0), ToTensor()]
    return Loader(path, 10, num_workers=1, batches_ahead=1, indices=[0] * 50, pipelines=pipelines, **arguments)


def test_other_loaders_that_are_made_in_an_epoch_leave_it_as_it_is(photos):
    WEIGHTS[0], SHADE[0] = 2, 20
    loader = reading(photos)
    batches = read(loader)
    assert next(batches) == (2, 20, 2)
    WEIGHTS[0], SHADE[0] = 3, 30
    other = reading(photos)
    assert list(batches) == [(2, 20, 2)] * 4
    assert (list(read(other)), list(read(loader))) == ([(3, 30, 3)] * 5, [(2, 20, 2)] * 5)


def test_compiled_code_reads_globals_when_the_first_loop_begins(photos):
    WEIGHTS[0], SHADE[0] = 4, 40
    first, second = reading(photos), reading(photos)
    WEIGHTS[0], SHADE[0] = 5, 50
    assert list(read(first)) == [(5, 50, 5)] * 5
    WEIGHTS[0], SHADE[0] = 4, 40
    assert list(read(second)) == [(4, 40, 4)] * 5
    assert list(read(first)) == [(5, 50, 5)] * 5
    first.generate_code()
    assert list(read(first)) == [(4, 40, 4)] * 5
