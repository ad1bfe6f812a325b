"""Saved files: a router in memory as JSON, from which it continues bit for bit."""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from bylot import policies
from bylot._atomic_write import replace_file
from bylot.errors import DecisionNotFound, SavedFileError, SavedFileMissing
from bylot.limits.request import Ticket
from bylot.policies.validation import check_at_least_one, check_run_config
from bylot.problem.limits import MAX_COST
from bylot.router.changes import DecisionMade, RewardReceived
from bylot.router.core import RouterCore
from bylot.router.engine import RouterEngine
from bylot.router.open_decisions import OpenDecision, index_reports
from bylot.router.persistence import (
    CoreData,
    core_from_data,
    core_to_data,
    fill_array,
    problem_from_data,
    problem_to_data,
)
from bylot.router.reward_rules import RewardTerms

SAVED_FILE_FORMAT = "bylot-router"
SAVED_FILE_VERSION = 9
MAX_REMEMBERED_ANSWERS = 1_000  # of decisions that have their reward


class SavedDecision(Struct, kw_only=True):
    """A decision beside its ticket; fields as in `DecisionMade` and `OpenDecision`."""

    is_open: bool
    panel: tuple[str, ...]
    spend: dict[str, float]
    expected: dict[str, float]
    held: dict[str, float]
    keys: dict[str, str]
    label: str | None  # of the context
    version: int
    rewards: list[RewardReceived] = []
    failed: tuple[str, ...] = ()
    is_cancelled: bool = False


def make_engine(core: RouterCore, terms: RewardTerms) -> RouterEngine:
    """Return the engine of a router in memory, which has its decisions nowhere else."""
    most = min(terms.memory, MAX_REMEMBERED_ANSWERS)
    return RouterEngine(core, terms, refuse_forgotten, most)


def refuse_forgotten(place: int) -> OpenDecision:
    """Raise the error of a decision that the router does not have, or no longer."""
    raise DecisionNotFound(
        "no decision has this id, or it is no longer remembered",
        remedy="use the id that `decide` returned, or create the router with a larger `memory`",
    )


def engine_to_data(engine: RouterEngine) -> dict[str, Any]:
    """Return the content of a saved file."""
    core = engine.core
    decisions = [decision_to_data(decision, True) for _, decision in engine.open]
    decisions += [decision_to_data(decision, False) for decision in engine.recent.values()]
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
        "memory": engine.terms.memory,
        "pool_since": engine.pool_since,
        "edits": engine.version,
        "refused": list(engine.refused.items()),
        **msgspec.to_builtins(core_to_data(core), enc_hook=str),
        "open": decisions,
    }


def load_engine(path: Path) -> RouterEngine:
    """Return the engine of the router in a saved file."""
    data = read_saved_file(path)
    try:
        problem = problem_from_data(data["problem"])
        policy = policies.resolve_policy(policies.policy_from_data(data["policy"]), problem)
        given = data["seed"], data["horizon"], tuple(data["rewards"]), data["feedback"]
        run = check_run_config(problem, *given)
        max_contexts = check_at_least_one("max_contexts", data["max_contexts"])
        memory = check_at_least_one("memory", data["memory"])
        core = core_from_data(problem, policy, run, max_contexts, msgspec.convert(data, CoreData))
        engine = make_engine(core, RewardTerms(memory))
        engine.pool_since = msgspec.convert(data["pool_since"], int)
        engine.version = msgspec.convert(data["edits"], int)
        engine.refused = dict(msgspec.convert(data["refused"], list[tuple[int, int]]))
        for saved in data["open"]:
            decision, is_open = decision_from_data(saved, engine)
            if is_open:
                engine.open.add(decision.t, decision)
            else:
                engine.remember(decision.t, decision)
        return engine
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, MemoryError) as why:
        raise SavedFileError(f"{path} is damaged: {type(why).__name__}: {why}") from why


def decision_to_data(decision: OpenDecision, is_open: bool) -> dict[str, Any]:
    """Return a decision, its ticket, and what was reported about it."""
    made = decision.known
    ticket = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in made.ticket._asdict().items()
    }
    propensity = None if math.isnan(made.ticket.propensity) else made.ticket.propensity
    saved = SavedDecision(
        is_open=is_open,
        panel=made.panel,
        spend=made.spend,
        expected=made.expected,
        held=made.held,
        keys=dict(made.keys),
        label=made.context,
        version=made.version,
        rewards=[*decision.rewards.values()],
        failed=decision.failed,
        is_cancelled=decision.is_cancelled,
    )
    return {**ticket, "propensity": propensity, **msgspec.to_builtins(saved, enc_hook=str)}


def decision_from_data(data: dict[str, Any], engine: RouterEngine) -> tuple[OpenDecision, bool]:
    """Return a decision, which must fit the router it belongs to, and whether it is open."""
    core = engine.core
    saved = msgspec.convert(data, SavedDecision)
    t = data["t"]
    if type(t) is not int or not 0 <= t < core.t:
        raise SavedFileError(f"a decision has number {t!r}, but {core.t} were made")
    if saved.is_cancelled and (saved.is_open or any(x.value is not None for x in saved.rewards)):
        raise SavedFileError(f"decision {t} was cancelled, but is open or has a reward")
    most = MAX_COST * core.problem.draws
    if not all(0 <= cost <= most for cost in (*saved.spend.values(), *saved.expected.values())):
        raise SavedFileError(f"decision {t} has the impossible costs {saved.spend}")
    ticket = ticket_from_data(t, data, core, t >= engine.pool_since)
    p = ticket.propensity
    made = DecisionMade(
        ticket,
        saved.panel,
        None,
        None if math.isnan(p) else p,
        saved.spend,
        saved.expected,
        saved.held,
        saved.label,
        saved.keys,
        version=saved.version,
    )
    decision = OpenDecision(
        t,
        made=made,
        rewards=index_reports(saved.rewards),
        failed=saved.failed,
        is_cancelled=saved.is_cancelled,
    )
    return decision, saved.is_open


def ticket_from_data(t: int, data: dict[str, Any], core: RouterCore, is_of_pool: bool) -> Ticket:
    """Return the ticket of a decision; if it is of this pool, it must fit the router."""
    size, M, policy = core.problem.size, core.problem.draws, core.policy
    propensity = math.nan if data["propensity"] is None else float(data["propensity"])
    as_set = not policy.draws_iid and (policy.draws_sets or not math.isnan(propensity))
    exchanged = bool(data["failed"])
    arrays: dict[str, Any] = {
        "draws": np.empty(M, np.int64),
        "draw_probabilities": np.empty(M if policy.draws_iid and not exchanged else 0),
        "inclusion": np.empty(size if as_set and not exchanged else 0),
        "available": np.empty(size if data["available"] else 0, np.bool_),
    }
    if not is_of_pool:
        arrays = {name: np.empty(len(data[name]), array.dtype) for name, array in arrays.items()}
        size = len(data["inclusion"]) or 2**31
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
    return Ticket(
        t,
        context,
        draws,
        q,
        inclusion,
        available,
        share,
        bool(data["feasible"]),
        propensity,
        weight,
        bool(data["replaced"]),
    )


def compute_checksum(data: Mapping[str, Any]) -> str:
    """A checksum of everything in a file but itself."""
    content = {key: value for key, value in data.items() if key != "checksum"}
    return hashlib.sha256(
        json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


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
