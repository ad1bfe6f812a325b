"""Fold: what the log of a router adds up to, and the only place where lines of it are made.

Doing a thing makes its line, and the line is a function of what was done before and of the inputs,
the time among them. To replay a log is therefore to do it again and to compare. Where lines are
kept, and who may write them, is left to the keeper.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import MsgspecError, Struct, msgpack, structs

from bylot.api import DecisionRecord, DecisionState, StoredDecision
from bylot.errors import (
    BylotError,
    DecisionError,
    DecisionNotFound,
    DecisionStateError,
    InfeasibleLimits,
    StoreCorrupted,
    StoreUnavailable,
)
from bylot.eventlog import snapshots
from bylot.eventlog.commands import DecisionId
from bylot.eventlog.config_validation import (
    check_config_edit,
    mask_active_experts,
    start_router,
    validate_config,
)
from bylot.eventlog.events import (
    ConfigChanged,
    DecisionActivated,
    DecisionCancelled,
    DecisionClosed,
    DecisionMade,
    RewardReceived,
    RouterCreated,
)
from bylot.eventlog.hash_chain import chain_event, hash_snapshot, rehash_event
from bylot.eventlog.history import (
    BODY_DECODERS,
    body_from_ticket,
    decision_from_event,
    decision_record_from_events,
    decision_state_from_bodies,
    rewards_from_events,
    ticket_from_body,
)
from bylot.eventlog.open_decisions import NO_DEADLINE, NOT_STARTED, OpenDecision, OpenDecisions
from bylot.eventlog.reward_rules import (
    aggregate_rewards,
    check_reward_sum,
    check_spend,
    check_storable_text,
    compute_cost_corrections,
    is_repeated_reward,
    receipt_for_closed_decision,
    receipt_for_open_decision,
)
from bylot.eventlog.timeline import build_router_status, make_empty_timeline
from bylot.numerics.jit import Bools
from bylot.policies.base import Ticket, has_same_pool
from bylot.router.config import RouterConfig
from bylot.router.router import Router
from bylot.router.status import Counters, RouterStatus
from bylot.store.protocol import DecisionEvents, Event, Snapshot

if TYPE_CHECKING:
    pass


def repeat_event(fold: "RouterAggregate", event: Event) -> Event | None:
    """Do what a line tells, with the inputs that it tells; the line that comes of it."""
    at, body = event.at, BODY_DECODERS[event.kind](event.body)
    match body:
        case DecisionMade():
            return fold.decide(
                at,
                context=body.context,
                available=body.available,
                key=event.key,
                defer=body.defer,
                by=body.by,
            )
        case RewardReceived():
            return fold.reward(
                at,
                of=require_decision_seq(event),
                value=body.value,
                spend=body.spend,
                key=body.key,
                by=body.by,
            )
        case DecisionActivated():
            return fold.activate(at, of=require_decision_seq(event), by=body.by)
        case DecisionCancelled():
            return fold.cancel(at, of=require_decision_seq(event), by=body.by)
        case DecisionClosed():
            return fold.close_due(at)
        case ConfigChanged():
            return fold.edit(at, body.terms, body.by)
    return None


def require_decision_seq(event: Event) -> int:
    """The decision that a line must speak of."""
    if event.of is None:
        raise TypeError("it does not say of which decision it speaks")
    return event.of


encode_body = msgpack.Encoder().encode
US_PER_S = 1_000_000  # microseconds


def find_no_events(seq: int) -> DecisionEvents | None:
    """A log that cannot be looked up."""
    return None


class RouterAggregate:
    """A router, its open decisions, counters and timeline, after event `seq` of its log.

    recall: looks a decision up in the log; set by the owner, who knows where that is. Lines later
            than the fold stands at, as there are during a replay, are passed over.
    pool:   the line since which panels are drawn from these experts, as many at a time: rewards of
            decisions before it are noted, not learned

    Each method that does a thing returns its line, or raises an error and has changed nothing.
    Times are microseconds since 1970; one that is before the last line's counts as that.
    """

    def __init__(self, number: int, name: str, terms: RouterConfig, router: Router) -> None:
        self.number, self.name, self.terms, self.router = number, name, terms, router
        self.seq, self.at, self.created, self.seal, self.pool = -1, 0, 0, b"", 0
        self.recall: Callable[[int], DecisionEvents | None] = find_no_events
        self.latest: tuple[Event | None, DecisionMade | None] = (
            None,
            None,
        )  # a decision, and its body
        self.open = OpenDecisions()
        self.timeline = make_empty_timeline(router.problem.costs)
        self.counters = Counters()
        self.stated = dict.fromkeys(router.problem.costs, 0.0)  # sums of stated cost, by name
        self.awake = mask_active_experts(router, terms)

    @classmethod
    def create(
        cls, number: int, name: str, terms: RouterConfig, at: int, by: str | None = None
    ) -> tuple["RouterAggregate", Event]:
        """A new router and line 0 of its log; terms that make no sense raise what is wrong."""
        found = validate_config(structs.replace(terms, version=1))
        fold = cls(number, name, found.terms, start_router(found))
        fold.created = at
        return fold, fold.line("created", at, RouterCreated(found.terms, by))

    @classmethod
    def begin(cls, name: str, first: Event) -> "RouterAggregate":
        """A router from line 0 of its log."""
        if first.seq != 0 or first.kind != "created" or rehash_event(b"", first) != first:
            raise StoreCorrupted(f"router {name!r}: line 0 of its log is not what was written")
        try:
            body = BODY_DECODERS["created"](first.body)
            fold, made = cls.create(first.router, name, body.terms, first.at, body.by)
        except (BylotError, MsgspecError) as error:
            raise StoreCorrupted(f"router {name!r}: line 0 of its log: {error}") from error
        if made != first:
            raise StoreCorrupted(f"router {name!r}: line 0 of its log gives another line")
        return fold

    @classmethod
    def thaw(cls, name: str, snapshot: Snapshot) -> "RouterAggregate":
        """A router from its snapshot."""
        if hash_snapshot(snapshot.body) != snapshot.seal:
            raise StoreCorrupted(f"router {name!r}: its snapshot is not what was written")
        try:
            return cls.thawed(name, snapshots.decode_snapshot(snapshot.body), snapshot)
        except (BylotError, MsgspecError, ValueError, TypeError, LookupError) as error:
            raise StoreCorrupted(f"router {name!r}: its snapshot: {error}") from error

    @classmethod
    def thawed(
        cls, name: str, frozen: snapshots.SnapshotContent, snapshot: Snapshot
    ) -> "RouterAggregate":
        """A router from the content of a snapshot."""
        if (frozen.form, frozen.router, frozen.seq) != (snapshots.SNAPSHOT_VERSION, *snapshot[:2]):
            raise StoreCorrupted(
                f"router {name!r}: its snapshot is of another form, or not its own"
            )
        fold = cls(frozen.router, name, frozen.terms, snapshots.router_from_snapshot(frozen))
        fold.seq, fold.at, fold.created = frozen.seq, frozen.at, frozen.created
        fold.seal, fold.pool = frozen.seal, frozen.pool
        fold.timeline, fold.counters, fold.stated = (
            frozen.timeline,
            frozen.counters,
            frozen.stated,
        )
        fold.open = OpenDecisions.read(frozen.held)
        return fold

    def freeze(self) -> Snapshot:
        """All of it but tickets, which are in the log."""
        body = self.content()
        return Snapshot(self.number, self.seq, body, hash_snapshot(body))

    def content(self) -> bytes:
        """What a snapshot holds."""
        frozen = snapshots.SnapshotContent(
            form=snapshots.SNAPSHOT_VERSION,
            router=self.number,
            seq=self.seq,
            at=self.at,
            created=self.created,
            seal=self.seal,
            pool=self.pool,
            terms=self.terms,
            held=self.open.write(),
            timeline=self.timeline,
            counters=self.counters,
            stated=self.stated,
            **snapshots.router_to_snapshot(self.router),
        )
        return snapshots.encode_snapshot(frozen)

    def fingerprint(self) -> str:
        """A digest of everything: equal if and only if all that is remembered is."""
        return sha256(self.content()).hexdigest()

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
        at = max(at, self.at)
        up = self.up(available)
        if context not in self.router.contexts:
            check_storable_text("context", context)
        check_storable_text("key", key)
        served = self.router.draw(context, up)
        body = body_from_ticket(
            served,
            self.router.problem,
            version=self.terms.version,
            context=context,
            available=available,
            defer=defer,
            by=by,
        )
        event = self.line("decided", at, body, key=key)
        self.hold(event, body, served.ticket)
        self.latest = event, body
        return event

    def up(self, available: tuple[str, ...] | None) -> Bools:
        """The experts that can be drawn: those available, but for paused ones."""
        up = self.router.up(available)
        if up.size == 0 or self.awake.size == 0:
            return up if up.size else self.awake
        both = up & self.awake
        if not both.any():
            raise DecisionError(
                f"all of available={list(available or ())} are paused, so there is nobody to draw"
            )
        return both

    def hold(self, event: Event, body: DecisionMade, ticket: Ticket) -> None:
        """Book a decision, and keep what its reward will need; the oldest are let go."""
        due = NOT_STARTED if body.defer else self.end_of_wait(event.at)
        self.open.add(event.seq, OpenDecision(body.t, due, ticket, body.spend))
        self.timeline.decided(body.t, event.at, body.spend)
        for name, cost in body.spend.items():
            self.stated[name] += cost
        self.counters.replaced += body.replaced
        self.counters.infeasible += not body.feasible
        for held in self.open.let_go(body.t - self.terms.memory + 1):
            self.counters.missing += not (held.deferred or held.told)

    def end_of_wait(self, at: int) -> int:
        """The last moment at which the reward of a decision that is used now is in time."""
        return NO_DEADLINE if self.terms.wait is None else at + round(self.terms.wait * US_PER_S)

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
        """Tell how well a decision went, and what it really cost; None if that is known."""
        at, value = max(at, self.at), self.router.fitting(value, self.id(of))
        spend = check_spend(spend, self.router.problem)
        check_storable_text("key", key)
        held = self.open.get(of)
        known = self.finished(of) if held is None else self.loaded(of, held)
        told, id = known.told or {}, self.id(of)
        if is_repeated_reward(told, RewardReceived(value, "duplicate", spend, key), id):
            return None
        if held is None:
            receipt = receipt_for_closed_decision(told.values())
        else:
            receipt = receipt_for_open_decision(held, at, self.terms, of > self.pool, id)
            if receipt == "pending" and self.terms.aggregate == "sum":
                check_reward_sum(held, value, self.router.rewards, id)
        body = RewardReceived(value, receipt, spend, key, by)
        if spend is not None and known.spend is not None:
            self.settle(known.t, compute_cost_corrections(spend, known.spend, told.values()))
        self.take(of, known, body)
        return self.line("rewarded", at, body, of=of)

    def take(self, of: int, known: OpenDecision, body: RewardReceived) -> None:
        """Do to a decision what the receipt of its reward says."""
        match body.receipt:
            case "learned":
                self.learn(known, body.value)
                self.counters.learned += 1
                self.open.close(of)
            case "pending":
                known.told = {**(known.told or {}), body.key: body}
            case "late":
                known.told = {**(known.told or {}), body.key: body}
                self.counters.late += 1
            case "noted":
                self.counters.noted += 1
                if self.open.get(of) is not None and not known.pending:
                    self.open.close(of)
                else:  # it stays open for those, and must know this one again
                    known.told = {**(known.told or {}), body.key: body}

    def learn(self, held: OpenDecision, value: float) -> None:
        """Learn from a reward, by the probabilities of its decision."""
        assert held.ticket is not None  # it was loaded, and is of this pool
        self.router.learn(held.ticket, value)
        self.timeline.rewarded(held.t, value)

    def settle(self, t: int, more: Mapping[str, float]) -> None:
        """Book that decision t cost more than was booked, or less."""
        self.router.settle(more)
        self.timeline.settled(t, more)

    def loaded(self, of: int, held: OpenDecision) -> OpenDecision:
        """An open decision with all that learning needs, from the log if it is not at hand."""
        if held.spend is None or (held.ticket is None and of > self.pool):
            line: DecisionMade = BODY_DECODERS["decided"](self.past(of).decided.body)
            held.spend = line.spend
            if of > self.pool:
                held.ticket = ticket_from_body(line, self.router.contexts[line.context])
        return held

    def finished(self, of: int) -> OpenDecision:
        """A decision that is no longer open, as the log has it."""
        past = self.past(of)
        if any(one.kind == "cancelled" for one in past.since):
            raise DecisionStateError(
                f"decision {self.id(of)} was cancelled; it has no reward any more"
            )
        line: DecisionMade = BODY_DECODERS["decided"](past.decided.body)
        told = {one.key: one for one in rewards_from_events(past.since)}
        return OpenDecision(line.t, NO_DEADLINE, spend=line.spend, told=told)

    def past(self, of: int) -> DecisionEvents:
        """A decision, and what was said of it up to now."""
        past = self.recall(of) if 0 < of <= self.seq else None
        if past is None or past.decided.kind != "decided":
            raise DecisionNotFound(f"there is no decision {self.id(of)}; pass the id of one")
        return DecisionEvents(past.decided, [one for one in past.since if one.seq <= self.seq])

    def activate(self, at: int, *, of: int, by: str | None = None) -> Event:
        """A deferred decision is used after all: its time begins."""
        held = self.open.get(of)
        if held is None or not held.deferred:
            raise DecisionStateError(f"decision {self.id(of)} is {self.state(of)}, not deferred")
        at = max(at, self.at)
        self.open.wake(of, self.end_of_wait(at))
        return self.line("activated", at, DecisionActivated(by), of=of)

    def cancel(self, at: int, *, of: int, by: str | None = None) -> Event:
        """A decision was never used: it has no reward, and no average counts it."""
        held = self.open.get(of)
        if held is None or held.told:
            state = self.state(of) if held is None else "rewarded"
            raise DecisionStateError(
                f"decision {self.id(of)} is {state}; it is too late to cancel it"
            )
        line: DecisionMade = BODY_DECODERS["decided"](self.past(of).decided.body)
        booked = self.router.withdraw(line.t, line.spend, line.expected)
        self.timeline.cancelled(line.t, booked)
        for name, cost in booked.items():
            self.stated[name] -= cost
        self.counters.cancelled += 1
        self.open.close(of)
        return self.line("cancelled", max(at, self.at), DecisionCancelled(by), of=of)

    def state(self, of: int) -> DecisionState:
        """Where a decision is in its life."""
        since = [BODY_DECODERS[one.kind](one.body) for one in self.past(of).since]
        return decision_state_from_bodies(since, self.open.get(of))

    def close_due(self, at: int) -> Event | None:
        """Close the decision whose wait was over first; None if there is none."""
        at = max(at, self.at)
        due = self.due()
        if due is None or due > at:
            return None
        seq, held = self.open.first()
        value = self.outcome(seq, held)
        if value is not None:
            self.loaded(seq, held)
        self.close(seq, held, value)
        return self.line("closed", at, DecisionClosed(value), of=seq)

    def outcome(self, seq: int, held: OpenDecision) -> float | None:
        """What is learned of a decision whose time is up."""
        if seq < self.pool:
            return None
        if pending := held.pending:
            return aggregate_rewards(pending, self.terms.aggregate, self.router.rewards)
        return self.terms.default

    def close(self, seq: int, held: OpenDecision, value: float | None) -> None:
        """Done with a decision."""
        counted = bool(held.pending)
        if value is not None:
            self.learn(held, value)
            self.counters.learned += counted
            self.counters.defaulted += not counted
        elif not counted:
            self.counters.missing += 1
        self.open.close(seq)

    def edit(self, at: int, terms: RouterConfig, by: str | None = None) -> Event:
        """Go on under other terms: the next version. What was learned is kept (`Router.change`)."""
        try:
            found = validate_config(structs.replace(terms, version=self.terms.version + 1))
        except InfeasibleLimits as error:
            raise error.for_running_router() from None
        check_config_edit(self.terms, found)
        old, problem = self.router.problem, found.problem
        self.router.change(problem)
        self.router.max_contexts = found.terms.max_contexts
        if problem == old:  # the same, though it may be written in another order
            self.terms = structs.replace(found.terms, problem=self.terms.problem)
        else:
            self.terms = found.terms
            self.timeline.rename(problem.costs)
            self.stated = {name: self.stated.get(name, 0.0) for name in problem.costs}
        self.awake = mask_active_experts(self.router, self.terms)
        event = self.line("edited", max(at, self.at), ConfigChanged(self.terms, by))
        if not has_same_pool(old, problem):
            self.pool = event.seq
            for _, held in self.open:
                held.ticket = None
        return event

    def due(self) -> int | None:
        """The first moment at which `close_due` would close one; None: never, as it is now."""
        end = self.open.next_due()
        return None if end is None else end + 1

    def line(
        self, kind: str, at: int, body: Struct, of: int | None = None, key: str | None = None
    ) -> Event:
        """One more line."""
        event = chain_event(
            self.seal, self.number, self.seq + 1, kind, of, key, at, encode_body(body)
        )
        self.seq, self.at, self.seal = event.seq, at, event.seal
        return event

    def replay(self, event: Event) -> None:
        """Do again what a line tells, and compare the whole line.

        After StoreDamaged the fold is good for nothing.
        """
        ours = event.router == self.number and event.seq == self.seq + 1
        if not ours or rehash_event(self.seal, event) != event:
            raise StoreCorrupted(f"{self.where(event)} is not what was written")
        try:
            made = repeat_event(self, event)
        except StoreUnavailable:
            raise
        except (BylotError, MsgspecError, ValueError, TypeError, LookupError) as error:
            raise StoreCorrupted(f"{self.where(event)} cannot be done again: {error}") from error
        if made != event:
            raise StoreCorrupted(
                f"{self.where(event)} gives another line when it is done again; if another version "
                "of bylot wrote it, start and stop that one, which leaves a snapshot for this one"
            )

    def decision(self, event: Event) -> StoredDecision:
        """A decision as its caller gets it."""
        made, said = self.latest
        return decision_from_event(self.name, event, said if made is event else None)

    def recalled(self, past: DecisionEvents) -> DecisionRecord:
        """A decision, and what became of it."""
        return decision_record_from_events(self.name, past, self.open.get(past.decided.seq))

    def status(self) -> RouterStatus:
        """The status of the router, with what only its log knows."""
        return build_router_status(self)

    def id(self, seq: int) -> str:
        """Of the decision that this line tells of."""
        return str(DecisionId(self.name, self.number, seq))

    def where(self, event: Event) -> str:
        """A line, for messages."""
        return f"router {self.name!r}: line {event.seq} of its log ({event.kind})"
