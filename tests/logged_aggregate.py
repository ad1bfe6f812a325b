"""A router aggregate together with its log."""

from itertools import islice
from typing import Any

from bylot import policies
from bylot.api import DecisionRecord
from bylot.eventlog.aggregate import RouterAggregate
from bylot.eventlog.commands import (
    CreateRouter,
    EditRouter,
    MakeDecision,
    RecordReward,
    ReplaceMember,
)
from bylot.eventlog.events import (
    BODY_DECODERS,
    EVENT_BODIES,
)
from bylot.eventlog.history import record_decision
from bylot.problem import Problem, at_least, at_most
from bylot.router.changes import Change, DecisionClosed, PackedDecision, RewardReceived
from bylot.router.config import RouterConfig, problem_to_data
from bylot.store.schema import (
    DecisionEvents,
    Event,
)
from sample_problem import make_five_expert_problem

SECOND = 1_000_000


def make_config(problem: Problem, policy: str = "distinct", **options: Any) -> RouterConfig:
    """The config of a router for this problem."""
    settings = policies.policy_to_data(policies.find_policy(policy))
    return RouterConfig(problem=problem_to_data(problem), policy=settings, **options)


class LoggedRouter:
    """An aggregate whose events are kept in a list."""

    def __init__(self, problem: Problem | None = None, policy: str = "distinct", **changes: Any):
        config = make_config(
            make_five_expert_problem() if problem is None else problem, policy, **changes
        )
        self.aggregate, first = RouterAggregate.create(1, 0, CreateRouter("triage", config))
        self.log = [first]
        self.aggregate.find_events = self.find_events_of

    def find_events_of(self, seq: int) -> DecisionEvents | None:
        """Find the events of a decision, as a store would."""
        if not 0 <= seq < len(self.log):
            return None
        return DecisionEvents(self.log[seq], [one for one in self.log if one.of == seq])

    def record(self, seq: int) -> DecisionRecord:
        """A decision and its history."""
        found, opened = self.aggregate.decision_events(seq), self.aggregate.engine.open.get(seq)
        return record_decision("triage", found, opened)

    def append(self, event: Event | None) -> Event | None:
        """Append an event to the log, unless it is None."""
        if event is not None:
            self.log.append(event)
        return event

    def decide(self, at: int = 0, tenant: str | None = None, **options: Any) -> int:
        """Make a decision and return the seq of its event."""
        keys = {} if tenant is None else {"tenant": tenant}
        command = MakeDecision("triage", keys=keys, **options)
        self.append(event := self.aggregate.decide(at, command))
        return event.seq

    def reward(self, of: int, value: float | None = None, at: int = 0, **options: Any) -> str:
        """Record a reward and return its receipt."""
        event = self.append(
            self.aggregate.reward(at, of, RecordReward(f"triage.1.{of}", value, **options))
        )
        return "duplicate" if event is None else decode_reward(event).receipt

    def close(self, at: int, most: int = 1000) -> tuple[tuple[int | None, float | None], ...]:
        """Close due decisions; each with the reward that was learned."""
        events = iter(lambda: self.append(self.aggregate.close_due(at)), None)
        return tuple((event.of, decode_closing(event).learned) for event in islice(events, most))

    def edit(self, problem: Problem | None = None, at: int = 0, **changes: Any) -> None:
        """Edit the config."""
        old = {
            name: getattr(self.aggregate.config, name) for name in RouterConfig.__struct_fields__
        }
        if problem is not None:
            old["problem"] = problem_to_data(problem)
        self.append(
            self.aggregate.edit(at, EditRouter("triage", RouterConfig(**{**old, **changes})))
        )

    def reopen(self) -> None:
        """Continue from a snapshot, as another process would."""
        self.aggregate = RouterAggregate.from_snapshot("triage", self.aggregate.take_snapshot())
        self.aggregate.find_events = self.find_events_of

    def replay_log(self) -> RouterAggregate:
        """The aggregate that results from a replay of the log."""
        aggregate = RouterAggregate.from_first_event("triage", self.log[0])
        aggregate.find_events = self.find_events_of
        for event in self.log[1:]:
            aggregate.replay(event)
        return aggregate


def decode_body(event: Event) -> Change:
    """The body of any event."""
    body: Change = BODY_DECODERS[event.kind](event.body)
    return body


def decode_decision(event: Event) -> PackedDecision:
    """The body of the event of a decision."""
    body: PackedDecision = BODY_DECODERS["decided"](event.body)
    return body


def decode_reward(event: Event) -> RewardReceived:
    """The body of the event of a reward."""
    body: RewardReceived = BODY_DECODERS["rewarded"](event.body)
    return body


def decode_closing(event: Event) -> DecisionClosed:
    """The body of an event that closes a decision."""
    body: DecisionClosed = BODY_DECODERS["closed"](event.body)
    return body


def make_problem_with_frank(bound: float) -> Problem:
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


def make_log_with_every_event() -> LoggedRouter:
    """A log with events of every kind that can follow a creation."""
    logged = LoggedRouter(wait=1.0, default=0.25)
    first, second = logged.decide(1, context="a", key="k"), logged.decide(2, defer=True)
    third, _ = logged.decide(3, defer=True), logged.decide(4, available=("ann", "bob"))
    fifth = logged.decide(4, available=("ann", "dan"))
    command = ReplaceMember(f"triage.1.{fifth}", "dan", ("cat", "eve"), by="me")
    logged.append(logged.aggregate.replace(5, fifth, command))
    logged.reward(first, 0.5, 5, key="x", spend={"usd": 2.0}, by="me")
    logged.append(logged.aggregate.activate(6, second))
    panel = decode_decision(logged.log[second]).draws
    logged.reward(second, None, 6, key="gateway", spend={"usd": dict.fromkeys(panel, 1.0)})
    logged.append(logged.aggregate.cancel(7, third))
    logged.close(3 * SECOND)
    logged.edit(make_problem_with_frank(3.0), 3 * SECOND)
    logged.append(logged.aggregate.seal_segment()[1])
    logged.decide(4 * SECOND, holder="gateway")
    elsewhere = {"copied", "key", "learned"}  # these need another router
    assert {one.kind for one in logged.log} == set(EVENT_BODIES) - elsewhere
    return logged
