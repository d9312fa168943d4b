"""PipelineSpec: a pipeline under a name of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.pipeline.operation import Operation


@dataclass
class PipelineSpec:
    """A pipeline that reads a field of another name, so that one field may give several outputs.

    Parameters
    ----------
    source : str or Operation
        Name of the field in the file; or an operation, the very object, that stands in the pipeline of another output:
        this one goes on from what it leaves behind there, without a decoder of its own. Both outputs see the same
        random choices up to there, and decode once.
    decoder : Operation, optional
        The decoder; by default the first of `transforms` if it is one, else the field's own.
    transforms : sequence of Operation or torch.nn.Module, optional
        What follows the decoder.

    Examples
    --------
    >>> PipelineSpec("image", transforms=[]).source
    'image'
    """

    source: str | Operation
    decoder: Any = None
    transforms: Sequence[Any] | None = None
