"""A small SIMD language on LLVM IR: kernels of the CPU executor read as arithmetic on vectors.

LLVM cannot vectorize loops over interleaved colors, table look-ups and half floats by itself, so the kernels that
matter state their vectors. All of it is portable LLVM except `Vector.look_up`, which needs AVX2; three operations ask
for AVX2 instructions that LLVM does not find by itself, and have a portable form.
"""

from __future__ import annotations

import inspect
import re
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Published without types.
_cgutils: Any = cgutils
_config: Any = numba.config

I8, I16, I32, I64 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()

# Fused multiply-adds may be formed: they round once instead of twice and cost half.
_FUSE = ("contract",)

# The order of AVX2 when it packs lanes of two vectors of eight lanes: by halves of 128 bits.
_PACKED = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]

HALVES = [*range(4), *range(8, 12)], [*range(4, 8), *range(12, 16)]
"""Which of 16 lanes two vectors must have, for `Vector.pack_signed` to bring them into order."""


def has_feature(name: str) -> bool:
    """Return True if Numba compiles for a CPU with a feature, by LLVM's name."""
    chosen = _config.CPU_FEATURES
    if chosen is None and _config.CPU_NAME is None:
        return bool(_config.ENABLE_AVX and llvmlite.binding.get_host_cpu_features().get(name, False))
    return f"+{name}" in (chosen or "").split(",")


HAS_AVX2 = has_feature("avx2")
HAS_AVX512 = has_feature("avx512bw")
HAS_BYTE_PERMUTE = has_feature("avx512vbmi")  # `vpermi2b`: Ice Lake, Zen 4 and later


@cache
def _converts_halves() -> bool:
    """Return True if the CPU that Numba compiles for has an instruction that rounds to half floats."""
    # Without one, LLVM calls a function of a library that no process has loaded.
    module = ir.Module()
    kinds = (ir.VectorType(F16, 4), [ir.VectorType(F32, 4)])
    function = ir.Function(module, ir.FunctionType(*kinds), "narrow")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(builder.fptrunc(function.args[0], kinds[0]))
    llvmlite.binding.initialize_native_target()
    llvmlite.binding.initialize_native_asmprinter()
    host = llvmlite.binding.get_host_cpu_features().flatten()
    machine = llvmlite.binding.Target.from_default_triple().create_target_machine(
        cpu=_config.CPU_NAME or llvmlite.binding.get_host_cpu_name(),
        features=host if _config.CPU_NAME is None and _config.CPU_FEATURES is None else _config.CPU_FEATURES or "",
    )
    compiled = machine.emit_assembly(llvmlite.binding.parse_assembly(str(module)))
    return not re.search("__truncsfhf2|__gnu_f2h_ieee", compiled)


def call_intrinsic(name: str, element: Any, count: int, *arguments: Vector | int) -> Vector:
    """Call an instruction by LLVM's name; it returns `count` lanes of `element`, or a scalar. Numbers become bytes."""
    builder = next(argument.builder for argument in arguments if isinstance(argument, Vector))
    values = [operand.value if isinstance(operand, Vector) else ir.Constant(I8, operand) for operand in arguments]
    result = ir.VectorType(element, count) if count else element
    kind = ir.FunctionType(result, [value.type for value in values])
    instruction = _cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}")
    return Vector(builder, builder.call(instruction, values))


