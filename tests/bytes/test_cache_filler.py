"""What fills the node's cache: all missing pages, each requested once, as far as the limit allows it."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from gpubeton._bytes import open_bytes
from gpubeton._bytes.open_files import CacheFiller
from gpubeton.errors import StorageError
from tests.bytes.test_node_cache import PAGE, content_of, folder, make_cache, name, open_in
from tests.bytes.versioned_source import on_its_way, put, requests_of
from tests.ctrl_c import ctrl_c

__all__ = ["ctrl_c", "folder", "name"]


def test_a_filler_fetches_missing_pages_and_stops_when_the_cache_is_full(name, folder, tmp_path):
    other = put(tmp_path / "other", content_of(2))
    whole, sizes = make_cache(folder), []
    open_in(whole, name).load(2 * PAGE, PAGE)
    CacheFiller([lambda: open_in(whole, name), lambda: open_in(whole, other)], on_page=sizes.append).join()
    assert [whole.is_complete(open_bytes(each).identity()) for each in (name, other)] == [True, True]
    assert sum(sizes) == 2 * len(content_of(1))
    assert len(requests_of(name)) == len(requests_of(other)) == 6
    small = make_cache(tmp_path / "small", limit=2 * PAGE)
    CacheFiller([lambda: open_in(small, name)]).join()
    assert small.count_pages(open_bytes(name).identity()) == (2, 6)


def test_a_filler_skips_pages_that_others_fetch_and_raises_errors_in_join(name, folder, tmp_path):
    cache = make_cache(folder)
    file = open_in(cache, name)
    with on_its_way(file, 2 * PAGE):
        CacheFiller([lambda: file]).join()
        assert file.count_pages() == 5
    cache = make_cache(tmp_path / "empty")
    file = open_in(cache, name)
    put(tmp_path / "object", content_of(3))
    filler = CacheFiller([lambda: file])
    with pytest.raises(StorageError, match="replaced"):
        filler.join()


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_join_stops_the_filler(name, folder):
    file, goes_on = open_in(make_cache(folder), name), threading.Event()
    filler = CacheFiller([lambda: file], on_page=lambda _: goes_on.wait(), num_threads=1)
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        [interrupt.start(), filler.join()]
    goes_on.set()
    filler.join()
    assert file.count_pages() == 1


def test_a_page_on_its_way_to_a_full_cache_is_not_requested_again(name, folder):
    file = open_in(make_cache(folder, limit=PAGE), name)
    with on_its_way(file, 3 * PAGE) as may_arrive:
        reading = threading.Thread(target=file.load, args=(2 * PAGE, 2 * PAGE))
        reading.start()
        reading.join(0.1)  # time to request page 3, too, if it were not waited for
        may_arrive.set()
        reading.join()
    assert sorted(requests_of(name)) == [(2 * PAGE, PAGE), (3 * PAGE, PAGE)]
