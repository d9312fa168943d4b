"""Images that nvJPEG refuses, leaves out or cannot decode: every other image arrives, and the right one is named."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

from benchmarks.gpu.nvjpeg_parts import Backend
from gpubeton.errors import BadImageError, NvjpegError
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.fields.jpeg import jpeg_size
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import Cutout, NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
from tests.cpu.making import joined, segments
from tests.cpu.pictures import jpeg, photo, pillow_jpeg
from tests.gpu_path.gpu_room import State
from tests.gpu_path.image_samples import IMAGE_SAMPLES, assert_same, epochs, gpu_loader, raw, stored, twin, write_images

CROP = RandomResizedCropRGBImageDecoder((12, 10))
PIPELINE = [CROP, RandomHorizontalFlip(), Cutout(2), NormalizeImage((120, 110, 100), (60, 50, 40), np.float16)]
PIPELINE += [ToTensor(), ToTorchImage()]
PHOTOS = [stored(jpeg(photo(40 + number, 60 - number, number))) for number in range(24)]
BAD = 13
BATCH = 8

#: Statuses of nvjpegStatus_t: invalid parameter, bad JPEG, not supported, execution, internal, incomplete.
STATUSES = (2, 3, 4, 6, 8, 10)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("photos") / "photos.beton", PHOTOS)


@pytest.fixture(scope="module")
def decoded(tmp_path_factory):
    """What nvJPEG finds in them."""
    return write_images(tmp_path_factory.mktemp("decoded") / "decoded.beton", twin(PHOTOS))


def on_cpu(path, count=1, **arguments):
    return epochs(gpu_loader(path, PIPELINE, device="cpu", **arguments), count)


def calls(faults, name=None):
    """Calls that decode."""
    notes = faults.notes("call", name)
    return [note for note in notes if note.name in {"nvjpegDecodeBatched", "nvjpegDecode"}]


def with_cpu_images(result, path, numbers, count=1):
    """The expected batches if the CPU makes some images, and the engines the others."""
    expected, of_the_cpu = on_cpu(result, count), on_cpu(path, count)
    for ours, theirs in zip(expected, of_the_cpu, strict=True):
        for row in np.flatnonzero(np.isin(ours[1][:, 0].numpy(), numbers)):
            ours[0][row] = theirs[0][row]
    return expected


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("is_early", [True, False])
def test_a_status_for_one_image_of_a_batch_costs_no_image(gpus, faults, path, decoded, status, is_early):
    faults.early_write = is_early
    faults.slow_down(500)
    faults.fail_image(status, PHOTOS[BAD].data, batched=True)
    assert_same(epochs(gpu_loader(path, PIPELINE), 2), with_cpu_images(decoded, path, [BAD], 2))
    assert [call.status for call in calls(faults) if call.images == BATCH].count(status) == 1


def test_too_little_memory_for_nvjpeg_is_no_bad_image(gpus, faults, path, decoded):
    faults.fail_image(5, PHOTOS[BAD].data, times=1)
    assert_same(epochs(gpu_loader(path, PIPELINE)), on_cpu(decoded))
    assert gpus[0].caches_emptied == 1
    faults.fail_image(5, PHOTOS[BAD].data)
    loader = gpu_loader(path, PIPELINE, on_error="skip")
    with pytest.raises(NvjpegError, match="ALLOCATOR_FAILURE"):
        list(loader)
    assert loader.bad_samples == []
    loader.close()


@pytest.mark.parametrize("is_skipped", [True, False])
def test_an_image_that_fails_once_is_decoded_by_the_engines_all_the_same(gpus, faults, path, decoded, is_skipped):
    inject = faults.skip_image if is_skipped else (lambda *data, **which: faults.fail_image(8, *data, **which))
    inject(PHOTOS[BAD].data, times=1)
    assert_same(epochs(gpu_loader(path, PIPELINE)), on_cpu(decoded))


@pytest.mark.parametrize("is_skipped", [True, False])
@pytest.mark.parametrize("os_cache", [True, False])
def test_an_image_that_nvjpeg_never_decodes_is_made_by_the_cpu(gpus, faults, path, decoded, is_skipped, os_cache):
    inject = faults.skip_image if is_skipped else (lambda *data, **which: faults.fail_image(3, *data, **which))
    inject(PHOTOS[BAD].data)
    batches = epochs(gpu_loader(path, PIPELINE, os_cache=os_cache), 2)
    assert_same(batches, with_cpu_images(decoded, path, [BAD], 2))


@pytest.mark.parametrize("which", [[0], [7], [0, 1], [3, 5, 7], list(range(8)), list(range(24))], ids=str)
def test_any_number_of_images_may_be_left_out(gpus, faults, path, decoded, which):
    for number in which:
        faults.skip_image(PHOTOS[number].data, times=1)
    assert_same(epochs(gpu_loader(path, PIPELINE, images_per_call=3)), on_cpu(decoded))


def test_every_third_image_that_is_decoded_is_missing_all_the_time(gpus, faults, path, decoded):
    faults.skip_image(every=3)
    batches = epochs(gpu_loader(path, PIPELINE), 2)
    expected = [on_cpu(decoded, 2), on_cpu(path, 2)]
    for batch, *both in zip(batches, *expected, strict=True):
        for row in range(BATCH):
            assert any(torch.equal(batch[0][row], other[0][row]) for other in both), "of nvJPEG or of the CPU"


@pytest.mark.parametrize("times", [1, None])
def test_both_outputs_of_an_image_that_was_left_out_are_repaired(gpus, faults, path, decoded, times):
    more = {"again": PipelineSpec("image", transforms=[CROP, ToTensor()])}
    expected, of_the_cpu = on_cpu(decoded, more=more), on_cpu(path, more=more)
    if times is None:
        for output in (0, 2):
            expected[1][output][BAD - BATCH] = of_the_cpu[1][output][BAD - BATCH]
    faults.skip_image(PHOTOS[BAD].data, **({} if times is None else {"times": times}))
    assert_same(epochs(gpu_loader(path, PIPELINE, more=more)), expected)


def test_images_of_the_cpu_and_raw_ones_in_a_batch_with_missing_ones_are_untouched(gpus, faults, tmp_path):
    path = write_images(tmp_path / "samples.beton", IMAGE_SAMPLES[:16])
    decoded = write_images(tmp_path / "decoded.beton", twin(IMAGE_SAMPLES[:16]))
    for sample in IMAGE_SAMPLES[:16]:
        faults.skip_image(sample.data, times=1)
    assert_same(epochs(gpu_loader(path, PIPELINE)), on_cpu(decoded))


def scribbling(monkeypatch, name, victim):
    """A decoder that fails for an image, and has written something over it and the rest of its call."""
    original = getattr(State, name)

    def decode(state, addresses, sizes, targets, stream):
        results = [
            ctypes.string_at(int(address), int(size))
            for address, size in zip(np.atleast_1d(addresses), np.atleast_1d(sizes), strict=True)
        ]
        if victim not in results:
            return original(state, addresses, sizes, targets, stream)
        for data, target in zip(results, targets, strict=True):
            height, _ = jpeg_size(data)
            ctypes.memset(int(target["channel"][0]), 0x55, height * int(target["pitch"][0]))
        raise NvjpegError("planted", name, 6)

    monkeypatch.setattr(State, name, decode)


def test_pixels_written_by_a_failed_call_are_no_image(gpus, path, decoded, monkeypatch):
    """No canary is left then: the refused image has to be remembered by its row."""
    scribbling(monkeypatch, "decode_batched", PHOTOS[BAD].data)
    batches = epochs(gpu_loader(path, PIPELINE, images_per_call=3))
    assert_same(batches, with_cpu_images(decoded, path, [BAD]))


def test_a_large_image_that_was_left_out_is_decoded_alone(gpus, faults, tmp_path):
    images = [stored(jpeg(photo(700, 800, number))) for number in range(2)]
    path = write_images(tmp_path / "large.beton", images)
    decoded = write_images(tmp_path / "decoded.beton", twin(images))
    faults.skip_image(images[1].data, times=1)
    assert_same(epochs(gpu_loader(path, PIPELINE)), on_cpu(decoded))


# --- remembered images


def failed_calls(faults):
    return [call for call in calls(faults) if call.status != 0]


@pytest.mark.parametrize("is_skipped", [True, False])
def test_an_image_that_only_the_cpu_decodes_is_not_tried_again(gpus, faults, path, is_skipped):
    inject = faults.skip_image if is_skipped else (lambda *data, **which: faults.fail_image(3, *data, **which))
    inject(PHOTOS[BAD].data)
    loader = gpu_loader(path, PIPELINE, order="random")
    list(loader)
    faults.forget_notes()
    list(loader)
    loader.close()
    assert failed_calls(faults) == []
    assert len(faults.notes("image")) == len(PHOTOS) - 1
    assert all(call.images > 1 for call in calls(faults)), "nothing was decoded alone"


def test_an_image_that_failed_with_others_or_once_keeps_its_route(gpus, faults, path):
    faults.fail_image(4, PHOTOS[BAD].data, times=1)
    faults.skip_image(PHOTOS[BAD + 1].data, times=1)
    loader = gpu_loader(path, PIPELINE)
    list(loader)
    faults.forget_notes()
    list(loader)
    assert loader.gpu._free[0].refused == set()
    loader.close()
    assert {note.backend for note in faults.notes("image")} == {Backend.HARDWARE}
    assert len(calls(faults)) == 3


# --- bad images


def truncated_markers(data):
    return data[:200]


def without_a_table(data):
    return joined([part for part in segments(data) if part[0] != 0xDB])


def with_a_broken_scan(data):
    """Its end is missing, which shows only in decoding."""
    return data[: data.index(b"\xff\xda") + 60] + b"\xff\xd9"


def truncated(data):
    return data[:-200]


def garbage(data):
    return bytes(len(data))


def taller(data):
    return replaced_size(data, 1)


def lower(data):
    return replaced_size(data, -1)


def replaced_size(data, more):
    place = data.index(b"\xff\xc0") + 5
    height = int.from_bytes(data[place : place + 2], "big") + more
    return data[:place] + height.to_bytes(2, "big") + data[place + 2 :]


def progressive_and_cut(data):
    whole = pillow_jpeg(photo(40 + BAD, 60 - BAD, BAD), progressive=True)
    return whole[: len(whole) // 3]


#: Ways in which nvJPEG gets no image at all, because the markers show the damage.
DAMAGE = [truncated_markers, truncated, garbage, taller, lower, progressive_and_cut]
#: Ways that only decoding shows.
HIDDEN = [with_a_broken_scan, without_a_table]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Files in which samples 3, 13 and 23 are damaged in one way; made when they are asked for."""
    results = {}

    def damaged(way):
        if way not in results:
            images = [
                stored_photo._replace(data=way(stored_photo.data)) if number % 10 == 3 else stored_photo
                for number, stored_photo in enumerate(PHOTOS)
            ]
            folder = tmp_path_factory.mktemp("damaged")
            results[way] = write_images(folder / f"{way.__name__}.beton", images)
        return results[way]

    return damaged


