from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpubeton._engine.run_batch_ops import ONE_PARALLEL_REGION, Shared, run_batch_ops
from gpubeton._plan.batch_ops import compile_batch_ops
from gpubeton.errors import PipelineError
from gpubeton.pipeline import AllocationQuery, Compiler, Operation, State
from gpubeton.transforms import Cutout, RandomHorizontalFlip, ToTensor
from tests.at_once import run_at_once

LABEL = State(True, torch.device("cpu"), (1,), np.dtype("int64"))
SAMPLES = np.array([4, 8, 6], np.uint64)


def run(operations, batch, state=LABEL):
    return run_batch_ops(compile_batch_ops(operations, state, field_number=1), batch, 0, 0, SAMPLES)


class Shift(Operation):
    """Adds a number in Numba, into declared memory."""

    def __init__(self, amount):
        super().__init__()
        self.amount = amount

    def generate_code(self):
        amount, my_range = self.amount, Compiler.get_iterator()

        def shift(batch, memory):
            for row in my_range(len(batch)):
                memory[row] = batch[row] + amount
            return memory

        shift.is_parallel = True
        return shift

    def declare_state_and_memory(self, previous_state):
        dtype = np.float32  # a type, not a dtype: FFCV's examples write both
        return replace(previous_state, jit_mode=True, dtype=dtype), AllocationQuery(previous_state.shape, dtype)


class AddIndex(Operation):
    """Adds the sample's id, in plain Python or in Numba."""

    def __init__(self, jit_mode):
        self.jit_mode = jit_mode

    def generate_code(self):
        def add_index(batch, memory, indices):
            for row in range(len(batch)):
                batch[row] += indices[row]
            return batch

        add_index.with_indices = True
        return add_index

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=self.jit_mode), None


class ShowMemory(Operation):
    """Returns what memory it was given."""

    def __init__(self, *queries):
        self.queries = queries

    def generate_code(self):
        return lambda _batch, memory: memory

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=False), self.queries if len(self.queries) != 1 else self.queries[0]


def test_a_users_operation_is_compiled_gets_memory_for_each_batch_and_stays_as_it_is():
    operation = Shift(0.5)
    before = dict(vars(operation))
    tail = compile_batch_ops([operation, ToTensor()], LABEL, field_number=1)
    first, second = (run_batch_ops(tail, np.array([[1], [2], [value]]), 0, 0, SAMPLES) for value in (3, 4))
    assert (first.tolist(), second.tolist()) == ([[1.5], [2.5], [3.5]], [[1.5], [2.5], [4.5]])
    assert tail.state.dtype is torch.float32
    assert hasattr(tail.steps[0].code, "py_func")
    assert vars(operation) == before


@pytest.mark.parametrize("jit_mode", [True, False])
def test_the_function_that_fills_shared_memory_is_compiled_with_the_operation(jit_mode):
    class Shares(AddIndex):
        def declare_shared_memory(self, previous_state):
            return AllocationQuery(previous_state.shape, previous_state.dtype)

        def generate_code_for_shared_state(self):
            return lambda _shared: None

    (step,) = compile_batch_ops([Shares(jit_mode)], LABEL, field_number=1).steps
    assert step.shared_memory.query == AllocationQuery((1,), np.dtype("int64"))
    assert hasattr(step.shared_memory.fill, "py_func") is jit_mode
    assert compile_batch_ops([AddIndex(jit_mode)], LABEL, field_number=1).steps[0].shared_memory is None


@pytest.mark.parametrize("jit_mode", [True, False])
def test_an_operation_with_indices_gets_the_sample_ids(jit_mode, monkeypatch):
    assert run([AddIndex(jit_mode)], np.array([[10.0], [20.0], [30.0]])).tolist() == [[14.0], [28.0], [36.0]]


