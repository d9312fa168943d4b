"""HuggingFaceSource: a dataset of Hugging Face's on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton.conversion.source import LABEL, Labels, Source
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HuggingFaceSource"]

_LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "class")


class HuggingFaceSource(Source):
    """A dataset of Hugging Face's that ``save_to_disk`` has written; needs ``gpubeton[huggingface]``.

    Image files are taken from it as they are, not decoded.

    Parameters
    ----------
    path : str or path
        Its folder.
    split : str, optional
        Which one, if there are several.
    image, label : str, optional
        The columns. By default the first one of images, and ``label``; without a label's column there are no labels.
    class_names : sequence of str, optional
        Names of the classes in the order of their numbers; by default those of the label's column.

    Raises
    ------
    OptionError
        If the split or a column is not there, or datasets is not installed.
    """

    kind = "huggingface"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        split: str | None = None,
        image: str | None = None,
        label: str | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        try:
            import datasets
        except ImportError as error:
            raise OptionError(
                f"{os.fspath(path)}: a dataset of Hugging Face's needs {error.name}, which is not installed. "
                "Try: pip install 'gpubeton[huggingface]'"
            ) from error
        self._path = Path(path)
        dataset: Any = datasets.load_from_disk(os.fspath(path))
        if isinstance(dataset, datasets.DatasetDict):
            dataset = self._split(dataset, split)
        image = self._column(dataset, image, [name for name, kind in dataset.features.items() if _is_image(kind)])
        if image is None:
            raise OptionError(
                f"{path}: no column of images; the columns are {', '.join(map(repr, dataset.features))}. "
                "Name it: --image COLUMN"
            )
        label = self._column(dataset, label, [name for name in _LABEL_COLUMNS if name in dataset.features])
        self._image = image
        # Files as they are: a JPEG that fits goes into the new file without being encoded again.
        self._dataset = dataset.cast_column(image, datasets.Image(decode=False))
        self.fields = {}
        self._labels: list[int] | list[float] = []
        if label is not None:
            names = class_names or getattr(dataset.features[label], "names", None)
            labels = Labels(list(dataset[label]), names, where=os.fspath(path))
            self._labels, self.fields, self.class_names = labels.numbers, {LABEL: labels.kind}, labels.class_names
        self._identity = _fingerprint(self._path, split)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        value = self._dataset[index][self._image]
        content = value["bytes"] if value["bytes"] is not None else Path(value["path"])
        return (content, self._labels[index]) if self._labels else (content,)

    def name(self, index: int) -> str:
        return f"row {index} of {self._path}"

    def identity(self, index: int) -> str:
        return f"{index} {self._identity}"

    def _split(self, dataset: Any, split: str | None) -> Any:
        if split is None and len(dataset) == 1:
            return next(iter(dataset.values()))
        if split not in dataset:
            raise OptionError(
                f"{self._path}: the splits are {', '.join(map(repr, dataset))}, "
                f"{'choose one' if split is None else f'there is no {split!r}'}: --split NAME"
            )
        return dataset[split]

    def _column(self, dataset: Any, wanted: str | None, usual: Sequence[str]) -> str | None:
        if wanted is not None and wanted not in dataset.features:
            raise OptionError(f"{self._path}: no column {wanted!r}; there are {', '.join(map(repr, dataset.features))}")
        return wanted or next(iter(usual), None)


def _is_image(kind: Any) -> bool:
    return type(kind).__name__ == "Image"


def _fingerprint(path: Path, split: str | None) -> str:
    """Give what the dataset says of itself; it writes a fingerprint into its state."""
    states = [path / "state.json", path / (split or "") / "state.json", *sorted(path.glob("*/state.json"))]
    return next((state.read_text() for state in states if state.is_file()), "")
