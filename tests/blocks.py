"""Memory that is counted while it is alive."""

from __future__ import annotations

import weakref

from gpubeton._engine.buffers import allocate_block


class Blocks:
    """Allocates blocks, and knows the sizes of those that are alive."""

    def __init__(self):
        self.made = []

    def __call__(self, nbytes):
        block = allocate_block(nbytes)
        self.made.append(weakref.ref(block))
        return block

    def alive(self):
        return sorted(len(block()) for block in self.made if block() is not None)