def test_compilation_can_be_switched_off(monkeypatch):
    monkeypatch.setattr(Compiler, "is_enabled", False)
    tail = compile_batch_ops([AddIndex(jit_mode=True)], LABEL, field_number=1)
    assert not hasattr(tail.steps[0].code, "py_func")
    assert run_batch_ops(tail, np.zeros((3, 1)), 0, 0, SAMPLES).tolist() == [[4.0], [8.0], [6.0]]


def test_memory_comes_as_array_tensor_or_several():
    array, tensor = AllocationQuery((2, 3), np.uint8), AllocationQuery((4,), torch.float16)
    assert run([ShowMemory(array)], None).shape == (3, 2, 3)
    assert run([ShowMemory(tensor)], None).dtype is torch.float16
    several = run([ShowMemory(array, tensor)], None)
    assert (several[0].dtype, several[1].shape) == (np.uint8, (3, 4))
    elsewhere = run([ShowMemory(AllocationQuery((2,), np.dtype("float32"), torch.device("meta")))], None)
    assert (elsewhere.device.type, elsewhere.dtype) == ("meta", torch.float32)


def test_a_parallel_operation_runs_alone():
    class SeesTheLock(ShowMemory):
        def generate_code(self):
            def see(_batch, _memory):
                return ONE_PARALLEL_REGION.locked()

            see.is_parallel = True
            return see

    assert run([SeesTheLock()], None) is True
    assert not ONE_PARALLEL_REGION.locked()


def test_parallel_operations_of_two_threads_do_not_meet(monkeypatch):
    monkeypatch.setattr(Compiler, "num_threads", 2)
    tail = compile_batch_ops([Shift(1.0)], LABEL, field_number=1)
    wrong = []

    def repeat(value):
        results = [run_batch_ops(tail, np.full((3, 1), value), 0, 0, SAMPLES) for _ in range(50)]
        wrong.extend(result for result in results if (result != value + 1).any())

    run_at_once(repeat, (1, 2))
    assert wrong == []


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_each_branch_of_a_result_gets_a_copy_with_the_same_strides(kind):
    shared, owner = Shared(), object()
    batch = kind(np.arange(2 * 3 * 4 * 5).reshape(2, 4, 5, 3).transpose(0, 3, 1, 2))
    expected, axes = batch.tolist(), torch.as_tensor(batch).stride()
    shared.keep(owner, batch)
    batch[:] = 0
    for is_last in (False, False, True):
        copy = shared.result(owner, is_last=is_last)
        assert copy.tolist() == expected
        assert torch.as_tensor(copy).stride() == axes
        copy[:] = 0


def test_random_operations_differ_from_each_other_and_between_fields_and_count_from_those_before():
    images = State(True, torch.device("cpu"), (8, 8, 3), np.dtype("uint8"))
    operations = [Cutout(2, (1, 1, 1)), RandomHorizontalFlip(), Cutout(2, (2, 2, 2))]
    tails = [compile_batch_ops(operations, images, field_number=number) for number in (1, 2)]
    assert [step.rng_stream for step in tails[0].steps] == [0x10000, 0x10001, 0x10002]
    first, second = (run_batch_ops(tail, np.zeros((3, 8, 8, 3), np.uint8), 0, 0, SAMPLES) for tail in tails)
    assert not np.array_equal(first, second)
    tail = compile_batch_ops([ToTensor(), Cutout(2)], images, field_number=1, ordinal=3)
    assert [step.rng_stream for step in tail.steps] == [None, 0x10003]


class OnlyAState(Shift):
    def declare_state_and_memory(self, previous_state):
        return previous_state


class NoFunction(Shift):
    def generate_code(self):
        return None


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([OnlyAState(1)], "OnlyAState.declare_state_and_memory returned State"),
        ([NoFunction(1)], "NoFunction.generate_code returned None"),
        ([ToTensor(), Shift(1.0)], r"Shift .*ToTensor"),
    ],
)
def test_an_operation_that_returns_the_wrong_thing_or_needs_an_array_is_refused_by_name(operations, message):
    with pytest.raises(PipelineError, match=message):
        compile_batch_ops(operations, LABEL, field_number=1)
