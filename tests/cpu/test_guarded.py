"""The memory between unreadable pages that other tests rely on."""

from __future__ import annotations

import ctypes
import os
import signal

import numpy as np
import pytest

from tests.cpu.guarded import Slots, guarded


def in_a_forked_process(function):
    """Call a function there; return how the process ended: an exit status, or minus a signal."""
    if not (child := os.fork()):
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # pytest's handler writes where the process was
        try:
            function()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(("side", "offset"), [("ending", 4), ("starting", -1)])
def test_a_byte_beyond_the_array_ends_the_process(side, offset):
    place = getattr(Slots(2, 100), side)(1, b"abcd")
    byte = (ctypes.c_uint8 * 1).from_address(place.ctypes.data + offset)
    assert in_a_forked_process(lambda: byte[0]) == -signal.SIGSEGV
    assert in_a_forked_process(lambda: place[0]) == 0


def test_a_forked_process_writes_into_its_copy_of_the_memory():
    array = guarded(np.zeros(10, np.int32))
    assert in_a_forked_process(lambda: array.fill(1)) == 0
    assert not array.any()
