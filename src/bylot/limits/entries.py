"""What Python calls of the limits: compiled once, for every policy and problem.

numba's dispatcher finds out the types of all arguments in every call, which takes longer than most
of the work. Here they are known: callers must pass contiguous arrays of the types that `takes`
names.
"""

from collections.abc import Callable
from typing import Any

from numba import types

from bylot.limits import guard, ledger, settlement
from bylot.limits.records import Limits
from bylot.limits.windows import count_requests
from bylot.numerics.jit import Bools, Floats, Ints, jit_entry

INT = types.int64
FLOAT = types.float64
BOOL = types.boolean
INTS, FLOATS, BOOLS = (types.Array(kind, 1, "C") for kind in (INT, FLOAT, BOOL))
TABLE = types.Array(FLOAT, 2, "C")


class Entry:
    """A compiled function of limits."""

    def __init__(self, function: Callable[..., Any], others: tuple[Any, ...]) -> None:
        self.function = jit_entry(function)
        self.others = others
        self.compiled: Any = None

    def compile(self, limits: Limits) -> None:
        """Compile it, if that was not done before."""
        if self.compiled is None:
            self.compiled = self.function.compile((limits._numba_type_, *self.others))  # type: ignore[attr-defined]

    def __call__(self, limits: Limits, *given: Any) -> Any:
        self.compile(limits)
        return self.compiled(limits, *given)


def takes(*others: Any) -> Callable[[Callable[..., Any]], Entry]:
    """Compile a function of limits and of arguments of these types."""
    return lambda function: Entry(function, others)


@takes(BOOLS)
def find_places(limits: Limits, counted: Bools) -> None:
    """Find the ledgers of a request (`ledger.find_places`)."""
    ledger.find_places(limits, counted)


@takes(INT, BOOLS)
def find_spent(limits: Limits, at: int, available: Bools) -> int:
    """Return the budget that leaves no panel (`guard.find_spent_limit`)."""
    return guard.find_spent_limit(limits, at, available)


@takes(INT, INT)
def note_refused(limits: Limits, at: int, requests: int) -> None:
    """Count requests that were refused, which are traffic too."""
    count_requests(limits, at, float(requests))


@takes(INT, INTS, FLOATS, TABLE, FLOATS)
def settle_calls(
    limits: Limits, t: int, members: Ints, more: Floats, spend: Floats, held: Floats
) -> None:
    """Book and learn what decision t cost (`settlement.settle_calls`)."""
    settlement.settle_calls(limits, t, members, more, spend, held)


@takes(INT, FLOATS)
def correct_spend(limits: Limits, t: int, more: Floats) -> None:
    """Book what decision t cost beyond what is booked (`settlement.correct_spend`)."""
    settlement.correct_spend(limits, t, more)


@takes(INT, INTS, INTS, FLOATS)
def release_calls(limits: Limits, t: int, rows: Ints, members: Ints, held: Floats) -> None:
    """Wait no longer for a bill of decision t (`settlement.release_calls`)."""
    settlement.release_calls(limits, t, rows, members, held)


@takes(INT, FLOATS, INTS, FLOATS, BOOL)
def cancel_round(
    limits: Limits, t: int, less: Floats, members: Ints, held: Floats, in_period: bool
) -> None:
    """Undo decision t (`settlement.cancel_round`)."""
    settlement.cancel_round(limits, t, less, members, held, in_period)


@takes(INT, INT, INT, FLOATS)
def exchange_call(limits: Limits, t: int, failed: int, added: int, more: Floats) -> None:
    """Replace a member of decision t (`settlement.exchange_call`)."""
    settlement.exchange_call(limits, t, failed, added, more)


def compile_for_requests(limits: Limits) -> None:
    """Compile what requests call under limits of windows, keys or contexts, so that none waits
    for it.
    """
    for entry in (find_places, find_spent, note_refused):
        entry.compile(limits)
