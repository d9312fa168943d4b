from __future__ import annotations

import io
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image

from gpubeton import BatchDecoder, decode_image
from gpubeton.dataset import Contents
from gpubeton.errors import BadImageError, OptionError, PipelineError
from gpubeton.fields.decoders import (
    CenterCropRGBImageDecoder,
    IntDecoder,
    PadRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.fields.jpeg import decode_rgb
from gpubeton.fields.pixels import rgb_of_file
from gpubeton.loader import Loader
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import (
    ImageMixup,
    Mosaic,
    NormalizeImage,
    RandAugment,
    RandomBrightness,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    ToTensor,
    ToTorchImage,
)
from tests.cpu.damage import flip_bits
from tests.cpu.pictures import jpeg, photo, pillow_jpeg
from tests.loader.pipelines import ONLY_IMAGE, augmented

CROP = RandomResizedCropRGBImageDecoder((24, 20))
VIEWS = [ToTensor(), ToTorchImage()]
NORMALIZE = NormalizeImage([120] * 3, [60] * 3, np.float32)

PIPELINES = {
    "flips and cutouts": augmented(),
    "colors": [CROP, RandomBrightness(0.4), NORMALIZE, *VIEWS],
    "steps": [CROP, RandAugment(2, 9), RandomHorizontalFlip(), *VIEWS],
    "arrays": [CenterCropRGBImageDecoder((17, 23))],
    "padded": [PadRGBImageDecoder((30, 40), 7), *VIEWS],
    "after the pass": [CROP, NORMALIZE, *VIEWS, torch.nn.AvgPool2d(2), RandomErasing(1)],
}
#: Their images depend on the others of the batch.
MIXING = {"mixup": [CROP, ImageMixup(0.5, False), NORMALIZE, *VIEWS], "mosaic": [CROP, Mosaic(p=0.5), *VIEWS]}


@pytest.fixture(scope="module")
def files(photos):
    """The images of the small file."""
    contents = Contents(photos)
    return [contents.stored(sample, "image") for sample in range(50)]


def batches_of(path, pipeline, *, name="image", **arguments):
    """Sample ids and images of each batch of a loader, in its second epoch."""
    pipelines = {**ONLY_IMAGE, "image": None, name: pipeline}
    loader = Loader(path, 8, num_workers=2, order="random", seed=3, drop_last=False, pipelines=pipelines, **arguments)
    loader.set_epoch(1)
    batches = iter(loader)
    return [(batches.samples, images[-1]) for images in batches]


def same(first, second):
    """Whether two batches are equal, types and strides included."""
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    return (first.dtype, first.stride()) == (second.dtype, second.stride()) and torch.equal(first, second)


@pytest.mark.parametrize("name", [*PIPELINES, *MIXING])
def test_images_of_ids_a_seed_and_an_epoch_are_those_of_a_loader(photos, files, name):
    pipeline = {**PIPELINES, **MIXING}[name]
    decoder = BatchDecoder(pipeline, seed=3)
    for samples, images in batches_of(photos, pipeline):
        assert same(decoder([files[sample] for sample in samples], samples, epoch=1), images)


@pytest.mark.parametrize("name", PIPELINES)
def test_images_do_not_depend_on_the_list(files, name):
    ids = np.random.default_rng(0).permutation(50)
    whole = BatchDecoder(PIPELINES[name], 2, seed=3)([files[number] for number in ids], ids, epoch=4)
    decoder = BatchDecoder(PIPELINES[name], 1, seed=3)
    for start, stop in ((0, 1), (1, 30), (30, 32), (32, 50)):
        assert same(decoder([files[number] for number in ids[start:stop]], ids[start:stop], epoch=4), whole[start:stop])


def test_further_outputs_of_a_loader_are_those_of_their_numbers(photos, files):
    decoder = BatchDecoder(augmented(), seed=3, field_number=6)  # after six fields
    spec = PipelineSpec("image", transforms=augmented())
    for samples, images in batches_of(photos, spec, name="second"):
        assert same(decoder([files[sample] for sample in samples], samples, epoch=1), images)


def test_a_pipeline_may_begin_with_a_crop(files):
    decoder = RandomResizedCropRGBImageDecoder(24, (0.2, 1), (0.75, 1.3))
    expected = BatchDecoder([decoder, *VIEWS], seed=3)(files[:9])
    assert torch.equal(
        BatchDecoder([RandomResizedCrop((0.2, 1), (0.75, 1.3), 24), *VIEWS], seed=3)(files[:9]), expected
    )


def test_without_ids_each_call_counts_on(files):
    decoder = BatchDecoder(augmented(), seed=3)
    counted = torch.cat([decoder(files[:3]), decoder([]), decoder(files[3:10])])
    assert torch.equal(counted, BatchDecoder(augmented(), seed=3)(files[:10], range(10)))
    assert not torch.equal(decoder(files[:10]), counted)
    assert not torch.equal(BatchDecoder(augmented())(files[:10]), counted)


def png(rgb):
    file = io.BytesIO()
    Image.fromarray(rgb).save(file, "PNG")
    return file.getvalue()


KINDS = {
    "progressive": pillow_jpeg(photo(41, 52), progressive=True),
    "gray": pillow_jpeg(photo(41, 52), "L", progressive=True),
    "inks": pillow_jpeg(photo(41, 52), "CMYK"),
    "PNG": png(photo(41, 52)),
    "RGBA": png(np.dstack([photo(41, 52), photo(41, 52)[..., 0]])),
}


@pytest.mark.parametrize("name", KINDS)
def test_files_that_libraries_decode_whole_have_the_crop_of_their_pixels(name):
    pixels = rgb_of_file(KINDS[name])
    decoder = BatchDecoder([CROP, RandomHorizontalFlip(), ToTensor()], seed=3)
    images = decoder([KINDS[name], png(pixels), jpeg(photo(41, 52))], [7, 7, 7])
    assert torch.equal(images[0], images[1])
    assert not torch.equal(images[0], images[2])


def test_gray_files_and_files_with_restart_markers_are_decoded_as_others(files):
    rgb = photo(100, 120)
    decoder = BatchDecoder([CROP, ToTensor()], seed=3)
    plain, marked = decoder([pillow_jpeg(rgb), pillow_jpeg(rgb, restart_marker_rows=1)], [5, 5])
    assert torch.equal(plain, marked)
    (gray,) = decoder([jpeg(rgb, sampling="gray")], [5])
    assert torch.equal(gray[..., 0], gray[..., 2])


@pytest.mark.parametrize(
    "convert",
    [
        memoryview,
        bytearray,
        lambda data: np.frombuffer(data, np.uint8),
        lambda data: torch.tensor(list(data), dtype=torch.uint8),
    ],
    ids=["memoryview", "bytearray", "array", "tensor"],
)
def test_bytes_may_be_given_in_any_form(files, convert):
    few = [convert(data) for data in files[:3]]
    expected = BatchDecoder(augmented(), seed=3)(files[:3])
    assert torch.equal(BatchDecoder(augmented(), seed=3)(few), expected)
    gaps = np.repeat(np.frombuffer(files[0], np.uint8), 2)[::2]
    assert torch.equal(BatchDecoder(augmented(), seed=3)([gaps]), expected[:1])


# --- bad images -------------------------------------------------------------------------------------------------------

BAD = [
    b"",
    b"no image",
    jpeg(photo(30, 30))[:-40],
    png(photo(30, 30))[:-60],
    b"\xff\xd8\xff\xc0\0\x0b\x08\0\0\0\x05\1\1\x11\0",
]


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_a_bad_image_is_named_with_its_position_its_id_and_the_reason(files, data):
    decoder = BatchDecoder(augmented(), seed=3)
    with pytest.raises(BadImageError, match=r"sample 33: position 2 of the list: .*on_error=") as caught:
        decoder([*files[:2], data, files[2]], [31, 32, 33, 34])
    assert caught.value.samples == (33,)
    with pytest.raises(BadImageError, match="position 1 of the list") as caught:
        decoder([files[0], data])
    assert caught.value.samples == (1,)
    assert torch.equal(decoder(files[:2], [1, 2]), BatchDecoder(augmented(), seed=3)(files[:2], [1, 2]))


def test_an_image_without_pixels_is_bad_for_that_reason():
    data = bytearray(jpeg(photo(30, 30)))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 2] = b"\0\0"
    with pytest.raises(BadImageError, match="its header claims 0 x 30 pixels"):
        BatchDecoder(augmented())([bytes(data)])


