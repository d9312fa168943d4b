"""Users' operations."""

# ruff: noqa: NPY002  (as users of FFCV write it)
from __future__ import annotations

from dataclasses import replace

import numpy as np


def add(number, *, jit_mode=True, is_parallel=False):
    """A user's operation that declares memory."""

    def make(ffcv):
        class Add(ffcv.Operation):
            def generate_code(self):
                my_range = ffcv.Compiler.get_iterator()

                def code(batch, memory):
                    for row in my_range(batch.shape[0]):
                        memory[row] = batch[row] + number
                    return memory

                code.is_parallel = is_parallel
                return code

            def declare_state_and_memory(self, previous_state):
                query = ffcv.AllocationQuery(previous_state.shape, previous_state.dtype)
                return replace(previous_state, jit_mode=jit_mode), query

        return Add()

    return make


def add_index(ffcv):
    """A user's operation that receives the sample ids, with two arrays of memory."""

    class AddIndex(ffcv.Operation):
        def generate_code(self):
            def code(batch, memory, indices):
                sums, doubles = memory
                for row in range(batch.shape[0]):
                    sums[row] = batch[row] + 1000 * indices[row]
                    doubles[row] = 2 * sums[row]
                return doubles

            code.with_indices = True
            return code

        def declare_state_and_memory(self, previous_state):
            query = ffcv.AllocationQuery(previous_state.shape, previous_state.dtype)
            return replace(previous_state, jit_mode=True), (query, query)

    return AddIndex()


def corner(ffcv):
    """A user's operation that changes the shape and the type."""

    class Corner(ffcv.Operation):
        def generate_code(self):
            def code(images, memory):
                memory[:] = images[:, :4, :6]
                return memory

            return code

        def declare_state_and_memory(self, previous_state):
            state = replace(previous_state, shape=(4, 6, 3), dtype=np.dtype("float32"))
            return state, ffcv.AllocationQuery(state.shape, state.dtype)

    return Corner()


def dice(ffcv, *, jit_mode=True, with_indices=False):
    """A user's operation with memory shared by its pipelines; FFCV's sets decide which is first."""

    class Dice(ffcv.Operation):
        def declare_shared_memory(self, previous_state):
            return ffcv.AllocationQuery((1,), np.dtype("<i8"))

        def generate_code_for_shared_state(self):
            def fill(shared):
                np.random.seed(3)
                for row in range(shared.shape[0]):
                    shared[row, 0] = int(1000 * np.random.rand())

            return fill

        def generate_code(self):
            def code(batch, memory, shared):
                memory[:] = batch + shared
                return memory

            def code_with_indices(batch, memory, indices, shared):
                memory[:] = batch + shared
                memory[:, 0] -= indices.astype(np.int64)
                return memory

            code_with_indices.with_indices = True
            return code_with_indices if with_indices else code

        def declare_state_and_memory(self, previous_state):
            query = ffcv.AllocationQuery(previous_state.shape, previous_state.dtype)
            return replace(previous_state, jit_mode=jit_mode), query

    return Dice()
