"""Snapshots in a store: the state of a router after an event, and how it is written.

Tickets of open decisions are in the log.
"""

import time
from typing import TYPE_CHECKING

from msgspec import MsgspecError, Struct, msgpack

from bylot.errors import BylotError, PolicyError, StoreCorrupted
from bylot.eventlog.events import hash_snapshot
from bylot.router.config import RouterConfig
from bylot.router.core import RouterCore, iterate_arrays
from bylot.router.open_decisions import OpenDecisionColumns
from bylot.router.snapshot import SNAPSHOT_VERSION, CoreData, core_from_data, core_to_data
from bylot.router.status import Counters
from bylot.router.timeline import Timeline
from bylot.store import Snapshot, Store

if TYPE_CHECKING:
    from bylot.eventlog.aggregate import RouterAggregate

PLAIN_FIELDS = ("seq", "at", "seal")
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
    segment: SegmentStart


def encode_snapshot(router: "RouterAggregate") -> bytes:
    """Return the body of a snapshot of a router as it is now."""
    engine = router.engine
    content = SnapshotContent(
        version=SNAPSHOT_VERSION,
        router=0 if router.seq < 0 else router.number,
        name=router.name,
        config=router.config,
        core=core_to_data(engine.core, with_rule=True),
        pool_since=engine.pool_since,
        open=engine.open.to_columns(),
        segment=router.segment,
        **{field: getattr(router, field) for field in PLAIN_FIELDS},
        **{field: getattr(router.tally, field) for field in TALLY_FIELDS},
    )
    return msgpack.encode(content)


def decode_snapshot(name: str, stored: Snapshot) -> tuple[SnapshotContent, RouterCore]:
    """Return the content of a snapshot of this router, and its core; or raise StoreCorrupted."""
    if hash_snapshot(stored.body) != stored.seal:
        raise StoreCorrupted(f"router {name!r}: its snapshot was changed")
    try:
        content = msgpack.decode(stored.body, type=SnapshotContent)
        core = core_from_data(content.config, content.core)
    except (BylotError, MsgspecError, ValueError, TypeError, LookupError) as error:
        raise StoreCorrupted(f"router {name!r}: its snapshot: {error}") from error
    which = (content.version, content.router, content.name, content.seq)
    number = 0 if stored.seq < 0 else stored.router  # of a copy it was not known yet
    if which != (SNAPSHOT_VERSION, number, name, stored.seq):
        raise StoreCorrupted(
            f"router {name!r}: its snapshot is of another version, or of another router"
        )
    return content, core


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