@pytest.mark.parametrize("name", ["flips and cutouts", "after the pass"])
@pytest.mark.parametrize(("on_error", "rows"), [("skip", [0, 2, 3, 5]), ("replace", [0, 2, 2, 3, 5, 5, 0])])
def test_bad_images_are_skipped_or_replaced_by_the_next_good_ones(files, name, on_error, rows):
    some = [files[0], BAD[0], files[1], files[2], BAD[2], files[3], BAD[3]]
    ids = np.arange(70, 77)
    decoder = BatchDecoder(PIPELINES[name], seed=3, on_error=on_error)
    result = decoder.decode(some, ids, epoch=2)
    assert result.rows.tolist() == rows
    assert [position for position, _ in result.bad] == [1, 4, 6]
    good = BatchDecoder(PIPELINES[name], seed=3)([some[row] for row in rows], ids[rows], epoch=2)
    assert torch.equal(result.images, good)
    assert torch.equal(decoder(some, ids, epoch=2), good)
    assert decoder.decode(files[:2]).bad == ()


def test_of_no_good_image_a_batch_has_no_rows_or_an_error_is_raised():
    skipping = BatchDecoder(augmented(), on_error="skip")
    for images in ([], BAD, iter(BAD)):
        result = skipping.decode(images)
        assert (result.images.shape, result.images.dtype, len(result.rows)) == ((0, 3, 24, 20), torch.float16, 0)
    assert BatchDecoder([CROP])([], []).shape == (0, 24, 20, 3)
    with pytest.raises(BadImageError, match="No image of the list is good"):
        BatchDecoder(augmented(), on_error="replace")(BAD)


