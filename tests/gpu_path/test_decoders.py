"""Other packages' decoders, by stand-ins for the packages."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks.gpu.contenders.adapters import ADAPTERS
from gpubeton.errors import DeviceError, LibraryError, OptionError
from gpubeton.gpu.other_libraries import DECODERS, decode_apart, open_decoder
from tests.gpu_path.other_packages import NUMBER, PACKAGES, Pipeline, Stream, pixels

GUARD = 0xCD
SIZES = [(20, 30), (41, 50), (33, 17), (10, 12), (64, 8)]


@pytest.fixture
def device():
    return SimpleNamespace(number=NUMBER)


@pytest.fixture(params=PACKAGES)
def decoder(request, monkeypatch, device):
    for name, made in PACKAGES[request.param]().items():
        monkeypatch.setitem(sys.modules, name, made)
    return opened(request.param, device)


def opened(name, device):
    """A decoder of gpubeton's, or one that only benchmarks use."""
    return ADAPTERS[name](device) if name in ADAPTERS else open_decoder(name, device)


def jpeg(height, width, mode="RGB"):
    shape = (height, width) if mode == "L" else (height, width, 3)
    levels = np.random.default_rng(height * 1000 + width).integers(0, 256, shape, np.uint8)
    written = io.BytesIO()
    Image.fromarray(levels).save(written, "JPEG", quality=95)
    return written.getvalue()


def room(height, width):
    """A place of a picture, whose rows are followed by bytes of others."""
    whole = torch.full((height, width + 3, 3), GUARD, dtype=torch.uint8)
    return whole[:, :width]


def decode(decoder, contents, targets):
    return decoder.decode([memoryview(content) for content in contents], targets, Stream())


def assert_decoded(targets, contents, but=()):
    for index, (target, content) in enumerate(zip(targets, contents, strict=True)):
        if index not in but:
            np.testing.assert_array_equal(target.numpy(), pixels(content))
        assert (target._base[:, target.shape[1] :] == GUARD).all(), "the neighbor was written"


def test_every_decoder_is_tested():
    assert set(PACKAGES) == {*DECODERS, *ADAPTERS}


def test_images_of_several_sizes_arrive_where_they_belong(decoder):
    contents = [jpeg(*size) for size in SIZES]
    targets = [room(*size) for size in SIZES]
    assert decode(decoder, contents, targets) == []
    assert_decoded(targets, contents)


def test_a_decoder_says_its_name(decoder, request):
    assert decoder.name == request.node.callspec.params["decoder"]


def test_gray_images_become_rgb(decoder):
    contents = [jpeg(20, 30, "L")]
    targets = [room(20, 30)]
    assert decode(decoder, contents, targets) == []
    assert_decoded(targets, contents)


