"""Runs golden plays, or tests, with compiled code as the plain Python that it is written in.

    python tests/plain_python.py hour tangent
    python tests/plain_python.py tests/test_limit_ledger.py -k tenants

The first plays those golden plays with a word of these in their names, and says which of them are
not as recorded. Nothing is compiled, so a change can be tried at once; a play takes a second or
two. The bits are those of compiled code in most plays. Where they are not (numpy sorts equal values
in another order, for example), compare with the same run of the commit before.
"""

import ctypes
import ctypes.util
import math
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

GENERIC: dict[Any, Any] = {}
"""Functions whose body is chosen by the type of their first argument, with what chooses it."""


class Intrinsic:
    """Stands for a function of machine instructions until `INSTRUCTIONS` replaces it."""

    def __init__(self, emit: Any, **options: Any) -> None:
        self.emit = emit


def note_overload(generic: Any, **options: Any) -> Callable[[Any], Any]:
    """Note what chooses the body of a function."""

    def note(choose: Any) -> Any:
        GENERIC[generic] = choose
        return choose

    return note


def make_dispatcher(generic: Any) -> Callable[..., Any]:
    """A function that runs the body which compiled code would choose."""
    bodies: dict[type, Any] = {}

    def dispatch(*given: Any) -> Any:
        kind = type(given[0])
        if kind not in bodies:
            chosen = SimpleNamespace(instance_class=kind)
            bodies[kind] = GENERIC[generic](chosen, *[None] * (len(given) - 1))
        return bodies[kind](*given)

    return dispatch


def find_array(address: int, size: int, kind: Any) -> Any:
    """The array at an address."""
    if size == 0:
        return np.empty(0, kind)
    memory = (ctypes.c_char * (8 * size)).from_address(address)
    return np.frombuffer(memoryview(memory), kind)


def load_lanes(values: Any, start: int, fill: float) -> Any:
    """Eight numbers from a place on, the fill beyond the end."""
    found = np.full(8, fill)
    part = values[start : start + 8]
    found[: part.size] = part
    return found


