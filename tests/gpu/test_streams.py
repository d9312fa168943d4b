"""Batches in the hands of other streams and threads: nobody gets their memory too early."""

from __future__ import annotations

import threading
from contextlib import closing, nullcontext

import pytest
import torch

from benchmarks.gpu.pipelines import usual_pipeline
from tests.gpu.comparing import images_loader

SIDE = 64


def loader_of(photos, **arguments):
    return images_loader(photos.beton, usual_pipeline(SIDE), order="random", batch_size=24, **arguments)


def sums(loader, epochs=1):
    """A number for each batch that no other batch has, by torch's current stream."""
    found = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for (batch,) in loader:
            found.append(sum_of(batch))
    return [int(own) for own in found]


def sum_of(batch):
    bits = batch.permute(0, 2, 3, 1).reshape(-1).view(torch.int16)
    return (bits.long() * torch.arange(1, len(bits) + 1, device=bits.device)).sum()


class Busy:
    """Keeps torch's current stream at work for some milliseconds."""

    def __init__(self, gpu):
        self._is_simulated = gpu.is_simulated

    def __call__(self):
        if not self._is_simulated:
            torch.cuda._sleep(20_000_000)


@pytest.fixture
def other_stream(gpu):
    """A context in which torch works on another stream; the simulated GPU has none of torch's."""
    if gpu.is_simulated:
        return nullcontext
    stream = torch.cuda.Stream()
    return lambda: torch.cuda.stream(stream)


@pytest.fixture
def expected(gpu, photos):
    with closing(loader_of(photos)) as loader:
        return sums(loader, 2)


def test_a_batch_that_another_stream_still_reads_is_not_overwritten(gpu, photos, other_stream, expected):
    """Each batch is dropped at once, while the stream that reads it has not come to it yet."""
    busy, found = Busy(gpu), []
    with closing(loader_of(photos)) as loader, other_stream():
        for epoch in range(2):
            loader.set_epoch(epoch)
            for (batch,) in loader:
                busy()
                found.append(sum_of(batch))
                del batch
        assert [int(own) for own in found] == expected


def test_batches_are_whole_when_they_arrive_whatever_torch_does_beside(gpu, photos, expected):
    """Torch's allocator is kept busy with blocks of just the batches' size, on the stream that receives them."""
    device = "cpu" if gpu.is_simulated else "cuda:0"
    found, noise = [], []
    with closing(loader_of(photos)) as loader:
        for epoch in range(2):
            loader.set_epoch(epoch)
            for (batch,) in loader:
                noise = [torch.full(batch.shape, float("nan"), dtype=batch.dtype, device=device) for _ in range(4)]
                found.append(sum_of(batch))
                noise = noise[:1]
    assert [int(own) for own in found] == expected


def test_batches_that_are_kept_stay_as_they_are(gpu, photos, expected):
    with closing(loader_of(photos)) as loader:
        kept = []
        for epoch in range(2):
            loader.set_epoch(epoch)
            kept += [batch for (batch,) in loader]
    assert [int(sum_of(batch)) for batch in kept] == expected


def test_receivers_on_streams_of_their_own_see_whole_batches(gpu, photos, expected):
    """A stream for each batch, none of which waits for another."""
    found = []
    with closing(loader_of(photos)) as loader:
        for epoch in range(2):
            loader.set_epoch(epoch)
            iterator = iter(loader)
            while True:
                with nullcontext() if gpu.is_simulated else torch.cuda.stream(torch.cuda.Stream()):
                    batch = next(iterator, None)
                    if batch is None:
                        break
                    found.append(sum_of(batch[0]))
    assert [int(own) for own in found] == expected


@pytest.mark.parametrize("lanes", [("hardware",), ("hardware", "sm", "hybrid"), ("sm",)], ids="+".join)
def test_loaders_of_several_threads_do_not_disturb_each_other(gpu, photos, lanes):
    wanted = {}
    for seed in range(3):
        with closing(loader_of(photos, seed=seed, lanes=lanes)) as loader:
            wanted[seed] = sums(loader)
    found, errors = {}, []

    def load(seed):
        try:
            with gpu.device.active(), closing(loader_of(photos, seed=seed, lanes=lanes)) as loader:
                found[seed] = sums(loader)
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=load, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert found == wanted


def test_iterators_of_one_loader_may_be_used_in_turn(gpu, photos):
    with closing(loader_of(photos)) as loader:
        wanted = [sums(loader)]
        loader.set_epoch(1)
        wanted.append([int(sum_of(batch)) for (batch,) in loader])
        loader.set_epoch(0)
        first, second = iter(loader), iter(loader)
        found = [[], []]
        for (ours,), (theirs,) in zip(first, second, strict=True):
            found[0].append(sum_of(ours))
            found[1].append(sum_of(theirs))
        assert [[int(own) for own in numbers] for numbers in found] == wanted


def test_leaving_in_the_middle_of_an_epoch_harms_nobody(gpu, photos, expected):
    with closing(loader_of(photos)) as loader:
        for _ in range(5):
            loader.set_epoch(0)
            iterator = iter(loader)
            next(iterator)
            iterator.close()
        assert sums(loader, 2) == expected


def test_a_network_trains_with_what_arrives(gpu, photos):
    """Gradients are finite: what arrives are pixels, normalised, in a layout that convolutions take."""
    device = "cpu" if gpu.is_simulated else "cuda:0"
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, 2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(8, 2),
    ).to(device, memory_format=torch.channels_last)  # fmt: skip
    with closing(loader_of(photos)) as loader:
        for (batch,) in loader:
            loss = network(batch.float()).square().mean()
            loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
    assert network[0].weight.grad.abs().sum() > 0
