"""Memory by address: what compiled code reads from a mapped file and writes into a batch.

The image data of a batch lie in many places (a mapped file, staging buffers), so that a task carries addresses. Whoever
calls one of these has checked the bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from gpubeton.cpu.compile import inlined
from gpubeton.cpu.lanes import I8, I16, I32, I64, Emitter, Lanes, vector_kernel

# Published without types.
_cgutils: Any = cgutils


@vector_kernel
def load_u8(emit: Emitter, address: Lanes) -> Lanes:
    """Return the byte at `address`."""
    return emit.load(address, I8).zero_extend(I64)


@vector_kernel
def load_u16(emit: Emitter, address: Lanes) -> Lanes:
    """Return the 16-bit word at `address`, in the machine's byte order."""
    return emit.load(address, I16).zero_extend(I64)


@vector_kernel
def load_u32(emit: Emitter, address: Lanes) -> Lanes:
    """Return the 32-bit word at `address`, in the machine's byte order."""
    return emit.load(address, I32).zero_extend(I64)


@vector_kernel
def load_i64(emit: Emitter, address: Lanes) -> Lanes:
    """Return the 64-bit word at `address`, in the machine's byte order."""
    return emit.load(address, I64)


@vector_kernel
def load_i64_big_endian(emit: Emitter, address: Lanes) -> Lanes:
    """Return eight bytes as one word, the first byte highest: the order in which JPEG writes its bits."""
    return Lanes(emit.builder, emit.builder.bswap(emit.load(address, I64).value))


@vector_kernel
def store_u8(emit: Emitter, address: Lanes, value: Lanes) -> None:
    """Write the low byte of `value`."""
    emit.store(value.narrow(I8), address)


@vector_kernel
def store_i16(emit: Emitter, address: Lanes, value: Lanes) -> None:
    """Write the low 16 bits of `value`."""
    emit.store(value.narrow(I16), address)


@vector_kernel
def store_i64(emit: Emitter, address: Lanes, value: Lanes) -> None:
    """Write `value`."""
    emit.store(value, address)


@vector_kernel
def copy(emit: Emitter, target: Lanes, source: Lanes, size: Lanes) -> None:
    """Copy `size` bytes between places that do not overlap."""
    _cgutils.raw_memcpy(emit.builder, emit.pointer(target, I8), emit.pointer(source, I8), size.value, 1)


@vector_kernel
def clear(emit: Emitter, target: Lanes, size: Lanes) -> None:
    """Set `size` bytes to zero."""
    _cgutils.memset(emit.builder, emit.pointer(target, I8), size.value, 0)


@vector_kernel
def shift_right_logical(emit: Emitter, value: Lanes, bits: Lanes) -> Lanes:
    """Return `value` shifted right by 0..63 bits, zeros coming in (Numba's ``>>`` of an int64 keeps the sign)."""
    return Lanes(emit.builder, emit.builder.lshr(value.value, bits.value))


@vector_kernel
def atomic_add(emit: Emitter, address: Lanes, amount: Lanes) -> Lanes:
    """Add `amount` to the word at `address` and return what it held before; a full fence."""
    word = emit.pointer(address, I64)
    return Lanes(emit.builder, emit.builder.atomic_rmw("add", word, amount.value, "seq_cst"))


@vector_kernel
def atomic_load(emit: Emitter, address: Lanes) -> Lanes:
    """Return the word at `address`; what was written before its store is visible."""
    return Lanes(emit.builder, emit.builder.load_atomic(emit.pointer(address, I64), "seq_cst", 8))


@vector_kernel
def atomic_store(emit: Emitter, address: Lanes, value: Lanes) -> None:
    """Write `value`; all that was written before becomes visible with it."""
    emit.builder.store_atomic(value.value, emit.pointer(address, I64), "seq_cst", 8)


@vector_kernel
def atomic_claim(emit: Emitter, address: Lanes, expected: Lanes, desired: Lanes) -> Lanes:
    """Replace the word at `address` by `desired` if it holds `expected`; return 1 if so, else 0."""
    word = emit.pointer(address, I64)
    outcome = emit.builder.cmpxchg(word, expected.value, desired.value, "seq_cst", "seq_cst")
    return Lanes(emit.builder, emit.builder.zext(emit.builder.extract_value(outcome, 1), ir.IntType(64)))


@inlined
def signed(value: Any) -> Any:
    """Return a number as int64: in Numba, unsigned and signed ones add up to a float."""
    return np.int64(value)
