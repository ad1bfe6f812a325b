"""Stores against a model of plain dicts: whatever is asked of two handles, all answer the same."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bylot.errors import IdempotencyKeyReused, LeaseLost, RouterExists, RouterNotFound, StoreError
from bylot.store import DecisionEvents, Event, RouterRow, Snapshot, Store, open_store

Step = tuple[Any, ...]


class World:
    """What all handles of a model share."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.rows: dict[int, RouterRow] = {}
        self.logs: dict[int, list[Event]] = {}
        self.snapshots: dict[int, Snapshot] = {}
        self.leases: dict[int, str] = {}  # those that are not over


class Model:
    """The contract in a few lines; a lease is for ever, or over at once."""

    def __init__(self, world: World) -> None:
        self.world, self.owner = world, ""

    def create(self, name: str, at: int, first: Event) -> RouterRow:
        if self.find(name):
            raise RouterExists
        number = next(self.world.numbers)
        self.world.rows[number] = RouterRow(number, name, at)
        self.world.logs[number] = [first._replace(router=number)]
        return self.world.rows[number]

    def delete(self, router: int) -> None:
        for table in (self.world.rows, self.world.logs, self.world.snapshots, self.world.leases):
            table.pop(router, None)

    def find(self, name: str) -> RouterRow | None:
        return next((row for row in self.world.rows.values() if row.name == name), None)

    def routers(self, after: str = "", limit: int = 1000) -> list[RouterRow]:
        rows = sorted(self.world.rows.values(), key=lambda row: row.name)
        return [row for row in rows if row.name > after][:limit]

    def append(self, events: list[Event], snapshots: list[Snapshot]) -> None:
        world = self.world
        starts = {event.router: event.seq for event in reversed(events)}
        lost = {
            router
            for router in {*starts, *(one.router for one in snapshots)}
            if router not in world.rows
            or world.leases.get(router, self.owner) != self.owner
            or starts.get(router, len(world.logs[router])) != len(world.logs[router])
        }
        if lost:
            raise LeaseLost("", routers=sorted(lost))
        keys = [(e.router, e.key) for e in events if e.kind == "decided" and e.key is not None]
        if len(set(keys)) < len(keys) or any(self.decision_by_key(*key) for key in keys):
            raise IdempotencyKeyReused
        for event in events:
            world.logs[event.router].append(event)
        for one in snapshots:
            if one.router not in world.snapshots or world.snapshots[one.router].seq <= one.seq:
                world.snapshots[one.router] = one

    def event(self, router: int, seq: int) -> Event | None:
        return next((e for e in self.events(router) if e.seq == seq), None)

    def events(self, router: int, after: int = -1, limit: int = 1000) -> list[Event]:
        return [e for e in self.world.logs.get(router, []) if e.seq > after][:limit]

    def latest(self, router: int, kind: str, limit: int) -> list[Event]:
        return [e for e in reversed(self.events(router)) if e.kind == kind][:limit]

    def edits(self, router: int, limit: int) -> list[Event]:
        return [e for e in reversed(self.events(router)) if e.kind == "edited"][:limit]

    def decision_events(self, router: int, seq: int) -> DecisionEvents | None:
        decided = self.event(router, seq)
        if decided is None or decided.kind != "decided":
            return None
        return DecisionEvents(decided, [e for e in self.events(router) if e.of == seq])

    def preceding_events(self, router: int, seq: int) -> list[Event]:
        after = {e.seq for e in self.events(router) if e.of == seq}
        return [e for e in self.events(router) if e.seq + 1 in after]

    def decision_by_key(self, router: int, key: str | None) -> Event | None:
        lines = [e for e in self.events(router) if e.key == key and e.kind == "decided"]
        return next(iter(lines), None)

    def snapshot(self, router: int) -> Snapshot | None:
        return self.world.snapshots.get(router)

    def lease(self, router: int, owner: str, seconds: float) -> float | None:
        if router not in self.world.rows:
            raise RouterNotFound
        if self.world.leases.get(router, owner) != owner:
            return seconds
        self.world.leases.pop(router, None)
        if seconds:
            self.world.leases[router] = owner
        self.owner = owner
        return None

    def release(self, owner: str, routers: list[int] | None = None) -> None:
        mine = [n for n, holder in self.world.leases.items() if holder == owner]
        for router in mine:
            if routers is None or router in routers:
                del self.world.leases[router]


class Side:
    """Two handles of one store; routers are spoken of by how many were made before them."""

    def __init__(self, handles: tuple[Any, Any]) -> None:
        self.handles = handles
        self.numbers: list[int] = []

    def number(self, ordinal: int) -> int:
        return self.numbers[ordinal] if ordinal < len(self.numbers) else 10**9 + ordinal

    def ask(self, who: int, what: str, *values: Any) -> Any:
        """The answer, or the kind of error, in terms that are the same on all sides."""
        arguments = [self.told(value) for value in values]
        try:
            answer = getattr(self.handles[who], what)(*arguments)
        except StoreError as error:
            return type(error), self.heard(getattr(error, "routers", None))
        if what == "create":
            self.numbers.append(answer.number)
        return answer is None if what == "lease" else self.heard(answer)

    def told(self, value: Any) -> Any:
        """Ordinals, which are wrapped in sets, become numbers."""
        if isinstance(value, frozenset):
            return self.number(*value)
        if isinstance(value, Event | Snapshot):
            return value._replace(router=self.number(value.router))
        return [self.told(one) for one in value] if isinstance(value, list) else value

    def heard(self, value: Any) -> Any:
        """Numbers become ordinals."""
        if isinstance(value, Event | Snapshot):
            return value._replace(router=self.numbers.index(value.router))
        if isinstance(value, RouterRow):
            return value._replace(number=self.numbers.index(value.number))
        if isinstance(value, DecisionEvents):
            return DecisionEvents(self.heard(value.decided), self.heard(value.since))
        if isinstance(value, tuple):
            known = {number: ordinal for ordinal, number in enumerate(self.numbers)}
            return sorted(known.get(number, -1) for number in value)
        return [self.heard(one) for one in value] if isinstance(value, list) else value


