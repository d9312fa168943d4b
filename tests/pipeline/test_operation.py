from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from gpubeton.pipeline import AllocationQuery, Operation, PipelineSpec, State


class Keep(Operation):
    def generate_code(self):
        return lambda batch, _memory: batch

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=False), AllocationQuery((1,), np.dtype("uint8"))


def test_an_operation_knows_nothing_until_it_gets_its_field_and_metadata():
    keep = Keep()
    assert keep.field is keep.metadata is keep.memory_read is None
    keep.accept_field("field")
    keep.accept_globals("metadata", len)
    assert (keep.field, keep.metadata, keep.memory_read) == ("field", "metadata", len)
    spec = PipelineSpec("image")
    assert (spec.source, spec.decoder, spec.transforms) == ("image", None, None)


def test_a_state_is_replaced_not_changed():
    state = State(jit_mode=True, device="cpu", shape=(1,), dtype=np.dtype("uint8"))
    assert Keep().declare_state_and_memory(state)[0].jit_mode is False
    with pytest.raises(FrozenInstanceError):
        state.jit_mode = False
