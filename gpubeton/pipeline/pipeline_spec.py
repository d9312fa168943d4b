"""PipelineSpec: a pipeline under a name of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class PipelineSpec:
    """A pipeline that reads a field of another name, so that one field may give several outputs.

    Parameters
    ----------
    source : str
        Name of the field in the file.
    decoder : Operation, optional
        The decoder; by default the first of `transforms` if it is one, else the field's own.
    transforms : sequence of Operation or torch.nn.Module, optional
        What follows the decoder.

    Examples
    --------
    >>> PipelineSpec("image", transforms=[]).source
    'image'
    """

    source: str
    decoder: Any = None
    transforms: Sequence[Any] | None = None
