"""The self-test of a GPU: a decoder that does not work is closed before it makes any image of the user's."""

from __future__ import annotations

import ctypes
import gc
import warnings
from collections import Counter
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch

from gpubeton._gpu import self_test
from gpubeton._gpu.kernels import source_of
from gpubeton._plan.jpeg_windows import GROUP
from gpubeton.errors import DeviceError
from gpubeton.loader import GpuOptions, resources
from gpubeton.loader.gpus import read_gpu
from tests.cpu import plain_jpeg
from tests.cpu.pictures import decoded
from tests.gpu_path.gpu_room import DecodeRoute, load, open_nvjpeg_backends, with_entries
from tests.gpu_path.image_samples import assert_same, epochs
from tests.gpu_path.self_test_batch import COPIES, make
from tests.gpu_path.test_entry_decoder import MIXED, PIPELINES, indexed, loader_of
from tests.kernels.host_build import HostKernels, build
from tests.simulator.device import DEVICE, PINNED, TENSOR, SimulatedDevice


@pytest.fixture(autouse=True)
def tested(faults, monkeypatch):
    """The test takes place, and nothing was warned of."""
    monkeypatch.delenv(self_test.VARIABLE)
    monkeypatch.setattr(resources, "_warned", {""})


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return indexed(tmp_path_factory.mktemp("mixed") / "mixed.beton", MIXED)


@pytest.fixture
def broken(monkeypatch):
    """Let launches of one kernel go wrong: `instead(device, *arguments)` replaces them."""
    launch = SimulatedDevice.launch

    def plant(kernel, instead):
        def run(device, name, *others):
            (instead if name == kernel else launch)(device, name, *others)

        monkeypatch.setattr(SimulatedDevice, "launch", run)

    return plant


def leave_out(device, *launch):
    """Write nothing."""


def fail(device, *launch):
    raise DeviceError("no such kernel")


def opened(device, **options):
    """The backends of both decoders, as a loader opens them."""
    opener = partial(open_nvjpeg_backends, library=load(), options=GpuOptions(**options), largest=(5000, 5000))
    with device.active():
        result = self_test.with_self_test(partial(with_entries, opener), device)
        for backend in result.backends.values():
            backend.close()
        return result


def usable(result):
    return {route.name for route in result.backends} | ({"OWN"} if result.takes_entries else set())


@pytest.mark.parametrize(("name", "copies"), [("small", 1), ("full", COPIES)])
def test_the_stored_batches_are_the_cpus_for_their_jpegs(name, copies):
    stored = self_test.stored_batch(name)
    result = make(name, jpegs_of(name), copies)
    assert result.keys() == stored.keys()
    for key, array in result.items():
        assert np.array_equal(array, stored[key]), key
        assert array.dtype == stored[key].dtype


def jpegs_of(name):
    """The different JPEGs of a stored batch."""
    stored = self_test.stored_batch(name)
    offsets, rows = np.unique(stored["offset"], return_index=True)
    return [
        stored["jpegs"][offset : offset + size].tobytes()
        for offset, size in zip(offsets, stored["size"][rows], strict=True)
    ]


def test_every_kind_of_compressed_data_is_among_them(monkeypatch):
    lengths, symbol = {}, plain_jpeg._Bits.symbol

    def noting(bits, table):
        start = bits.position
        value = symbol(bits, table)
        kind = "other" if 0xF0 in table.values() else "DC"
        lengths.setdefault(kind, Counter())[bits.position - start] += 1
        lengths.setdefault("symbols", Counter())[kind, value] += 1
        return value

    monkeypatch.setattr(plain_jpeg._Bits, "symbol", noting)
    (data,) = jpegs_of("full")
    plain_jpeg.read(data)
    assert set(lengths["DC"]) == set(range(1, 13))  # there are twelve symbols
    assert set(lengths["other"]) == set(range(2, 17))  # those of the other batch have one bit, too
    assert lengths["symbols"]["other", 0xF0] > 100  # sixteen zeros
    assert lengths["symbols"]["other", 0] > 100  # end of block
    assert data.count(b"\xff\0") > 100


def test_one_launch_has_thousands_of_intervals_in_full_warps_whose_lanes_differ():
    stored = self_test.stored_batch("full")
    assert len(stored["intervals"]) >= 4096
    assert (stored["groups"][:, 2] == GROUP).sum() >= 4096 // GROUP
    for _, first, count in stored["groups"].tolist():
        entries = stored["intervals"][first : first + count, 1]
        for warp in range(0, count, 32):
            assert len(set(entries[warp : warp + 32].tolist())) == len(entries[warp : warp + 32])


