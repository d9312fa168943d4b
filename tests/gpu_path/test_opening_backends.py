from __future__ import annotations

import gc

import pytest

from gpubeton._gpu import nvjpeg_backends
from gpubeton.loader import GpuOptions
from tests.gpu_path.gpu_room import INTERPOLATED, DecodeRoute, Handle, load, open_nvjpeg_backends
from tests.simulator.active_device import device

__all__ = ["device"]

CREATE = "nvjpegCreateEx"


@pytest.fixture
def opened(device, faults):
    """Opens routes; closes them at the end, when nothing may be left."""
    gc.collect()  # errors of earlier tests may hold something of nvJPEG
    results = []

    def opened(largest=(40, 30), **options):
        results.append(open_nvjpeg_backends(device, load(), GpuOptions(**options), largest))
        return results[-1]

    yield opened
    for result in results:
        for route in result.backends.values():
            route.settle()
            route.close()
    assert (faults.live("state"), faults.live("handle")) == (0, 0)


@pytest.mark.parametrize(
    ("engines", "cores", "images_per_call", "most"), [(7, 1, 0, 56), (1, 8, 0, 64), (1, 1, 0, 8), (7, 1, 50, 50)]
)
def test_the_engines_get_enough_at_a_time(opened, faults, engines, cores, images_per_call, most):
    faults.engines, faults.cores = engines, cores
    result = opened(images_per_call=images_per_call)
    assert (list(result.backends), result.warning) == ([DecodeRoute.HARDWARE], "")
    assert result.backends[DecodeRoute.HARDWARE].most == most
    assert result.notes == {DecodeRoute.HARDWARE: f"{engines} JPEG engines, {most} images a call"}


def test_states_and_memory_wait_for_the_first_image(opened, faults):
    result = opened(largest=(40, 30))
    assert (faults.live("handle"), faults.live("state")) == (1, 0)
    assert result.backends[DecodeRoute.HARDWARE].largest == (40, 30)


@pytest.mark.parametrize(("name", "architecture"), [("NVIDIA A10", "sm_86"), ("NVIDIA GeForce RTX 4070 Ti", "sm_89")])
def test_without_engines_the_reason_is_noted_and_the_cpu_decodes(
    opened, faults, device, monkeypatch, name, architecture
):
    """A GeForce has the architecture of a data center's GPU, but not its engines."""
    faults.engines = 0
    monkeypatch.setattr(type(device), "name", name)
    monkeypatch.setattr(type(device), "architecture", architecture)
    result = opened()
    assert (result.backends, result.warning) == ({}, "")
    assert "nvjpegCreateEx: status 7 (ARCH_MISMATCH)" in result.notes[DecodeRoute.HARDWARE]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("status", [5, 7])
def test_a_gpu_that_has_engines_and_cannot_use_them_is_worth_a_warning(
    opened, faults, device, monkeypatch, architecture, status
):
    """A container without the driver's library, a MIG slice without an engine, no memory."""
    faults.fail_call(CREATE, status)
    monkeypatch.setattr(type(device), "architecture", architecture)
    result = opened()
    assert result.warning.startswith(
        "Simulated GPU (cuda:0) has JPEG engines that cannot be used, so the CPU decodes in "
    )
    assert result.notes[DecodeRoute.HARDWARE] in result.warning


def test_engines_that_are_not_wanted_are_not_opened(opened, faults):
    result = opened(routes=())
    assert (result.backends, result.warning, result.notes) == ({}, "", {DecodeRoute.HARDWARE: "not wanted"})
    assert faults.count(CREATE) == 0


@pytest.mark.parametrize(
    ("smooth", "version", "flag"), [(True, 130001, 1), (True, 120100, 1), (True, 120000, 0), (False, 130001, 0)]
)
def test_chroma_is_interpolated_where_nvjpeg_can(opened, faults, monkeypatch, smooth, version, flag):
    faults.version = version
    seen = []

    def noting(library, *, flags, active):
        seen.append(flags)
        return Handle(library, flags=flags, active=active)

    monkeypatch.setattr(nvjpeg_backends, "Handle", noting)
    opened(smooth_chroma=smooth)
    assert seen == [INTERPOLATED if flag else 0]


def test_engines_whose_number_cannot_be_read_release_everything(opened, faults):
    faults.fail_call("nvjpegGetHardwareDecoderInfo", 5)
    result = opened()
    assert result.backends == {}
    assert "nvjpegGetHardwareDecoderInfo" in result.notes[DecodeRoute.HARDWARE]
    assert faults.live("handle") == 0