def test_hostile_files_are_decoded_or_refused_alone(files):
    good = BatchDecoder(augmented(), seed=3)(files[:1], [0])
    decoder = BatchDecoder(augmented(), 2, seed=3, on_error="skip")
    bombs = [
        b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\3\1\x22\0\2\x11\1\3\x11\1" + tail
        for tail in (b"", b"\xff\xda", bytes(99))
    ]
    damaged = [data[:cut] for data in (files[1], KINDS["PNG"], KINDS["inks"]) for cut in range(0, len(data), 61)]
    damaged += [
        flip_bits(data, np.random.default_rng(seed))
        for data in (files[1], KINDS["PNG"], KINDS["progressive"])
        for seed in range(30)
    ]
    result = decoder.decode([*bombs, *damaged, files[0]], [*range(1, len(bombs) + len(damaged) + 1), 0])
    assert torch.equal(result.images[-1:], good)
    assert {0, 1, 2, 3} <= {position for position, _ in result.bad}


# --- processes and threads --------------------------------------------------------------------------------------------


class Numbered(torch.utils.data.Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, number):
        return number, self.files[number]


class Collate:
    """Decodes with ids, or without."""

    def __init__(self, decoder, with_ids):
        self.decoder, self.with_ids = decoder, with_ids

    def __call__(self, samples):
        numbers, files = zip(*samples, strict=True)
        images = self.decoder(files, numbers if self.with_ids else None)
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("gpubeton-worker")]
        return images, torch.tensor(numbers), len(names)


def loaded(files, decoder, method, *, with_ids, epochs=1):
    loader = torch.utils.data.DataLoader(
        Numbered(files), 5, num_workers=2, collate_fn=Collate(decoder, with_ids), multiprocessing_context=method,
        persistent_workers=True, generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    return [list(loader) for _ in range(epochs)]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.campaign)])
def test_workers_of_a_data_loader_give_the_same_images(files, method):
    decoder = BatchDecoder(augmented(), seed=3)
    expected = decoder(files[:20], range(20))  # its threads do not go into forked processes
    for batches in loaded(files[:20], decoder, method, with_ids=True, epochs=2):
        assert torch.equal(torch.cat([images for images, _, _ in batches]), expected)
        assert {threads for _, _, threads in batches} == {1}
    assert torch.equal(decoder(files[:20], range(20)), expected)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_workers_of_a_data_loader_draw_different_numbers_and_the_same_in_each_run(files):
    one = [files[0]] * 20
    runs = [loaded(one, BatchDecoder(augmented(), seed=3), "fork", with_ids=False, epochs=2) for _ in range(2)]
    first, second = ([images for epoch in run for images, _, _ in epoch] for run in runs)
    assert all(map(torch.equal, first, second))
    assert len({image.numpy().tobytes() for images in first for image in images}) == 40