@pytest.mark.parametrize("bad", [(0,), (2,), (4,), (1, 3), (0, 1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("damage", ["cut", "header"])
def test_bad_images_are_named_and_the_others_are_complete(decoder, bad, damage):
    contents = [jpeg(*size) for size in SIZES]
    for index in bad:
        contents[index] = contents[index][: len(contents[index]) // 2] if damage == "cut" else b"\xff\xd8\xff\xc0junk"
    targets = [room(*size) for size in SIZES]
    failed = decode(decoder, contents, targets)
    assert [index for index, _ in failed] == list(bad)
    assert all(reason for _, reason in failed)
    # The damaged ones have no pixels to compare with.
    good = [index for index in range(len(SIZES)) if index not in bad]
    assert_decoded([targets[index] for index in good], [contents[index] for index in good])


def test_an_image_of_another_size_than_expected_is_a_failure_and_writes_nothing(decoder):
    contents = [jpeg(20, 30), jpeg(21, 30), jpeg(20, 31)]
    targets = [room(20, 30) for _ in contents]
    assert decode(decoder, contents, targets) == [
        (1, "decoded to 21 x 30 x 3; the file says 20 x 30 x 3"),
        (2, "decoded to 20 x 31 x 3; the file says 20 x 30 x 3"),
    ]
    assert_decoded(targets, contents, but=(1, 2))
    assert (targets[1] == GUARD).all()


def test_a_list_after_a_failed_one_and_a_longer_one_are_decoded(decoder):
    small, large = [jpeg(8, 8)], [jpeg(*size) for size in SIZES * 2]
    decode(decoder, small, [room(8, 8)])
    assert decode(decoder, [b"junk"], [room(8, 8)])[0][0] == 0
    for contents in (large, small):
        targets = [room(*pixels(content).shape[:2]) for content in contents]
        assert decode(decoder, contents, targets) == []
        assert_decoded(targets, contents)


def test_no_images_are_no_failure(decoder):
    assert decode(decoder, [], []) == []


def test_bytes_in_writable_memory_are_taken_as_they_are(decoder):
    content = bytearray(jpeg(20, 30))
    target = room(20, 30)
    assert decode(decoder, [content], [target]) == []
    assert_decoded([target], [bytes(content)])


def test_nothing_is_under_way_when_decode_returns(decoder):
    stream = Stream()
    decoder.decode([memoryview(jpeg(8, 8))], [room(8, 8)], stream)
    assert stream.waits >= 1


# --- one package's own ways


def only(name, monkeypatch, device):
    for part, made in PACKAGES[name]().items():
        monkeypatch.setitem(sys.modules, part, made)
    return opened(name, device)


def test_a_pipeline_of_dali_is_built_once_for_lists_up_to_its_length(monkeypatch, device):
    monkeypatch.setattr(Pipeline, "built", 0)
    decoder = only("dali", monkeypatch, device)
    for count in (5, 3, 5, 1):
        decode(decoder, [jpeg(8, 8)] * count, [room(8, 8) for _ in range(count)])
    assert Pipeline.built == 2  # one to see whether it starts


def test_a_pipeline_of_dali_that_failed_is_built_again_as_large_as_it_was(monkeypatch, device):
    decoder = only("dali", monkeypatch, device)
    decode(decoder, [jpeg(8, 8)] * 5, [room(8, 8) for _ in range(5)])
    decode(decoder, [b"junk"], [room(8, 8)])
    monkeypatch.setattr(Pipeline, "built", 0)
    for count in (1, 5):
        decode(decoder, [jpeg(8, 8)] * count, [room(8, 8) for _ in range(count)])
    assert Pipeline.built == 1


def test_dalis_reason_is_told_without_the_traceback_of_its_pipeline(monkeypatch, device):
    decoder = only("dali", monkeypatch, device)
    assert decode(decoder, [jpeg(40, 40)[:900]], [room(40, 40)]) == [(0, "RuntimeError: Failed to decode sample #0 :")]


def test_torchvision_begins_when_the_stream_is_done_since_it_does_not_wait_for_it(monkeypatch, device):
    decoder = only("torchvision", monkeypatch, device)
    stream, waits = Stream(), []
    inner = decoder._decode_jpeg
    monkeypatch.setattr(decoder, "_decode_jpeg", lambda *a, **k: waits.append(stream.waits) or inner(*a, **k))
    decoder.decode([memoryview(jpeg(8, 8))], [room(8, 8)], stream)
    assert waits == [1]


# --- opening


@pytest.mark.parametrize("name", DECODERS)
def test_a_package_that_is_not_installed_is_named_with_what_to_install(name, monkeypatch, device):
    for part in PACKAGES[name]():
        monkeypatch.setitem(sys.modules, part, None)
    command = {"dali": r"pip install .*\[dali\]'.*nvidia-dali-cuda120", "pynvjpeg": "--no-build-isolation pynvjpeg"}[
        name
    ]
    with pytest.raises(LibraryError, match=command):
        open_decoder(name, device)


def test_a_package_that_is_too_old_is_named_with_what_to_install(monkeypatch, device):
    parts = PACKAGES["dali"]()
    del parts["nvidia.dali"].Pipeline
    for part, made in parts.items():
        monkeypatch.setitem(sys.modules, part, made)
    with pytest.raises(LibraryError, match=r"'Pipeline'.* pip install .*\[dali\]'"):
        open_decoder("dali", device)


def test_a_package_that_does_not_start_is_a_device_error(monkeypatch, device):
    def refuse(self, **_):
        raise RuntimeError("Internal error - Could not create decoder. Code: 8")

    monkeypatch.setattr("tests.gpu_path.other_packages.Pipeline.__init__", refuse)
    with pytest.raises(DeviceError, match=f"'dali' does not start on cuda:{NUMBER}: RuntimeError: Internal"):
        only("dali", monkeypatch, device)


def test_an_unknown_decoder_is_answered_with_those_that_there_are(device):
    with pytest.raises(OptionError, match=r"'turbojpeg'.*'dali', 'pynvjpeg'"):
        open_decoder("turbojpeg", device)


# --- lists that are given up for one bad image


@pytest.mark.parametrize("count", range(8))
@pytest.mark.parametrize("number_of_bad", range(3))
def test_every_bad_image_is_found_and_every_good_one_kept(count, number_of_bad):
    bad = set(range(count)[-number_of_bad:]) if number_of_bad else set()
    calls = []

    def decode_list(some):
        calls.append(len(some))
        if bad & set(some):
            raise RuntimeError("bad")
        return [10 * one for one in some]

    found = decode_apart(decode_list, list(range(count)), (RuntimeError,))
    assert found == ["RuntimeError: bad" if one in bad else 10 * one for one in range(count)]
    assert 0 not in calls


def test_an_error_of_another_kind_is_not_taken_for_a_bad_image():
    with pytest.raises(MemoryError):
        decode_apart(lambda _: (_ for _ in ()).throw(MemoryError()), [1, 2], (RuntimeError,))
