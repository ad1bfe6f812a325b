"""Serialisation of problems and router cores, exact to the last bit.

`core_to_data` serves saved files (JSON, arrays as lists) and snapshots (msgpack, arrays as bytes).
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from bylot.errors import SavedFileError
from bylot.limits.binding import is_possible
from bylot.limits.keys import KeysData
from bylot.limits.records import LimitState, LimitTables, point_to_limits
from bylot.limits.settlement import derive_schedule
from bylot.policies.base import Policy
from bylot.policies.binding import BoundRules
from bylot.policies.validation import RunConfig
from bylot.problem import Limit, Problem
from bylot.router.core import RouterCore
from bylot.router.cost_sums import PeriodStart, UncountedDecisions
from bylot.router.price_average import PriceAverage

DERIVED_LIMITS = ("sets", "mean", "ahead", "quota", "place", "keys", "counts")
"""Fields of the state of limits that follow from others, or from the labels of contexts."""


class CoreData(Struct):
    """What a RouterCore has beyond its configuration; rule: None if it is to be rebound."""

    rows: int  # of the state, one per context
    state: dict[str, Any]
    totals: dict[str, Any]
    contexts: list[str | None]
    costs: UncountedDecisions
    period: PeriodStart
    skipped: list[int]
    limits: dict[str, Any] | None = None  # their state; None: they are not kept
    rule: Any = None
    before_period: dict[str, tuple[int, float]] = {}
    prices: list[PriceAverage] = []
    at: int = 0
    traffic: float | None = None  # that was learned
    keyed: KeysData | None = None


def core_to_data(
    core: RouterCore, encode: Callable[[Any], Any] = np.ndarray.tolist, rule: Any = None
) -> CoreData:
    """Serialise a core, its arrays by `encode`."""
    return CoreData(
        rows=len(core.state.visits),
        state=arrays_to_data(core.state, encode, core.policy.derived),
        limits=core.book.tables and limits_to_data(core.book.tables.state, encode),
        totals=arrays_to_data(core.totals, encode),
        contexts=list(core.contexts),
        costs=core.sums.uncounted,
        period=core.sums.period,
        skipped=core.skipped,
        rule=rule,
        before_period=core.sums.before,
        prices=core.prices,
        at=core.book.at,
        traffic=core.problem.traffic,
        keyed=None if core.book.keyed is None else core.book.keyed.to_data(encode),
    )


def core_from_data(
    problem: Problem,
    policy: Policy,
    run: RunConfig,
    max_contexts: int,
    data: CoreData,
    rules: BoundRules | None = None,
) -> RouterCore:
    """Restore a core; raises SavedFileError if no router can be in this state."""
    if not (len(data.skipped) <= len(set(data.contexts)) == len(data.contexts) <= data.rows):
        raise SavedFileError(f"{len(data.contexts)} contexts do not fit {data.rows} rows of state")
    if data.traffic is not None:
        problem = problem.replace(traffic=data.traffic)
    core = RouterCore(problem, policy, run, max_contexts, rules=rules, rows=data.rows)
    core.contexts.update((label, n) for n, label in enumerate(data.contexts))
    core.sums.uncounted, core.sums.period, core.skipped = data.costs, data.period, data.skipped
    core.sums.before, core.prices, core.book.at = data.before_period, data.prices, data.at
    fill_arrays_from_data(data.totals, core.totals)
    fill_arrays_from_data(data.state, core.state, policy.derived)
    policy.derive(core.rule, core.state)
    if (core.book.tables is None) != (data.limits is None):
        raise SavedFileError("there is a state of limits that are not kept, or none of such")
    if core.book.tables is not None and data.limits is not None:
        fill_limits_from_data(data.limits, core.book.tables)
    if (core.book.keyed is None) != (data.keyed is None):
        raise SavedFileError("there are keys without limits for each, or none for such")
    if core.book.keyed is not None and data.keyed is not None:
        core.book.keyed.fill_from_data(data.keyed, fill_array)
    core.refresh()
    priced = len(data.prices) == len(problem.limits) and all(one.is_valid() for one in data.prices)
    possible = policy.is_valid_state(core.rule, core.state) and is_possible(core.book.tables)
    if core.t < 0 or not priced or not possible:
        raise SavedFileError("no router can be in this state")
    return core


def limits_to_data(state: LimitState, encode: Callable[[Any], Any]) -> dict[str, Any]:
    """Serialise the state of limits, records as lists of columns, without ledgers of keys."""
    data: dict[str, Any] = {}
    for name, array in list_saved_arrays(state).items():
        fields = array.dtype.names
        columns = [encode(np.ascontiguousarray(array[field])) for field in fields or ()]
        data[name] = columns if fields else encode(array)
    return data


def list_saved_arrays(state: LimitState) -> dict[str, Any]:
    """Return the arrays of limits that are saved, of ledgers those of everybody."""
    known = state._replace(ledgers=state.ledgers[: len(state.place)])
    return {name: array for name, array in known._asdict().items() if name not in DERIVED_LIMITS}


def fill_limits_from_data(data: Mapping[str, Any], tables: LimitTables) -> None:
    """Fill the state of limits, and compute what follows from it."""
    arrays = list_saved_arrays(tables.state)
    if set(data) != set(arrays):
        raise SavedFileError(f"limits have {sorted(data)}: expected {sorted(arrays)}")
    for name, array in arrays.items():
        fields = array.dtype.names
        if fields is None:
            fill_array(name, data[name], array)
            continue
        for field, given in zip(fields, data[name], strict=True):
            column = np.ascontiguousarray(array[field])
            fill_array(f"{name}.{field}", given, column)
            array[field] = column
    derive_schedule(point_to_limits(*tables))


def arrays_to_data(
    fields: Any, encode: Callable[[Any], Any], without: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Serialise nested NamedTuples of arrays, field by field."""
    return {
        name: arrays_to_data(value, encode, without) if isinstance(value, tuple) else encode(value)
        for name, value in fields._asdict().items()
        if name not in without
    }


