"""Eight numbers at once: the vector unit, for sums that strict arithmetic keeps in one order.

A compiler may not reorder a sum of floats, so it adds one number at a time. `Lanes` fixes the
order itself: eight running sums side by side, added up in pairs by `total`. The same bits come
out wherever the code is inlined and however wide the vectors of the machine are.

    acc = splat(0.0)
    for i in range(0, x.size, WIDTH):
        acc = acc + load(x, i, 0.0)
    return total(acc)
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

from bylot.kernels.compile import Floats

WIDTH = 8
INT = ir.IntType(32)
VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
UNDEFINED = ir.Constant(VECTOR, ir.Undefined)
ZERO = ir.Constant(VECTOR, [0.0] * WIDTH)


class Lanes:
    """Eight float64 side by side: a value of compiled code alone, with + - * by lane."""

    def __add__(self, other: "Lanes | float") -> "Lanes":
        raise NotImplementedError

    __sub__ = __mul__ = __rmul__ = __add__


class LanesType(types.Type):  # type: ignore[misc]
    """`Lanes`, as the compiler knows it."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


LANES = LanesType()


@register_model(LanesType)
class LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    """Held in one vector register."""

    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, VECTOR)


def spread(builder: Any, x: Any) -> Any:
    """A vector of eight times x."""
    first = builder.insert_element(UNDEFINED, x, INT(0))
    return builder.shuffle_vector(first, UNDEFINED, ir.Constant(ir.VectorType(INT, WIDTH), None))


def halves(builder: Any, v: Any) -> tuple[Any, Any]:
    """The lower and the upper half of a vector."""
    h = v.type.count // 2
    low, high = (ir.Constant(ir.VectorType(INT, h), list(range(k, k + h))) for k in (0, h))
    return builder.shuffle_vector(v, v, low), builder.shuffle_vector(v, v, high)


def maximum(builder: Any, v: Any, w: Any) -> Any:
    """The larger of two vectors, by lane."""
    return builder.select(builder.fcmp_ordered(">", v, w), v, w)


def folded(builder: Any, v: Any, pair: Callable[[Any, Any, Any], Any]) -> Any:
    """Eight lanes to four, to two, to one: always the same pairs."""
    while v.type.count > 1:
        v = pair(builder, *halves(builder, v))
    return builder.extract_element(v, INT(0))


def _splat(context: Any, x: Any) -> Any:
    return LANES(types.float64), lambda target, builder, form, given: spread(builder, given[0])


def _load(context: Any, values: Any, start: Any, fill: Any) -> Any:
    def emit(target: Any, builder: Any, form: Any, given: Any) -> Any:
        array = target.make_array(values)(target, builder, given[0])
        size = builder.extract_value(array.shape, 0)
        end = builder.add(given[1], size.type(WIDTH))
        whole = builder.icmp_signed("<=", end, size)
        if values.layout != "C":
            whole = ir.Constant(ir.IntType(1), 0)

        def at(index: Any) -> Any:
            return cgutils.get_item_pointer(target, builder, values, array, [index])

        with builder.if_else(whole) as (inside, across):
            with inside:
                place = builder.bitcast(at(given[1]), VECTOR.as_pointer())
                full, full_block = builder.load(place, align=8), builder.block
            with across:
                part = spread(builder, given[2])
                for k in range(WIDTH):  # reads the first one again where there is none
                    index = builder.add(given[1], size.type(k))
                    there = builder.icmp_signed("<", index, size)
                    x = builder.load(at(builder.select(there, index, given[1])))
                    x = builder.select(there, x, given[2])
                    part = builder.insert_element(part, x, INT(k))
                part_block = builder.block
        result = builder.phi(VECTOR)
        result.add_incoming(full, full_block)
        result.add_incoming(part, part_block)
        return result

    return LANES(values, types.intp, types.float64), emit


def _kept(context: Any, p: Any, x: Any) -> Any:
    def emit(target: Any, builder: Any, form: Any, given: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">=", given[0], ZERO), given[1], ZERO)

    return LANES(LANES, LANES), emit


def _larger(context: Any, x: Any, y: Any) -> Any:
    return LANES(LANES, LANES), lambda target, builder, form, given: maximum(builder, *given)


def _total(context: Any, x: Any) -> Any:
    def emit(target: Any, builder: Any, form: Any, given: Any) -> Any:
        return folded(builder, given[0], lambda build, v, w: build.fadd(v, w))

    return types.float64(LANES), emit


def _largest(context: Any, x: Any) -> Any:
    def emit(target: Any, builder: Any, form: Any, given: Any) -> Any:
        return folded(builder, given[0], maximum)

    return types.float64(LANES), emit


splat: Callable[[float], Lanes] = intrinsic(_splat)
load: Callable[[Floats, int, float], Lanes] = intrinsic(_load)
kept: Callable[[Lanes, Lanes], Lanes] = intrinsic(_kept)
larger: Callable[[Lanes, Lanes], Lanes] = intrinsic(_larger)
total: Callable[[Lanes], float] = intrinsic(_total)
largest: Callable[[Lanes], float] = intrinsic(_largest)


def arithmetic(operation: Any, instruction: str) -> None:
    """Teach the compiler an operation on two `Lanes`, or on `Lanes` and a number."""

    def emit(target: Any, builder: Any, form: Any, given: Any) -> Any:
        return getattr(builder, instruction)(*given)

    both = intrinsic(lambda context, x, y: (LANES(LANES, LANES), emit))

    @overload(operation, strict=False)  # type: ignore[untyped-decorator]
    def _(x: Any, y: Any) -> Any:
        if isinstance(x, LanesType) and isinstance(y, LanesType):
            return lambda x, y: both(x, y)
        if isinstance(x, LanesType) and isinstance(y, types.Float):
            return lambda x, y: both(x, splat(y))
        if isinstance(x, types.Float) and isinstance(y, LanesType):
            return lambda x, y: both(splat(x), y)
        return None


arithmetic(operator.add, "fadd")
arithmetic(operator.sub, "fsub")
arithmetic(operator.mul, "fmul")
