"""Stages: what the parts of an epoch's work take, added up as it goes."""

from __future__ import annotations

import time
from typing import Any, Final

from gpubeton.engine.label import Label
from gpubeton.plan.image_executor import Usage

__all__ = ["STAGES", "Stage", "Stages"]

STAGES: Final = {
    "plan": "deciding crops and draws, and asking for bytes",
    "read": "waiting for bytes of the file",
    "submit": "giving batches to the workers",
    "decode": "waiting for the workers or the GPU to have a batch decoded and augmented",
    "tail": "the rest of the pipelines: labels, operations that are not fused, copies to a GPU",
    "handover": "giving a batch to the loop",
}
"""The parts of an epoch's work that are one thread's at a time, and what they are."""


class Stage:
    """Adds up the time spent inside of ``with stage:``. For one thread at a time; any thread may read.

    Parameters
    ----------
    name : str
        What it is called in profilers.

    Attributes
    ----------
    seconds : float
        Wall time until now.

    Examples
    --------
    >>> stage = Stage("tail")
    >>> with stage:
    ...     pass
    >>> stage.seconds > 0
    True
    """

    def __init__(self, name: str) -> None:
        self.seconds = 0.0
        self._label = Label(f"gpubeton: {name}")
        self._marked: Any = None
        self._begun = 0.0

    def __enter__(self) -> None:
        self._marked = self._label.begin()
        self._begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun
        self._label.end(self._marked)


class Stages:
    """What the stages of one epoch took.

    Attributes
    ----------
    plan, read, submit, decode, tail, handover : Stage
        See `STAGES`. All but the last are the engine's thread's.
    usage : Usage
        How busy the CPU's workers were; up to date after each batch.
    stored_bytes : int
        Bytes of the file that the batches were made of.
    """

    def __init__(self) -> None:
        self.plan, self.read, self.submit = Stage("plan"), Stage("read"), Stage("submit")
        self.decode, self.tail, self.handover = Stage("decode"), Stage("tail"), Stage("handover")
        self.usage = Usage()
        self.stored_bytes = 0

    def seconds(self) -> dict[str, float]:
        """Give what each stage took until now.

        Returns
        -------
        dict of str to float
            Seconds by name.
        """
        stages: dict[str, Stage] = {name: getattr(self, name) for name in STAGES}
        return {name: stage.seconds for name, stage in stages.items()}
