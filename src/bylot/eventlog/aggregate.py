"""RouterAggregate: a router rebuilt from its log, and the only place where events are made.

An event is a function of the earlier events and of the inputs, the time among them. To replay a
log is to do everything again and compare. Storing events is left to the repository.
"""

import copy
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from msgspec import MsgspecError, structs

from bylot import errors
from bylot.eventlog import (
    commands,
    config_validation,
    events,
    history,
    reward_rules,
    snapshot,
    substitution,
)
from bylot.eventlog.events import BODY_DECODERS, DecisionMade, RewardReceived, rehash_event
from bylot.eventlog.open_decisions import NO_DEADLINE, NOT_STARTED, OpenDecision, OpenDecisions
from bylot.eventlog.timeline import Timeline
from bylot.numerics.jit import Bools
from bylot.problem import Limit
from bylot.problem.instants import FULL_HOUR_US
from bylot.router import feedback
from bylot.router.config import RouterConfig
from bylot.router.core import RouterCore
from bylot.router.core_status import list_distributions, report_status
from bylot.router.state import RewardArrivals
from bylot.router.status import Counters, RouterStatus
from bylot.store import DecisionEvents, Event, Segment, Snapshot

US_PER_S = 1_000_000
MAX_RECENT_DECISIONS = 100  # no longer open ones, kept in memory after a reward
PLAIN_FIELDS = ("seq", "at", "seal", "pool_since", "timeline", "counters", "stated")


