"""Calls of one function in several threads at once."""

from __future__ import annotations

import threading


def run_at_once(function, arguments):
    """Call a function with each argument in a thread; return when all have ended."""
    threads = [threading.Thread(target=function, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
