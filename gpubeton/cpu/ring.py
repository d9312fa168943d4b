"""A ring of batches in shared memory, and the loop in which a worker takes images off it.

Workers take tickets, one for each image, from a counter; whoever has finished an image takes the next one, of whichever
batch. There is no barrier between batches, no lock and no Python between images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpubeton.cpu.compile import compiled, compiled_with_notice, stage
from gpubeton.cpu.image import (
    IMAGE_HEIGHT,
    IMAGE_WIDTH,
    IS_LED,
    JPEG,
    MODE,
    PACKED,
    PLAIN,
    SIZE,
    TARGET,
    TASK_FIELDS,
    make_image,
)
from gpubeton.cpu.jpeg.codes import NOT_UNPACKED, OK, WRONG_SIZE
from gpubeton.cpu.memory import atomic_add, atomic_claim, atomic_load, atomic_store

if TYPE_CHECKING:
    from gpubeton.cpu.output import Outputs
    from gpubeton.cpu.scratch import Scratch
    from gpubeton.cpu.types import Array

# `Ring.control`, int64; a cache line for each word that changes.
NEXT = 0  # the next ticket to take
PUBLISHED = 8  # the first ticket that may not be taken yet
CLOSED = 16  # 1: take no more tickets
_CONTROL_WORDS = 24

# What `work` returns first.
IDLE = 0  # no tickets left for now
REFUSED = 1  # the crop decoder refused an image; someone else must make it, then call `complete`
BATCH_DONE = 2  # this worker finished the last image of a batch
OUTGROWN = 3  # the next image needs more memory than this worker has
OTHER_KIND = 4  # the next image is for the other loop: RGB ones for `work`, all others for `plain.ring.work_plain`


class Ring(NamedTuple):
    """The arrays of a ring of S batches of T images each."""

    control: Array  # int64 (_CONTROL_WORDS,)
    remaining: Array  # int64 (S,): images of each batch still to be made
    tasks: Array  # int64 (S, T, TASK_FIELDS): see `image`; a TARGET of 0: nothing to do
    draws: Array  # int32 (S, T, D): see `gpubeton.plan.draws`
    codes: Array  # int64 (S, T): see `jpeg.codes`


def allocate_ring(batches: int, images: int, draw_columns: int) -> Ring:
    """Allocate an empty ring.

    Parameters
    ----------
    batches, images : int
        Batches in the ring and images in each.
    draw_columns : int
        Columns of the longest row of draws.

    Returns
    -------
    Ring
        Without tickets.
    """
    return Ring(
        control=np.zeros(_CONTROL_WORDS, np.int64),
        remaining=np.zeros(batches, np.int64),
        tasks=np.zeros((batches, images, TASK_FIELDS), np.int64),
        draws=np.zeros((batches, images, draw_columns), np.int32),
        codes=np.zeros((batches, images), np.int64),
    )


@stage
def _fits(task: Array, scratch: Scratch) -> bool:
    """Return whether the worker's memory is enough for an image."""
    side = max(task[IMAGE_HEIGHT], task[IMAGE_WIDTH])
    size = task[SIZE] if task[MODE] == JPEG else 0
    return bool(side <= scratch.capacity[0] and size <= scratch.capacity[1])


@compiled_with_notice
def work(ring: Ring, outputs: Outputs, scratch: Scratch) -> tuple[int, int]:
    """Make images until something happens that Python must see to.

    Parameters
    ----------
    ring : Ring
        Shared by all workers.
    outputs : Outputs
        What each program wants.
    scratch : Scratch
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
        if task[MODE] == PLAIN:
            return OTHER_KIND, ticket
        # Before the claim: a batch that was published while this loop ran may hold the largest image so far.
        if not _fits(task, scratch):
            return OUTGROWN, ticket
        if atomic_claim(control + 8 * NEXT, ticket, ticket + 1) == 0:
            continue
        if task[TARGET] != 0 and task[IS_LED] == 0:
            code = ring.codes[batch, image] = NOT_UNPACKED
            if task[MODE] != PACKED:
                code = make_image(ring.tasks[batch], ring.draws[batch], ring.codes[batch], image, outputs, scratch)
            if code not in (OK, WRONG_SIZE):
                return REFUSED, ticket
        if atomic_add(ring.remaining.ctypes.data + 8 * batch, -1) == 1:
            return BATCH_DONE, ticket


@compiled
def complete(ring: Ring, ticket: int, code: int) -> bool:
    """Set the code of an image that `work` refused; return whether it was the last of its batch."""
    batches, images = ring.codes.shape
    batch = (ticket // images) % batches
    ring.codes[batch, ticket % images] = code
    return bool(atomic_add(ring.remaining.ctypes.data + 8 * batch, -1) == 1)


@compiled
def publish(ring: Ring, batch: int) -> None:
    """Let the workers take the images of a batch whose tasks and draws are written."""
    batches, images = ring.codes.shape
    atomic_store(ring.remaining.ctypes.data + 8 * (batch % batches), images)
    atomic_store(ring.control.ctypes.data + 8 * PUBLISHED, (batch + 1) * images)


@compiled
def shut(ring: Ring) -> None:
    """Let the workers take no more images."""
    atomic_store(ring.control.ctypes.data + 8 * CLOSED, 1)


@compiled
def has_tickets(ring: Ring) -> bool:
    """Return whether there are images that no worker has taken."""
    control = ring.control.ctypes.data
    return bool(atomic_load(control + 8 * NEXT) < atomic_load(control + 8 * PUBLISHED))
