"""Crops decoded from entry points and restart markers: the same pixels, read from the bytes that they need."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._cpu.jpeg.codes import OK
from gpubeton.format.layout import ENTRY_DTYPE, MCUS_PER_ENTRY
from tests.cpu.decoder import restarted_with_an_index, scan_of, sealed, without
from tests.cpu.guarded import Slots, guarded_scratch
from tests.cpu.making import (
    INTERPOLATIONS,
    decode_crop,
    draw_of,
    indexed,
    make_alone,
    program_of,
    scratch_for,
    stored_jpeg,
    whole,
)
from tests.cpu.pictures import SAMPLINGS, jpeg, noise, photo, pillow_jpeg
from tests.cpu.test_views import PROGRAMS, boxes, row_of, together

HEIGHT, WIDTH = 131, 170
IMAGES = {sampling: indexed(stored_jpeg(jpeg(photo(HEIGHT, WIDTH), 85, sampling))) for sampling in SAMPLINGS}
MCU = {"4:2:0": (16, 16), "4:2:2": (8, 16), "4:4:0": (16, 8), "4:4:4": (8, 8), "gray": (8, 8)}


def needed_bytes(image, box, sampling):
    """Which bytes of a JPEG with entry points a crop needs: up to the end of each interval with one of its MCUs."""
    height, width = MCU[sampling]
    top, left, rows, columns = box
    across, down = -(-image.width // width), -(-image.height // height)
    begins = (image.entries["bit"] // 8).tolist()
    ends = [*((image.entries["bit"][1:].astype(int) + 7) // 8).tolist(), len(image.data)]
    needed = np.zeros(len(image.data), bool)
    for row in range(max(0, top - 1) // height, min(down, (top + rows) // height + 1)):
        for column in range(max(0, left - 1) // width, min(across, (left + columns) // width + 1)):
            number = (row * across + column) // MCUS_PER_ENTRY
            needed[begins[number] : ends[number]] = True
    return needed


@pytest.mark.parametrize("sampling", SAMPLINGS)
@given(boxes(HEIGHT, WIDTH), st.sampled_from(INTERPOLATIONS), st.integers(0, 1))
@settings(max_examples=60)
def test_a_crop_has_the_same_bits_with_entry_points(sampling, box, interpolation, flip):
    program = program_of(23, 31, interpolation)
    image, draw = IMAGES[sampling], draw_of(program, box, flip=flip)
    pixels, code, used = decode_crop(image, program, draw)
    assert (code, used) == (OK, True)
    assert np.array_equal(pixels, decode_crop(without(image), program, draw)[0])


@given(st.tuples(*[st.integers(1, 90)] * 2), st.sampled_from(SAMPLINGS), st.booleans(), st.integers(20, 100), st.data())
@settings(max_examples=150)
def test_images_of_any_size_have_the_same_bits_with_entry_points(size, sampling, is_noise, quality, data):
    content = jpeg((noise if is_noise else photo)(*size, 3), quality, sampling)
    image, program = indexed(stored_jpeg(content)), program_of(13, 17)
    draw = draw_of(program, data.draw(boxes(*size)))
    pixels, code, used = decode_crop(image, program, draw)
    assert (code, used) == (OK, True)
    assert np.array_equal(pixels, decode_crop(without(image), program, draw)[0])


@given(st.data(), st.sampled_from(SAMPLINGS), st.integers(2, 5))
@settings(max_examples=60)
def test_several_views_have_the_same_bits_with_entry_points(data, sampling, count):
    programs = [data.draw(st.sampled_from(PROGRAMS)) for _ in range(count)]
    draws = [[row_of(program, data.draw(boxes()), data.draw(st.integers(0, 1)))] for program in programs]
    image = IMAGES[sampling]
    result, bad = together(programs, [image], draws)
    plain, none = together(programs, [without(image)], draws)
    assert bad == none == []
    for output, other in zip(result, plain, strict=True):
        assert np.array_equal(output, other)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_only_the_intervals_that_a_crop_needs_are_read(sampling):
    """All other bytes of the scan may have any values."""
    image, program = IMAGES[sampling], program_of(23, 31)
    for box in ((0, 0, 20, 30), (40, 60, 30, 40), (100, 120, 31, 50), (60, 0, 8, WIDTH), (0, 80, HEIGHT, 9)):
        needed = needed_bytes(image, box, sampling)
        needed[: scan_of(image)] = True
        assert not needed.all()
        data = image.data.copy()
        data[~needed] = np.random.default_rng(1).integers(0, 256, (~needed).sum())
        draw = draw_of(program, box)
        pixels, code, used = decode_crop(sealed(image, data), program, draw)
        assert (code, used) == (OK, True)
        assert np.array_equal(pixels, decode_crop(image, program, draw)[0])


def test_restart_intervals_beside_a_crop_are_not_read():
    """Bits of two MCUs beside each other and in rows of twelve: damage counts in the intervals of the crop."""
    data = pillow_jpeg(photo(64, 192), quality=85, restart_marker_blocks=2)
    program = program_of(8, 8)
    scan = data.index(b"\xff\xda") + 14
    ends = [match.start() for match in re.finditer(rb"\xff[\xd0-\xd9]", data) if match.start() > scan]
    assert len(ends) == 4 * 6
    for number, end in enumerate(ends):
        image = stored_jpeg(data[:end] + b"\x55" * 40 + data[end:], 64, 192)
        row, column = divmod(number, 6)
        _, code, _ = decode_crop(image, program, draw_of(program, (18, 66, 10, 90)))
        # Rows 17 to 28 and columns 65 to 156: MCUs 4 to 9 of the second row.
        assert (code != OK) == (row == 1 and 2 <= column <= 4), number


def test_damage_where_a_crop_reads_gets_the_verdict_that_it_gets_without_entry_points():
    rng, program = np.random.default_rng(5), program_of(23, 31)
    noticed = 0
    for number in range(400):
        image = IMAGES[SAMPLINGS[number % len(SAMPLINGS)]]
        box = (40, 60, 30, 40)
        places = np.flatnonzero(needed_bytes(image, box, SAMPLINGS[number % len(SAMPLINGS)]))
        data = image.data.copy()
        data[rng.choice(places)] ^= 1 << rng.integers(8)
        draw = draw_of(program, box)
        pixels, code, used = decode_crop(sealed(image, data), program, draw)
        plain, expected, _ = decode_crop(without(replace(image, data=data)), program, draw)
        if not used:
            noticed += 1
            assert code == expected
            assert code != OK or np.array_equal(pixels, plain)
        else:
            assert code == OK
    assert noticed > 50


# --- indices that are wrong -------------------------------------------------------------------------------------------


def of_another_image(image, rng):
    return indexed(stored_jpeg(jpeg(photo(HEIGHT, WIDTH, 9), 85))).entries


def shifted(image, rng):
    entries = image.entries.copy()
    entries["bit"] += np.uint32(rng.integers(1, 9))
    return entries


def past_the_end(image, rng):
    entries = image.entries.copy()
    entries["bit"][rng.integers(len(entries))] = rng.choice([8 * len(image.data), 8 * len(image.data) + 1, 2**32 - 1])
    return entries


def before_the_scan(image, rng):
    entries = image.entries.copy()
    entries["bit"][rng.integers(len(entries))] = rng.choice([0, 1, 8 * scan_of(image) - 1])
    return entries


def descending(image, rng):
    entries = image.entries.copy()
    entries["bit"] = entries["bit"][::-1]
    return entries


def all_equal(image, rng):
    entries = image.entries.copy()
    entries["bit"] = entries["bit"][rng.integers(len(entries))]
    return entries


def two_swapped(image, rng):
    entries = image.entries.copy()
    first, second = rng.choice(len(entries), 2, replace=False)
    entries[[first, second]] = entries[[second, first]]
    return entries


def at_random(image, rng):
    entries = image.entries.copy()
    entries["bit"] = np.sort(rng.integers(8 * scan_of(image), 8 * len(image.data), len(entries)))
    return entries


def bytes_at_random(image, rng):
    return np.frombuffer(rng.bytes(image.entries.nbytes), ENTRY_DTYPE).copy()


def other_dc(image, rng):
    entries = image.entries.copy()
    entries["dc"][rng.integers(len(entries)), rng.integers(3)] += np.int16(rng.integers(1, 1000))
    return entries


def other_dc_everywhere(image, rng):
    """Each interval ends with the values that the next one begins with, and all of them are wrong."""
    entries = image.entries.copy()
    entries["dc"][:, 0] += np.int16(rng.integers(1, 1000))
    return entries


def too_few(image, rng):
    return image.entries[: rng.integers(1, len(image.entries))].copy()


def too_many(image, rng):
    return np.concatenate([image.entries, image.entries[-1:]])


@pytest.mark.parametrize(
    "way",
    [
        of_another_image,
        shifted,
        past_the_end,
        before_the_scan,
        descending,
        all_equal,
        two_swapped,
        at_random,
        bytes_at_random,
        other_dc,
        other_dc_everywhere,
        too_few,
        too_many,
    ],
    ids=lambda way: way.__name__,
)
def test_a_wrong_index_with_the_right_seal_is_noticed_in_whole_images_and_touches_no_other_memory(way):
    rng, program = np.random.default_rng(2), program_of(23, 31)
    for number in range(60):
        image = IMAGES[SAMPLINGS[number % len(SAMPLINGS)]]
        entries = way(image, rng)
        data = Slots(1, len(image.data)).ending(0, image.data.tobytes())
        image = sealed(image, data, Slots(1, entries.nbytes).ending(0, entries.tobytes()).view(ENTRY_DTYPE))
        scratch = guarded_scratch(scratch_for(program, [image]))
        draw = draw_of(program, whole(image))
        pixels, code, used = decode_crop(image, program, draw, scratch)
        assert (code, used) == (OK, False)
        assert np.array_equal(pixels, decode_crop(without(image), program, draw)[0])
        # A crop may be wrong, if it does not reach the fault.
        top, left = int(rng.integers(HEIGHT)), int(rng.integers(WIDTH))
        box = top, left, int(rng.integers(1, HEIGHT - top + 1)), int(rng.integers(1, WIDTH - left + 1))
        assert decode_crop(image, program, draw_of(program, box), scratch)[1] == OK


@pytest.mark.parametrize("way", [past_the_end, before_the_scan, descending, all_equal, other_dc_everywhere])
def test_bits_that_are_not_in_order_are_noticed_in_every_crop(way):
    rng, program = np.random.default_rng(3), program_of(23, 31)
    for sampling in SAMPLINGS:
        image = IMAGES[sampling]
        entries = way(image, rng)
        if way is other_dc_everywhere:
            entries["dc"][1:] = image.entries["dc"][1:]
        lying = sealed(image, entries=entries)
        for box in ((0, 0, 8, 16), (HEIGHT - 8, WIDTH - 16, 8, 16)):
            assert decode_crop(lying, program, draw_of(program, box))[1:] == (OK, False)


def test_an_entry_point_at_a_later_mcu_is_noticed_though_the_dc_values_there_are_the_same():
    image, program = indexed(stored_jpeg(jpeg(np.full((8, 512, 3), 90, np.uint8), 85, "gray"))), program_of(8, 8)
    entries = image.entries.copy()
    bits = np.diff(entries["bit"].astype(int))
    assert (bits[1:] == bits[-1]).all(), "eight equal MCUs"
    entries["bit"][3] += bits[-1] // MCUS_PER_ENTRY
    # The crop needs the first 24 MCUs and no data after the changed entry point.
    draw = draw_of(program, (0, 0, 8, 184))
    assert decode_crop(image, program, draw)[1:] == (OK, True)
    assert decode_crop(sealed(image, entries=entries), program, draw)[1:] == (OK, False)


@pytest.mark.parametrize("changed", ["header", "entries", "order", "number", "seal", "size", "scan"])
@given(data=st.data())
@settings(max_examples=20)
def test_an_index_that_does_not_fit_its_seal_is_not_used(changed, data):
    """For any crop: also where nothing reads the header, and where the interval is of no use."""
    image, program = IMAGES["4:2:0"], program_of(23, 31)
    draw = draw_of(program, (40, 60, 30, 40))
    content, entries, seal = image.data.copy(), image.entries.copy(), image.seal
    bit = 1 << data.draw(st.integers(0, 7))
    if changed == "header":
        density = content.tobytes().index(b"JFIF") + 8
        content[data.draw(st.integers(density, density + 3))] ^= bit
    elif changed == "entries":
        entries.view(np.uint8)[data.draw(st.integers(0, entries.nbytes - 1))] ^= bit
    elif changed == "order":
        first, second = data.draw(st.permutations(range(len(entries))))[:2]
        entries[[first, second]] = entries[[second, first]]
    elif changed == "number":
        entries = entries[:-1]
    elif changed == "seal":
        seal ^= 1 << data.draw(st.integers(0, 31))
    elif changed == "size":
        content = np.append(content, np.uint8(0))
    else:
        other = stored_jpeg(jpeg(noise(HEIGHT, WIDTH), 85, "4:2:0")).data
        assert np.array_equal(content[: scan_of(image)], other[: scan_of(image)])
        content = np.resize(other, len(content))
    changed_image = replace(image, data=content, entries=entries, seal=seal)
    pixels, code, used = decode_crop(changed_image, program, draw)
    expected, plain_code, _ = decode_crop(without(changed_image), program, draw)
    assert (code, used) == (plain_code, False)
    assert code != OK or np.array_equal(pixels, expected)


def test_restart_markers_count_more_than_an_index():
    image, program = restarted_with_an_index(), program_of(8, 8)
    draw = draw_of(program, (HEIGHT - 8, WIDTH - 8, 8, 8))
    pixels, code, used = decode_crop(image, program, draw)
    assert (code, used) == (OK, False)
    assert np.array_equal(pixels, decode_crop(without(image), program, draw)[0])


def test_an_index_of_a_jpeg_with_restart_markers_or_a_refused_one_changes_nothing():
    program = program_of(23, 31)
    for options in ({"restart_marker_blocks": 8}, {"progressive": True}):
        image = stored_jpeg(pillow_jpeg(photo(HEIGHT, WIDTH), **options))
        image = sealed(image, entries=IMAGES["4:2:0"].entries)
        draw = draw_of(program, (40, 60, 30, 40))
        pixels, code, _ = decode_crop(image, program, draw)
        plain, expected, _ = decode_crop(without(image), program, draw)
        assert code == expected
        assert np.array_equal(pixels, plain)


def test_no_state_of_an_indexed_image_affects_the_next():
    program = program_of(23, 31)
    images = [
        variant
        for image in IMAGES.values()
        for variant in (image, without(image), sealed(image, entries=image.entries[:-1]))
    ]
    draws = [draw_of(program, (40, 60, 30, 40))] * len(images)
    out, codes = make_alone(program, images, draws)
    assert not codes.any()
    for number in range(0, len(images), 3):
        for offset in (1, 2):
            assert np.array_equal(out[number], out[number + offset])
