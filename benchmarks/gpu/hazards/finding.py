"""The result of one check of a GPU and its nvJPEG."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Finding"]


class Finding(NamedTuple):
    """The result of one check of a GPU and its nvJPEG."""

    name: str
    question: str
    verdict: str  # one sentence
    figures: dict[str, Any]  # the measurements
    holds: bool | None = None  # whether gpubeton's assumption holds; None: nothing depends on it
