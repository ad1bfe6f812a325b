"""Arrays of compiled code without the heap: on the stack, at an address, or borrowed.

A heap array costs 14 ns, as long as drawing a random number, and counting its references, which
other threads must see, as much again. An array that its function needs no longer than it runs is
on the stack instead, if it is small; never return it, nor put it into a state. A row of an array is
borrowed from its owner. For a router, the arrays of a ticket are on the heap. In the simulator's
loop, `make_draws` and `make_probabilities` return the row of the record itself.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numba.np import arrayobj

from bylot.numerics.jit import INLINED_OPTIONS, Bools, Floats, Ints, jit_inline
from bylot.numerics.philox import LoopKey

INT64 = ir.IntType(64)
STACK_NUMBERS = 128  # a larger array is made on the heap
ALIGNMENT = 64  # bytes: a vector of eight numbers is then in one line of the cache
INLINED = {"inline": "always", "jit_options": INLINED_OPTIONS, "strict": False}


def emit_array(target: Any, builder: Any, kind: Any, data: Any, size: Any) -> Any:
    """Emit an array of one dimension over memory that somebody else owns."""
    stride = ir.Constant(size.type, target.get_abi_sizeof(target.get_data_type(kind.dtype)))
    return emit_uncounted(target, builder, kind, data, [size], [stride])


def emit_uncounted(
    target: Any, builder: Any, kind: Any, data: Any, shape: Any, strides: Any
) -> Any:
    """Emit an array over memory that somebody else owns: nobody counts or frees it."""
    array = arrayobj.make_array(kind)(target, builder)
    size = target.get_abi_sizeof(target.get_data_type(kind.dtype))
    itemsize = target.get_constant(types.intp, size)
    arrayobj.populate_array(array, data, shape, strides, itemsize, None)
    return array._getvalue()


def make_stack_array(number: Any) -> Any:
    """A function of compiled code that takes an array from the stack of its caller.

    It is the same memory whenever the same line runs.
    """
    kind = types.Array(number, 1, "C")

    def emit(target: Any, builder: Any, signature: Any, given: Any) -> Any:
        stored = target.get_data_type(number)
        with builder.goto_entry_block():
            place = builder.alloca(ir.ArrayType(stored, STACK_NUMBERS))
            place.align = ALIGNMENT
        data = builder.bitcast(place, stored.as_pointer())
        return emit_array(target, builder, kind, data, given[0])

    return intrinsic(lambda context, size: (kind(types.intp), emit))


def make_array_at(number: Any) -> Any:
    """A function of compiled code that makes an array of the memory at an address."""
    kind = types.Array(number, 1, "C")

    def emit(target: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = builder.inttoptr(given[0], target.get_data_type(number).as_pointer())
        return emit_array(target, builder, kind, data, given[1])

    return intrinsic(lambda context, address, size: (kind(types.intp, types.intp), emit))


def _borrow_row(context: Any, values: Any, x: Any) -> Any:
    if values.layout != "C" or values.ndim < 2:
        return None
    row = types.Array(values.dtype, values.ndim - 1, "C", readonly=not values.mutable)

    def emit(target: Any, builder: Any, form: Any, given: Any) -> Any:
        array = arrayobj.make_array(values)(target, builder, given[0])
        shape, strides = (
            cgutils.unpack_tuple(builder, one) for one in (array.shape, array.strides)
        )
        zero = target.get_constant(types.intp, 0)
        place = [given[1]] + [zero] * (values.ndim - 1)
        data = cgutils.get_item_pointer(target, builder, values, array, place)
        return emit_uncounted(target, builder, row, data, shape[1:], strides[1:])

    return row(values, types.intp), emit


borrow_row: Any = intrinsic(_borrow_row)
"""borrow_row(values, x) is values[x], x >= 0, for use while the caller holds `values`."""

stack_floats: Callable[[int], Floats] = make_stack_array(types.float64)
stack_ints: Callable[[int], Ints] = make_stack_array(types.int64)
ints_at: Callable[[int, int], Ints] = make_array_at(types.int64)
floats_at: Callable[[int, int], Floats] = make_array_at(types.float64)
bools_at: Callable[[int, int], Bools] = make_array_at(types.boolean)


@jit_inline
def no_floats() -> Floats:
    """An empty array, which may be returned."""
    return floats_at(0, 0)


@jit_inline
def no_bools() -> Bools:
    """An empty mask, which may be returned."""
    return bools_at(0, 0)


@jit_inline
def scratch_floats(size: int) -> Floats:
    """Numbers for as long as the calling function runs."""
    return stack_floats(size) if size <= STACK_NUMBERS else np.empty(size)


@jit_inline
def scratch_ints(size: int) -> Ints:
    """Integers for as long as the calling function runs."""
    return stack_ints(size) if size <= STACK_NUMBERS else np.empty(size, np.int64)


def make_draws(rng: Any, count: int) -> Ints:
    """The array for the draws of a ticket; count: at most as many as the record has columns."""
    raise NotImplementedError("compiled code only")


def make_probabilities(rng: Any, count: int) -> Floats:
    """The array for the probabilities of the draws of a ticket; count: likewise."""
    raise NotImplementedError("compiled code only")


@overload(make_draws, **INLINED)  # type: ignore[untyped-decorator]
def choose_draws(rng: Any, count: Any) -> Any:
    if rng.instance_class is LoopKey:
        return lambda rng, count: ints_at(rng.draws_at, count)
    return lambda rng, count: np.empty(count, np.int64)


@overload(make_probabilities, **INLINED)  # type: ignore[untyped-decorator]
def choose_probabilities(rng: Any, count: Any) -> Any:
    if rng.instance_class is LoopKey:
        return lambda rng, count: floats_at(rng.probabilities_at, count)
    return lambda rng, count: np.empty(count)
