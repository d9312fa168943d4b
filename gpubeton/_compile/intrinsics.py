"""Intrinsics for memory by address: loads, stores, copies and atomics. The caller has checked the bounds.

The images of a batch are in many places (a mapped file, staging buffers), so a task holds addresses and not arrays.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np import arrayobj

from gpubeton._compile.compile import inlined
from gpubeton._compile.simd import I8, I16, I32, I64, Vector, VectorBuilder, vector_kernel

# An array; its shape and dtype are beside each annotation.
Array: TypeAlias = np.ndarray[Any, Any]

# Published without types.
_cgutils: Any = cgutils
_arrays: Any = arrayobj


@vector_kernel
def load_u8(emit: VectorBuilder, address: Vector) -> Vector:
    """Load the byte at `address`."""
    return emit.load(address, I8).zero_extend(I64)


@vector_kernel
def load_i8(emit: VectorBuilder, address: Vector) -> Vector:
    """Load the byte at `address`, a signed number."""
    return emit.load(address, I8).sign_extend(I64)


@vector_kernel
def load_u16(emit: VectorBuilder, address: Vector) -> Vector:
    """Load 16 bits in native byte order."""
    return emit.load(address, I16).zero_extend(I64)


@vector_kernel
def load_u32(emit: VectorBuilder, address: Vector) -> Vector:
    """Load 32 bits in native byte order."""
    return emit.load(address, I32).zero_extend(I64)


@vector_kernel
def load_i64(emit: VectorBuilder, address: Vector) -> Vector:
    """Load 64 bits in native byte order."""
    return emit.load(address, I64)


@vector_kernel
def load_i64_big_endian(emit: VectorBuilder, address: Vector) -> Vector:
    """Load 64 bits in big-endian byte order, in which JPEG writes its bits."""
    return Vector(emit.builder, emit.builder.bswap(emit.load(address, I64).value))


@vector_kernel
def store_u8(emit: VectorBuilder, address: Vector, value: Vector) -> None:
    """Store the low byte of `value`."""
    emit.store(value.narrow(I8), address)


@vector_kernel
def store_i16(emit: VectorBuilder, address: Vector, value: Vector) -> None:
    """Store the low 16 bits of `value`."""
    emit.store(value.narrow(I16), address)


@vector_kernel
def store_i64(emit: VectorBuilder, address: Vector, value: Vector) -> None:
    """Store `value`."""
    emit.store(value, address)


@vector_kernel
def copy(emit: VectorBuilder, target: Vector, source: Vector, size: Vector) -> None:
    """Copy `size` bytes; source and target do not overlap."""
    _cgutils.raw_memcpy(emit.builder, emit.pointer(target, I8), emit.pointer(source, I8), size.value, 1)


@vector_kernel
def copy_past_caches(emit: VectorBuilder, target: Vector, source: Vector, chunks: Vector) -> None:
    """Copy that many times 64 bytes to a multiple of 64, for a reader that is not a CPU; needs a `fence` after it."""
    with emit.loop(chunks) as i:
        emit.store(emit.load(source + i * 64, I8, 64), target + i * 64, align=64, is_cached=False)


@vector_kernel
def fence(emit: VectorBuilder) -> None:
    """Let all stores happen before the next ones."""
    emit.builder.fence("seq_cst")


@vector_kernel
def clear(emit: VectorBuilder, target: Vector, size: Vector) -> None:
    """Set `size` bytes to zero."""
    _cgutils.memset(emit.builder, emit.pointer(target, I8), size.value, 0)


@vector_kernel
def shift_right_logical(emit: VectorBuilder, value: Vector, bits: Vector) -> Vector:
    """Shift right by 0..63 bits and fill with zeros (``>>`` of an int64 keeps the sign)."""
    return Vector(emit.builder, emit.builder.lshr(value.value, bits.value))


@vector_kernel
def atomic_add(emit: VectorBuilder, address: Vector, amount: Vector) -> Vector:
    """Add `amount` to the word at `address` and return its old value; a full fence."""
    word = emit.pointer(address, I64)
    return Vector(emit.builder, emit.builder.atomic_rmw("add", word, amount.value, "seq_cst"))


@vector_kernel
def atomic_load(emit: VectorBuilder, address: Vector) -> Vector:
    """Load the word at `address`; all writes before its store are visible."""
    return Vector(emit.builder, emit.builder.load_atomic(emit.pointer(address, I64), "seq_cst", 8))


@vector_kernel
def atomic_store(emit: VectorBuilder, address: Vector, value: Vector) -> None:
    """Store `value`; all earlier writes become visible with it."""
    emit.builder.store_atomic(value.value, emit.pointer(address, I64), "seq_cst", 8)


@vector_kernel
def atomic_claim(emit: VectorBuilder, address: Vector, expected: Vector, desired: Vector) -> Vector:
    """Compare and swap: write `desired` if the word holds `expected`; return 1 if so, else 0."""
    word = emit.pointer(address, I64)
    outcome = emit.builder.cmpxchg(word, expected.value, desired.value, "seq_cst", "seq_cst")
    return Vector(emit.builder, emit.builder.zext(emit.builder.extract_value(outcome, 1), ir.IntType(64)))


def _call(emit: VectorBuilder, name: str, *arguments: Any) -> Vector:
    """Call a function of the C library that returns an int."""
    kind = ir.FunctionType(I32, [argument.type for argument in arguments])
    function = _cgutils.get_or_insert_function(emit.builder.module, kind, name)
    return Vector(emit.builder, emit.builder.call(function, arguments)).sign_extend(I64)


@vector_kernel
def atomic_fence(emit: VectorBuilder) -> None:
    """Make all earlier writes visible before anything later is read."""
    emit.builder.fence("seq_cst")


@vector_kernel
def semaphore_wait(emit: VectorBuilder, semaphore: Vector) -> None:
    """Wait for a token of a `sem_t` and take it; a signal handler of this thread ends the wait, too."""
    _call(emit, "sem_wait", emit.pointer(semaphore, I8))


@vector_kernel
def semaphore_post(emit: VectorBuilder, semaphore: Vector) -> None:
    """Add a token; all earlier writes become visible to the thread that takes it."""
    _call(emit, "sem_post", emit.pointer(semaphore, I8))


@vector_kernel
def semaphore_tokens(emit: VectorBuilder, semaphore: Vector) -> Vector:
    """Return the number of tokens that no thread has taken."""
    tokens = _cgutils.alloca_once(emit.builder, I32)
    _call(emit, "sem_getvalue", emit.pointer(semaphore, I8), tokens)
    return Vector(emit.builder, emit.builder.load(tokens)).sign_extend(I64)


@vector_kernel
def clock_nanoseconds(emit: VectorBuilder, clock: Vector) -> Vector:
    """Read one of the system's clocks, such as ``time.CLOCK_MONOTONIC``."""
    now = _cgutils.alloca_once(emit.builder, ir.ArrayType(I64, 2))  # seconds, nanoseconds
    _call(emit, "clock_gettime", clock.narrow(I32).value, emit.builder.bitcast(now, ir.PointerType(I8)))
    seconds, rest = (Vector(emit.builder, emit.builder.extract_value(emit.builder.load(now), i)) for i in range(2))
    return seconds * 10**9 + rest


