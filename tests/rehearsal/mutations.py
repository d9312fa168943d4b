"""Waits and switches of the device layer that a rehearsal can leave out: what notices it, is shown by its report."""

from __future__ import annotations

from contextlib import nullcontext

import torch

from gpubeton._gpu.cuda import Device, Event, Stream


def _nothing(*_):
    """In place of a wait."""


def _leave_out(owner, name, instead=_nothing):
    return lambda: setattr(owner, name, instead)


def _hand_over_without_waiting():
    import cupy

    cupy.cuda.runtime.streamWaitEvent = _nothing


def _ask_without_forgetting():
    import cupy

    cupy.cuda.runtime.check_status = _nothing


#: Each mutation, with the function that makes it.
MUTATIONS = {
    "tensors handed over are not recorded on the stream": _leave_out(torch.Tensor, "record_stream"),
    "the stream that gets tensors does not wait for them": _hand_over_without_waiting,
    "a stream does not wait for an event": _leave_out(Stream, "wait"),
    "events are not recorded": _leave_out(Event, "record"),
    "the host does not wait for an event": _leave_out(Event, "synchronize"),
    "the host does not wait for a stream": _leave_out(Stream, "synchronize"),
    "every event is taken for done": _leave_out(Event, "is_done", instead=True),
    "that an event is not ready stays the thread's last error": _ask_without_forgetting,
    "torch works on the stream that was current before": _leave_out(Device, "using", instead=lambda *_: nullcontext()),
    "the device is not made current": _leave_out(Device, "active", instead=lambda _: nullcontext()),
}
