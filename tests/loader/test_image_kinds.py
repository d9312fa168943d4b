from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from gpubeton.errors import BadImageError, FormatError, PipelineError
from gpubeton.fields import ImageField, IntField, RGBImageField
from gpubeton.fields.decoders import (
    CenterCropImageDecoder,
    CenterCropRGBImageDecoder,
    ImageDecoder,
    RandomResizedCropImageDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.fields.registry import open_index
from gpubeton.format.field_arguments import IMAGE_KINDS
from gpubeton.format.layout import ImageMode
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from gpubeton.transforms import (
    ColorJitter,
    Cutout,
    NormalizeImage,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomTranslate,
    ToTensor,
    ToTorchImage,
)
from tests.small_files import damage, picture, write

KINDS = list(IMAGE_KINDS.values())
SIZE = 22, 31


def pixels_of(kind, number, size=SIZE):
    rng = np.random.default_rng([kind.channels, kind.bits, number])
    return rng.integers(0, kind.max_level + 1, (*size, kind.channels)).astype(kind.dtype)


def images_of(kinds=KINDS):
    """Photos, each with an image of each kind."""
    return [(picture(number, *SIZE), *(pixels_of(kind, number) for kind in kinds), number) for number in range(10)]


def fields_of(kinds, write_mode):
    images = {kind.name: ImageField(kind.name, write_mode) for kind in kinds}
    return {"photo": RGBImageField("jpg"), **images, "label": IntField()}


@pytest.fixture(scope="module", params=["raw", "png"])
def images(request, tmp_path_factory):
    """A file with a field of each kind."""
    path = tmp_path_factory.mktemp(request.param) / "kinds.beton"
    return write(path, fields_of(KINDS, request.param), images_of())


def make(path, pipelines, **arguments):
    names = Reader(path).field_names
    options = {"batch_size": 4, "num_workers": 2, "drop_last": False, "seed": 3, **arguments}
    return Loader(path, pipelines={**dict.fromkeys(names), **pipelines}, **options)


def all_of(loader):
    batches = list(loader)
    return [np.concatenate([np.asarray(batch[output]) for batch in batches]) for output in range(len(batches[0]))]


@pytest.mark.parametrize("os_cache", [True, False])
def test_every_kind_is_detected_and_decoded_exactly(images, os_cache):
    pipelines = {kind.name: [ImageDecoder()] for kind in KINDS}
    read = all_of(make(images, pipelines, os_cache=os_cache))
    for kind, result in zip(KINDS, read, strict=True):
        assert result.dtype == kind.dtype
        assert np.array_equal(result, np.stack([pixels_of(kind, number) for number in range(10)]))
    assert [Reader(images).handlers[kind.name].kind for kind in KINDS] == KINDS


def test_a_field_without_a_pipeline_gives_tensors(images):
    for kind in KINDS:
        (batch,) = next(iter(make(images, {kind.name: ()})))
        assert batch.dtype == (torch.uint8 if kind.bits == 8 else torch.uint16)
        assert torch.equal(batch.to(torch.int32)[1], torch.from_numpy(pixels_of(kind, 1).astype("i4")))


@pytest.mark.parametrize("name", ["gray", "gray16"])
@pytest.mark.parametrize(
    "steps",
    [
        [RandomHorizontalFlip(), Cutout(5), RandomTranslate(3), RandomErasing(1)],
        [RandomTranslate(2), RandomHorizontalFlip()],
        [],
    ],
)
def test_gray_images_meet_the_draws_that_rgb_images_meet(tmp_path, name, steps):
    """The same levels in three channels, through the executor of RGB images, which is off by one level at most."""
    kind = IMAGE_KINDS[name]

    gray = [pixels_of(IMAGE_KINDS["gray"], number) for number in range(8)]
    rgb = [levels.repeat(3, axis=2) for levels in gray]
    single = [levels.astype(kind.dtype) * (257 if kind.bits == 16 else 1) for levels in gray]
    fields = {"rgb": RGBImageField("raw"), "gray": ImageField(name)}
    two = write(tmp_path / "gray.beton", fields, list(zip(rgb, single, strict=True)))
    fields = {"gray": RGBImageField("raw"), "rgb": RGBImageField("raw")}
    rgb_file = write(tmp_path / "rgb.beton", fields, list(zip(rgb, rgb, strict=True)))
    crop = RandomResizedCropImageDecoder((16, 16)), *steps
    as_rgb = RandomResizedCropRGBImageDecoder((16, 16)), *steps
    (result,) = all_of(make(two, {"gray": crop}))
    # The field's number keeps random numbers apart: it has to be the same in both files.
    (expected,) = all_of(make(rgb_file, {"rgb": as_rgb}))
    levels = result / 257 if kind.bits == 16 else result.astype(float)
    assert np.abs(levels[..., 0] - expected[..., 0]).max() <= 1.5


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_normalized_batches_are_float64s_rounded(images, kind):
    mean, std = np.linspace(100, 140, kind.channels), np.linspace(40, 60, kind.channels)
    normalize = NormalizeImage(mean, std, np.float32)
    for pipeline in (
        [ImageDecoder(), normalize, ToTensor(), ToTorchImage()],
        [ImageDecoder(), ToTensor(), ToTorchImage(), normalize],
        [ImageDecoder(), ToTensor(), normalize, ToTorchImage(channels_last=False)],
    ):
        (result,) = all_of(make(images, {kind.name: pipeline}))
        exact = (np.stack([pixels_of(kind, number) for number in range(10)]) - mean) / std
        assert np.array_equal(result, exact.astype(np.float32).transpose(0, 3, 1, 2))


def test_rgb_fields_may_have_the_decoders_of_any_kind(images):
    loaders = (
        make(images, {"photo": [decoder((20, 20), ratio=0.9)], "rgb": [CenterCropImageDecoder((9, 9), 1)]})
        for decoder in (CenterCropImageDecoder, CenterCropRGBImageDecoder)
    )
    first, other = map(all_of, loaders)
    assert np.array_equal(first[0], other[0])


@pytest.mark.parametrize(
    "decoder", [SimpleRGBImageDecoder(), CenterCropRGBImageDecoder((9, 9), 1), RandomResizedCropRGBImageDecoder((9, 9))]
)
def test_the_error_of_an_rgb_decoder_names_the_decoder_for_other_kinds(images, decoder):
    with pytest.raises(PipelineError, match=r"'gray16'.* gray16.* (CenterCrop|RandomResizedCrop|)Image"):
        make(images, {"gray16": [decoder]})


def test_of_a_crop_after_the_decoder_only_the_crop_is_decoded_and_explain_names_the_kind(images, capsys):
    cropped = make(images, {"rgba": [ImageDecoder(), RandomResizedCrop((0.2, 1), (0.75, 1.33), 12)]})
    decoded = make(images, {"rgba": [RandomResizedCropImageDecoder((12, 12), (0.2, 1), (0.75, 1.33))]})
    cropped.explain()
    assert capsys.readouterr().out.count("fused") == 2
    assert np.array_equal(all_of(cropped)[0], all_of(decoded)[0])
    make(images, {"gray16": [CenterCropImageDecoder((8, 9), 1)]}).explain()
    assert "gray16: gray16, 8 x 9, area, written as uint16" in capsys.readouterr().out


@pytest.mark.parametrize("operation", [ColorJitter(hue=0.1), RandomGrayscale(1)])
@pytest.mark.parametrize("name", ["gray", "rgba", "gray16", "rgb16"])
def test_operations_on_rgb_levels_are_refused_for_other_kinds(images, operation, name):
    with pytest.raises(PipelineError, match=rf"field '{name}': .*(RGB images|works on levels, uint8)"):
        make(images, {name: [ImageDecoder(), operation]})


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (Cutout(3, (1, 2, 3)), r"\(1, 2, 3\).* 3 .* 1 channel"),
        (NormalizeImage([1, 2, 3], [1, 1, 1]), "mean .*3 .* 1 channel"),
        (NormalizeImage(1, [1, 1, 1]), "std has 3 numbers"),
        (RandomErasing(1, value=300), "uint8.* 0 to 255"),
    ],
)
def test_as_many_numbers_as_channels_are_wanted(images, operation, message):
    with pytest.raises(PipelineError, match=message):
        make(images, {"gray": [ImageDecoder(), operation]})


