"""Serialisation of problems and routers, exact to the last bit; saved files of routers.

`core_to_data` serves saved files (JSON, arrays as lists) and snapshots (msgpack, arrays as bytes).
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from bylot import policies
from bylot._atomic_write import replace_file
from bylot.errors import SavedFileError, SavedFileMissing
from bylot.limits.binding import is_possible
from bylot.limits.keys import KeysData
from bylot.limits.records import LimitState, LimitTables, point_to_limits
from bylot.limits.request import Ticket
from bylot.limits.settlement import derive_schedule
from bylot.policies.base import NO_SCORES, Policy
from bylot.policies.binding import BoundRules
from bylot.policies.compiled_handle import BookedDecision
from bylot.policies.validation import RunConfig, check_at_least_one, check_run_config
from bylot.problem import Limit, Problem
from bylot.problem.limits import MAX_COST
from bylot.router.core import PeriodStart, RequestLabels, RouterCore, UncountedDecisions
from bylot.router.feedback import RewardReport
from bylot.router.price_average import PriceAverage

SAVED_FILE_FORMAT = "bylot-router"
SAVED_FILE_VERSION = 8
DERIVED_LIMITS = ("sets", "mean", "ahead", "quota", "place", "keys", "counts")
"""Fields of the state of limits that follow from others, or from the labels of contexts."""


class EarlierDecision(Struct):
    """A decision of an earlier pool: nothing is learned from it, but what it cost is booked."""

    panel: tuple[str, ...]  # the name of each draw
    spend: dict[str, float]  # its stated cost
    held: dict[str, float]  # by cost: reserved beyond that until it is reported


OpenDecisionsByT = dict[int, BookedDecision | EarlierDecision | RewardReport | float]
"""A decision until its reward arrives, then the report about it, or its reward alone."""

SettledByT = dict[int, RewardReport]
"""Costs that were reported without a reward, by decision."""

LabelsByT = dict[int, RequestLabels]
"""Of requests, if it depends on them which limits count a decision."""

RouterParts = tuple[RouterCore, int, OpenDecisionsByT, SettledByT, LabelsByT]
"""Core, memory, open decisions, settled costs and labels of a router."""


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
        limits=core.limits and limits_to_data(core.limits.state, encode),
        totals=arrays_to_data(core.totals, encode),
        contexts=list(core.contexts),
        costs=core.uncounted,
        period=core.period,
        skipped=core.skipped,
        rule=rule,
        before_period=core.before_period,
        prices=core.prices,
        at=core.at,
        traffic=core.problem.traffic,
        keyed=None if core.keyed is None else core.keyed.to_data(encode),
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
    core.contexts = {label: n for n, label in enumerate(data.contexts)}
    core.uncounted, core.period, core.skipped = data.costs, data.period, data.skipped
    core.before_period, core.prices, core.at = data.before_period, data.prices, data.at
    fill_arrays_from_data(data.totals, core.totals)
    fill_arrays_from_data(data.state, core.state, policy.derived)
    policy.derive(core.rule, core.state)
    if (core.limits is None) != (data.limits is None):
        raise SavedFileError("there is a state of limits that are not kept, or none of such")
    if core.limits is not None and data.limits is not None:
        fill_limits_from_data(data.limits, core.limits)
    if (core.keyed is None) != (data.keyed is None):
        raise SavedFileError("there are keys without limits for each, or none for such")
    if core.keyed is not None and data.keyed is not None:
        core.keyed.fill_from_data(data.keyed, fill_array)
    core.refresh()
    priced = len(data.prices) == len(problem.limits) and all(one.is_valid() for one in data.prices)
    possible = policy.is_valid_state(core.rule, core.state) and is_possible(core.limits)
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


def router_to_data(
    core: RouterCore,
    memory: int,
    tickets: OpenDecisionsByT,
    settled: SettledByT | None = None,
    labels: LabelsByT | None = None,
) -> dict[str, Any]:
    """The content of a saved file."""
    costs = [{"t": t, "report": msgspec.to_builtins(one)} for t, one in (settled or {}).items()]
    return {
        "format": SAVED_FILE_FORMAT,
        "version": SAVED_FILE_VERSION,
        "problem": problem_to_data(core.problem),
        "policy": policies.policy_to_data(core.policy),
        "seed": core.run.seed,
        "horizon": core.run.horizon,
        "rewards": [core.run.low, core.run.high],
        "feedback": core.run.feedback,
        "max_contexts": core.max_contexts,
        "memory": memory,
        **msgspec.to_builtins(core_to_data(core)),
        "open": [open_decision_to_data(t, one, core) for t, one in tickets.items()],
        **({"settled": costs} if costs else {}),
        **({"labels": [[t, *one] for t, one in labels.items()]} if labels else {}),
    }


def load_router(path: Path) -> RouterParts:
    """The parts of a router in a saved file."""
    data = read_saved_file(path)
    try:
        problem = problem_from_data(data["problem"])
        policy = policies.resolve_policy(policies.policy_from_data(data["policy"]), problem)
        given = data["seed"], data["horizon"], tuple(data["rewards"]), data["feedback"]
        run = check_run_config(problem, *given)
        max_contexts = check_at_least_one("max_contexts", data["max_contexts"])
        memory = check_at_least_one("memory", data["memory"])
        core = core_from_data(problem, policy, run, max_contexts, msgspec.convert(data, CoreData))
        tickets = dict(open_decision_from_data(one, core) for one in data["open"])
        settled = {
            one["t"]: msgspec.convert(one["report"], RewardReport)
            for one in data.get("settled", ())
            if one["t"] in tickets
        }
        labels = {t: RequestLabels(*one) for t, *one in data.get("labels", ())}
        return core, memory, tickets, settled, labels
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, MemoryError) as why:
        raise SavedFileError(f"{path} is damaged: {type(why).__name__}: {why}") from why


def open_decision_to_data(
    t: int, one: BookedDecision | EarlierDecision | RewardReport | float, core: RouterCore
) -> dict[str, Any]:
    """A decision that waits for its reward, or what was reported about it."""
    if isinstance(one, float):
        return {"t": t, "reward": one}
    if isinstance(one, RewardReport):
        return {"t": t, "report": msgspec.to_builtins(one)}
    if isinstance(one, EarlierDecision):
        return {"t": t, "earlier": msgspec.to_builtins(one)}
    ticket, spend = one.ticket, core.name_costs(one.costs[0])
    data = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in ticket._asdict().items()
    }
    propensity = None if math.isnan(ticket.propensity) else ticket.propensity
    return {**data, "propensity": propensity, "spend": spend, "held": one.held}


def open_decision_from_data(
    data: dict[str, Any], core: RouterCore
) -> tuple[int, BookedDecision | EarlierDecision | RewardReport | float]:
    """Inverse of `open_decision_to_data`; a ticket must fit the router it belongs to."""
    t = data["t"]
    if type(t) is not int or not 0 <= t < core.t:
        raise SavedFileError(f"an open decision has number {t!r}, but {core.t} were made")
    if "reward" in data:
        return t, float(data["reward"])
    if "report" in data:
        return t, msgspec.convert(data["report"], RewardReport)
    if "earlier" in data:
        return t, msgspec.convert(data["earlier"], EarlierDecision)
    ticket = ticket_from_data(t, data, core)
    spend = [float(data["spend"][name]) for name in core.problem.costs]
    if not all(0 <= cost <= MAX_COST * core.problem.draws for cost in spend):
        raise SavedFileError(f"decision {t} has the impossible costs {spend}")
    held = msgspec.convert(data["held"], dict[str, float])
    costs = np.array([spend, spend])
    return t, BookedDecision(ticket, costs, NO_SCORES, ticket.propensity, held)


def ticket_from_data(t: int, data: dict[str, Any], core: RouterCore) -> Ticket:
    """The ticket of an open decision, which must fit the router."""
    size, M, policy = core.problem.size, core.problem.draws, core.policy
    propensity = math.nan if data["propensity"] is None else float(data["propensity"])
    as_set = not policy.draws_iid and (policy.draws_sets or not math.isnan(propensity))
    arrays: dict[str, Any] = {
        "draws": np.empty(M, np.int64),
        "draw_probabilities": np.empty(M if policy.draws_iid else 0),
        "inclusion": np.empty(size if as_set else 0),
        "available": np.empty(size if data["available"] else 0, np.bool_),
    }
    for name, array in arrays.items():
        fill_array(name, data[name], array)
    draws, q, inclusion, available = arrays.values()
    share, weight, most = float(data["share"]), float(data["weight"]), 1 + 1e-9
    valid = ((q > 0) & (q <= most)).all() and ((inclusion >= 0) & (inclusion <= most)).all()
    if not (draws.min() >= 0 and draws.max() < size and valid and 0 < share <= most):
        raise SavedFileError(f"decision {t} has draws or probabilities that this pool cannot have")
    context = data["context"]
    if type(context) is not int or not 0 <= context < len(core.contexts):
        raise SavedFileError(f"decision {t} has the unknown context {context!r}")
    if not (math.isnan(propensity) or 0 < propensity <= most) or not 0 <= weight < 1e6:
        raise SavedFileError(f"decision {t} has propensity {propensity} and weight {weight}")
    feasible, replaced = bool(data["feasible"]), bool(data["replaced"])
    return Ticket(
        t, context, draws, q, inclusion, available, share, feasible, propensity, weight, replaced
    )


def compute_checksum(data: Mapping[str, Any]) -> str:
    """A checksum of everything in a file but itself."""
    content = {key: value for key, value in data.items() if key != "checksum"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_saved_file(path: Path, data: Mapping[str, Any]) -> None:
    """Write a file atomically: a crash leaves the old one as it was."""
    checked = {**data, "checksum": compute_checksum(data)}
    text = json.dumps(checked, allow_nan=False, separators=(",", ":"))
    path = path.resolve()  # a link stays a link
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise SavedFileError(f"{path} cannot be written: {error.strerror}") from error


def read_saved_file(path: Path) -> dict[str, Any]:
    """Read a saved file; another format or version, or a damaged file, is refused by name."""
    remedy = "use a file written by save(), or start with Router(problem)"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SavedFileMissing(f"{path} does not exist", remedy=remedy) from None
    except OSError as error:
        raise SavedFileError(f"{path} cannot be read: {error.strerror}", remedy=remedy) from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or absurdly nested
        raise SavedFileError(f"{path} is not JSON ({error})", remedy="is it truncated?") from None
    formats = (data.get("format"), data.get("form")) if isinstance(data, dict) else ()
    if SAVED_FILE_FORMAT not in formats:  # version 1 has `form`
        raise SavedFileError(f"{path} is not a {SAVED_FILE_FORMAT} file", remedy=remedy)
    if data.get("version") != SAVED_FILE_VERSION:
        raise SavedFileError(
            f"{path} has version {data.get('version')!r}; this bylot reads version "
            f"{SAVED_FILE_VERSION}",
            remedy="use the bylot that wrote it, or start with Router(problem)",
        )
    if data.get("checksum") != compute_checksum(data):
        remedy = "restore it from a backup"
        raise SavedFileError(f"{path} was changed after it was saved", remedy=remedy)
    return dict(data)
