"""Snapshots of router cores: bytes from which a core continues, exact to the last bit.

Logs and saved files add open decisions, each where it has them.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct

from bylot.errors import SavedFileError
from bylot.limits.binding import is_possible
from bylot.limits.keys import KeysData
from bylot.limits.records import LimitRule, LimitState, LimitTables, point_to_limits
from bylot.limits.schedule import schedule_from_sets
from bylot.limits.settlement import derive_schedule
from bylot.policies import resolve_policy
from bylot.policies.base import FeedbackKind, Policy
from bylot.policies.binding import bind_policy
from bylot.problem import Problem
from bylot.router.config import RouterConfig
from bylot.router.core import RouterCore
from bylot.router.cost_sums import PeriodStart, UncountedDecisions
from bylot.router.price_average import PriceAverage

SNAPSHOT_VERSION = 12
"""Of snapshots in stores, and of saved files."""
DERIVED_LIMITS = ("sets", "mean", "ahead", "quota", "place", "keys", "counts")
"""Fields of the state of limits that follow from others, or from the labels of contexts."""


class CoreData(Struct):
    """What a core has beyond its configuration; rule: None if it is to be bound again."""

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


def core_to_data(core: RouterCore, *, with_rule: bool) -> CoreData:
    """Return what a core consists of.

    with_rule: with what was solved for when the policy was bound, so that nothing is solved again
    """
    book = core.book
    sums = core.sums
    return CoreData(
        rows=len(core.state.visits),
        state=arrays_to_data(core.state, core.policy.derived),
        limits=None if book.tables is None else limits_to_data(book.tables.state),
        totals=arrays_to_data(core.totals),
        contexts=list(core.contexts),
        costs=sums.uncounted,
        period=sums.period,
        skipped=core.skipped,
        rule=rule_to_data(core.rules) if with_rule else None,
        before_period=sums.before,
        prices=core.prices,
        at=book.at,
        traffic=core.problem.traffic,
        keyed=None if book.keyed is None else book.keyed.to_data(),
    )


def core_from_data(config: RouterConfig, data: CoreData) -> RouterCore:
    """Restore a core, or raise SavedFileError if no router can be in this state."""
    if not (len(data.skipped) <= len(set(data.contexts)) == len(data.contexts) <= data.rows):
        raise SavedFileError(f"{len(data.contexts)} contexts do not fit {data.rows} rows of state")
    problem = config.build_problem(Problem if data.rule is None else Problem.known)
    policy = resolve_policy(config.build_policy(), problem)
    run = config.build_run(problem)
    rules = None
    if data.rule is not None:
        rules = rule_from_data(make_rule_template(policy, run.feedback), data.rule)
    if data.traffic is not None:
        problem = problem.replace(traffic=data.traffic)
    most = config.max_contexts
    core = RouterCore(problem, policy, run, most, rules=rules, rows=data.rows)
    core.contexts.update((label, row) for row, label in enumerate(data.contexts))
    core.skipped = data.skipped
    core.prices = data.prices
    core.sums.uncounted = data.costs
    core.sums.period = data.period
    core.sums.before = data.before_period
    book = core.book
    book.at = data.at
    fill_arrays_from_data(data.totals, core.totals)
    fill_arrays_from_data(data.state, core.state, policy.derived)
    policy.derive(core.rule, core.state)
    if (book.tables is None) != (data.limits is None):
        raise SavedFileError("the state of limits is missing, or nobody keeps them")
    if book.tables is not None and data.limits is not None:
        fill_limits_from_data(data.limits, book.tables)
    if (book.keyed is None) != (data.keyed is None):
        raise SavedFileError("there are ledgers of tenants but no limits for each, or the reverse")
    if book.keyed is not None and data.keyed is not None:
        book.keyed.fill_from_data(data.keyed, fill_array)
    core.refresh()
    priced = len(data.prices) == len(problem.limits)
    valid = priced and all(price.is_valid() for price in data.prices)
    possible = policy.is_valid_state(core.rule, core.state) and is_possible(book.tables)
    if core.t < 0 or not valid or not possible:
        raise SavedFileError("no router can be in this state")
    return core


def limits_to_data(state: LimitState) -> dict[str, Any]:
    """Return the state of limits, records as lists of columns, without ledgers of keys."""
    data: dict[str, Any] = {}
    for name, array in list_saved_arrays(state).items():
        fields = array.dtype.names
        columns = [array[field].tobytes() for field in fields or ()]
        data[name] = columns if fields else array.tobytes()
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


def arrays_to_data(fields: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return nested NamedTuples of arrays as bytes, field by field."""
    return {
        name: arrays_to_data(value, without) if isinstance(value, tuple) else value.tobytes()
        for name, value in fields._asdict().items()
        if name not in without
    }


