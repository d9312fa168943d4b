"""The entry points of JPEGs beside a plain decoder, and their seals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubeton.format.layout import MCUS_PER_ENTRY
from tests.cpu.decoder import seal_of
from tests.cpu.making import entry_points, indexed, stored_jpeg
from tests.cpu.pictures import SAMPLINGS, jpeg, noise, photo, pillow_jpeg
from tests.reference.jpeg_positions import mcu_positions


def points_of(*files):
    """Entry points of files that lie at odd addresses, one after the other."""
    memory, start, contents = np.frombuffer(b"\xff" + b"\xff".join(files), np.uint8), 1, []
    for data in files:
        contents.append(memory[start : start + len(data)])
        start += len(data) + 1
    return entry_points(*contents)


def listed(entries):
    return [(int(bit), tuple(dc.tolist())) for bit, dc in zip(entries["bit"], entries["dc"], strict=True)]


@settings(max_examples=60)
@given(
    st.sampled_from(SAMPLINGS),
    st.integers(1, 100),
    st.integers(1, 100),
    st.integers(1, 100),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
@example("4:2:0", 1, 1, 75, False, 1)
@example("4:2:2", 8, 8, 100, True, 2)
@example("4:4:4", 64, 128, 100, True, 2)
def test_entry_points_are_every_eighth_mcu_of_a_plain_decoder(sampling, height, width, quality, is_noise, seed):
    data = jpeg((noise if is_noise else photo)(height, width, seed), quality, sampling)
    assert listed(points_of(data).entries) == mcu_positions(data)[::MCUS_PER_ENTRY]


@pytest.mark.parametrize(
    "options", [{"optimize": True, "subsampling": number} for number in range(3)] + [{"restart_marker_blocks": 12}]
)
def test_optimized_tables_and_a_restart_interval_as_long_as_the_image_change_nothing(options):
    data = pillow_jpeg(photo(40, 64), quality=85, **options)
    assert (b"\xff\xdd" in data) == ("restart_marker_blocks" in options)
    assert listed(points_of(data).entries) == mcu_positions(data)[::MCUS_PER_ENTRY]


def test_images_without_entry_points_have_address_and_number_0():
    picture = photo(40, 64)
    sound = jpeg(picture)
    scan = sound.index(b"\xff\xda") + 14
    files = [
        pillow_jpeg(picture, progressive=True),
        pillow_jpeg(picture, restart_marker_blocks=3),
        pillow_jpeg(picture, mode="CMYK"),
        jpeg(picture, sampling="4:1:1"),
        sound[:-2],
        sound[: len(sound) // 2],
        sound[:scan] + b"\xff\xff\0" + sound[scan:],
        sound[:scan] + bytes(40) + sound[scan:],
        b"",
        b"no JPEG",
    ]
    points = points_of(*files, sound, sound)
    addresses, counts, seals, _ = points.of(np.arange(len(files)))
    assert not addresses.any()
    assert not counts.any()
    assert not seals.any()
    addresses, counts, seals, _ = points.of(np.arange(len(files), len(files) + 2))
    count = -(-3 * 4 // MCUS_PER_ENTRY)
    assert counts.tolist() == [count, count]
    assert (addresses - np.uint64(points.entries.ctypes.data)).tolist() == [0, points.entries[:count].nbytes]
    assert listed(points.entries) == 2 * mcu_positions(sound)[::MCUS_PER_ENTRY]
    assert seals[0] == seals[1] != 0


@pytest.mark.parametrize(("height", "width", "quality"), [(1, 1, 1), (8, 8, 1), (70, 90, 80), (33, 500, 95)])
def test_a_seal_is_the_documented_one(height, width, quality):
    image = indexed(stored_jpeg(jpeg(photo(height, width), quality)))
    assert image.seal == seal_of(image)
