"""Snapshots: the state of a router after an event, as bytes from which it continues bit for bit.

What was solved for when the policy was bound to its problem is included, so that nothing has to be
solved again. Tickets are in the log.
"""

import time
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct, msgpack

from bylot.errors import PolicyError
from bylot.limits.records import LimitRule
from bylot.limits.schedule import schedule_from_sets
from bylot.policies import resolve_policy
from bylot.policies.base import FeedbackKind, Policy
from bylot.policies.binding import bind_policy
from bylot.problem import Problem
from bylot.router.config import RouterConfig
from bylot.router.core import RouterCore, iterate_arrays
from bylot.router.open_decisions import OpenDecisionColumns
from bylot.router.persistence import CoreData, core_from_data, core_to_data
from bylot.router.status import Counters
from bylot.router.timeline import Timeline
from bylot.store import Snapshot, Store

SNAPSHOT_VERSION = 11
TALLY_FIELDS = ("timeline", "counters", "stated")
MAX_STATE_BYTES = 2**32 - 1  # of an array in MessagePack
SNAPSHOT_PART_BYTES = 16_000_000


class SegmentStart(Struct):
    """The segment of a log that has not ended.

    at:     when its first event happened; 0: when the router was created
    refers: the oldest decision that its events are about; its first event if none is older
    """

    first: int = 0
    at: int = 0
    refers: int = 0


class SnapshotContent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a snapshot; fields as in `RouterAggregate`, its engine and its tally."""

    version: int
    router: int
    name: str
    seq: int
    at: int
    seal: bytes
    pool_since: int
    config: RouterConfig
    core: CoreData
    open: OpenDecisionColumns
    timeline: Timeline
    counters: Counters
    stated: dict[str, float]
    segment: SegmentStart | None = None  # None: the first one, as in snapshots of older versions


encode_snapshot = msgpack.Encoder().encode
decode_snapshot = msgpack.Decoder(SnapshotContent).decode


class SnapshotWrite:
    """A snapshot that is written part by part, so that requests are served in between.

    It counts when its last part is written; then the parts of the one before are deleted.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.part, self.work_s = snapshot, 0, 0.0

    def write_parts(self, store: Store, work_s: float) -> bool:
        """Write parts for as long as the router has worked since the last ones, at least one;
        whether more is left. So the work during the write takes at most as long as the write.

        work_s: seconds for which the router has worked since the snapshot was taken
        """
        end = time.perf_counter() + work_s - self.work_s
        self.work_s = work_s
        while self.write_part(store):
            if time.perf_counter() >= end:
                return True
        return False

    def write_part(self, store: Store) -> bool:
        """Write the next part, or delete one of the snapshot before; whether more is left."""
        router, seq, body, _ = self.snapshot
        first = self.part * SNAPSHOT_PART_BYTES
        piece = body[first : first + SNAPSHOT_PART_BYTES]
        if not piece:
            return store.delete_snapshot_part(router, seq)
        if first + len(piece) < len(body):
            store.add_snapshot_part(router, seq, self.part, piece)
        else:
            store.append([], [self.snapshot._replace(body=piece)])
        self.part += 1
        return len(body) > SNAPSHOT_PART_BYTES


def store_core(core: RouterCore) -> CoreData:
    """Serialise a core with its rule, arrays as bytes."""
    return core_to_data(core, np.ndarray.tobytes, rule_to_data(core.rules))


def check_snapshot_size(core: RouterCore, max_contexts: int) -> None:
    """Refuse a router of which no snapshot could be taken when it has all of its contexts."""
    states = (core.policy.start(core.rule, contexts) for contexts in (1, 2))
    one, two = (
        sum(array.nbytes for array in iterate_arrays(state, core.policy.derived))
        for state in states
    )
    most = 1 + (MAX_STATE_BYTES - one) // max(1, two - one)
    if max_contexts > most:
        raise PolicyError(
            f"max_contexts={max_contexts:,}: what {core.policy.name} remembers of "
            f"{core.problem.size:,} experts in so many contexts is too large for a snapshot",
            expected=f"at most {most:,}" if most > 0 else "fewer experts",
            remedy="use a policy that remembers less, such as 'distinct'",
        )


def restore_core(content: SnapshotContent) -> RouterCore:
    """Inverse of `store_core`."""
    config = content.config
    problem = config.build_problem(Problem.known)  # it was validated before
    policy = resolve_policy(config.build_policy(), problem)
    run = config.build_run(problem)
    rules = rule_from_data(make_rule_template(policy, run.feedback), content.core.rule)
    return core_from_data(problem, policy, run, config.max_contexts, content.core, rules)


def rule_to_data(rule: Any) -> Any:
    """A rule as nested lists; an array as its shape and its bytes.

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
        return [rule_to_data(one) for one in rule]
    if isinstance(rule, np.ndarray) and rule.dtype.names:
        return [rule_to_data(rule[name]) for name in rule.dtype.names]  # without what pads records
    if isinstance(rule, np.ndarray):
        return (rule.shape, rule.tobytes())
    return rule.item() if isinstance(rule, np.generic) else rule


def rule_from_data(template: Any, data: Any) -> Any:
    """Inverse of `rule_to_data`, for a rule of the same type as the template."""
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
    """A rule of the type that a policy binds to."""
    return bind_policy(policy, Problem(["one", "other"], {}, draws=1), None, feedback)
