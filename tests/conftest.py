"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

# A shell starts what it puts into the background deaf to Ctrl-C, and all that tests start would be so, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing is timed in a test: a busy machine is no bug. The examples are the same in every run, so that a change
# fails by its own fault only; `make fuzz` looks for new ones.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")
