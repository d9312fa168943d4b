"""The page of odd files shows what happens to each of them."""

from __future__ import annotations

import io

from PIL import ExifTags, Image

from docs import odd_files
from gpubeton.errors import BadImageError
from gpubeton.loader import decode_image


def test_the_table_of_odd_files_shows_what_happens_to_them():
    text = odd_files.PAGE.read_text()
    assert text == odd_files.fill(text)  # if not: python -m docs.odd_files


def test_what_pillow_refuses_is_refused_and_one_more():
    refused = {"ours": set(), "Pillow's": set()}
    for name, file in odd_files.odd_files().items():
        try:
            decode_image(file)
        except BadImageError:
            refused["ours"].add(name)
        try:
            with Image.open(io.BytesIO(file)) as image:
                image.load()
        except OSError:
            refused["Pillow's"].add(name)
    assert refused["ours"] - refused["Pillow's"] == {"a restart marker of a wrong number"}
    assert refused["Pillow's"] <= refused["ours"]


def test_a_cut_thumbnail_is_cut_and_a_png_is_a_png():
    files = odd_files.odd_files()
    exif = Image.open(io.BytesIO(files["a cut EXIF thumbnail"])).getexif().get_ifd(ExifTags.IFD.IFD1)
    assert exif[0x0202] == 5000 > len(files["a cut EXIF thumbnail"])
    assert Image.open(io.BytesIO(files["PNG pixels under the name `.JPEG`"])).format == "PNG"
