"""Reading a problem: each part of the user's input becomes a checked value, or an error.

The error says what was given, what was wanted and what to do; whether the limits can be kept
together is another question (feasibility).
"""

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bylot.errors import InfeasibleLimits, ProblemError
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.problem.limits import (
    LOWER,
    MAX_COST,
    MIN_POSITIVE_COST,
    UPPER,
    Limit,
    Share,
    float_from_real,
)

ArrayT = TypeVar("ArrayT", Floats, Ints, Bools)


def check_experts(given: Iterable[str]) -> tuple[str, ...]:
    """At least two different, non-empty names."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ProblemError(
            f"experts={given!r} is not a list of names; write experts=['ann', 'bob', ...]"
        )
    names = tuple(given)
    for i, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise ProblemError(
                f"experts[{i}]={name!r} is not a name; give a non-empty string for each expert"
            )
    if len(names) < 2:
        raise ProblemError(
            f"experts={list(names)!r} leaves nothing to choose; give at least two experts"
        )
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if first.setdefault(name, i) != i:
            raise ProblemError(
                f"experts[{first[name]}] and experts[{i}] are both called {name!r}; "
                "give each expert a name of its own"
            )
    return names


def check_costs(names: tuple[str, ...], given: Mapping[str, object]) -> dict[str, Floats]:
    """For each cost name, one finite number of 0 or more for each expert."""
    if not isinstance(given, Mapping):
        raise ProblemError(
            f"costs={given!r} is not a mapping from cost names to one number per expert; "
            "write costs={'usd': [...]}, or costs={} if nothing is limited"
        )
    return {
        _check_cost_name(name): _check_cost_row(name, row, names) for name, row in given.items()
    }


def check_limits(given: Iterable[Limit]) -> tuple[Limit, ...]:
    """Limits, whatever sequence they come in."""
    if isinstance(given, Limit) or not isinstance(given, Iterable):
        raise ProblemError(
            f"limits={given} is not a list of limits; write limits=[at_most('usd', 2.0)]"
        )
    promises = tuple(given)
    for j, limit in enumerate(promises):
        if not isinstance(limit, Limit):
            raise ProblemError(
                f"limits[{j}]={limit!r} is not a limit; make it with at_most or at_least"
            )
    return promises


def add_share_costs(
    names: tuple[str, ...], rows: dict[str, Floats], promises: tuple[Limit, ...]
) -> dict[str, Floats]:
    """The costs, together with the indicator cost of each share that a limit is on."""
    rows, seen = dict(rows), dict[str, Share]()
    for limit in promises:
        if isinstance(limit.cost, Share):
            group, row = limit.cost.group, _share_indicator(limit.cost, names)
            if not np.array_equal(rows.setdefault(group, row), row):
                other = f"share of {list(seen[group].members)}" if group in seen else "cost"
                raise ProblemError(
                    f"share {group!r} of {list(limit.cost.members)} has the name of another "
                    f"{other}; give one of them another name"
                )
            seen[group] = limit.cost
    return rows


def check_limit_consistency(promises: tuple[Limit, ...], rows: Mapping[str, Floats]) -> None:
    """Each limit is on a known cost, one limit a side, the lower one not above the upper one."""
    sides: dict[tuple[str, int], Limit] = {}
    for limit in promises:
        check_cost_is_known(limit, rows)
        if (other := sides.setdefault(limit.key, limit)) is not limit:
            tighter = min(limit, other, key=lambda one: -one.sign * one.bound)
            raise ProblemError(
                f"{other} and {limit} limit the same cost on the same side; "
                f"one limit a side is wanted, keep the tighter: {tighter}"
            )
    for (name, sign), limit in sides.items():
        upper = sides.get((name, UPPER))
        if sign == LOWER and upper and limit.bound > upper.bound:
            raise InfeasibleLimits(
                f"{limit} is above {upper}, so no average can keep both",
                limits=(limit, upper),
                remedy="swap the two bounds, or lower the first",
            )


def check_cost_is_known(limit: Limit, rows: Mapping[str, Floats]) -> None:
    """The limit is on a cost that there is."""
    if limit.name not in rows:
        raise ProblemError(
            f"{limit} is on an unknown cost; {suggest_known_name(limit.name, list(rows), 'costs')}"
        )


MAX_DRAWS_PER_REQUEST = 10_000


def check_draws(given: object) -> int:
    """The number M of draws a request: an integer of at least 1."""
    if isinstance(given, bool | np.bool_) or not isinstance(given, Integral):
        raise ProblemError(
            f"draws={given!r} is not an integer; give the number of experts to draw per request"
        )
    if given < 1:
        raise ProblemError(f"draws={given} asks nobody; draw at least 1 expert per request")
    number = int(given)
    if number > MAX_DRAWS_PER_REQUEST:
        raise ProblemError(
            f"draws={given} is no small panel; draw at most {MAX_DRAWS_PER_REQUEST} a request"
        )
    return number


def check_floor(given: object, size: int) -> float:
    """The least probability of an expert: above 0, at most 1/K; 1/(10 K) if not given."""
    if given is None:
        return 1 / (10 * size)
    value = float_from_real(given)
    if value is None:
        raise ProblemError(f"floor={given!r} is not a number; leave it out for 1/(10 K)")
    if not value > 0:
        raise ProblemError(
            f"floor={given!r} is not positive, but rewards are divided by the odds of the experts "
            f"they came from, which must not vanish; use a floor such as {1 / (10 * size)!r}"
        )
    if value > 1 / size:
        raise ProblemError(
            f"floor={given!r} for each of {size} experts is {value * size:.6g} in all, but "
            f"probabilities sum to 1; use at most 1/{size} = {1 / size!r}"
        )
    return value


def check_period(given: object) -> int | None:
    """A number of requests, at least 1, or None."""
    if given is None:
        return None
    whole = isinstance(given, Integral) and not isinstance(given, bool | np.bool_)
    if not whole or not 1 <= int(str(given)) < 2**62:
        raise ProblemError(
            f"period={given!r} is not a number of requests; give 1 or more, or leave it out"
        )
    return int(str(given))


def _check_cost_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ProblemError(
            f"a cost is called {name!r}; give each cost a non-empty string as its name"
        )
    return name


def _check_cost_row(name: str, given: object, names: tuple[str, ...]) -> Floats:
    """One cost of all experts; True counts as 1, as in an indicator of a group."""
    row = _row_from_input(name, given, names)
    for i in np.flatnonzero((row != 0) & ~((row >= MIN_POSITIVE_COST) & (row <= MAX_COST))):
        if row[i] < 0:
            advice = "but costs are never negative; give a gain as a cost of its own"
        elif math.isfinite(row[i]):
            advice = (
                f"neither 0 nor between {MIN_POSITIVE_COST} and {MAX_COST}; measure in another unit"
            )
        else:
            advice = "not finite; give what one consultation costs, or leave that expert out"
        raise ProblemError(f"cost {name!r} of expert {names[i]!r} is {row[i]}, {advice}")
    return lock_array(row + 0.0)  # a copy of our own, without -0.0


def _row_from_input(name: str, given: object, names: tuple[str, ...]) -> Floats:
    if isinstance(given, Mapping):
        raise ProblemError(
            f"cost {name!r} is a mapping, but a sequence in the order of the experts is wanted; "
            "write [prices[expert] for expert in experts]"
        )
    values = _array_from_input(given)
    if values is None or values.shape != (len(names),):
        shape = "uneven parts" if values is None else f"shape {values.shape}"
        raise ProblemError(
            f"cost {name!r} has {shape}, but there are {len(names)} experts; "
            "give one number per expert"
        )
    if values.dtype != object:
        return values.astype(np.float64)
    row = [float(x) if isinstance(x, bool | np.bool_) else float_from_real(x) for x in values]
    if None in row:
        i = row.index(None)
        raise ProblemError(
            f"cost {name!r} of expert {names[i]!r} is {values[i]!r}, which is not a number; "
            "give a number of 0 or more"
        )
    return np.array(row, dtype=np.float64)


def _array_from_input(given: object) -> npt.NDArray[Any] | None:
    """An array of numbers as it is, all else as objects: in [1.0, 'two'], NumPy would make a text
    of the 1.0 as well. None if its parts are uneven.
    """
    if isinstance(given, np.ndarray) and given.dtype.kind in "biuf":
        return given
    try:
        return np.asarray(given, dtype=object)
    except ValueError:
        return None


def _share_indicator(share: Share, names: tuple[str, ...]) -> Floats:
    pool = set(names)
    for member in share.members:
        if member not in pool:
            raise ProblemError(
                f"share {share.group!r} has the unknown member {member!r}; "
                f"{suggest_known_name(member, names, 'experts')}"
            )
    members = set(share.members)
    return lock_array(np.array([float(name in members) for name in names]))


def lock_array(array: ArrayT) -> ArrayT:
    """The array itself, which nobody can change any more."""
    array.setflags(write=False)
    return array


def suggest_known_name(
    wrong: object, known: Sequence[str], what: str, *, can_add: bool = True
) -> str:
    """Write the remedy for an unknown name: the name that was meant, or the names there are."""
    close = difflib.get_close_matches(str(wrong), known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    if not known:
        return f"there are no {what}; add it to {what}"
    shown = ", ".join(map(repr, known[:8])) + (", ..." if len(known) > 8 else "")
    return f"the {what} are {shown}; use one of these{', or add it' if can_add else ''}"
