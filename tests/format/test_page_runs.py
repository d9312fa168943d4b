from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpubeton.format.index import PageRuns

blocks = st.lists(st.lists(st.integers(-1, 3), max_size=6).map(lambda pages: np.array(pages, np.int64)), max_size=5)


@given(blocks, st.data())
def test_runs_are_the_pages_of_all_samples_in_any_order(blocks, data):
    pages = np.concatenate([np.zeros(0, np.int64), *blocks])
    runs = PageRuns.join(blocks)
    assert runs.to_array().tolist() == pages.tolist()
    assert len(runs.page) == np.count_nonzero(pages[1:] != pages[:-1]) + (len(pages) > 0)
    ids = data.draw(st.lists(st.integers(0, len(pages) - 1), max_size=9) if len(pages) else st.just([]))
    assert runs.of(np.array(ids, np.uint64)).to_array().tolist() == pages[ids].tolist()
