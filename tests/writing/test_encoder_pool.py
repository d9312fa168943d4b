from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

from gpubeton._writing import ChunkPlace, Job, Task, TaskQueue, encoder, split_rows
from gpubeton._writing.encoder import EncoderPool
from gpubeton.errors import GpubetonError, OptionError, SampleError, StorageError, WorkerDiedError
from gpubeton.fields import BytesField, IntField

FIELDS = {"blob": BytesField(), "label": IntField()}


class Numbers:
    """Samples that can do something on the way; at module level, so that spawned processes find it."""

    def __init__(self, actions=None):
        self.actions = actions or {}

    def __getitem__(self, index):
        if index in self.actions:
            self.actions[index](index)
        return index.to_bytes(4, "little"), index


def run(tmp_path, dataset, count=12, workers=3, start_method="fork", chunk=2, place=None, **options):
    """Write `count` samples one after the other; give the tasks in the order of placing, and the file."""
    file = tmp_path / "file"
    file.touch()
    placed, written = [], []

    def in_order(first, regions):
        placed.append(first)
        return ChunkPlace(first, np.arange(first, first + len(regions.counts), dtype=np.uint64) * 4 + 1000)

    job = Job(dataset, range(count), FIELDS, 1 << 21, 0, os.fspath(file))
    with EncoderPool(job, workers, start_method, **options) as pool:
        pool.run(
            TaskQueue([task] for task in split_rows(0, count, chunk)),
            place or in_order,
            lambda task: written.append(task.start),
        )
    assert sorted(written) == placed == list(range(0, count, chunk))
    return file.read_bytes()


@pytest.fixture(autouse=True)
def _children_of_earlier_tests():
    EARLIER.update(multiprocessing.active_children())


EARLIER = set()  # processes that other tests' transforms keep


def children():
    return set(multiprocessing.active_children()) - EARLIER


def no_children_left():
    return not children()


def expected(count=12):
    return b"".join(index.to_bytes(4, "little") for index in range(count))


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_samples_are_written_where_they_are_placed_however_processes_start(start_method, tmp_path):
    assert run(tmp_path, Numbers(), workers=2, start_method=start_method)[1000:] == expected()
    assert no_children_left()


def needs_secret(_):
    assert os.environ["GPUBETON_SECRET"] == "present"


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_processes_have_the_present_environment(start_method, tmp_path, monkeypatch):
    run(tmp_path, Numbers(), workers=2, start_method=start_method)  # begins the server of forks
    monkeypatch.setenv("GPUBETON_SECRET", "present")
    assert run(tmp_path, Numbers({0: needs_secret}), workers=2, start_method=start_method)[1000:] == expected()


def test_chunks_are_placed_in_order_although_the_first_comes_last(tmp_path):
    late = Numbers({0: lambda _: time.sleep(0.3)})
    assert run(tmp_path, late)[1000:] == expected()


def test_one_worker_carries_out_all_tasks_of_a_sequence_before_it_takes_another():
    sequences = [
        [Task(0, 4), Task(4, 7)],
        [],
        [Task(7, 11), Task(11, 12)],
        [Task(12, 16), Task(16, 20)],
        [Task(23, 24)],
    ]
    queue = TaskQueue(sequences)
    assert [queue.take(worker).start for worker in (0, 1, 1, 1, 0, 0)] == [0, 7, 11, 12, 4, 23]
    assert [queue.take(0), queue.take(1).start, queue.take(1)] == [None, 16, None]


def test_more_processes_than_chunks_are_no_matter(tmp_path):
    assert run(tmp_path, Numbers(), count=3, workers=5)[1000:] == expected(3)


class UnpicklableError(Exception):
    def __init__(self, value):
        super().__init__("cannot be sent")
        self.lock = value


def throw(error):
    raise error


def test_an_exception_of_the_dataset_arrives_with_sample_and_traceback(tmp_path):
    with pytest.raises(SampleError, match=r"sample 7 \(row 7 .*KeyError: 'lost'") as caught:
        run(tmp_path, Numbers({7: lambda _: throw(KeyError("lost"))}))
    assert caught.value.sample == 7
    assert "in throw" in str(caught.value.__cause__)
    assert no_children_left()


def test_an_exception_that_cannot_be_sent_arrives_as_text(tmp_path):
    with pytest.raises(SampleError, match="UnpicklableError"):
        run(tmp_path, Numbers({7: lambda _: throw(UnpicklableError(threading.Lock()))}))