def test_a_copy_has_the_same_settings(files):
    decoder = BatchDecoder(augmented(), 2, seed=3, on_error="skip", field_number=2)
    decoder(files[:3])
    copy = pickle.loads(pickle.dumps(decoder))
    assert torch.equal(copy([*files[:3], BAD[0]], range(4), 9), decoder(files[:3], range(3), 9))


def test_threads_may_call_at_once_and_their_images_are_counted_once(files):
    decoder = BatchDecoder([CROP, ToTensor()], 2, seed=3)
    with ThreadPoolExecutor(8) as callers:
        with_ids = list(callers.map(lambda number: decoder([files[number]] * 3, [number] * 3), range(50)))
        counted = list(callers.map(lambda _: decoder([files[0]] * 4), range(16)))
    expected = decoder(files, range(50))
    assert all(torch.equal(images[at], expected[number]) for number, images in enumerate(with_ids) for at in range(3))
    draws = BatchDecoder([CROP, ToTensor()], seed=3)([files[0]] * 64)
    assert {image.numpy().tobytes() for image in torch.cat(counted)} == {image.numpy().tobytes() for image in draws}


def test_threads_end_with_the_decoder_and_with_close(files, own_threads):
    decoder = BatchDecoder(augmented(), 2, seed=3)
    assert own_threads() == []
    expected = decoder(files[:2], [0, 1])
    decoder(files)  # more than the first threads were made for
    assert len(own_threads()) == 2
    decoder.close()
    decoder.close()
    assert own_threads() == []
    assert torch.equal(decoder(files[:2], [0, 1]), expected)
    del decoder
    assert own_threads() == []


def test_after_an_error_in_an_operation_the_next_call_gives_its_own_images(files):
    class Refuses(torch.nn.Module):
        def forward(self, images):
            if len(images) == 3:
                raise ZeroDivisionError
            return images

    decoder = BatchDecoder([*augmented(), Refuses()], seed=3)
    with pytest.raises(ZeroDivisionError):
        decoder(files[:3], range(3))
    assert torch.equal(decoder(files[:2], [8, 9]), BatchDecoder(augmented(), seed=3)(files[:2], [8, 9]))


def test_a_call_that_is_interrupted_leaves_nothing_for_the_next(files, monkeypatch):
    decoder = BatchDecoder(augmented(), seed=3)
    expected = decoder(files[:2], [0, 1])
    with monkeypatch.context() as patch:
        patch.setattr("gpubeton._cpu.worker_pool.raise_interrupt", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            decoder(files * 20)
    assert torch.equal(decoder(files[:2], [0, 1]), expected)


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pipeline",
    [
        [],
        [SimpleRGBImageDecoder(), *VIEWS],
        [IntDecoder()],
        None,
        [ToTensor(), CROP],
        PipelineSpec(CROP, transforms=[]),
    ],
    ids=["nothing", "sizes of the images", "of another field", "None", "decoder later", "a spec without a decoder"],
)
def test_pipelines_that_make_no_batch_of_any_images_are_refused(pipeline):
    with pytest.raises(PipelineError):
        BatchDecoder(pipeline)


@pytest.mark.parametrize(
    "arguments",
    [{"num_workers": 1.5}, {"device": "gpu"}, {"seed": -1}, {"on_error": "ignore"}, {"field_number": -1}],
    ids=str,
)
def test_arguments_out_of_their_range_are_refused(arguments):
    with pytest.raises(OptionError):
        BatchDecoder(augmented(), **arguments)


@pytest.mark.parametrize(
    ("images", "options", "what"),
    [
        (["train/cat.jpg"], {}, "image 0 is of type str"),
        ([b"", np.zeros((2, 2, 3), np.uint8)], {}, r"image 1 is of type ndarray \(uint8 of shape \(2, 2, 3\)"),
        ([np.zeros(9, np.float32)], {}, "float32"),
        (b"a file", {}, "image 0 is of type int"),
        ([b"", b""], {"ids": [1]}, "each of 2 images"),
        ([b"", b""], {"ids": [1, -1]}, "at least 0"),
        ([b"", b""], {"ids": [1.0, 2.0]}, "whole number"),
        ([b""], {"epoch": -1}, "epoch is -1"),
    ],
    ids=str,
)  # fmt: skip
def test_other_values_than_a_list_of_images_are_refused(images, options, what):
    with pytest.raises(OptionError, match=what):
        BatchDecoder(augmented())(images, **options)


