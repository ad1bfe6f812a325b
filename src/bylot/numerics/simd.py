"""Eight numbers at once: SIMD sums of a fixed order, with the same bits on every machine.

A compiler may not reorder a sum of floats, so it adds one number at a time. `Lanes` fixes the order
itself: eight running sums, added in pairs by `sum_lanes`. The result does not depend on inlining or
on the vector width of the machine.

    acc = splat(0.0)
    for i in range(0, x.size, SIMD_WIDTH):
        acc = acc + load_lanes(x, i, 0.0)
    return sum_lanes(acc)
"""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel.models import PrimitiveModel
from numba.extending import intrinsic, overload, register_model

from bylot.numerics.jit import Floats, jit

SIMD_WIDTH = 8
INT32, INT64 = ir.IntType(32), ir.IntType(64)
VECTOR_TYPE = ir.VectorType(ir.DoubleType(), SIMD_WIDTH)
UNDEFINED_VECTOR = ir.Constant(VECTOR_TYPE, ir.Undefined)
ZERO_VECTOR = ir.Constant(VECTOR_TYPE, [0.0] * SIMD_WIDTH)


class Lanes:
    """Eight float64 side by side, with + - * by lane; exists in compiled code only."""

    def __add__(self, other: "Lanes | float") -> "Lanes":
        raise NotImplementedError

    __sub__ = __mul__ = __rmul__ = __add__


class LanesType(types.Type):  # type: ignore[misc]
    """The numba type of `Lanes`: one vector register."""


LANES_TYPE = LanesType("Lanes")
register_model(LanesType)(lambda manager, lanes: PrimitiveModel(manager, lanes, VECTOR_TYPE))


def emit_splat(builder: Any, x: Any) -> Any:
    """Emit a vector of eight times x."""
    first = builder.insert_element(UNDEFINED_VECTOR, x, INT32(0))
    everywhere = ir.Constant(ir.VectorType(INT32, SIMD_WIDTH), None)
    return builder.shuffle_vector(first, UNDEFINED_VECTOR, everywhere)


def emit_kept(builder: Any, p: Any, x: Any) -> Any:
    """Emit x where p >= 0, and 0 elsewhere."""
    return builder.select(builder.fcmp_ordered(">=", p, ZERO_VECTOR), x, ZERO_VECTOR)


def emit_maximum(builder: Any, v: Any, w: Any) -> Any:
    """Emit the larger of two vectors, by lane."""
    return builder.select(builder.fcmp_ordered(">", v, w), v, w)


def emit_minimum(builder: Any, v: Any, w: Any) -> Any:
    """Emit the smaller of two vectors, by lane."""
    return builder.select(builder.fcmp_ordered("<", v, w), v, w)


def emit_mask(builder: Any, comparison: str, v: Any, x: Any) -> Any:
    """Emit an integer whose bit k says how lane k compares with x."""
    compared = builder.fcmp_ordered(comparison, v, emit_splat(builder, x))
    return builder.zext(builder.bitcast(compared, ir.IntType(SIMD_WIDTH)), INT64)


def emit_reduction(builder: Any, v: Any, pair: Callable[[Any, Any], Any]) -> Any:
    """Reduce eight lanes to four, to two, to one: always the same pairs."""
    while v.type.count > 1:
        h = v.type.count // 2
        low, high = (ir.Constant(ir.VectorType(INT32, h), list(range(k, k + h))) for k in (0, h))
        v = pair(builder.shuffle_vector(v, v, low), builder.shuffle_vector(v, v, high))
    return builder.extract_element(v, INT32(0))


def make_intrinsic(signature: Any, emit: Callable[..., Any]) -> Any:
    """A function of compiled code with the instructions that `emit(builder, *values)` emits."""

    def lower(target: Any, builder: Any, form: Any, given: Any) -> Any:
        return emit(builder, *given)

    if len(signature.args) == 1:
        return intrinsic(lambda context, x: (signature, lower))
    return intrinsic(lambda context, x, y: (signature, lower))


def emit_first_lanes(builder: Any, place: Any, count: Any, others: Any) -> Any:
    """Emit a load of the first `count` lanes only; the others are as given."""
    lanes = ir.VectorType(INT64, SIMD_WIDTH)
    counts = ir.Constant(lanes, ir.Undefined)
    counts = builder.insert_element(counts, count, INT32(0))
    everywhere = ir.Constant(ir.VectorType(INT32, SIMD_WIDTH), None)
    counts = builder.shuffle_vector(counts, counts, everywhere)
    numbers = ir.Constant(lanes, list(range(SIMD_WIDTH)))
    mask = builder.icmp_signed("<", numbers, counts)
    kind = ir.FunctionType(VECTOR_TYPE, [place.type, INT32, mask.type, VECTOR_TYPE])
    name = f"llvm.masked.load.v{SIMD_WIDTH}f64.p0v{SIMD_WIDTH}f64"
    load = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(load, [place, INT32(8), mask, others])


