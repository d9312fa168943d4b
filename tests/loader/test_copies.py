"""A loader is not copied and not pickled: the error names the way to another one."""

from __future__ import annotations

import copy
import pickle

import pytest

from gpubeton.integrations.data_loader import DataLoaderAdapter
from gpubeton.loader import Loader
from tests.loader.pipelines import ONLY_LABEL, labels, make


def adapted(loader):
    return DataLoaderAdapter(loader)


@pytest.mark.parametrize(
    ("duplicate", "part"),
    [
        *(
            (duplicate, part)
            for duplicate in (pickle.dumps, copy.deepcopy)
            for part in (Loader.__enter__, adapted, iter)
        ),
        *((copy.copy, part) for part in (Loader.__enter__, iter)),  # that of an adapter adapts the same loader
    ],
)
def test_a_copy_is_refused_with_a_way_out(photos, duplicate, part):
    message = r"cannot be copied or pickled.*same arguments.*state_dict"
    with make(photos) as loader, pytest.raises(TypeError, match=message):
        duplicate(part(loader))


def test_another_loader_begins_where_this_one_is(photos):
    loader = make(photos, order="random")
    next(batches := iter(loader))
    other = make(photos, order="random")
    other.load_state_dict(loader.state_dict())
    assert labels(other) == [batch.tolist() for (batch,) in batches]


class Reopened(Loader):
    """A derived class that knows its arguments."""

    def __init__(self, path):
        super().__init__(path, 8, num_workers=1, pipelines=ONLY_LABEL)

    def __reduce__(self):
        return Reopened, (self.fname,)


def test_a_derived_class_may_be_pickled_by_a_method_that_it_has(photos):
    with Reopened(photos) as loader, pickle.loads(pickle.dumps(loader)) as other:
        assert labels(other) == labels(loader)
