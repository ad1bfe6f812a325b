"""Fold: what the log of a router adds up to, and the only place where lines of it are made.

Doing a thing makes its line, and the line is a function of what was done before and of the inputs,
the time among them. To replay a log is therefore to do it again and to compare. Where lines are
kept, and who may write them, is left to the keeper.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from msgspec import MsgspecError, Struct, msgpack, structs

from bylot.amending import refused
from bylot.durable import course, freeze, standing
from bylot.durable.accounts import Accounts
from bylot.durable.agreement import agree, awake, check_edit, started
from bylot.durable.bodies import (
    Activated,
    Cancelled,
    Closed,
    Created,
    Decided,
    Edited,
    Rewarded,
)
from bylot.durable.commands import Decision, Recalled, State
from bylot.durable.held import ASLEEP, NEVER, Held, Open
from bylot.durable.history import READ, decision_of, recalled_of, rewards_in, state_of
from bylot.durable.ids import Id
from bylot.durable.replay import again
from bylot.durable.rewards import (
    aggregated,
    check_sum,
    receipt_when_closed,
    receipt_when_open,
    repeated,
)
from bylot.durable.seal import digest, resealed, sealed
from bylot.durable.spend import beyond, check_spend
from bylot.durable.terms import Terms
from bylot.durable.texts import check_text
from bylot.durable.tickets import line_of, ticket_of
from bylot.errors import (
    BylotError,
    DecisionError,
    InfeasibleLimits,
    NoSuchDecision,
    NotNow,
    StoreDamaged,
    StoreDown,
)
from bylot.kernels.compile import Bools
from bylot.policies.carry import same_pool
from bylot.policies.contract import Ticket
from bylot.router import Router
from bylot.store.contract import Event, Past, Snapshot

ENCODE = msgpack.Encoder().encode
SECOND = 1_000_000  # microseconds


def nothing(seq: int) -> Past | None:
    """A log that cannot be looked up."""
    return None


class Fold:
    """A router, its open decisions, its accounts and its course, after line `seq` of its log.

    recall: looks a decision up in the log; set by the owner, who knows where that is. Lines later
            than the fold stands at, as there are during a replay, are passed over.
    pool:   the line since which panels are drawn from these experts, as many at a time: rewards of
            decisions before it are noted, not learned

    Each method that does a thing returns its line, or raises an error and has changed nothing.
    Times are microseconds since 1970; one that is before the last line's counts as that.
    """

    def __init__(self, number: int, name: str, terms: Terms, router: Router) -> None:
        self.number, self.name, self.terms, self.router = number, name, terms, router
        self.seq, self.at, self.created, self.seal, self.pool = -1, 0, 0, b"", 0
        self.recall: Callable[[int], Past | None] = nothing
        self.latest: tuple[Event | None, Decided | None] = None, None  # a decision, and its body
        self.open = Open()
        self.course = course.blank(router.problem.costs)
        self.accounts = Accounts(stated=dict.fromkeys(router.problem.costs, 0.0))
        self.awake = awake(router, terms)

    @classmethod
    def create(
        cls, number: int, name: str, terms: Terms, at: int, by: str | None = None
    ) -> tuple["Fold", Event]:
        """A new router and line 0 of its log; terms that make no sense raise what is wrong."""
        found = agree(structs.replace(terms, version=1))
        fold = cls(number, name, found.terms, started(found))
        fold.created = at
        return fold, fold.line("created", at, Created(found.terms, by))

    @classmethod
    def begin(cls, name: str, first: Event) -> "Fold":
        """A router from line 0 of its log."""
        if first.seq != 0 or first.kind != "created" or resealed(b"", first) != first:
            raise StoreDamaged(f"router {name!r}: line 0 of its log is not what was written")
        try:
            body = READ["created"](first.body)
            fold, made = cls.create(first.router, name, body.terms, first.at, body.by)
        except (BylotError, MsgspecError) as error:
            raise StoreDamaged(f"router {name!r}: line 0 of its log: {error}") from error
        if made != first:
            raise StoreDamaged(f"router {name!r}: line 0 of its log gives another line")
        return fold

    @classmethod
    def thaw(cls, name: str, snapshot: Snapshot) -> "Fold":
        """A router from its snapshot."""
        if digest(snapshot.body) != snapshot.seal:
            raise StoreDamaged(f"router {name!r}: its snapshot is not what was written")
        try:
            return cls.thawed(name, freeze.DECODE(snapshot.body), snapshot)
        except (BylotError, MsgspecError, ValueError, TypeError, LookupError) as error:
            raise StoreDamaged(f"router {name!r}: its snapshot: {error}") from error

    @classmethod
    def thawed(cls, name: str, frozen: freeze.Frozen, snapshot: Snapshot) -> "Fold":
        """A router from the content of a snapshot."""
        if (frozen.form, frozen.router, frozen.seq) != (freeze.FORM, *snapshot[:2]):
            raise StoreDamaged(f"router {name!r}: its snapshot is of another form, or not its own")
        fold = cls(frozen.router, name, frozen.terms, freeze.read_router(frozen))
        fold.seq, fold.at, fold.created = frozen.seq, frozen.at, frozen.created
        fold.seal, fold.pool = frozen.seal, frozen.pool
        fold.course, fold.accounts = frozen.course, frozen.accounts
        fold.open = Open.read(frozen.held)
        return fold

    def freeze(self) -> Snapshot:
        """All of it but tickets, which are in the log."""
        body = self.content()
        return Snapshot(self.number, self.seq, body, digest(body))

    def content(self) -> bytes:
        """What a snapshot holds."""
        frozen = freeze.Frozen(
            form=freeze.FORM,
            router=self.number,
            seq=self.seq,
            at=self.at,
            created=self.created,
            seal=self.seal,
            pool=self.pool,
            terms=self.terms,
            held=self.open.write(),
            course=self.course,
            accounts=self.accounts,
            **freeze.write_router(self.router),
        )
        return freeze.ENCODE(frozen)

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
            check_text("context", context)
        check_text("key", key)
        served = self.router.draw(context, up)
        body = line_of(
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

    def hold(self, event: Event, body: Decided, ticket: Ticket) -> None:
        """Book a decision, and keep what its reward will need; the oldest are let go."""
        due = ASLEEP if body.defer else self.end_of_wait(event.at)
        self.open.add(event.seq, Held(body.t, due, ticket, body.spend))
        self.course.decided(body.t, event.at, body.spend)
        self.accounts.decided(body.spend, body.replaced, body.feasible)
        for held in self.open.let_go(body.t - self.terms.memory + 1):
            self.accounts.missing += not (held.deferred or held.told)

    def end_of_wait(self, at: int) -> int:
        """The last moment at which the reward of a decision that is used now is in time."""
        return NEVER if self.terms.wait is None else at + round(self.terms.wait * SECOND)

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
        check_text("key", key)
        held = self.open.get(of)
        known = self.finished(of) if held is None else self.loaded(of, held)
        told, id = known.told or {}, self.id(of)  # noqa: A001
        if repeated(told, Rewarded(value, "duplicate", spend, key), id):
            return None
        if held is None:
            receipt = receipt_when_closed(told.values())
        else:
            receipt = receipt_when_open(held, at, self.terms, of > self.pool, id)
            if receipt == "pending" and self.terms.aggregate == "sum":
                check_sum(held, value, self.router.rewards, id)
        body = Rewarded(value, receipt, spend, key, by)
        if spend is not None and known.spend is not None:
            self.settle(known.t, beyond(spend, known.spend, told.values()))
        self.take(of, known, body)
        return self.line("rewarded", at, body, of=of)

    def take(self, of: int, known: Held, body: Rewarded) -> None:
        """Do to a decision what the receipt of its reward says."""
        match body.receipt:
            case "learned":
                self.learn(known, body.value)
                self.accounts.learned += 1
                self.open.close(of)
            case "pending":
                known.told = {**(known.told or {}), body.key: body}
            case "late":
                known.told = {**(known.told or {}), body.key: body}
                self.accounts.late += 1
            case "noted":
                self.accounts.noted += 1
                if self.open.get(of) is not None and not known.pending:
                    self.open.close(of)
                else:  # it stays open for those, and must know this one again
                    known.told = {**(known.told or {}), body.key: body}

    def learn(self, held: Held, value: float) -> None:
        """Learn from a reward, by the odds of its decision."""
        assert held.ticket is not None  # it was loaded, and is of this pool
        self.router.learn(held.ticket, value)
        self.course.rewarded(held.t, value)

    def settle(self, t: int, more: Mapping[str, float]) -> None:
        """Book that decision t cost more than was booked, or less."""
        self.router.settle(more)
        self.course.settled(t, more)

    def loaded(self, of: int, held: Held) -> Held:
        """An open decision with all that learning needs, from the log if it is not at hand."""
        if held.spend is None or (held.ticket is None and of > self.pool):
            line: Decided = READ["decided"](self.past(of).decided.body)
            held.spend = line.spend
            if of > self.pool:
                held.ticket = ticket_of(line, self.router.contexts[line.context])
        return held

    def finished(self, of: int) -> Held:
        """A decision that is no longer open, as the log has it."""
        past = self.past(of)
        if any(one.kind == "cancelled" for one in past.since):
            raise NotNow(f"decision {self.id(of)} was cancelled; it has no reward any more")
        line: Decided = READ["decided"](past.decided.body)
        told = {one.key: one for one in rewards_in(past.since)}
        return Held(line.t, NEVER, spend=line.spend, told=told)

    def past(self, of: int) -> Past:
        """A decision, and what was said of it up to now."""
        past = self.recall(of) if 0 < of <= self.seq else None
        if past is None or past.decided.kind != "decided":
            raise NoSuchDecision(f"there is no decision {self.id(of)}; pass the id of one")
        return Past(past.decided, [one for one in past.since if one.seq <= self.seq])

    def activate(self, at: int, *, of: int, by: str | None = None) -> Event:
        """A deferred decision is used after all: its time begins."""
        held = self.open.get(of)
        if held is None or not held.deferred:
            raise NotNow(f"decision {self.id(of)} is {self.state(of)}, not deferred")
        at = max(at, self.at)
        self.open.wake(of, self.end_of_wait(at))
        return self.line("activated", at, Activated(by), of=of)

    def cancel(self, at: int, *, of: int, by: str | None = None) -> Event:
        """A decision was never used: it has no reward, and no average counts it."""
        held = self.open.get(of)
        if held is None or held.told:
            state = self.state(of) if held is None else "rewarded"
            raise NotNow(f"decision {self.id(of)} is {state}; it is too late to cancel it")
        line: Decided = READ["decided"](self.past(of).decided.body)
        booked = self.router.withdraw(line.t, line.spend, line.expected)
        self.course.cancelled(line.t, booked)
        self.accounts.take_back(booked)
        self.open.close(of)
        return self.line("cancelled", max(at, self.at), Cancelled(by), of=of)

    def state(self, of: int) -> State:
        """Where a decision is in its life."""
        since = [READ[one.kind](one.body) for one in self.past(of).since]
        return state_of(since, self.open.get(of))

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
        return self.line("closed", at, Closed(value), of=seq)

    def outcome(self, seq: int, held: Held) -> float | None:
        """What is learned of a decision whose time is up."""
        if seq < self.pool:
            return None
        if pending := held.pending:
            return aggregated(pending, self.terms.aggregate, self.router.rewards)
        return self.terms.default

    def close(self, seq: int, held: Held, value: float | None) -> None:
        """Done with a decision."""
        counted = bool(held.pending)
        if value is not None:
            self.learn(held, value)
            self.accounts.learned += counted
            self.accounts.defaulted += not counted
        elif not counted:
            self.accounts.missing += 1
        self.open.close(seq)

    def edit(self, at: int, terms: Terms, by: str | None = None) -> Event:
        """Go on under other terms: the next version. What was learned is kept (`Router.change`)."""
        try:
            found = agree(structs.replace(terms, version=self.terms.version + 1))
        except InfeasibleLimits as error:
            raise refused(error) from None
        check_edit(self.terms, found)
        old, problem = self.router.problem, found.problem
        self.router.change(problem)
        self.router.max_contexts = found.terms.max_contexts
        if problem == old:  # the same, though it may be written in another order
            self.terms = structs.replace(found.terms, problem=self.terms.problem)
        else:
            self.terms = found.terms
            self.course.rename(problem.costs)
            self.accounts.rename(problem.costs)
        self.awake = awake(self.router, self.terms)
        event = self.line("edited", max(at, self.at), Edited(self.terms, by))
        if not same_pool(old, problem):
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
        event = sealed(self.seal, self.number, self.seq + 1, kind, of, key, at, ENCODE(body))
        self.seq, self.at, self.seal = event.seq, at, event.seal
        return event

    def replay(self, event: Event) -> None:
        """Do again what a line tells, and compare the whole line.

        After StoreDamaged the fold is good for nothing.
        """
        ours = event.router == self.number and event.seq == self.seq + 1
        if not ours or resealed(self.seal, event) != event:
            raise StoreDamaged(f"{self.where(event)} is not what was written")
        try:
            made = again(self, event)
        except StoreDown:
            raise
        except (BylotError, MsgspecError, ValueError, TypeError, LookupError) as error:
            raise StoreDamaged(f"{self.where(event)} cannot be done again: {error}") from error
        if made != event:
            raise StoreDamaged(
                f"{self.where(event)} gives another line when it is done again; if another version "
                "of bylot wrote it, start and stop that one, which leaves a snapshot for this one"
            )

    def decision(self, event: Event) -> Decision:
        """A decision as its caller gets it."""
        made, said = self.latest
        return decision_of(self.name, event, said if made is event else None)

    def recalled(self, past: Past) -> Recalled:
        """A decision, and what became of it."""
        return recalled_of(self.name, past, self.open.get(past.decided.seq))

    def standing(self) -> dict[str, Any]:
        """How it stands, as plain data."""
        return standing.standing(self)

    def id(self, seq: int) -> str:
        """Of the decision that this line tells of."""
        return str(Id(self.name, self.number, seq))

    def where(self, event: Event) -> str:
        """A line, for messages."""
        return f"router {self.name!r}: line {event.seq} of its log ({event.kind})"
