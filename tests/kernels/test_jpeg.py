"""JPEGs with entry points, decoded and resampled by the kernels on the host: the CPU executor's pixels to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._cpu.jpeg.entries import JpegReader
from gpubeton._plan.draw_rows import TOP, WIDTH
from gpubeton._plan.jpeg_windows import COLUMNS, EVERY, FIRST_COLUMN, FIRST_ROW, ROWS
from gpubeton.transforms import Cutout
from tests.cpu import damage, plain_jpeg
from tests.cpu.decoder import FLAT, gray_jpeg, random_blocks, restarted_with_an_index, scan_of, sealed, without
from tests.cpu.making import (
    INTERPOLATIONS,
    UNTOUCHED,
    draw_of,
    indexed,
    joined,
    make,
    program_of,
    segments,
    stored_jpeg,
    whole,
)
from tests.cpu.pictures import SAMPLINGS, jpeg, noise, photo, pillow_jpeg
from tests.cpu.test_resample import SHAPES
from tests.kernels.host_build import ORDERS, RANDOM, needs_compiler
from tests.kernels.host_device import HostDevice
from tests.kernels.jpeg_launching import batch_of, make_jpegs, read_parts
from tests.kernels.launching import DONE, WRONG_CROP
from tests.kernels.test_resample import FINISHES, bits

pytestmark = needs_compiler

#: Of kernels/jpeg.cuh.
DAMAGED = 3


def restarted(rgb, every=3):
    return pillow_jpeg(rgb, restart_marker_blocks=every)


def optimized(rgb):
    return pillow_jpeg(rgb, optimize=True)


def encoded(rgb):
    """One JPEG of each kind."""
    files = [jpeg(rgb, 90, sampling) for sampling in SAMPLINGS]
    return [stored_jpeg(file) for file in (*files, restarted(rgb), optimized(rgb))]


def on_cpu(program, images, draws):
    out, bad = make(program, images, draws)
    assert bad == []
    return out


def assert_as_on_the_cpu(program, images, draws, *, order=RANDOM, seed=0, **more):
    result = make_jpegs(program, batch_of(images), draws, device=HostDevice(order, seed), **more)
    assert result.can.all()
    assert result.status == [DONE] * len(images)
    assert np.array_equal(bits(result.out), bits(on_cpu(program, images, draws)))
    return result


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_images_are_the_cpus_to_the_bit(interpolation, order):
    for number, (source, box, size) in enumerate(SHAPES):
        program = program_of(*size, interpolation, *list(FINISHES.values())[number % 4])
        images = encoded((noise if number % 2 else photo)(*source, number))
        draws = [draw_of(program, box, flip=i % 2, shift=(2, -3) if i % 3 == 2 else (0, 0)) for i in range(len(images))]
        assert_as_on_the_cpu(program, images, draws, order=order, seed=number)


@st.composite
def batches(draws):
    """A program, JPEGs, and for each a draw."""
    side = draws(st.sampled_from([12, 70, 300]))
    height, width = draws(st.integers(1, side)), draws(st.integers(1, side))
    fills = draws(st.lists(st.tuples(*[st.integers(0, 255)] * 3), max_size=2))
    finish, interpolation = draws(st.sampled_from(sorted(FINISHES))), draws(st.sampled_from(INTERPOLATIONS))
    program = program_of(height, width, interpolation, *[Cutout(1, fill) for fill in fills], *FINISHES[finish])
    images, rows = [], []
    for _ in range(draws(st.integers(1, 3))):
        largest = draws(st.sampled_from([9, 90, 500]))
        h, w = draws(st.integers(1, largest)), draws(st.integers(1, largest))
        rgb = draws(st.sampled_from([noise, photo]))(h, w, draws(st.integers(0, 9)))
        kind = draws(st.sampled_from([*SAMPLINGS, "restarted", "optimized"]))
        if kind == "restarted":
            data = restarted(rgb, draws(st.integers(1, 40)))
        else:
            data = optimized(rgb) if kind == "optimized" else jpeg(rgb, draws(st.sampled_from([5, 50, 90, 100])), kind)
        images.append(stored_jpeg(data))
        crop_height, crop_width = draws(st.integers(1, h)), draws(st.integers(1, w))
        box = draws(st.integers(0, h - crop_height)), draws(st.integers(0, w - crop_width)), crop_height, crop_width
        shift = draws(st.one_of(st.just((0, 0)), st.tuples(*[st.integers(-side, side)] * 2)))
        rectangle = st.tuples(*[st.integers(-3, side + 3) for side in (height, width) * 2])
        paints = [
            (*draws(rectangle), draws(st.integers(0, len(program.fills) - 1)))
            for _ in range(draws(st.integers(0, len(fills))))
        ]
        rows.append(draw_of(program, box, flip=draws(st.integers(0, 1)), shift=shift, paints=paints))
    return program, images, rows


@given(batches(), st.integers(0, 15), st.integers(0, 1000))
@settings(max_examples=150)
def test_any_batch_is_the_cpus_to_the_bit(batch, shift, seed):
    program, images, draws = batch
    assert_as_on_the_cpu(program, images, draws, seed=seed, shift=shift)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (3, 4), (4, 3), (5, 5), (16, 17), (33, 15)])
def test_whole_images_of_few_pixels_are_the_cpus_to_the_bit(size, sampling):
    """Chroma of images up to four pixels wide is repeated; edges have one neighbor."""
    program = program_of(23, 31, "bilinear")
    images = [stored_jpeg(jpeg(noise(*size, seed), 95, sampling)) for seed in range(2)]
    assert_as_on_the_cpu(program, images, [draw_of(program, whole(image), flip=i) for i, image in enumerate(images)])


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize(("source", "size"), [((40, 1500), (20, 30)), ((1500, 40), (30, 20)), ((700, 900), (5, 4))])
def test_hundreds_of_taps_are_the_cpus_to_the_bit(interpolation, source, size):
    program = program_of(*size, interpolation)
    images = encoded(photo(*source))
    assert_as_on_the_cpu(
        program, images, [draw_of(program, whole(image), flip=i % 2) for i, image in enumerate(images)]
    )


def test_rows_of_several_strips_are_seamless():
    program = program_of(5, 601, "area", Cutout(1, (1, 2, 3)), *FINISHES["float16"])
    images = encoded(noise(11, 700))
    draws = [draw_of(program, (0, i, 11, 600), paints=[(1, 100, 2, 598, 0)]) for i in range(len(images))]
    for shift in (0, 1, 3):
        assert_as_on_the_cpu(program, images, draws, shift=shift)


def test_images_with_many_sets_of_tables_share_a_batch():
    program = program_of(30, 30)
    images = [stored_jpeg(optimized(photo(90, 120, seed))) for seed in range(8)] * 2
    images += encoded(photo(300, 400, 9)) * 2
    result = assert_as_on_the_cpu(program, images, [draw_of(program, whole(image)) for image in images])
    assert len(result.parts.tables) >= 9
    assert len(np.unique(result.parts.table_of[:8])) == 8
    assert np.array_equal(result.parts.table_of[:8], result.parts.table_of[8:16])


def test_the_bytes_that_a_crop_needs_end_anywhere():
    """Where the next interval begins with or in 0xFF, too, whose stuffed zero has to be there."""
    program, rgb = program_of(3, 5), noise(8, 8000, 1) // 16
    rgb[:, np.arange(8000) // 8 % 2 == 1] += 240  # one black unit, one white: the codes of their steps begin with ones
    image = indexed(stored_jpeg(jpeg(rgb, 100, "gray")))
    bits = image.entries["bit"][1:].astype(int)
    begins = set(zip((image.data[bits // 8] == 0xFF).tolist(), (bits % 8).tolist(), strict=True))
    assert {(True, 0), (True, 3), (False, 3)} <= begins
    # One row of units, eight of which are an interval; the next one is a pixel from the crop's end.
    draws = [draw_of(program, (0, 0, 8, 64 * (entry + 1) - 1)) for entry in range(len(bits))]
    assert_as_on_the_cpu(program, [image] * len(draws), draws)


# --- each kernel beside a plain reference -------------------------------------------------------------------------


def window_of(jpegs, i, dtype, name, values):
    """A part of the memory of image i: so many values."""
    start = int(jpegs.jpegs[name][i]) - jpegs.window.ctypes.data
    return jpegs.window[start : start + values * np.dtype(dtype).itemsize].view(dtype)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_coefficients_are_those_of_a_plain_decoder(sampling):
    program = program_of(8, 8)
    data = jpeg(photo(70, 90), 85, sampling)
    image = stored_jpeg(data)
    jpegs = make_jpegs(program, batch_of([image]), [draw_of(program, (20, 34, 30, 20))])
    row = jpegs.parts.rows[0]
    place = 0
    for component, blocks in plain_jpeg.read(data).items():
        across, down = (jpegs.jpegs["luma_across"][0], jpegs.jpegs["luma_down"][0]) if component == 0 else (1, 1)
        rows = slice(row[FIRST_ROW] * down, (row[FIRST_ROW] + row[ROWS]) * down)
        columns = slice(row[FIRST_COLUMN] * across, (row[FIRST_COLUMN] + row[COLUMNS]) * across)
        expected = blocks[rows, columns]
        stop = place + expected.size
        result = window_of(jpegs, 0, np.int16, "coefficients", stop)[place:].reshape(expected.shape)
        assert np.array_equal(result * jpegs.parts.quantization[0, component].astype(int), expected)
        place = stop


@pytest.mark.parametrize("amplitude", [1, 30, 800, 1023])
def test_samples_are_those_of_the_cpus_inverse_transform(amplitude):
    """Coefficients far beyond any picture's, too: sums wrap as on the CPU."""
    blocks = random_blocks(64, amplitude, 0.5, amplitude)
    blocks[:, 0] = np.clip(blocks[:, 0], -127, 127)
    quantization = FLAT * 255 if amplitude == 800 else FLAT
    program = program_of(8, 8)
    image = stored_jpeg(gray_jpeg(blocks, quantization))
    jpegs = make_jpegs(program, batch_of([image]), [draw_of(program, whole(image))])
    assert jpegs.status == [DONE]
    result = window_of(jpegs, 0, np.uint8, "samples", 64 * 64).reshape(64, 64, 1)
    assert (make(program_of(64, 64), [image], [draw_of(program, whole(image))])[0][0] == result).all()