@pytest.mark.parametrize("way", DAMAGE)
def test_a_bad_image_is_named_as_the_cpu_names_it(gpus, damaged, way):
    results = []
    for device in ("cuda:0", "cpu"):
        loader = gpu_loader(damaged(way), PIPELINE, device=device)
        with pytest.raises(BadImageError) as caught:
            list(loader)
        loader.close()
        results.append((caught.value.samples, caught.value.reasons, str(caught.value)))
    assert results[0] == results[1]
    assert results[0][0] == (3,)


@pytest.mark.parametrize("way", DAMAGE)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_the_rest_of_a_batch_with_bad_images_is_right(gpus, faults, damaged, path, decoded, way, on_error):
    loader = gpu_loader(damaged(way), PIPELINE, on_error=on_error)
    batches = epochs(loader, 2)
    of_the_cpu = gpu_loader(path, PIPELINE, device="cpu", batch_size=1)
    by_the_cpu = [{int(number): image for (image,), number in list(of_the_cpu)} for _ in range(2)]
    of_the_cpu.close()
    reference = gpu_loader(damaged(way), PIPELINE, on_error=on_error, device="cpu")
    samples = [batch[1].tolist() for batch in epochs(reference, 2)]
    assert [batch[1].tolist() for batch in batches] == samples
    assert loader.bad_samples == reference.bad_samples
    assert [bad[:2] for bad in loader.bad_samples] == [(epoch, bad) for epoch in (0, 1) for bad in (3, 13, 23)]
    whole = gpu_loader(decoded, PIPELINE, device="cpu", batch_size=1)
    by_number = [{int(number): image for (image,), number in list(whole)} for _ in range(2)]
    whole.close()
    for place, (images, numbers) in enumerate(batches):
        for row, (image, number) in enumerate(zip(images, numbers[:, 0].tolist(), strict=True)):
            # The CPU makes replacements.
            is_replacement = on_error == "replace" and (8 * (place % 3) + row) % 10 == 3
            assert torch.equal(image, (by_the_cpu if is_replacement else by_number)[place // 3][number])


@pytest.mark.parametrize("way", DAMAGE)
def test_an_image_that_lies_about_its_size_or_has_no_end_never_reaches_nvjpeg(gpus, faults, damaged, way):
    """It would be written by its own size, into its neighbor; or all images of its call would be refused."""
    epochs(gpu_loader(damaged(way), PIPELINE, on_error="skip"))
    assert len(faults.notes("image")) == len(PHOTOS) - 3


def test_metadata_that_lie_are_no_better(gpus, faults, tmp_path, decoded):
    images = [
        stored_photo._replace(width=stored_photo.width + 8) if number == BAD else stored_photo
        for number, stored_photo in enumerate(PHOTOS)
    ]
    path = write_images(tmp_path / "lying.beton", images)
    loader = gpu_loader(path, PIPELINE, on_error="skip")
    batches = epochs(loader)
    assert [bad[1] for bad in loader.bad_samples] == [BAD]
    expected = on_cpu(decoded)
    rows = [row for row in range(BATCH) if row != BAD - BATCH]
    expected[1] = tuple(output[rows] for output in expected[1])
    assert_same(batches, expected)


def test_a_raw_image_of_a_wrong_size_is_named(gpus, tmp_path):
    images = [raw(photo(9, 9, number)) for number in range(4)]
    images[2] = images[2]._replace(data=images[2].data[:-3])
    path = write_images(tmp_path / "raw.beton", images)
    for choice in ("cpu", "bytes"):
        loader = gpu_loader(path, PIPELINE, raw=choice)
        with pytest.raises(BadImageError, match=r"240 .*9 x 9"):
            list(loader)
        loader.close()


@pytest.mark.parametrize("way", HIDDEN)
@pytest.mark.parametrize("status", [3, 8])
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_damage_that_nvjpeg_reports_is_named(gpus, faults, damaged, way, status, on_error):
    faults.damaged_status = status
    loader = gpu_loader(damaged(way), PIPELINE, on_error=on_error)
    if on_error == "raise":
        with pytest.raises(BadImageError) as caught:
            list(loader)
        assert caught.value.samples == (3,)
    else:
        list(loader)
        assert [bad[:2] for bad in loader.bad_samples] == [(0, 3), (0, 13), (0, 23)]
    loader.close()


@pytest.mark.parametrize("way", HIDDEN)
def test_damage_inside_a_scan_is_detected_only_by_nvjpegs_status(gpus, faults, damaged, decoded, way):
    """The CPU finds it; nvJPEG decodes the rest. No other image of the batch suffers."""
    assert faults.damaged_status == 0
    loader = gpu_loader(damaged(way), PIPELINE)
    batches = epochs(loader)
    assert loader.bad_samples == []
    expected = on_cpu(decoded)
    for ours, theirs in zip(batches, expected, strict=True):
        good = ours[1][:, 0] % 10 != 3
        assert torch.equal(ours[0][good], theirs[0][good])


def test_a_whole_file_of_bad_images_ends_with_an_error_and_not_otherwise(gpus, tmp_path):
    path = write_images(
        tmp_path / "bad.beton", [stored_photo._replace(data=garbage(stored_photo.data)) for stored_photo in PHOTOS]
    )
    for on_error in ("raise", "replace"):
        loader = gpu_loader(path, PIPELINE, on_error=on_error)
        with pytest.raises(BadImageError):
            list(loader)
        loader.close()
    assert epochs(gpu_loader(path, PIPELINE, on_error="skip")) == []