@pytest.fixture
def spoilt(tmp_path):
    """A file of PNGs of which sample 3 is damaged."""
    path = write(
        tmp_path / "spoilt.beton", fields_of([IMAGE_KINDS["gray16"]], "png"), images_of([IMAGE_KINDS["gray16"]])
    )
    damage(path, 3, field="gray16", at=60, content=b"xxxx")
    return path


def test_a_damaged_png_is_reported_skipped_or_replaced(spoilt):
    pipelines = {"gray16": [ImageDecoder()], "label": ()}
    with pytest.raises(BadImageError, match=r"gray16: .*IDAT") as caught:
        all_of(make(spoilt, pipelines))
    assert caught.value.samples == (3,)
    result, labels = all_of(make(spoilt, pipelines, on_error="skip"))
    assert labels.ravel().tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    result, labels = all_of(make(spoilt, pipelines, on_error="replace"))
    assert labels.ravel().tolist() == [0, 1, 2, 4, 4, 5, 6, 7, 8, 9]
    assert np.array_equal(result[3], pixels_of(IMAGE_KINDS["gray16"], 4))


def changed(path, target, field, **values):
    """A copy of a file with other metadata for sample 2."""
    shutil.copy(path, target)
    index, _ = open_index(path)
    number = index.names.index(field)
    dtype = index.metadata.dtype
    at = index.header.metadata_offset + 2 * dtype.itemsize + dtype.fields[f"f{number}"][1]
    row = index.metadata[2:3][f"f{number}"].copy()
    for name, value in values.items():
        row[name] = value
    with target.open("r+b") as file:
        file.seek(at)
        file.write(row.tobytes())
    return target


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"height": 23}, "sample 2, field 'rgba16': .* 5456 .* 5704"),
        ({"width": 0}, "width 0"),
        ({"mode": 0}, r"rgba16 .* 0, .* 1 \(RAW\), 2 \(PNG\)"),
        ({"mode": 7}, "stored in way 7"),
        ({"data_ptr": 12}, "no region begins at 12"),
    ],
)
def test_metadata_that_lie_are_refused_when_the_file_is_opened(tmp_path, values, message):
    kinds = [IMAGE_KINDS["rgba16"]]
    path = write(tmp_path / "raw.beton", fields_of(kinds, "raw"), images_of(kinds))
    with pytest.raises(FormatError, match=message):
        Reader(changed(path, tmp_path / "changed.beton", "rgba16", **values))


