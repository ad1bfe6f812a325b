"""Export: segments of a log as Parquet files that can be verified without the store.

A file has one row per event: `seq`, `at`, `kind`, `of`, `key`, `body` as JSON for queries, `raw` as
it is stored, and `seal`. Its metadata has the router, its number, the seal before its first event
and that of its last.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyarrow import parquet

from bylot._atomic_write import replace_file
from bylot.errors import BylotError, RouterNotFound, StoreCorrupted
from bylot.eventlog.events import BODY_DECODERS, rehash_event
from bylot.eventlog.repository import iterate_events
from bylot.store import Event, RouterRow, Store

EXPORT_FORMAT = "bylot-log 1"
EXPORT_SCHEMA = pa.schema(
    {
        "seq": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "kind": pa.string(),
        "of": pa.int64(),
        "key": pa.string(),
        "body": pa.string(),
        "raw": pa.binary(),
        "seal": pa.binary(),
    }
)
EVENTS_PER_ROW_GROUP = 20_000


class LogRange(NamedTuple):
    """Events of a log, `first` to `last`; before: the seal of the event before them."""

    first: int
    last: int
    before: bytes


class ExportedFile(NamedTuple):
    """A file of an export, and the events in it."""

    path: Path
    events: LogRange


def export_router(
    store: Store, name: str, folder: Path, *, everything: bool = False
) -> Iterator[ExportedFile]:
    """Write a file for each segment of a log that has ended and has none yet, one after the other.

    everything: also the events since then, whose file the next export replaces
    """
    row = store.find(name)
    if row is None:
        raise RouterNotFound(f"no router named {name!r} in {store.address}")
    folder.mkdir(parents=True, exist_ok=True)
    prefix = f"{name}.{row.number}"
    for events in list_ranges(store, row, everything=everything):
        path = folder / f"{prefix}.{events.first:010}-{events.last:010}.parquet"
        if not path.exists():
            replace_file(path, encode_events(row, events, read_range(store, row, events)))
        for older in folder.glob(f"{prefix}.{events.first:010}-*.parquet"):
            if older != path:  # of a segment that had not ended then
                older.unlink()
        yield ExportedFile(path, events)


def list_ranges(store: Store, row: RouterRow, *, everything: bool) -> list[LogRange]:
    """The segments of a log that are kept, and perhaps the rest of it."""
    ranges, before, first = [], b"", 0
    for one in store.segments(row.number):
        if not one.dropped:
            ranges.append(LogRange(one.first, one.last, before))
        before, first = one.seal, one.last + 1
    last = store.last_seq(row.number)
    if everything and last is not None and last >= first:
        ranges.append(LogRange(first, last, before))
    return ranges


def read_range(store: Store, row: RouterRow, events: LogRange) -> Iterator[Event]:
    """The events of a range, verified."""
    seal, following = events.before, events.first
    for event in iterate_events(store, row.number, events.first - 1):
        if event.seq > events.last:
            return
        if event.seq != following or rehash_event(seal, event) != event:
            raise StoreCorrupted(f"router {row.name!r}: event {following} of its log was changed")
        seal, following = event.seal, event.seq + 1
        yield event
    if following <= events.last:
        raise StoreCorrupted(f"router {row.name!r}: its log ends before event {events.last}")


def encode_events(row: RouterRow, events: LogRange, log: Iterator[Event]) -> bytes:
    """The content of a file."""
    metadata = {
        "format": EXPORT_FORMAT,
        "router": row.name,
        "number": str(row.number),
        "before": events.before.hex(),
    }
    buffer = io.BytesIO()
    schema = EXPORT_SCHEMA.with_metadata(metadata)
    with parquet.ParquetWriter(buffer, schema, compression="zstd") as writer:
        while page := list(islice(log, EVENTS_PER_ROW_GROUP)):
            writer.write_table(table_from_events(page, schema))
    return buffer.getvalue()


def table_from_events(events: Sequence[Event], schema: pa.Schema) -> pa.Table:
    """One row per event."""
    _, seq, kind, of, key, at, raw, seal = zip(*events, strict=True)
    body = [json_from_raw(*one) for one in zip(kind, raw, strict=True)]
    columns = (seq, at, kind, of, key, body, raw, seal)
    arrays = [pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def events_from_table(table: pa.Table, number: int) -> Iterator[Event]:
    """Inverse of `table_from_events`; an event is empty if its JSON is not that of its body."""
    columns = [table[name] for name in EXPORT_SCHEMA.names]
    columns[1] = columns[1].cast(pa.int64())
    for seq, at, kind, of, key, body, raw, seal in zip(
        *(one.to_pylist() for one in columns), strict=True
    ):
        same = json_from_raw(kind, raw) == body
        yield Event(number, seq, kind, of, key, at, raw if same else b"", seal)


def json_from_raw(kind: str, raw: bytes) -> str:
    """The body of an event as JSON; empty if it cannot be read."""
    try:
        return msgspec.json.encode(BODY_DECODERS[kind](raw)).decode()
    except (LookupError, msgspec.MsgspecError):
        return ""


def verify_files(paths: Iterable[Path]) -> dict[str, LogRange]:
    """Verify the hashes of exported events, and that the files of a router follow each other;
    returns what there is, by name and number of the router.
    """
    found: dict[str, LogRange] = {}
    seals: dict[str, bytes] = {}
    for path in sorted(paths):
        router, events, seal = verify_file(path)
        earlier = found.setdefault(router, events)
        follows = (earlier.last + 1, seals.get(router)) == (events.first, events.before)
        if earlier is not events and not follows:
            raise BylotError(f"{path}: its events do not follow those of the file before it")
        found[router], seals[router] = earlier._replace(last=events.last), seal
    return found


def verify_file(path: Path) -> tuple[str, LogRange, bytes]:
    """The router of a file, its events, and the seal of the last; an error if one was changed."""
    try:
        table = parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise BylotError(f"{path} cannot be read: {error}") from None
    metadata = {key.decode(): text.decode() for key, text in (table.schema.metadata or {}).items()}
    if metadata.get("format") != EXPORT_FORMAT or not table.schema.equals(EXPORT_SCHEMA):
        raise BylotError(f"{path} is not an exported log of bylot")
    number, before = int(metadata["number"]), bytes.fromhex(metadata["before"])
    seal, seq = before, int(table["seq"][0].as_py())
    first = seq
    for event in events_from_table(table, number):
        if event.seq != seq or rehash_event(seal, event) != event:
            raise BylotError(f"{path}: event {seq} was changed")
        seal, seq = event.seal, seq + 1
    return f"{metadata['router']}.{number}", LogRange(first, seq - 1, before), seal
