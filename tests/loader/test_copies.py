"""A loader is not copied and not pickled: the error names the way to another one."""

from __future__ import annotations

import copy
import pickle

import pytest

from gpubeton.integrations.data_loader import DataLoaderAdapter
from gpubeton.loader import Loader
from tests.loader.pipelines import ONLY_LABEL, labels, make


@pytest.mark.parametrize("part", [Loader.__enter__, iter])
@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_copy_is_refused_with_a_way_out(photos, duplicate, part):
    with make(photos) as loader, pytest.raises(TypeError, match=r"cannot be copied or pickled.*state_dict"):
        duplicate(part(loader))


def test_an_adapter_is_copied_with_the_same_loader_and_not_pickled(photos):
    with make(photos) as loader:
        adapter = DataLoaderAdapter(loader)
        assert copy.copy(adapter).loader is loader
        with pytest.raises(TypeError, match=r"cannot be copied or pickled.*state_dict"):
            pickle.dumps(adapter)


class Reopened(Loader):
    """A derived class that knows its arguments."""

    def __init__(self, path):
        super().__init__(path, 8, num_workers=1, pipelines=ONLY_LABEL)

    def __reduce__(self):
        return Reopened, (self.fname,)


def test_a_derived_class_may_be_pickled_by_a_method_that_it_has(photos):
    with Reopened(photos) as loader, pickle.loads(pickle.dumps(loader)) as other:
        assert labels(other) == labels(loader)