def test_a_png_of_another_size_kind_or_none_at_all_is_a_bad_image(tmp_path):
    kinds = [IMAGE_KINDS["gray"]]
    path = write(tmp_path / "png.beton", fields_of(kinds, "png"), images_of(kinds))
    larger = changed(path, tmp_path / "larger.beton", "gray", height=60_000, width=60_000)
    decode = {"gray": [CenterCropImageDecoder((4, 4), 1)]}
    with pytest.raises(BadImageError, match=r"22 x 31 .* 60000 x 60000"):
        all_of(make(larger, decode))
    jpeg = changed(path, tmp_path / "jpeg.beton", "gray", mode=ImageMode.JPG)
    assert len(all_of(make(jpeg, decode))[0]) == 10, "the first bytes decide the kind of a file"
    damage(path, 2, field="gray", content=b"\xff\xd8nonsense")
    with pytest.raises(BadImageError, match=r"gray: "):
        all_of(make(path, decode))


def test_a_class_derived_from_the_field_has_to_be_named(tmp_path):
    class Scaled(ImageField):
        def encode(self, destination, value, malloc):
            super().encode(destination, value // 2, malloc)

    samples = [(pixels_of(IMAGE_KINDS["gray"], number),) for number in range(3)]
    path = write(tmp_path / "derived.beton", {"gray": Scaled("gray")}, samples)
    with pytest.raises(FormatError, match=r"custom one"):
        Reader(path)
    loader = Loader(path, 3, pipelines={"gray": [ImageDecoder()]}, custom_fields={"gray": Scaled})
    assert np.array_equal(all_of(loader)[0][1], pixels_of(IMAGE_KINDS["gray"], 1) // 2)
