"""Tally: what a stored router counts beside its state: counters, sums and the timeline."""

import copy
from collections.abc import Iterable, Mapping

from msgspec import structs

from bylot.router.changes import DecisionMade
from bylot.router.open_decisions import OpenDecision
from bylot.router.reward_rules import collect_costs
from bylot.router.state import RewardArrivals
from bylot.router.status import ContextDistribution, Counters, RouterStatus
from bylot.router.timeline import Timeline


class Tally:
    """Counts what happens to a router.

    stated:   sums of stated cost, by name
    arrivals: when rewards came, since the router was opened
    """

    def __init__(self, costs: Iterable[str]) -> None:
        self.counters = Counters()
        self.stated = dict.fromkeys(costs, 0.0)
        self.timeline = Timeline({name: [] for name in self.stated})
        self.arrivals = RewardArrivals()

    def add_decision(self, made: DecisionMade, at: int, dropped: Iterable[OpenDecision]) -> None:
        """Count a decision, and those that are no longer held."""
        counters = self.counters
        if not made.defer:
            self.arrivals.add_decision(at)
        self.timeline.add_decision(made.ticket.t, at, made.spend)
        self.add_stated(made.spend)
        counters.count_spend(made.spend)
        counters.replaced += made.ticket.replaced
        counters.infeasible += not made.ticket.feasible
        counters.refused += sum(requests for _, requests in made.refused)
        for decision in dropped:
            counters.missing += not (decision.is_deferred or decision.valued)

    def add_stated(self, more: Mapping[str, float], sign: int = 1) -> None:
        """Add stated costs."""
        for name, cost in more.items():
            self.stated[name] += sign * cost

    def add_corrections(self, t: int, more: Mapping[str, float]) -> None:
        """Count what decision t costs more than was booked."""
        self.counters.count_corrections(more)
        self.timeline.add_cost(t, more)

    def exchange_member(self, t: int, more: Mapping[str, float]) -> None:
        """Count a member that was replaced, by one that costs so much more."""
        self.counters.failed += 1
        self.add_stated(more)
        self.add_corrections(t, more)

    def settle(
        self, decision: OpenDecision, is_open: bool, spend: Mapping[str, float] | None, closes: bool
    ) -> None:
        """Count costs that become known: reported ones, or stated ones when a reward closes it."""
        stated = decision.booked
        known = {**stated} if decision.has_reward and not is_open else {}  # counted as stated
        known |= collect_costs(decision.rewards.values())
        now = {**(stated if closes else {}), **known, **(spend or {})}
        self.counters.count_settled(known, now)

    def learn(self, t: int, value: float, is_detailed: bool, low: float) -> None:
        """Count a reward that was learned."""
        self.counters.detailed += is_detailed
        self.counters.earned += max(0.0, value - low)
        self.timeline.add_reward(t, value)

    def cancel(self, t: int, booked: Mapping[str, float]) -> None:
        """Count a decision that was never used, and of which so much was booked."""
        self.timeline.cancel_decision(t, booked)
        self.add_stated(booked, -1)
        self.counters.cancelled += 1
        self.arrivals.cancel_decision()
        self.counters.count_corrections({name: -cost for name, cost in booked.items()})

    def rename_costs(self, costs: Iterable[str]) -> None:
        """Continue with these costs."""
        self.timeline.rename_costs(costs)
        self.stated = {name: self.stated.get(name, 0.0) for name in costs}

    def add_to_status(
        self,
        status: RouterStatus,
        refused: Mapping[int, int],
        now: int,
        deferred: int,
        distributions: tuple[ContextDistribution, ...],
    ) -> RouterStatus:
        """Return a status with what was counted until now.

        refused: requests since the last decision
        """
        counters = copy.deepcopy(self.counters)
        counters.refused += sum(refused.values())
        costs = {
            name: structs.replace(cost, stated=self.stated[name])
            for name, cost in status.costs.items()
        }
        return structs.replace(
            status,
            unrewarded=self.arrivals.count_overdue(now, status.decisions, self.counters.learned),
            deferred=deferred,
            costs=costs,
            counters=counters,
            distributions=distributions,
            timeline=self.timeline.points(status.decisions),
        ).judge()