def _load(context: Any, values: Any, start: Any, fill: Any) -> Any:
    def emit(target: Any, builder: Any, form: Any, given: Any) -> Any:
        array = target.make_array(values)(target, builder, given[0])
        size = builder.extract_value(array.shape, 0)
        whole = builder.icmp_signed("<=", builder.add(given[1], size.type(SIMD_WIDTH)), size)
        if values.layout != "C":
            whole = ir.Constant(ir.IntType(1), 0)

        def at(index: Any) -> Any:
            return cgutils.get_item_pointer(target, builder, values, array, [index])

        with builder.if_else(whole) as (inside, across):
            with inside:
                place = builder.bitcast(at(given[1]), VECTOR_TYPE.as_pointer())
                full, full_block = builder.load(place, align=8), builder.block
            with across:
                part = emit_splat(builder, given[2])
                if values.layout == "C":
                    rest = builder.sub(size, given[1])
                    place = builder.bitcast(at(given[1]), VECTOR_TYPE.as_pointer())
                    part = emit_first_lanes(builder, place, rest, part)
                else:
                    for k in range(SIMD_WIDTH):  # past the end: the fill
                        index = builder.add(given[1], size.type(k))
                        there = builder.icmp_signed("<", index, size)
                        x = builder.load(at(builder.select(there, index, given[1])))
                        x = builder.select(there, x, given[2])
                        part = builder.insert_element(part, x, INT32(k))
                part_block = builder.block
        result = builder.phi(VECTOR_TYPE)
        result.add_incoming(full, full_block)
        result.add_incoming(part, part_block)
        return result

    known = values.dtype == types.float64 and values.ndim == 1
    return (LANES_TYPE(values, types.intp, types.float64), emit) if known else None


def is_float_vector(values: Any) -> bool:
    """Whether these are float64 side by side, of which a vector register can load eight."""
    return bool(values.dtype == types.float64 and values.ndim == 1 and values.layout == "C")


def _find_eight(target: Any, builder: Any, values: Any, array: Any, start: Any) -> Any:
    """Emit the address of eight numbers of an array, as that of a vector."""
    held = target.make_array(values)(target, builder, array)
    place = cgutils.get_item_pointer(target, builder, values, held, [start])
    return builder.bitcast(place, VECTOR_TYPE.as_pointer())


def _load_inside(context: Any, values: Any, start: Any) -> Any:
    def emit(target: Any, builder: Any, form: Any, given: Any) -> Any:
        return builder.load(_find_eight(target, builder, values, *given), align=8)

    return (LANES_TYPE(values, types.intp), emit) if is_float_vector(values) else None


def _store_inside(context: Any, values: Any, start: Any, lanes: Any) -> Any:
    def emit(target: Any, builder: Any, form: Any, given: Any) -> Any:
        builder.store(given[2], _find_eight(target, builder, values, *given[:2]), align=8)
        return target.get_dummy_value()

    signature = types.void(values, types.intp, LANES_TYPE)
    return (signature, emit) if is_float_vector(values) and values.mutable else None


MASKED = types.int64(LANES_TYPE, types.float64)
BY_LANE, REDUCED = LANES_TYPE(LANES_TYPE, LANES_TYPE), types.float64(LANES_TYPE)
splat: Callable[[float], Lanes] = make_intrinsic(LANES_TYPE(types.float64), emit_splat)
load_lanes: Callable[[Floats, int, float], Lanes] = intrinsic(_load)
load_inside: Callable[[Floats, int], Lanes] = intrinsic(_load_inside)  # eight must be left
store_inside: Callable[[Floats, int, Lanes], None] = intrinsic(_store_inside)  # likewise
keep_lanes: Callable[[Lanes, Lanes], Lanes] = make_intrinsic(BY_LANE, emit_kept)
max_by_lane: Callable[[Lanes, Lanes], Lanes] = make_intrinsic(BY_LANE, emit_maximum)
min_by_lane: Callable[[Lanes, Lanes], Lanes] = make_intrinsic(BY_LANE, emit_minimum)
mask_at_most: Callable[[Lanes, float], int] = make_intrinsic(
    MASKED, lambda builder, v, x: emit_mask(builder, "<=", v, x)
)
count_bits: Callable[[int], int] = make_intrinsic(
    types.int64(types.int64), lambda builder, bits: builder.ctpop(bits)
)
sum_lanes: Callable[[Lanes], float] = make_intrinsic(
    REDUCED, lambda builder, v: emit_reduction(builder, v, builder.fadd)
)
max_lanes: Callable[[Lanes], float] = make_intrinsic(
    REDUCED, lambda builder, v: emit_reduction(builder, v, partial(emit_maximum, builder))
)
min_lanes: Callable[[Lanes], float] = make_intrinsic(
    REDUCED, lambda builder, v: emit_reduction(builder, v, partial(emit_minimum, builder))
)


def register_arithmetic(operation: Any, instruction: str) -> None:
    """Register an operation on two `Lanes`, or on `Lanes` and a number."""
    both = make_intrinsic(BY_LANE, lambda builder, x, y: getattr(builder, instruction)(x, y))

    @overload(operation, strict=False)  # type: ignore[untyped-decorator]
    def choose_overload(x: Any, y: Any) -> Any:
        if isinstance(x, LanesType) and isinstance(y, LanesType):
            return lambda x, y: both(x, y)
        if isinstance(x, LanesType) and isinstance(y, types.Float):
            return lambda x, y: both(x, splat(y))
        if isinstance(x, types.Float) and isinstance(y, LanesType):
            return lambda x, y: both(splat(x), y)
        return None


register_arithmetic(operator.add, "fadd")
register_arithmetic(operator.sub, "fsub")
register_arithmetic(operator.mul, "fmul")


@jit
def dot_product(x: Floats, y: Floats) -> float:
    """Compute the sum of x_i y_i, eight at a time."""
    acc = splat(0.0)
    for i in range(0, x.size, SIMD_WIDTH):
        acc = acc + load_lanes(x, i, 0.0) * load_lanes(y, i, 0.0)
    return sum_lanes(acc)
