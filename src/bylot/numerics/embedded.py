"""Functions inside their callers, and rare cases outside of them.

A call copies every field of its arguments, each array of a rule and a state by itself: some hundred
numbers, which takes longer than the work of a round. Neither changes any result.
"""

from typing import Any

import numba
from numba.core.compiler_machinery import register_pass

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


def compile_linked(function: FunctionT, compiler: type[LinkedCompiler]) -> FunctionT:
    """Compile a function for compiled callers with this compiler."""
    compiled = CompiledFunction(function)
    compiled.linked = numba.jit(**{**LINKED_OPTIONS, "pipeline_class": compiler})(function)
    return compiled  # type: ignore[return-value]


def jit_embedded(function: FunctionT) -> FunctionT:
    """Compile a function into the machine code of each of its compiled callers.

    Unlike `jit_inline`, which repeats the source, it is typed once, and keeps all writes. (The
    option forceinline of numba would hold for all that the function calls, too.)
    """
    return compile_linked(function, EmbeddedCompiler)


def jit_apart(function: FunctionT) -> FunctionT:
    """Compile a function for rare cases once, apart from its callers.

    The compiler would inline it, as it counts the many fields that a call would copy. That makes
    hot functions large, which takes long to compile.
    """
    return compile_linked(function, ApartCompiler)
