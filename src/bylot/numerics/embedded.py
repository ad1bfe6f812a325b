"""What keeps calls and arrays of the hot loop cheap: functions inside their callers, rare cases
outside of them, rows that are borrowed, and small arrays on the stack.

A call copies every field of its arguments, each array of a rule and a state by itself: some hundred
numbers, which takes longer than the work of a round. So does counting references of views, and
memory for a few numbers. All of this is for compiled code: the results are the same.
"""

from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.core.compiler_machinery import register_pass
from numba.extending import intrinsic
from numba.np import arrayobj

from bylot.numerics.jit import (
    LINKED_OPTIONS,
    BorrowingLower,
    CompiledFunction,
    FunctionT,
    LinkedCompiler,
    LinkedLowering,
)


class EmbeddedLower(BorrowingLower):
    """Writes a function that is always inlined."""

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        self.function.attributes.add("alwaysinline")


class ApartLower(BorrowingLower):
    """Writes a function that is never inlined."""

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        self.function.attributes.add("noinline")


@register_pass(mutates_CFG=True, analysis_only=False)
class EmbeddedLowering(LinkedLowering):
    """The last step of compilation for a function that is always inlined."""

    _name = "embedded_lowering"
    lowering_class = EmbeddedLower


@register_pass(mutates_CFG=True, analysis_only=False)
class ApartLowering(LinkedLowering):
    """The last step of compilation for a function that is never inlined."""

    _name = "apart_lowering"
    lowering_class = ApartLower


class EmbeddedCompiler(LinkedCompiler):
    """numba's compiler, of functions that are always inlined."""

    last_step = EmbeddedLowering


class ApartCompiler(LinkedCompiler):
    """numba's compiler, of functions that are never inlined."""

    last_step = ApartLowering


def jit_embedded(function: FunctionT) -> FunctionT:
    """Compile a function into the machine code of each of its compiled callers.

    Unlike `jit_inline`, which repeats the source, it is typed once, and numba drops no writes. (The
    option forceinline of numba would hold for all that the function calls, too.)
    """
    compiled = CompiledFunction(function)
    options = {**LINKED_OPTIONS, "pipeline_class": EmbeddedCompiler}
    compiled.linked = numba.jit(**options)(function)
    return compiled  # type: ignore[return-value]


def jit_apart(function: FunctionT) -> FunctionT:
    """Compile a function for rare cases once, apart from its callers.

    The compiler would inline it, as it counts the many fields that a call would copy. That makes
    hot functions large, which takes long to compile.
    """
    compiled = CompiledFunction(function)
    options = {**LINKED_OPTIONS, "pipeline_class": ApartCompiler}
    compiled.linked = numba.jit(**options)(function)
    return compiled  # type: ignore[return-value]


def make_uncounted(
    target: Any, builder: Any, kind: Any, data: Any, shape: Any, strides: Any
) -> Any:
    """Emit an array over memory that somebody else owns."""
    array = arrayobj.make_array(kind)(target, builder)
    size = target.get_abi_sizeof(target.get_data_type(kind.dtype))
    itemsize = target.get_constant(types.intp, size)
    arrayobj.populate_array(array, data, shape, strides, itemsize, None)
    return array._getvalue()


def _borrow_row(context: Any, values: Any, x: Any) -> Any:
    if values.layout != "C" or values.ndim < 2:
        return None
    row = types.Array(values.dtype, values.ndim - 1, "C")

    def emit(target: Any, builder: Any, form: Any, given: Any) -> Any:
        array = arrayobj.make_array(values)(target, builder, given[0])
        shape, strides = (
            cgutils.unpack_tuple(builder, one) for one in (array.shape, array.strides)
        )
        zero = target.get_constant(types.intp, 0)
        place = [given[1]] + [zero] * (values.ndim - 1)
        data = cgutils.get_item_pointer(target, builder, values, array, place)
        return make_uncounted(target, builder, row, data, shape[1:], strides[1:])

    return row(values, types.intp), emit


def _make_stack_array(dtype: Any) -> Any:
    kind = types.Array(dtype, 1, "C")

    def typed(context: Any, size: Any) -> Any:
        def emit(target: Any, builder: Any, form: Any, given: Any) -> Any:
            data = builder.alloca(target.get_data_type(dtype), size=given[0])
            data.align = 8
            stride = target.get_constant(types.intp, 8)
            return make_uncounted(target, builder, kind, data, [given[0]], [stride])

        return kind(types.intp), emit

    return intrinsic(typed)


borrow_row: Any = intrinsic(_borrow_row)
"""borrow_row(values, x) is values[x], x >= 0, for use while the caller holds `values`."""

stack_floats: Any = _make_stack_array(types.float64)
"""stack_floats(n) is np.empty(n) until the function returns: for a few numbers, and not to be
returned. Only for functions that are compiled by themselves: a step, or what `jit_inline` repeats
in a loop, would take more of the stack in every round.
"""
stack_ints: Any = _make_stack_array(types.int64)
"""stack_ints(n) is np.empty(n, np.int64), likewise."""
