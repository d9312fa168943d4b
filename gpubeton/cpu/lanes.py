"""Vectors of LLVM as Python values, so that a kernel of the CPU executor reads as arithmetic.

Numba vectorises loops where LLVM can prove that it may, which it cannot for interleaved colours, table look-ups and
half floats. The kernels that matter therefore state their vectors themselves, in portable LLVM: no word of ARM, and one
of x86, `Lanes.look_up`, which a kernel may use where `weaving.permutes_bytes` says so.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Published without types.
_cgutils: Any = cgutils

I8, I16, I32, I64 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
F16, F32 = ir.HalfType(), ir.FloatType()

# Fused multiply-adds may be formed: they round once instead of twice and cost half.
_FUSE = ("contract",)


class Lanes:
    """A vector (or a scalar) under construction; operators emit LLVM instructions.

    Parameters
    ----------
    builder : llvmlite.ir.IRBuilder
        Where instructions go.
    value : llvmlite.ir.Value
        The vector or scalar. Integers carry no sign: `sign_extend` and `zero_extend`, `shift_right` and
        `shift_right_logical` say which is meant.
    """

    __slots__ = ("builder", "value")

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    @property
    def element(self) -> Any:
        """The LLVM type of one lane."""
        return getattr(self.value.type, "element", self.value.type)

    @property
    def count(self) -> int:
        """The number of lanes; 0 for a scalar."""
        return getattr(self.value.type, "count", 0)

    def like(self, number: float) -> Lanes:
        """Return `number` in every lane, in this vector's type."""
        constant = [number] * self.count if self.count else number
        return Lanes(self.builder, ir.Constant(self.value.type, constant))

    def _operand(self, other: Lanes | float) -> Any:
        return other.value if isinstance(other, Lanes) else self.like(other).value

    def _emit(self, whole: str, real: str, other: Lanes | float) -> Lanes:
        operand = self._operand(other)
        if isinstance(self.element, ir.IntType):
            return Lanes(self.builder, getattr(self.builder, whole)(self.value, operand))
        return Lanes(self.builder, getattr(self.builder, real)(self.value, operand, flags=_FUSE))

    def __add__(self, other: Lanes | float) -> Lanes:
        return self._emit("add", "fadd", other)

    def __sub__(self, other: Lanes | float) -> Lanes:
        return self._emit("sub", "fsub", other)

    def __mul__(self, other: Lanes | float) -> Lanes:
        return self._emit("mul", "fmul", other)

    def __or__(self, other: Lanes | int) -> Lanes:
        return Lanes(self.builder, self.builder.or_(self.value, self._operand(other)))

    def __xor__(self, other: Lanes | int) -> Lanes:
        return Lanes(self.builder, self.builder.xor(self.value, self._operand(other)))

    def __and__(self, other: Lanes | int) -> Lanes:
        return Lanes(self.builder, self.builder.and_(self.value, self._operand(other)))

    def shift_left(self, bits: int) -> Lanes:
        """Return each lane times 2**bits."""
        return Lanes(self.builder, self.builder.shl(self.value, self.like(bits).value))

    def shift_right(self, bits: int) -> Lanes:
        """Return each lane shifted right, the sign kept."""
        return Lanes(self.builder, self.builder.ashr(self.value, self.like(bits).value))

    def shift_right_logical(self, bits: int) -> Lanes:
        """Return each lane shifted right, zeros coming in."""
        return Lanes(self.builder, self.builder.lshr(self.value, self.like(bits).value))

    def clamp(self, low: int, high: int) -> Lanes:
        """Return each signed integer lane limited to low..high."""
        return self.larger(self.like(low)).smaller(self.like(high))

    def smaller(self, other: Lanes) -> Lanes:
        """Return the smaller of two signed integers, lane by lane."""
        return self._choose(self.builder.icmp_signed("<", self.value, other.value), other)

    def smaller_unsigned(self, other: Lanes) -> Lanes:
        """Return the smaller of two unsigned integers, lane by lane."""
        return self._choose(self.builder.icmp_unsigned("<", self.value, other.value), other)

    def larger(self, other: Lanes) -> Lanes:
        """Return the larger of two signed integers, lane by lane."""
        return self._choose(self.builder.icmp_signed(">", self.value, other.value), other)

    def where_equal(self, other: Lanes, then: Lanes, otherwise: Lanes) -> Lanes:
        """Return `then` in the lanes that equal those of `other`, and `otherwise` in the rest."""
        return then._choose(self.builder.icmp_signed("==", self.value, other.value), otherwise)

    def where_smaller_unsigned(self, other: Lanes, then: Lanes, otherwise: Lanes) -> Lanes:
        """Return `then` in the lanes that are smaller than those of `other`, without signs, and `otherwise` else."""
        return then._choose(self.builder.icmp_unsigned("<", self.value, other.value), otherwise)

    def where_negative(self, then: Lanes, otherwise: Lanes) -> Lanes:
        """Return `then` in the lanes that are negative, and `otherwise` in the rest."""
        return then._choose(self.builder.icmp_signed("<", self.value, self.like(0).value), otherwise)

    def _choose(self, condition: Any, otherwise: Lanes) -> Lanes:
        return Lanes(self.builder, self.builder.select(condition, self.value, otherwise.value))

    def _cast(self, instruction: str, element: Any) -> Lanes:
        target = ir.VectorType(element, self.count) if self.count else element
        return Lanes(self.builder, getattr(self.builder, instruction)(self.value, target))

    def sign_extend(self, element: Any) -> Lanes:
        """Return signed lanes in the wider type `element`."""
        return self._cast("sext", element)

    def zero_extend(self, element: Any) -> Lanes:
        """Return unsigned lanes in the wider type `element`."""
        return self._cast("zext", element)

    def narrow(self, element: Any) -> Lanes:
        """Return the low bits of each lane in the narrower type `element`."""
        return self._cast("trunc", element)

    def to_float(self) -> Lanes:
        """Return unsigned lanes as float32."""
        return self._cast("uitofp", F32)

    def to_half(self) -> Lanes:
        """Return float32 lanes rounded to nearest-even half floats."""
        return self._cast("fptrunc", F16)

    def bits(self, element: Any, count: int) -> Lanes:
        """Return the same bits seen as `count` lanes of `element`."""
        return Lanes(self.builder, self.builder.bitcast(self.value, ir.VectorType(element, count)))

    def times_fraction(self, weight: Lanes) -> Lanes:
        """Return (self * weight) >> 16 of unsigned 16-bit lanes: one multiply instruction on every machine."""
        product = self.zero_extend(I32) * weight.zero_extend(I32)
        return product.shift_right_logical(16).narrow(I16)

    def times_signed_fraction(self, factor: Lanes) -> Lanes:
        """Return (self * factor) >> 16 of signed 16-bit lanes, rounded down: one multiply instruction, too."""
        product = self.sign_extend(I32) * factor.sign_extend(I32)
        return product.shift_right(16).narrow(I16)

    def times_rounded(self, factor: int) -> Lanes:
        """Return (self * factor + 2**14) >> 15 of signed 16-bit lanes: a fixed-point product, rounded."""
        product = self.sign_extend(I32) * factor
        return (product + (1 << 14)).shift_right(15).narrow(I16)

    def shuffle(self, other: Lanes, order: Sequence[int]) -> Lanes:
        """Return the lanes of self and `other`, numbered through, in `order`."""
        mask = ir.Constant(ir.VectorType(I32, len(order)), list(order))
        return Lanes(self.builder, self.builder.shuffle_vector(self.value, other.value, mask))

    def look_up(self, entries: Sequence[Lanes]) -> Lanes:
        """Return, for each of 64 bytes, the byte with its number among 256, four vectors. Machines with VBMI only."""
        vector = self.value.type
        kind = ir.FunctionType(vector, [vector] * 3)
        name = "llvm.x86.avx512.vpermi2var.qi.512"
        pick = _cgutils.get_or_insert_function(self.builder.module, kind, name)
        # One instruction looks at the lower seven bits; the eighth says which of two it is.
        lower, upper = (
            Lanes(self.builder, self.builder.call(pick, [first.value, self.value, second.value]))
            for first, second in (entries[:2], entries[2:])
        )
        return self.where_negative(upper, lower)

    def join(self, other: Lanes) -> Lanes:
        """Return self followed by `other`."""
        return self.shuffle(other, range(2 * self.count))

    @staticmethod
    def joined(vectors: list[Lanes]) -> Lanes:
        """Return vectors, a power of two of them, one after another."""
        while len(vectors) > 1:
            vectors = [one.join(other) for one, other in zip(vectors[::2], vectors[1::2], strict=True)]
        return vectors[0]

    def part(self, start: int, stop: int) -> Lanes:
        """Return lanes start..stop."""
        return self.shuffle(self, range(start, stop))

    def sum(self) -> Lanes:
        """Return all lanes, a power of two of them, added up."""
        value = self
        while value.count > 1:
            half = value.count // 2
            value = value.part(0, half) + value.part(half, value.count)
        return value.lane(0)

    def lane(self, index: int) -> Lanes:
        """Return one lane as a scalar."""
        return Lanes(self.builder, self.builder.extract_element(self.value, ir.Constant(I32, index)))


