"""Taking over: a router whose log this version cannot replay begins anew from what can be read.

That is its configuration, the bounds of its keys and its decisions, from which the new router
learns if its policy can. What it has spent is not: ledgers begin at zero. The old router keeps its
events under another name. Bodies of events are decoded leniently, as older versions wrote them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bylot import errors
from bylot.evaluate import LogEntry, log_from_entries, select_rounds, write_log
from bylot.eventlog import events
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.config_validation import prepare_config
from bylot.eventlog.copies import start_copy
from bylot.eventlog.decision_log import LogReader
from bylot.eventlog.loading import check_log_end, iterate_events, load_aggregate
from bylot.limits.keys import Key, KeyLedgers
from bylot.problem import Limit
from bylot.router.config import RouterConfig
from bylot.router.past_rounds import PastRound, can_learn_round, learn_rounds
from bylot.store import RouterRow, Store

MAX_KEPT_CHARS = 40  # of the name of a router in that of its old events
MISSING_FIELDS: dict[str, Any] = {
    "seats": (),
    "learned_inclusion": b"",
    "share": 1.0,
    "feasible": True,
    "weight": 1.0,
    "inclusion": None,
    "expected": {},
}
"""What a log does not need of a decision, where a body lacks it."""


class OlderRouter(NamedTuple):
    """What can be read of a router: what is in force, what it had learned from, what it decided.

    billed: the decisions, of their costs only those that were reported
    whole:  whether its log begins with its creation
    """

    name: str
    whole: bool
    config: RouterConfig
    keys: dict[tuple[str, str], tuple[Limit, ...]]
    rounds: list[PastRound]
    entries: list[LogEntry]
    billed: list[LogEntry]


def name_kept(row: RouterRow, name: str) -> str:
    """Return the name that the old events of a router are kept under, with its number."""
    return f"{name[:MAX_KEPT_CHARS]}--old{row.number}"


def read_name(store: Store, row: RouterRow) -> str:
    """Return the name of a router as its log has it: it may have been taken over before."""
    for event in store.events(row.number, limit=1):
        return str(msgspec.msgpack.decode(event.body)["name"])
    raise errors.StoreCorrupted(f"router {row.name!r}: its log has no event")


def find_unloadable(store: Store) -> Iterator[tuple[RouterRow, errors.BylotError]]:
    """Yield the routers that cannot be loaded, and why; not those that were taken over before."""
    after = ""
    while rows := store.routers(after):
        after = rows[-1].name
        for row in rows:
            is_kept = row.name.endswith(f"--old{row.number}")
            if is_kept and store.find(read_name(store, row)) is not None:
                continue
            try:
                load_aggregate(store, row)
            except errors.StoreUnavailable:
                raise
            except errors.BylotError as error:
                yield row, error


def read_older_router(store: Store, row: RouterRow) -> OlderRouter:
    """Read what can be read of a router; StoreCorrupted if its log was damaged."""
    reader = LogReader(f"{row.name}.{row.number}")
    configs: list[RouterConfig] = []
    keys: dict[tuple[str, str], tuple[Limit, ...]] = {}
    rounds: list[PastRound] = []
    first = store.first_seq(row.number)
    dropped = {segment.last: segment.seal for segment in store.segments(row.number)}
    log = iterate_events(store, row.number, first - 1)
    try:
        for event in events.verify_chain(log, dropped.get(first - 1, b""), first, row.name):
            body = decode_older_body(event.kind, event.body)
            reader.apply(event.seq, event.of, event.seal.hex(), body)
            match body:
                case events.RouterCreated(log=version) if version > events.LOG_VERSION:
                    raise errors.UnsupportedStore(
                        f"router {row.name!r}: its log has version {version}, which is newer than "
                        f"{events.LOG_VERSION}",
                        remedy="use the bylot that wrote it",
                    )
                case events.ConfigRecorded():
                    configs.append(body.config)
                case events.KeyChanged():
                    keys[body.scope, body.key] = tuple(map(Limit.from_data, body.limits))
                case events.RoundsLearned():
                    rounds += body.rounds
        name = read_name(store, row)
        begins = store.events(row.number, limit=1)[0].kind == "created"
        entries = reader.list_entries()
        billed = reader.list_billed_entries()
        return OlderRouter(name, begins, configs[-1], keys, rounds, entries, billed)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        raise errors.StoreCorrupted(f"router {row.name!r}: its log: {error!r}") from error


def decode_older_body(kind: str, raw: bytes) -> Any:
    """Decode the body of an event of any version; fields that are unknown today are left out."""
    data = msgspec.msgpack.decode(raw)
    if kind == "tenant":
        kind = "key"
        data |= {"scope": "tenant", "key": data["tenant"]}
    if kind == "decided":
        data = MISSING_FIELDS | data
    return msgspec.convert(data, events.EVENT_BODIES[kind])


def take_over(store: Store, row: RouterRow, folder: Path | None) -> list[str]:
    """Begin a router anew, its log in a file of this folder; returns what was taken over.

    folder: None: change nothing, and say what would be taken over
    """
    if row.name in store.owners():
        raise errors.RouterBusy(
            f"a server has router {row.name!r} open", remedy="stop all servers of the store"
        )
    check_log_end(store, row)
    older = read_older_router(store, row)
    name = older.name
    if row.name not in (name, name_kept(row, name)):
        raise errors.StoreCorrupted(f"router {row.name!r}: its log is that of router {name!r}")
    kept_as = name_kept(row, name)
    made, parts = begin_anew(name, older)
    count = f"log of {len(older.entries):,} decisions"
    if folder is None:
        return [*parts, count]
    path = folder / f"{name}.{row.number}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    write_log(path, older.entries)
    if row.name != kept_as:
        store.rename(row.number, kept_as)
    try:
        start_copy(store, made, name, f"log of router {kept_as}")
    except errors.BylotError:
        store.rename(row.number, name)
        raise
    return [*parts, f"{count}, in {path}", f"old events, as router {kept_as}"]


def begin_anew(name: str, older: OlderRouter) -> tuple[RouterAggregate, list[str]]:
    """Return a new router that has learned what it can, and what it has of the older one."""
    config, core = prepare_config(older.config)
    made = RouterAggregate(0, name, config, core)
    parts = [f"configuration, version {older.config.version}"]
    if core.book.keyed is not None and older.keys:
        fit = [set_own_bounds(core.book.keyed, *bounds) for bounds in older.keys.items()]
        parts.append(f"own bounds of {sum(fit):,} of {len(fit):,} tenants")
    if not older.whole:
        parts.append("of bounds of tenants only those that the log has, as it begins later")
    if not core.policy.learns_from_logs:
        parts.append(f"nothing learned: {core.policy.name} cannot learn from a log")
    else:
        decided = list(older.rounds)
        if older.billed:
            log = log_from_entries(core.problem, older.billed, gone=None)
            past = select_rounds(log, config.rewards, config.feedback)
            decided += past.rounds
            parts.append(str(past))
        rounds = [round for round in decided if can_learn_round(core, round)]
        learn_rounds(core, rounds)
        made.tally.counters.past = len(rounds)
        known = f"{len(older.rounds):,} of them from a log"
        parts.append(f"{len(rounds):,} of {len(decided):,} rounds learned, {known}")
    return made, parts


def set_own_bounds(keyed: KeyLedgers, key: Key, limits: Sequence[Limit]) -> bool:
    """Give a key its bounds; return whether they fit the limits, edited since or not."""
    try:
        keyed.set_bounds(key, limits)
    except errors.TenantError:
        return False
    return True