def test_an_error_outside_a_sample_that_cannot_be_sent_arrives_too(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "pwrite", lambda *_: throw(UnpicklableError(threading.Lock())))
    with pytest.raises(GpubetonError, match="UnpicklableError"):
        run(tmp_path, Numbers())


def test_a_full_disk_arrives_as_storage_error(tmp_path, monkeypatch):
    def full(descriptor, content, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError, match="No space left") as caught:
        run(tmp_path, Numbers())
    assert caught.value.errno == errno.ENOSPC
    assert no_children_left()


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda _: os._exit(3), "exit code 3"),
        (lambda _: os.kill(os.getpid(), signal.SIGKILL), "signal SIGKILL"),
        (lambda _: os.kill(os.getpid(), signal.SIGUSR1), "signal SIGUSR1"),
    ],
)
def test_a_process_that_dies_without_a_word_is_reported_with_the_sample_at_hand(end, how, tmp_path):
    with pytest.raises(WorkerDiedError, match=rf"sample 7 \(row 7 .*: {how}") as caught:
        run(tmp_path, Numbers({7: end}))
    assert caught.value.sample == 7
    assert no_children_left()


def test_a_process_whose_child_lives_on_is_still_known_to_be_dead(tmp_path):
    # The child holds the pipes open, so that their ends show nothing.
    def leave_a_child(_):
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        (tmp_path / "child").write_text(str(child))
        os._exit(4)

    with pytest.raises(WorkerDiedError, match="exit code 4"):
        run(tmp_path, Numbers({5: leave_a_child}))
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)  # which fails if it has ended by itself


def test_a_process_killed_between_two_samples_names_none(tmp_path):
    def place(first, regions):
        (child,) = children()
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        return ChunkPlace(first, np.zeros(len(regions.counts), np.uint64))

    with pytest.raises(WorkerDiedError, match=r"between two samples.*SIGKILL") as caught:
        run(tmp_path, Numbers(), count=2, workers=1, place=place)
    assert caught.value.sample is None


def test_an_interrupt_ends_all_processes(tmp_path):
    def place(first, regions):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Numbers({11: lambda _: time.sleep(600)}), place=place)
    assert no_children_left()


def test_a_dataset_that_ignores_the_request_to_end_is_killed(tmp_path):
    def stubborn(_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)

    with pytest.raises(SampleError):
        run(tmp_path, Numbers({3: stubborn, 0: lambda _: throw(ValueError)}), workers=2, seconds_to_end=0.2)
    assert no_children_left()


def test_a_handler_of_the_users_program_does_not_keep_processes_alive(tmp_path, monkeypatch):
    def kill(process):
        raise AssertionError("it had to be killed")

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "kill", kill)
    actions = {3: lambda _: time.sleep(600), 0: lambda _: throw(ValueError)}
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with pytest.raises(SampleError):
            run(tmp_path, Numbers(actions), workers=2, seconds_to_end=600)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert no_children_left()


def test_nor_does_it_in_the_first_moments_of_a_process(tmp_path, monkeypatch):
    def slow_to_start(job, number, *arguments):
        time.sleep(number)
        work(job, number, *arguments)

    work = encoder.work
    monkeypatch.setattr(encoder, "work", slow_to_start)
    test_a_handler_of_the_users_program_does_not_keep_processes_alive(tmp_path, monkeypatch)


def test_ctrl_c_in_the_first_moments_of_a_process_is_left_to_the_calling_one(tmp_path, monkeypatch):
    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        work(*arguments)

    work = encoder.work
    monkeypatch.setattr(encoder, "work", interrupted)
    assert run(tmp_path, Numbers())[1000:] == expected()


def test_processes_that_a_writing_process_starts_accept_sigterm(tmp_path):
    def raise_signal_mask(_):
        raise ValueError(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    with pytest.raises(SampleError, match=r"ValueError: set\(\)"):
        run(tmp_path, Numbers({0: raise_signal_mask}), workers=2)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_dataset_that_cannot_be_sent_to_a_spawned_process_is_reported(tmp_path):
    with pytest.raises(OptionError, match=r"'spawn'.*num_workers=1"):
        run(tmp_path, Numbers({7: lambda _: None}), start_method="spawn")
    assert no_children_left()
