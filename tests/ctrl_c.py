"""Ctrl-C, also where the shell that runs the tests ignores it."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture
def ctrl_c():
    """Make the signal of Ctrl-C raise KeyboardInterrupt, as in a program that is run from a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
