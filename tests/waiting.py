"""Waiting for other threads and processes."""

from __future__ import annotations

import time


def wait_until(condition):
    """Wait until a condition holds; pytest's limit for each test is the guard against hanging."""
    while not condition():
        time.sleep(0.001)
