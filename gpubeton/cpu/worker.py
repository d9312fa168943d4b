"""One worker: its memory, and the images that it makes, with libjpeg-turbo's help where needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.cpu.fallback import UndecodableError, bytes_at, decode_rgb, jpeg_size
from gpubeton.cpu.finish import BYTES, Finish
from gpubeton.cpu.image import (
    ADDRESS,
    IMAGE_HEIGHT,
    IMAGE_WIDTH,
    IS_LED,
    MODE,
    NEXT_VIEW,
    PACKED,
    PLAIN,
    PROGRAM,
    RAW,
    SIZE,
)
from gpubeton.cpu.jpeg.codes import OK, REASONS, WRONG_CROP, WRONG_SIZE
from gpubeton.cpu.output import (
    EARLY_PAINTS,
    FIELDS,
    FILLS,
    HEIGHT,
    INTERPOLATION,
    IS_GRAY,
    ITEM_SIZE,
    METHOD,
    NUM_STEPS,
    STEPS,
    WIDTH,
    Outputs,
)
from gpubeton.cpu.own_pixels import own_pixels
from gpubeton.cpu.plain.output import PlainOutputs, plain_outputs_of
from gpubeton.cpu.plain.ring import work_plain
from gpubeton.cpu.plain.scratch import PlainScratch, allocate_plain
from gpubeton.cpu.plain.unpack import unpack
from gpubeton.cpu.ring import OTHER_KIND, Ring, allocate_ring, publish, work
from gpubeton.cpu.scratch import Scratch, allocate
from gpubeton.format.field_arguments import RGB
from gpubeton.pipeline.interpolation import INTERPOLATIONS
from gpubeton.plan.draws import DRAW_COLUMNS, PAINT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.cpu.types import Array
    from gpubeton.plan.program import ImageProgram

# A code of an image that nobody can decode, beyond those of `jpeg.codes`.
UNDECODABLE = 100


def draw_columns(programs: Sequence[ImageProgram]) -> int:
    """Return how many numbers the longest row of draws has, with the steps on colours behind it."""
    return max(_steps_at(program) + 2 * program.num_colour_steps for program in programs)


def _steps_at(program: ImageProgram) -> int:
    return DRAW_COLUMNS + PAINT_COLUMNS * program.max_paints


def outputs_of(programs: Sequence[ImageProgram]) -> Outputs:
    """Translate programs for compiled code.

    Parameters
    ----------
    programs : sequence of ImageProgram
        The loader's image programs.

    Returns
    -------
    Outputs
        One row for each.
    """
    settings = np.zeros((len(programs), FIELDS), np.int64)
    finishes = []
    # Here RGB images are made, and gray JPEGs. Programs for others have rows of no meaning, see `plain`.
    fills = np.concatenate([_fills_of(program) for program in programs])
    first_fill = 0
    for row, program in zip(settings, programs, strict=True):
        finish = _finish_of(program)
        finishes.append(finish)
        row[HEIGHT], row[WIDTH] = program.height, program.width
        row[INTERPOLATION] = INTERPOLATIONS[program.interpolation]
        row[METHOD], row[ITEM_SIZE] = finish.method, finish.item_size
        row[FILLS] = first_fill
        row[STEPS], row[NUM_STEPS] = _steps_at(program), program.num_colour_steps
        row[EARLY_PAINTS] = program.early_paints
        row[IS_GRAY] = _is_gray(program)
        first_fill += len(_fills_of(program))
    levels = settings.copy()
    levels[:, METHOD], levels[:, ITEM_SIZE] = BYTES, 1
    return Outputs(
        settings,
        levels,
        np.stack([finish.factors for finish in finishes]),
        np.stack([finish.table for finish in finishes]),
        Finish(None).table,
        np.ascontiguousarray(fills),
        own_pixels(programs),
    )


def _is_gray(program: ImageProgram) -> bool:
    """Whether images may be gray JPEGs, of which one channel is written."""
    return program.kind.has_jpeg and program.kind != RGB


def _finish_of(program: ImageProgram) -> Finish:
    if _is_gray(program):
        return Finish(None if program.table is None else program.table.repeat(3, axis=1))
    # What is mixed is finished when the batch is complete.
    if program.mixing or program.kind != RGB:
        return Finish(None)
    return Finish(program.table, *(program.mean_std or (None, None)))


def _fills_of(program: ImageProgram) -> Array:
    if _is_gray(program):
        return program.fills.repeat(3, axis=1)
    return program.fills if program.kind == RGB else np.zeros((1, 3), np.uint8)


class Worker:
    """What one thread needs to make images.

    Parameters
    ----------
    programs : sequence of ImageProgram
        The loader's image programs.
    outputs : Outputs
        The same for compiled code.
    plain_outputs : PlainOutputs, optional
        The same for images that are not RGB of 8 bits; by default made of the programs.
    """

    def __init__(
        self, programs: Sequence[ImageProgram], outputs: Outputs, plain_outputs: PlainOutputs | None = None
    ) -> None:
        self._outputs = outputs
        self._kinds = [program.kind for program in programs]
        self._plain_programs = [program for program in programs if program.kind != RGB]
        self._plain_outputs = plain_outputs_of(programs) if plain_outputs is None else plain_outputs
        self._plain_scratch: PlainScratch | None = None
        # Which loop goes on; that of RGB images is not even compiled if there are none.
        self._is_plain = len(self._plain_programs) == len(self._kinds)
        self._sides = (
            max(program.height for program in programs),
            max(program.width for program in programs),
            min(min(program.height, program.width) for program in programs),
        )
        self._coloured = _largest_coloured(programs)
        self._num_programs = len(programs)
        self._scratch: Scratch | None = None
        self._largest = (0, 0)
        # What libjpeg-turbo decoded goes through the same code as a raw-stored image, on a ring of one.
        self._own = allocate_ring(1, 1, draw_columns(programs))

    def scratch(self, side: int, size: int) -> Scratch:
        """Return memory for images of up to `side` pixels and `size` bytes; it grows, and never shrinks."""
        if self._scratch is None or side > self._largest[0] or size > self._largest[1]:
            self._largest = (max(side, self._largest[0]), max(size, self._largest[1]))
            self._scratch = allocate(*self._largest, *self._sides, self._coloured, self._num_programs)
        return self._scratch

    def run(self, ring: Ring, side: int, size: int) -> tuple[int, int]:
        """Make images off a ring until Python must see to something; see `ring.work`."""
        while True:
            event: tuple[int, int]
            if self._is_plain:
                event = work_plain(ring, self._plain_outputs, self.plain_scratch(side))
            else:
                event = work(ring, self._outputs, self.scratch(side, size))
            if event[0] != OTHER_KIND:
                return event
            self._is_plain = not self._is_plain

    def plain_scratch(self, side: int) -> PlainScratch:
        """Return memory for images of up to `side` pixels that are not RGB of 8 bits; it grows, and never shrinks."""
        if self._plain_scratch is None or side > self._plain_scratch.capacity[0]:
            self._plain_scratch = allocate_plain(side, self._plain_programs)
        return self._plain_scratch

    def make_refused(self, ring: Ring, ticket: int) -> tuple[int, str]:
        """Make an image that the crop decoder refused or that is no JPEG, and its other views, whose codes are set.

        Parameters
        ----------
        ring : Ring
            Where the image's task is.
        ticket : int
            Its ticket.

        Returns
        -------
        tuple of int and str
            The image's own code, one of `jpeg.codes`, or UNDECODABLE, as it is for all views then, and why.
        """
        batches, images = ring.codes.shape
        batch, views = (ticket // images) % batches, views_of(ring, ticket)
        task, codes = ring.tasks[batch, views[0]], ring.codes[batch]
        refusal = REASONS[next(code for code in codes[views].tolist() if code not in (OK, WRONG_CROP))]
        kind, size = self._kinds[task[PROGRAM]], (int(task[IMAGE_HEIGHT]), int(task[IMAGE_WIDTH]))
        try:
            data = bytes_at(int(task[ADDRESS]), int(task[SIZE]))
            if task[MODE] == PACKED or kind != RGB:
                pixels = unpack(data, kind, size)
            else:
                # Before anything of that size is allocated.
                if jpeg_size(data) != size:
                    codes[views] = WRONG_SIZE
                    return WRONG_SIZE, ""
                pixels = decode_rgb(data)
        except UndecodableError as error:
            codes[views] = UNDECODABLE
            return UNDECODABLE, f"{refusal}; {error}"
        except Exception as error:  # noqa: BLE001 - nothing that a library raises over one image may end the loop
            codes[views] = UNDECODABLE
            return UNDECODABLE, f"{refusal}; {type(error).__name__}: {error}"
        own = self._own
        for image in views:
            own.control[:] = 0
            own.tasks[0, 0] = ring.tasks[batch, image]
            own.tasks[0, 0, [ADDRESS, SIZE, NEXT_VIEW, IS_LED]] = pixels.ctypes.data, pixels.nbytes, 0, 0
            own.tasks[0, 0, MODE] = RAW if kind == RGB else PLAIN
            own.draws[0, 0] = ring.draws[batch, image]
            publish(own, 0)
            self.run(own, max(pixels.shape[:2]), 0)
            codes[image] = own.codes[0, 0]
        return int(codes[views[0]]), ""


def views_of(ring: Ring, ticket: int) -> list[int]:
    """List the images of a batch that are made together.

    Parameters
    ----------
    ring : Ring
        Where their tasks are.
    ticket : int
        The ticket of the first.

    Returns
    -------
    list of int
        Their places in the batch, the first one's first.
    """
    batches, images = ring.codes.shape
    tasks = ring.tasks[(ticket // images) % batches]
    views = [ticket % images]
    while tasks[views[-1], NEXT_VIEW]:
        views.append(int(tasks[views[-1], NEXT_VIEW]))
    return views


def _largest_coloured(programs: Sequence[ImageProgram]) -> tuple[int, int]:
    """Largest height and width of an output whose colours are changed, or become gray."""
    coloured = [program for program in programs if program.num_colour_steps or _is_gray(program)]
    height = max((program.height for program in coloured), default=0)
    return height, max((program.width for program in coloured), default=0)
