from __future__ import annotations

import pytest

from gpubeton.fields import IntField
from gpubeton.fields.decoders import IntDecoder
from gpubeton.transforms import Squeeze, ToTensor
from tests.small_files import write

LABELS = {"label": [IntDecoder(), ToTensor(), Squeeze(1)]}


class Numbers:
    """Samples that are their number, so that a batch shows its samples."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, number):
        return (number,)


@pytest.fixture(scope="session")
def numbers(tmp_path_factory):
    """A file of 22 samples that are their own number."""
    return write(tmp_path_factory.mktemp("numbers") / "numbers.beton", {"label": IntField()}, Numbers(22))
