"""RouterEngine: a router core with its open decisions, and the rules of rewards and bills.

`Router` runs it under a lock and with a clock, the event log with what makes changes durable. It
has no lock, no clock and no store. A method that changes the router returns the change, or raises
an error and has changed nothing; times are microseconds since 1970.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bylot.errors import DecisionInUse, DecisionStateError, NoSubstitute
from bylot.limits.book import ALL_AVAILABLE, RequestLabels, Tables
from bylot.limits.keys import NO_KEYS, KeyNames
from bylot.problem import Problem
from bylot.router.changes import (
    DecisionActivated,
    DecisionCancelled,
    DecisionClosed,
    DecisionMade,
    MemberReplaced,
    RewardReceived,
)
from bylot.router.core import RouterCore
from bylot.router.core_status import list_distributions, report_status
from bylot.router.edits import change_problem, keep_traffic
from bylot.router.feedback import (
    RewardReport,
    SpendReport,
    arrange_feedback,
    check_corrections,
    check_panel_names,
    check_report,
    check_score,
    check_spend_range,
)
from bylot.router.open_decisions import (
    NO_DEADLINE,
    NOT_STARTED,
    OpenDecision,
    OpenDecisions,
    describe_state,
    make_cancelled_error,
)
from bylot.router.reward_rules import (
    RewardTerms,
    aggregate_rewards,
    check_callers_key,
    check_reward_count,
    check_reward_sum,
    check_same_reward,
    choose_receipt,
    collect_costs,
    compute_cost_corrections,
)
from bylot.router.status import RouterStatus
from bylot.router.substitution import (
    GO_ON,
    add_costs,
    choose_substitute,
    exchange_member,
    find_member,
    has_current_costs,
)

if TYPE_CHECKING:
    from bylot.router.past_rounds import PastRound
    from bylot.router.tally import Tally

US_PER_S = 1_000_000
PLAIN_REWARD = (None, False)  # the key of a reward without one


class RouterEngine:
    """The state of a router: what it has learned and booked, and its open decisions.

    A decision is known by its place: its number in memory, the number of its event in a log.

    read:       finds a decision that is not in memory, with its reports; or raises an error
    active:     mask of the experts that are not paused
    version:    of the configuration
    pool_since: the first decision from this pool and with as many draws: rewards of earlier ones
                are noted, not learned
    tally:      counts changes, if somebody reads the counters
    """

    def __init__(
        self,
        core: RouterCore,
        terms: RewardTerms,
        read: Callable[[int], OpenDecision],
        max_recent: int,
        max_bytes: int | None = None,
    ) -> None:
        self.core = core
        self.terms = terms
        self.active = ALL_AVAILABLE
        self.version = 1
        self.pool_since = 0
        self.open = OpenDecisions(read, max_recent, max_bytes)
        self.tally: Tally | None = None

    def decide(
        self,
        now: int,
        place: int | None = None,
        context: str | None = None,
        available: Iterable[str] | None = None,
        keys: KeyNames = NO_KEYS,
        *,
        defer: bool = False,
        holder: str | None = None,
        replayed: DecisionMade | None = None,
    ) -> DecisionMade:
        """Draw a panel. Without a place, the number of the decision is its place.

        A request for which a budget of the calendar leaves no panel is refused. It changes nothing
        until the next decision, which says how many there were.
        """
        core = self.core
        mask = self.active
        if available is not None:
            mask = core.mask_available(available, mask)
        refused: tuple[tuple[int, int], ...] = ()
        tables = None
        if replayed is not None:
            refused = replayed.refused
            tables = replayed.tables
        else:
            if keys or core.problem.needs_guard:
                core.book.check_budgets(now, mask, RequestLabels(context, keys))
            if core.book.refused:
                refused = tuple(core.book.refused.items())
        made = core.decide(context, mask, now, keys=keys, refused=refused, tables=tables)
        if refused:
            core.book.refused.clear()
            made.refused = refused
        if core.book.filled is not None:
            made.tables = core.book.filled
        if defer or holder is not None:
            made.defer = defer
            made.holder = holder
        made.version = self.version
        t = made.ticket.t
        due = NO_DEADLINE
        if defer or self.terms.wait is not None:
            due = NOT_STARTED if defer else self.find_deadline(now)
        self.open.add(t if place is None else place, OpenDecision(t, due, made, holder, now))
        first = t - self.terms.memory + 1
        dropped = self.open.drop_before(first) if first > 0 else ()
        if self.tally is not None:
            self.tally.add_decision(made, now, dropped)
        return made

    def find_deadline(self, at: int) -> int:
        """Return the last moment at which the reward of a decision that is used now is in time."""
        wait = self.terms.wait
        return NO_DEADLINE if wait is None else at + round(wait * US_PER_S)

    def is_of_pool(self, decision: OpenDecision) -> bool:
        """Return whether a decision was made from this pool, so that a policy can learn from it."""
        return decision.t >= self.pool_since

    def report(
        self,
        now: int,
        place: int,
        id: str,
        value: float | None = None,
        members: Mapping[str, float] | None = None,
        winner: str | None = None,
        spend: SpendReport | None = None,
        key: str | None = None,
        *,
        holder: str | None = None,
        by: str | None = None,
        replayed: bool = False,
    ) -> RewardReceived | None:
        """Apply a reward, the actual cost of a decision, or both; None if known already.

        replayed: rewards of older logs may be more, and costs higher, than new ones
        """
        core = self.core
        opened = self.open.by_place.get(place)
        is_plain = members is None and winner is None and spend is None and key is None
        if is_plain and opened is not None and self.tally is None and not opened.rewards:
            score = check_score(core.run, value, id)
            if opened.due == NO_DEADLINE and opened.t >= self.pool_since and holder is None:
                return self.learn_score(place, opened, score)
        terms = self.terms
        is_callers = holder is None and not replayed
        if holder is not None and spend is not None:  # an edit may have removed a cost
            known_costs = core.problem.costs
            spend = {name: cost for name, cost in spend.items() if name in known_costs} or None
        given = (value, members, winner, spend)
        report = RewardReport(None)  # the holder may report only that it has settled the decision
        if is_callers or any(part is not None for part in given):
            report = check_report(core.problem, core.run, id, *given)
        decision = self.open.find(place)
        if is_callers:
            check_callers_key(decision, key, id)
            if report.spend and decision.holder is not None:
                raise DecisionInUse(
                    f"only the {decision.holder} reports the costs of decision {id}",
                    remedy="report without spend; nothing was changed",
                )
        if decision.is_cancelled and report.value is not None:
            raise make_cancelled_error(id, "report costs without a reward")
        known = decision.rewards.get((key, report.value is None))
        if known is not None:
            check_same_reward(known, report, id)
            return None
        check_panel_names(report, decision.known.panel, id)
        if is_callers:  # whose rewards, and edits of costs, must not keep the holder from settling
            check_reward_count(decision, id)
            check_spend_range(report.spend, core.problem)
        same_pool = self.is_of_pool(decision)
        receipt = choose_receipt(
            decision, report, opened is not None, now, terms.aggregate, same_pool, id
        )
        if receipt == "pending" and terms.aggregate == "sum" and is_callers:
            check_reward_sum(decision, report, core.run, id)
        if not replayed and report.spend:
            costs = collect_costs(decision.rewards.values())
            check_corrections(report.spend, costs, core.book.list_certain_costs(), id)
        change = RewardReceived(
            receipt=receipt,
            key=key,
            value=report.value,
            members=report.members,
            winner=report.winner,
            spend=report.spend,
            member_spend=report.member_spend,
            from_members=report.from_members,
            by=by,
        )
        self.apply_report(place, decision, change)  # nothing is refused any more
        if self.tally is not None and change.value is not None and receipt != "late":
            self.tally.arrivals.add_reward(now, decision.at)
        return change

    def learn_score(self, place: int, opened: OpenDecision, score: float) -> RewardReceived:
        """Learn from a reward alone, the first report about a decision, where nobody counts: what
        `report` would do, in half the time.
        """
        made = opened.made
        ticket = opened.ticket if opened.failed or made is None else made.ticket
        self.core.learn(ticket, score)
        change = RewardReceived(value=score, receipt="learned")
        opened.rewards = {PLAIN_REWARD: change}
        self.open.close(place)
        self.open.remember(place, opened)
        return change

    def apply_report(self, place: int, decision: OpenDecision, change: RewardReceived) -> None:
        """Book the actual costs of a decision, and do what the receipt of the report says."""
        is_open = self.open.get(place) is not None
        receipt = change.receipt
        if self.tally is not None:
            closes = receipt in ("learned", "noted")
            self.tally.settle(decision, is_open, change.spend, closes)
            self.tally.counters.learned += receipt == "learned"
            self.tally.counters.late += receipt == "late"
            self.tally.counters.noted += receipt == "noted"
        if change.spend is not None:
            self.book_spend(decision, change.spend, change.member_spend)
        if receipt == "learned" and change.value is not None:
            self.learn(decision, change.value, change.members, change.winner)
        ends = receipt == "learned" or (receipt == "noted" and not decision.pending)
        decision.add_report(change)  # it must be recognised again
        if is_open and ends:
            self.open.close(place)
            self.open.remember(place, decision)

    def book_spend(
        self,
        decision: OpenDecision,
        spend: Mapping[str, float],
        by_member: Mapping[str, Mapping[str, float]] | None,
    ) -> None:
        """Book costs that were reported; the first report of a cost teaches what calls cost."""
        made = decision.known
        teaches = self.is_of_pool(decision) and not decision.is_cancelled
        if made.version != self.version:  # by declared costs that may have been edited since
            teaches = teaches and has_current_costs(self.core.problem, made)
        reports = decision.rewards.values()
        corrections = compute_cost_corrections(spend, decision.booked, reports)
        known = collect_costs(reports)
        new = {name: more for name, more in corrections.items() if name not in known}
        again = {name: more for name, more in corrections.items() if name in known}
        if new:
            self.core.settle(
                decision.ticket if teaches else None,
                new,
                by_member,
                t=decision.t,
                labels=made.labels,
                panel=() if decision.is_cancelled else made.panel,
                held={} if decision.is_cancelled else made.held,
            )
        if again:
            self.core.settle(None, again, t=decision.t, labels=made.labels)
        if self.tally is not None:
            self.tally.add_corrections(decision.t, corrections)

    def learn(
        self,
        decision: OpenDecision,
        value: float,
        members: dict[str, float] | None = None,
        winner: str | None = None,
    ) -> None:
        """Learn from a reward and what came with it, by the probabilities of its decision."""
        ticket = decision.ticket
        more = arrange_feedback(members, winner, decision.known.panel, ticket)
        self.core.learn(ticket, value, *more)
        if self.tally is not None:
            is_detailed = members is not None or winner is not None
            self.tally.learn(decision.t, value, is_detailed, self.core.run.low)

    def replace(
        self,
        place: int,
        id: str,
        failed: str,
        available: Sequence[str] | None = None,
        *,
        holder: str | None = None,
        by: str | None = None,
    ) -> MemberReplaced | None:
        """Let another expert take the place of a member that failed; None if one has already."""
        core = self.core
        self.check_holder(place, id, holder)
        decision = self.open.find(place)
        if failed in decision.failed:
            return None
        if decision.is_deferred or not self.is_unreported(place):
            raise self.make_state_error(place, id, "; its panel cannot be changed")
        made = decision.known
        if not self.is_of_pool(decision):
            raise NoSubstitute(
                f"experts were added or removed since decision {id} was made",
                remedy=GO_ON,
            )
        is_edited = made.version != self.version
        if is_edited and (made.held or not has_current_costs(core.problem, made)):
            raise NoSubstitute(f"the router was edited since decision {id} was made", remedy=GO_ON)
        seat = find_member(made, failed, id)
        added = choose_substitute(core, self.active, decision, seat, available, id)
        # nothing is refused any more
        more, more_held = core.exchange_call(decision.t, seat, added, made.labels, made.held)
        change = MemberReplaced(
            failed=failed,
            available=None if available is None else tuple(available),
            added=core.problem.experts[added],
            seat=added,
            spend=add_costs(made.spend, more),
            held=add_costs(made.held, more_held),
            by=by,
        )
        exchange_member(decision, change)
        if self.tally is not None:
            self.tally.exchange_member(decision.t, more)
        return change

    def check_holder(self, place: int, id: str, holder: str | None) -> None:
        """Refuse what only the holder of a decision may do before it has settled it."""
        opened = self.open.get(place)
        if opened is not None and opened.is_in_use and holder != opened.holder:
            raise DecisionInUse(
                f"decision {id} is in use: the {opened.holder} will report its costs",
                remedy="nothing was changed",
            )

    def is_unreported(self, place: int) -> bool:
        """Return whether a decision is open, and nothing was reported about it."""
        opened = self.open.get(place)
        return opened is not None and not opened.rewards

    def make_state_error(self, place: int, id: str, what: str) -> DecisionStateError:
        """Make the error of a command that the state of a decision does not allow."""
        decision = self.open.find(place)
        is_open = self.open.get(place) is not None
        state: str = describe_state(decision, is_open)
        if is_open and decision.rewards:
            state = "rewarded" if decision.valued else "settled"
        return DecisionStateError(f"decision {id} is {state}{what}")

    def activate(self, now: int, place: int, id: str, by: str | None = None) -> DecisionActivated:
        """Start the wait of a deferred decision."""
        opened = self.open.get(place)
        if opened is None or not opened.is_deferred:
            raise self.make_state_error(place, id, ", not deferred")
        self.open.start_wait(place, self.find_deadline(now))
        if self.tally is not None:
            self.tally.arrivals.add_decision(now)
        return DecisionActivated(by=by)

    def cancel(
        self, place: int, id: str, *, holder: str | None = None, by: str | None = None
    ) -> DecisionCancelled:
        """Take back a decision that was never used: it has no reward, and no average counts it."""
        self.check_holder(place, id, holder)
        decision = self.open.find(place)
        if not self.is_unreported(place):
            raise self.make_state_error(place, id, "; it cannot be cancelled any more")
        made = decision.known
        costs = (made.spend, made.expected)
        booked = self.core.cancel(decision.t, *costs, made.panel, made.labels, made.held)
        if self.tally is not None:
            self.tally.cancel(decision.t, booked)
        decision.is_cancelled = True
        self.open.close(place)
        self.open.remember(place, decision)
        return DecisionCancelled(by=by)

    def close_due(self, now: int) -> tuple[int, DecisionClosed] | None:
        """Close the decision whose wait was over first; None if there is none."""
        first = self.open.first_due()
        if first is None or first[0] >= now:
            return None
        place = first[1]
        decision = self.open.by_place[place]
        pending = decision.pending
        change = DecisionClosed(None)
        same_pool = self.is_of_pool(decision)
        if pending:
            decision = self.open.find(place)
            if self.tally is not None:
                self.tally.settle(decision, True, None, True)
        if same_pool and pending:
            run = self.core.run
            report = aggregate_rewards(pending, self.terms.aggregate, run)
            change = DecisionClosed(report.value, report.members, report.winner)
        elif same_pool and self.terms.default is not None:
            change = DecisionClosed(self.terms.default)
        if change.learned is not None:
            self.learn(self.open.find(place), change.learned, change.members, change.winner)
        if self.tally is not None:
            counters = self.tally.counters
            counters.learned += bool(pending) and change.learned is not None
            counters.defaulted += not pending and change.learned is not None
            counters.noted += len(pending) * (change.learned is None)
            counters.missing += not pending and change.learned is None
        self.open.close(place)
        return place, change

    def learn_rounds(self, rounds: "Sequence[PastRound]") -> None:
        """Learn from a log of another router before the first decision."""
        from bylot.router.past_rounds import learn_rounds

        learn_rounds(self.core, rounds)

    def edit(
        self, now: int, problem: Problem, rules: Any = None, tables: Tables | None = None
    ) -> None:
        """Continue under another problem; what was learned is kept, the traffic too.

        rules: policy and limits bound to the problem, if that was done before
        """
        old = self.core.problem
        at_traffic = keep_traffic(self.core, problem)
        if at_traffic != problem:
            problem = at_traffic
            rules = None
        same_pool = change_problem(self.core, problem, rules, at=now, tables=tables)
        self.version += 1
        if not same_pool:
            self.pool_since = self.core.t
        if self.tally is not None and problem != old:
            self.tally.rename_costs(problem.costs)

    def count_waiting(self) -> int:
        """Return how many decisions wait for their rewards."""
        return sum(not opened.is_deferred for _, opened in self.open)

    def report_status(self, at: int = 0, now: int = 0) -> RouterStatus:
        """Return how the router and its limits stand at a time, with the counters, if any.

        now: until when rewards could have come
        """
        waiting = self.count_waiting()
        status = report_status(self.core, self.active, waiting, at)
        if self.tally is None:
            return status
        deferred = len(self.open) - waiting
        distributions = list_distributions(self.core, self.active)
        return self.tally.add_to_status(
            status, self.core.book.refused, now, deferred, distributions
        )
