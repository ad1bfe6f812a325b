"""RouterStatus: the state of a router for people, as typed data (JSON on the wire) and as text."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, structs

from bylot._text import format_table
from bylot.limits import verdict as verdicts
from bylot.limits.report import LimitInPeriod
from bylot.limits.tenants import TenantsSummary
from bylot.limits.window_status import WindowStatus
from bylot.policies.validation import FEEDBACK_WORDS, FeedbackKind
from bylot.problem import Limit
from bylot.problem.calendar import WindowName
from bylot.router.state import PanelHealth, RouterHealth, RouterState, judge_state

MAX_PRINTED_SHARES = 6
QUIET_VERDICTS = ("on track", "inside", "kept", "not started")


class LimitStatus(Struct, frozen=True, kw_only=True):
    """One limit: its average, the distance from the bound, and what the bound costs.

    mean:             average since the first decision, under whatever bounds there were; of some
                      contexts: in the current period or window
    slack:            distance inside the bound; negative: outside. For each tenant: of the one
                      that is closest to its bound
    price:            reward per request that relaxing the bound by one unit would buy, averaged
                      over the last 5,000 decisions or so; None: unknown
    price_spread:     standard deviation of its readings, of which there is one every 100
                      decisions; None with fewer than two
    kept:             the limit holds now; with periods: it can hold at the end of this one
    kept_since_first: `mean` is inside the bound
    verdict:          in a word: see `bylot.limits.verdict`
    sentence:         the verdict with its numbers, its reason, and until when
    counted:          what counts towards the bound in this period; differs from the mean of
                      `current`, which is measured, if the bound was edited in this period
    current:          the current period or window; None if the policy does not guard its limits
    promise:          of the guard, in a sentence, or how it was broken; empty without a guard
    window:           of a limit per hour, day, week or month; `slack` is then what its bound leaves
    per:              the window of the calendar, also before the first decision
    is_total:         `bound` and `slack` are for what the window costs in all; `mean` and
                      `current` are per request, as are all four of other limits
    where:            the contexts whose requests count; empty: all
    tenants:          all tenants, of a limit for each of them, which has no `window` of its own
    """

    cost: str
    side: Literal["at_most", "at_least"]
    bound: float
    mean: float
    slack: float
    price: float | None
    price_spread: float | None = None
    kept: bool
    kept_since_first: bool
    verdict: verdicts.VerdictName
    sentence: str
    counted: float | None
    current: LimitInPeriod | None
    promise: str = ""
    window: WindowStatus | None = None
    per: WindowName | None = None
    is_total: bool = False
    where: tuple[str, ...] = ()
    tenants: TenantsSummary | None = None

    @property
    def subject(self) -> str:
        """The cost, its window, and the requests that count."""
        per = "" if self.per is None else f" per {self.per}"
        scope = "" if self.tenants is None else " for each tenant"
        where = f" in {', '.join(self.where)}" if self.where else ""
        return f"{self.cost}{per}{scope}{where}"

    @property
    def label(self) -> str:
        """The cost, its window and the side, as a cost may be limited in several ways."""
        return f"{self.subject} {'<=' if self.side == 'at_most' else '>='}"

    @property
    def needs_sentence(self) -> bool:
        """Whether the numbers of a table, and a word, do not say enough."""
        edited = self.current is not None and self.current.mean != self.counted
        counted_apart = self.window is not None or self.tenants is not None or bool(self.where)
        return edited or counted_apart or self.verdict not in QUIET_VERDICTS

    def __str__(self) -> str:
        return f"{self.subject} {self.verdict}: {self.sentence}"


class CostStatus(Struct, frozen=True):
    """Sums of one cost over the decisions it was known for, cancelled ones excluded.

    stated: by the problem; expected: before the draw; settled: as reported with rewards.
    """

    stated: float
    expected: float
    settled: float
    decisions: int


def make_limit_status(
    limit: Limit,
    cost: CostStatus,
    price: tuple[float | None, float | None],
    period: verdicts.PeriodPosition | None,
    window: WindowStatus | None = None,
    is_spent: bool = False,
    tenants: TenantsSummary | None = None,
    dear: Sequence[str] = (),
) -> LimitStatus:
    """Judge a limit by its averages; the price comes with its spread.

    dear: experts whose calls cost more on average than the most that was declared
    """
    mean = cost.settled / cost.decisions if cost.decisions else None
    if limit.where and period is not None:
        mean = period.now.mean  # of the requests that count
    average = 0.0 if mean is None else mean
    slack, kept_before = limit.sign * (average - limit.bound), None
    if period is not None and tenants is not None:
        verdict = verdicts.judge_tenants(limit, tenants, period.now.missed)
        kept_before = period.now.missed == 0
        if tenants.top:
            slack = limit.sign * (tenants.top[0].spent - tenants.top[0].bound)
    elif period is not None and window is not None:
        verdict = verdicts.judge_window(limit, window, period.now, is_spent)
        kept_before = period.now.missed == 0
        slack = slack if window.left is None else limit.bound - window.spent - window.reserved
    elif period is not None and limit.where and limit.per is None:
        verdict = verdicts.judge_group(limit, period.now)
    elif period is not None and (mean is not None or not period.now.within_reach):
        verdict = verdicts.judge_period(limit, period)
    else:
        verdict = verdicts.judge_average(limit, mean)
    current = None if period is None else period.now
    promise = ""
    if current is not None:
        if current.promise != "reserve" and (current.missed or dear or not verdict.kept):
            current = structs.replace(current, promise="broken")
        promise = verdicts.describe_limit_promise(limit, current, verdict.name, dear)
    return LimitStatus(
        cost=limit.name,
        side="at_most" if limit.sign < 0 else "at_least",
        bound=limit.bound,
        mean=average,
        slack=slack,
        price=price[0],
        price_spread=price[1],
        kept=verdict.kept,
        kept_since_first=kept_before
        if kept_before is not None
        else mean is None or verdicts.is_within_bound(limit, mean),
        verdict=verdict.name,
        sentence=verdict.sentence,
        counted=None if period is None else period.counted,
        current=current,
        promise=promise,
        window=window,
        per=limit.per,
        is_total=limit.is_total,
        where=limit.where,
        tenants=tenants,
    )


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
        limits = tuple(verdicts.LimitVerdict(limit.verdict, str(limit)) for limit in self.limits)
        health = RouterHealth(limits, self.unrewarded, panels)
        return structs.replace(self, state=judge_state(health))

    @property
    def mean_cost(self) -> Mapping[str, float]:
        """Settled cost per decision, by name."""
        return {name: one.settled / max(1, one.decisions) for name, one in self.costs.items()}

    @property
    def expected_cost(self) -> Mapping[str, float]:
        """Cost per decision expected before the draw, by name."""
        return {name: one.expected / max(1, one.decisions) for name, one in self.costs.items()}

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
        lines = format_table([head, *(format_limit_row(one) for one in self.limits)])
        lines += [str(one) for one in self.limits if one.needs_sentence]
        lines += [
            f"{one.label} {one.promise}"
            for one in self.limits
            if one.kept and one.current is not None and one.current.promise == "reserve"
        ]
        if self.period is None:
            return lines
        missed = [
            f"{one.subject} in {one.current.missed:,}"
            for one in self.limits
            if one.current is not None and one.current.missed
        ]
        if missed:
            lines.append(f"periods that ended outside a limit: {', '.join(missed)}")
        return [*lines, str(self.period)]


def format_limit_row(one: LimitStatus) -> tuple[str, ...]:
    """Format the numbers of a limit in one unit: per request or, of a budget, per window."""
    now = one.current
    in_period = () if now is None else (now.mean, None if one.tenants else now.in_force)
    unknown = bool(one.where) and (now is None or now.mean is None)
    mean, slack = None if unknown else one.mean, None if one.verdict == "not started" else one.slack
    unit = "per request"
    if one.is_total:
        mean, unit = None, f"per {one.per}"
        in_period = (None if one.window is None else one.window.spent, None)
    numbers = (mean, one.bound, slack, *in_period)
    cells = ["-" if x is None else f"{x:.4g}" for x in numbers]
    return (one.label, unit, *cells, format_price(one), one.verdict)


def format_price(one: LimitStatus) -> str:
    """The price of a limit with its spread, for people.

    >>> from types import SimpleNamespace as Limit
    >>> format_price(Limit(price=0.19921, price_spread=0.0123))
    '0.1992 ± 0.012'
    """
    spread = "" if one.price_spread is None else f" ± {one.price_spread:.2g}"
    return "-" if one.price is None else f"{one.price:.4g}{spread}"


def count_effective_experts(shares: Sequence[float]) -> float:
    """Effective number of experts: exp(entropy of the shares).

    >>> round(count_effective_experts([0.5, 0.5, 0.0]), 12)
    2.0
    """
    total = sum(shares)
    return math.exp(-sum(s / total * math.log(s / total) for s in shares if s > 0))