def test_a_first_coefficient_too_large_for_16_bits_is_left_to_the_cpu():
    blocks = np.zeros((1, 64), int)
    blocks[:, 0] = 200
    image = stored_jpeg(gray_jpeg(blocks, FLAT * 255))
    program = program_of(8, 8)
    assert make_jpegs(program, batch_of([image]), [draw_of(program, whole(image))]).status == [DAMAGED]


# --- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("box", [(0, 0, 0, 4), (-1, 0, 4, 4), (0, -1, 4, 4), (2, 0, 20, 4), (5, 0, 1, 100)])
def test_a_crop_that_is_not_inside_the_image_is_noted_and_nothing_is_written(box, order):
    program = program_of(4, 5)
    images = [stored_jpeg(jpeg(noise(20, 30)))] * 3
    draws = [draw_of(program, (0, 0, 20, 30)) for _ in images]
    draws[1][TOP : WIDTH + 1] = box
    result = make_jpegs(program, batch_of(images), draws, most=30, device=HostDevice(order))
    assert result.status == [DONE, WRONG_CROP, DONE]
    assert (result.out[1] == UNTOUCHED).all()
    assert np.array_equal(result.out[[0, 2]], on_cpu(program, images[:2], [draws[0]] * 2))


def test_more_taps_than_there_is_room_for_are_noted_and_nothing_is_written():
    program = program_of(4, 4)
    images = [stored_jpeg(jpeg(noise(*size))) for size in ((8, 8), (8, 60), (60, 8))]
    result = make_jpegs(program, batch_of(images), [draw_of(program, whole(image)) for image in images], most=5)
    assert result.status == [DONE, WRONG_CROP, WRONG_CROP]
    assert (result.out[1:] == UNTOUCHED).all()


