"""RouterStatus: the state of a router for people, as typed data (JSON on the wire) and as text."""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from bylot._text import format_table
from bylot.limits.status import CostStatus, LimitStatus
from bylot.limits.verdict import LimitVerdict
from bylot.policies.validation import FEEDBACK_WORDS, FeedbackKind
from bylot.router.state import PanelHealth, RouterHealth, RouterState, judge_state

MAX_PRINTED_SHARES = 6


class PeriodStatus(Struct, frozen=True):
    """Position in the current period of a policy that guards its limits."""

    length: int  # decisions; limits hold at the end
    played: int  # decisions of it so far
    replaced: int  # panels that the guard replaced since the first decision

    def __str__(self) -> str:
        panels = f"{self.replaced:,} panel{'s' * (self.replaced != 1)} replaced by the guard"
        if self.played == 0:
            return f"{panels}; a new period of {self.length:,} begins"
        return f"{panels}; round {self.played:,} of a period of {self.length:,}"


class Counters(Struct):
    """Events and amounts of a stored router since its first decision; none ever decreases.

    past:       rounds of a log that the policy learned from before the first decision
    learned:    rewards that the policy learned from, without those of `defaulted`
    detailed:   those of them that came with scores of members or a winner
    noted:      rewards of decisions that had one already, or were made before the pool changed
    late:       rewards after the deadline, or of decisions no longer open
    missing:    decisions without a reward when their deadline passed or `memory` was full
    defaulted:  decisions whose deadline passed and for which the default was learned
    cancelled:  decisions that were never used
    replaced:   panels that the guard replaced
    failed:     members that failed and were replaced
    refused:    requests for which no budget of the calendar left a panel; a server that is killed
                forgets those since the last decision
    infeasible: decisions at which a limit would have been missed
    earned:     sum of the rewards that were learned, each above the lowest of its range
    settled:    costs of decisions, by name, once reported, or as stated if a reward comes alone
    booked:     stated costs of all decisions, by name
    added:      what was reported beyond the stated costs
    saved:      what was reported below them, and the costs of cancelled decisions
                (either also: by how much substitutes cost more, or less, than failed members)
    """

    past: int = 0
    learned: int = 0
    detailed: int = 0
    noted: int = 0
    late: int = 0
    missing: int = 0
    defaulted: int = 0
    cancelled: int = 0
    replaced: int = 0
    infeasible: int = 0
    failed: int = 0
    refused: int = 0
    earned: float = 0.0
    settled: dict[str, float] = {}
    booked: dict[str, float] = {}
    added: dict[str, float] = {}
    saved: dict[str, float] = {}

    def count_spend(self, spend: Mapping[str, float]) -> None:
        """Count the stated costs of a decision."""
        for name, cost in spend.items():
            self.booked[name] = self.booked.get(name, 0.0) + cost

    def count_settled(self, known: Mapping[str, float], now: Mapping[str, float]) -> None:
        """Count by how much the costs of a decision that are known now exceed what was known."""
        for name, cost in now.items():
            more = max(0.0, cost - known.get(name, 0.0))
            self.settled[name] = self.settled.get(name, 0.0) + more

    def count_corrections(self, corrections: Mapping[str, float]) -> None:
        """Count what decisions cost more or less than was stated, by name."""
        for name, more in corrections.items():
            sums = self.added if more > 0 else self.saved
            sums[name] = sums.get(name, 0.0) + abs(more)


class ContextDistribution(Struct, frozen=True):
    """The distribution of the next draw in one context, over the experts in their order."""

    context: str | None
    visits: int
    distribution: list[float]


class TimelinePoints(Struct, frozen=True):
    """The history of a stored router in at most 256 bins of equally many decisions.

    started: microseconds since 1970 of the first decision of each bin
    total:   sum of the bin's rewards
    spent:   settled cost by name
    """

    started: list[int]
    decisions: list[int]
    rewards: list[int]
    total: list[float]
    spent: dict[str, list[float]]


