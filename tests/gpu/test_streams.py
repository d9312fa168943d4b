"""Batches in use on other streams and threads: their memory is never reused too early."""

from __future__ import annotations

from contextlib import ExitStack, closing, nullcontext

import pytest
import torch

from benchmarks.gpu.pipelines import usual_pipeline
from benchmarks.gpu.simulation import is_rehearsed
from tests.at_once import run_at_once
from tests.gpu.comparing import images_loader
from tests.rehearsal.streams import simulated_stream

SIDE = 64


def loader_of(photos, **arguments):
    batch_size = 4 if is_rehearsed() else 24  # so that few photos are several batches
    return images_loader(photos.beton, usual_pipeline(SIDE), order="random", batch_size=batch_size, **arguments)


def sums(loader, epochs=1):
    """A number for each batch that no other batch has, by torch's current stream."""
    results = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for (batch,) in loader:
            results.append(batch.clone())
    return numbers(results)


def numbers(copies):
    """A number for each of these copies of batches, from the host: by then the streams may be late."""
    return [number_of(copy.cpu()) for copy in copies]


def number_of(batch):
    bits = batch.permute(0, 2, 3, 1).reshape(-1).view(torch.int16)
    return int((bits.long() * torch.arange(1, len(bits) + 1)).sum())


class Busy:
    """Keeps torch's current stream at work: for some 50 milliseconds of a GPU; until `end`, if the GPU is simulated."""

    def __init__(self, gpu):
        self._gpu = gpu
        self._held = ExitStack()

    def begin(self):
        if not self._gpu.is_simulated:
            memory = torch.empty((2, 256 << 20), dtype=torch.uint8, device="cuda:0")
            for _ in range(300):
                memory[0].copy_(memory[1])
        elif self._gpu.has_cuda:
            self._held.enter_context(self._gpu.faults.held(simulated_stream(torch.cuda.current_stream())))

    def end(self):
        self._held.close()


@pytest.fixture(params=["torch's default stream", "another stream"])
def reading_stream(gpu, request):
    """A context in which torch works on a stream; the simulated GPU has none of torch's."""
    if not gpu.has_cuda:
        return nullcontext
    stream = torch.cuda.default_stream() if "default" in request.param else torch.cuda.Stream()
    return lambda: torch.cuda.stream(stream)


@pytest.fixture
def expected(gpu, photos):
    with closing(loader_of(photos)) as loader:
        return sums(loader, 2)


def test_a_batch_that_a_stream_still_reads_is_not_overwritten(gpu, photos, reading_stream, expected):
    """Each batch is dropped at once, while the stream that reads it has not come to it yet."""
    busy, room, result = Busy(gpu), [], []
    with closing(loader_of(photos)) as loader, reading_stream():
        for epoch in range(2):
            loader.set_epoch(epoch)
            for number, (batch,) in enumerate(loader):
                # The copies may not take the memory that batches leave.
                room = room or [torch.empty_like(batch) for _ in range(2 * len(loader))]
                if number == 0:
                    busy.begin()
                result.append(room.pop()[: len(batch)].copy_(batch))
                del batch
                if number == max(len(loader) - 2, 0):
                    busy.end()  # a loader that ends may wait for the device
        result = numbers(result)
    assert result == expected


def test_batches_are_whole_when_they_arrive_while_torch_runs_other_work(gpu, photos, expected):
    """Torch's allocator is kept busy with blocks of just the batches' size, on the stream that receives them."""
    results, noise = [], []
    with closing(loader_of(photos)) as loader:
        for epoch in range(2):
            loader.set_epoch(epoch)
            for (batch,) in loader:
                noise = [
                    torch.full(batch.shape, float("nan"), dtype=batch.dtype, device=batch.device) for _ in range(4)
                ]
                results.append(batch.clone())
                noise = noise[:1]
    assert numbers(results) == expected


def test_batches_that_are_kept_stay_as_they_are(gpu, photos, expected):
    with closing(loader_of(photos)) as loader:
        batches = []
        for epoch in range(2):
            loader.set_epoch(epoch)
            batches += [batch for (batch,) in loader]
    assert numbers(batches) == expected


def test_receivers_on_other_streams_see_whole_batches(gpu, photos, expected):
    """A stream for each batch, none of which waits for another."""
    results = []
    with closing(loader_of(photos)) as loader:
        for epoch in range(2):
            loader.set_epoch(epoch)
            iterator = iter(loader)
            while True:
                with torch.cuda.stream(torch.cuda.Stream()) if gpu.has_cuda else nullcontext():
                    batch = next(iterator, None)
                    if batch is None:
                        break
                    results.append(batch[0].clone())
    if gpu.has_cuda:
        torch.cuda.synchronize()
    assert numbers(results) == expected


@pytest.mark.parametrize("routes", [("hardware",), ()], ids="+".join)
def test_loaders_of_several_threads_do_not_disturb_each_other(gpu, photos, routes):
    expected = {}
    for seed in range(3):
        with closing(loader_of(photos, seed=seed, routes=routes)) as loader:
            expected[seed] = sums(loader)
    results, errors = {}, []

    def load(seed):
        try:
            with gpu.device.active(), closing(loader_of(photos, seed=seed, routes=routes)) as loader:
                results[seed] = sums(loader)
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    run_at_once(load, range(3))
    assert errors == []
    assert results == expected


def test_iterators_of_one_loader_may_be_used_in_turn(gpu, photos):
    with closing(loader_of(photos)) as loader:
        expected = [sums(loader)]
        loader.set_epoch(1)
        expected.append(numbers([batch for (batch,) in loader]))
        loader.set_epoch(0)
        first, second = iter(loader), iter(loader)
        results = [[], []]
        for (ours,), (theirs,) in zip(first, second, strict=True):
            results[0].append(ours.clone())
            results[1].append(theirs.clone())
        assert [numbers(copies) for copies in results] == expected


def test_leaving_in_the_middle_of_an_epoch_does_not_damage_later_batches(gpu, photos, expected):
    with closing(loader_of(photos)) as loader:
        for _ in range(5):
            loader.set_epoch(0)
            iterator = iter(loader)
            next(iterator)
            iterator.close()
        assert sums(loader, 2) == expected


def test_a_network_trains_with_the_batches(gpu, photos):
    """Gradients are finite: what arrives are pixels, normalized, in a layout that convolutions take."""
    if is_rehearsed():
        pytest.skip("torch's convolutions and their gradients run on a GPU only")
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, 2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(8, 2),
    ).to(gpu.torch_device, memory_format=torch.channels_last)  # fmt: skip
    with closing(loader_of(photos)) as loader:
        for (batch,) in loader:
            loss = network(batch.float()).square().mean()
            loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
    assert network[0].weight.grad.abs().sum() > 0
