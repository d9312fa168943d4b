"""Levels: operations that put another level in the place of each, whatever pixel it stands in.

What is done to an image is a kind and a parameter, two int32:

============  =================================================================================
KEEP          nothing
SOLARIZE      levels from `parameter` on become ``255 - level``
POSTERIZE     the upper `parameter` bits stay
INVERT        ``255 - level``
AUTOCONTRAST  each channel is stretched: its least level becomes 0, its largest 255
EQUALIZE      each channel's levels become equally frequent, as nearly as they can: Pillow's way
============  =================================================================================

Each makes a table of 256 levels for every channel of an image, out of the channel's histogram for the last two, and
looks the levels up in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.pipeline.compiler import Compiler
from gpubeton.transforms.image_change import ChangeTransform, ImageChange
from gpubeton.transforms.transform import Moves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State

KEEP, SOLARIZE, POSTERIZE, INVERT, AUTOCONTRAST, EQUALIZE = range(6)

_WITH_HISTOGRAM = AUTOCONTRAST, EQUALIZE


class LevelTransform(ChangeTransform):
    """An operation on levels that happens with a probability: `draw` gives a kind and a parameter for each image."""

    p: float
    takes_any_channels: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.NOTHING

    def chosen(self, uniform: Uniform, count: int, kind: int, parameter: int = 0) -> NDArray[np.int32]:
        """Draw which images are changed.

        Parameters
        ----------
        uniform : Uniform
            Random numbers; one for each image is used.
        count : int
            Number of images.
        kind : int
            What is done to those that are chosen.
        parameter : int
            Its parameter.

        Returns
        -------
        ndarray of int32, shape (N, 2)
            Kind and parameter; KEEP for the others.
        """
        return np.where(uniform(1) < self.p, np.array([[kind, parameter]]), KEEP).astype(np.int32)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": self.draw(uniform, count, state)[:, 0] != KEEP}

    def image_change(self) -> ImageChange:
        return change_levels


def level_tables(kind: int, parameters: Any, histograms: Any) -> Any:
    """Make the tables of images to which the same kind of thing is done.

    Parameters
    ----------
    kind : int
        SOLARIZE, POSTERIZE, INVERT, AUTOCONTRAST or EQUALIZE.
    parameters : torch.Tensor of int64, shape (N, 1, 1)
        Parameter of each.
    histograms : torch.Tensor of int64, shape (N, 3, 256), or None
        How often each level occurs in each channel; for AUTOCONTRAST and EQUALIZE.

    Returns
    -------
    torch.Tensor of uint8, shape (N, 3, 256)
        The level that takes the place of each.

    Examples
    --------
    >>> import torch
    >>> level_tables(POSTERIZE, torch.tensor([[[2]]]), None)[0, 0, [63, 64, 255]].tolist()
    [0, 64, 192]
    """
    import torch

    level = torch.arange(256, device=parameters.device).expand(len(parameters), 3, 256)
    if kind == SOLARIZE:
        made = torch.where(level >= parameters, 255 - level, level)
    elif kind == POSTERIZE:
        made = level & (256 - (1 << (8 - parameters)))
    elif kind == INVERT:
        made = 255 - level
    else:
        occurs = histograms > 0
        least = torch.where(occurs, level, 255).amin(2, keepdim=True)
        most = torch.where(occurs, level, 0).amax(2, keepdim=True)
        if kind == AUTOCONTRAST:
            span = most - least
            made = (level - least).clamp(min=0) * 255 // span.clamp(min=1)
            made = torch.where(span > 0, made, level)
        else:
            before = histograms.cumsum(2) - histograms
            # How many pixels to a level: all but those of the largest, spread over 255.
            step = (histograms.sum(2, keepdim=True) - histograms.gather(2, most)) // 255
            made = (before + step // 2) // step.clamp(min=1)
            made = torch.where(step > 0, made, level)
    return made.clamp(0, 255).to(torch.uint8)


def _change_arrays(images: NDArray[np.uint8], rows: NDArray[Any]) -> None:
    # Not torch's tables: its threads would wait for each other wherever all cores are busy.
    parts = (count_levels, write_table, look_up)
    count, write, look = (Compiler.compile(part) for part in parts)

    def change_images(images: Any, rows: Any) -> None:
        counts = np.zeros((3, 256), np.int64)
        table = np.empty((3, 256), np.uint8)
        for number in range(len(images)):
            kind = rows[number, 0]
            if kind == KEEP:
                continue
            if kind >= AUTOCONTRAST:
                count(images[number], counts)
            for channel in range(3):
                write(kind, rows[number, 1], counts[channel], table[channel])
            look(images[number], table)

    Compiler.compile(change_images)(images, rows)


def _change_tensors(images: Any, rows: NDArray[Any]) -> None:
    import torch

    for kind in range(1, EQUALIZE + 1):
        chosen = np.flatnonzero(rows[:, 0] == kind)
        if len(chosen) == 0:
            continue
        own = torch.from_numpy(chosen).to(images.device)
        # Level and channel of every value in one number: its place in the three tables of its image.
        levels = images[own].to(torch.int64)
        places = (levels + 256 * torch.arange(3, device=images.device)).flatten(1)
        histograms = None
        if kind in _WITH_HISTOGRAM:
            counts = torch.zeros((len(own), 768), dtype=torch.int64, device=images.device)
            histograms = counts.scatter_add_(1, places, torch.ones_like(places)).view(-1, 3, 256)
        parameters = torch.from_numpy(rows[chosen, 1].astype(np.int64)).to(images.device).view(-1, 1, 1)
        tables = level_tables(kind, parameters, histograms)
        images[own] = tables.flatten(1).gather(1, places).view(levels.shape)


def write_table(kind: Any, parameter: Any, counts: Any, table: Any) -> None:
    """Make the table of one channel, as `level_tables` does.

    Parameters
    ----------
    kind, parameter : int
        What is done.
    counts : ndarray of int64, shape (256,)
        How often each level occurs, for AUTOCONTRAST and EQUALIZE.
    table : ndarray of uint8, shape (256,)
        Written.
    """
    least, most, before = 255, 0, 0
    if kind >= AUTOCONTRAST:
        for level in range(256):
            if counts[level] > 0:
                least, most = min(least, level), level
    step = (counts.sum() - counts[most]) // 255
    for level in range(256):
        made = level
        if kind == SOLARIZE:
            made = 255 - level if level >= parameter else level
        elif kind == POSTERIZE:
            made = level & (256 - (1 << (8 - parameter)))
        elif kind == INVERT:
            made = 255 - level
        elif kind == AUTOCONTRAST and most > least:
            made = (max(level, least) - least) * 255 // (most - least)
        elif kind == EQUALIZE and step > 0:
            made = (before + step // 2) // step
            before += counts[level]
        table[level] = min(made, 255)


def count_levels(image: Any, counts: Any) -> None:
    """Count how often each level occurs.

    Parameters
    ----------
    image : ndarray of uint8, shape (H, W, 3)
        Levels.
    counts : ndarray of int64, shape (3, 256)
        Written.
    """
    counts[:] = 0
    red, green, blue = counts[0], counts[1], counts[2]
    for y in range(len(image)):
        line = image[y]
        for x in range(len(line)):
            red[line[x, 0]] += 1
            green[line[x, 1]] += 1
            blue[line[x, 2]] += 1


def look_up(image: Any, table: Any) -> None:
    """Replace each level by what stands in its image's table.

    Parameters
    ----------
    image : ndarray of uint8, shape (H, W, 3)
        Levels, changed.
    table : ndarray of uint8, shape (3, 256)
        The table.
    """
    red, green, blue = table[0], table[1], table[2]
    for y in range(len(image)):
        line = image[y]
        for x in range(len(line)):
            line[x, 0] = red[line[x, 0]]
            line[x, 1] = green[line[x, 1]]
            line[x, 2] = blue[line[x, 2]]


change_levels = ImageChange(_change_arrays, _change_tensors)
