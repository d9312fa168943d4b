"""Finding: something that keeps a loop waiting, or could."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Weight"]

Weight = Literal["bottleneck", "advice", "notice"]


@dataclass(frozen=True)
class Finding:
    """Something that keeps a loop waiting, or could.

    Parameters
    ----------
    name : str
        What it is, in a word, for programs.
    weight : {"bottleneck", "advice", "notice"}
        Whether it is what limits the loop now, a change that would help, or something to know.
    says : str
        What was found, with the numbers.
    change : str
        What to do; empty if nothing is to be done.
    gain : float or None
        How many times as many images per second that would give, at most; None if that cannot be told from the
        readings.
    """

    name: str
    weight: Weight
    says: str
    change: str = ""
    gain: float | None = None