def reduce_lanes(pair: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Reduce eight lanes to four, to two, to one."""

    def reduce(v: Any) -> Any:
        while v.size > 1:
            v = pair(v[: v.size // 2], v[v.size // 2 :])
        return v[0]

    return reduce


def find_bits(mask: Any) -> int:
    """An integer whose bit k is that of lane k."""
    return int(sum(1 << k for k, bit in enumerate(mask.tolist()) if bit))


def multiply_wide(a: Any, b: Any) -> tuple[Any, Any]:
    product = int(a) * int(b)
    return np.uint64(product >> 64), np.uint64(product & 0xFFFFFFFFFFFFFFFF)


def store_inside(values: Any, start: int, lanes: Any) -> None:
    values[start : start + 8] = lanes


INSTRUCTIONS: dict[str, Any] = {
    "stack_floats": np.empty,
    "stack_ints": lambda size: np.empty(size, np.int64),
    "ints_at": lambda address, size: find_array(address, size, np.int64),
    "floats_at": lambda address, size: find_array(address, size, np.float64),
    "bools_at": lambda address, size: np.empty(size, np.bool_),
    "borrow_row": lambda values, x: values[x],
    "splat": lambda x: np.full(8, x),
    "load_lanes": load_lanes,
    "load_inside": lambda values, start: values[start : start + 8].copy(),
    "store_inside": store_inside,
    "keep_lanes": lambda p, x: np.where(p >= 0, x, 0.0),
    "max_by_lane": lambda v, w: np.where(v > w, v, w),
    "min_by_lane": lambda v, w: np.where(v < w, v, w),
    "mask_at_most": lambda v, x: find_bits(v <= x),
    "count_bits": lambda bits: int(bits).bit_count(),
    "sum_lanes": reduce_lanes(np.add),
    "max_lanes": reduce_lanes(lambda v, w: np.where(v > w, v, w)),
    "min_lanes": reduce_lanes(lambda v, w: np.where(v < w, v, w)),
    "multiply_wide": multiply_wide,
}


LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
LIBM.lgamma.restype = ctypes.c_double
LIBM.lgamma.argtypes = [ctypes.c_double]
SCALAR_MODULES = ("bylot.policies.base",)  # whose compiled code calls numpy with one number


class CompiledMath:
    """The module `math` as compiled code has it: no function raises an error."""

    def __getattr__(self, name: str) -> Any:
        return getattr(math, name)

    @staticmethod
    def log(x: float) -> float:
        return math.log(x) if x > 0.0 else float(np.log(x))

    @staticmethod
    def exp(x: float) -> float:
        return math.exp(x) if x < 700.0 else float(np.exp(x))

    @staticmethod
    def sqrt(x: float) -> float:
        return math.sqrt(x) if x >= 0.0 else math.nan


class CompiledGamma(CompiledMath):
    """The same with the logarithm of gamma of the C library; Python has one of its own."""

    @staticmethod
    def lgamma(x: float) -> float:
        return float(LIBM.lgamma(x))


class CompiledNumpy:
    """The module `numpy` as compiled code has it: functions of one number are those of `math`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def exp(x: Any) -> Any:
        return np.exp(x) if isinstance(x, np.ndarray) else CompiledMath.exp(x)


def convert_result(result: Any) -> Any:
    """What Python gets from compiled code: its own numbers."""
    if isinstance(result, tuple):
        return tuple(convert_result(part) for part in result)
    return result.item() if isinstance(result, np.generic) else result


def wrap_entry(entry: Any) -> Any:
    """Return the results of an entry as compiled code would."""

    def run(*given: Any) -> Any:
        return convert_result(entry(*given))

    run.py_func = run  # type: ignore[attr-defined]
    return run


class Everything:
    """A set that contains every rule."""

    def __contains__(self, rule: object) -> bool:
        return True

    def add(self, rule: object) -> None:
        """It is in already."""


def run_as_python() -> None:
    """Import bylot, and replace what only compiled code has; no other import may come before."""
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    from numba import extending

    extending.intrinsic = Intrinsic
    extending.overload = note_overload
    from bylot.numerics import jit

    def leave(function: Any, **options: Any) -> Any:
        function.py_func = function
        return function

    jit.jit_entry = leave
    from bylot import simulation
    from bylot.policies import POLICY_CLASSES, base, compiled_handle

    list(POLICY_CLASSES.values())  # imports the modules of all policies
    assert hasattr(simulation.play_rounds, "py_func"), "it was imported before"

    dispatchers = {generic: make_dispatcher(generic) for generic in GENERIC}
    for module in (base, compiled_handle):
        vars(module)["PLAIN_RULES"] = Everything()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("bylot", "bylot_paper"):
            for field, value in list(vars(module).items()):
                if value is math:
                    is_compiled = name == "bylot.numerics.iid_sets"
                    setattr(module, field, CompiledGamma() if is_compiled else CompiledMath())
                elif value is np and name in SCALAR_MODULES:
                    setattr(module, field, CompiledNumpy())
                elif isinstance(value, np.dtype) and value.names:
                    setattr(module, field, np.dtype((np.record, value)))
                elif isinstance(value, Intrinsic):
                    setattr(module, field, INSTRUCTIONS[field])
                elif callable(value) and getattr(value, "__hash__", None) and value in dispatchers:
                    setattr(module, field, dispatchers[value])
    functions = compiled_handle.HANDLE_FUNCTIONS
    for name, (entry, others) in functions.items():
        functions[name] = wrap_entry(entry), others
    np.seterr(all="ignore")


def compare_plays(words: list[str]) -> int:
    """Play golden plays, and return how many of them are not as recorded."""
    import test_golden
    from golden_scenes import play_scene

    different = 0
    for name, play in test_golden.PLAYS.items():
        if test_golden.has_word(name, words):
            golden = test_golden.read_golden(name)
            found = play_scene(*play)
            parts = [part for part in golden if found[part] != golden[part]]
            print(f"{name}: {', '.join(parts) or 'equal'}", flush=True)
            different += bool(parts)
    return different


if __name__ == "__main__":
    run_as_python()
    given = sys.argv[1:]
    if given and given[0].endswith(".py"):
        import pytest

        sys.exit(pytest.main(["-n", "0", "-q", *given]))
    sys.exit(bool(compare_plays(given)))
