"""A worker whose memory, input and output lie between unreadable pages, and the verdict of libjpeg-turbo."""

from __future__ import annotations

import re
from typing import NamedTuple
from unittest import mock

import numpy as np
import simplejpeg

from gpubeton._cpu import bad_images
from gpubeton._cpu.epilogue import INTERPOLATION, OUT_HEIGHT, OUT_WIDTH, outputs_of
from gpubeton._cpu.image_tasks import allocate
from gpubeton._cpu.jpeg.codes import OK, REASONS
from gpubeton._cpu.ring import REFUSED, allocate_ring, publish
from gpubeton._cpu.worker_pool import Worker
from gpubeton._plan.draw_rows import DRAW_COLUMNS
from gpubeton.fields.pixels import rgb_of_file
from gpubeton.pipeline.interpolation import INTERPOLATIONS, filter_radius
from gpubeton.transforms import NormalizeImage
from tests.cpu.making import draw_of, program_of
from tests.fuzz.arena import Arena

MAX_VIEWS = 4
#: No side is longer in a case: more pixels would take time, and find nothing else.
MAX_SIDE = 256
MEAN, STD = 120, 60
#: Element types of an output: levels, or numbers that are normalized by MEAN and STD.
FINISHES = tuple(map(np.dtype, ("u1", "f2", "f4")))


class View(NamedTuple):
    """An output: its size, the crop (top, left, height, width), and how that is placed and resampled."""

    size: tuple[int, int]
    box: tuple[int, int, int, int]
    interpolation: str
    flip: int = 0
    shift: tuple[int, int] = (0, 0)
    finish: int = 0  # one of FINISHES


class Made(NamedTuple):
    """What gpubeton made of one view."""

    pixels: np.ndarray  # of its finish
    code: int
    reason: str
    is_fallback: bool  # not made by the crop decoder


class Bench(Worker):
    """A worker whose arrays are placed again for each group of images."""

    def __init__(self):
        steps = [(), *((NormalizeImage([MEAN] * 3, [STD] * 3, type_.type),) for type_ in FINISHES[1:])]
        self._programs = [program_of(8, 8, "area", *step) for step in steps for _ in range(MAX_VIEWS)]
        super().__init__(self._programs, outputs_of(self._programs))
        self.settings = self._outputs.settings
        self._memory = Arena(40, 1 << 23)
        self._images = Arena(2 + MAX_VIEWS, 1 << 20)
        self._rings = [allocate_ring(1, views, DRAW_COLUMNS) for views in range(1, MAX_VIEWS + 1)]
        self._at_end = True

    def prepare(self, views, images, *, at_end):
        """Place fresh memory for images of a height, a width and a size in bytes, just large enough for the views."""
        heights, widths = zip(*(view.size for view in views), strict=True)
        scales = [
            max(np.divide(images[:2], view.size)) * filter_radius(INTERPOLATIONS[view.interpolation]) for view in views
        ]
        self._memory.begin(at_end=at_end)
        scratch = self._memory.scratch(
            allocate(images, (max(heights), max(widths)), max(scales), (0, 0), max(1, len(views)))
        )
        self._placed, self._at_end = scratch, at_end

    def scratch(self, *image):
        assert (image <= self._placed.capacity).all()
        return self._placed

    def make(self, data, height, width, views):
        """Make the views of a JPEG together; `height` and `width` are those of the metadata."""
        self._images.begin(at_end=self._at_end)
        place = self._images.place(data)
        ring = self._rings[len(views) - 1]
        ring.control[:] = 0
        outs = []
        for i, view in enumerate(views):
            program = i + MAX_VIEWS * view.finish
            self.settings[program, [OUT_HEIGHT, OUT_WIDTH, INTERPOLATION]] = (
                *view.size,
                INTERPOLATIONS[view.interpolation],
            )
            out = self._images.array(np.full((*view.size, 3), 9, FINISHES[view.finish]))
            led = (i + 1) % len(views), int(i > 0)
            row = [place.ctypes.data, len(data), height, width, 0, program, out.ctypes.data, *led]
            ring.tasks[0, i, : len(row)] = row
            ring.draws[0, i] = draw_of(self._programs[program], view.box, flip=view.flip, shift=view.shift)
            outs.append(out)
        publish(ring, 0)
        event, ticket = self.run(ring)
        reason = ""
        if event == REFUSED:
            with mock.patch.object(bad_images, "rgb_of_file", self._decode):
                _, reason = self.make_refused(ring, ticket)
        codes = ring.codes[0].tolist()
        return [
            Made(out, code, "" if code == OK else reason or REASONS.get(code, str(code)), event == REFUSED)
            for out, code in zip(outs, codes, strict=True)
        ]

    def _decode(self, data):
        """What libjpeg-turbo decodes lies between unreadable pages, too."""
        return self._images.array(rgb_of_file(data))


class Verdict(NamedTuple):
    """What strict libjpeg-turbo, as simplejpeg offers it, makes of a JPEG."""

    kind: str  # "accepts", "refuses", or "undecided"
    message: str = ""
    pixels: np.ndarray | None = None  # None: accepted, but not comparable


def size_of(data):
    """Height and width in a JPEG's header; None if simplejpeg does not give them."""
    try:
        return simplejpeg.decode_jpeg_header(data)[:2]
    except (ValueError, KeyError):
        return None


def strict(data):
    """Ask libjpeg-turbo."""
    size = size_of(data)
    if size and size[0] * size[1] > 1 << 18:
        return Verdict("undecided", "too large")
    try:
        return Verdict("accepts", "", simplejpeg.decode_jpeg(data, colorspace="RGB", strict=True))
    except ValueError as error:
        message = str(error)
    if "color conversion" in message:
        try:
            simplejpeg.decode_jpeg(data, colorspace="CMYK", strict=True)
            return Verdict("accepts")
        except ValueError as error:
            message = str(error)
    if "subsampling" in message:
        return Verdict("undecided", "no name for the sampling")
    return Verdict("refuses", re.sub(r"\d+", "N", re.sub(r"0x[0-9a-f]+", "X", message)))


def with_plain_header(data):
    """The file with the header that an ordinary encoder would have written; no pixel depends on the difference.

    Without metadata, bytes between segments and fill bytes, with the usual version of JFIF and the parameters of a
    sequential scan.
    """
    parts, position, is_sequential = [data[:2]], 2, False
    while position + 4 <= len(data):
        marker = data[position + 1]
        if data[position] != 0xFF or marker in {0, 0xFF}:
            position += 1 if marker else 2
            continue
        if marker == 1 or 0xD0 <= marker <= 0xD7:
            position += 2
            continue
        stop = position + 2 + max(2, int.from_bytes(data[position + 2 : position + 4], "big"))
        segment = data[position:stop]
        if marker == 0xDA and is_sequential:
            segment = segment[:-3] + b"\0\x3f\0"
        is_adobe = marker == 0xEE and segment[4:9] == b"Adobe"
        if marker == 0xE0 and segment[4:9] == b"JFIF\0" and len(segment) >= 18:
            parts.append(b"\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0")
        elif is_adobe or not (0xE0 <= marker <= 0xEF or marker == 0xFE):
            parts.append(segment)
        if 0xD8 <= marker <= 0xDA:
            return b"".join(parts) + re.sub(rb"\xff+(?=\xff)", b"", data[stop:])
        is_sequential = is_sequential or marker in {0xC0, 0xC1}
        position = stop
    return data
