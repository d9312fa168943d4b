"""Classes derived from Loader."""

from __future__ import annotations

import pytest

from gpubeton.loader import Loader
from tests.loader.pipelines import ONLY_LABEL


class WithProperties(Loader):
    @property
    def classes(self):
        return self.reader.num_classes

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.graph = "mine"


def test_an_attribute_that_a_property_does_not_find_is_named(photos):
    loader = WithProperties(photos, 8, num_workers=1, pipelines=ONLY_LABEL)
    with pytest.raises(AttributeError, match=r"'Reader' .*'num_classes'"):
        _ = loader.classes
    assert loader.graph == "mine"
    assert not hasattr(loader, "memory_manager")
