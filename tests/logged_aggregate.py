"""A fold and its log, side by side, as a keeper has them."""

from itertools import islice
from typing import Any

from bylot import policies
from bylot.api import DecisionRecord
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.commands import MakeDecision, RecordReward
from bylot.eventlog.events import (
    BODY_DECODERS,
    EVENT_BODIES,
    DecisionClosed,
    DecisionMade,
    RewardReceived,
)
from bylot.eventlog.history import decision_record_from_events
from bylot.problem import Problem, at_least, at_most
from bylot.router import persistence
from bylot.router.config import RouterConfig
from bylot.store.protocol import DecisionEvents, Event
from small import five

SECOND = 1_000_000


def terms_of(problem: Problem, policy: str = "distinct", **more: Any) -> RouterConfig:
    """Terms of a router for this problem."""
    settings = policies.policy_to_data(policies.find_policy(policy))
    return RouterConfig(problem=persistence.problem_to_data(problem), policy=settings, **more)


class Diary:
    """A fold whose every line is kept in a list."""

    def __init__(self, problem: Problem | None = None, policy: str = "distinct", **terms: Any):
        made = terms_of(five() if problem is None else problem, policy, **terms)
        self.fold, first = RouterAggregate.create(1, "triage", made, at=0)
        self.log = [first]
        self.fold.find_events = self.recall

    def recall(self, seq: int) -> DecisionEvents | None:
        """As a store would look it up, lines to come included."""
        if not 0 <= seq < len(self.log):
            return None
        return DecisionEvents(self.log[seq], [one for one in self.log if one.of == seq])

    def record(self, seq: int) -> DecisionRecord:
        """A decision and its history."""
        found, opened = self.fold.decision_events(seq), self.fold.open.get(seq)
        return decision_record_from_events("triage", found, opened)

    def note(self, event: Event | None) -> Event | None:
        """Keep a line, if it is one."""
        if event is not None:
            self.log.append(event)
        return event

    def decide(self, at: int = 0, **asked: Any) -> int:
        """A decision; the seq of its line."""
        self.note(event := self.fold.decide(at, MakeDecision("triage", **asked)))
        return event.seq

    def reward(self, of: int, value: float, at: int = 0, **told: Any) -> str:
        """The receipt of a reward."""
        event = self.note(self.fold.reward(at, of, RecordReward(f"triage.1.{of}", value, **told)))
        return "duplicate" if event is None else rewarded(event).receipt

    def close(self, at: int, most: int = 1000) -> tuple[tuple[int | None, float | None], ...]:
        """What was closed, each with what it taught."""
        events = iter(lambda: self.note(self.fold.close_due(at)), None)
        return tuple((event.of, closed(event).learned) for event in islice(events, most))

    def edit(self, problem: Problem | None = None, at: int = 0, **terms: Any) -> None:
        """Other terms."""
        old = {name: getattr(self.fold.config, name) for name in RouterConfig.__struct_fields__}
        if problem is not None:
            old["problem"] = persistence.problem_to_data(problem)
        self.note(self.fold.edit(at, RouterConfig(**{**old, **terms})))

    def reopen(self) -> None:
        """Go on from a snapshot, as another process would."""
        self.fold = RouterAggregate.from_snapshot("triage", self.fold.take_snapshot())
        self.fold.find_events = self.recall

    def replayed(self) -> RouterAggregate:
        """What the log adds up to."""
        fold = RouterAggregate.from_first_event("triage", self.log[0])
        fold.find_events = self.recall
        for event in self.log[1:]:
            fold.replay(event)
        return fold


def decided(event: Event) -> DecisionMade:
    """The body of a decision's line."""
    body: DecisionMade = BODY_DECODERS["decided"](event.body)
    return body


def rewarded(event: Event) -> RewardReceived:
    """The body of a reward's line."""
    body: RewardReceived = BODY_DECODERS["rewarded"](event.body)
    return body


def closed(event: Event) -> DecisionClosed:
    """The body of a line that closes a decision."""
    body: DecisionClosed = BODY_DECODERS["closed"](event.body)
    return body


def with_frank(bound: float) -> Problem:
    """Five experts and another one, without dan, under another bound."""
    return Problem(
        experts=["ann", "bob", "cat", "eve", "frank"],
        costs={
            "junior": [0, 0, 1, 1, 1],
            "usd": [4.0, 3.0, 1.0, 0.5, 2.0],
            "ms": [1.0, 1.0, 0.5, 0.5, 1.0],
        },
        limits=[at_most("usd", bound), at_least("junior", 0.3), at_most("ms", 1.9)],
        draws=2,
    )


def eventful() -> Diary:
    """A log with lines of every kind."""
    diary = Diary(wait=1.0, default=0.25)
    first, second = diary.decide(1, context="a", key="k"), diary.decide(2, defer=True)
    third, _ = diary.decide(3, defer=True), diary.decide(4, available=("ann", "bob"))
    diary.reward(first, 0.5, 5, key="x", spend={"usd": 2.0}, by="me")
    diary.note(diary.fold.activate(6, second))
    diary.note(diary.fold.cancel(7, third))
    diary.close(3 * SECOND)
    diary.edit(with_frank(3.0), 3 * SECOND)
    diary.decide(4 * SECOND)
    assert {one.kind for one in diary.log} == set(EVENT_BODIES)
    return diary