@pytest.mark.parametrize("smooth_chroma", [True, False])
def test_decoders_that_work_pass_once_for_each_device(faults, simulated_device, smooth_chroma):
    result = opened(simulated_device, smooth_chroma=smooth_chroma)
    assert (usable(result), result.warning) == ({"HARDWARE", "OWN"}, "")
    assert self_test.read_faults(simulated_device) == {"cpu": "", "hardware": "", "entries": ""}
    decoded = len(faults.notes("image"))
    assert decoded == 2 * len(self_test.stored_batch("small")["size"])
    assert usable(opened(simulated_device)) == {"HARDWARE", "OWN"}
    assert len(faults.notes("image")) == decoded
    opened(SimulatedDevice(0))
    assert len(faults.notes("image")) == 2 * decoded


def test_it_can_be_left_out(faults, simulated_device, monkeypatch, broken):
    monkeypatch.setenv(self_test.VARIABLE, "0")
    broken("jpeg_down", fail)
    faults.skip_image()
    assert usable(opened(simulated_device)) == {"HARDWARE", "OWN"}
    assert self_test.read_faults(simulated_device) == {}


def test_it_leaves_nothing_on_the_device(faults, simulated_device):
    gc.collect()
    before = [faults.live_memory(kind) for kind in (DEVICE, PINNED, TENSOR)]
    opened(simulated_device)
    assert faults.live("handle") == faults.live("state") == 0
    assert [faults.live_memory(kind) for kind in (DEVICE, PINNED, TENSOR)] == before
    assert len(simulated_device.idle) == len(simulated_device.streams)


def refuse(faults):
    faults.fail_call("nvjpegDecodeBatched", 8)


def write_nothing(faults):
    faults.skip_image()


def write_other_colors(faults):
    faults.decoder = lambda data: decoded(data)[:, :, ::-1]


ENGINES = {
    refuse: "5 of 5 images were not decoded",
    write_nothing: "5 of 5 images were not decoded",
    write_other_colors: "images differ from the CPU's by up to",
}


@pytest.mark.parametrize("plant", ENGINES)
def test_engines_that_fail_are_closed(faults, simulated_device, plant):
    plant(faults)
    result = opened(simulated_device)
    assert usable(result) == {"OWN"}
    assert ENGINES[plant] in result.notes[DecodeRoute.HARDWARE]
    for words in ("Simulated GPU (cuda:0) fails the self-test of its JPEG engines", "Driver for CUDA", "nvidia-nvjpeg"):
        assert words in result.warning
    again = opened(simulated_device)
    assert (usable(again), again.warning) == ({"OWN"}, "")
    assert faults.live("handle") == 0


@pytest.mark.parametrize(
    ("kernel", "instead", "fault"),
    [
        ("jpeg_down", leave_out, "5 of 10 images are not the CPU's"),
        ("jpeg_down-signed", leave_out, "5 of 10 images are not the CPU's"),
        ("jpeg_across-signed", leave_out, "5 of 10 images are not the CPU's"),
        ("jpeg_idct", leave_out, "images are not the CPU's"),
        ("jpeg_huffman", fail, "DeviceError: no such kernel"),
    ],
)
def test_kernels_that_fail_are_not_used(simulated_device, broken, kernel, instead, fault):
    broken(kernel, instead)
    result = opened(simulated_device)
    assert usable(result) == {"HARDWARE"}
    assert fault in result.notes[DecodeRoute.ENTRIES]
    assert "fails the self-test of the decoder in CUDA" in result.warning


# Faults of the kernel: mistakes in its source, and those of a compiler or a GPU.
HUFFMAN = {
    "the second warp": ("thread >= group.count", "thread >= min(group.count, 32)"),
    "later blocks": ("const Group group =", "if (blockIdx.x > 3) return; const Group group ="),
    "sixteen zeros": ("run != 15", "true"),
    "stuffed zeros": ("if (after != 0) return;", "if (after != 0) return; bits.next--;"),
    "a loop": ("while (bits.filled <= 32)", "if (bits.filled <= 32)"),
    "tables of chroma": ("(component > 0 ? 2 : 0)", "0"),
    **{f"codes of {n} bits": ("count > 0 ?", f"count > 0 && length != {n} ?") for n in (1, 9, 10, 11, 12, 13, 15, 16)},
}


