"""Steps of AugMix: add up several changes of an image.

SAVE keeps the image, and begins with an empty mixture; ADD adds the image times a weight to the mixture, and goes back
to the kept image; FINISH replaces the image by the mixture: ``(sum + 2**14) >> 15``, between 0 and the largest level.
The weights of an image add up to at most 1, that is 2**15.
"""

from __future__ import annotations

from gpubeton._batch.step_code import CHANNELS, HEIGHT, ITEM_SIZE, LAYOUT_FIELDS, MOST, WIDTH, common_nbytes
from gpubeton._batch.step_rows import ADD, FINISH, PARAMETERS, SAVE, STEP_COLUMNS
from gpubeton._compile.compile import AddressedFunction, device_function
from gpubeton._compile.intrinsics import clear, copy, i32_at, i64_at, u8_at, u16_at

_common_nbytes = device_function(common_nbytes)


@device_function
def _places(memory: int, layout: int) -> tuple[int, int, int, int]:
    """Return the addresses of the mixture and of the kept image, the number of levels, and the bytes of one."""
    sizes = i64_at(layout, LAYOUT_FIELDS)
    height, width, channels = sizes[HEIGHT], sizes[WIDTH], sizes[CHANNELS]
    mixture, count = memory + _common_nbytes(height, width, channels), height * width * channels
    return mixture, mixture + 4 * count, count, sizes[ITEM_SIZE]


def save(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Keep the image, and begin with an empty mixture."""
    mixture, kept, count, size = _places(memory, layout)
    clear(mixture, 4 * count)
    copy(kept, image, size * count)
    return 0


def add(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Add the image to the mixture, and go back to the kept one."""
    mixture, kept, count, size = _places(memory, layout)
    weight, total = i32_at(row, STEP_COLUMNS)[PARAMETERS], i32_at(mixture, count)
    if size == 1:
        levels = u8_at(image, count)
        for place in range(count):
            total[place] += weight * levels[place]
    else:
        wide_levels = u16_at(image, count)
        for place in range(count):
            total[place] += weight * wide_levels[place]
    copy(image, kept, size * count)
    return 0


def finish(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Replace the image by the mixture."""
    mixture, _, count, size = _places(memory, layout)
    total, most = i32_at(mixture, count), i64_at(layout, LAYOUT_FIELDS)[MOST]
    if size == 1:
        levels = u8_at(image, count)
        for place in range(count):
            levels[place] = min(max((total[place] + (1 << 14)) >> 15, 0), most)
    else:
        wide_levels = u16_at(image, count)
        for place in range(count):
            wide_levels[place] = min(max((total[place] + (1 << 14)) >> 15, 0), most)
    return 0


AUGMIX_CODES = {SAVE: AddressedFunction(save), ADD: AddressedFunction(add), FINISH: AddressedFunction(finish)}
