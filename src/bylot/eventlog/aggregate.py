"""RouterAggregate: a router rebuilt from its log, and the only place where events are made.

An event is a function of the earlier events and of the inputs, the time among them. To replay a
log is to do everything again and compare. Storing events is left to the repository.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256

from msgspec import MsgspecError, structs

from bylot.api import DecisionRecord, DecisionState
from bylot.errors import (
    BylotError,
    DecisionError,
    DecisionNotFound,
    DecisionStateError,
    InfeasibleLimits,
    StoreCorrupted,
    StoreUnavailable,
)
from bylot.eventlog import reward_rules
from bylot.eventlog.commands import DecisionId
from bylot.eventlog.config_validation import (
    check_config_edit,
    mask_active_experts,
    validate_config,
)
from bylot.eventlog.events import (
    BODY_DECODERS,
    EVENT_KINDS,
    ConfigChanged,
    DecisionActivated,
    DecisionCancelled,
    DecisionClosed,
    DecisionMade,
    EventBody,
    RewardReceived,
    RouterCreated,
    encode_body,
)
from bylot.eventlog.hash_chain import chain_event, hash_snapshot, rehash_event
from bylot.eventlog.history import (
    body_from_ticket,
    decision_from_event,
    decision_record_from_events,
    decision_state_from_bodies,
    rewards_from_events,
    ticket_from_body,
)
from bylot.eventlog.open_decisions import NO_DEADLINE, NOT_STARTED, OpenDecision, OpenDecisions
from bylot.eventlog.snapshot import (
    SNAPSHOT_VERSION,
    SnapshotContent,
    core_from_snapshot,
    core_to_snapshot,
    decode_snapshot,
    encode_snapshot,
)
from bylot.eventlog.timeline import build_router_status, make_empty_timeline
from bylot.numerics.jit import Bools
from bylot.router.config import RouterConfig
from bylot.router.core import RouterCore
from bylot.router.decision import Decision
from bylot.router.status import Counters, RouterStatus
from bylot.store import DecisionEvents, Event, Snapshot

US_PER_S = 1_000_000


class RouterAggregate:
    """A router, its open decisions, counters and timeline, after event `seq` of its log.

    find_events: reads a decision from the log; set by the repository. Events later than `seq`, as
                 there are during a replay, are ignored
    pool_since:  the event since which the pool and the number of draws are these: rewards of
                 earlier decisions are noted, not learned
    stated:      sums of stated cost, by name
    active:      mask of the experts that are not paused

    Each method that changes the router returns its event, or raises an error and has changed
    nothing. Times are microseconds since 1970; one before the last event's counts as that.
    """

    def __init__(self, number: int, name: str, config: RouterConfig, core: RouterCore) -> None:
        self.number, self.name, self.config, self.core = number, name, config, core
        self.seq, self.at, self.created, self.seal, self.pool_since = -1, 0, 0, b"", 0
        self.find_events: Callable[[int], DecisionEvents | None] = lambda seq: None
        self.latest: tuple[Event | None, DecisionMade | None] = None, None  # a decoded decision
        self.open = OpenDecisions()
        self.timeline = make_empty_timeline(core.problem.costs)
        self.counters = Counters()
        self.stated = dict.fromkeys(core.problem.costs, 0.0)
        self.active = mask_active_experts(core, config)

    @classmethod
    def create(
        cls, number: int, name: str, config: RouterConfig, at: int, by: str | None = None
    ) -> tuple["RouterAggregate", Event]:
        """A new router and event 0 of its log; an invalid configuration raises an error."""
        config, parts = validate_config(structs.replace(config, version=1))
        # `CommandHandler.create` checks the capacity for contexts, once, when the log begins
        made = cls(number, name, config, RouterCore(*parts, config.max_contexts))
        made.created = at
        return made, made.append(at, RouterCreated(config, by=by))

    @classmethod
    def from_first_event(cls, name: str, first: Event) -> "RouterAggregate":
        """A router from event 0 of its log."""
        if first.seq != 0 or first.kind != "created" or rehash_event(b"", first) != first:
            raise StoreCorrupted(f"router {name!r}: event 0 of its log was changed")
        try:
            body = BODY_DECODERS["created"](first.body)
            made, event = cls.create(first.router, name, body.config, first.at, body.by)
        except (BylotError, MsgspecError) as error:
            raise StoreCorrupted(f"router {name!r}: event 0 of its log: {error}") from error
        if event != first:
            raise StoreCorrupted(f"router {name!r}: replaying event 0 of its log gives another one")
        return made

    @classmethod
    def from_snapshot(cls, name: str, snapshot: Snapshot) -> "RouterAggregate":
        """A router from its snapshot."""
        if hash_snapshot(snapshot.body) != snapshot.seal:
            raise StoreCorrupted(f"router {name!r}: its snapshot was changed")
        try:
            content = decode_snapshot(snapshot.body)
            made = cls(content.router, name, content.config, core_from_snapshot(content))
        except (BylotError, MsgspecError, ValueError, TypeError, LookupError) as error:
            raise StoreCorrupted(f"router {name!r}: its snapshot: {error}") from error
        if (content.version, content.router, content.seq) != (SNAPSHOT_VERSION, *snapshot[:2]):
            raise StoreCorrupted(
                f"router {name!r}: its snapshot is of another version, or of another router"
            )
        for field in ("seq", "at", "created", "seal", "pool_since", "timeline", "counters"):
            setattr(made, field, getattr(content, field))
        made.stated, made.open = content.stated, OpenDecisions.from_columns(content.open)
        return made

    def take_snapshot(self) -> Snapshot:
        """Everything but tickets, which are in the log."""
        body = self.encode()
        return Snapshot(self.number, self.seq, body, hash_snapshot(body))

    def encode(self) -> bytes:
        """The body of a snapshot."""
        return encode_snapshot(
            SnapshotContent(
                version=SNAPSHOT_VERSION,
                router=self.number,
                seq=self.seq,
                at=self.at,
                created=self.created,
                seal=self.seal,
                pool_since=self.pool_since,
                config=self.config,
                core=core_to_snapshot(self.core),
                open=self.open.to_columns(),
                timeline=self.timeline,
                counters=self.counters,
                stated=self.stated,
            )
        )

    def fingerprint(self) -> str:
        """A digest of everything: equal if and only if all state is equal."""
        return sha256(self.encode()).hexdigest()

    def decide(
        self,
        at: int,
        *,
        context: str | None = None,
        available: tuple[str, ...] | None = None,
        key: str | None = None,
        defer: bool = False,
        by: str | None = None,
    ) -> Event:
        """Draw a panel."""
        mask = self.mask_available(available)
        if context not in self.core.contexts:
            reward_rules.check_storable_text("context", context)
        reward_rules.check_storable_text("key", key)
        booked = self.core.decide(context, mask)
        body = body_from_ticket(
            booked,
            self.core.problem,
            version=self.config.version,
            context=context,
            available=available,
            defer=defer,
            by=by,
        )
        event = self.append(at, body, key=key)
        due = NOT_STARTED if defer else self.deadline(event.at)
        self.open.add(event.seq, OpenDecision(body.t, due, booked.ticket, body.spend))
        self.timeline.add_decision(body.t, event.at, body.spend)
        for name, cost in body.spend.items():
            self.stated[name] += cost
        self.counters.replaced += body.replaced
        self.counters.infeasible += not body.feasible
        for dropped in self.open.drop_before(body.t - self.config.memory + 1):
            self.counters.missing += not (dropped.is_deferred or dropped.rewards)
        self.latest = event, body
        return event

    def mask_available(self, available: tuple[str, ...] | None) -> Bools:
        """The experts that can be drawn: the available ones without the paused ones."""
        mask = self.core.mask_available(available)
        if mask.size == 0 or self.active.size == 0:
            return mask if mask.size else self.active
        both = mask & self.active
        if not both.any():
            raise DecisionError(f"all of available={list(available or ())} are paused")
        return both

    def deadline(self, at: int) -> int:
        """The last moment at which the reward of a decision that is used now is in time."""
        wait = self.config.wait
        return NO_DEADLINE if wait is None else at + round(wait * US_PER_S)

    def reward(
        self,
        at: int,
        *,
        of: int,
        value: float,
        spend: dict[str, float] | None = None,
        key: str | None = None,
        by: str | None = None,
    ) -> Event | None:
        """Apply the reward and the actual cost of a decision; None if they are known already."""
        id, run = self.decision_id(of), self.core.run
        at, value = max(at, self.at), self.core.check_reward(value, id)
        spend = reward_rules.check_spend(spend, self.core.problem)
        reward_rules.check_storable_text("key", key)
        opened = self.open.get(of)
        one = self.read_closed(of) if opened is None else self.load_ticket(of, opened)
        new = RewardReceived(value, "duplicate", spend, key, by=by)
        if reward_rules.is_repeated_reward(one.rewards, new, id):
            return None
        if opened is None:
            receipt = reward_rules.receipt_for_closed_decision(one.rewards.values())
        else:
            how, same_pool = self.config.aggregate, of > self.pool_since
            receipt = reward_rules.receipt_for_open_decision(one, at, how, same_pool, id)
            if receipt == "pending" and how == "sum":
                reward_rules.check_reward_sum(one, value, run.low, run.high, id)
        if spend is not None and one.spend is not None:
            rewards = one.rewards.values()
            self.settle(one.t, reward_rules.compute_cost_corrections(spend, one.spend, rewards))
        body = structs.replace(new, receipt=receipt)
        self.apply_reward(of, one, body)
        return self.append(at, body, of=of)

    def apply_reward(self, of: int, one: OpenDecision, body: RewardReceived) -> None:
        """Do to a decision what the receipt of its reward says."""
        if body.receipt == "learned":
            self.learn(one, body.value)
            self.counters.learned += 1
            self.open.close(of)
            return
        self.counters.late += body.receipt == "late"
        self.counters.noted += body.receipt == "noted"
        if body.receipt == "noted" and self.open.get(of) is not None and not one.pending:
            self.open.close(of)
        else:  # it stays open, and must recognise this reward again
            one.rewards[body.key] = body

    def learn(self, one: OpenDecision, value: float) -> None:
        """Learn from a reward, by the probabilities of its decision."""
        assert one.ticket is not None  # it was loaded, and is of this pool
        self.core.learn(one.ticket, value)
        self.timeline.add_reward(one.t, value)

    def settle(self, t: int, corrections: Mapping[str, float]) -> None:
        """Book the difference between actual and booked cost of decision t."""
        self.core.settle(corrections)
        self.timeline.add_cost(t, corrections)

    def load_ticket(self, of: int, one: OpenDecision) -> OpenDecision:
        """An open decision with all that learning needs, from the log if it is not in memory."""
        if one.spend is None or (one.ticket is None and of > self.pool_since):
            body: DecisionMade = BODY_DECODERS["decided"](self.decision_events(of).decided.body)
            one.spend = body.spend
            if of > self.pool_since:
                one.ticket = ticket_from_body(body, self.core.contexts[body.context])
        return one

    def read_closed(self, of: int) -> OpenDecision:
        """A decision that is no longer open, from the log."""
        events = self.decision_events(of)
        if any(one.kind == "cancelled" for one in events.since):
            raise DecisionStateError(f"decision {self.decision_id(of)} was cancelled")
        body: DecisionMade = BODY_DECODERS["decided"](events.decided.body)
        rewards = {one.key: one for one in rewards_from_events(events.since)}
        return OpenDecision(body.t, NO_DEADLINE, spend=body.spend, rewards=rewards)

    def decision_events(self, of: int) -> DecisionEvents:
        """A decision and the events about it up to now."""
        events = self.find_events(of) if 0 < of <= self.seq else None
        if events is None or events.decided.kind != "decided":
            raise DecisionNotFound(f"no decision has id {self.decision_id(of)!r}")
        since = [one for one in events.since if one.seq <= self.seq]
        return DecisionEvents(events.decided, since)

    def activate(self, at: int, *, of: int, by: str | None = None) -> Event:
        """Start the wait of a deferred decision."""
        one = self.open.get(of)
        if one is None or not one.is_deferred:
            raise DecisionStateError(
                f"decision {self.decision_id(of)} is {self.decision_state(of)}, not deferred"
            )
        self.open.start_wait(of, self.deadline(max(at, self.at)))
        return self.append(at, DecisionActivated(by=by), of=of)

    def cancel(self, at: int, *, of: int, by: str | None = None) -> Event:
        """Take back a decision that was never used: it has no reward, and no average counts it."""
        one = self.open.get(of)
        if one is None or one.rewards:
            state = self.decision_state(of) if one is None else "rewarded"
            raise DecisionStateError(
                f"decision {self.decision_id(of)} is {state}; it cannot be cancelled any more"
            )
        body: DecisionMade = BODY_DECODERS["decided"](self.decision_events(of).decided.body)
        booked = self.core.cancel(body.t, body.spend, body.expected)
        self.timeline.cancel_decision(body.t, booked)
        for name, cost in booked.items():
            self.stated[name] -= cost
        self.counters.cancelled += 1
        self.open.close(of)
        return self.append(at, DecisionCancelled(by=by), of=of)

    def decision_state(self, of: int) -> DecisionState:
        """Where a decision is in its life cycle."""
        bodies = [BODY_DECODERS[one.kind](one.body) for one in self.decision_events(of).since]
        return decision_state_from_bodies(bodies, self.open.get(of))

    def close_due(self, at: int) -> Event | None:
        """Close the decision whose wait was over first; None if there is none."""
        due = self.next_close()
        if due is None or due > max(at, self.at):
            return None
        seq, one = self.open.first_due()
        pending, run, value = one.pending, self.core.run, None
        if seq >= self.pool_since:
            how = self.config.aggregate
            value = self.config.default
            if pending:
                value = reward_rules.aggregate_rewards(pending, how, run.low, run.high)
        if value is not None:
            self.learn(self.load_ticket(seq, one), value)
            self.counters.learned += bool(pending)
            self.counters.defaulted += not pending
        elif not pending:
            self.counters.missing += 1
        self.open.close(seq)
        return self.append(at, DecisionClosed(value), of=seq)

    def next_close(self) -> int | None:
        """The first moment at which `close_due` would close a decision; None: never, as of now."""
        due = self.open.next_due()
        return None if due is None else due + 1

    def edit(self, at: int, config: RouterConfig, by: str | None = None) -> Event:
        """Continue under another configuration, the next version; what was learned is kept."""
        try:
            config, parts = validate_config(
                structs.replace(config, version=self.config.version + 1)
            )
        except InfeasibleLimits as error:
            raise error.for_running_router() from None
        check_config_edit(self.config, config)
        old, problem = self.core.problem, parts.problem
        same_pool = self.core.change_problem(problem)
        self.core.max_contexts = config.max_contexts
        if problem == old:  # perhaps with its costs in another order
            config = structs.replace(config, problem=self.config.problem)
        else:
            self.timeline.rename_costs(problem.costs)
            self.stated = {name: self.stated.get(name, 0.0) for name in problem.costs}
        self.config = config
        self.active = mask_active_experts(self.core, config)
        event = self.append(at, ConfigChanged(config, by=by))
        if not same_pool:
            self.pool_since = event.seq
            for _, one in self.open:
                one.ticket = None
        return event

    def append(
        self, at: int, body: EventBody, of: int | None = None, key: str | None = None
    ) -> Event:
        """Make the next event."""
        kind, at = EVENT_KINDS[type(body)], max(at, self.at)
        seq, encoded = self.seq + 1, encode_body(body)
        event = chain_event(self.seal, self.number, seq, kind, of, key, at, encoded)
        self.seq, self.at, self.seal = seq, at, event.seal
        return event

    def replay(self, event: Event) -> None:
        """Do again what an event says, and compare the events.

        After StoreCorrupted discard this instance.
        """
        where = f"router {self.name!r}: event {event.seq} of its log ({event.kind})"
        ours = event.router == self.number and event.seq == self.seq + 1
        if not ours or rehash_event(self.seal, event) != event:
            raise StoreCorrupted(f"{where} was changed, removed or moved")
        try:
            made = repeat_event(self, event)
        except StoreUnavailable:
            raise
        except (BylotError, MsgspecError, ValueError, TypeError, LookupError) as error:
            raise StoreCorrupted(f"{where} cannot be replayed: {error}") from error
        if made != event:
            raise StoreCorrupted(
                f"{where} gives another event when it is replayed",
                remedy="if another version of bylot wrote it, start and stop that version, which "
                "leaves a snapshot for this one",
            )

    def decision(self, event: Event) -> Decision:
        """A decision as its caller gets it."""
        made, body = self.latest
        return decision_from_event(self.name, event, body if made is event else None)

    def decision_record(self, events: DecisionEvents) -> DecisionRecord:
        """A decision and its history."""
        return decision_record_from_events(self.name, events, self.open.get(events.decided.seq))

    def status(self) -> RouterStatus:
        """The status of the router, with what only its log knows."""
        return build_router_status(self)

    def decision_id(self, seq: int) -> str:
        """The id of a decision."""
        return str(DecisionId(self.name, self.number, seq))


def repeat_event(aggregate: RouterAggregate, event: Event) -> Event | None:
    """Do what an event says, with its inputs; returns the event that results."""
    at, of, body = event.at, event.of, BODY_DECODERS[event.kind](event.body)
    match body:
        case DecisionMade():
            return aggregate.decide(
                at,
                context=body.context,
                available=body.available,
                key=event.key,
                defer=body.defer,
                by=body.by,
            )
        case DecisionClosed():
            return aggregate.close_due(at)
        case ConfigChanged():
            return aggregate.edit(at, body.config, body.by)
    if of is None:
        raise TypeError("it does not name its decision")
    match body:
        case RewardReceived():
            return aggregate.reward(
                at, of=of, value=body.value, spend=body.spend, key=body.key, by=body.by
            )
        case DecisionActivated():
            return aggregate.activate(at, of=of, by=body.by)
        case DecisionCancelled():
            return aggregate.cancel(at, of=of, by=body.by)
    return None
