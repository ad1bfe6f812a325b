"""Validation of a problem: each part of the input becomes a checked value, or raises ProblemError.

Whether the limits can be kept together is another question (`feasibility`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bylot._text import find_similar
from bylot.errors import NOT_GIVEN, InfeasibleLimits, ProblemError
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.problem.derived_costs import DerivedCost, Share, share
from bylot.problem.instants import is_whole
from bylot.problem.limit_input import float_from_real
from bylot.problem.limits import LOWER, MAX_COST, MIN_POSITIVE_COST, UPPER, Limit, LimitKey

PROBLEM_FIELDS = (
    "experts",
    "costs",
    "limits",
    "draws",
    "min_draws",
    "floor",
    "period",
    "max_costs",
    "traffic",
    "groups",
)
MAX_DRAWS_PER_REQUEST = 10_000
MIN_TRAFFIC, MAX_TRAFFIC = 0.001, 1e12  # requests per day
MAX_NAMES_FOR_SUGGESTION = 200  # among more names none is suggested
MAX_OPEN_NAMES_LISTED = 8  # where more names can be added
MAX_FIXED_NAMES_LISTED = 30

ArrayT = TypeVar("ArrayT", Floats, Ints, Bools)


def check_fields(unknown: Iterable[str], **required: object) -> None:
    """Refuse a field that no problem has, and a problem without a required one."""
    for name in unknown:
        raise ProblemError(
            f"unknown field {name!r} of a problem",
            remedy=suggest_known_name(name, PROBLEM_FIELDS, "fields", can_add=False),
        )
    for name, value in required.items():
        if value is NOT_GIVEN:
            example = {"experts": "['ann', 'bob']", "draws": "2"}[name]
            raise ProblemError(
                f"missing field {name!r} of a problem", remedy=f"add {name}={example}"
            )


def check_experts(given: Iterable[str]) -> tuple[str, ...]:
    """Require at least two different, non-empty names."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ProblemError(
            "experts",
            got=given,
            expected="a list of names",
            remedy="write experts=['ann', 'bob', ...]",
        )
    first: dict[str, int] = {}
    for i, name in enumerate(given):
        if not isinstance(name, str) or not name:
            raise ProblemError(f"experts[{i}]", got=name, expected="a non-empty string")
        if first.setdefault(name, i) != i:
            raise ProblemError(
                f"experts[{first[name]}] and experts[{i}] are both called {name!r}",
                remedy="give each expert a name of its own",
            )
    if len(first) < 2:
        raise ProblemError("experts", got=list(first), expected="at least two experts")
    return tuple(first)


def check_costs(names: tuple[str, ...], given: Mapping[str, object]) -> dict[str, Floats]:
    """Require for each cost name one finite number of 0 or more for each expert."""
    if not isinstance(given, Mapping):
        raise ProblemError(
            "costs",
            got=given,
            expected="a mapping from cost names to one number per expert",
            remedy="write costs={'usd': [...]}, or costs={} if nothing is limited",
        )
    for name in given:
        if not isinstance(name, str) or not name:
            raise ProblemError("name of a cost", got=name, expected="a non-empty string")
    return {name: _check_cost_row(name, row, names) for name, row in given.items()}


def check_max_costs(
    names: tuple[str, ...], given: Mapping[str, object], costs: Mapping[str, Floats]
) -> dict[str, Floats]:
    """Require for some costs the most that a call of each expert costs, at least its cost."""
    if not isinstance(given, Mapping):
        raise ProblemError(
            "max_costs",
            got=given,
            expected="a mapping from names of costs to one number per expert",
        )
    rows = {}
    for name, row in check_costs(names, given).items():
        if name not in costs:
            raise ProblemError(
                f"max_costs has the unknown cost {name!r}",
                remedy=suggest_known_name(name, list(costs), "costs"),
            )
        for i in np.flatnonzero(row < costs[name]).tolist():
            raise ProblemError(
                f"max_costs[{name!r}][{i}] of expert {names[i]!r}",
                got=float(row[i]),
                expected=f"at least its cost {float(costs[name][i])!r}",
                remedy="declare the mean of calls as the cost, and the dearest call here",
            )
        rows[name] = row
    return rows


