"""Warp steps: rotate, shift, scale and shear images, or turn them in space.

A pixel (x, y) of the result is read at a place in the source, in units of 2**-11 of a pixel, whole at pixels' centers.
"nearest" takes the pixel there, a tie the one with the larger coordinate; "bilinear" weighs the four around it,
rounded. What lies outside the image has the color of the fill.

WARP_NEAREST and WARP_BILINEAR have six numbers in units of 2**-32. The place is ``(a x + b y + c, d x + e y + f)``,
rounded to its units; of "nearest" at once to whole pixels.

PERSPECTIVE has nine numbers, which `perspective_rows` makes. The place is ``(a x + b y + c) // w`` across and
``(d x + e y + f) // w`` down, where ``w = (g x + h y + k) >> 16``; "nearest" rounds both to whole pixels. Where w is
not from 1 to `LARGEST_DIVISOR`, the pixel is outside. Images have at most `MOST_PIXELS` along an axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._batch.place_steps import fill_row
from gpubeton._batch.step_code import BORDER, CHANNELS, HEIGHT, ITEM_SIZE, LAYOUT_FIELDS, WIDTH
from gpubeton._batch.step_rows import PARAMETERS, PERSPECTIVE, WARP_BILINEAR, WARP_NEAREST
from gpubeton._compile.compile import AddressedFunction, device_function, inlined
from gpubeton._compile.intrinsics import copy, i64_at, load_u8, load_u16, store_i16, store_u8
from gpubeton._compile.simd import F64, HAS_BYTE_PERMUTE, I8, I16, I32, I64, Vector, VectorBuilder, vector_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gpubeton._compile.intrinsics import Array

IDENTITY = 1 << 32, 0, 0, 0, 1 << 32, 0  # the affine warp that changes nothing
WARPS = frozenset({WARP_NEAREST, WARP_BILINEAR, PERSPECTIVE})

PLACE_BITS = 11
DIVISOR_BITS = 16
LARGEST_DIVISOR = (1 << 26) - 1
MOST_PIXELS = 8192

_ONE = 1 << PLACE_BITS

# Bytes from the start of a step to its fill, its numbers, and, of PERSPECTIVE, whether it is bilinear.
_FILL = 4 * PARAMETERS
_NUMBERS = _FILL + 8
_IS_BILINEAR = _NUMBERS + 9 * 8


def perspective_rows(starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[np.int64]:  # (N, 9), from (N, 4, 2)
    """Make the numbers of PERSPECTIVE from four corners; without an area between them, images stay as they are."""
    # `starts` are in the source, `ends` in the result: points (x, y) between pixels, as in torchvision's
    # ``perspective``. The matrix from the result to the source is a product of two: from four corners to the axes and
    # their sum, and from there to four corners. It is made of sums and products alone: the same bits on all machines.
    (points, _, weights), (_, normals, turns) = _frame(starts), _frame(ends)
    inverse = normals * turns[:, [1, 2, 0]] * turns[:, [2, 0, 1]]
    matrix = ((points * weights)[:, :, :, None] * inverse[:, :, None]).sum(axis=1)
    has_area = [(shares != 0).all(axis=(1, 2)) & (shares.sum(axis=(1, 2)) != 0) for shares in (weights, turns)]
    matrix[~(has_area[0] & has_area[1])] = np.eye(3)
    # Divisors are positive at the corners, and up to half of the largest; numerators stay below 2**62.
    at_corners = (matrix[:, None, 2, :2] * (np.asarray(ends, np.float64) - 0.5)).sum(axis=2) + matrix[:, 2, 2:]
    matrix *= (np.where(at_corners.sum(axis=1) < 0, -1, 1) / np.abs(at_corners).max(axis=1))[:, None, None]
    matrix[:, :2] = (matrix[:, :2] * (1 << PLACE_BITS) + matrix[:, 2:] / 2) * (1 << 25)
    matrix[:, 2] *= 1 << 25 + DIVISOR_BITS
    largest = (np.abs(matrix) * (MOST_PIXELS, MOST_PIXELS, 1)).sum(axis=2).max(axis=1)
    scaled = matrix * np.minimum(1, 2.0**62 / largest)[:, None, None]
    rows: NDArray[np.int64] = np.rint(scaled).astype(np.int64).reshape(-1, 9)
    return rows


def forward_maps(kinds: NDArray[np.int32], columns: NDArray[np.int32]) -> NDArray[np.float64]:  # (N, 3, 3)
    """Return where warps take the points (x, y, 1) of an image, which lie between pixels; other steps leave them."""
    # `kinds` are those of a step of each image, (N,); `columns`, (N, C), the list of steps from there on.
    maps, is_perspective = np.tile(np.eye(3), (len(kinds), 1, 1)), kinds == PERSPECTIVE
    is_affine = ~is_perspective & np.isin(kinds, list(WARPS))
    for chosen, count in ((is_affine, 6), (is_perspective, 9)):
        numbers = np.ascontiguousarray(columns[chosen, PARAMETERS + 2 :][:, : 2 * count]).view(np.int64)
        maps[chosen, : count // 3] = numbers.reshape(-1, count // 3, 3)
    maps[is_affine, :2] /= 2.0**32
    maps[is_perspective, :2] /= 2.0 ** (25 + PLACE_BITS)
    maps[is_perspective, 2] /= 2.0 ** (25 + DIVISOR_BITS)
    maps[is_perspective, :2] -= maps[is_perspective, 2:] / (2 << PLACE_BITS)  # which round to units of a place
    centers = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    forward: NDArray[np.float64] = centers @ np.linalg.inv(maps) @ np.linalg.inv(centers)
    return forward


def _frame(corners: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return three points, the lines through two of them, and weights of the points that add up to the fourth."""
    points = np.concatenate([np.asarray(corners, np.float64) - 0.5, np.ones((len(corners), 4, 1))], axis=2)
    normals = np.cross(points[:, [1, 2, 0]], points[:, [2, 0, 1]])
    return points[:, :3], normals, (normals * points[:, 3:]).sum(axis=2, keepdims=True)