ORDINALS = st.integers(0, 3)
ROUTERS = ORDINALS.map(lambda ordinal: frozenset([ordinal]))
NAMES = st.sampled_from(["a", "b", "Z", "é", "a'"])
KEYS = st.none() | st.sampled_from(["k", "K", "l"])
KINDS = st.sampled_from(["decided", "decided", "rewarded", "edited"])
SEQS = st.integers(-1, 8)
LINES = st.lists(st.tuples(ORDINALS, KINDS, st.none() | SEQS, KEYS), max_size=5)
SLIPS = st.sampled_from([0, 0, 0, 0, 0, 1, -1])  # of the writer: mostly none
OWNERS = st.sampled_from(["me", "you"])
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("create"), NAMES),
    st.tuples(st.just("append"), LINES, SLIPS, st.lists(st.tuples(ORDINALS, SEQS), max_size=2)),
    st.tuples(st.just("append"), LINES, SLIPS, st.just([])),
    st.tuples(st.just("delete"), ROUTERS),
    st.tuples(st.just("find"), NAMES),
    st.tuples(st.just("routers"), NAMES, st.integers(0, 3)),
    st.tuples(st.just("snapshot"), ROUTERS),
    st.tuples(st.sampled_from(["event", "decision_events", "preceding_events"]), ROUTERS, SEQS),
    st.tuples(st.just("events"), ROUTERS, SEQS, st.integers(0, 3)),
    st.tuples(st.just("latest"), ROUTERS, KINDS, st.integers(0, 3)),
    st.tuples(st.just("edits"), ROUTERS, st.integers(0, 3)),
    st.tuples(st.just("decision_by_key"), ROUTERS, st.sampled_from(["k", "K", "l"])),
    st.tuples(st.just("lease"), ROUTERS, OWNERS, st.sampled_from([0.0, 1e6])),
    st.tuples(st.just("release"), OWNERS, st.none() | st.lists(ROUTERS, max_size=2)),
)


def batch(model: Side, lines: list[Step], slip: int, snapshots: list[Step]) -> Step:
    """Lines that continue the logs of the model, but for a slip; snapshots as given."""
    ends = {n: len(model.handles[0].events(model.number(n))) + slip for n in range(4)}
    events: list[Event] = []
    for ordinal, kind, of, key in lines:
        body = f"{len(events)} {kind}".encode()
        events.append(Event(ordinal, ends[ordinal], kind, of, key, 5, body, b""))
        ends[ordinal] += 1
    kept = {n: Snapshot(n, seq, b"state %d" % seq, b"") for n, seq in snapshots}
    return events, list(kept.values())


def differences(model: Side, others: list[Side], steps: list[tuple[int, Step]]) -> list[Step]:
    """Steps that not all answered as the model did."""
    found = []
    for who, (what, *values) in steps:
        if what == "create":
            values = [*values, 3, Event(0, 0, "created", None, None, 3, b"terms", b"")]
        if what == "append":
            values = list(batch(model, *values))
        wanted = model.ask(who, what, *values)
        found += [(what, *values) for other in others if other.ask(who, what, *values) != wanted]
    return found


@pytest.fixture
def fresh(tmp_path: Path, postgres_address: str) -> Iterator[Callable[[], list[Side]]]:
    """Both stores with two handles each, as if nothing had happened before."""
    addresses = (f"sqlite:///{tmp_path}/routers.db", postgres_address)
    pairs: list[tuple[Store, Store]] = [(open_store(one), open_store(one)) for one in addresses]

    def emptied() -> list[Side]:
        for pair in pairs:
            for row in pair[0].routers():
                pair[0].delete(row.number)
            for handle in pair:
                handle.owner = ""
        return [Side(pair) for pair in pairs]

    yield emptied
    for pair in pairs:
        for handle in pair:
            handle.close()


LOOKS: list[tuple[int, Step]] = [
    (0, (what, frozenset([ordinal]))) for what in ("events", "snapshot") for ordinal in range(4)
]
PLAYS = st.lists(st.tuples(st.integers(0, 1), STEPS), min_size=5, max_size=40)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=PLAYS)
def test_both_stores_do_as_the_model_does(
    fresh: Callable[[], list[Side]], steps: list[tuple[int, Step]]
) -> None:
    world = World()
    steps = [(0, ("create", "a")), (1, ("create", "b")), *steps, *LOOKS]
    assert differences(Side((Model(world), Model(world))), fresh(), steps) == []


class Forgetful(Model):
    """Does not look at leases."""

    def lease(self, router: int, owner: str, seconds: float) -> float | None:
        super().lease(router, owner, 0.0)
        return None


def test_the_test_above_would_notice_a_store_that_ignores_leases() -> None:
    a = frozenset([0])
    steps = [(0, ("create", "a")), (0, ("lease", a, "me", 1e6)), (1, ("lease", a, "you", 1e6))]
    worlds = World(), World()
    model, other = Side((Model(worlds[0]),) * 2), Side((Forgetful(worlds[1]),) * 2)
    assert differences(model, [other], steps) == [("lease", a, "you", 1e6)]
