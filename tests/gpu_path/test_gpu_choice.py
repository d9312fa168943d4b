"""Which GPU decodes, and what happens where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.errors import DeviceError, LibraryError, OptionError
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import resources
from gpubeton.loader.gpus import choose_gpu
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import NormalizeImage, ToDevice, ToTensor
from tests.gpu_path.image_samples import IMAGE_SAMPLES, assert_same, epochs, gpu_loader, twin, write_images
from tests.gpu_path.test_entry_decoder import indexed, loader_of
from tests.simulator.device import SimulatedDevice

CROP = RandomResizedCropRGBImageDecoder((12, 10))
THERE = [CROP, ToTensor(), ToDevice("cuda:0"), NormalizeImage((120, 110, 100), (60, 50, 40), np.float16)]
IMAGES = IMAGE_SAMPLES[:16]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images") / "images.beton", IMAGES)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    decoded = write_images(tmp_path_factory.mktemp("decoded") / "decoded.beton", twin(IMAGES))
    # This torch may know no GPU, and nothing replaces it here.
    return epochs(
        gpu_loader(decoded, [operation for operation in THERE if not isinstance(operation, ToDevice)], device="cpu")
    )


# --- the choice itself


@pytest.mark.parametrize(
    ("device", "decoder", "target", "is_forced"),  # a target: its name, whether it takes everything, and decodes
    [
        ("cpu", "auto", None, False),
        ("cpu", "nvjpeg", None, False),
        ("auto", "cpu", None, False),
        ("auto", "auto", ("cuda:1", False, True), False),
        ("auto", "nvjpeg", ("cuda:1", False, True), True),
        ("cuda:0", "auto", ("cuda:0", True, True), True),
        ("cuda:0", "entries", ("cuda:0", True, True), True),
        ("cuda", "auto", ("cuda:0", True, True), True),
        ("cuda:0", "cpu", ("cuda:0", True, False), False),
    ],
)
def test_a_gpu_is_chosen_by_name_or_by_todevice(device, decoder, target, is_forced):
    pipelines = {"label": [ToTensor(), ToDevice("cpu")], "image": [ToTensor(), ToDevice("cuda:1")]}
    choice = choose_gpu(device, decoder, pipelines)
    assert (choice.target, choice.is_forced) == (target, is_forced)
    assert choice.reason


@pytest.mark.parametrize(
    "pipelines",
    [{}, {"image": None}, {"image": []}, {"image": [ToTensor()]}, {"image": [ToTensor(), ToDevice("cpu")]}],
)
def test_without_a_request_for_a_gpu_none_is_chosen(pipelines):
    assert choose_gpu("auto", "auto", pipelines).target is None


def test_the_first_of_several_gpus_is_taken_also_one_that_a_further_output_requests():
    pipelines = {"a": [ToTensor(), ToDevice("cuda:3")], "b": [ToTensor(), ToDevice("cuda:1")]}
    assert choose_gpu("auto", "auto", pipelines).target.device == "cuda:3"
    pipelines = {"again": PipelineSpec("image", transforms=[ToTensor(), ToDevice("cuda:2")])}
    assert choose_gpu("auto", "auto", pipelines).target.device == "cuda:2"


def test_images_are_made_on_the_chosen_gpu_only_if_their_own_pipeline_moves_there():
    pipelines = [[ToTensor()], [ToDevice("cpu")], [ToDevice("cuda:1")], [ToDevice("cuda:0")]]
    for device, decoder, expected in (
        ("auto", "auto", [False, False, False, True]), ("cuda:0", "auto", [True] * 4), ("cuda:0", "cpu", [False] * 4)
    ):  # fmt: skip
        target = choose_gpu(device, decoder, {"image": pipelines[3]}).target
        assert [target.takes(pipeline) for pipeline in pipelines] == expected


def test_the_current_gpu_is_meant_where_no_number_is_given(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    assert choose_gpu("cuda", "auto", {}).target.device == "cuda:2"
    assert choose_gpu("auto", "auto", {"image": [ToTensor(), ToDevice("cuda")]}).target.device == "cuda:2"


@pytest.mark.parametrize("decoder", ["auto", "entries", "nvjpeg", "cpu"])
def test_decoders_are_checked(decoder, path):
    assert gpu_loader(path, [CROP, ToTensor()], device="cpu", decoder=decoder).decoder == decoder
    with pytest.raises(OptionError, match=f"'{decoder} '"):
        gpu_loader(path, [CROP, ToTensor()], device="cpu", decoder=f"{decoder} ")


# --- GPUs that cannot


@pytest.fixture
def unwarned(monkeypatch):
    """As if nothing had been warned of."""
    monkeypatch.setattr(resources, "_warned", {""})


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_without_engines_the_cpu_decodes_and_explain_gives_the_reason(
    gpus, faults, path, capsys, monkeypatch, architecture, unwarned, recwarn
):
    """A GPU that should have engines is worth a warning, once."""
    monkeypatch.setattr(SimulatedDevice, "architecture", architecture)
    faults.engines = 0
    for _ in range(2):
        loader = gpu_loader(path, THERE)
        loader.explain()
        text = capsys.readouterr().out
        assert "images are decoded by Simulated GPU" in text
        assert "hardware  nvjpegCreateEx: status 7 (ARCH_MISMATCH)" in text
        batches = epochs(loader)
        assert_same(
            batches,
            epochs(gpu_loader(path, [operation for operation in THERE if operation is not THERE[2]], device="cpu")),
        )
    assert faults.notes("image") == []
    warned = [str(warning.message) for warning in recwarn]
    assert len(warned) == (architecture == "sm_90")
    assert all(message.startswith("Simulated GPU (cuda:0) has JPEG engines that cannot be used") for message in warned)


@pytest.mark.parametrize(
    ("has_entries", "engines", "decoder", "lacks"),
    [(False, 0, "auto", True), (True, 0, "auto", False), (False, 1, "auto", False), (False, 1, "entries", True)],
)
def test_where_only_entry_points_are_missing_a_message_names_the_command_that_makes_them(
    gpus, faults, tmp_path, capsys, unwarned, recwarn, has_entries, engines, decoder, lacks
):
    path = indexed(tmp_path / "images.beton", IMAGES)
    if not has_entries:
        path.with_name("images.beton.index").unlink()
    faults.engines = engines
    loader = loader_of(path, THERE, routes=("hardware", "entries"), decoder=decoder)
    loader.explain()
    assert ("gpubeton index FILE" in capsys.readouterr().out) == lacks
    assert loader._describe().lacks_entries == lacks
    assert [("gpubeton index FILE" in str(warning.message)) for warning in recwarn] == [lacks] * (engines == 0)
    loader.close()


def missing(monkeypatch):
    """A machine without nvJPEG."""
    monkeypatch.delenv("GPUBETON_NVJPEG")

    def load(path=None):
        raise LibraryError("nvJPEG was not found. the wheels of NVIDIA: none; /usr/local/cuda: no such file")

    monkeypatch.setattr("gpubeton._gpu.nvjpeg_backends.load", load)


def test_without_nvjpeg_our_own_decoder_goes_on_with_a_note_and_a_warning(gpus, path, monkeypatch, capsys, unwarned):
    missing(monkeypatch)
    with pytest.warns(UserWarning, match=r"has JPEG engines that cannot be used.*nvJPEG was not found"):
        loader = gpu_loader(path, THERE, device="auto", routes=("hardware", "entries"))
    loader.explain()
    shown = capsys.readouterr().out
    assert "images are decoded by Simulated GPU" in shown
    assert "hardware  nvJPEG was not found" in shown
    assert_same(epochs(loader), epochs(gpu_loader(path, THERE, device="cpu")))


@pytest.mark.parametrize("routes", [(), ("entries",)])
def test_nvjpeg_is_not_looked_for_if_its_engines_are_not_allowed(gpus, path, monkeypatch, recwarn, routes):
    missing(monkeypatch)
    loader = gpu_loader(path, THERE, routes=routes)
    assert loader.gpu is not None
    assert_same(epochs(loader), epochs(gpu_loader(path, THERE, device="cpu")))
    assert not recwarn.list


def test_engines_alone_without_nvjpeg_are_replaced_by_the_cpu_with_a_warning(gpus, path, monkeypatch, capsys):
    missing(monkeypatch)
    with pytest.warns(
        UserWarning, match=r"decoded on the CPU. cuda:0 cannot decode: nvJPEG was not found.*no such file"
    ):
        loader = gpu_loader(path, THERE, device="auto")
    assert loader.gpu is None
    loader.explain()
    assert "images are decoded on the CPU: cuda:0 cannot decode: nvJPEG was not found" in capsys.readouterr().out
    assert_same(epochs(loader), epochs(gpu_loader(path, THERE, device="cpu")))


@pytest.mark.parametrize(
    "choice",
    [
        {"device": "cuda:0"},
        {"device": "auto", "decoder": "nvjpeg"},
        {"decoder": "nvjpeg", "routes": ("hardware", "entries")},
    ],
)
def test_a_request_for_a_missing_nvjpeg_raises_an_error_with_every_place(gpus, path, monkeypatch, choice):
    missing(monkeypatch)
    with pytest.raises(DeviceError, match="the wheels of NVIDIA: none; /usr/local/cuda: no such file"):
        gpu_loader(path, THERE, **choice)


def test_a_file_that_is_no_nvjpeg_is_named(gpus, path, monkeypatch, tmp_path):
    wrong = tmp_path / "libnvjpeg.so"
    wrong.write_bytes(b"not a library")
    monkeypatch.setenv("GPUBETON_NVJPEG", str(wrong))
    with pytest.raises(LibraryError, match=str(wrong)):
        gpu_loader(path, THERE)
    with pytest.warns(UserWarning, match=str(wrong)):
        gpu_loader(path, THERE, device="auto").close()


def test_a_gpu_that_cannot_be_opened_is_an_error_or_a_warning(path, monkeypatch):
    def open_device(device):
        raise DeviceError(f"{device}: no driver")

    monkeypatch.setattr("gpubeton._gpu.cuda.open_device", open_device)
    with pytest.raises(DeviceError, match="cuda:0: no driver"):
        gpu_loader(path, THERE)
    with pytest.warns(UserWarning, match="images are decoded on the CPU. cuda:0 cannot decode: cuda:0: no driver"):
        gpu_loader(path, THERE, device="auto").close()


# --- GPUs that need not


def test_without_images_no_gpu_is_opened(gpus, path):
    loader = gpu_loader(path, None, more={"number": [ToTensor(), ToDevice("cuda:0")]})
    assert (loader.gpu, gpus) == (None, {})
    assert len(list(loader)) == 2
    loader.close()


def test_the_cpu_may_decode_for_a_gpu(gpus, faults, path):
    loader = gpu_loader(path, [CROP, ToTensor()], decoder="cpu")
    assert loader.gpu is None
    batches = epochs(loader)
    assert_same(batches, epochs(gpu_loader(path, [CROP, ToTensor()], device="cpu")))
    assert faults.notes("image") == []
