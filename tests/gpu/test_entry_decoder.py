"""Our own decoder on a GPU: the CPU's bits of JPEGs with entry points, from resident ones too, and its self-test."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from weakref import WeakKeyDictionary

import pytest
import torch

from benchmarks.gpu.pipelines import image_pipelines
from gpubeton._gpu import self_test
from gpubeton.dataset import index_images
from gpubeton.errors import DeviceError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.format.dataset import open_dataset
from gpubeton.loader import GpuOptions
from gpubeton.transforms import ToTensor
from tests.gpu.comparing import assert_equal_to_the_bit, counted, epoch, images_loader
from tests.gpu_path.gpu_room import DecodeRoute, JpegReader, open_nvjpeg_backends, with_entries
from tests.small_files import write_photos

SIDE = 40
COUNT = 40
PIPELINES = image_pipelines(SIDE)
LEVELS = [CenterCropRGBImageDecoder((SIDE, SIDE), 0.9), ToTensor()]


@pytest.fixture(scope="module")
def indexed_photos(tmp_path_factory):
    path = write_photos(tmp_path_factory.mktemp("indexed") / "photos.beton", COUNT)
    index_images(path)
    return path


@pytest.fixture
def launching(gpu, monkeypatch):
    """Let launches of one kernel do nothing."""
    kind = type(gpu.device)
    launch = kind.launch

    def leave_out(kernel):
        def run(device, name, *others):
            if name != kernel:
                launch(device, name, *others)

        monkeypatch.setattr(kind, "launch", run)

    return leave_out


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("name", PIPELINES)
def test_jpegs_with_entry_points_are_the_cpus_to_the_bit(gpu, indexed_photos, name, resident):
    arguments = {"decoder": "entries", "resident": resident, "order": "random"}
    with counted() as counts:
        result, expected = (
            epoch(images_loader(indexed_photos, PIPELINES[name], device=device, **arguments))
            for device in ("cuda:0", "cpu")
        )
    assert_equal_to_the_bit(result, expected)
    assert counts == {"entries": COUNT}


def test_resident_jpegs_are_copied_once_and_stay_the_cpus_to_the_bit(gpu, indexed_photos, monkeypatch):
    kind, copied = type(gpu.device), []
    copy = kind.copy

    def counting(device, target, source, nbytes, stream):
        copied.append(nbytes)
        copy(device, target, source, nbytes, stream)

    def load(loader):
        return torch.cat([batch[0].cpu() for batch in loader])

    monkeypatch.setattr(kind, "copy", counting)
    nbytes, results = {}, {}
    arguments = {"decoder": "entries", "order": "random"}
    for resident in (True, False):
        with closing(images_loader(indexed_photos, PIPELINES["float16"], resident=resident, **arguments)) as loader:
            first = load(loader)
            copied.clear()
            with monkeypatch.context() as patched:
                if resident:
                    patched.setattr(JpegReader, "read", None)  # not even headers
                results[resident] = [first, load(loader)]
        nbytes[resident] = sum(copied)
    with closing(images_loader(indexed_photos, PIPELINES["float16"], device="cpu", order="random")) as loader:
        for cpus, ours, sent in zip([load(loader), load(loader)], results[True], results[False], strict=True):
            assert_equal_to_the_bit(ours, cpus)
            assert_equal_to_the_bit(sent, cpus)
    jpegs = int(open_dataset(indexed_photos).regions("image").size.sum())
    assert nbytes[False] - nbytes[True] > jpegs // 4, "of each JPEG the bytes that its crop needs"


@pytest.fixture
def opened(gpu, nvjpeg, monkeypatch):
    """A function that opens every decoder that the GPU has, as the first loader of a process does."""
    monkeypatch.delenv(self_test.VARIABLE, raising=False)
    monkeypatch.setattr(self_test, "_faults", WeakKeyDictionary())

    def open_all():
        opener = partial(open_nvjpeg_backends, library=nvjpeg, options=GpuOptions(), largest=(1024, 1024))
        result = self_test.with_self_test(partial(with_entries, opener), gpu.device)
        for backend in result.backends.values():
            backend.close()
        return result

    return open_all


def test_every_decoder_passes_the_self_test_at_power_on(gpu, opened):
    result = opened()
    assert result.warning == ""
    assert result.takes_entries
    routes = {"cpu", "entries", *(route.name.lower() for route in result.backends)}
    assert self_test.read_faults(gpu.device) == dict.fromkeys(routes, "")
    assert {route.name.lower() for route in result.notes} >= routes - {"cpu"}


def test_the_self_test_closes_a_decoder_that_writes_nothing(gpu, opened, launching):
    launching("jpeg_down")
    result = opened()
    assert not result.takes_entries
    assert "are not the CPU's" in result.notes[DecodeRoute.ENTRIES]
    assert "fails the self-test of the decoder in CUDA" in result.warning
    faults = self_test.read_faults(gpu.device)
    assert faults["entries"]
    assert not faults["cpu"]


def test_a_gpu_that_spoils_every_image_is_not_used(gpu, opened, launching):
    launching("resample")
    with pytest.raises(DeviceError, match="self-test of kernels after the CPU"):
        opened()
