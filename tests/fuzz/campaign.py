"""What all campaigns share: cases that are functions of a seed and a number, and what becomes of each."""

from __future__ import annotations

import importlib
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

_ROOT = Path(__file__).resolve().parents[2]


class Outcome(NamedTuple):
    """What became of one thing that a case tried."""

    #: A class; few, so that they can be counted.
    verdict: str
    #: The fault, with the facts; empty if there is none.
    finding: str = ""


class Campaign(Protocol):
    """A way to look for faults."""

    def __init__(self, seed: int, folder: Path) -> None:
        """Prepare and compile; the folder is empty and may be written to."""

    def case(self, number: int) -> list[Outcome]:
        """Try a case, which is a function of the seed and the number."""

    def close(self) -> list[Outcome]:
        """End; the outcomes are of all cases together."""


class Kind(NamedTuple):
    """How a campaign is run."""

    share: float  # of the time
    patience: float  # seconds after which a case hangs
    pytest_cases: int  # in each run of the tests


CAMPAIGNS = {
    "jpeg": Kind(0.5, 60, 80),
    "entry_points": Kind(0.1, 60, 60),
    "views": Kind(0.12, 60, 60),
    "container": Kind(0.1, 120, 12),
    "archives": Kind(0.1, 60, 40),
    "scenarios": Kind(0.08, 120, 2),
    "writer": Kind(0.06, 120, 3),
    "pipelines": Kind(0.04, 120, 3),
    "node_cache": Kind(0.04, 120, 10),
    "damage": Kind(0.06, 120, 20),
}


def load(name: str, seed: int, folder: Path) -> Campaign:
    """Prepare a campaign; a name with dots is that of a module, and else of one here."""
    module: Any = importlib.import_module(name if "." in name else f"tests.fuzz.{name}")
    campaign: Campaign = module.Campaign(seed, folder)
    return campaign


def rng_of(seed: int, number: int) -> np.random.Generator:
    """The random numbers of a case."""
    return np.random.default_rng([seed, number])


def workers(count: int) -> int:
    """That many workers, or as many as Numba allows for."""
    import numba

    return min(count, int(numba.config.NUMBA_NUM_THREADS))


def attempt(campaign: Campaign, number: int) -> list[Outcome]:
    """Try a case; an exception that it lets through is a finding."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of odd Exif data
        try:
            return campaign.case(number)
        except Exception as error:  # noqa: BLE001 - which ones there are is what a campaign is to find out
            return [unexpected(error)]


def unexpected(error: BaseException, during: str = "") -> Outcome:
    """The outcome of an exception that should not have been raised."""
    frames = traceback.extract_tb(error.__traceback__)
    package_frames = [frame for frame in frames if f"{_ROOT}/gpubeton" in frame.filename] or frames
    place = (
        f"{package_frames[-1].filename.removeprefix(f'{_ROOT}/')}:{package_frames[-1].name}" if package_frames else "?"
    )
    return Outcome(f"{type(error).__name__} in {place}", f"{during}: {error!r:.300}")
