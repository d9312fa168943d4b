"""The loop in which a worker takes images that are not RGB of 8 bits off the ring; see `gpubeton.cpu.ring`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.cpu.compile import compiled
from gpubeton.cpu.image import IMAGE_HEIGHT, IMAGE_WIDTH, IS_LED, MODE, PACKED, PLAIN, TARGET
from gpubeton.cpu.jpeg.codes import NOT_UNPACKED
from gpubeton.cpu.memory import atomic_add, atomic_claim, atomic_load
from gpubeton.cpu.plain.image import make_plain
from gpubeton.cpu.ring import BATCH_DONE, CLOSED, IDLE, NEXT, OTHER_KIND, OUTGROWN, PUBLISHED, REFUSED, Ring

if TYPE_CHECKING:
    from gpubeton.cpu.plain.output import PlainOutputs
    from gpubeton.cpu.plain.scratch import PlainScratch


@compiled
def work_plain(ring: Ring, outputs: PlainOutputs, scratch: PlainScratch) -> tuple[int, int]:
    """Make images until something happens that Python must see to.

    A function of its own, so that loaders of RGB images alone never compile it. Images of a batch stand on the ring
    program by program: workers seldom change between this loop and the other.

    Parameters
    ----------
    ring : Ring
        Shared by all workers.
    outputs : PlainOutputs
        What each program wants.
    scratch : PlainScratch
        This worker's memory.

    Returns
    -------
    tuple of int
        IDLE, REFUSED, BATCH_DONE, OUTGROWN or OTHER_KIND, and the ticket it is about.
    """
    control = ring.control.ctypes.data
    batches, images = ring.codes.shape
    while True:
        ticket = atomic_load(control + 8 * NEXT)
        if atomic_load(control + 8 * CLOSED) != 0 or ticket >= atomic_load(control + 8 * PUBLISHED):
            return IDLE, ticket
        batch, image = (ticket // images) % batches, ticket % images
        task = ring.tasks[batch, image]
        is_wanted = task[TARGET] != 0 and task[IS_LED] == 0
        if is_wanted and task[MODE] not in (PLAIN, PACKED):
            return OTHER_KIND, ticket
        if max(task[IMAGE_HEIGHT], task[IMAGE_WIDTH]) > scratch.capacity[0]:
            return OUTGROWN, ticket
        if atomic_claim(control + 8 * NEXT, ticket, ticket + 1) == 0:
            continue
        if is_wanted:
            if task[MODE] == PACKED:
                ring.codes[batch, image] = NOT_UNPACKED
                return REFUSED, ticket
            ring.codes[batch, image] = make_plain(task, ring.draws[batch, image], outputs, scratch)
        if atomic_add(ring.remaining.ctypes.data + 8 * batch, -1) == 1:
            return BATCH_DONE, ticket
