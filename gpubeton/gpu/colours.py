"""Colours: launches the kernels that change the colours of a batch of levels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpubeton.gpu.device import Device, Stream
from gpubeton.gpu.own_kernel import PLAIN, ColourKernels
from gpubeton.plan.program import ImageProgram

_THREADS = 128
# Pixels of an image that a block of colour.cu and of colour_sum.cu goes through.
_PIXELS_PER_BLOCK = 8192
_SUMMED_PER_BLOCK = 16384


@dataclass(frozen=True)
class Colours:
    """A batch of levels on the device, and what is to be done to its colours.

    Parameters
    ----------
    count : int
        Number of images N.
    pixels : int
        Pixels of each.
    levels : int
        Address of the levels, uint8 (N, pixels, 3).
    steps : int
        Address of the steps, int32 (N, 2 * num_steps), as `ImageProgram.draw_colours` gives them.
    num_steps : int
        Steps of each image, at most `gpubeton.plan.program.MAX_COLOUR_STEPS`.
    sums : int
        Address of uint64 (N, num_sums), zeros before `sum_grays`; any address if there are none.
    num_sums : int
        Contrasts that an image may have, see `num_sums`.
    kernels : ColourKernels
        Those of the program, see `gpubeton.gpu.own_kernel.colour_kernels`; by default those without own operations.
    """

    count: int
    pixels: int
    levels: int
    steps: int
    num_steps: int
    sums: int
    num_sums: int
    kernels: ColourKernels = PLAIN


def num_sums(program: ImageProgram) -> int:
    """Count the contrasts that an image of a program may have, each of which needs the sum of its gray values.

    Parameters
    ----------
    program : ImageProgram
        The program.

    Returns
    -------
    int
        How many.
    """
    return sum(colour.num_contrasts for colour, _ in program.colours)


def sum_grays(device: Device, colours: Colours, stream: Stream) -> None:
    """Sum the gray values that contrasts need; nothing to do without contrasts.

    Parameters
    ----------
    device : Device
        Where.
    colours : Colours
        The batch.
    stream : Stream
        In whose order.
    """
    if colours.count == 0:
        return
    grid = (-(-colours.pixels // _SUMMED_PER_BLOCK), colours.count, 1)
    for contrast in range(colours.num_sums):
        arguments = [
            np.uint64(colours.levels),
            np.uint64(colours.steps),
            np.int32(colours.num_steps),
            np.int32(contrast),
            np.int32(colours.pixels),
            np.int32(colours.count),
            np.uint64(colours.sums),
            np.int32(colours.num_sums),
        ]
        device.launch(colours.kernels.colour_sum, grid, (_THREADS, 1, 1), arguments, stream)


def change_colours(device: Device, colours: Colours, table: int, item_size: int, out: int, stream: Stream) -> None:
    """Carry the steps out; after `sum_grays` in the same stream.

    Parameters
    ----------
    device : Device
        Where.
    colours : Colours
        The batch.
    table : int
        Address of the output value of each level and channel, uint32 (256, 3), see `gpubeton.gpu.augment.table_of`.
    item_size : int
        Bytes of an output value: 1, 2 or 4.
    out : int
        Address of the output, (N, pixels, 3) of such values; with an `item_size` of 1 it may be the levels' own.
    stream : Stream
        In whose order.
    """
    if colours.count == 0:
        return
    arguments = [
        np.uint64(colours.levels),
        np.uint64(colours.steps),
        np.int32(colours.num_steps),
        np.uint64(colours.sums),
        np.int32(colours.num_sums),
        np.int32(colours.pixels),
        np.int32(colours.count),
        np.uint64(table),
        np.int32(item_size),
        np.uint64(out),
    ]
    grid = (-(-colours.pixels // _PIXELS_PER_BLOCK), colours.count, 1)
    device.launch(colours.kernels.colour, grid, (_THREADS, 1, 1), arguments, stream)
