"""LimitStatus: a limit of a router for people, in words and numbers; which of them is decided here.

Texts, pages and metrics show what it says, and do not ask for the kind of a limit themselves.
"""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from bylot.limits import verdict as verdicts
from bylot.limits.gauge import LimitGauge, make_budget_gauge, make_gauge
from bylot.limits.keys import TenantsSummary
from bylot.limits.report import LimitInPeriod
from bylot.limits.window_status import WindowStatus
from bylot.problem import Limit
from bylot.problem.calendar import WindowName

QUIET_VERDICTS = ("on track", "inside", "kept", "not started")


class CostStatus(Struct, frozen=True):
    """Sums of one cost over the decisions it was known for, cancelled ones excluded.

    stated: by the problem; expected: before the draw; settled: as reported with rewards.
    """

    stated: float
    expected: float
    settled: float
    decisions: int


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
        scope = "" if self.tenants is None else f" for each {self.tenants.scope}"
        where = f" in {', '.join(self.where)}" if self.where else ""
        return f"{self.cost}{per}{scope}{where}"

    @property
    def label(self) -> str:
        """The cost, its window and the side, as a cost may be limited in several ways."""
        return f"{self.subject} {'<=' if self.side == 'at_most' else '>='}"

    @property
    def averages_all(self) -> bool:
        """Whether the bound is for the average over all requests, at the end of periods."""
        return self.per is None and not self.where

    @property
    def needs_sentence(self) -> bool:
        """Whether the numbers of a table, and a word, do not say enough."""
        edited = self.current is not None and self.current.mean != self.counted
        counted_apart = self.window is not None or self.tenants is not None or bool(self.where)
        return edited or counted_apart or self.verdict not in QUIET_VERDICTS

    @property
    def gauge(self) -> LimitGauge:
        """The numbers on a scale; of a budget, those of its window."""
        if self.is_total:
            return make_budget_gauge(self.bound, self.window)
        if self.current is None:
            return make_gauge(self.side, self.bound, self.mean, self.mean, None)
        now = self.current
        return make_gauge(self.side, self.bound, self.mean, now.mean, now.in_force)

    def choose_numbers(self) -> dict[str, bool]:
        """Choose the numbers that a page shows, as only some mean something for each limit."""
        together = self.tenants is None
        return {
            "is_total": self.is_total,
            "is_budget": self.is_total and together,
            "is_average": not self.is_total and together,
            "counts_all": not self.where,
            "charts_bound": not self.is_total and together and not self.where,
            "is_plain": self.window is None and together,
            "shows_mean": (self.is_total or not together) and not self.where,
        }

    @property
    def current_words(self) -> tuple[str, str]:
        """Names of the average of the current period or window, and of the count of missed ones."""
        unit = self.per or "period"
        whose = "" if self.tenants is None else " of tenants"
        return f"this {unit}, per decision", f"earlier {unit}s{whose} missed"

    @property
    def tenant_counts(self) -> dict[str, int]:
        """How many tenants sent a request in this window, and have nothing left; empty without."""
        found = self.tenants
        return {} if found is None else {"active": found.active, "spent": found.spent}

    def list_window_numbers(self, now: int) -> dict[str, Any]:
        """List the numbers of the window, none without one; now: in microseconds since 1970."""
        window = self.window
        if window is None:
            return {}
        ends_s = max(0.0, (window.ends - now) / 1e6)
        numbers = {"ends_s": ends_s, "requests": window.requests, "to_come": window.to_come}
        if window.left is None:  # a share of requests, which has no total
            return numbers
        until = window.ends if window.lasts_until is None else window.lasts_until
        lasts_s = 0.0 if self.verdict == "spent" else max(0.0, (until - now) / 1e6)
        return numbers | {"lasts_s": lasts_s} | structs.asdict(window)

    @property
    def tenant_words(self) -> tuple[str, str]:
        """What tenants are compared by: its name, and the order of a table."""
        if self.is_total:
            return "spent", "Largest used shares first"
        return "average", f"{'Highest' if self.side == 'at_most' else 'Lowest'} averages first"

    def format_cells(self) -> tuple[str, ...]:
        """Format the numbers in one unit: per request or, of a budget, per window."""
        now = self.current
        in_period = () if now is None else (now.mean, None if self.tenants else now.in_force)
        unknown = bool(self.where) and (now is None or now.mean is None)
        mean = None if unknown else self.mean
        slack = None if self.verdict == "not started" else self.slack
        unit = "per request"
        if self.is_total:
            mean = None
            unit = f"per {self.per}"
            in_period = (None if self.window is None else self.window.spent, None)
        numbers = (mean, self.bound, slack, *in_period)
        cells = ["-" if x is None else f"{x:.4g}" for x in numbers]
        spread = "" if self.price_spread is None else f" ± {self.price_spread:.2g}"
        price = "-" if self.price is None else f"{self.price:.4g}{spread}"
        return (self.label, unit, *cells, price, self.verdict)

    def __str__(self) -> str:
        return f"{self.subject} {self.verdict}: {self.sentence}"


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
    slack = limit.sign * (average - limit.bound)
    kept_before = None
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
