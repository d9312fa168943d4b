"""A ring buffer of batches in shared memory, and the loops in which workers make its images.

Workers take tickets, one for each image, from a counter: who finishes an image takes the next one of any batch. There
is no barrier between batches, and no lock and no Python between images. Workers wait for images without the GIL, on a
semaphore: the threads that wake them and that they wake do not fight for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpubeton._batch.step_code import carry_out
from gpubeton._batch.step_rows import BRIGHTNESS, HUE, KEEP, KIND, SPAN, STEP_COLUMNS
from gpubeton._compile.compile import compiled, compiled_with_notice, device_function, inline_untyped
from gpubeton._compile.intrinsics import (
    atomic_add,
    atomic_claim,
    atomic_fence,
    atomic_load,
    atomic_store,
    clock_nanoseconds,
    load_u8,
    semaphore_post,
    semaphore_tokens,
    semaphore_wait,
    store_u8,
    u8_at,
)
from gpubeton._cpu.color_simd import change_colors
from gpubeton._cpu.epilogue import (
    FIRST_STEP,
    IS_GRAY,
    NUM_STEPS,
    OUT_HEIGHT,
    OUT_WIDTH,
    Outputs,
    fill_rects,
)
from gpubeton._cpu.image_tasks import (
    ADDRESS,
    CHECKSUM,
    IMAGE_HEIGHT,
    IMAGE_WIDTH,
    IS_LATER_VIEW,
    JPEG,
    MODE,
    NEXT_VIEW,
    PACKED,
    PROGRAM,
    RAW_OTHER,
    SIZE,
    TARGET,
    TASK_FIELDS,
    VIEW_IMAGE,
    VIEW_PROGRAM,
    VIEW_TARGET,
    box_of,
    epilogue_of,
    needs_staging,
)
from gpubeton._cpu.jpeg.codes import NO_MEMORY, NOT_UNPACKED, OK, WRONG_CHECKSUM, WRONG_CROP, WRONG_SIZE
from gpubeton._cpu.jpeg.picture import decode_picture
from gpubeton._cpu.other_kinds import finish_levels, make_other_kind
from gpubeton._cpu.resample import resample_rgb
from gpubeton._cpu.stored_bytes import crc32
from gpubeton._cpu.system_calls import CPU_CLOCK, WALL_CLOCK, begin_semaphore
from gpubeton._plan.draw_rows import HEIGHT, LEFT, RESIZED_HEIGHT, RESIZED_WIDTH, TOP, WIDTH

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array
    from gpubeton._cpu.image_tasks import Scratch
    from gpubeton._cpu.other_kinds import OtherKindsScratch

# Words of `Ring.control`. Each that changes has its own cache line.
NEXT = 0  # the next ticket
PUBLISHED = 8  # the first ticket that may not be taken yet
CLOSED = 16  # 1: take no more tickets
_CONTROL_WORDS = 24

# Rows of `Ring.semaphores`.
_TICKETS = 0  # a token for each worker that has to look for images
_MADE = 1  # a token for each batch that is made, and for each failure
_SEMAPHORE_WORDS = 8  # a `sem_t` takes four; each has its own cache line

# Columns of `Ring.clocks`, in nanoseconds; a reader gets each of them whole.
BUSY = 0  # time with work to do; minus the time of the clock now, if the worker is at work: then it is negative
CPU = 1  # processor time until the last batch or wait
_CPU_BEGUN = 2  # reading of the processor clock when the work that is not counted yet began
_CLOCK_WORDS = 8

# The events at which `work` returns to Python.
IDLE = 0  # no tickets left for now; on a ring with workers: it is shut
REFUSED = 1  # the crop decoder refused an image: make it in another way, then call `complete`
BATCH_DONE = 2  # this worker finished the last image of a batch; only on a ring without workers
OUTGROWN = 3  # the next image needs more memory than this worker has
OTHER_KIND = 4  # the next image is for the other loop: RGB ones for `work`, all others for `work_other_kinds`
_TAKEN = 5  # none: the worker has an image to make


class Ring(NamedTuple):
    """The arrays of a ring buffer of S batches of T images each."""

    control: Array  # (_CONTROL_WORDS,) int64
    remaining: Array  # (S,) int64: images of each batch still to be made
    tasks: Array  # (S, T, TASK_FIELDS) int64: see `image_tasks`
    draws: Array  # (S, T, D) int32: see `gpubeton._plan.draw_rows`; the last columns are step rows
    codes: Array  # (S, T) int64: see `jpeg.codes`
    semaphores: Array  # (2, _SEMAPHORE_WORDS) int64
    clocks: Array  # (W, _CLOCK_WORDS) int64, of the workers that wait for images; without any, `work` returns instead


def allocate_ring(batches: int, images: int, draw_columns: int, workers: int = 0) -> Ring:
    """Allocate a ring buffer without tickets."""
    semaphores = np.zeros((2, _SEMAPHORE_WORDS), np.int64)
    for semaphore in semaphores:
        begin_semaphore(semaphore)
    return Ring(
        control=np.zeros(_CONTROL_WORDS, np.int64),
        remaining=np.zeros(batches, np.int64),
        tasks=np.zeros((batches, images, TASK_FIELDS), np.int64),
        draws=np.zeros((batches, images, draw_columns), np.int32),
        codes=np.zeros((batches, images), np.int64),
        semaphores=semaphores,
        clocks=np.zeros((workers, _CLOCK_WORDS), np.int64),
    )


@compiled
def write_tasks(
    ring: Ring,
    slot: int,  # of the batch
    program: int,
    first: int,  # the tasks from `first` to `stop` are written; those without an image stay empty
    stop: int,
    stored: tuple[Array, Array, Array, Array, Array, Array],  # see below
    draws: Array,  # (N, D) int32
    target: int,  # address of the first output image
    stride: int,  # bytes from one to the next
) -> None:
    """Write the images of one output of a batch."""
    # (N,) uint64, uint64, int32, int32 and uint8, as in `ImageJob`; and (256,) int64: the MODE for each `mode`.
    address, size, height, width, mode, modes = stored
    tasks, rows, codes = ring.tasks[slot], ring.draws[slot], ring.codes[slot]
    for image in range(first, stop):
        task, number = tasks[image], image - first
        codes[image] = OK
        for column in range(TASK_FIELDS):
            task[column] = 0
        if number < len(address):
            task[ADDRESS], task[SIZE] = address[number], size[number]
            task[IMAGE_HEIGHT], task[IMAGE_WIDTH] = height[number], width[number]
            task[MODE], task[PROGRAM] = modes[mode[number]], program
            task[TARGET] = target + number * stride
            for column in range(draws.shape[1]):
                rows[image, column] = draws[number, column]


@compiled
def publish(ring: Ring, batch: int) -> None:
    """Let the workers take the images of a batch; its tasks and draws are written."""
    batches, images = ring.codes.shape
    atomic_store(ring.remaining.ctypes.data + 8 * (batch % batches), images)
    atomic_store(ring.control.ctypes.data + 8 * PUBLISHED, (batch + 1) * images)
    _wake_workers(ring)


@device_function
def _wake_workers(ring: Ring) -> None:
    """Let every worker that waits look for images."""
    # A worker that takes a token that is there already will see the present tickets, too.
    atomic_fence()
    tickets = ring.semaphores[_TICKETS].ctypes.data
    for _ in range(semaphore_tokens(tickets), len(ring.clocks)):
        semaphore_post(tickets)


@compiled
def complete(ring: Ring, ticket: int, code: int) -> bool:
    """Set the code of an image that was REFUSED; return True if it was the last of its batch."""
    batches, images = ring.codes.shape
    batch = (ticket // images) % batches
    ring.codes[batch, ticket % images] = code
    return _count(ring, batch)


@compiled
def give_up(ring: Ring, ticket: int) -> None:
    """Give an image and its later views the code NO_MEMORY, unless a worker with more memory has taken it."""
    if atomic_claim(ring.control.ctypes.data + 8 * NEXT, ticket, ticket + 1) == 0:
        return
    batches, images = ring.codes.shape
    batch, image = (ticket // images) % batches, ticket % images
    while True:
        ring.codes[batch, image] = NO_MEMORY
        image = ring.tasks[batch, image, NEXT_VIEW]
        if image == 0:
            break
    _count(ring, batch)


@device_function
def _count(ring: Ring, batch: int) -> bool:
    """Count an image that is made; return True, and wake the thread that collects, if it was the last of its batch."""
    if atomic_add(ring.remaining.ctypes.data + 8 * batch, -1) != 1:
        return False
    semaphore_post(ring.semaphores[_MADE].ctypes.data)
    return True


@compiled
def await_batch(ring: Ring, batch: int, may_wait: bool) -> bool:
    """Return True if all images of a batch are made; first wait until a batch is made or `wake` is called."""
    if may_wait:
        semaphore_wait(ring.semaphores[_MADE].ctypes.data)
    return bool(atomic_load(ring.remaining.ctypes.data + 8 * (batch % len(ring.remaining))) == 0)


@compiled
def wake(ring: Ring, is_shut: bool) -> None:
    """Let the thread that collects look for the reason; with `is_shut`, let the workers take no more images."""
    if is_shut:
        atomic_store(ring.control.ctypes.data + 8 * CLOSED, 1)
        _wake_workers(ring)
    semaphore_post(ring.semaphores[_MADE].ctypes.data)


# --- the time of the workers ------------------------------------------------------------------------------------------


@device_function
def _count_cpu(clock: Array) -> None:
    now = clock_nanoseconds(CPU_CLOCK)
    clock[CPU] += now - clock[_CPU_BEGUN]
    clock[_CPU_BEGUN] = now


@device_function
def _await_tickets(ring: Ring, worker: int) -> bool:
    """Wait until there are images that no worker has taken; return False if the ring is shut."""
    control, clock = ring.control.ctypes.data, ring.clocks[worker]
    if clock[BUSY] < 0:
        _count_cpu(clock)
        clock[BUSY] += clock_nanoseconds(WALL_CLOCK)
    while atomic_load(control + 8 * CLOSED) == 0:
        if atomic_load(control + 8 * NEXT) < atomic_load(control + 8 * PUBLISHED):
            clock[_CPU_BEGUN] = clock_nanoseconds(CPU_CLOCK)
            clock[BUSY] -= clock_nanoseconds(WALL_CLOCK)
            return True
        semaphore_wait(ring.semaphores[_TICKETS].ctypes.data)
        atomic_fence()
    return False


@compiled
def await_tickets(ring: Ring, worker: int) -> bool:
    """Wait for the first images; return False if the ring is shut."""
    return _await_tickets(ring, worker)


# --- one RGB image and its views --------------------------------------------------------------------------------------


@device_function
def _list_views(tasks: Array, draws: Array, codes: Array, image: int, outputs: Outputs, scratch: Scratch) -> int:
    """Write an image and its later views to `scratch.views`, except for wrong crops; return their number."""
    height, width = tasks[image, IMAGE_HEIGHT], tasks[image, IMAGE_WIDTH]
    count = 0
    while True:
        draw, program = draws[image], tasks[image, PROGRAM]
        codes[image] = OK
        is_empty = draw[TOP] < 0 or draw[LEFT] < 0 or draw[HEIGHT] < 1 or draw[WIDTH] < 1
        if is_empty or draw[TOP] + draw[HEIGHT] > height or draw[LEFT] + draw[WIDTH] > width:
            codes[image] = WRONG_CROP
        else:
            view = scratch.views[count]
            # Both begin with top, left, height, width, flip, shifts and resized size.
            for column in range(RESIZED_WIDTH + 1):
                view[column] = draw[column]
            view[RESIZED_HEIGHT] = draw[RESIZED_HEIGHT] or outputs.settings[program, OUT_HEIGHT]
            view[RESIZED_WIDTH] = draw[RESIZED_WIDTH] or outputs.settings[program, OUT_WIDTH]
            view[VIEW_IMAGE], view[VIEW_PROGRAM] = image, program
            view[VIEW_TARGET] = tasks[image, TARGET]
            if needs_staging(outputs.settings[program]):
                view[VIEW_TARGET] = scratch.staging[count].ctypes.data
            count += 1
        image = tasks[image, NEXT_VIEW]
        if image == 0:
            return count


@device_function
def _make_gray(pixels: int, count: int) -> None:
    """Make RGB pixels gray, in place; a gray JPEG has three equal channels."""
    for i in range(count):
        pixel = pixels + 3 * i
        # Pillow's weights, which add up to one.
        value = 19595 * load_u8(pixel) + 38470 * load_u8(pixel + 1) + 7471 * load_u8(pixel + 2) + 32768
        store_u8(pixels + i, value >> 16)


@device_function
def _stop_of(rows: Array, start: int, count: int, is_colors: bool) -> int:
    """Return the end of the step rows from `start` on that are colors, or that are none; KEEP is both."""
    row = start
    while row < count:
        kind = rows[STEP_COLUMNS * row + KIND]
        if kind != KEEP and (BRIGHTNESS <= kind <= HUE) != is_colors:
            break
        row += max(rows[STEP_COLUMNS * row + SPAN], 1)
    return row


@device_function
def _carry_out_steps(rows: Array, program: int, staging: int, target: int, outputs: Outputs, scratch: Scratch) -> None:
    """Carry out the steps of an RGB image, and store it."""
    final, layout = outputs.settings[program], outputs.layouts[program].ctypes.data
    image, other, memory = staging, scratch.steps.other.ctypes.data, scratch.steps.memory.ctypes.data
    height, width, count, start = final[OUT_HEIGHT], final[OUT_WIDTH], final[NUM_STEPS], 0
    factors, table, is_stored = outputs.factors[program], outputs.tables[program], False
    while not is_stored:
        # The last run of colors is stored from registers.
        stop = _stop_of(rows, start, count, True)
        is_stored = stop == count
        if stop > start or is_stored:
            pixels = u8_at(image, 3 * height * width).reshape((height, width, 3))
            run = rows[STEP_COLUMNS * start : STEP_COLUMNS * stop]
            change_colors(pixels, run, scratch.colors, target if is_stored else 0, final, factors, table)
        start, stop = stop, _stop_of(rows, stop, count, False)
        if carry_out(rows, start, stop, outputs.step_addresses, image, other, memory, layout) != image:
            image, other = other, image
        start = stop


@device_function
def _complete_view(draw: Array, place: int, target: int, outputs: Outputs, scratch: Scratch) -> None:
    """Fill the rectangles of a view that is resampled, and carry out its steps."""
    view = scratch.views[place]
    program = view[VIEW_PROGRAM]
    output, _, _ = epilogue_of(view, outputs)
    final, image = outputs.settings[program], view[VIEW_TARGET]
    if final[IS_GRAY] != 0:
        _make_gray(image, final[OUT_HEIGHT] * final[OUT_WIDTH])
    fill_rects(draw, output, outputs.fills, image)
    rows = draw[final[FIRST_STEP] : final[FIRST_STEP] + STEP_COLUMNS * final[NUM_STEPS]]
    if final[IS_GRAY] != 0:
        finish_levels(rows, program, image, target, outputs, scratch.steps)
    elif final[NUM_STEPS] > 0:
        _carry_out_steps(rows, program, image, target, outputs, scratch)


@inline_untyped
def make_image(
    tasks: Array,  # (T, TASK_FIELDS) int64: the images of a batch
    draws: Array,  # (T, D) int32
    codes: Array,  # (T,) int64, written for the image and its views; only with OK an output image is complete
    image: int,
    outputs: Outputs,
    scratch: Scratch,
) -> int:
    """Make one output image and its later views; return the code of the stored image."""
    count = _list_views(tasks, draws, codes, image, outputs, scratch)
    task = tasks[image]
    height, width = task[IMAGE_HEIGHT], task[IMAGE_WIDTH]
    code = OK
    if task[MODE] != JPEG and task[SIZE] != height * width * 3:
        code = WRONG_SIZE
    elif task[MODE] == JPEG and count > 0:
        code = decode_picture(task, count, outputs, scratch)
    for place in range(count):
        view = scratch.views[place]
        image_of_view = view[VIEW_IMAGE]
        if code == OK and task[MODE] != JPEG:
            output, factors, table = epilogue_of(view, outputs)
            box = box_of(view)
            resample_rgb(task[ADDRESS], 3 * width, box, output, factors, table, view[VIEW_TARGET], scratch)
        if code == OK:
            _complete_view(draws[image_of_view], place, tasks[image_of_view, TARGET], outputs, scratch)
        codes[image_of_view] = code
    return code


# --- the loops --------------------------------------------------------------------------------------------------------


@device_function
def _take(ring: Ring, is_other_kind: bool, capacity: Array, worker: int) -> tuple[int, int]:
    """Take the next image for one of the two loops, or wait for it; return _TAKEN or another event, and the ticket."""
    control = ring.control.ctypes.data
    batches, images = ring.codes.shape
    while True:
        ticket = atomic_load(control + 8 * NEXT)
        if atomic_load(control + 8 * CLOSED) != 0 or ticket >= atomic_load(control + 8 * PUBLISHED):
            if len(ring.clocks) > 0 and _await_tickets(ring, worker):
                continue
            return IDLE, ticket
        task = ring.tasks[(ticket // images) % batches, ticket % images]
        mode = task[MODE]
        # Both loops can take the tasks without work and the files that Python decodes.
        if task[TARGET] != 0 and mode != PACKED and (mode == RAW_OTHER) != is_other_kind:
            return OTHER_KIND, ticket
        # Before the claim: a batch published while this loop ran may have the largest image so far.
        size = task[SIZE] if mode == JPEG else 0
        is_larger = task[IMAGE_HEIGHT] > capacity[0] or task[IMAGE_WIDTH] > capacity[1] or size > capacity[2]
        if is_larger and task[IS_LATER_VIEW] == 0:
            return OUTGROWN, ticket
        if atomic_claim(control + 8 * NEXT, ticket, ticket + 1) != 0:
            return _TAKEN, ticket


@device_function
def _check(task: Array) -> int:
    """Compare the bytes of an image with their checksum; return OK if it can be made from them here."""
    if task[CHECKSUM] != 0 and crc32(task[ADDRESS], task[SIZE]) != task[CHECKSUM]:
        return WRONG_CHECKSUM
    return NOT_UNPACKED if task[MODE] == PACKED else OK


@compiled_with_notice
def work(ring: Ring, outputs: Outputs, scratch: Scratch, worker: int) -> tuple[int, int]:
    """Make RGB images until an event that Python has to handle; return it and its ticket."""
    batches, images = ring.codes.shape
    while True:
        event, ticket = _take(ring, False, scratch.capacity, worker)
        if event != _TAKEN:
            return event, ticket
        batch, image = (ticket // images) % batches, ticket % images
        task = ring.tasks[batch, image]
        if task[TARGET] != 0 and task[IS_LATER_VIEW] == 0:
            code = ring.codes[batch, image] = _check(task)
            if code == OK:
                code = make_image(ring.tasks[batch], ring.draws[batch], ring.codes[batch], image, outputs, scratch)
            if code not in (OK, WRONG_SIZE):
                return REFUSED, ticket
        if _count(ring, batch):
            if len(ring.clocks) == 0:
                return BATCH_DONE, ticket
            _count_cpu(ring.clocks[worker])


# A separate function, so that loaders of RGB images never compile it. The tasks of a batch are ordered by program, so
# workers seldom change from one loop to the other.
@compiled
def work_other_kinds(ring: Ring, outputs: Outputs, scratch: OtherKindsScratch, worker: int) -> tuple[int, int]:
    """Make images of other kinds until an event that Python has to handle; return it and its ticket."""
    batches, images = ring.codes.shape
    while True:
        event, ticket = _take(ring, True, scratch.capacity, worker)
        if event != _TAKEN:
            return event, ticket
        batch, image = (ticket // images) % batches, ticket % images
        task = ring.tasks[batch, image]
        if task[TARGET] != 0 and task[IS_LATER_VIEW] == 0:
            ring.codes[batch, image] = _check(task)
            if ring.codes[batch, image] != OK:
                return REFUSED, ticket
            ring.codes[batch, image] = make_other_kind(task, ring.draws[batch, image], outputs, scratch)
        if _count(ring, batch):
            if len(ring.clocks) == 0:
                return BATCH_DONE, ticket
            _count_cpu(ring.clocks[worker])
