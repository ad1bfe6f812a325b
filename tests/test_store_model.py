"""Stores against a model of plain dicts: any calls on two handles give the same answers."""

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


class ModelState:
    """The state that all handles of a model share."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.rows: dict[int, RouterRow] = {}
        self.logs: dict[int, list[Event]] = {}
        self.snapshots: dict[int, Snapshot] = {}
        self.leases: dict[int, str] = {}  # those that have not expired


class Model:
    """The contract in a few lines; a lease lasts forever or expires at once."""

    def __init__(self, state: ModelState) -> None:
        self.state, self.owner = state, ""

    def create(self, name: str, at: int, first: Event) -> RouterRow:
        if self.find(name):
            raise RouterExists
        number = next(self.state.numbers)
        self.state.rows[number] = RouterRow(number, name, at)
        self.state.logs[number] = [first._replace(router=number)]
        return self.state.rows[number]

    def delete(self, router: int) -> bool:
        for table in (self.state.rows, self.state.logs, self.state.snapshots, self.state.leases):
            table.pop(router, None)
        return False

    def find(self, name: str) -> RouterRow | None:
        return next((row for row in self.state.rows.values() if row.name == name), None)

    def routers(self, after: str = "", limit: int = 1000) -> list[RouterRow]:
        rows = sorted(self.state.rows.values(), key=lambda row: row.name)
        return [row for row in rows if row.name > after][:limit]

    def append(self, events: list[Event], snapshots: list[Snapshot]) -> None:
        state = self.state
        starts = {event.router: event.seq for event in reversed(events)}
        lost = {
            router
            for router in {*starts, *(one.router for one in snapshots)}
            if router not in state.rows
            or state.leases.get(router, self.owner) != self.owner
            or starts.get(router, len(state.logs[router])) != len(state.logs[router])
        }
        if lost:
            raise LeaseLost("", routers=sorted(lost))
        keys = [(e.router, e.key) for e in events if e.kind == "decided" and e.key is not None]
        if len(set(keys)) < len(keys) or any(self.decision_by_key(*key) for key in keys):
            raise IdempotencyKeyReused
        for event in events:
            state.logs[event.router].append(event)
        for one in snapshots:
            if one.router not in state.snapshots or state.snapshots[one.router].seq <= one.seq:
                state.snapshots[one.router] = one

    def event(self, router: int, seq: int) -> Event | None:
        return next((e for e in self.events(router) if e.seq == seq), None)

    def events(self, router: int, after: int = -1, limit: int = 1000) -> list[Event]:
        return [e for e in self.state.logs.get(router, []) if e.seq > after][:limit]

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
        event_specs = [e for e in self.events(router) if e.key == key and e.kind == "decided"]
        return next(iter(event_specs), None)

    def snapshot(self, router: int) -> Snapshot | None:
        return self.state.snapshots.get(router)

    def lease(self, router: int, owner: str, seconds: float) -> float | None:
        if router not in self.state.rows:
            raise RouterNotFound
        if self.state.leases.get(router, owner) != owner:
            return seconds
        self.state.leases.pop(router, None)
        if seconds:
            self.state.leases[router] = owner
        self.owner = owner
        return None

    def release(self, owner: str, routers: list[int] | None = None) -> None:
        own = [n for n, holder in self.state.leases.items() if holder == owner]
        for router in own:
            if routers is None or router in routers:
                del self.state.leases[router]


class StorePair:
    """Two handles of one store; routers are numbered in the order of creation."""

    def __init__(self, handles: tuple[Any, Any]) -> None:
        self.handles = handles
        self.numbers: list[int] = []

    def number(self, ordinal: int) -> int:
        return self.numbers[ordinal] if ordinal < len(self.numbers) else 10**9 + ordinal

    def ask(self, handle_index: int, method: str, *values: Any) -> Any:
        """The answer, or the type of the error, in a form that is the same for all stores."""
        arguments = [self.to_numbers(value) for value in values]
        try:
            answer = getattr(self.handles[handle_index], method)(*arguments)
        except StoreError as error:
            return type(error), self.to_ordinals(getattr(error, "routers", None))
        if method == "create":
            self.numbers.append(answer.number)
        return answer is None if method == "lease" else self.to_ordinals(answer)

    def to_numbers(self, value: Any) -> Any:
        """Convert ordinals, which are wrapped in sets, to numbers."""
        if isinstance(value, frozenset):
            return self.number(*value)
        if isinstance(value, Event | Snapshot):
            return value._replace(router=self.number(value.router))
        return [self.to_numbers(one) for one in value] if isinstance(value, list) else value

    def to_ordinals(self, value: Any) -> Any:
        """Convert numbers to ordinals."""
        if isinstance(value, Event | Snapshot):
            return value._replace(router=self.numbers.index(value.router))
        if isinstance(value, RouterRow):
            return value._replace(number=self.numbers.index(value.number))
        if isinstance(value, DecisionEvents):
            return DecisionEvents(self.to_ordinals(value.decided), self.to_ordinals(value.since))
        if isinstance(value, tuple):
            known = {number: ordinal for ordinal, number in enumerate(self.numbers)}
            return sorted(known.get(number, -1) for number in value)
        return [self.to_ordinals(one) for one in value] if isinstance(value, list) else value


ORDINALS = st.integers(0, 3)
ROUTERS = ORDINALS.map(lambda ordinal: frozenset([ordinal]))
NAMES = st.sampled_from(["a", "b", "Z", "é", "a'"])
KEYS = st.none() | st.sampled_from(["k", "K", "l"])
KINDS = st.sampled_from(["decided", "decided", "rewarded", "edited"])
SEQS = st.integers(-1, 8)
EVENT_SPECS = st.lists(st.tuples(ORDINALS, KINDS, st.none() | SEQS, KEYS), max_size=5)
OFFSETS = st.sampled_from([0, 0, 0, 0, 0, 1, -1])  # of the first seq: mostly 0
OWNERS = st.sampled_from(["me", "you"])
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("create"), NAMES),
    st.tuples(
        st.just("append"), EVENT_SPECS, OFFSETS, st.lists(st.tuples(ORDINALS, SEQS), max_size=2)
    ),
    st.tuples(st.just("append"), EVENT_SPECS, OFFSETS, st.just([])),
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


def make_batch(
    model: StorePair, event_specs: list[Step], offset: int, snapshots: list[Step]
) -> Step:
    """Events that continue the logs of the model, up to an offset; snapshots as given."""
    ends = {n: len(model.handles[0].events(model.number(n))) + offset for n in range(4)}
    events: list[Event] = []
    for ordinal, kind, of, key in event_specs:
        body = f"{len(events)} {kind}".encode()
        events.append(Event(ordinal, ends[ordinal], kind, of, key, 5, body, b""))
        ends[ordinal] += 1
    by_router = {n: Snapshot(n, seq, b"state %d" % seq, b"") for n, seq in snapshots}
    return events, list(by_router.values())


def find_differences(
    model: StorePair, others: list[StorePair], steps: list[tuple[int, Step]]
) -> list[Step]:
    """Steps whose answer differs from that of the model."""
    found = []
    for handle_index, (method, *values) in steps:
        if method == "create":
            values = [*values, 3, Event(0, 0, "created", None, None, 3, b"config", b"")]
        if method == "append":
            values = list(make_batch(model, *values))
        expected = model.ask(handle_index, method, *values)
        found += [
            (method, *values)
            for other in others
            if other.ask(handle_index, method, *values) != expected
        ]
    return found


@pytest.fixture
def make_empty_stores(
    tmp_path: Path, postgres_address: str
) -> Iterator[Callable[[], list[StorePair]]]:
    """Both stores with two handles each, without routers."""
    addresses = (f"sqlite:///{tmp_path}/routers.db", postgres_address)
    pairs: list[tuple[Store, Store]] = [(open_store(one), open_store(one)) for one in addresses]

    def empty_stores() -> list[StorePair]:
        for pair in pairs:
            for row in pair[0].routers():
                pair[0].delete(row.number)
            for handle in pair:
                handle.owner = ""
        return [StorePair(pair) for pair in pairs]

    yield empty_stores
    for pair in pairs:
        for handle in pair:
            handle.close()


FINAL_READS: list[tuple[int, Step]] = [
    (0, (method, frozenset([ordinal]))) for method in ("events", "snapshot") for ordinal in range(4)
]
STEP_LISTS = st.lists(st.tuples(st.integers(0, 1), STEPS), min_size=5, max_size=40)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEP_LISTS)
def test_both_stores_behave_like_the_model(
    make_empty_stores: Callable[[], list[StorePair]], steps: list[tuple[int, Step]]
) -> None:
    state = ModelState()
    steps = [(0, ("create", "a")), (1, ("create", "b")), *steps, *FINAL_READS]
    assert (
        find_differences(StorePair((Model(state), Model(state))), make_empty_stores(), steps) == []
    )


class ModelWithoutLeases(Model):
    """Ignores leases."""

    def lease(self, router: int, owner: str, seconds: float) -> float | None:
        super().lease(router, owner, 0.0)
        return None


def test_the_test_above_would_notice_a_store_that_ignores_leases() -> None:
    a = frozenset([0])
    steps = [(0, ("create", "a")), (0, ("lease", a, "me", 1e6)), (1, ("lease", a, "you", 1e6))]
    states = ModelState(), ModelState()
    model, other = (
        StorePair((Model(states[0]),) * 2),
        StorePair((ModelWithoutLeases(states[1]),) * 2),
    )
    assert find_differences(model, [other], steps) == [("lease", a, "you", 1e6)]