class RouterAggregate:
    """A router, its open decisions, counters and timeline, after event `seq` of its log.

    find_events: reads a decision from the log; set by the repository. Events later than `seq`, as
                 there are during a replay, are ignored
    pool_since:  the event since which the pool and the number of draws are these: rewards of
                 earlier decisions are noted, not learned
    stated:      sums of stated cost, by name
    active:      mask of the experts that are not paused
    lead:        of the router's time over the clock (`clock.compute_clock_lead`)
    recent:      decisions that are no longer open, as `read_closed` found them
    refused:     requests that were refused since the last decision, by the hour
    arrivals:    when rewards came, since the router was opened

    Each method that changes the router returns its event, or raises an error and has changed
    nothing. Times are microseconds since 1970; one before the last event's counts as that.
    """

    def __init__(self, number: int, name: str, config: RouterConfig, core: RouterCore) -> None:
        self.number, self.name, self.config, self.core = number, name, config, core
        self.seq, self.at, self.seal, self.pool_since = -1, 0, b"", 0
        self.find_events: Callable[[int], DecisionEvents | None] = lambda seq: None
        self.latest: tuple[Event | None, events.EventBody | None] = None, None  # the last event
        self.open = OpenDecisions()
        self.timeline = Timeline({name: [] for name in core.problem.costs})
        self.counters = Counters()
        self.stated = dict.fromkeys(core.problem.costs, 0.0)
        self.active = config_validation.mask_active_experts(core, config)
        self.lead, self.recent = 0, dict[int, OpenDecision]()
        self.segment = snapshot.SegmentStart()
        self.refused: dict[int, int] = {}
        self.arrivals = RewardArrivals()

    @classmethod
    def create(
        cls, number: int, at: int, command: commands.CreateRouter
    ) -> tuple["RouterAggregate", Event]:
        """A new router and event 0 of its log; an invalid configuration raises an error."""
        config, core = command.prepared or config_validation.prepare_config(command.config)
        # `CommandHandler.create` checks the capacity for contexts, once, when the log begins
        config = structs.replace(config, version=1)
        made = cls(number, command.name, config, core)
        return made, made.append(at, events.RouterCreated(config, command.name, by=command.by))

    @classmethod
    def from_first_event(cls, name: str, first: Event) -> "RouterAggregate":
        if first.seq != 0 or first.kind != "created" or rehash_event(b"", first) != first:
            raise errors.StoreCorrupted(f"router {name!r}: event 0 of its log was changed")
        try:
            body = BODY_DECODERS["created"](first.body)
            command = commands.CreateRouter(body.name, body.config, by=body.by)
            made, event = cls.create(first.router, first.at, command)
        except (errors.BylotError, MsgspecError) as error:
            raise errors.StoreCorrupted(f"router {name!r}: event 0 of its log: {error}") from error
        if event != first:
            raise errors.StoreCorrupted(
                f"router {name!r}: replaying event 0 of its log gives another one"
            )
        if made.name != name:
            what = f"router {name!r}: its log is that of router {made.name!r}"
            remedy = "the names in the store were changed; restore it from a backup"
            raise errors.StoreCorrupted(what, remedy=remedy)
        return made

    @classmethod
    def from_snapshot(cls, name: str, stored: Snapshot) -> "RouterAggregate":
        if events.hash_snapshot(stored.body) != stored.seal:
            raise errors.StoreCorrupted(f"router {name!r}: its snapshot was changed")
        try:
            content = snapshot.decode_snapshot(stored.body)
            made = cls(content.router, name, content.config, snapshot.restore_core(content))
        except (errors.BylotError, MsgspecError, ValueError, TypeError, LookupError) as error:
            raise errors.StoreCorrupted(f"router {name!r}: its snapshot: {error}") from error
        made.number = stored.router
        which = content.version, content.router, content.name, content.seq
        number = 0 if stored.seq < 0 else stored.router  # of a copy it was not known yet
        if which != (snapshot.SNAPSHOT_VERSION, number, name, stored.seq):
            raise errors.StoreCorrupted(
                f"router {name!r}: its snapshot is of another version, or of another router"
            )
        for field in PLAIN_FIELDS:
            setattr(made, field, getattr(content, field))
        made.open = OpenDecisions.from_columns(content.open)
        made.segment = content.segment or snapshot.SegmentStart()
        return made

    def take_snapshot(self) -> Snapshot:
        """Everything but tickets, which are in the log."""
        body = self.encode()
        return Snapshot(self.number, self.seq, body, events.hash_snapshot(body))

    def encode(self) -> bytes:
        """The body of a snapshot."""
        content = snapshot.SnapshotContent(
            version=snapshot.SNAPSHOT_VERSION,
            router=0 if self.seq < 0 else self.number,
            name=self.name,
            config=self.config,
            core=snapshot.store_core(self.core),
            open=self.open.to_columns(),
            segment=None if self.segment == snapshot.SegmentStart() else self.segment,
            **{field: getattr(self, field) for field in PLAIN_FIELDS},
        )
        return snapshot.encode_snapshot(content)

    def fingerprint(self) -> str:
        """A digest of everything: equal if and only if all state is equal."""
        return sha256(self.encode()).hexdigest()

    def decide(
        self, at: int, command: commands.MakeDecision, replayed: DecisionMade | None = None
    ) -> Event:
        """Draw a panel.

        A request for which a budget of the calendar leaves no panel is refused. It makes no event:
        the next decision says how many there were.
        """
        context, core, now = command.context, self.core, self.local_time(at)
        mask = core.mask_available(command.available, self.active)
        if context not in core.contexts:
            commands.check_storable_text("context", context)
        commands.check_storable_text("key", command.key)
        for scope, name in command.keys.items():
            commands.check_storable_text(scope, name)
        refused, tables = tuple(self.refused.items()) if self.refused else (), None
        if replayed is not None:
            refused, tables = replayed.refused, replayed.tables
        else:
            self.check_budgets(now, mask, command)
        booked = core.decide(context, mask, now, keys=command.keys, refused=refused, tables=tables)
        body = history.body_from_ticket(booked, core, self.config.version, command, refused)
        if refused:
            self.refused.clear()
            self.counters.refused += sum(requests for _, requests in refused)
        event = self.append(at, body, key=command.key)
        due = NOT_STARTED if command.defer else self.deadline(event.at)
        opened = OpenDecision(
            body.t,
            due,
            booked.ticket,
            body.spend,
            body.draws,
            seal=event.seal,
            labels=history.labels_from_body(body),
            held=body.held,
            holder=body.holder,
            made=event.at,
        )
        self.open.add(event.seq, opened)
        if not command.defer:
            self.arrivals.add_decision(event.at)
        self.timeline.add_decision(body.t, event.at, body.spend)
        for name, cost in body.spend.items():
            self.stated[name] += cost
        self.counters.count_spend(body.spend)
        self.counters.replaced += body.replaced
        self.counters.infeasible += not body.feasible
        for dropped in self.open.drop_before(body.t - self.config.memory + 1):
            self.counters.missing += not (dropped.is_deferred or dropped.valued)
        return event

    def check_budgets(self, now: int, available: Bools, command: commands.MakeDecision) -> None:
        """Refuse a request, and count it by the hour, if a budget leaves no panel."""
        try:
            self.core.check_budgets(now, available, command.context, command.keys)
        except errors.BudgetSpent:
            hour = now - now % FULL_HOUR_US
            self.refused[hour] = self.refused.get(hour, 0) + 1
            raise

    def replace(self, at: int, of: int, command: commands.ReplaceMember) -> Event | None:
        """Let another expert take the place of a member that failed; None if one has already."""
        self.check_holder(of, self.open.get(of), command.holder)
        current = history.current_from_events(self.decision_events(of))
        if command.failed in current.failed:
            return None
        one, core = self.find_unreported(of), self.core
        made = current.made
        if of <= self.pool_since:
            what = f"experts were added or removed since decision {command.id} was made"
            raise errors.NoSubstitute(what, remedy="go on with the other members")
        if made.held and made.version != self.config.version:  # at costs that may differ from these
            what = f"the router was edited since decision {command.id} was made"
            raise errors.NoSubstitute(what, remedy="go on with the other members")
        failed, added = substitution.choose_substitute(core, self.active, current, command)
        labels = history.labels_from_body(made)
        # nothing is refused any more
        more, more_held = core.exchange_call(one.t, failed, added, labels, made.held)
        for name, cost in more.items():
            self.stated[name] += cost
        self.counters.failed += 1
        self.counters.count_corrections(more)
        self.timeline.add_cost(one.t, more)
        body = substitution.make_exchange(core.problem, current, command, added, more, more_held)
        self.fill_panel(of, one, history.exchange_member(current, body))
        return self.append(at, body, of=of)

    def check_holder(self, of: int, decision: OpenDecision | None, holder: str | None) -> None:
        """Refuse what only the holder of a decision may do before it has settled it."""
        if decision is not None and decision.is_in_use and holder != decision.holder:
            state = self.describe_decision(of, "in use")
            what = f"{state}: the {decision.holder} will report its costs"
            raise errors.DecisionInUse(what, remedy="nothing was changed")

    def find_unreported(self, of: int) -> OpenDecision:
        """A decision that waits for its first report, or an error."""
        one = self.open.get(of)
        if one is None or one.is_deferred or one.rewards:
            what = self.describe_decision(of, None if one is None else one.reported)
            raise errors.DecisionStateError(f"{what}; its panel cannot be changed")
        return one

    def deadline(self, at: int) -> int:
        """The last moment at which the reward of a decision that is used now is in time."""
        wait = self.config.wait
        return NO_DEADLINE if wait is None else at + round(wait * US_PER_S)

    def reward(
        self, at: int, of: int, command: commands.RecordReward, *, replayed: bool = False
    ) -> Event | None:
        """Apply the reward, the actual cost of a decision, or both; None if known already.

        replayed: rewards of older logs may be more, and costs higher, than new ones
        """
        id, key, problem, how = command.id, command.key, self.core.problem, self.config.aggregate
        is_callers = command.holder is None and not replayed
        spend = command.spend
        if command.holder is not None and spend is not None:  # an edit may have removed a cost
            spend = {name: cost for name, cost in spend.items() if name in problem.costs} or None
        given = command.value, command.members, command.winner, spend
        if is_callers or any(part is not None for part in given):
            report = feedback.check_report(problem, self.core.run, id, *given)
        else:  # the holder has nothing to report, but that it has settled the decision
            report = feedback.RewardReport(None)
        commands.check_storable_text("key", key)
        opened = self.open.get(of)
        one = self.read_closed(of) if opened is None else self.load_ticket(of, opened)
        if is_callers:
            reward_rules.check_callers_key(one, key, id)
            if report.spend and one.holder is not None:
                what = f"only the {one.holder} reports the costs of decision {id}"
                raise errors.DecisionInUse(what, remedy="report without spend; nothing was changed")
        if one.is_cancelled and report.value is not None:
            raise make_cancelled_error(id, "report costs without a reward")
        if key in one.rewards:
            reward_rules.check_same_reward(one.rewards[key], report, id)
            return None
        feedback.check_panel_names(report, one.panel, id)
        if is_callers:  # whose rewards, and edits of costs, must not keep the holder from settling
            reward_rules.check_reward_count(one, id)
            feedback.check_spend_range(report.spend, problem)
        is_open, same_pool, now = opened is not None, of > self.pool_since, self.local_time(at)
        receipt = reward_rules.choose_receipt(one, report, is_open, now, how, same_pool, id)
        if receipt == "pending" and how == "sum" and is_callers:
            reward_rules.check_reward_sum(one, report, self.core.run, id)
        if not replayed and report.spend:
            known = reward_rules.collect_costs(one.rewards.values())
            feedback.check_corrections(report.spend, known, self.core.list_certain_costs(), id)
        body = RewardReceived(
            receipt=receipt,
            key=key,
            value=report.value,
            members=report.members,
            winner=report.winner,
            spend=report.spend,
            member_spend=report.member_spend,
            from_members=report.from_members,
            by=command.by,
        )
        self.apply_reward(of, one, body)  # nothing is refused any more
        if body.value is not None and body.receipt != "late":
            self.arrivals.add_reward(now, one.made)
        return self.append(at, body, of=of)

    def apply_reward(self, of: int, one: OpenDecision, body: RewardReceived) -> None:
        """Book the actual costs of a decision, and do what the receipt of the report says."""
        self.count_settled(of, one, body.spend, body.receipt in ("learned", "noted"))
        if body.spend is not None and one.spend is not None:
            rewards = one.rewards.values()
            corrections = reward_rules.compute_cost_corrections(body.spend, one.spend, rewards)
            known = reward_rules.collect_costs(rewards)
            new = {name: more for name, more in corrections.items() if name not in known}
            again = {name: more for name, more in corrections.items() if name in known}
            if new:  # the first report of a cost teaches what calls cost
                ticket = one.ticket if of > self.pool_since else None
                self.core.settle(
                    ticket,
                    new,
                    body.member_spend,
                    t=one.t,
                    labels=one.labels,
                    panel=() if one.is_cancelled else one.panel,
                    held=one.held,
                )
            if again:
                self.core.settle(None, again, t=one.t, labels=one.labels)
            self.counters.count_corrections(corrections)
            self.timeline.add_cost(one.t, corrections)
        if body.receipt == "learned" and body.value is not None:
            self.learn(one, body.value, body.members, body.winner)
            self.counters.learned += 1
            self.open.close(of)
            return
        self.counters.late += body.receipt == "late"
        self.counters.noted += body.receipt == "noted"
        if body.receipt == "noted" and self.open.get(of) is not None and not one.pending:
            self.open.close(of)
        else:  # it stays open, and must recognise this report again
            one.rewards[body.key] = body

    def count_settled(
        self, of: int, one: OpenDecision, spend: Mapping[str, float] | None, closes: bool
    ) -> None:
        """Count costs that become known: reported ones, or stated ones when a reward closes it."""
        stated = one.spend or {}
        in_time = any(report.receipt != "late" for report in one.valued)
        was_closed = in_time and self.open.get(of) is None  # and counted as stated
        known = {**stated} if was_closed else {}
        known |= reward_rules.collect_costs(one.rewards.values())
        self.counters.count_settled(known, {**(stated if closes else {}), **known, **(spend or {})})

    def learn(
        self,
        one: OpenDecision,
        value: float,
        members: dict[str, float] | None = None,
        winner: str | None = None,
    ) -> None:
        """Learn from a reward and what came with it, by the probabilities of its decision."""
        assert one.ticket is not None  # it was loaded, and is of this pool
        more = feedback.arrange_feedback(members, winner, one.panel, one.ticket)
        self.core.learn(one.ticket, value, *more)
        self.counters.detailed += members is not None or winner is not None
        self.counters.earned += max(0.0, value - self.core.run.low)
        self.timeline.add_reward(one.t, value)

    def load_ticket(self, of: int, one: OpenDecision) -> OpenDecision:
        """An open decision with all that learning needs, from the log if it is not in memory."""
        if one.spend is None or (one.ticket is None and of > self.pool_since):
            self.fill_panel(of, one, history.current_from_events(self.decision_events(of)))
        return one

    def fill_panel(self, of: int, one: OpenDecision, current: history.CurrentDecision) -> None:
        """Set the panel of a decision, its stated cost and, if it is of this pool, its ticket."""
        made = current.made
        one.spend, one.panel, one.labels = made.spend, made.draws, history.labels_from_body(made)
        one.held = made.held
        if of > self.pool_since:  # else it is noted: nothing is learned from it
            one.ticket = history.ticket_from_current(current, self.core.contexts[made.context])

    def read_closed(self, of: int) -> OpenDecision:
        """A decision that is no longer open, from the log, or from memory if it was read before."""
        one = self.recent.pop(of, None) or self.read_closed_from_log(of)
        self.recent[of] = one  # the latest is the last
        if len(self.recent) > MAX_RECENT_DECISIONS:
            del self.recent[next(iter(self.recent))]
        return one

    def read_closed_from_log(self, of: int) -> OpenDecision:
        """A decision that is no longer open; of one that was cancelled nothing is booked."""
        found = self.decision_events(of)
        current = history.current_from_events(found)
        bodies = [BODY_DECODERS[one.kind](one.body) for one in found.since]
        rewards = {one.key: one for one in bodies if isinstance(one, RewardReceived)}
        one = OpenDecision(current.made.t, NO_DEADLINE, rewards=rewards, seal=found.decided.seal)
        self.fill_panel(of, one, current)  # its costs may still be learned
        one.holder = current.made.holder
        one.is_cancelled = any(event.kind == "cancelled" for event in found.since)
        if one.is_cancelled:
            one.spend = {}
            one.held = {}
            one.ticket = None
        return one

    def decision_events(self, of: int) -> DecisionEvents:
        """A decision and the events about it up to now."""
        found = self.find_events(of) if 0 < of <= self.seq else None
        if found is None or found.decided.kind != "decided":
            raise make_unknown_decision_error(self.describe_place(of))
        return DecisionEvents(found.decided, [one for one in found.since if one.seq <= self.seq])

    def decision_body(self, of: int) -> DecisionMade:
        """What the log says about a decision, with the panel that it has now."""
        return history.current_from_events(self.decision_events(of)).made

    def activate(self, at: int, of: int, by: str | None = None) -> Event:
        """Start the wait of a deferred decision."""
        one = self.open.get(of)
        if one is None or not one.is_deferred:
            raise errors.DecisionStateError(f"{self.describe_decision(of)}, not deferred")
        self.open.start_wait(of, self.deadline(self.local_time(at)))
        self.arrivals.add_decision(self.local_time(at))
        return self.append(at, events.DecisionActivated(by=by), of=of)

    def cancel(self, at: int, of: int, by: str | None = None, holder: str | None = None) -> Event:
        """Take back a decision that was never used: it has no reward, and no average counts it."""
        one = self.open.get(of)
        self.check_holder(of, one, holder)
        if one is None or one.rewards:
            what = self.describe_decision(of, None if one is None else one.reported)
            raise errors.DecisionStateError(f"{what}; it cannot be cancelled any more")
        body = self.decision_body(of)
        labels = history.labels_from_body(body)
        costs = body.spend, body.expected
        booked = self.core.cancel(body.t, *costs, body.draws, labels, body.held)
        self.timeline.cancel_decision(body.t, booked)
        for name, cost in booked.items():
            self.stated[name] -= cost
        self.counters.cancelled += 1
        self.arrivals.cancel_decision()
        self.counters.count_corrections({name: -cost for name, cost in booked.items()})
        self.open.close(of)
        return self.append(at, events.DecisionCancelled(by=by), of=of)

    def describe_decision(self, of: int, state: str | None = None) -> str:
        """A decision and its state, by default that of its life cycle, for messages."""
        found = self.decision_events(of)
        record = history.decision_record_from_events(self.name, found, self.open.get(of))
        return f"decision {record.decision.id} is {state or record.state}"

    def close_due(self, at: int) -> Event | None:
        """Close the decision whose wait was over first; None if there is none."""
        first = self.open.first_due()
        if first is None or first[0] >= self.local_time(at):
            return None
        seq, body, default = first[1], events.DecisionClosed(None), self.config.default
        one = self.open.by_seq[seq]
        pending = one.pending
        if pending:
            self.count_settled(seq, self.load_ticket(seq, one), None, closes=True)
        if seq > self.pool_since and pending:
            how, run = self.config.aggregate, self.core.run
            report = reward_rules.aggregate_rewards(pending, how, run)
            body = events.DecisionClosed(report.value, report.members, report.winner)
        elif seq > self.pool_since and default is not None:
            body = events.DecisionClosed(default)
        if body.learned is not None:
            self.learn(self.load_ticket(seq, one), body.learned, body.members, body.winner)
            self.counters.learned += bool(pending)
            self.counters.defaulted += not pending
        elif not pending:
            self.counters.missing += 1
        self.open.close(seq)
        return self.append(at, body, of=seq)

    def edit(
        self, at: int, command: commands.EditRouter, replayed: events.ConfigChanged | None = None
    ) -> Event:
        """Continue under another configuration, the next version; what was learned is kept."""
        if command.prepared is not None:
            config, core = command.prepared
            problem, rules = core.problem, core.rules
        else:
            try:
                config, (problem, *_) = config_validation.validate_config(command.config)
            except errors.InfeasibleLimits as error:
                raise error.for_running_router() from None
            rules = None
        at_traffic = self.core.keep_traffic(problem)
        if at_traffic != problem:
            problem, rules = at_traffic, None
        config = structs.replace(config, version=self.config.version + 1)
        config_validation.check_config_edit(self.config, config)
        old = self.core.problem
        same_pool = self.core.change_problem(
            problem,
            rules,
            at=self.local_time(at),
            tables=None if replayed is None else replayed.tables,
        )
        self.core.max_contexts = config.max_contexts
        if problem == old:  # perhaps with its costs in another order
            config = structs.replace(config, problem=self.config.problem)
        else:
            self.timeline.rename_costs(problem.costs)
            self.stated = {name: self.stated.get(name, 0.0) for name in problem.costs}
        self.config = config
        self.active = config_validation.mask_active_experts(self.core, config)
        tables = history.read_tables(self.core)
        event = self.append(at, events.ConfigChanged(config, tables=tables, by=command.by))
        if not same_pool:
            self.pool_since = event.seq
            for _, one in self.open:
                one.ticket = None
        return event

    def set_tenant(self, at: int, command: commands.SetTenant) -> Event:
        """Give a tenant bounds of its own."""
        commands.check_storable_text("tenant", command.tenant)
        key = "tenant", command.tenant
        self.core.get_keyed().set_bounds(key, command.limits)
        limits = tuple(limit.to_data() for limit in command.limits)
        return self.append(at, events.KeyChanged(*key, limits, by=command.by))

    def append(
        self, at: int, body: events.EventBody, of: int | None = None, key: str | None = None
    ) -> Event:
        """Make the next event."""
        kind, encoded = events.EVENT_KINDS[type(body)], events.encode_body(body)
        fields = self.number, self.seq + 1, kind, of, key, self.local_time(at), encoded
        event = Event(*fields, events.hash_event(self.seal, *fields))
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
        return self.append(at, events.RouterCopied(self.config, self.name, state, origin, by=by))

    def seal_segment(self, taken: Snapshot | None = None) -> tuple[Segment, Event]:
        """End a segment of the log: its row in the store, and the event that records the state.

        taken: the snapshot of this moment, if it was taken already
        """
        state, ended = (taken or self.take_snapshot()).seal, self.describe_segment()
        event = self.append(0, events.SegmentSealed(self.config, self.name, state))
        self.segment = snapshot.SegmentStart(event.seq, event.at, event.seq)
        return ended, event

    def describe_segment(self) -> Segment:
        """The segment as it would be in the store if it ended here."""
        first, refers = self.segment.first, self.segment.refers
        open_since = min(self.open.first_seq(), self.seq + 1)
        return Segment(self.number, first, self.seq, self.at, self.seal, refers, open_since)

    def local_time(self, at: int) -> int:
        """The time of the router, by its own clock."""
        return max(at + self.lead, self.at)

    def replay(self, event: Event) -> None:
        """Do again what an event says, and compare; after StoreCorrupted discard this instance."""
        where = f"router {self.name!r}: event {event.seq} of its log ({event.kind})"
        ours = event.router == self.number and event.seq == self.seq + 1
        if not ours or rehash_event(self.seal, event) != event:
            raise errors.StoreCorrupted(f"{where} was changed, removed or moved")
        try:
            made = self.replay_inputs(event)
        except errors.StoreUnavailable:
            raise
        except (errors.BylotError, MsgspecError, ValueError, TypeError, LookupError) as error:
            raise errors.StoreCorrupted(f"{where} cannot be replayed: {error}") from error
        if made != event:
            raise errors.StoreCorrupted(
                f"{where} gives another event when it is replayed",
                remedy="if another version of bylot wrote it, start and stop that version, which "
                "leaves a snapshot for this one",
            )

    def replay_inputs(self, event: Event) -> Event | None:
        """Do what an event says, with its inputs; returns the event that results."""
        at, of, body = event.at, event.of, BODY_DECODERS[event.kind](event.body)
        match body:
            case DecisionMade():
                inputs = body.context, body.available, event.key, body.defer, body.keys
                command = commands.MakeDecision(self.name, *inputs, by=body.by, holder=body.holder)
                return self.decide(at, command, replayed=body)
            case events.DecisionClosed():
                return self.close_due(at)
            case events.ConfigChanged():
                edit = commands.EditRouter(self.name, body.config, by=body.by)
                return self.edit(at, edit, replayed=body)
            case events.KeyChanged():
                limits = tuple(Limit.from_data(one) for one in body.limits)
                changed = commands.SetTenant(self.name, body.key, limits, by=body.by)
                return self.set_tenant(at, changed)
            case events.SegmentSealed():
                return self.seal_segment()[1]
            case events.RouterCopied():
                return self.begin_copy(at, body.origin, body.by)
        if of is None:
            raise TypeError("it does not name its decision")
        opened = self.open.get(of)
        holder = None if opened is None else opened.holder  # only it could change what it held
        match body:
            case RewardReceived():
                reward = history.command_from_reward(self.describe_place(of), body)
                return self.reward(at, of, reward, replayed=True)
            case events.MemberReplaced():
                asked = self.describe_place(of), body.failed, body.available
                exchange = commands.ReplaceMember(*asked, by=body.by, holder=holder)
                return self.replace(at, of, exchange)
            case events.DecisionActivated():
                return self.activate(at, of, body.by)
            case events.DecisionCancelled():
                return self.cancel(at, of, body.by, holder)
        return None

    def status(self, at: int = 0) -> RouterStatus:
        """The status of the router at this time, with what only its log knows."""
        status = report_status(self.core, self.active, at=at and self.local_time(at))
        deferred = sum(one.is_deferred for _, one in self.open)
        known = status.decisions, self.counters.learned
        return structs.replace(
            status,
            unrewarded=self.arrivals.count_overdue(self.local_time(at), *known),
            waiting=len(self.open) - deferred,
            deferred=deferred,
            costs={
                name: structs.replace(cost, stated=self.stated[name])
                for name, cost in status.costs.items()
            },
            counters=self.count_with_refused(),
            distributions=list_distributions(self.core, self.active),
            timeline=self.timeline.points(status.decisions),
        ).judge()

    def count_with_refused(self) -> Counters:
        """The counters, with requests that were refused since the last decision."""
        counters = copy.deepcopy(self.counters)
        counters.refused += sum(self.refused.values())
        return counters

    def describe_place(self, seq: int) -> str:
        """Where an event is, for messages."""
        return f"{self.name}.{self.number}.{seq}"


def make_cancelled_error(id: str, remedy: str) -> errors.DecisionStateError:
    """For a reward of a decision that was cancelled, or a request with its key."""
    return errors.DecisionStateError(f"decision {id} was cancelled", remedy=remedy)


def make_unknown_decision_error(id: str) -> errors.DecisionNotFound:
    """For an id that no decision has."""
    remedy = "use the id that `decide` returned"
    return errors.DecisionNotFound(f"no decision has id {id!r}", remedy=remedy)
