"""Images of all kinds through a conversion: lossless, with counted losses, or refused."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image

from gpubeton.dataset import Contents, Settings, Source, convert, open_source
from gpubeton.dataset.file_settings import ImageProperties, fields_of
from gpubeton.errors import OptionError, SampleError
from gpubeton.fields.png import encode_png
from gpubeton.fields.rgb_image import RGBImageField
from gpubeton.format import ImageMode
from gpubeton.format.field_arguments import IMAGE_KINDS
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter
from tests.picture_folders import write_tar
from tests.small_files import picture


def numbers(shape, dtype, seed=0):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def saved(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def with_palette(pixels, bits=8):
    image = Image.frombytes("P", pixels.shape[::-1], pixels.tobytes())
    image.putpalette(numbers(768, "u1", 5).tolist())
    return saved(image, bits=bits)


def folder(tmp_path, files):
    for name, content in files.items():
        path = tmp_path / "photos" / "a" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return open_source(tmp_path / "photos")


def made(source, tmp_path, mode, on_error="raise", workers=1, chunksize=64, **options):
    settings = Settings(mode=mode, page_size=1 << 21, **options)
    path = tmp_path / "a.beton"
    options = {"on_error": on_error, "num_workers": workers, "chunksize": chunksize}
    return convert(source, path, settings, overwrite=True, **options)


def images(done):
    contents = Contents(done.path)
    return [contents.value(sample, "image") for sample in range(done.samples)]


GRAY, GRAY16 = numbers((20, 30), "u1"), numbers((20, 30), "u2")
LABELS = np.tile(np.arange(16, dtype="u1"), (20, 2))
RGBA = numbers((20, 30, 4), "u1")
TIFF16 = saved(Image.fromarray(GRAY16), "TIFF")
JPEG, GRAY_JPEG = saved(Image.fromarray(picture(1, 24, 32)), "JPEG"), saved(Image.fromarray(GRAY), "JPEG")

EXACT = {
    "gray png": ("gray", saved(Image.fromarray(GRAY)), GRAY[..., None]),
    "palette": ("gray", with_palette(LABELS), LABELS[..., None]),
    "palette of 4 bits": ("gray", with_palette(LABELS, 4), LABELS[..., None]),
    "one bit": ("gray", saved(Image.fromarray(GRAY > 127)), 255 * (GRAY > 127).astype("u1")[..., None]),
    "rgba": ("rgba", saved(Image.fromarray(RGBA)), RGBA),
    "rgb as rgba": ("rgba", saved(Image.fromarray(RGBA[..., :3].copy())), np.dstack([RGBA[..., :3], GRAY | 255])),
    "gray16": ("gray16", saved(Image.fromarray(GRAY16)), GRAY16[..., None]),
    "gray16 tiff": ("gray16", TIFF16, GRAY16[..., None]),
    "rgb16": ("rgb16", encode_png(numbers((5, 6, 3), "u2")), numbers((5, 6, 3), "u2")),
    "rgba16": ("rgba16", encode_png(numbers((5, 6, 4), "u2")), numbers((5, 6, 4), "u2")),
}


@pytest.mark.parametrize("write_mode", ["", "raw"])
@pytest.mark.parametrize("name", EXACT)
def test_numbers_come_through_as_they_are(name, write_mode, tmp_path):
    mode, content, expected = EXACT[name]
    done = made(folder(tmp_path, {"x.png": content}), tmp_path, mode, write_mode=write_mode)
    (image,) = images(done)
    np.testing.assert_array_equal(image.pixels(), expected)
    assert image.pixels().dtype == expected.dtype
    assert image.kind == (write_mode or "png")
    handler = Reader(done.path).handlers["image"]
    assert handler.kind is IMAGE_KINDS[mode]
    assert done.changed == ({"palette": 1} if "palette" in name else {"levels": 1} if name == "one bit" else {})


def test_files_that_agree_with_the_mode_are_taken_over(tmp_path):
    png = saved(Image.fromarray(GRAY16), compress_level=1)
    assert images(made(folder(tmp_path, {"x.png": png}), tmp_path, "gray16"))[0].content == png
    source = folder(tmp_path / "jpg", {"colors.jpg": JPEG, "gray.jpg": GRAY_JPEG})
    for check in (True, False):
        done = made(source, tmp_path, "gray", write_mode="jpg", check=check)
        assert [image.content == file for image, file in zip(images(done), (JPEG, GRAY_JPEG), strict=True)] == [0, 1]
        assert done.changed == {"colours": 1}
        with Image.open(io.BytesIO(images(done)[0].content)) as image:
            assert image.mode == "L"


def test_a_gray_jpeg_in_other_ways_of_storing_has_its_decoded_pixels(tmp_path):
    (image,) = images(made(folder(tmp_path, {"x.jpg": GRAY_JPEG}), tmp_path, "gray"))
    with Image.open(io.BytesIO(GRAY_JPEG)) as expected:
        np.testing.assert_array_equal(image.pixels()[..., 0], np.asarray(expected))
    assert image.kind == "png"


def test_mode_rgb_makes_the_file_that_it_always_made(tmp_path):
    source = folder(tmp_path, {"a.jpg": JPEG, "b.png": saved(Image.fromarray(RGBA)), "c.png": with_palette(LABELS)})
    done = made(source, tmp_path, "rgb")
    assert type(Reader(done.path).handlers["image"]) is RGBImageField
    notes = dict(Reader(done.path).notes)
    settings = "check compress_probability index limit max_resolution page_size quality seed shuffle smart_threshold"
    assert " ".join(sorted(notes["settings"])) == f"{settings} write_mode"
    assert notes["settings"]["write_mode"] == "jpg"
    fields = fields_of(Settings(), {"label": "int"})
    DatasetWriter(tmp_path / "b.beton", fields, 1 << 21, 1, progress=False).from_image_folder(tmp_path / "photos")
    twin = Contents(tmp_path / "b.beton")
    assert [image.content for image in images(done)] == [twin.value(sample, "image").content for sample in range(3)]


def test_losses_are_counted_with_any_number_of_workers_and_after_an_interruption(tmp_path):
    tiff = saved(Image.fromarray(GRAY16).convert("I;16"), "TIFF")
    files = {
        "1.png": encode_png(numbers((5, 6, 3), "u2")),
        "2.png": encode_png(numbers((5, 6, 4), "u2")),
        "3.png": saved(Image.fromarray(RGBA)),
        "4.png": saved(Image.fromarray(GRAY), transparency=3),
        "5.jpg": JPEG,
        "6.png": saved(Image.fromarray(RGBA))[:-40],
        "7.tif": tiff,
        "8.jpg": saved(Image.fromarray(picture(1, 24, 32)).convert("CMYK"), "JPEG"),
        "9.jpg": saved(Image.fromarray(picture(1, 24, 32)), "JPEG", progressive=True),
    }
    source = folder(tmp_path, files)
    expected = {"alpha": 3, "bits": 2, "jpeg": 6}
    for workers in (1, 2):
        done = made(source, tmp_path, "rgb", "skip", workers, chunksize=1)
        assert (done.changed, len(done.skipped)) == (expected, 2)

    def interrupt(finished, total):
        if finished == 4:
            raise KeyboardInterrupt

    settings = Settings(page_size=1 << 21)
    options = {"on_error": "skip", "num_workers": 1, "chunksize": 1}
    with pytest.raises(KeyboardInterrupt):
        convert(source, tmp_path / "b.beton", settings, on_progress=interrupt, **options)
    done = convert(source, tmp_path / "b.beton", settings, **options)
    assert done.resumed >= 3
    assert done.changed == expected


REFUSED = {
    "16 bits in 8": ("rgb", saved(Image.fromarray(GRAY16)), r"16 bits .* mode is rgb\. Mode gray16 .*--mode gray16"),
    "16 bits in gray": ("gray", TIFF16, "--mode gray16"),
    "colors of 16 bits": ("rgba", encode_png(numbers((5, 6, 4), "u2")), "--mode rgba16"),
    "8 bits in 16": ("gray16", saved(Image.fromarray(GRAY)), "would mean something else.*--mode gray "),
    "jpeg in 16": ("gray16", GRAY_JPEG, "--mode gray "),
    "another kind": ("gray16", encode_png(numbers((5, 6, 3), "u2")), "of kind rgb16, but the mode is gray16"),
    "floats": ("gray16", saved(Image.fromarray(GRAY.astype("f4")), "TIFF"), "floats, which no mode holds"),
    "damaged png": ("gray", saved(Image.fromarray(GRAY))[:-30], "a damaged PNG file"),
    "no image": ("gray", b"nothing", "cannot identify|no image"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_image_that_a_mode_cannot_hold_is_refused_with_advice(name, tmp_path):
    mode, content, message = REFUSED[name]
    with pytest.raises(SampleError, match=message):
        made(folder(tmp_path, {"x.png": content}), tmp_path, mode)


@pytest.mark.parametrize(
    ("whole", "mode", "write_mode", "check"),
    [(GRAY_JPEG, "gray", "jpg", True), (GRAY_JPEG, "gray", "png", True), (JPEG, "gray", "jpg", False),
     (JPEG, "rgba", "png", False)],
)  # fmt: skip
def test_a_jpeg_that_ends_in_its_middle_is_found_wherever_it_is_decoded(whole, mode, write_mode, check, tmp_path):
    spoilt = whole[:-60] + b"\xff\xd9" + whole[-60:]  # its markers are in order
    with pytest.raises(SampleError, match="libjpeg-turbo"):
        made(folder(tmp_path, {"x.jpg": spoilt}), tmp_path, mode, write_mode=write_mode, check=check)


def tiff_of_colors(pixels):
    """A TIFF file of RGB with 16 bits, which Pillow reads and does not write (TIFF 6.0, sections 2 and 6)."""
    height, width = pixels.shape[:2]
    entries = [
        (256, 3, 1, width), (257, 3, 1, height), (258, 3, 3, 8), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, 14),
        (277, 3, 1, 3), (278, 3, 1, height), (279, 4, 1, pixels.nbytes),
    ]  # fmt: skip
    start = 14 + pixels.nbytes
    head = struct.pack("<2sHI3H", b"II", 42, start, 16, 16, 16)
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return head + pixels.astype("<u2").tobytes() + struct.pack("<H", len(entries)) + body + bytes(4)


def test_a_tiff_of_colors_with_16_bits_is_cut_only_in_mode_rgb_and_counted(tmp_path):
    pixels = numbers((5, 6, 3), "u2")
    source = folder(tmp_path, {"x.tiff": tiff_of_colors(pixels)})
    done = made(source, tmp_path, "rgb", write_mode="raw")
    np.testing.assert_array_equal(images(done)[0].pixels(), pixels >> 8)
    assert done.changed == {"bits": 1}
    with pytest.raises(SampleError, match="--mode rgb16"):
        made(source, tmp_path, "gray")


def test_masks_are_made_smaller_by_picking_and_palettes_are_never_averaged(tmp_path):
    source = folder(tmp_path, {"x.png": with_palette(LABELS)})
    with pytest.raises(SampleError, match="--interpolation nearest"):
        made(source, tmp_path, "gray", max_resolution=16)
    (image,) = images(made(source, tmp_path, "gray", max_resolution=16, interpolation="nearest"))
    assert (image.height, image.width) == (10, 16)
    np.testing.assert_array_equal(image.pixels()[..., 0], LABELS[1::2, 1::2])


def test_a_large_depth_map_shrinks_and_keeps_its_16_bits(tmp_path):
    flat = np.full((20, 30), 40_001, "u2")
    (image,) = images(
        made(folder(tmp_path, {"x.png": saved(Image.fromarray(flat))}), tmp_path, "gray16", max_resolution=15)
    )
    assert set(image.pixels().ravel().tolist()) == {40_001}


def tar_of(tmp_path, content):
    return open_source(write_tar(tmp_path / "x.tar", [("0.png", content), ("0.cls", b"3")]))


def parquet_of(tmp_path, content):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"image": [{"bytes": content, "path": None}]}), tmp_path / "x.parquet")
    return open_source(tmp_path / "x.parquet")


def hugging_face_of(tmp_path, content):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image()})
    rows = {"image": [{"bytes": content, "path": None}]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "hf")
    return open_source(tmp_path / "hf")


class Decoded(Source):
    """Images as torchvision gives them."""

    fields = {}  # noqa: RUF012  (a test's)

    def __init__(self, image):
        self.image = image

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return (self.image,)

    def name(self, index):
        return "it"


def decoded_of(tmp_path, content):
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        return Decoded(image)


@pytest.mark.parametrize("source_of", [tar_of, parquet_of, hugging_face_of, decoded_of])
def test_every_kind_of_source_honors_the_mode(source_of, tmp_path):
    for mode, content, expected in (EXACT["gray16"], EXACT["palette"], EXACT["rgba"]):
        (image,) = images(made(source_of(tmp_path, content), tmp_path, mode))
        np.testing.assert_array_equal(image.pixels(), expected)
        for path in tmp_path.glob("hf/*"):
            path.unlink()


def test_arrays_go_to_the_field_that_checks_them(tmp_path):
    (image,) = images(made(Decoded(GRAY16), tmp_path, "gray16"))
    np.testing.assert_array_equal(image.pixels()[..., 0], GRAY16)
    with pytest.raises(SampleError, match="uint16"):
        made(Decoded(GRAY16), tmp_path, "gray")


def test_files_above_a_threshold_and_the_rest_raw(tmp_path):
    large = saved(Image.fromarray(np.tile(GRAY16, (2, 2))))
    source = folder(tmp_path, {"a.png": saved(Image.fromarray(GRAY16)), "b.png": large})
    done = made(source, tmp_path, "gray16", write_mode="smart", smart_threshold=2000)
    assert Reader(done.path).index.column("image")["mode"].tolist() == [ImageMode.RAW, ImageMode.PNG]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "grey"}, "mode is 'grey', expected one of gray, rgb, rgba, gray16"),
        ({"mode": "rgba", "write_mode": "jpg"}, "cannot hold images of kind rgba; expected 'png' or 'raw'"),
        ({"interpolation": "nearest"}, "images of mode 'rgb' are made smaller by averaging"),
        ({"mode": "gray", "interpolation": "cubic"}, "interpolation is 'cubic'"),
    ],
)
def test_modes_that_cannot_be_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        Settings(**options)


@pytest.mark.parametrize(
    ("name", "content", "mode", "changed"),
    [
        ("x.pgm", b"P5 2 1 255\n\x07\x03", "gray", {}),
        ("x.pgm", b"P5 2 1 20\n\x07\x03", "gray", {"levels": 1}),
        ("x.pgm", b"P2 2 1 20\n7 3", "gray", {"levels": 1}),
        ("x.pgm", b"P5 2 1 20\n\x07\x03", "rgb", {"jpeg": 1}),
        ("x.pgm", b"P5 2 1 4095\n\x00\x07\x01\x03", "gray16", {"levels": 1}),
        ("x.pgm", b"P5 2 1 65535\n\x00\x07\x01\x03", "gray16", {}),
        ("x.ppm", b"P6 1 1 65535\n\x00\x07\x01\x03\x01\x03", "rgb", {"bits": 1, "jpeg": 1}),
        ("x.png", saved(Image.fromarray(LABELS), bits=4), "gray", {"levels": 1}),
        ("x.tif", TIFF16, "gray16", {}),
        ("x.tif", saved(Image.fromarray(GRAY16.astype("i4")), "TIFF"), "gray16", {}),
    ],
    ids=["pgm255", "pgm20", "plain", "rgb", "12bit", "16bit", "ppm16", "png4", "tiff16", "tiff32"],
)
def test_scaled_numbers_are_counted(name, content, mode, changed, tmp_path):
    assert made(folder(tmp_path, {name: content}), tmp_path, mode).changed == changed


def test_a_palette_keeps_its_transparency_only_with_its_colors():
    result = ImageProperties.of_pillow(Image.open(io.BytesIO(with_palette(LABELS))))
    clear = ImageProperties(3, has_alpha=True, has_palette=True)
    assert (result.has_palette, result.changes(IMAGE_KINDS["rgb"])) == (True, [])
    assert [clear.changes(IMAGE_KINDS[mode]) for mode in ("gray", "rgb", "rgba")] == [["palette"], ["alpha"], []]
