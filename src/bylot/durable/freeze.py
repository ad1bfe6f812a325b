"""Snapshots: all that a log adds up to, as bytes from which it goes on to the last bit.

Arrays are written as they are in memory, and what was solved for when a policy was bound to its
problem is written too, so that nothing has to be solved again. Tickets are left to the log.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct, msgpack

from bylot.codec import leaves
from bylot.durable.accounts import Accounts
from bylot.durable.agreement import known
from bylot.durable.course import Course
from bylot.durable.held import Columns
from bylot.durable.terms import Terms
from bylot.errors import StoreDamaged
from bylot.policies import Derives, Policy
from bylot.policies.guard import Guard
from bylot.policies.ledger import blank
from bylot.policies.schedule import rated
from bylot.problem import Problem
from bylot.router import Router
from bylot.saving import derived

FORM = 2  # the version of all this


class Frozen(Struct, frozen=True, kw_only=True):
    """The content of a snapshot."""

    form: int
    router: int
    seq: int
    at: int
    created: int
    seal: bytes
    pool: int
    terms: Terms
    rule: list[Any]
    lines: int  # of the state, one a context
    state: list[bytes]
    ledger: list[bytes]
    contexts: list[str | None]
    since: dict[str, int]
    unused: dict[str, int]
    period: tuple[int, int]
    skipped: list[int]
    held: Columns
    course: Course
    accounts: Accounts


ENCODE = msgpack.Encoder().encode
DECODE = msgpack.Decoder(Frozen).decode


def write_router(router: Router) -> dict[str, Any]:
    """The parts of a snapshot that are the router's."""
    return {
        "rule": write_rule(router.rule),
        "lines": len(router.state.visits),
        "state": [one.tobytes() for one in leaves(router.state, derived(router.policy))],
        "ledger": [one.tobytes() for one in leaves(router.ledger)],
        "contexts": list(router.contexts),
        "since": router.since,
        "unused": router.unused,
        "period": router.period,
        "skipped": router.skipped,
    }


def read_router(frozen: Frozen) -> Router:
    """The router that was written."""
    terms, problem, policy, run = known(frozen.terms)
    rule = read_rule(pattern(policy), frozen.rule)  # type: ignore[arg-type] # settings are frozen
    state, ledger = policy.start(rule, frozen.lines), blank(len(problem.costs))
    fill(leaves(state, derived(policy)), frozen.state)
    fill(leaves(ledger), frozen.ledger)
    if isinstance(policy, Derives):
        policy.derive(rule, state)
    if len(frozen.contexts) > frozen.lines or not policy.sound(rule, state):
        raise StoreDamaged("its state is none that a router can be in")
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


def write_rule(rule: Any) -> Any:
    """A rule as nested lists; an array as its shape and its bytes.

    The rota of a guard is long: its sets are written in as few bytes as they need, and what follows
    from them is left out.
    """
    if isinstance(rule, Guard):
        sets = rule.schedule.sets
        narrow = sets.astype(np.min_scalar_type(int(sets.max(initial=0))))
        rota = (narrow.dtype.str, narrow.shape, narrow.tobytes())
        return [*(write_rule(one) for one in rule[:-1]), rota]
    if isinstance(rule, tuple):
        return [write_rule(one) for one in rule]
    if isinstance(rule, np.ndarray):
        return (rule.shape, rule.tobytes())
    return rule.item() if isinstance(rule, np.generic) else rule


def read_rule(like: Any, data: Any) -> Any:
    """The inverse of `write_rule`, for a rule of the same kind as another."""
    if isinstance(like, Guard):
        *parts, (dtype, shape, raw) = data
        plain = [read_rule(one, part) for one, part in zip(like[:-1], parts, strict=True)]
        made = Guard._make([*plain, like.schedule])
        sets = np.frombuffer(raw, dtype).reshape(shape).astype(np.int64)
        return made._replace(schedule=rated(sets, made.A))
    if isinstance(like, tuple):
        return type(like)(*(read_rule(one, part) for one, part in zip(like, data, strict=True)))
    if isinstance(like, np.ndarray):
        shape, raw = data
        return np.frombuffer(raw, like.dtype).reshape(shape).copy()
    if type(data) is not type(like):
        raise TypeError(f"{data!r} where a number such as {like!r} belongs")
    return data


@lru_cache(maxsize=256)
def pattern(policy: Policy) -> Any:
    """A rule of the kind that a policy binds to, whatever its numbers."""
    return policy.bind(Problem(["one", "other"], {}, draws=1))


def fill(blanks: Iterable[Any], data: list[bytes]) -> None:
    """Write the bytes of arrays back into arrays of their shapes."""
    for empty, raw in zip(blanks, data, strict=True):
        empty[...] = np.frombuffer(raw, empty.dtype).reshape(empty.shape)
