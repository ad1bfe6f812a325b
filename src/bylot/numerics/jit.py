"""The decorators that compile numerics: `jit`, `jit_scalar`, `jit_inline` and `jit_entry`.

numba compiles every function to machine code of its own, and all that it calls once more into it.
Here only entries, the functions that Python calls, become machine code. What they call is kept as
intermediate code, linked into the entry and optimised once, as a part of it.
"""

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba import _dynfunc, types
from numba.core import event, ir
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering
from numba.experimental import structref
from numba.np.arrayobj import _getitem_array_generic

from bylot._text import announce_if_slow
from bylot.numerics.compile_cache import make_cache

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The intermediate code of one function, for the entries that it is linked into."""

    def finalize(self) -> None:
        """Neither optimise it nor make machine code of it: the entries do."""
        self._finalize_dynamic_globals()
        self._finalized = True

    def _optimize_functions(self, ll_module: Any) -> None:
        """As numba does, but only functions that have a body."""
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:
                manager, builder = self._codegen._function_pass_manager()
                manager.run(function, builder)

    def list_libraries(self) -> list[Any]:
        """List it and all libraries that its code needs."""
        return list(dict.fromkeys([self, *self._linking_libraries]))


class BorrowingLower(Lower):  # type: ignore[misc]
    """Counts no references of arguments, nor of what is taken out of tuples in them, nor of views.

    The caller holds them until the function returns. numba would count every array of a rule and a
    state, a hundred of them, in every call and at every access, which took longer than the work.
    """

    def pre_lower(self) -> None:
        """Find the variables that are borrowed: each is assigned once."""
        super().pre_lower()
        assigned: dict[str, list[Any]] = {}
        for block in self.blocks.values():
            for one in block.find_insts(ir.Assign):
                assigned.setdefault(one.target.name, []).append(one.value)
        once = {name: values[0] for name, values in assigned.items() if len(values) == 1}
        self.counted, self.borrowed, size = True, set[str](), -1
        while len(self.borrowed) > size:
            size = len(self.borrowed)
            self.borrowed |= {name for name, value in once.items() if self.borrows(name, value)}

    def borrows(self, name: str, value: Any) -> bool:
        """Is it an argument, a copy of a borrowed variable, a field of one, or a view of one?"""
        resty = self.typeof(name)
        if isinstance(value, ir.Arg):
            return True
        if isinstance(value, ir.Var):
            return value.name in self.borrowed and self.typeof(value.name) == resty
        if not isinstance(value, ir.Expr) or value.op not in ("getattr", "getitem"):
            return False
        owner = value.value.name
        if value.op == "getattr":
            return owner in self.borrowed and value.attr in list_fields(self.typeof(owner))
        arrays = isinstance(self.typeof(owner), types.Array), isinstance(resty, types.Array)
        index = self.typeof(value.index.name)
        basic = isinstance(index, types.Integer | types.SliceType)  # another one would copy
        return owner in self.borrowed and all(arrays) and basic

    def lower_inst(self, inst: Any) -> None:
        """Neither count a borrowed variable where it is assigned nor where it is deleted."""
        name = inst.target.name if isinstance(inst, ir.Assign) else getattr(inst, "value", None)
        self.counted = not (isinstance(inst, ir.Assign | ir.Del) and name in self.borrowed)
        super().lower_inst(inst)

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Take a field or a view without counting it."""
        if self.counted:
            return super().lower_expr(resty, expr)
        value, kind = self.loadvar(expr.value.name), self.typeof(expr.value.name)
        if expr.op == "getitem":
            array = self.context.make_array(kind)(self.context, self.builder, value)
            index = [self.typeof(expr.index.name)], [self.loadvar(expr.index.name)]
            return _getitem_array_generic(self.context, self.builder, resty, kind, array, *index)
        if isinstance(kind, types.StructRef):
            data = structref._Utils(self.context, self.builder, kind).get_data_struct(value)
            return getattr(data, expr.attr)
        return self.builder.extract_value(value, kind.fields.index(expr.attr))

    def incref(self, typ: Any, val: Any) -> None:
        if self.counted:
            super().incref(typ, val)

    def decref(self, typ: Any, val: Any) -> None:
        if self.counted:
            super().decref(typ, val)


def list_fields(kind: Any) -> tuple[str, ...]:
    """The fields of a type of tuples or structures."""
    if isinstance(kind, types.BaseNamedTuple):
        return tuple(kind.fields)
    return tuple(kind.field_dict) if isinstance(kind, types.StructRef) else ()


@register_pass(mutates_CFG=True, analysis_only=False)
class EntryLowering(NativeLowering):  # type: ignore[misc]
    """The last step of compilation for a function that Python calls."""

    _name = "entry_lowering"
    lowering_class = BorrowingLower


