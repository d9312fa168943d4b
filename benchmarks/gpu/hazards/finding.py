"""Finding: the answer to one question about a GPU and its nvJPEG."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Finding"]


class Finding(NamedTuple):
    """The answer to one question about a GPU and its nvJPEG.

    Parameters
    ----------
    name : str
        A word for it.
    question : str
        What was asked.
    verdict : str
        What was found, in a sentence.
    figures : dict
        What was measured, as JSON can hold it.
    holds : bool or None
        Whether that holds on which gpubeton's design depends; None if nothing depends on it.
    """

    name: str
    question: str
    verdict: str
    figures: dict[str, Any]
    holds: bool | None = None
