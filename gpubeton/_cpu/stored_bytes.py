"""The stored bytes of samples: copied to other places in memory, and compared with their CRC-32, the checksum of zlib.

CRC-32 at the speed of memory: reflected bits, polynomial 0xEDB88320. The constants of the multiplication are powers of
x modulo that polynomial, from "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton._compile.compile import compiled, device_function
from gpubeton._compile.intrinsics import clear, copy, copy_past_caches, fence, load_i64, load_u8, signed
from gpubeton._compile.simd import I32, I64, Vector, VectorBuilder, call_intrinsic, has_feature, vector_kernel
from gpubeton._plan.draw_rows import HEIGHT, LEFT, TOP, WIDTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton._compile.intrinsics import Array

_POLYNOMIAL = 0xEDB88320
_FOLD_512, _FOLD_128 = (0x154442BD4, 0x1C6E41596), (0x1751997D0, 0x0CCAA009E)
_FOLD_64, _BARRETT = (0x163CD6124, 0), (0x1DB710641, 0x1F7011641)
_ACROSS = 4  # vectors of 16 bytes that are folded at the same time

_MULTIPLIES, _HAS_CRC = has_feature("pclmul"), has_feature("crc")


def _tables() -> Array:  # (8, 256) int64: what a byte adds, followed by 0 to 7 others
    tables = np.arange(256).repeat(8).reshape(256, 8).T.copy()
    for _ in range(8):
        tables[0] = np.where(tables[0] & 1, tables[0] >> 1 ^ _POLYNOMIAL, tables[0] >> 1)
    for number in range(1, 8):
        tables[number] = tables[number - 1] >> 8 ^ tables[0][tables[number - 1] & 255]
    return tables


_TABLES = _tables()


@device_function
def crc_by_table(state: int, address: int, size: int) -> int:
    """Continue a CRC-32, inverted, over `size` bytes, eight at a time."""
    for place in range(address, address + (size & ~7), 8):
        word = load_i64(place) ^ state
        state = 0
        for byte in range(8):
            state ^= _TABLES[7 - byte, (word >> 8 * byte) & 255]
    for place in range(address + (size & ~7), address + size):
        state = (state >> 8) ^ _TABLES[0, (state ^ load_u8(place)) & 255]
    return state


def _times(first: Vector, second: Vector, which: int) -> Vector:
    """Multiply two 64-bit polynomials: lanes of `one` and `two`, by the digits of `which`."""
    return call_intrinsic("x86.pclmulqdq", I64, 2, first, second, which)


@vector_kernel
def _crc_by_products(emit: VectorBuilder, state: Vector, address: Vector, chunks: Vector) -> Vector:
    """Continue a CRC-32, inverted, over that many times 16 bytes, at least four. Needs pclmul."""

    def constant(numbers: Sequence[int]) -> Vector:
        return emit.numbers(I64, numbers)

    def fold(value: Vector, factors: Vector) -> Vector:
        return _times(value, factors, 0x00) ^ _times(value, factors, 0x11)

    def load(place: Vector) -> Vector:
        return emit.load(place, I64, 2)

    zero, (by_512, by_128) = constant([0, 0]), map(constant, (_FOLD_512, _FOLD_128))
    first = emit.splat(state, 2).shuffle(zero, [0, 2])
    running = [emit.variable(load(address + 16 * i) ^ (zero if i else first)) for i in range(_ACROSS)]
    rounds = chunks.shift_right(2) - 1
    with emit.loop(rounds) as i:
        for number, variable in enumerate(running):
            place = address + (i + 1) * (16 * _ACROSS) + 16 * number
            variable.set(fold(variable.get(), by_512) ^ load(place))
    for variable in running[1:]:
        running[0].set(fold(running[0].get(), by_128) ^ variable.get())
    done = (rounds + 1) * _ACROSS
    with emit.loop(chunks - done) as i:
        running[0].set(fold(running[0].get(), by_128) ^ load(address + (done + i) * 16))
    value = running[0].get()
    value = _times(value, by_128, 0x10) ^ value.shuffle(zero, [1, 2])
    low = constant([0xFFFFFFFF, 0])
    shifted = value.bits(I32, 4).shuffle(zero.bits(I32, 4), [1, 2, 3, 4]).bits(I64, 2)
    value = _times(value & low, constant(_FOLD_64), 0x00) ^ shifted
    quotient = _times(value & low, constant(_BARRETT), 0x10) & low
    value ^= _times(quotient, constant(_BARRETT), 0x00)
    return value.lane(0).shift_right_logical(32)


def add_words(emit: VectorBuilder, state: Vector, address: Vector, words: Vector) -> Vector:
    """Continue a CRC-32, inverted, over that many times 8 bytes. Needs the crc instructions of arm64."""
    running = emit.variable(state.narrow(I32))
    with emit.loop(words) as i:
        running.set(call_intrinsic("aarch64.crc32x", I32, 0, running.get(), emit.load(address + i * 8, I64)))
    return running.get().zero_extend(I64)


_crc_by_instruction = vector_kernel(add_words)


@device_function
def crc32(address: int, size: int) -> int:
    """Compute the CRC-32 of `size` bytes."""
    state, done = 0xFFFFFFFF, 0
    if _MULTIPLIES and size >= 16 * _ACROSS:
        done = size & ~15
        state = _crc_by_products(state, address, done >> 4)
    elif _HAS_CRC:
        done = size & ~7
        state = _crc_by_instruction(state, address, done >> 3)
    return crc_by_table(state, address + done, size - done) ^ 0xFFFFFFFF


@compiled
def find_damage(
    address: Array,  # (N,) uint64
    size: Array,  # (N,) uint64: bytes
    checksums: Array,  # (N,) uint64: expected CRC-32; 0: none
    is_damaged: Array,  # (N,) bool, written
) -> int:
    """Compare regions of memory with their checksums; return how many differ."""
    count = 0
    for i in range(len(address)):
        is_damaged[i] = checksums[i] != 0 and crc32(int(address[i]), int(size[i])) != checksums[i]
        count += is_damaged[i]
    return count


@compiled
def compute_checksums(address: Array, size: Array, checksums: Array) -> None:
    """Compute the CRC-32 of regions of memory; all arrays are (N,) uint64."""
    for i in range(len(address)):
        checksums[i] = crc32(int(address[i]), int(size[i]))


# --- copies -----------------------------------------------------------------------------------------------------------


@compiled
def gather_rows(
    address: Array,  # (N,) uint64
    size: Array,  # (N,) uint64: bytes of each sample; only the first `width` are copied
    out: Array,  # (N, width) uint8, C-contiguous, written
) -> None:
    """Copy each sample's bytes into its row, and fill the rest of the row with zeros."""
    width = out.shape[1]
    for i in range(out.shape[0]):
        count = min(signed(size[i]), width)
        row = out.ctypes.data + i * width
        copy(row, int(address[i]), count)
        clear(row + count, width - count)


