"""Copies: a router that has learned continues under another name, or in another store.

The log of a copy begins with an event that records its first state, so that it proves itself.
Open decisions stay with the original: their rewards belong there.
"""

from pathlib import Path

from msgspec import structs

from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.commands import check_router_name
from bylot.eventlog.events import now_us
from bylot.eventlog.loading import find_stored_router, load_aggregate
from bylot.eventlog.snapshot import SegmentStart, check_snapshot_size
from bylot.policies.registry import check_max_contexts
from bylot.router.open_decisions import OpenDecisions
from bylot.router.saved_file import load_engine, make_config
from bylot.router.status import Counters
from bylot.router.timeline import skip_decisions
from bylot.store import RouterRow, Store


def copy_router(source: Store, name: str, target: Store, new_name: str) -> RouterRow:
    """Copy a stored router as it is now: configuration, all that it has learned, its ledger."""
    check_router_name(new_name)
    router = load_aggregate(source, find_stored_router(source, name))
    waiting = sum(not (one.is_deferred or one.valued) for _, one in router.engine.open)
    router.tally.counters.missing += waiting
    return start_copy(target, router, new_name, f"router {name} after event {router.seq}")


def import_router(path: Path, target: Store, name: str) -> RouterRow:
    """Create a stored router from a file of `Router.save`."""
    check_router_name(name)
    engine = load_engine(path)
    core = engine.core
    check_max_contexts(core.policy, core.problem.size, core.max_contexts)
    check_snapshot_size(core, core.max_contexts)
    spent = core.sums.list_spent()
    config = structs.replace(make_config(engine), version=1)
    router = RouterAggregate(0, name, config, core)
    rewards, total = int(core.totals.rewards[0]), float(core.totals.total[0])
    earned = max(0.0, total - rewards * core.run.low)
    router.tally.counters = Counters(
        learned=rewards, earned=earned, missing=engine.count_waiting(), booked=dict(spent)
    )
    router.tally.stated = spent
    router.tally.timeline = skip_decisions(core.problem.costs, core.t, now_us())
    return start_copy(target, router, name, f"file {path.name}")


def start_copy(target: Store, router: RouterAggregate, name: str, origin: str) -> RouterRow:
    """Write the first event and the first state of a copy; the router is changed."""
    at = max(now_us(), router.at)
    router.name, router.number, router.seq, router.seal = name, 0, -1, b""
    router.at = at
    router.engine.pool_since = 0
    router.engine.open = OpenDecisions(router.read)
    router.adopt(structs.replace(router.config, version=1))
    router.segment = SegmentStart()
    restored = RouterAggregate.from_snapshot(name, router.take_snapshot())  # as a replay begins
    first_state = restored.take_snapshot()
    return target.create(name, at, restored.begin_copy(at, origin), first_state)
