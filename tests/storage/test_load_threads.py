"""The threads that load parts: who asks for many starts one, and each starts the next."""

from __future__ import annotations

import threading

import pytest

from gpubeton.storage.load_threads import LoadThreads


class Files:
    """One file, which gives parts when so many are asked for at a time."""

    paths = ("a",)

    def __init__(self, at_a_time):
        self.all_there = threading.Barrier(at_a_time, timeout=60)

    def open(self, _):
        return self

    def load(self, start, size):
        self.all_there.wait()
        return memoryview(bytes([start]) * size)


@pytest.fixture
def starts(monkeypatch):
    """Who has started threads, and the event that lets them look for work."""
    found, may_begin = [], threading.Event()
    start, following = threading.Thread.start, LoadThreads._next
    monkeypatch.setattr(
        threading.Thread, "start", lambda thread: found.append(threading.current_thread()) or start(thread)
    )
    monkeypatch.setattr(LoadThreads, "_next", lambda threads: may_begin.wait(60) and following(threads))
    return found, may_begin


def test_who_asks_for_many_parts_starts_one_thread_and_all_are_loaded_at_once(starts):
    found, may_begin = starts
    threads = LoadThreads(Files(16), 16, 16)
    loads = [threads.ask(number, number + 1) for number in range(32)]
    assert found == [threading.current_thread()]
    may_begin.set()
    assert [load.wait()[0] for load in loads] == list(range(32))
    assert len(found) == 16
    threads.close()
    assert not any(thread.is_alive() for thread in threads._threads)


def test_where_the_system_gives_no_more_threads_those_that_run_load_all(starts, monkeypatch):
    found, may_begin = starts
    start = threading.Thread.start

    def start_few(thread):
        if len(found) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_few)
    threads = LoadThreads(Files(2), 16, 16)
    loads = [threads.ask(number, number + 1) for number in range(8)]
    may_begin.set()
    assert [load.wait()[0] for load in loads] == list(range(8))
    threads.close()