# --- decode_image -----------------------------------------------------------------------------------------------------


def test_an_image_has_the_pixels_of_a_loader(tmp_path):
    from gpubeton.fields import RGBImageField
    from tests.small_files import write

    class Pictures:
        def __len__(self):
            return 8

        def __getitem__(self, number):
            return (photo(61, 83, number),)

    path = write(tmp_path / "a.beton", {"image": RGBImageField("jpg")}, Pictures())
    (images,) = next(iter(Loader(path, 8, num_workers=1, pipelines={"image": [SimpleRGBImageDecoder(), ToTensor()]})))
    for number, image in enumerate(images):
        data = Contents(path).stored(number, "image")
        pixels = decode_image(data)
        assert (pixels.dtype, pixels.flags.c_contiguous, pixels.flags.writeable) == (np.uint8, True, True)
        assert np.array_equal(pixels, image)
        assert np.abs(pixels.astype(int) - decode_rgb(data)).max() <= 2


@pytest.mark.parametrize("sampling", ["4:2:0", "4:2:2", "4:4:4", "gray"])
@pytest.mark.parametrize("region", [(0, 0, 1, 1), (7, 9, 33, 18), (60, 0, 1, 83), (0, 82, 61, 1), (0, 0, 61, 83)])
def test_a_region_is_that_part_of_the_image(sampling, region):
    data = jpeg(photo(61, 83), sampling=sampling)
    top, left, height, width = region
    whole = decode_image(data)
    expected = whole[top : top + height, left : left + width]
    assert np.array_equal(decode_image(data, region), expected)
    tensor = decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), torch.tensor(region), as_tensor=True)
    assert np.array_equal(tensor.permute(1, 2, 0), expected)
    assert tensor[None].is_contiguous(memory_format=torch.channels_last)


def test_images_of_any_sizes_follow_each_other_in_any_thread():
    sizes = [(61, 83), (200, 20), (8, 8), (20, 200), (2100, 2100), (61, 83)]
    files = [jpeg(photo(*size, number)) for number, size in enumerate(sizes)]
    whole = [decode_rgb(data).astype(int) for data in files]

    def decode_all(order):
        for number in order:
            (height, width), region = sizes[number], (3, 2, 5, 6)
            assert np.abs(decode_image(files[number]) - whole[number]).max() <= 2
            with pytest.raises(BadImageError, match="decode_image"):
                decode_image(files[number][: height * width // 100])
            assert np.array_equal(decode_image(KINDS["PNG"], region), rgb_of_file(KINDS["PNG"])[3:8, 2:8])
            assert np.abs(decode_image(files[number], region) - whole[number][3:8, 2:8]).max() <= 2

    with ThreadPoolExecutor(2) as pool:
        for result in [pool.submit(decode_all, order) for order in (range(6), reversed(range(6)), range(6))]:
            result.result()


@pytest.mark.parametrize("name", KINDS)
def test_regions_of_other_files_are_parts_of_their_pixels(name):
    assert np.array_equal(decode_image(KINDS[name]), rgb_of_file(KINDS[name]))
    assert np.array_equal(decode_image(KINDS[name], (3, 4, 5, 6)), rgb_of_file(KINDS[name])[3:8, 4:10])


@pytest.mark.parametrize(
    "region",
    [
        *[(0, 0, 0, 5), (0, 0, 62, 5), (-1, 0, 5, 5), (0, 80, 5, 4), (0, 0, 2**63 - 1, 1), (2**63 - 1, 1, 1, 1)],
        *[(0, 0, 5), (0.0, 0, 5, 5), "no"],
    ],
    ids=str,
)
def test_regions_outside_of_the_image_are_refused(region):
    with pytest.raises(OptionError, match="61 x 83"):
        decode_image(jpeg(photo(61, 83)), region)


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_a_bad_image_is_an_error_with_its_reason(data):
    with pytest.raises(BadImageError, match=r"decode_image: .+"):
        decode_image(data)
    with pytest.raises(OptionError):
        decode_image("photo.jpg")