class RouterStatus(Struct, frozen=True, kw_only=True):
    """A router at one moment; averages are per decision that was used, since the first.

    waiting:           decisions whose reward may still come
    deferred:          decisions that are not in use yet
    max_contexts:      as declared, or as many as the policy can hold
    kept:              all limits are kept
    state:             whether the router is well: see `bylot.router.state`
    unrewarded:        decisions since the last reward, if they should have one by now; else 0
    q:                 distribution of a draw; if `whole`, inclusion probability of every expert
    effective_experts: exp(entropy of q as shares)
    multinomial:       draws are independent
    whole:             a panel is drawn as one set; if neither, q is how often each was drawn
    period:            None if the policy does not guard its limits
    feedback:          what is reported: the reward, also scores of members, or also the winner
    uses_feedback:     the policy learns from all of that; if not, from the reward alone
    random_panels:     what panels drawn at random would earn, limits ignored, as the model of the
                       policy predicts; None: it has no model, or has learned too little
    counters, distributions, timeline: of stored routers only
    """

    decisions: int
    rewards: int
    waiting: int
    deferred: int = 0
    contexts: int
    max_contexts: int
    mean_reward: float | None
    kept: bool
    state: RouterState = RouterState()
    unrewarded: int = 0
    limits: tuple[LimitStatus, ...]
    costs: dict[str, CostStatus]
    q: dict[str, float]
    effective_experts: float
    multinomial: bool
    whole: bool
    period: PeriodStatus | None
    feedback: FeedbackKind = "panel"
    uses_feedback: bool = True
    random_panels: float | None = None
    counters: Counters | None = None
    distributions: tuple[ContextDistribution, ...] = ()
    timeline: TimelinePoints | None = None

    def judge(self, panels: PanelHealth | None = None) -> "RouterStatus":
        """Return the status with its state; panels: what a gateway has seen in the last minutes."""
        limits = tuple(LimitVerdict(limit.verdict, str(limit)) for limit in self.limits)
        health = RouterHealth(limits, self.unrewarded, panels)
        return structs.replace(self, state=judge_state(health))

    @property
    def mean_cost(self) -> Mapping[str, float]:
        """Settled cost per decision, by name."""
        return {name: cost.settled / max(1, cost.decisions) for name, cost in self.costs.items()}

    @property
    def expected_cost(self) -> Mapping[str, float]:
        """Cost per decision expected before the draw, by name."""
        return {name: cost.expected / max(1, cost.decisions) for name, cost in self.costs.items()}

    def __str__(self) -> str:
        reward = "none yet" if self.mean_reward is None else f"{self.mean_reward:.4f} on average"
        head = (
            f"{self.decisions} decisions, {self.rewards} rewards ({reward}), {self.waiting} "
            f"waiting, {self.contexts} context{'s' * (self.contexts != 1)}"
        )
        if not self.uses_feedback:
            said = FEEDBACK_WORDS[self.feedback]
            head += f"\nthe policy ignores {said}: it learns from the reward alone"
        for reason in self.state.reasons:
            if reason.kind != "limits":  # their sentences follow the table
                head += f"\n{reason.level}: {reason.sentence}"
        if self.decisions == 0:
            return head
        top = sorted(self.q.items(), key=lambda item: -item[1])
        word = "inclusion" if self.whole else "draw" if self.multinomial else None
        label = "drawn so far" if word is None else f"{word} probabilities now"
        shares = ", ".join(f"{name} {share:.1%}" for name, share in top[:MAX_PRINTED_SHARES])
        rest = len(top) - MAX_PRINTED_SHARES
        shares += f" and {rest} more" * (rest > 0)
        return "\n".join([head, *self.limit_lines(), f"{label}: {shares}"])

    def limit_lines(self) -> list[str]:
        """The table of limits, and the position in the period if there are periods."""
        period_columns = () if self.period is None else ("this period", "in force")
        head = ("limit", "unit", "average", "bound", "slack", *period_columns, "price", "")
        lines = format_table([head, *(limit.format_cells() for limit in self.limits)])
        lines += [str(limit) for limit in self.limits if limit.needs_sentence]
        lines += [
            f"{limit.label} {limit.promise}"
            for limit in self.limits
            if limit.kept and limit.current is not None and limit.current.promise == "reserve"
        ]
        if self.period is None:
            return lines
        missed = [
            f"{limit.subject} in {limit.current.missed:,}"
            for limit in self.limits
            if limit.current is not None and limit.current.missed
        ]
        if missed:
            lines.append(f"periods that ended outside a limit: {', '.join(missed)}")
        return [*lines, str(self.period)]


def count_effective_experts(shares: Sequence[float]) -> float:
    """Effective number of experts: exp(entropy of the shares).

    >>> round(count_effective_experts([0.5, 0.5, 0.0]), 12)
    2.0
    """
    total = sum(shares)
    return math.exp(-sum(s / total * math.log(s / total) for s in shares if s > 0))