def whole_batch(program, images, **more):
    return make_jpegs(program, batch_of(images), [draw_of(program, whole(image)) for image in images], **more)


@pytest.mark.parametrize("field", range(5))
def test_each_word_of_each_entry_point_is_checked(field):
    """The data are decoded from one entry point to the next, which must be where the decoder comes out."""
    program = program_of(9, 9)
    image = stored_jpeg(jpeg(photo(70, 90)))
    count = int(batch_of([image]).num_entries[0])
    for entry in range(1, count):

        def change(entries, jpegs, entry=entry):
            entries.view(np.uint16).reshape(-1, 5)[entry, field] ^= 1

        assert whole_batch(program, [image], change=change).status == [DAMAGED]


def test_data_after_the_last_unit_are_noted():
    program = program_of(9, 9)
    data = jpeg(photo(70, 90))
    batch = batch_of([stored_jpeg(data)])
    longer = stored_jpeg(data[:-2] + b"\x55\xff\xd9")
    damaged = batch_of([longer])
    damaged.entries, damaged.num_entries = batch.entries, batch.num_entries
    draws = [draw_of(program, whole(longer))]
    batch.size = damaged.size.copy()
    batch.address, batch.data = damaged.address, damaged.data
    parts = read_parts(batch_of([stored_jpeg(data)]), np.stack(draws))
    assert make_jpegs(program, batch, draws, parts=parts).status == [DAMAGED]


