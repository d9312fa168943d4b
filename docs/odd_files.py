"""Draw the table of the page of odd files: make a file of each kind, and note what happens to it.

python -m docs.odd_files
"""

from __future__ import annotations

import io
import re
import struct
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gpubeton.dataset import Contents, Settings, convert, index_source, open_source
from gpubeton.errors import BadImageError, SampleError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.loader import Loader, decode_image

__all__ = ["PAGE", "fill", "odd_files"]

PAGE = Path(__file__).resolve().parent / "guides" / "odd_files.md"
_MARKS = r"(<!-- table: odd files; .*? -->\n).*?(<!-- end of table -->)"


def fill(text: str) -> str:
    """Draw the table of a page again.

    Parameters
    ----------
    text : str
        The page, in Markdown.

    Returns
    -------
    str
        The page with its table.
    """
    heading = ["a file with", "`gpubeton convert`", "`gpubeton index`", "a loader", "Pillow"]
    lines = [heading, ["---"] * len(heading), *([name, *_results(file)] for name, file in odd_files().items())]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return re.sub(_MARKS, lambda marks: marks[1] + table + marks[2], text, flags=re.DOTALL)


def odd_files() -> dict[str, bytes]:
    """Make a file of each kind.

    Returns
    -------
    dict of str to bytes
        What is odd about it, and the file.
    """
    y, x = np.mgrid[0:48, 0:64]
    levels = [127 + 100 * np.sin((x * across + y * down) / 40) for across, down in ((1, 2), (3, 1), (2, 2))]
    photo = Image.fromarray(np.stack(levels, axis=-1).astype(np.uint8))

    def saved(mode: str = "RGB", kind: str = "JPEG", **options: object) -> bytes:
        file = io.BytesIO()
        photo.convert(mode).save(file, kind, **options)
        return file.getvalue()

    jpeg, restarts = saved(), saved(restart_marker_blocks=2)
    turned = Image.Exif()
    turned[0x0112] = 6
    # No entries, and a second directory: a thumbnail of 5,000 bytes, of which 100 are there.
    thumbnail = b"II*\0" + struct.pack("<IHI", 8, 0, 14)
    thumbnail += struct.pack("<HHHIIHHIII", 2, 0x0201, 4, 1, 44, 0x0202, 4, 1, 5000, 0) + jpeg[:100]
    header, restart = 20, restarts.index(b"\xff\xd0")  # after the first segment; at the first restart marker
    return {
        "PNG pixels under the name `.JPEG`": saved(kind="PNG"),
        "CMYK colors": saved("CMYK"),
        "gray pixels": saved("L"),
        "chroma at full size (4:4:4)": saved(subsampling="4:4:4"),
        "progressive scans": saved(progressive=True),
        "an EXIF orientation": saved(exif=turned.tobytes()),
        "a cut EXIF thumbnail": saved(exif=b"Exif\0\0" + thumbnail),
        "bytes after its end": jpeg + bytes(100),
        "stray bytes between two segments": jpeg[:header] + bytes(3) + jpeg[header:],
        "an unknown marker in its header": jpeg[:header] + b"\xff\x02" + jpeg[header:],
        "a restart marker of a wrong number": restarts[:restart] + b"\xff\xd5" + restarts[restart + 2 :],
        "a wrong marker in its data": jpeg[:-200] + b"\xff\xc4" + jpeg[-198:],
        "no end marker": jpeg[:-2],
        "its end cut off": jpeg[:-150],
        "no bytes": b"",
        "a page of HTML": b"<!DOCTYPE html><title>404</title>",
    }


def _results(file: bytes) -> list[str]:
    """Note what convert, index, a loader that reads in place, and Pillow do with a file."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in" / "a").mkdir(parents=True)
        (folder / "in" / "a" / "1.JPEG").write_bytes(file)
        return [_converted(folder, file), _indexed(folder), _loaded(folder, file), _opened(file)]


def _converted(folder: Path, file: bytes) -> str:
    try:
        path = convert(open_source(folder / "in"), folder / "out.beton", Settings(), num_workers=1).path
    except SampleError:
        return "an error"
    return "copied" if bytes(Contents(path).stored(0, "image")) == file else "encoded again"


def _indexed(folder: Path) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        indexed = index_source(open_source(folder / "in"), folder / "in.index", num_workers=1)
    if indexed.unread:
        return "listed as unreadable"
    if any("1 damaged JPEG" in str(warning.message) for warning in caught):
        return "named as damaged"
    return "with entry points" if indexed.indexed else "without entry points"


def _loaded(folder: Path, file: bytes) -> str:
    pipelines = {"image": [CenterCropRGBImageDecoder((32, 32))]}
    try:
        with warnings.catch_warnings():  # of headers that cannot be read
            warnings.simplefilter("ignore")
            list(Loader(folder / "in", 1, num_workers=1, pipelines=pipelines))
    except BadImageError as error:
        reason = error.reasons[0].partition("image: ")[2]
        return f"bad image: {re.sub(r'; its [0-9]+ bytes.*', '', reason)}"
    away = np.abs(decode_image(file).astype(int) - _pixels(file)).max()
    return "Pillow's pixels" if away == 0 else f"Pillow's pixels, ± {away}"


def _opened(file: bytes) -> str:
    try:
        _pixels(file)
    except (OSError, SyntaxError) as error:
        return f"`{type(error).__name__}`"
    return "opens it"


def _pixels(file: bytes) -> NDArray[np.uint8]:
    with warnings.catch_warnings():  # of EXIF
        warnings.simplefilter("ignore")
        return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text()))
