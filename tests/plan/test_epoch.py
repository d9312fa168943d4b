from __future__ import annotations

import numpy as np
import pytest

from gpubeton._plan.order import EpochBatches

TEN = np.arange(10, 20, dtype=np.uint64)


@pytest.mark.parametrize(("batch_size", "dropped", "kept"), [(3, 3, 4), (4, 2, 3), (10, 1, 1), (11, 0, 1), (1, 10, 10)])
def test_the_number_of_batches_is_ffcvs(batch_size, dropped, kept):
    assert len(EpochBatches(TEN, batch_size, drop_last=True)) == dropped
    assert len(EpochBatches(TEN, batch_size, drop_last=False)) == kept


def test_batches_follow_each_other():
    plan = EpochBatches(TEN, 4, drop_last=False)
    assert [plan.samples(batch).tolist() for batch in range(3)] == [[10, 11, 12, 13], [14, 15, 16, 17], [18, 19]]


@pytest.mark.parametrize("batch", [-1, 2])
def test_a_batch_that_is_not_there_is_refused(batch):
    with pytest.raises(IndexError, match="expected 0 to 1"):
        EpochBatches(TEN, 4, drop_last=True).samples(batch)


def test_an_empty_order_has_no_batches():
    assert len(EpochBatches(TEN[:0], 4, drop_last=False)) == 0