@pytest.mark.parametrize("what", HUFFMAN)
def test_parts_of_a_kernel_that_do_not_work_are_noticed(simulated_device, tmp_path, what):
    before, after = HUFFMAN[what]
    source = source_of("jpeg_huffman")
    assert source.count(before) == 1
    (tmp_path / "jpeg_huffman.cu").write_text(source.replace(before, after))
    kernels = HostKernels(build(["jpeg_huffman"], folder=tmp_path))
    address = ctypes.cast(kernels._library.run_jpeg_huffman, ctypes.c_void_p).value
    simulated_device.kernels["jpeg_huffman"] = address, kernels.parameters("jpeg_huffman")
    result = opened(simulated_device)
    assert usable(result) == {"HARDWARE"}
    assert "of" in result.notes[DecodeRoute.ENTRIES]


@pytest.mark.parametrize("kernel", ["resample", "resample-signed", "image_steps"])
def test_a_gpu_that_spoils_the_cpus_images_is_not_used_until_it_passes(simulated_device, broken, kernel):
    broken(kernel, leave_out)
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"self-test of kernels after the CPU: \d+ of 10 images are not"):
            opened(simulated_device)
    broken("none", leave_out)
    assert usable(opened(simulated_device)) == {"HARDWARE", "OWN"}


def test_kernels_that_write_nothing_are_noticed_in_memory_with_the_right_images(simulated_device, broken, monkeypatch):
    levels, empty = self_test.stored_batch("small")["levels"][0], SimulatedDevice.empty
    right = torch.from_numpy(self_test.programs_on("cuda:0", "small")[0].table[levels, np.arange(3)])
    monkeypatch.setattr(SimulatedDevice, "empty", lambda *shape: empty(*shape).copy_(right))
    broken("resample", leave_out)
    with pytest.raises(DeviceError, match="5 of 10 images are not"):
        opened(simulated_device)


@pytest.mark.parametrize("kernel", ["jpeg_huffman", "jpeg_idct", "jpeg_down", "image_steps"])
def test_kernels_that_work_only_once_are_noticed(simulated_device, monkeypatch, kernel):
    launch, seen = SimulatedDevice.launch, []

    def once(device, name, *others):
        seen.append(name)
        if seen.count(kernel) < 2 or name != kernel:
            launch(device, name, *others)

    monkeypatch.setattr(SimulatedDevice, "launch", once)
    with pytest.raises(DeviceError) if kernel == "image_steps" else nullcontext():
        assert usable(opened(simulated_device)) == {"HARDWARE"}


def test_loaders_warn_once_and_have_the_cpus_batches(gpus, faults, path, broken, capsys):
    broken("jpeg_down", leave_out)
    faults.skip_image()
    expected = epochs(loader_of(path, PIPELINES["half"], device="cpu"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            loader = loader_of(path, PIPELINES["half"], routes=("hardware", "entries"))
            loader.explain()
            text = capsys.readouterr().out
            assert text.count("closed, as it fails the self-test") == 2
            assert_same(epochs(loader, 1), expected)
    assert len(caught) == 1
    assert "its JPEG engines" in str(caught[0].message)
    assert "the decoder in CUDA" in str(caught[0].message)


def test_images_do_not_stay_for_a_decoder_that_is_closed(gpus, path, broken):
    broken("jpeg_down", leave_out)
    expected = epochs(loader_of(path, PIPELINES["half"], device="cpu"))
    with pytest.warns(UserWarning, match="the decoder in CUDA"):
        loader = loader_of(path, PIPELINES["half"], decoder="entries", resident="auto")
    assert_same(epochs(loader), expected)
    with pytest.raises(DeviceError, match="self-test"):
        loader_of(path, PIPELINES["half"], decoder="entries", resident=True)


def test_doctor_gives_torchs_reason_where_it_has_no_gpu(monkeypatch):
    def refuse():
        raise RuntimeError("Error 802: system not yet initialized")

    monkeypatch.setattr(torch.cuda, "current_device", refuse)
    assert read_gpu().reason == "torch sees no GPU: Error 802: system not yet initialized"


def test_doctor_reads_the_result_of_the_self_test(gpus, faults, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    write_other_colors(faults)
    state = read_gpu()
    assert state.routes["hardware"].startswith("missing: closed")
    assert not state.missing("entries")
    assert state.self_test["entries"] == state.self_test["cpu"] == ""
    assert "differ from the CPU's" in state.self_test["hardware"]