# --- images of every kind ---------------------------------------------------------------------------------------------
# They get two pixels of fill around them first, so that no place needs a test.


@device_function
def _add_border(image: int, sizes: Array, fill: int) -> None:
    # In place, from the last row on: the second cache of many CPUs has no room for a copy as well.
    # Between two rows are two pixels, not four.
    pixel = sizes[CHANNELS] * sizes[ITEM_SIZE]
    row, edge = sizes[WIDTH] * pixel, BORDER * pixel
    above = BORDER * (row + edge) + edge
    target = image + above + sizes[HEIGHT] * (row + edge)
    fill_row(target, BORDER * (sizes[WIDTH] + BORDER + 1), sizes[ITEM_SIZE], sizes[CHANNELS], fill)
    last = target
    for y in range(sizes[HEIGHT] - 1, -1, -1):
        target -= row + edge
        copy(target, image + y * row, row)
        copy(target + row, last, edge)
    copy(image, last, above)


@inlined
def _affine_place(numbers: Array, x: int, y: int, bits: int) -> tuple[int, int]:
    half, unit, rest = 1 << (31 - bits), 32 - bits, PLACE_BITS - bits
    across = (numbers[0] * x + numbers[1] * y + numbers[2] + half) >> unit << rest
    return across, (numbers[3] * x + numbers[4] * y + numbers[5] + half) >> unit << rest