def check_limits(
    given: Iterable[Limit], draws: int, groups: Mapping[str, Iterable[str]]
) -> tuple[Limit, ...]:
    """Require limits, at most one for each side of a cost, and no lower bound above the upper."""
    if not isinstance(groups, Mapping):
        raise ProblemError(
            "groups",
            got=groups,
            expected="a mapping of names to members",
            remedy="write groups={'junior': ['ann']}",
        )
    if isinstance(given, Limit) or not isinstance(given, Iterable):
        raise ProblemError(
            "limits",
            got=given,
            expected="a list of limits",
            remedy="write limits=[at_most('usd', 2.0)]",
        )
    limits, sides = tuple(given), dict[LimitKey, Limit]()
    for j, limit in enumerate(limits):
        if not isinstance(limit, Limit):
            raise ProblemError(
                f"limits[{j}]",
                got=limit,
                expected="a limit",
                remedy="make it with at_most or at_least",
            )
    limits = tuple(complete_limit(limit, draws, groups) for limit in limits)
    for limit in limits:
        if (other := sides.setdefault(limit.key, limit)) is not limit:
            tighter = min(limit, other, key=lambda one: -one.sign * one.bound)
            raise ProblemError(
                "{limits} limit the same cost on the same side",
                limits=(other, limit),
                remedy=f"keep the tighter: {tighter}",
            )
    for key, limit in sides.items():
        upper = sides.get(key._replace(sign=UPPER))
        if limit.sign == LOWER and upper and limit.bound > upper.bound:
            raise InfeasibleLimits(
                "{limits} exclude each other: the first is above the second",
                limits=(limit, upper),
                remedy="swap the two bounds, or lower the first",
            )
    return limits


def complete_limit(limit: Limit, draws: int, groups: Mapping[str, Iterable[str]]) -> Limit:
    """Return the limit per request, with the members of the group that it names."""
    if isinstance(limit.cost, Share) and not limit.cost.members:
        if limit.name not in groups:
            raise ProblemError(
                f"share {limit.name!r} has no members",
                remedy=suggest_known_name(limit.name, list(groups), "groups"),
            )
        limit = replace(limit, cost=share(limit.name, groups[limit.name]))
    return limit.at_draws(draws)


def add_derived_costs(
    names: tuple[str, ...], costs: Mapping[str, Floats], limits: tuple[Limit, ...]
) -> dict[str, Floats]:
    """Return the costs, and those that limits derive from the names of the experts."""
    rows, seen, known = dict(costs), dict[str, DerivedCost](), set(names)
    for limit in limits:
        if isinstance(cost := limit.cost, DerivedCost):
            for member in cost.members if isinstance(cost, Share) else ():
                if member not in known:
                    raise ProblemError(
                        f"share {cost.name!r} has the unknown member {member!r}",
                        remedy=suggest_known_name(member, names, "experts"),
                    )
            row = lock_array(cost.row(names))
            if not np.array_equal(rows.setdefault(cost.name, row), row):
                raise ProblemError(
                    f"{cost} has the same name as {seen.get(cost.name, 'another cost')}",
                    remedy="give one of them another name",
                )
            seen[cost.name] = cost
        check_cost_is_known(limit, rows)
    return rows


def check_cost_is_known(limit: Limit, costs: Mapping[str, Floats]) -> None:
    """Require that the limit is on a cost of the problem."""
    if limit.name not in costs:
        raise ProblemError(
            "{limits} is on an unknown cost",
            limits=(limit,),
            remedy=suggest_known_name(limit.name, list(costs), "costs"),
        )


def check_draws(given: object) -> int:
    """Require a number M of draws per request."""
    return check_count(
        "draws",
        given,
        MAX_DRAWS_PER_REQUEST,
        expected=f"an integer from 1 to {MAX_DRAWS_PER_REQUEST}",
        remedy="give the number of experts to draw per request",
    )


def check_min_draws(given: object, draws: int) -> int | None:
    """Require a number of members that a panel of at most so many draws can have, or None."""
    if given is None:
        return None
    return check_count(
        "min_draws",
        given,
        draws,
        expected=f"an integer from 1 to {draws}, the draws",
        remedy="or leave it out for panels of as many experts as there are draws",
    )


def check_floor(given: object, size: int) -> float:
    """Require a least probability of an expert: above 0, at most 1/K; 1/(10 K) if not given."""
    default = 1 / (10 * size)
    value = default if given is None else float_from_real(given)
    if value is None or not 0 < value <= 1 / size:
        raise ProblemError(
            f"floor for each of {size} experts",
            got=given,
            expected=f"a number above 0 and at most 1/{size} = {1 / size!r}",
            remedy=f"leave it out for {default!r}",
        )
    return value


