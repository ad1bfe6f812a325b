"""What Python calls of the limits: compiled once, for every policy and problem.

numba's dispatcher finds out the types of all arguments in every call, which takes longer than most
of the work. Here they are known: callers must pass contiguous arrays of the types that an entry
names.
"""

from collections.abc import Callable
from typing import Any

from numba import types

from bylot.limits import guard, ledger, request, settlement
from bylot.limits.records import Limits
from bylot.numerics.jit import jit_entry

INT = types.int64
FLOAT = types.float64
BOOL = types.boolean
INTS, FLOATS, BOOLS = (types.Array(kind, 1, "C") for kind in (INT, FLOAT, BOOL))
TABLE = types.Array(FLOAT, 2, "C")


class Entry:
    """A compiled function of limits, and of arguments of other types."""

    def __init__(self, function: Callable[..., Any], *others: Any) -> None:
        self.function: Any = jit_entry(getattr(function, "py_func", function))
        self.others = others
        self.compiled: Any = None

    def compile(self, limits: Any) -> None:
        """Compile it, if that was not done before."""
        if self.compiled is None:
            self.compiled = self.function.compile((limits._numba_type_, *self.others))

    def __call__(self, limits: Limits, *given: Any) -> Any:
        self.compile(limits)
        return self.compiled(limits, *given)


find_places = Entry(ledger.find_places, BOOLS)
find_spent = Entry(guard.find_spent_limit, INT, BOOLS)
note_refused = Entry(request.note_refused_requests, INT, INT)
settle_calls = Entry(settlement.settle_calls, INT, INTS, FLOATS, TABLE, FLOATS)
correct_spend = Entry(settlement.correct_spend, INT, FLOATS)
release_calls = Entry(settlement.release_calls, INT, INTS, INTS, FLOATS)
cancel_round = Entry(settlement.cancel_round, INT, FLOATS, INTS, FLOATS, BOOL)
exchange_call = Entry(settlement.exchange_call, INT, INT, INT, FLOATS)


def compile_for_requests(limits: Limits) -> None:
    """Compile what requests call under limits of windows, keys or contexts, so that none waits
    for it.
    """
    for entry in (find_places, find_spent, note_refused):
        entry.compile(limits)