@inlined
def _perspective_place(numbers: Array, x: int, y: int, bits: int) -> tuple[int, int]:
    divisor = (numbers[6] * x + numbers[7] * y + numbers[8]) >> DIVISOR_BITS
    if not 0 < divisor <= LARGEST_DIVISOR:
        return -BORDER << PLACE_BITS, 0
    rest = PLACE_BITS - bits
    half = 1 << rest >> 1
    across = (numbers[0] * x + numbers[1] * y + numbers[2]) // divisor + half
    return across >> rest << rest, ((numbers[3] * x + numbers[4] * y + numbers[5]) // divisor + half) >> rest << rest


@device_function
def _warp_any(other: int, bordered: int, sizes: Array, numbers: Array, bits: int, is_perspective: bool) -> None:
    """Warp an image of any kind; places have so many bits: 0 for "nearest", all of whose weight is on one pixel."""
    height, width, channels, size = sizes[HEIGHT], sizes[WIDTH], sizes[CHANNELS], sizes[ITEM_SIZE]
    stride, target = (width + BORDER) * channels * size, other
    for y in range(height):
        for x in range(width):
            if is_perspective:
                across, down = _perspective_place(numbers, x, y, bits)
            else:
                across, down = _affine_place(numbers, x, y, bits)
            left = min(max((across >> PLACE_BITS) + BORDER, 0), width + BORDER)
            top = min(max((down >> PLACE_BITS) + BORDER, 0), height + BORDER)
            part_x, part_y = across & (_ONE - 1), down & (_ONE - 1)
            for channel in range(channels):
                total = _ONE * _ONE // 2
                for corner in range(4):
                    row, column = corner >> 1, corner & 1
                    weight = (part_x if column else _ONE - part_x) * (part_y if row else _ONE - part_y)
                    source = bordered + (top + row) * stride + ((left + column) * channels + channel) * size
                    total += weight * (load_u8(source) if size == 1 else load_u16(source))
                if size == 1:
                    store_u8(target, total >> (2 * PLACE_BITS))
                else:
                    store_i16(target, total >> (2 * PLACE_BITS))
                target += size


# --- RGB images: 16 pixels at a time ----------------------------------------------------------------------------------
# The places of up to eight groups of 16 pixels are stored, then the pixels are read there: a CPU overlaps the rounds of
# two short loops, and hardly those of one loop that does both.
# Loads are of 4 or 8 bytes for a pixel. The last group may end after its row: the next row overwrites what it stores
# there, and after the last row there is memory for it, the slack of images.

_LANES = 16
_GROUPS = 8

# Bytes of a group: int32 offsets into the bordered image; int32 parts, that across in the lower 16 bits.
_PARTS, _GROUP_SIZE = 4 * _LANES, 8 * _LANES

# Vectors of eight have these pixels: two of four, or the two after them. So four neighbors stay in the same 128 bits,
# within which shuffles cost least.
_FIRST = [0, 1, 4, 5, 8, 9, 12, 13]
_SECOND = [pixel + 2 for pixel in _FIRST]

# The lower or the upper 32 bits of two such vectors, in order.
_LOWER = [2 * _FIRST.index(pixel & ~2) + 8 * (pixel & 2) for pixel in range(_LANES)]
_UPPER = [lane + 1 for lane in _LOWER]

# The upper 32 bits of 1.5 * 2**52. A number that is added to the bits of this float is added to its value.
_SIGNED = 0x43380000


class _Walk(NamedTuple):
    """Places of 16 pixels of a row."""

    emit: VectorBuilder
    numbers: list[list[Vector]]
    x: Vector
    y: Vector
    limits: tuple[Vector, Vector]  # width and height, with the border before them

    def sums(self, row: int, added: int = 0, times: int = 1) -> list[Vector]:
        """Return ``times (a x + b y + c) + added`` in 64 bits, of the first pixels and of the second."""
        a, b, c = (number * times for number in self.numbers[row])
        lanes = self.emit.splat(a, 8) * self.emit.numbers(I64, _FIRST)
        first = self.emit.splat(a * self.x + b * self.y + c + added, 8) + lanes
        return [first, first + self.emit.splat(a * 2, 8)]


def _halves(eights: list[Vector], lanes: Sequence[int]) -> Vector:
    """Return the lower or the upper 32 bits of 16 pixels."""
    return eights[0].bits(I32, 16).shuffle(eights[1].bits(I32, 16), lanes)


def _affine_places(walk: _Walk, bits: int) -> list[tuple[Vector, Vector]]:
    """Return whole pixels, from the border on, and the rest, across and down; places before it become the limit."""
    places = []
    for row in range(2):
        eights = walk.sums(row, (BORDER << 32) + (1 << (31 - bits)))
        limit = walk.emit.splat(walk.limits[row].narrow(I32), _LANES)
        part = _halves(eights, _LOWER).shift_right_logical(32 - PLACE_BITS)
        places.append((_halves(eights, _UPPER).smaller_unsigned(limit), part))
    return places


def _perspective_places(walk: _Walk, bits: int) -> list[tuple[Vector, Vector]]:
    # The place N // d is (2 N + 1 - d) / (2 d), rounded; the last sum rounds, as its unit is 1. For divisors below
    # 2**26 and places below 2**24, the quotient is more than 2**-27 away from a tie. The numerator is exact: 2 N + 1
    # and d become floats that are larger by 1.5 * 2**52, and their difference needs no rounding. The error is 2**-28 at
    # most.
    # All else is outside. From 2**51 on, of either sign, 2 N + 1 means a place of at least 2**24; its float is at least
    # 2**51 away from 1.5 * 2**52, or NaN. A sum that is negative or too large, or NaN, has other upper bits than
    # `_SIGNED`; so has a quotient by 0. Negative divisors are larger than the largest one, as numbers without a sign.
    emit, zero = walk.emit, 1.5 * 2.0**52
    totals = walk.sums(2)
    divisors = [(total.shift_right_logical(DIVISOR_BITS) | _SIGNED << 32).bits(F64, 8) for total in totals]
    shares = [emit.fill(F64, 8, 0.5) / (divisor - zero) for divisor in divisors]
    upper_of_divisors = _halves(totals, _UPPER)
    places = []
    for row in range(2):
        numerators = [
            total.bits(F64, 8) - divisor
            for total, divisor in zip(walk.sums(row, (_SIGNED << 32) + 1, 2), divisors, strict=True)
        ]
        quotients = [
            (numerator * share + (zero + (BORDER << PLACE_BITS))).bits(I64, 8)
            for numerator, share in zip(numerators, shares, strict=True)
        ]
        limit = emit.splat(walk.limits[row].shift_left(PLACE_BITS).narrow(I32), _LANES)
        upper, lower = _halves(quotients, _UPPER), _halves(quotients, _LOWER)
        place = upper.where_equal(upper.like(_SIGNED), lower.smaller_unsigned(limit), limit)
        if row == 0:  # across alone: at the limit is the fill, whatever the row
            too_large = upper_of_divisors.like((LARGEST_DIVISOR + 1) >> (32 - DIVISOR_BITS))
            place = upper_of_divisors.where_smaller_unsigned(too_large, place, limit)
        if bits == 0:
            place = place + (_ONE >> 1)
        places.append((place.shift_right(PLACE_BITS), place & (_ONE - 1)))
    return places


def _store_group(emit: VectorBuilder, levels: Vector, order: list[int], target: Vector) -> None:
    """Store 48 of 64 bytes, in some order."""
    if HAS_BYTE_PERMUTE:
        packed = levels.shuffle(levels, [*order, *order[:16]])
        emit.store(packed.part(0, 32), target)
        emit.store(packed.part(32, 48), target + 32)
        return
    # Bytes move within 16. The next part overwrites the four that are too many.
    packed = levels.shuffle(
        levels, [lane for at in range(0, 48, 12) for lane in (*order[at : at + 12], *order[at : at + 4])]
    )
    for part in range(4):
        emit.store(packed.part(16 * part, 16 * part + 16), target + 12 * part)


# The bytes of 16 pixels, in vectors that have 32 bits for each: three of four.
_COLORS = [4 * pixel + color for pixel in range(_LANES) for color in range(3)]


def _nearest(emit: VectorBuilder, source: Vector, stride: Vector, group: Vector) -> Vector:
    return emit.gather(source, group, range(_LANES), I32).bits(I8, 64)


# Two neighbors have eight bytes: red, green, blue, and again; sixteen bytes have the neighbors of two pixels. Of each
# neighbor, one color in 16 bits; lane 64 is 0.
_RED_GREEN = [lane for at in range(0, 64, 8) for lane in (at, 64, at + 3, 64, at + 1, 64, at + 4, 64)]
_BLUE = [lane for at in range(0, 64, 16) for lane in (at + 2, 64, at + 5, 64, at + 10, 64, at + 13, 64, *[64] * 8)]
_SECOND_BLUE = [_BLUE[lane ^ 8] for lane in range(64)]

# In a vector that has all three colors, four bytes are: red or green of a first pixel, the same of a second one, blue
# of a pixel in the order of all. Each pixel has two such fours: one with its red, then one with its green.
_RED = [8 * _FIRST.index(pixel & ~2) + (pixel >> 1 & 1) for pixel in range(_LANES)]
_WEIGHED_COLORS = [byte for pixel, red in enumerate(_RED) for byte in (red, red + 4, 4 * pixel + 2)]


def _bilinear(emit: VectorBuilder, source: Vector, stride: Vector, group: Vector) -> Vector:
    # Vectors of red and green of the first pixels, of the second ones, and of the blue of both.
    parts = emit.load(group + _PARTS, I32, _LANES)
    part_x, part_y = parts & 0xFFFF, parts.shift_right_logical(16)
    weights = (part_x.like(_ONE) - part_x) | part_x.shift_left(16)
    across, down = (
        [*(lanes.shuffle(lanes, [pixel for pixel in eight for _ in range(2)]) for eight in (_FIRST, _SECOND)), lanes]
        for lanes in (weights, part_y)
    )
    lines: list[list[Vector]] = []
    for line in (source, source + stride):
        # As floats: LLVM then loads the second of two pixels into the upper half of a register, with one instruction.
        first, second = (emit.gather(line, group, eight, F64).bits(I8, 64) for eight in (_FIRST, _SECOND))
        zeros = first.like(0)
        blue = first.shuffle(zeros, _BLUE) | second.shuffle(zeros, _SECOND_BLUE)
        levels = [first.shuffle(zeros, _RED_GREEN), second.shuffle(zeros, _RED_GREEN), blue]
        lines.append(
            [pairs.bits(I16, 32).paired(pair.bits(I16, 32)) for pairs, pair in zip(levels, across, strict=True)]
        )
    totals: list[Vector] = [
        (upper.shift_left(PLACE_BITS) + part * (lower - upper) + (_ONE * _ONE // 2)).shift_right(2 * PLACE_BITS)
        for upper, lower, part in zip(*lines, down, strict=True)
    ]
    return (totals[0] | totals[1].shift_left(8) | totals[2].shift_left(16)).bits(I8, 64)


def _kernel(places: Callable[..., Any], pixels: Callable[..., Vector], bits: int) -> Callable[..., int]:
    """Make the code that warps a bordered image."""
    num_rows = 2 if places is _affine_places else 3
    order = _WEIGHED_COLORS if bits else _COLORS

    def store_places(walk: _Walk, stride: Vector, group: Vector) -> None:
        emit = walk.emit
        (left, part_x), (top, part_y) = places(walk, bits)
        emit.store(top * emit.splat(stride.narrow(I32), _LANES) + left * 3, group)
        if bits:
            emit.store(part_x | part_y.shift_left(16), group + _PARTS)

    @vector_kernel
    def warp(emit: VectorBuilder, other: Vector, bordered: Vector, layout: Vector, row: Vector) -> None:
        width, height = (emit.load(layout + 8 * field, I64) for field in (WIDTH, HEIGHT))
        at = row + _NUMBERS
        numbers = [[emit.load(at + 8 * (3 * line + column), I64) for column in range(3)] for line in range(num_rows)]
        limits, stride = (width + BORDER, height + BORDER), (width + BORDER) * 3
        groups, num_groups = emit.memory(_GROUPS * _GROUP_SIZE), (width + (_LANES - 1)).shift_right(4)
        with emit.loop(height) as y, emit.loop((num_groups + (_GROUPS - 1)).shift_right(3)) as block:
            first = block * _GROUPS
            count = (num_groups - first).smaller(num_groups.like(_GROUPS))
            with emit.loop(count) as i:
                x = (first + i) * _LANES
                store_places(_Walk(emit, numbers, x, y, limits), stride, groups + i * _GROUP_SIZE)
            with emit.loop(count) as i:
                levels = pixels(emit, bordered, stride, groups + i * _GROUP_SIZE)
                _store_group(emit, levels, order, other + (y * width + (first + i) * _LANES) * 3)

    return warp


_warp_nearest = _kernel(_affine_places, _nearest, 0)
_warp_bilinear = _kernel(_affine_places, _bilinear, PLACE_BITS)
_perspective_nearest = _kernel(_perspective_places, _nearest, 0)
_perspective_bilinear = _kernel(_perspective_places, _bilinear, PLACE_BITS)


# --- the steps --------------------------------------------------------------------------------------------------------


@device_function
def _is_left(image: int, other: int, layout: int, row: int, bits: int, is_perspective: bool) -> bool:
    """Add a border to an image; return True if it is RGB, and warp it if not."""
    sizes = i64_at(layout, LAYOUT_FIELDS)
    _add_border(image, sizes, row + _FILL)
    is_rgb: bool = sizes[CHANNELS] == 3 and sizes[ITEM_SIZE] == 1
    if not is_rgb:
        _warp_any(other, image, sizes, i64_at(row + _NUMBERS, 9), bits, is_perspective)
    return is_rgb


def warp_nearest(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Warp an image, each pixel the nearest."""
    if _is_left(image, other, layout, row, 0, False):
        _warp_nearest(other, image, layout, row)
    return 1


def warp_bilinear(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Warp an image, each pixel weighed of four."""
    if _is_left(image, other, layout, row, PLACE_BITS, False):
        _warp_bilinear(other, image, layout, row)
    return 1


def perspective(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Turn an image in space."""
    is_bilinear = load_u8(row + _IS_BILINEAR) != 0
    if _is_left(image, other, layout, row, PLACE_BITS if is_bilinear else 0, True):
        if is_bilinear:
            _perspective_bilinear(other, image, layout, row)
        else:
            _perspective_nearest(other, image, layout, row)
    return 1


WARP_CODES = {
    WARP_NEAREST: AddressedFunction(warp_nearest),
    WARP_BILINEAR: AddressedFunction(warp_bilinear),
    PERSPECTIVE: AddressedFunction(perspective),
}