class Vector:
    """A SIMD vector (or a scalar) under construction; operators emit LLVM instructions."""

    # Integers have no sign: `sign_extend` and `zero_extend`, `shift_right` and `shift_right_logical` choose.

    __slots__ = ("builder", "value")

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    @property
    def element(self) -> Any:
        """LLVM type of one lane."""
        return getattr(self.value.type, "element", self.value.type)

    @property
    def count(self) -> int:
        """Number of lanes; 0 for a scalar."""
        return getattr(self.value.type, "count", 0)

    def like(self, number: float) -> Vector:
        """Return `number` in every lane, in this vector's type."""
        constant = [number] * self.count if self.count else number
        return Vector(self.builder, ir.Constant(self.value.type, constant))

    def _operand(self, other: Vector | float) -> Any:
        return other.value if isinstance(other, Vector) else self.like(other).value

    def _emit(self, whole: str, real: str, other: Vector | float) -> Vector:
        operand = self._operand(other)
        if isinstance(self.element, ir.IntType):
            return Vector(self.builder, getattr(self.builder, whole)(self.value, operand))
        return Vector(self.builder, getattr(self.builder, real)(self.value, operand, flags=_FUSE))

    def __add__(self, other: Vector | float) -> Vector:
        return self._emit("add", "fadd", other)

    def __sub__(self, other: Vector | float) -> Vector:
        return self._emit("sub", "fsub", other)

    def __mul__(self, other: Vector | float) -> Vector:
        return self._emit("mul", "fmul", other)

    def __truediv__(self, other: Vector) -> Vector:
        return Vector(self.builder, self.builder.fdiv(self.value, other.value))

    def __or__(self, other: Vector | int) -> Vector:
        return Vector(self.builder, self.builder.or_(self.value, self._operand(other)))

    def __xor__(self, other: Vector | int) -> Vector:
        return Vector(self.builder, self.builder.xor(self.value, self._operand(other)))

    def __and__(self, other: Vector | int) -> Vector:
        return Vector(self.builder, self.builder.and_(self.value, self._operand(other)))

    def shift_left(self, bits: int) -> Vector:
        """Multiply each lane by 2**bits."""
        return Vector(self.builder, self.builder.shl(self.value, self.like(bits).value))

    def shift_right(self, bits: int) -> Vector:
        """Shift each lane right and keep its sign."""
        return Vector(self.builder, self.builder.ashr(self.value, self.like(bits).value))

    def shift_right_logical(self, bits: int) -> Vector:
        """Shift each lane right and fill with zeros."""
        return Vector(self.builder, self.builder.lshr(self.value, self.like(bits).value))

    def clamp(self, low: int, high: int) -> Vector:
        """Limit each signed lane to low..high."""
        return self.larger(self.like(low)).smaller(self.like(high))

    def smaller(self, other: Vector) -> Vector:
        """Return the smaller of two signed integers, lane by lane."""
        return self._choose(self.builder.icmp_signed("<", self.value, other.value), other)

    def smaller_unsigned(self, other: Vector) -> Vector:
        """Return the smaller of two unsigned integers, lane by lane."""
        return self._choose(self.builder.icmp_unsigned("<", self.value, other.value), other)

    def larger(self, other: Vector) -> Vector:
        """Return the larger of two signed integers, lane by lane."""
        return self._choose(self.builder.icmp_signed(">", self.value, other.value), other)

    def where_equal(self, other: Vector, then: Vector, otherwise: Vector) -> Vector:
        """Select `then` in the lanes that equal those of `other`, else `otherwise`."""
        return then._choose(self.builder.icmp_signed("==", self.value, other.value), otherwise)

    def where_smaller_unsigned(self, other: Vector, then: Vector, otherwise: Vector) -> Vector:
        """Select `then` in the lanes that are smaller, as unsigned numbers, than those of `other`, else `otherwise`."""
        return then._choose(self.builder.icmp_unsigned("<", self.value, other.value), otherwise)

    def where_negative(self, then: Vector, otherwise: Vector) -> Vector:
        """Select `then` in the negative lanes, else `otherwise`."""
        return then._choose(self.builder.icmp_signed("<", self.value, self.like(0).value), otherwise)

    def _choose(self, condition: Any, otherwise: Vector) -> Vector:
        return Vector(self.builder, self.builder.select(condition, self.value, otherwise.value))

    def _cast(self, instruction: str, element: Any) -> Vector:
        target = ir.VectorType(element, self.count) if self.count else element
        return Vector(self.builder, getattr(self.builder, instruction)(self.value, target))

    def sign_extend(self, element: Any) -> Vector:
        """Widen signed lanes to the type `element`."""
        return self._cast("sext", element)

    def zero_extend(self, element: Any) -> Vector:
        """Widen unsigned lanes to the type `element`."""
        return self._cast("zext", element)

    def narrow(self, element: Any) -> Vector:
        """Truncate each lane to the narrower type `element`."""
        return self._cast("trunc", element)

    def to_float(self) -> Vector:
        """Convert signed lanes to float32."""
        return self._cast("sitofp", F32)

    def to_integer(self) -> Vector:
        """Convert floats, which have to fit, to signed 32 bits, rounded toward 0."""
        return self._cast("fptosi", I32)

    def to_half(self) -> Vector:
        """Round float32 lanes to half floats, ties to even."""
        if not _converts_halves():
            cpu = _config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
            raise RuntimeError(
                f"the CPU {cpu!r} has no instruction that rounds to half floats; expected x86 with F16C (2012 or "
                "newer) or arm64. Where NUMBA_CPU_NAME names an older CPU than the machine has, try "
                "NUMBA_CPU_NAME=haswell"
            )
        return self._cast("fptrunc", F16)

    def bits(self, element: Any, count: int) -> Vector:
        """Reinterpret the same bits as `count` lanes of `element`."""
        return Vector(self.builder, self.builder.bitcast(self.value, ir.VectorType(element, count)))

    def times_fraction(self, weight: Vector) -> Vector:
        """Return (self * weight) >> 16 of unsigned 16-bit lanes: one multiply instruction on every machine."""
        product = self.zero_extend(I32) * weight.zero_extend(I32)
        return product.shift_right_logical(16).narrow(I16)

    def times_signed_fraction(self, factor: Vector) -> Vector:
        """Return (self * factor) >> 16 of signed 16-bit lanes, rounded down: also one multiply instruction."""
        product = self.sign_extend(I32) * factor.sign_extend(I32)
        return product.shift_right(16).narrow(I16)

    def pair_products(self, even: int, odd: int) -> Vector:
        """Return even * lane + odd * next lane, in 32 bits, of each two of 16 signed 16-bit lanes."""
        return self.paired(Vector(self.builder, ir.Constant(self.value.type, [even, odd] * 8)))

    def paired(self, factors: Vector) -> Vector:
        """Do the same with a signed factor for each of 16 or 32 lanes."""
        if HAS_AVX512 and self.count == 32:
            return call_intrinsic("x86.avx512.pmaddw.d.512", I32, 16, self, factors)
        if HAS_AVX2 and self.count == 16:
            return call_intrinsic("x86.avx2.pmadd.wd", I32, 8, self, factors)
        if HAS_AVX2 and self.count == 32:
            lower, upper = (self.part(start, start + 16).paired(factors.part(start, start + 16)) for start in (0, 16))
            return lower.join(upper)
        products = [
            self.shuffle(self, lanes).sign_extend(I32) * factors.shuffle(factors, lanes).sign_extend(I32)
            for lanes in (range(0, self.count, 2), range(1, self.count, 2))
        ]
        return products[0] + products[1]

    def pack_signed(self, other: Vector) -> Vector:
        """Limit signed 32-bit lanes to 16 bits: of two vectors of eight, in the order of `_PACKED`."""
        if HAS_AVX2:
            return call_intrinsic("x86.avx2.packssdw", I16, 16, self, other)
        return self.shuffle(other, _PACKED).clamp(-0x8000, 0x7FFF).narrow(I16)

    def pack_unsigned(self, other: Vector) -> Vector:
        """Do the same to 0..65535, also of two vectors of 16, in that order by halves."""
        if HAS_AVX512 and self.count == 16:
            return call_intrinsic("x86.avx512.packusdw.512", I16, 32, self, other)
        if HAS_AVX2:
            return call_intrinsic("x86.avx2.packusdw", I16, 16, self, other)
        return self.shuffle(other, _PACKED).clamp(0, 0xFFFF).narrow(I16)

    def shuffle(self, other: Vector, order: Sequence[int]) -> Vector:
        """Pick lanes by number: those of self come first, then those of `other`."""
        mask = ir.Constant(ir.VectorType(I32, len(order)), list(order))
        return Vector(self.builder, self.builder.shuffle_vector(self.value, other.value, mask))

    def look_up(self, entries: Sequence[Vector]) -> Vector:
        """Look up each of 64 bytes in a table that `VectorBuilder.table` loaded. Needs AVX2."""
        if HAS_BYTE_PERMUTE:
            # One instruction uses the lower seven bits of each byte; the eighth selects one of two results.
            lower, upper = (
                call_intrinsic("x86.avx512.vpermi2var.qi.512", I8, 64, first, self, second)
                for first, second in (entries[:2], entries[2:])
            )
            return self.where_negative(upper, lower)
        if self.count == 64:
            return self.part(0, 32).look_up(entries).join(self.part(32, 64).look_up(entries))
        # The instruction looks up the lower four bits of a byte; a negative byte gets 0. Each byte goes down by 16
        # until it is negative. The xor of all that it gets is its entry: `entries` are differences of neighbors. Bytes
        # of the other half begin at -1: no number goes down beyond -128.
        total = self.like(0)
        for first, half in ((self, entries[:8]), (self ^ -128, entries[8:])):
            level = first.larger(first.like(-1))
            for entry in half:
                total = total ^ call_intrinsic("x86.avx2.pshuf.b", I8, 32, entry, level)
                level = level - 16
        return total

    def join(self, other: Vector) -> Vector:
        """Concatenate self and `other`."""
        return self.shuffle(other, range(2 * self.count))

    @staticmethod
    def joined(vectors: list[Vector]) -> Vector:
        """Concatenate vectors; their number is a power of two."""
        while len(vectors) > 1:
            vectors = [vector.join(other) for vector, other in zip(vectors[::2], vectors[1::2], strict=True)]
        return vectors[0]

    def part(self, start: int, stop: int) -> Vector:
        """Return lanes start..stop."""
        return self.shuffle(self, range(start, stop))

    def sum(self) -> Vector:
        """Add up all lanes; their number is a power of two."""
        value = self
        while value.count > 1:
            half = value.count // 2
            value = value.part(0, half) + value.part(half, value.count)
        return value.lane(0)

    def lane(self, index: int) -> Vector:
        """Return one lane as a scalar."""
        return Vector(self.builder, self.builder.extract_element(self.value, ir.Constant(I32, index)))