@pytest.mark.parametrize("shift", [1, 4])
def test_a_restart_interval_ends_at_its_own_marker(shift):
    program = program_of(9, 9)
    data = bytearray(restarted(photo(70, 90), 2))
    place = data.index(b"\xff\xd3")
    batch = batch_of([stored_jpeg(bytes(data))])
    draws = [draw_of(program, (0, 0, 70, 90))]
    parts = read_parts(batch, np.stack(draws))
    result = JpegReader.list_intervals(batch.address, batch.size, batch.entries, parts)
    assert len(result.intervals) == parts.rows[0, 7] > 8

    def change(entries, jpegs):
        batch.data[0][place + 1] ^= shift

    assert make_jpegs(program, batch, draws, parts=parts, change=change).status == [DAMAGED]


SCAN_DAMAGES = [damage.cut, damage.cut_and_ended, damage.flip_bits, damage.overwrite, damage.insert, damage.leave_out,
                damage.repeat, damage.restart_marker]  # fmt: skip


@given(st.integers(0, 10**6), st.sampled_from(SCAN_DAMAGES), st.sampled_from([*SAMPLINGS, "restarted"]))
@settings(max_examples=300)
def test_damaged_data_are_noted_or_decoded_and_no_other_memory_is_touched(seed, way, sampling):
    """The JPEG, its entry points and all arrays end at unreadable pages; the order of threads changes nothing."""
    rng = np.random.default_rng(seed)
    rgb = photo(int(rng.integers(1, 90)), int(rng.integers(1, 90)), seed % 7)
    image = stored_jpeg(restarted(rgb) if sampling == "restarted" else jpeg(rgb, 80, sampling))
    program, batch = program_of(7, 9), batch_of([image])
    draws = [draw_of(program, whole(image), flip=seed % 2)]
    parts = read_parts(batch, np.stack(draws))
    scan = bytes(image.data).index(b"\xff\xda") + 14
    changed = (bytes(image.data[:scan]) + way(bytes(image.data[scan:]), rng))[: image.data.size]
    broken = batch_of([stored_jpeg(changed, image.height, image.width)])
    broken.entries, broken.num_entries = batch.entries, batch.num_entries
    parts.rows[0, EVERY] = max(parts.rows[0, EVERY], 1)
    results = [make_jpegs(program, broken, draws, parts=parts, device=HostDevice(order, seed)) for order in ORDERS]
    if not results[0].can.all():
        return  # a restart marker is missing, which the CPU sees
    assert results[0].status[0] in (DONE, DAMAGED)
    assert all(result.status == results[0].status for result in results)
    if results[0].status == [DONE]:
        assert all(np.array_equal(result.out, results[0].out) for result in results)


@given(st.integers(0, 10**6), st.sampled_from(SAMPLINGS))
@settings(max_examples=300)
def test_lying_entry_points_are_noted_and_no_other_memory_is_touched(seed, sampling):
    rng = np.random.default_rng(seed)
    rgb = photo(int(rng.integers(20, 90)), int(rng.integers(70, 200)), seed % 7)
    image = stored_jpeg(jpeg(rgb, 80, sampling))
    program = program_of(7, 9)

    def change(entries, jpegs):
        words = entries.reshape(-1).view(np.uint16)
        if rng.random() < 0.5:
            words[rng.integers(len(words))] ^= 1 << int(rng.integers(16))
        else:
            words[:] = rng.integers(0, 1 << 16, len(words))

    assert whole_batch(program, [image], change=change, device=HostDevice(RANDOM, seed)).status == [DAMAGED]