def fill_arrays_from_data(
    data: Mapping[str, Any], blank: Any, without: tuple[str, ...] = ()
) -> None:
    """Fill nested NamedTuples of arrays: same names and sizes, or an error."""
    fields = {name: array for name, array in blank._asdict().items() if name not in without}
    if set(data) != set(fields):
        raise SavedFileError(f"fields {sorted(data)}: expected {sorted(fields)}")
    for name, array in fields.items():
        if isinstance(array, tuple):
            fill_arrays_from_data(data[name], array, without)
        else:
            fill_array(name, data[name], array)


def fill_array(name: str, raw: bytes, array: Any) -> None:
    """Copy bytes into an array of this size, whose numbers must be finite."""
    if len(raw) != array.nbytes:
        raise SavedFileError(f"{name!r} is not {array.dtype} of shape {array.shape}")
    array[...] = np.frombuffer(raw, array.dtype).reshape(array.shape)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise SavedFileError(f"{name!r} has a number that is not finite")


def rule_to_data(rule: Any) -> Any:
    """Return a rule as nested lists, each array as its shape and its bytes.

    The fallback schedule of a guard is long: its sets are written in as few bytes as possible, and
    what follows from them is omitted.
    """
    if isinstance(rule, LimitRule):
        sets = rule.schedule.sets
        narrow = sets.astype(np.min_scalar_type(int(sets.max(initial=0))))
        schedule = (narrow.dtype.str, narrow.shape, narrow.tobytes())
        plain = rule._replace(schedule=None)  # type: ignore[arg-type]
        return [*(rule_to_data(part) for part in plain), schedule]
    if isinstance(rule, tuple):
        return [rule_to_data(part) for part in rule]
    if isinstance(rule, np.ndarray) and rule.dtype.names:
        return [rule_to_data(rule[name]) for name in rule.dtype.names]  # without what pads records
    if isinstance(rule, np.ndarray):
        return (rule.shape, rule.tobytes())
    return rule.item() if isinstance(rule, np.generic) else rule


def rule_from_data(template: Any, data: Any) -> Any:
    """Return what `rule_to_data` was given, a rule of the same type as the template."""
    if isinstance(template, LimitRule):
        *parts, (dtype, shape, raw) = data
        plain = template._replace(schedule=None)  # type: ignore[arg-type]
        made = LimitRule._make(rule_from_data(*pair) for pair in zip(plain, parts, strict=True))
        sets = np.frombuffer(raw, dtype).reshape(shape).astype(np.int64)
        return made._replace(schedule=schedule_from_sets(sets, made.worst))
    if isinstance(template, tuple):
        return type(template)(*(rule_from_data(*pair) for pair in zip(template, data, strict=True)))
    if isinstance(template, np.ndarray) and template.dtype.names:
        names = template.dtype.names
        pairs = zip(names, data, strict=True)
        columns = [rule_from_data(template[name], part) for name, part in pairs]
        records = np.zeros(len(columns[0]), template.dtype)
        for name, column in zip(names, columns, strict=True):
            records[name] = column
        return records
    if isinstance(template, np.ndarray):
        shape, raw = data
        return np.frombuffer(raw, template.dtype).reshape(shape).copy()
    if type(data) is not type(template):
        raise TypeError(f"{data!r} in the place of a number such as {template!r}")
    return data


@lru_cache(maxsize=256)
def make_rule_template(policy: Policy, feedback: FeedbackKind) -> Any:
    """Return a rule of the type that a policy binds to."""
    return bind_policy(policy, Problem(["one", "other"], {}, draws=1), None, feedback)