def _array_at(dtype: Any) -> Any:
    """Make a function that views memory as an array, C-contiguous, of one axis."""
    kind = types.Array(dtype, 1, "C")

    @intrinsic
    def array_at(typing_context: Any, address: Any, count: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            data = builder.inttoptr(values[0], context.get_data_type(dtype).as_pointer())
            size = context.get_constant(types.intp, dtype.bitwidth // 8)
            array = context.make_array(kind)(context, builder)
            _arrays.populate_array(array, data, [values[1]], [size], size, None)
            return array._getvalue()  # noqa: SLF001 - the only way that Numba has

        return kind(types.int64, types.int64), generate

    return array_at


# array_at(address, count): the memory there
u8_at, u16_at, i32_at, i64_at = map(_array_at, (types.uint8, types.uint16, types.int32, types.int64))


@vector_kernel
def call_step(
    emit: VectorBuilder, code: Vector, image: Vector, other: Vector, memory: Vector, layout: Vector, row: Vector
) -> Vector:
    """Call the machine code at an address; see `gpubeton._batch.run_steps`."""
    arguments = [argument.value for argument in (image, other, memory, layout, row)]
    function = emit.builder.inttoptr(code.value, ir.FunctionType(I64, [I64] * len(arguments)).as_pointer())
    return Vector(emit.builder, emit.builder.call(function, arguments))


@inlined
def signed(value: Any) -> Any:
    """Convert a number to int64: in Numba, the sum of an unsigned and a signed number is a float."""
    return np.int64(value)