# --- indices that lie, with the right seal ------------------------------------------------------------------------


def batch_with_its_index(image):
    """A batch of an image with the index that it has, not that of its data."""
    batch = batch_of([image])
    batch.entries[0], batch.num_entries[0], batch.seals[0] = image.entries.ctypes.data, len(image.entries), image.seal
    return batch


def assert_the_cpu_agrees(program, image, draw):
    """What the kernels do not leave to the CPU is what the CPU makes."""
    result = make_jpegs(program, batch_with_its_index(image), [draw])
    expected = on_cpu(program, [image], [draw])
    if result.can[0] and result.status == [DONE]:
        assert np.array_equal(bits(result.out), bits(expected))
    return result, expected


def forged(image, rng):
    """Change some entry points, mostly so that each interval still ends as the next one begins."""
    entries = image.entries.copy()
    for _ in range(rng.integers(1, 4)):
        k, way = rng.integers(len(entries)), rng.integers(6)
        if way == 0:
            entries["dc"][k:] += rng.integers(-200, 200, 3).astype(np.int16)
        elif way == 1:
            entries["dc"][k, rng.integers(3)] ^= 1 << rng.integers(8)
        elif way == 2:
            entries["bit"][k:] += np.uint32(rng.integers(1, 9))
        elif way == 3:
            entries[k:-1] = entries[k + 1 :].copy()
        elif way == 4:
            entries["bit"][k] = rng.integers(8 * len(image.data) + 2)
        else:
            entries = np.roll(entries, rng.integers(-2, 3))
    return sealed(image, entries=entries)


@given(st.integers(0, 10**6), st.sampled_from([*SAMPLINGS, "restarted"]))
@settings(max_examples=300)
def test_a_forged_index_makes_the_same_of_an_image_here_as_on_the_cpu(seed, sampling):
    rng, program = np.random.default_rng(seed), program_of(7, 9)
    if sampling == "restarted":
        image = restarted_with_an_index()
    else:
        height, width = int(rng.integers(1, 90)), int(rng.integers(1, 200))
        image = indexed(stored_jpeg(jpeg(photo(height, width, seed % 7), 80, sampling)))
    # Small crops at the end, too: they need the last interval alone, which no other one proves wrong.
    sides = np.array([image.height, image.width])
    crop = rng.integers(1, np.minimum(sides, rng.choice([2, 30, 200])) + 1)
    corner = rng.integers(0, sides - crop + 1) if rng.random() < 0.5 else sides - crop
    assert_the_cpu_agrees(program, forged(image, rng), draw_of(program, (*corner, *crop)))


def test_entry_points_in_a_comment_that_has_another_image_are_not_followed():
    program = program_of(9, 9)
    shown, hidden = (indexed(stored_jpeg(jpeg(photo(70, 90, seed)))) for seed in (1, 2))
    scan = bytes(hidden.data[scan_of(hidden) :])
    parts = segments(bytes(shown.data))
    data = joined([parts[0], (0xFE, scan), *parts[1:]])
    entries = hidden.entries.copy()
    entries["bit"] -= np.uint32(8 * (scan_of(hidden) - data.index(scan)))
    image = sealed(stored_jpeg(data), entries=entries)
    jpegs, expected = assert_the_cpu_agrees(program, image, draw_of(program, whole(image)))
    assert not jpegs.can[0]
    assert np.array_equal(expected, on_cpu(program, [without(shown)], [draw_of(program, whole(image))]))


def test_bytes_before_those_that_are_there_are_not_read():
    """The kernel reports an entry point there, for any bytes."""
    program = program_of(9, 9)
    image = stored_jpeg(jpeg(photo(70, 90)))

    def change(entries, jpegs):
        jpegs["begin"] += 1

    assert whole_batch(program, [image], change=change).status == [DAMAGED]


def test_restart_intervals_begin_with_zeros_for_all_entry_points():
    program = program_of(9, 9)
    image = stored_jpeg(restarted(photo(70, 90)))

    def change(entries, jpegs):
        entries.view(np.uint16).reshape(-1, 5)[:, 2:] = 77

    result = whole_batch(program, [image], change=change)
    assert result.status == [DONE]
    assert np.array_equal(result.out, on_cpu(program, [image], [draw_of(program, whole(image))]))
