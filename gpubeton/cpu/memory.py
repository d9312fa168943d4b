"""Memory by address: what compiled code reads from a mapped file and writes into a batch.

The image data of a batch lie in many places (a mapped file, staging buffers), so that a task carries addresses. Whoever
calls one of these has checked the bounds.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from gpubeton.cpu.lanes import I8, I16, I32, I64, Emitter, Lanes, kernel


@intrinsic
def load_u8(typing_context: Any, address: Any) -> Any:
    """Return the byte at `address`."""

    def body(emit: Emitter, address: Lanes) -> Lanes:
        return emit.load(address, I8).zero_extend(I64)

    return kernel(body, 1)


@intrinsic
def load_u16(typing_context: Any, address: Any) -> Any:
    """Return the 16-bit word at `address`, in the machine's byte order."""

    def body(emit: Emitter, address: Lanes) -> Lanes:
        return emit.load(address, I16).zero_extend(I64)

    return kernel(body, 1)


@intrinsic
def load_u32(typing_context: Any, address: Any) -> Any:
    """Return the 32-bit word at `address`, in the machine's byte order."""

    def body(emit: Emitter, address: Lanes) -> Lanes:
        return emit.load(address, I32).zero_extend(I64)

    return kernel(body, 1)


@intrinsic
def load_i64(typing_context: Any, address: Any) -> Any:
    """Return the 64-bit word at `address`, in the machine's byte order."""

    def body(emit: Emitter, address: Lanes) -> Lanes:
        return emit.load(address, I64)

    return kernel(body, 1)


@intrinsic
def load_i64_big_endian(typing_context: Any, address: Any) -> Any:
    """Return eight bytes as one word, the first byte highest: the order in which JPEG writes its bits."""

    def body(emit: Emitter, address: Lanes) -> Lanes:
        return Lanes(emit.builder, emit.builder.bswap(emit.load(address, I64).value))

    return kernel(body, 1)


@intrinsic
def store_u8(typing_context: Any, address: Any, value: Any) -> Any:
    """Write the low byte of `value`."""

    def body(emit: Emitter, address: Lanes, value: Lanes) -> None:
        emit.store(value.narrow(I8), address)

    return kernel(body, 2)


@intrinsic
def store_i16(typing_context: Any, address: Any, value: Any) -> Any:
    """Write the low 16 bits of `value`."""

    def body(emit: Emitter, address: Lanes, value: Lanes) -> None:
        emit.store(value.narrow(I16), address)

    return kernel(body, 2)


@intrinsic
def store_i64(typing_context: Any, address: Any, value: Any) -> Any:
    """Write `value`."""

    def body(emit: Emitter, address: Lanes, value: Lanes) -> None:
        emit.store(value, address)

    return kernel(body, 2)


@intrinsic
def copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy `size` bytes between places that do not overlap."""

    def body(emit: Emitter, target: Lanes, source: Lanes, size: Lanes) -> None:
        cgutils.raw_memcpy(emit.builder, emit.pointer(target, I8), emit.pointer(source, I8), size.value, 1)

    return kernel(body, 3)


@intrinsic
def clear(typing_context: Any, target: Any, size: Any) -> Any:
    """Set `size` bytes to zero."""

    def body(emit: Emitter, target: Lanes, size: Lanes) -> None:
        cgutils.memset(emit.builder, emit.pointer(target, I8), size.value, 0)

    return kernel(body, 2)


@intrinsic
def shift_right_logical(typing_context: Any, value: Any, bits: Any) -> Any:
    """Return `value` shifted right by 0..63 bits, zeros coming in (Numba's ``>>`` of an int64 keeps the sign)."""

    def body(emit: Emitter, value: Lanes, bits: Lanes) -> Lanes:
        return Lanes(emit.builder, emit.builder.lshr(value.value, bits.value))

    return kernel(body, 2)


@intrinsic
def atomic_add(typing_context: Any, address: Any, amount: Any) -> Any:
    """Add `amount` to the word at `address` and return what it held before; a full fence."""

    def body(emit: Emitter, address: Lanes, amount: Lanes) -> Lanes:
        word = emit.pointer(address, I64)
        return Lanes(emit.builder, emit.builder.atomic_rmw("add", word, amount.value, "seq_cst"))

    return kernel(body, 2)


@intrinsic
def atomic_load(typing_context: Any, address: Any) -> Any:
    """Return the word at `address`; what was written before its store is visible."""

    def body(emit: Emitter, address: Lanes) -> Lanes:
        return Lanes(emit.builder, emit.builder.load_atomic(emit.pointer(address, I64), "seq_cst", 8))

    return kernel(body, 1)


@intrinsic
def atomic_store(typing_context: Any, address: Any, value: Any) -> Any:
    """Write `value`; all that was written before becomes visible with it."""

    def body(emit: Emitter, address: Lanes, value: Lanes) -> None:
        emit.builder.store_atomic(value.value, emit.pointer(address, I64), "seq_cst", 8)

    return kernel(body, 2)


@intrinsic
def atomic_claim(typing_context: Any, address: Any, expected: Any, desired: Any) -> Any:
    """Replace the word at `address` by `desired` if it holds `expected`; return 1 if so, else 0."""

    def body(emit: Emitter, address: Lanes, expected: Lanes, desired: Lanes) -> Lanes:
        word = emit.pointer(address, I64)
        outcome = emit.builder.cmpxchg(word, expected.value, desired.value, "seq_cst", "seq_cst")
        return Lanes(emit.builder, emit.builder.zext(emit.builder.extract_value(outcome, 1), ir.IntType(64)))

    return kernel(body, 3)
