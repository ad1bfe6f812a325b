"""Snapshots: all that a log adds up to, as bytes from which it goes on to the last bit.

Arrays are written as they are in memory, and what was solved for when a policy was bound to its
problem is written too, so that nothing has to be solved again. Tickets are left to the log.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct, msgpack

from bylot.errors import StoreCorrupted
from bylot.eventlog.config_validation import trust_config
from bylot.eventlog.open_decisions import OpenDecisionColumns
from bylot.eventlog.timeline import Timeline
from bylot.policies import Policy
from bylot.policies.compiled_handle import make_totals
from bylot.policies.fallback_schedule import schedule_from_sets
from bylot.policies.guard import Guard
from bylot.problem import Problem
from bylot.router.config import RouterConfig
from bylot.router.persistence import iterate_arrays
from bylot.router.router import Router
from bylot.router.status import Counters

SNAPSHOT_VERSION = 3  # the version of all this


class SnapshotContent(Struct, frozen=True, kw_only=True):
    """The content of a snapshot."""

    form: int
    router: int
    seq: int
    at: int
    created: int
    seal: bytes
    pool: int
    terms: RouterConfig
    rule: list[Any]
    lines: int  # of the state, one a context
    state: list[bytes]
    ledger: list[bytes]
    contexts: list[str | None]
    since: dict[str, int]
    unused: dict[str, int]
    period: tuple[int, int]
    skipped: list[int]
    held: OpenDecisionColumns
    timeline: Timeline
    counters: Counters
    stated: dict[str, float]


encode_snapshot = msgpack.Encoder().encode
decode_snapshot = msgpack.Decoder(SnapshotContent).decode


def router_to_snapshot(router: Router) -> dict[str, Any]:
    """The parts of a snapshot that are the router's."""
    return {
        "rule": rule_to_data(router.rule),
        "lines": len(router.state.visits),
        "state": [one.tobytes() for one in iterate_arrays(router.state, router.policy.derived)],
        "ledger": [one.tobytes() for one in iterate_arrays(router.ledger)],
        "contexts": list(router.contexts),
        "since": router.since,
        "unused": router.unused,
        "period": router.period,
        "skipped": router.skipped,
    }


def router_from_snapshot(frozen: SnapshotContent) -> Router:
    """The router that was written."""
    terms, problem, policy, run = trust_config(frozen.terms)
    rule = rule_from_data(make_rule_template(policy), frozen.rule)
    state, ledger = policy.start(rule, frozen.lines), make_totals(len(problem.costs))
    fill_arrays_from_bytes(iterate_arrays(state, policy.derived), frozen.state)
    fill_arrays_from_bytes(iterate_arrays(ledger), frozen.ledger)
    policy.derive(rule, state)
    if len(frozen.contexts) > frozen.lines or not policy.is_valid_state(rule, state):
        raise StoreCorrupted("its state is none that a router can be in")
    return Router.resumed(
        problem,
        policy,
        run,
        max_contexts=terms.max_contexts,
        rule=rule,
        state=state,
        ledger=ledger,
        contexts=frozen.contexts,
        since=frozen.since,
        unused=frozen.unused,
        period=frozen.period,
        skipped=frozen.skipped,
    )


def rule_to_data(rule: Any) -> Any:
    """A rule as nested lists; an array as its shape and its bytes.

    The rota of a guard is long: its sets are written in as few bytes as they need, and what follows
    from them is left out.
    """
    if isinstance(rule, Guard):
        sets = rule.schedule.sets
        narrow = sets.astype(np.min_scalar_type(int(sets.max(initial=0))))
        rota = (narrow.dtype.str, narrow.shape, narrow.tobytes())
        return [*(rule_to_data(one) for one in rule[:-1]), rota]
    if isinstance(rule, tuple):
        return [rule_to_data(one) for one in rule]
    if isinstance(rule, np.ndarray):
        return (rule.shape, rule.tobytes())
    return rule.item() if isinstance(rule, np.generic) else rule


def rule_from_data(like: Any, data: Any) -> Any:
    """The inverse of `rule_to_data`, for a rule of the same kind as another."""
    if isinstance(like, Guard):
        *parts, (dtype, shape, raw) = data
        plain = [rule_from_data(one, part) for one, part in zip(like[:-1], parts, strict=True)]
        made = Guard._make([*plain, like.schedule])
        sets = np.frombuffer(raw, dtype).reshape(shape).astype(np.int64)
        return made._replace(schedule=schedule_from_sets(sets, made.A))
    if isinstance(like, tuple):
        return type(like)(
            *(rule_from_data(one, part) for one, part in zip(like, data, strict=True))
        )
    if isinstance(like, np.ndarray):
        shape, raw = data
        return np.frombuffer(raw, like.dtype).reshape(shape).copy()
    if type(data) is not type(like):
        raise TypeError(f"{data!r} where a number such as {like!r} belongs")
    return data


@lru_cache(maxsize=256)
def make_rule_template(policy: Policy) -> Any:
    """A rule of the kind that a policy binds to, whatever its numbers."""
    return policy.bind(Problem(["one", "other"], {}, draws=1))


def fill_arrays_from_bytes(blanks: Iterable[Any], data: list[bytes]) -> None:
    """Write the bytes of arrays back into arrays of their shapes."""
    for empty, raw in zip(blanks, data, strict=True):
        empty[...] = np.frombuffer(raw, empty.dtype).reshape(empty.shape)
