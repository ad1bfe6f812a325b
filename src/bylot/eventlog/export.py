"""Export: segments of a log as Parquet files that can be verified without the store.

A file has one row per event: `seq`, `at`, `kind`, `of`, `key`, `body` as JSON for queries, `raw` as
it is stored, and its hash, `seal`. Its metadata has the router and its number, the first and the
last event, and the hashes of the last one and of the event before the first.
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
from bylot.errors import BylotError, StoreCorrupted
from bylot.eventlog.events import BODY_DECODERS, verify_chain
from bylot.eventlog.loading import find_stored_router, iterate_events
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
    """Events of a log, `first` to `last`; the hashes of the last and of the event before them."""

    first: int
    last: int
    seal: bytes
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
    row = find_stored_router(store, name)
    for events in list_ranges(store, row, everything=everything):
        path = folder / name_file(row, events)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                replace_file(path, encode_events(row, events, read_range(store, row, events)))
            remove_replaced_files(store, row, events, folder)
        except OSError as error:
            raise BylotError(
                f"{path} cannot be written: {error.strerror}",
                remedy="give another folder with --out",
            ) from None
        yield ExportedFile(path, events)


def name_file(row: RouterRow, events: LogRange) -> str:
    """A name that differs for logs that differ, also of other stores."""
    seal = events.seal.hex()[:8]
    return f"{row.name}.{row.number}.{events.first:010}-{events.last:010}.{seal}.parquet"


def remove_replaced_files(store: Store, row: RouterRow, events: LogRange, folder: Path) -> None:
    """Remove files of the same segment of this log from before it had all of these events."""
    for path in folder.glob(f"{row.name}.{row.number}.{events.first:010}-*.parquet"):
        _, _, places, seal, _ = path.name.rsplit(".", 4)
        last = int(places.partition("-")[2])
        event = store.event(row.number, last) if last < events.last else None
        if event is not None and event.seal.hex().startswith(seal):
            path.unlink()


def list_ranges(store: Store, row: RouterRow, *, everything: bool) -> list[LogRange]:
    """The segments of a log that are kept, and perhaps the rest of it."""
    ranges, before, first = [], b"", 0
    for one in store.segments(row.number):
        if not one.dropped:
            ranges.append(LogRange(one.first, one.last, one.seal, before))
        before, first = one.seal, one.last + 1
    last = store.last_seq(row.number)
    event = None if last is None else store.event(row.number, last)
    if everything and event is not None and event.seq >= first:
        ranges.append(LogRange(first, event.seq, event.seal, before))
    return ranges


def read_range(store: Store, row: RouterRow, events: LogRange) -> Iterator[Event]:
    """The events of a range, verified."""
    if store.first_seq(row.number) > events.first:
        raise BylotError(
            f"events {events.first} to {events.last} of router {row.name!r} were dropped",
            remedy="export them sooner, or keep more (`bylot serve --keep`)",
        )
    log = iterate_events(store, row.number, events.first - 1)
    count = events.last + 1 - events.first
    seal = b""
    for event in verify_chain(islice(log, count), events.before, events.first, row.name):
        seal = event.seal
        yield event
    if seal != events.seal:
        raise StoreCorrupted(f"router {row.name!r}: its log does not end with event {events.last}")


def encode_events(row: RouterRow, events: LogRange, log: Iterator[Event]) -> bytes:
    """The content of a file."""
    metadata = {
        "format": EXPORT_FORMAT,
        "router": row.name,
        "number": str(row.number),
        "first": str(events.first),
        "last": str(events.last),
        "seal": events.seal.hex(),
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
    """Inverse of `table_from_events`. An event whose JSON differs from its body gets an empty body,
    which its hash is not of.
    """
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
    for path in sorted(paths):
        router, events = verify_file(path)
        earlier = found.setdefault(router, events)
        follows = (earlier.last + 1, earlier.seal) == (events.first, events.before)
        if earlier is not events and events.first <= earlier.last:
            raise BylotError(
                f"{path}: its events from {events.first} on are also in the file before it",
                remedy="name the files of one folder of exports",
            )
        if earlier is not events and not follows:
            raise BylotError(f"{path}: its events do not follow those of the file before it")
        found[router] = earlier._replace(last=events.last, seal=events.seal)
    return found


def verify_file(path: Path) -> tuple[str, LogRange]:
    """The router of a file and its events; an error if anything was changed."""
    try:
        table = parquet.read_table(path)
    except FileNotFoundError:
        raise BylotError(f"{path} does not exist") from None
    except pa.ArrowInvalid:
        raise BylotError(
            f"{path} is not a Parquet file, or is damaged",
            remedy="name files that `bylot router export` wrote",
        ) from None
    except (pa.ArrowException, OSError) as error:
        raise BylotError(f"{path} cannot be read: {error}") from None
    metadata = {key.decode(): text.decode() for key, text in (table.schema.metadata or {}).items()}
    try:
        number, first, last = (int(metadata[name]) for name in ("number", "first", "last"))
        before, seal = (bytes.fromhex(metadata[name]) for name in ("before", "seal"))
        named = metadata["format"] == EXPORT_FORMAT
    except (KeyError, ValueError):
        named = False
    if not named or not table.schema.equals(EXPORT_SCHEMA) or table.num_rows == 0:
        raise BylotError(f"{path} is not an exported log of bylot")
    try:
        log = list(verify_chain(events_from_table(table, number), before, first, path.name))
        name = BODY_DECODERS[log[0].kind](log[0].body).name
    except (StoreCorrupted, AttributeError, TypeError, LookupError) as error:
        raise BylotError(f"{path} was changed: {error}") from None
    if (log[-1].seq, log[-1].seal, name) != (last, seal, metadata["router"]):
        raise BylotError(f"{path} was changed: it does not have what its metadata says")
    return f"{name}.{number}", LogRange(first, last, seal, before)