class VectorBuilder:
    """Emits the instructions of a kernel: loads, stores, constants, loops."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def scalar(self, number: int, element: Any = I64) -> Vector:
        """Return an integer constant."""
        return Vector(self.builder, ir.Constant(element, number))

    def fill(self, element: Any, count: int, number: float) -> Vector:
        """Return a constant vector."""
        return Vector(self.builder, ir.Constant(ir.VectorType(element, count), [number] * count))

    def numbers(self, element: Any, numbers: Sequence[int]) -> Vector:
        """Return a constant vector of different numbers."""
        return Vector(self.builder, ir.Constant(ir.VectorType(element, len(numbers)), list(numbers)))

    def splat(self, scalar: Vector, count: int) -> Vector:
        """Broadcast `scalar` to `count` lanes."""
        vector = ir.VectorType(scalar.value.type, count)
        nothing = ir.Constant(vector, ir.Undefined)
        first = self.builder.insert_element(nothing, scalar.value, ir.Constant(I32, 0))
        zeros = ir.Constant(ir.VectorType(I32, count), [0] * count)
        return Vector(self.builder, self.builder.shuffle_vector(first, nothing, zeros))

    def lost(self, products: Vector, lanes: int) -> Vector:
        """Return the mean loss of that many `times_fraction` (half a unit each), in each of `lanes` lanes."""
        # The limit keeps 8.8 fixed-point sums, of at most 255 * 256, below 2**16 even when it is added twice.
        return self.splat(products.shift_right(1).clamp(0, 127).narrow(I16), lanes)

    def fraction(self, word: Vector, lanes: int) -> Vector:
        """Broadcast a 16-bit weight, which is stored twice in the 32-bit word at an address; see `taps`."""
        return self.splat(self.load(word, I32, align=4), lanes // 2).bits(I16, lanes)

    def pointer(self, address: Vector, kind: Any) -> Any:
        """Convert `address` to an LLVM pointer to `kind`."""
        return self.builder.inttoptr(address.value, kind.as_pointer())

    def load(self, address: Vector, element: Any, count: int = 0, align: int = 1) -> Vector:
        """Load `count` lanes of `element`, or one scalar."""
        kind = ir.VectorType(element, count) if count else element
        return Vector(self.builder, self.builder.load(self.pointer(address, kind), align=align))

    def table(self, address: Vector) -> list[Vector]:
        """Load a table of 256 bytes, in the form that `Vector.look_up` needs."""
        if HAS_BYTE_PERMUTE:
            return [self.load(address + part, I8, 64) for part in range(0, 256, 64)]
        parts = [self.load(address + part, I8, 16) for part in range(0, 256, 16)]
        # Of each half, all but the first part become differences (xor) from the part before them.
        parts = [part ^ parts[number - 1] if number % 8 else part for number, part in enumerate(parts)]
        return [part.join(part) for part in parts]

    def gather(self, address: Vector, offsets: Vector, lanes: Sequence[int], element: Any) -> Vector:
        """Load an `element` for each of the lanes, from `address` plus the lane's int32, not negative, at `offsets`."""
        # One load for each lane: on most CPUs as fast as their instruction for all, or faster.
        value = ir.Constant(ir.VectorType(element, len(lanes)), ir.Undefined)
        for index, lane in enumerate(lanes):
            item = self.load(address + self.load(offsets + 4 * lane, I32).zero_extend(I64), element)
            value = self.builder.insert_element(value, item.value, ir.Constant(I32, index))
        return Vector(self.builder, value)

    def store(self, value: Vector, address: Vector, align: int = 1, *, is_cached: bool = True) -> None:
        """Store `value`; what is not cached goes to memory at once, and other threads may see it late."""
        store = self.builder.store(value.value, self.pointer(address, value.value.type), align=align)
        if not is_cached:
            store.set_metadata("nontemporal", self.builder.module.add_metadata([ir.Constant(I32, 1)]))

    def memory(self, size: int) -> Vector:
        """Return the address of memory that lasts until the kernel returns; its size is a multiple of 8 bytes."""
        slot = _cgutils.alloca_once(self.builder, ir.ArrayType(I64, size // 8))
        return Vector(self.builder, self.builder.ptrtoint(slot, I64))

    def variable(self, value: Vector) -> Variable:
        """Create a variable that a loop may change; LLVM keeps it in a register."""
        return Variable(self, value)

    @contextmanager
    def loop(self, count: Vector) -> Iterator[Vector]:
        """Run the block `count` times; yields the index."""
        with _cgutils.for_range(self.builder, count.value) as state:
            yield Vector(self.builder, state.index)

    @contextmanager
    def when(self, condition: Vector) -> Iterator[None]:
        """Run the block unless `condition` is 0."""
        is_met = self.builder.icmp_signed("!=", condition.value, ir.Constant(condition.value.type, 0))
        with self.builder.if_then(is_met):
            yield

    def switch(self, selector: Vector, cases: Sequence[int], body: Callable[[int | None], None]) -> None:
        """Emit `body(case)` for the case that `selector` equals, else `body(None)`."""
        if not cases:
            body(None)
            return
        matches = self.builder.icmp_signed("==", selector.value, ir.Constant(selector.value.type, cases[0]))
        with self.builder.if_else(matches) as (then, otherwise):
            with then:
                body(cases[0])
            with otherwise:
                self.switch(selector, cases[1:], body)


class Variable:
    """A value that changes inside a loop."""

    def __init__(self, emit: VectorBuilder, value: Vector) -> None:
        self._slot = _cgutils.alloca_once(emit.builder, value.value.type)
        self._builder = emit.builder
        self.set(value)

    def get(self) -> Vector:
        """Return the current value."""
        return Vector(self._builder, self._builder.load(self._slot))

    def set(self, value: Vector) -> None:
        """Change the value."""
        self._builder.store(value.value, self._slot)


def vector_kernel(body: Callable[..., Vector | None]) -> Callable[..., int]:
    """Make a function for compiled code from one that emits its instructions."""
    # `body` is called with a `VectorBuilder` and one 64-bit scalar for each further argument: addresses, sizes, counts.
    # By its annotation it returns a 64-bit scalar or None. For Numba all of them are int64.
    parameters = list(inspect.signature(body).parameters.values())[1:]
    result = types.void if body.__annotations__["return"] == "None" else types.int64

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        outcome = body(VectorBuilder(builder), *(Vector(builder, value) for value in values))
        return context.get_dummy_value() if outcome is None else outcome.value

    def declare(typing_context: Any, *arguments: Any) -> Any:
        return result(*[types.int64] * len(parameters)), generate

    # Numba asks for one named parameter per argument.
    context = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    declare.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    declare.__name__, declare.__doc__, declare.__module__ = body.__name__, body.__doc__, body.__module__
    return cast("Callable[..., int]", intrinsic(declare))
