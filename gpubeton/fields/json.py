"""Values of JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.fields.bytes import BytesDecoder, BytesField
from gpubeton.format.layout import FieldType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.fields.base import Malloc
    from gpubeton.pipeline.operation import Operation

__all__ = ["JSONDecoder", "JSONField", "parse_json"]


class JSONDecoder(BytesDecoder):
    """Decode the text of JSON values: uint8, shape (N, longest of the file). `JSONField.unpack` reads it.

    Examples
    --------
    >>> from gpubeton import DatasetWriter, Loader
    >>> DatasetWriter("facts.beton", {"fact": JSONField()}, num_workers=1, progress=False).from_indexed_dataset(
    ...     [({"legs": 4},), ({"legs": 6},)])
    >>> for (facts,) in Loader("facts.beton", 2, pipelines={"fact": [JSONDecoder()]}):
    ...     print(JSONField.unpack(facts))
    [{'legs': 4}, {'legs': 6}]
    """

    family: ClassVar[type[Operation]] = BytesDecoder
    """Also accepted in its place: FFCV decodes JSON as bytes."""


class JSONField(BytesField):
    """Any value that JSON can hold, stored as text that a zero byte ends.

    Examples
    --------
    >>> JSONField.unpack(np.frombuffer(b'{"boxes": [1, 2]}' + bytes(3), "u1"))
    {'boxes': [1, 2]}
    """

    type_id = FieldType.JSON

    def encode(self, destination: NDArray[Any], value: Any, malloc: Malloc) -> None:
        """Store anything that `json.dumps` takes; TypeError for anything else."""
        super().encode(destination, json.dumps(value).encode("utf-8") + b"\0", malloc)

    def read_value(self, row: np.generic, content: bytes) -> Any:
        """Parse the text."""
        try:
            return parse_json(content.removesuffix(b"\0"))
        except ValueError as error:
            raise ValueError(f"no JSON of one value in UTF-8: {error}") from error

    def to_file(self, row: np.generic, content: bytes) -> tuple[str, bytes]:
        """Give the text as it is, also if it is damaged."""
        return ".json", content.removesuffix(b"\0")

    def get_decoder_class(self) -> type[Operation]:
        return JSONDecoder

    @staticmethod
    def unpack(batch: Any) -> Any:
        """Turn the text of a batch into Python objects.

        Parameters
        ----------
        batch : ndarray or torch.Tensor of uint8, shape (N, L) or (L,)
            What the loader gave, or one row of it.

        Returns
        -------
        list or object
            One object per row; the object itself for a single row.

        Raises
        ------
        ValueError
            If a row is not JSON, or has more levels or digits than Python reads.

        Examples
        --------
        >>> JSONField.unpack(np.frombuffer(b'[1, 2]' + bytes(2), "u1"))
        [1, 2]
        """
        rows = np.asarray(batch)
        if rows.ndim == 1:
            return _parse(rows)
        return [_parse(row) for row in rows]


def _parse(row: NDArray[Any]) -> Any:
    # JSON writes a zero inside a string as "\u0000", so the first zero byte is the end.
    return parse_json(row.astype(np.uint8).tobytes().partition(b"\0")[0])


def parse_json(text: bytes) -> Any:
    """Read a JSON value.

    Parameters
    ----------
    text : bytes
        The text, without the zero byte that ends it in a file.

    Returns
    -------
    object
        The value.

    Raises
    ------
    ValueError
        If it is not JSON, not UTF-8, or has more levels or digits than Python reads.

    Examples
    --------
    >>> parse_json(b'{"legs": 4}')
    {'legs': 4}
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("lists or mappings are nested deeper than Python can read") from error