class Emitter:
    """Where a kernel's instructions go: loads, stores, constants, loops.

    Parameters
    ----------
    builder : llvmlite.ir.IRBuilder
        The function under construction.
    """

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def scalar(self, number: int, element: Any = I64) -> Lanes:
        """Return an integer constant."""
        return Lanes(self.builder, ir.Constant(element, number))

    def fill(self, element: Any, count: int, number: float) -> Lanes:
        """Return a constant vector."""
        return Lanes(self.builder, ir.Constant(ir.VectorType(element, count), [number] * count))

    def splat(self, scalar: Lanes, count: int) -> Lanes:
        """Return `scalar` in each of `count` lanes."""
        vector = ir.VectorType(scalar.value.type, count)
        nothing = ir.Constant(vector, ir.Undefined)
        first = self.builder.insert_element(nothing, scalar.value, ir.Constant(I32, 0))
        zeros = ir.Constant(ir.VectorType(I32, count), [0] * count)
        return Lanes(self.builder, self.builder.shuffle_vector(first, nothing, zeros))

    def lost(self, products: Lanes, lanes: int) -> Lanes:
        """Return, in each of `lanes`, what that many `times_fraction` lose by rounding down: half each, at most 127.

        The limit keeps 8.8 fixed-point sums, of at most 255 * 256, below 2**16 even when it is added twice.
        """
        return self.splat(products.shift_right(1).clamp(0, 127).narrow(I16), lanes)

    def pointer(self, address: Lanes, kind: Any) -> Any:
        """Return `address` as an LLVM pointer to `kind`."""
        return self.builder.inttoptr(address.value, kind.as_pointer())

    def load(self, address: Lanes, element: Any, count: int = 0, align: int = 1) -> Lanes:
        """Return `count` lanes of `element` from memory, or one scalar."""
        kind = ir.VectorType(element, count) if count else element
        return Lanes(self.builder, self.builder.load(self.pointer(address, kind), align=align))

    def store(self, value: Lanes, address: Lanes, align: int = 1) -> None:
        """Write `value` to memory."""
        self.builder.store(value.value, self.pointer(address, value.value.type), align=align)

    def variable(self, value: Lanes) -> Variable:
        """Return a variable that a loop may change; LLVM keeps it in a register."""
        return Variable(self, value)

    @contextmanager
    def loop(self, count: Lanes) -> Iterator[Lanes]:
        """Run the block `count` times; yields the index."""
        with _cgutils.for_range(self.builder, count.value) as state:
            yield Lanes(self.builder, state.index)

    @contextmanager
    def when(self, condition: Lanes) -> Iterator[None]:
        """Run the block unless `condition` is 0."""
        is_met = self.builder.icmp_signed("!=", condition.value, ir.Constant(condition.value.type, 0))
        with self.builder.if_then(is_met):
            yield

    def switch(self, selector: Lanes, cases: Sequence[int], body: Callable[[int | None], None]) -> None:
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

    def __init__(self, emit: Emitter, value: Lanes) -> None:
        self._slot = _cgutils.alloca_once(emit.builder, value.value.type)
        self._builder = emit.builder
        self.set(value)

    def get(self) -> Lanes:
        """Return the value as it is now."""
        return Lanes(self._builder, self._builder.load(self._slot))

    def set(self, value: Lanes) -> None:
        """Change the value."""
        self._builder.store(value.value, self._slot)


def vector_kernel(body: Callable[..., Lanes | None]) -> Callable[..., int]:
    """Make a function that compiled functions call from one that emits its instructions.

    Parameters
    ----------
    body : callable
        Called with an `Emitter` and one 64-bit scalar for each further argument: addresses, sizes and counts. Returns a
        64-bit scalar, or None; its annotation says which.

    Returns
    -------
    callable
        Known to Numba; takes and gives int64.
    """
    parameters = list(inspect.signature(body).parameters.values())[1:]
    result = types.void if body.__annotations__["return"] == "None" else types.int64

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        outcome = body(Emitter(builder), *(Lanes(builder, value) for value in values))
        return context.get_dummy_value() if outcome is None else outcome.value

    def declare(typing_context: Any, *arguments: Any) -> Any:
        return result(*[types.int64] * len(parameters)), generate

    # Numba asks for one named parameter per argument.
    context = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    declare.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    declare.__name__, declare.__doc__, declare.__module__ = body.__name__, body.__doc__, body.__module__
    return cast("Callable[..., int]", intrinsic(declare))