def fill_arrays_from_data(
    data: Mapping[str, Any], blank: Any, without: tuple[str, ...] = ()
) -> None:
    """Fill nested NamedTuples of arrays: same names, shapes and types, or an error."""
    fields = {name: one for name, one in blank._asdict().items() if name not in without}
    if set(data) != set(fields):
        raise SavedFileError(f"fields {sorted(data)}: expected {sorted(fields)}")
    for name, array in fields.items():
        if isinstance(array, tuple):
            fill_arrays_from_data(data[name], array, without)
        else:
            fill_array(name, data[name], array)


def fill_array(name: str, given: Any, array: Any) -> None:
    """Copy bytes, or nested lists of numbers of the right type and shape, into an array."""
    if isinstance(given, bytes):
        array[...] = np.frombuffer(given, array.dtype).reshape(array.shape)
        return
    found = np.array(given)  # ragged lists raise a ValueError
    kinds = {"f": "fi", "i": "i", "b": "b"}[array.dtype.kind]
    shapes = found.shape == array.shape or found.size == array.size == 0
    if not shapes or (found.size and found.dtype.kind not in kinds):
        raise SavedFileError(f"{name!r} is not {array.dtype} of shape {array.shape}")
    if found.size and not np.isfinite(found).all():
        raise SavedFileError(f"{name!r} has a number that is not finite")
    array[...] = found.reshape(array.shape)


def problem_to_data(problem: Problem) -> dict[str, Any]:
    """Serialise a problem; a derived cost is serialised with its limit."""
    derived = {limit.name for limit in problem.limits if limit.is_derived}
    costs = {n: row.tolist() for n, row in problem.costs.items() if n not in derived}
    fewest = {} if problem.min_draws is None else {"min_draws": problem.min_draws}
    most = {name: row.tolist() for name, row in problem.max_costs.items()}
    return {
        "experts": list(problem.experts),
        "costs": costs,
        "limits": [limit.to_data() for limit in problem.limits],
        "draws": problem.draws,
        **fewest,
        "floor": problem.floor,
        "period": problem.period,
        **({"max_costs": most} if most else {}),
        **({} if problem.traffic is None else {"traffic": problem.traffic}),
    }


def problem_from_data(data: Mapping[str, Any], make: Callable[..., Problem] = Problem) -> Problem:
    """Inverse of `problem_to_data`; by default all checks of a new problem apply."""
    return make(**{**data, "limits": [Limit.from_data(limit) for limit in data["limits"]]})