def check_period(given: object) -> int | None:
    """Require a number of requests, at least 1, or None."""
    if given is None:
        return None
    return check_count(
        "period", given, 2**62 - 1, "a number of requests, 1 or more", "or leave it out"
    )


def check_traffic(given: object) -> float | None:
    """Require a number of requests per day, more than 0, or None."""
    value = float_from_real(given)
    if given is not None and (value is None or not MIN_TRAFFIC <= value <= MAX_TRAFFIC):
        raise ProblemError(
            "traffic",
            got=given,
            expected=f"a number of requests per day, from {MIN_TRAFFIC} to {MAX_TRAFFIC:g}",
            remedy="or leave it out: a router learns it",
        )
    return value


def check_count(what: str, given: object, most: int, expected: str, remedy: str) -> int:
    """Require an integer from 1 to `most`."""
    value = int_from_whole(given)
    if value is None or not 1 <= value <= most:
        raise ProblemError(what, got=given, expected=expected, remedy=remedy)
    return value


def int_from_whole(given: object) -> int | None:
    """Convert an integer of any type; None for everything else, bools included."""
    return int(str(given)) if is_whole(given) else None


def _check_cost_row(name: str, given: object, names: tuple[str, ...]) -> Floats:
    """Return one cost of all experts; True counts as 1, as in an indicator of a group."""
    row, values = _row_from_input(name, given, len(names))
    for i in np.flatnonzero(~are_costs(row)):
        remedy = "give what one consultation costs, or leave that expert out"
        if row[i] < 0:
            remedy = "give a gain as a cost of its own"
        elif np.isfinite(row[i]):
            remedy = "measure in another unit"
        raise ProblemError(
            f"cost {name!r} of expert {names[i]!r}:",
            got=values[i] if np.isnan(row[i]) else float(row[i]),
            expected=f"0 or a number from {MIN_POSITIVE_COST} to {MAX_COST}",
            remedy=remedy,
        )
    return lock_array(row + 0.0)  # a copy, without -0.0


def are_costs(row: Floats) -> Bools:
    """Which of the numbers can be costs?"""
    return np.asarray((row == 0) | ((row >= MIN_POSITIVE_COST) & (row <= MAX_COST)))


def _row_from_input(name: str, given: Any, size: int) -> tuple[Floats, npt.NDArray[Any]]:
    """Return the numbers, NaN for what is none, and the values as they were given."""
    expected = f"one number for each of the {size} experts"
    if isinstance(given, Mapping):
        raise ProblemError(
            f"cost {name!r}",
            got=given,
            expected=expected,
            remedy="give a sequence in the order of the experts",
        )
    numeric = isinstance(given, np.ndarray) and given.dtype.kind in "biuf"
    try:  # as objects, since NumPy would make texts of [1.0, "two"]
        values = given if numeric else np.asarray(given, dtype=object)
    except ValueError:
        raise ProblemError(f"cost {name!r} has uneven parts", expected=expected) from None
    if values.shape != (size,):
        raise ProblemError(f"cost {name!r} has shape {values.shape}", expected=expected)
    if numeric:
        return values.astype(np.float64), values
    row = [float(x) if isinstance(x, bool | np.bool_) else float_from_real(x) for x in values]
    return np.array([np.nan if x is None else x for x in row]), values


def lock_array(array: ArrayT) -> ArrayT:
    """Make the array read-only and return it."""
    array.setflags(write=False)
    return array


def suggest_known_name(
    wrong: object, known: Sequence[str], what: str, *, can_add: bool = True
) -> str:
    """Write the remedy for an unknown name: the name that was meant, or the names there are."""
    close = find_similar(wrong, known) if len(known) <= MAX_NAMES_FOR_SUGGESTION else None
    if close is not None:
        return f"did you mean {close!r}?"
    if not known:
        return f"there are no {what}; add it to {what}"
    most = MAX_OPEN_NAMES_LISTED if can_add else MAX_FIXED_NAMES_LISTED
    shown = ", ".join(map(repr, known[:most])) + (", ..." if len(known) > most else "")
    return f"the {what} are {shown}; use one of these{', or add it' if can_add else ''}"


def suggest_counted_context(limit: Limit, names: Sequence[str]) -> str:
    """Write the remedy if a limit counts requests of none of these contexts; empty if of some."""
    if limit.some_context is None or any(map(limit.counts, names)):
        return ""
    return suggest_known_name(limit.some_context, names, "contexts", can_add=False)
