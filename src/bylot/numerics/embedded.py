"""Functions inside their callers, and rare cases outside of them.

A call copies every field of its arguments, each array of a rule and a state by itself: some hundred
numbers, which takes longer than the work of a round. Neither changes any result.
"""

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


def make_options(attribute: str) -> dict[str, object]:
    """Return the options of functions that LLVM is told this about."""

    class MarkedLower(BorrowingLower):
        def setup_function(self, fndesc: object) -> None:
            super().setup_function(fndesc)
            self.function.attributes.add(attribute)

    @register_pass(mutates_CFG=True, analysis_only=False)
    class MarkedLowering(LinkedLowering):
        _name = f"{attribute}_lowering"
        lowering_class = MarkedLower

    class MarkedCompiler(LinkedCompiler):
        last_step = MarkedLowering

    return {**LINKED_OPTIONS, "pipeline_class": MarkedCompiler}


EMBEDDED_OPTIONS = make_options("alwaysinline")
APART_OPTIONS = make_options("noinline")


def jit_embedded(function: FunctionT) -> FunctionT:
    """Compile a function into the machine code of each of its compiled callers.

    Unlike `jit_inline`, which repeats the source, it is typed once, and keeps all writes. (The
    option forceinline of numba would hold for all that the function calls, too.)
    """
    compiled = CompiledFunction(function)
    compiled.linked = numba.jit(**EMBEDDED_OPTIONS)(function)
    return compiled  # type: ignore[return-value]


def jit_apart(function: FunctionT) -> FunctionT:
    """Compile a function for rare cases once, apart from its callers.

    The compiler would inline it, as it counts the many fields that a call would copy. That makes
    hot functions large, which takes long to compile.
    """
    compiled = CompiledFunction(function)
    compiled.linked = numba.jit(**APART_OPTIONS)(function)
    return compiled  # type: ignore[return-value]