@compiled
def pack_regions(
    address: Array,  # (N,) uint64
    size: Array,  # (N,) uint64: bytes
    target: Array,  # (N,) uint64: addresses
) -> None:
    """Copy regions of memory, for a GPU: past the caches, which saves reading the target and a third of the time."""
    for i in range(address.shape[0]):
        source, place, rest = signed(address[i]), signed(target[i]), signed(size[i])
        first = min(-place & 63, rest)
        whole = (rest - first) & ~63
        copy(place, source, first)
        copy_past_caches(place + first, source + first, whole >> 6)
        copy(place + first + whole, source + first + whole, rest - first - whole)
    fence()


@compiled
def pack_crops(
    address: Array,  # (N,) uint64: first pixel of each image, uint8 RGB
    width: Array,  # (N,) int32: its width in pixels
    draws: Array,  # (N, columns) int32: crop boxes inside the images, see `gpubeton._plan.draw_rows`
    target: Array,  # (N,) uint64: addresses for ``pitch * HEIGHT`` bytes each
    pitch: Array,  # (N,) int32: bytes from one row of the target to the next; bytes between rows do not change
) -> None:
    """Copy only the crops of raw-stored images."""
    for i in range(address.shape[0]):
        line = 3 * draws[i, WIDTH]
        source = int(address[i]) + (draws[i, TOP] * width[i] + draws[i, LEFT]) * 3
        for y in range(draws[i, HEIGHT]):
            copy(int(target[i]) + y * pitch[i], source + y * 3 * width[i], line)
