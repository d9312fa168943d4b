from __future__ import annotations

import numpy as np
import pytest

from gpubeton._plan.order import EpochBatches
from gpubeton.errors import OptionError

TEN = np.arange(10, 20, dtype=np.uint64)


@pytest.mark.parametrize(
    ("order", "batch_size", "dropped", "total"),
    [(TEN, 3, 3, 4), (TEN, 4, 2, 3), (TEN, 10, 1, 1), (TEN, 11, 0, 1), (TEN, 1, 10, 10), (TEN[:0], 4, 0, 0)],
)
def test_the_number_of_batches_is_ffcvs(order, batch_size, dropped, total):
    assert len(EpochBatches(order, batch_size, drop_last=True)) == dropped
    assert len(EpochBatches(order, batch_size, drop_last=False)) == total


def test_batches_follow_each_other():
    plan = EpochBatches(TEN, 4, drop_last=False)
    assert [plan.samples(batch).tolist() for batch in range(3)] == [[10, 11, 12, 13], [14, 15, 16, 17], [18, 19]]


def test_a_batch_that_is_not_there_or_of_no_samples_is_refused():
    for batch in (-1, 2):
        with pytest.raises(IndexError, match="expected 0 to 1"):
            EpochBatches(TEN, 4, drop_last=True).samples(batch)
    with pytest.raises(OptionError, match="batch_size is 0"):
        EpochBatches(TEN, 0, drop_last=True)
