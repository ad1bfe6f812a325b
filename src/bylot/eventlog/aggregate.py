"""RouterAggregate: a router rebuilt from its log, and the only place where events are made.

An event is a function of the earlier events and of the inputs, the time among them. To replay a
log is to do everything again and compare. Storing events is left to the repository.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from msgspec import MsgspecError, structs

from bylot.errors import (
    BylotError,
    DecisionNotFound,
    DecisionStateError,
    InfeasibleLimits,
    StoreCorrupted,
    StoreUnavailable,
)
from bylot.eventlog.commands import (
    CreateRouter,
    EditRouter,
    LearnRounds,
    MakeDecision,
    RecordReward,
    ReplaceMember,
    SetTenant,
    check_storable_text,
)
from bylot.eventlog.config_validation import (
    check_config_edit,
    mask_active_experts,
    prepare_config,
    validate_config,
)
from bylot.eventlog.events import (
    BODY_DECODERS,
    EVENT_KINDS,
    LOG_VERSION,
    ConfigChanged,
    KeyChanged,
    Remark,
    RoundsLearned,
    RouterCopied,
    RouterCreated,
    SegmentSealed,
    encode_body,
    hash_event,
    hash_snapshot,
    rehash_event,
)
from bylot.eventlog.history import command_from_bounds, command_from_reward, read_decision
from bylot.eventlog.snapshot import (
    PLAIN_FIELDS,
    TALLY_FIELDS,
    SegmentStart,
    decode_snapshot,
    encode_snapshot,
)
from bylot.router.changes import (
    Change,
    DecisionActivated,
    DecisionCancelled,
    DecisionClosed,
    MemberReplaced,
    PackedDecision,
    RewardReceived,
    pack_decision,
    unpack_decision,
)
from bylot.router.config import RouterConfig
from bylot.router.core import RouterCore
from bylot.router.engine import RouterEngine
from bylot.router.open_decisions import MAX_CACHED_BYTES, OpenDecision
from bylot.router.status import RouterStatus
from bylot.router.tally import Tally
from bylot.store import DecisionEvents, Event, Segment, Snapshot

MAX_RECENT_DECISIONS = 100  # no longer open ones, kept in memory after a reward


class RouterAggregate:
    """A router after event `seq` of its log: an engine, whose changes become events.

    find_events: reads a decision from the log; set by the repository. Events later than `seq`, as
                 there are during a replay, are ignored
    lead:        of the router's time over the clock (`clock.compute_clock_lead`)

    Each method that changes the router returns its event, or raises an error and has changed
    nothing. Times are microseconds since 1970; one before the last event's counts as that.
    """

    def __init__(self, number: int, name: str, config: RouterConfig, core: RouterCore) -> None:
        self.number = number
        self.name = name
        self.core = core
        self.seq = -1
        self.at = 0
        self.seal = b""
        self.lead = 0
        self.find_events: Callable[[int], DecisionEvents | None] = lambda seq: None
        self.latest: tuple[Event | None, Change | None] = None, None  # the last event
        self.segment = SegmentStart()
        self.engine = RouterEngine(
            core, config.terms, self.read, MAX_RECENT_DECISIONS, MAX_CACHED_BYTES
        )
        self.tally = self.engine.tally = Tally(core.problem.costs)
        self.adopt(config)

    @classmethod
    def create(cls, number: int, at: int, command: CreateRouter) -> tuple["RouterAggregate", Event]:
        """A new router and event 0 of its log; an invalid configuration raises an error."""
        config, core = command.prepared or prepare_config(command.config)
        # `CommandHandler.create` checks the capacity for contexts, once, when the log begins
        config = structs.replace(config, version=1)
        made = cls(number, command.name, config, core)
        created = RouterCreated(config, command.name, log=LOG_VERSION, by=command.by)
        return made, made.append(at, created)

    @classmethod
    def from_first_event(cls, name: str, first: Event) -> "RouterAggregate":
        if first.seq != 0 or first.kind != "created" or rehash_event(b"", first) != first:
            raise StoreCorrupted(f"router {name!r}: event 0 of its log was changed")
        try:
            body = BODY_DECODERS["created"](first.body)
            if body.log != LOG_VERSION:
                raise StoreCorrupted(
                    f"router {name!r}: its log has version {body.log}; this bylot reads version "
                    f"{LOG_VERSION}",
                    remedy="`bylot store migrate` says what can be taken over",
                )
            command = CreateRouter(body.name, body.config, by=body.by)
            made, event = cls.create(first.router, first.at, command)
        except StoreCorrupted:
            raise
        except (BylotError, MsgspecError) as error:
            raise StoreCorrupted(f"router {name!r}: event 0 of its log: {error}") from error
        if event != first:
            raise StoreCorrupted(f"router {name!r}: replaying event 0 of its log gives another one")
        if made.name != name:
            raise StoreCorrupted(
                f"router {name!r}: its log is that of router {made.name!r}",
                remedy="the names in the store were changed; restore it from a backup",
            )
        return made

    @classmethod
    def from_snapshot(cls, name: str, stored: Snapshot) -> "RouterAggregate":
        content, core = decode_snapshot(name, stored)
        made = cls(stored.router, name, content.config, core)
        for field in PLAIN_FIELDS:
            setattr(made, field, getattr(content, field))
        made.engine.pool_since = content.pool_since
        made.engine.open.fill_from_columns(content.open)
        for field in TALLY_FIELDS:
            setattr(made.tally, field, getattr(content, field))
        made.segment = content.segment
        return made

    def take_snapshot(self) -> Snapshot:
        """Everything but tickets, which are in the log."""
        body = self.encode()
        return Snapshot(self.number, self.seq, body, hash_snapshot(body))

    def encode(self) -> bytes:
        """Return the body of a snapshot."""
        return encode_snapshot(self)

    def fingerprint(self) -> str:
        """A digest of everything: equal if and only if all state is equal."""
        return sha256(self.encode()).hexdigest()

    def decide(
        self, at: int, command: MakeDecision, replayed: PackedDecision | None = None
    ) -> Event:
        """Draw a panel (`RouterEngine.decide`)."""
        check_storable_text("key", command.key)
        if command.context not in self.core.contexts:
            check_storable_text("context", command.context)
        for scope, name in command.keys.items():
            check_storable_text(scope, name)
        made = self.engine.decide(
            self.local_time(at),
            self.seq + 1,
            command.context,
            command.available,
            command.keys,
            defer=command.defer,
            holder=command.holder,
            replayed=None if replayed is None else unpack_decision(replayed, 0),
        )
        made.available = command.available
        made.by = command.by
        event = self.append(at, pack_decision(made), key=command.key)
        self.engine.open.by_place[event.seq].seal = event.seal
        return event

    def replace(self, at: int, of: int, command: ReplaceMember) -> Event | None:
        """Let another expert take the place of a member that failed; None if one has already."""
        change = self.engine.replace(
            of,
            command.id,
            command.failed,
            command.available,
            holder=command.holder,
            by=command.by,
        )
        return None if change is None else self.append(at, change, of=of)

    def reward(
        self, at: int, of: int, command: RecordReward, *, replayed: bool = False
    ) -> Event | None:
        """Apply the reward, the actual cost of a decision, or both; None if known already."""
        check_storable_text("key", command.key)
        change = self.engine.report(
            self.local_time(at),
            of,
            command.id,
            command.value,
            command.members,
            command.winner,
            command.spend,
            key=command.key,
            holder=command.holder,
            by=command.by,
            replayed=replayed,
        )
        return None if change is None else self.append(at, change, of=of)

    def read(self, of: int) -> OpenDecision:
        """Return a decision from the log, as it is now."""
        return read_decision(self.decision_events(of), self.core.contexts)

    def decision_events(self, of: int) -> DecisionEvents:
        """Return a decision and the events about it up to now."""
        found = self.find_events(of) if 0 < of <= self.seq else None
        if found is None or found.decided.kind != "decided":
            raise make_unknown_decision_error(self.describe_place(of))
        return DecisionEvents(found.decided, [one for one in found.since if one.seq <= self.seq])

    def activate(self, at: int, of: int, by: str | None = None) -> Event:
        """Start the wait of a deferred decision."""
        change = self.engine.activate(self.local_time(at), of, self.describe_place(of), by)
        return self.append(at, change, of=of)

    def cancel(self, at: int, of: int, by: str | None = None, holder: str | None = None) -> Event:
        """Take back a decision that was never used: it has no reward, and no average counts it."""
        change = self.engine.cancel(of, self.describe_place(of), holder=holder, by=by)
        return self.append(at, change, of=of)

    def close_due(self, at: int) -> Event | None:
        """Close the decision whose wait was over first; None if there is none."""
        closed = self.engine.close_due(self.local_time(at))
        return None if closed is None else self.append(at, closed[1], of=closed[0])

    def edit(self, at: int, command: EditRouter, replayed: ConfigChanged | None = None) -> Event:
        """Continue under another configuration, the next version; what was learned is kept."""
        if command.prepared is not None:
            config, core = command.prepared
            problem, rules = core.problem, core.rules
        else:
            try:
                config, (problem, *_) = validate_config(command.config)
            except InfeasibleLimits as error:
                raise error.for_running_router() from None
            rules = None
        config = structs.replace(config, version=self.config.version + 1)
        check_config_edit(self.config, config)
        tables = None if replayed is None else replayed.tables
        old = self.core.problem
        self.engine.edit(self.local_time(at), problem, rules, tables)
        if self.core.problem == old:  # perhaps with its costs in another order
            config = structs.replace(config, problem=self.config.problem)
        self.core.max_contexts = config.max_contexts
        self.adopt(config)
        tables = self.core.book.filled
        return self.append(at, ConfigChanged(config, tables=tables, by=command.by))

    def adopt(self, config: RouterConfig) -> None:
        """Let a configuration be in force, whose problem is that of the core."""
        self.config = config
        self.engine.terms = config.terms
        self.engine.version = config.version
        self.engine.active = mask_active_experts(self.core, config)

    def set_tenant(self, at: int, command: SetTenant) -> Event:
        """Give a tenant bounds of its own."""
        check_storable_text("tenant", command.tenant)
        key = "tenant", command.tenant
        self.core.book.get_keyed().set_bounds(key, command.limits)
        limits = tuple(limit.to_data() for limit in command.limits)
        return self.append(at, KeyChanged(*key, limits, by=command.by))

    def learn_rounds(self, at: int, command: LearnRounds) -> Event | None:
        """Learn rounds of a log before the first decision; None for the last ones, sent again."""
        counters = self.tally.counters
        _, last = self.latest
        same = not isinstance(last, RoundsLearned) or last.rounds == command.rounds
        if same and command.after + len(command.rounds) == counters.past > 0:
            return None
        if command.after != counters.past:
            raise DecisionStateError(
                f"router {self.name!r} has learned {counters.past:,} rounds, not {command.after:,}",
                remedy="send only rounds that it has not learned, in order; nothing was changed",
            )
        for round in command.rounds:
            check_storable_text("context", round.context)
        self.engine.learn_rounds(command.rounds)
        counters.past += len(command.rounds)
        return self.append(at, RoundsLearned(command.rounds, by=command.by))

    def append(self, at: int, body: Change, of: int | None = None, key: str | None = None) -> Event:
        """Make the next event."""
        kind, encoded = EVENT_KINDS[type(body)], encode_body(body)
        fields = self.number, self.seq + 1, kind, of, key, self.local_time(at), encoded
        event = Event(*fields, hash_event(self.seal, *fields))
        self.seq, self.at, self.seal = event.seq, event.at, event.seal
        self.latest = event, body
        if of is not None and of < self.segment.refers:
            self.segment.refers = of
        return event

    def decode(self, event: Event) -> Any:
        """The body of an event; that of the last one is in memory."""
        latest, body = self.latest
        return body if latest is event else BODY_DECODERS[event.kind](event.body)

    def begin_copy(self, at: int, origin: str, by: str | None = None) -> Event:
        """Event 0 of the log of a copy, which records its state."""
        state = self.take_snapshot().seal
        return self.append(at, RouterCopied(self.config, self.name, state, origin, by=by))

    def seal_segment(self, taken: Snapshot | None = None) -> tuple[Segment, Event]:
        """End a segment of the log: its row in the store, and the event that records the state.

        taken: the snapshot of this moment, if it was taken already
        """
        state, ended = (taken or self.take_snapshot()).seal, self.describe_segment()
        event = self.append(0, SegmentSealed(self.config, self.name, state))
        self.segment = SegmentStart(event.seq, event.at, event.seq)
        return ended, event

    def describe_segment(self) -> Segment:
        """The segment as it would be in the store if it ended here."""
        first, refers = self.segment.first, self.segment.refers
        open_since = min(self.engine.open.first_place(), self.seq + 1)
        return Segment(self.number, first, self.seq, self.at, self.seal, refers, open_since)

    def local_time(self, at: int) -> int:
        """The time of the router, by its own clock."""
        return max(at + self.lead, self.at)

    def replay(self, event: Event) -> None:
        """Do again what an event says, and compare; after StoreCorrupted discard this instance."""
        where = f"router {self.name!r}: event {event.seq} of its log ({event.kind})"
        ours = event.router == self.number and event.seq == self.seq + 1
        if not ours or rehash_event(self.seal, event) != event:
            raise StoreCorrupted(f"{where} was changed, removed or moved")
        try:
            made = self.replay_inputs(event)
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

    def replay_inputs(self, event: Event) -> Event | None:
        """Do what an event says, with its inputs; returns the event that results."""
        at, of, body = event.at, event.of, BODY_DECODERS[event.kind](event.body)
        match body:
            case PackedDecision():
                inputs = body.context, body.available, event.key, body.defer, body.keys
                command = MakeDecision(self.name, *inputs, by=body.by, holder=body.holder)
                return self.decide(at, command, replayed=body)
            case DecisionClosed():
                return self.close_due(at)
            case ConfigChanged():
                edit = EditRouter(self.name, body.config, by=body.by)
                return self.edit(at, edit, replayed=body)
            case KeyChanged():
                return self.set_tenant(at, command_from_bounds(self.name, body))
            case RoundsLearned():
                after = self.tally.counters.past
                learn = LearnRounds(self.name, body.rounds, after, by=body.by)
                return self.learn_rounds(at, learn)
            case SegmentSealed():
                return self.seal_segment()[1]
            case RouterCopied():
                return self.begin_copy(at, body.origin, body.by)
            case Remark():
                return self.append(at, body, of)
        if of is None:
            raise TypeError("it does not name its decision")
        opened = self.engine.open.get(of)
        holder = None if opened is None else opened.holder  # only it could change what it held
        match body:
            case RewardReceived():
                reward = command_from_reward(self.describe_place(of), body)
                return self.reward(at, of, reward, replayed=True)
            case MemberReplaced():
                asked = self.describe_place(of), body.failed, body.available
                exchange = ReplaceMember(*asked, by=body.by, holder=holder)
                return self.replace(at, of, exchange)
            case DecisionActivated():
                return self.activate(at, of, body.by)
            case DecisionCancelled():
                return self.cancel(at, of, body.by, holder)
        return None

    def status(self, at: int = 0) -> RouterStatus:
        """Return the status of the router at this time."""
        return self.engine.report_status(at and self.local_time(at), self.local_time(at))

    def describe_place(self, seq: int) -> str:
        """Where an event is, for messages."""
        return f"{self.name}.{self.number}.{seq}"


def make_unknown_decision_error(id: str) -> DecisionNotFound:
    """For an id that no decision has."""
    remedy = "use the id that `decide` returned"
    return DecisionNotFound(f"no decision has id {id!r}", remedy=remedy)