@register_pass(mutates_CFG=True, analysis_only=False)
class LinkedLowering(NativeLowering):  # type: ignore[misc]
    """The last step of compilation for a function that only compiled code calls."""

    _name = "linked_lowering"
    lowering_class = BorrowingLower

    def run_pass(self, state: Any) -> bool:
        """Write intermediate code, and register it under a function that Python must not call."""
        target, name = state.targetctx, state.func_id.func_qualname
        state.library = LinkedLibrary(target.codegen(), name)
        state.flags.no_compile = True
        super().run_pass(state)
        state.library.finalize()
        done = state.cr
        module = done.fndesc.lookup_module()
        key = _dynfunc.make_function(module, name, "", 0, done.env, (state.library,))
        target.insert_user_function(key, done.fndesc, state.library.list_libraries())
        state.cr = done._replace(cfunc=key)
        return True


class NoCode(Lower):  # type: ignore[misc]
    """Writes no intermediate code."""

    call_helper = None

    def lower(self) -> None:
        """Leave the function empty."""


@register_pass(mutates_CFG=True, analysis_only=False)
class InlinedLowering(LinkedLowering):
    """The last step for a function that numba inlines: of it, only the types are needed."""

    _name = "inlined_lowering"
    lowering_class = NoCode


class LinkedCompiler(CompilerBase):  # type: ignore[misc]
    """numba's compiler with another last step."""

    last_step: ClassVar[type[NativeLowering]] = LinkedLowering

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (self.last_step if one is NativeLowering else one, text)
            for one, text in pipeline.passes
        ]
        pipeline.finalize()
        return [pipeline]


class InlinedCompiler(LinkedCompiler):
    """numba's compiler up to the types."""

    last_step = InlinedLowering


class EntryCompiler(LinkedCompiler):
    """numba's compiler, of machine code."""

    last_step = EntryLowering


STRICT_OPTIONS = {"nopython": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""No Python fallback, no GIL, strict IEEE arithmetic.

Strict arithmetic (no fastmath) makes the simulator's loop and the router's single calls agree to
the last bit, whatever the compiler inlines.
"""

LINKED_OPTIONS = {**STRICT_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": LinkedCompiler}
"""For functions that only compiled code calls."""

INLINED_OPTIONS = {**LINKED_OPTIONS, "pipeline_class": InlinedCompiler}
"""For overloads that numba inlines."""


class CompiledFunction:
    """A compiled function: intermediate code for compiled callers, and an entry for Python.

    Each is made when it is first needed.
    """

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.entry(*args, **named)

    def __reduce__(self) -> str:
        return str(self.py_func.__qualname__)

    @functools.cached_property
    def entry(self) -> Any:
        """The function that Python calls."""
        return jit_entry(self.py_func)

    @functools.cached_property
    def linked(self) -> Any:
        """The function that compiled code calls."""
        return numba.jit(**LINKED_OPTIONS)(self.py_func)

    @property
    def _numba_type_(self) -> Any:
        """How numba finds out what a global is."""
        return self.linked._numba_type_


def jit(function: FunctionT) -> FunctionT:
    """Compile a function that compiled code calls, and Python from time to time."""
    return CompiledFunction(function)  # type: ignore[return-value]


def jit_scalar(function: FunctionT) -> FunctionT:
    """Compile a function of a few operations for compiled callers; Python runs its source."""
    compiled = CompiledFunction(function)
    compiled.entry = function
    return compiled  # type: ignore[return-value]


def jit_entry(function: FunctionT, **options: str) -> FunctionT:
    """Compile a function that Python calls often; its machine code is cached on disk."""
    entry = numba.jit(**STRICT_OPTIONS, pipeline_class=EntryCompiler, **options)(function)
    cache = make_cache(function)
    if cache is not None:
        entry._cache = cache
    return entry  # type: ignore[no-any-return]


def jit_inline(function: FunctionT) -> FunctionT:
    """Compile a small function of the hot loop and inline it into its callers.

    A call would copy every field of its arguments, which costs more than the work.
    """
    return jit_entry(function, inline="always")


class CompilationListener(event.Listener):  # type: ignore[misc]
    """Calls a function when numba first compiles something."""

    def __init__(self, on_first: Callable[[], Any]) -> None:
        self.on_first, self.begun = on_first, False

    def on_start(self, event: Any) -> None:
        if not self.begun:
            self.begun = True
            self.on_first()

    def on_end(self, event: Any) -> None:
        """Wait for the end of the block, not of one function."""


@contextmanager
def announce_compilation(name: str, after_s: float = 3.0) -> Iterator[None]:
    """Print what the user is waiting for, if this block compiles and takes longer than this."""
    wait = announce_if_slow(f"... compiling {name}, once for this version on this machine", after_s)
    with ExitStack() as stack:

        def begin() -> None:
            stack.enter_context(wait)
            if gc.isenabled():  # compilation makes many objects that live, and hardly any cycles
                gc.disable()
                stack.callback(gc.enable)

        with event.install_listener("numba:compile", CompilationListener(begin)):
            yield
