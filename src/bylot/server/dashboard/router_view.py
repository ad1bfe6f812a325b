"""All that the page of a router shows, and its twin in JSON says."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from bylot.api import DecisionRecord, RouterView
from bylot.eventlog.history import format_timestamp
from bylot.router.status import Counters, PeriodStatus, RouterStatus, TimelinePoints
from bylot.server.dashboard.config_history import (
    ConfigVersion,
    format_setting,
    list_config_versions,
)
from bylot.server.dashboard.limit_gauge import (
    LimitView,
    count_kept_limits,
    view_limits,
    worst_state,
)
from bylot.server.dashboard.selection import SelectionTable, build_selection, context_label
from bylot.server.dashboard.source import ConfigChange, ListedRouter

MAX_CHART_SPANS = 64
"""Spans of a course: as many as a small chart can show."""
MEAN_DIGITS = 6
"""Of a mean in it."""


class RunningMean(Struct, frozen=True):
    """A mean over time; None where there was nothing to take it of."""

    each: float | None  # of the span alone
    so_far: float | None  # of all until its end


class TimelineSpan(Struct, frozen=True):
    """Some time of a router's history; costs are in the order of the limits."""

    at: str  # when it began, RFC 3339, UTC
    decisions: int
    rewards: int
    reward: RunningMean  # per reward
    costs: list[RunningMean]  # settled, per decision


def timeline_spans(points: TimelinePoints | None, costs: Iterable[str]) -> list[TimelineSpan]:
    """The spans of a timeline, oldest first, at most `MAX_CHART_SPANS`."""
    if points is None:
        return []
    by = -(-len(points.started) // MAX_CHART_SPANS) or 1
    decisions, rewards = sum_groups(points.decisions, by), sum_groups(points.rewards, by)
    reward = running_means(sum_groups(points.total, by), rewards)
    spent = [running_means(sum_groups(points.spent[name], by), decisions) for name in costs]
    return [
        TimelineSpan(
            format_timestamp(at), decisions[i], rewards[i], reward[i], [row[i] for row in spent]
        )
        for i, at in enumerate(points.started[::by])
    ]


def sum_groups(column: Sequence[Any], by: int) -> list[Any]:
    """Sums of so many neighbours each; the last may be of fewer.

    >>> sum_groups([1, 2, 3, 4, 5], by=2)
    [3, 7, 5]
    """
    return [sum(column[i : i + by]) for i in range(0, len(column), by)]


def running_means(sums: Sequence[float], counts: Sequence[int]) -> list[RunningMean]:
    """Sum over count, of each span and of all spans until its end.

    >>> running_means([2.0, 0.0], [2, 0])
    [RunningMean(each=1.0, so_far=1.0), RunningMean(each=None, so_far=1.0)]
    """
    found = []
    total, number = 0.0, 0
    for part, count in zip(sums, counts, strict=True):
        total, number = total + part, number + count
        found.append(RunningMean(rounded_ratio(part, count), rounded_ratio(total, number)))
    return found


def rounded_ratio(total: float, number: int) -> float | None:
    """A mean, to so many digits."""
    return float(f"{total / number:.{MEAN_DIGITS}g}") if number else None


MAX_LATEST_DECISIONS = 25
"""Decisions that the page shows."""


class PeriodProgress(Struct, frozen=True):
    """Where a policy that guards its limits stands in time."""

    length: int
    played: int
    part: float


class DecisionCounts(Struct, frozen=True, kw_only=True):
    """Decisions and rewards, counted."""

    decisions: int
    rewards: int
    mean_reward: float | None
    waiting: int  # for their reward
    deferred: int  # not in use yet
    cancelled: int
    missing: int  # their time ran out without a reward, and nothing was learned
    defaulted: int  # the default was learned instead
    late: int  # rewards that came after that
    noted: int  # rewards that were not the one to learn from
    contexts: int
    infeasible: int  # decisions at which some limit was out of reach
    replaced: int  # panels, by the guard


class PanelMember(Struct, frozen=True):
    """An expert of a panel, and its probability to be in it."""

    expert: str
    inclusion: float | None


class SpendItem(Struct, frozen=True):
    """What a panel cost, under one name."""

    cost: str
    value: float | None


class LatestDecision(Struct, frozen=True, kw_only=True):
    """A decision, in a line."""

    id: str
    at: str
    context: str
    panel: list[PanelMember]
    propensity: float | None  # None: unknown to the policy
    spend: list[SpendItem]  # as settled, where that was told
    state: str
    reward: float | None
    notes: str


class EffectiveSample(Struct, frozen=True):
    """What the latest decisions are worth if each is weighed by 1 / its propensity."""

    decisions: int  # with a known propensity
    effective: float | None  # evenly drawn ones that would tell as much of all panels


class SettingLine(Struct, frozen=True):
    """One of the terms."""

    name: str
    value: str


class RouterPageView(Struct, frozen=True, kw_only=True):
    """A router at one moment, as people look at it."""

    name: str
    created: str
    policy: str
    version: int
    position: int  # of the last line of its log
    state: str  # the worst of its limits'
    kept: int  # limits
    of: int
    tally: DecisionCounts
    range: tuple[float, float]
    period: PeriodProgress | None
    limits: list[LimitView]
    course: list[TimelineSpan]
    law: SelectionTable
    sample: EffectiveSample
    latest: list[LatestDecision]
    settings: list[SettingLine]
    amendments: list[ConfigVersion]


def build_router_page(
    view: RouterView, latest: Sequence[DecisionRecord], edits: Sequence[ConfigChange]
) -> RouterPageView:
    """The page of a router."""
    status, terms = view.status, view.terms
    limits = view_limits(status)
    return RouterPageView(
        name=view.name,
        created=view.created,
        policy=terms.policy["name"],
        version=terms.version,
        position=view.seq,
        state=worst_state(limits),
        kept=count_kept_limits(limits),
        of=len(limits),
        tally=count_decisions(status),
        range=terms.rewards,
        period=period_progress(status.period),
        limits=limits,
        course=timeline_spans(status.timeline, [one.cost for one in limits]),
        law=build_selection(status, terms),
        sample=effective_sample([one.decision.propensity for one in latest]),
        latest=[latest_decision(one) for one in latest],
        settings=[SettingLine(*one) for one in list_settings(view)],
        amendments=list_config_versions(edits),
    )


def count_decisions(status: RouterStatus) -> DecisionCounts:
    """The counts."""
    counts = status.counters or Counters()
    return DecisionCounts(
        decisions=status.decisions,
        rewards=status.rewards,
        mean_reward=status.mean_reward,
        waiting=status.waiting,
        deferred=status.deferred,
        cancelled=counts.cancelled,
        missing=counts.missing,
        defaulted=counts.defaulted,
        late=counts.late,
        noted=counts.noted,
        contexts=status.contexts,
        infeasible=counts.infeasible,
        replaced=counts.replaced,
    )


def period_progress(period: PeriodStatus | None) -> PeriodProgress | None:
    """Where the period stands; None where limits are not guarded."""
    if period is None:
        return None
    return PeriodProgress(period.length, period.played, period.played / period.length)


def latest_decision(past: DecisionRecord) -> LatestDecision:
    """A decision and what became of it."""
    one, spend = past.decision, dict(past.decision.spend)
    for told in past.rewards:
        spend |= told.spend or {}
    learned = [told.value for told in past.rewards if told.receipt != "late"]
    inclusion = one.inclusion or {}
    notes = {"replaced by the guard": one.replaced, "a limit out of reach": not one.feasible}
    return LatestDecision(
        id=one.id,
        at=one.at,
        context=context_label(one.context),
        panel=[PanelMember(name, inclusion.get(name)) for name in one.subset],
        propensity=one.propensity,
        spend=[SpendItem(cost, value) for cost, value in spend.items()],
        state=past.state,
        reward=learned[-1] if learned else None,
        notes=", ".join(note for note, true in notes.items() if true),
    )


def effective_sample(propensities: Sequence[float | None]) -> EffectiveSample:
    """Kish's effective number, n = (sum w)^2 / sum w^2 with w = 1 / propensity.

    >>> effective_sample([0.5, 0.5, None]), effective_sample([])
    (EffectiveSample(decisions=2, effective=2.0), EffectiveSample(decisions=0, effective=None))
    """
    weights = [1 / one for one in propensities if one is not None]
    squares = sum(one * one for one in weights)
    return EffectiveSample(len(weights), sum(weights) ** 2 / squares if weights else None)


def list_settings(view: RouterView) -> list[tuple[str, str]]:
    """The terms in force, a line each."""
    terms, problem = view.terms, view.terms.problem
    kept = {key: value for key, value in terms.policy.items() if key != "name"}
    return [
        ("experts", f"{len(problem['experts'])}, of whom {problem['draws']} are drawn"),
        (
            "policy",
            f"{terms.policy['name']} ({format_setting(kept)})" if kept else terms.policy["name"],
        ),
        ("rewards", format_setting(terms.rewards)),
        (
            "wait for a reward",
            format_setting(terms.wait) + (" s" if terms.wait is not None else ""),
        ),
        ("reward if none came", format_setting(terms.default)),
        ("of several rewards", terms.aggregate),
        ("paused", ", ".join(terms.paused) or "nobody"),
        ("horizon", format_setting(terms.horizon)),
        ("seed", str(terms.seed)),
        ("contexts at most", format_setting(view.status.max_contexts)),
        ("decisions held", format_setting(terms.memory)),
    ]


VIOLATED_STATES = ("outside", "out of reach")


class OverviewRow(Struct, frozen=True, kw_only=True):
    """A router; numbers are None while nothing is known but its name."""

    name: str
    place: str
    trouble: str | None
    state: str | None  # the worst of its limits'; None: not known
    kept: int | None = None  # limits
    of: int | None = None
    policy: str | None = None
    decisions: int | None = None
    mean_reward: float | None = None
    waiting: int | None = None
    missing: int | None = None
    late: int | None = None


class Overview(Struct, frozen=True, kw_only=True):
    """All routers, by name."""

    count: int
    decisions: int
    worried: int  # routers outside a limit
    troubled: int  # routers that cannot be served
    routers: list[OverviewRow]


def build_overview(routers: Sequence[ListedRouter]) -> Overview:
    """The list and its sums."""
    lines = [overview_row(one) for one in routers]
    return Overview(
        count=len(lines),
        decisions=sum(one.decisions or 0 for one in lines),
        worried=sum(one.state in VIOLATED_STATES for one in lines),
        troubled=sum(one.trouble is not None for one in lines),
        routers=lines,
    )


def overview_row(one: ListedRouter) -> OverviewRow:
    """A router's line."""
    if one.view is None:
        state = None if one.trouble is None else "cannot be served"
        return OverviewRow(name=one.name, place=one.place, trouble=one.trouble, state=state)
    return served_overview_row(one, one.view)


def served_overview_row(one: ListedRouter, view: RouterView) -> OverviewRow:
    """The line of a router that could be asked."""
    status, limits = view.status, view_limits(view.status)
    counts = status.counters or Counters()
    return OverviewRow(
        name=one.name,
        place=one.place,
        trouble=one.trouble,
        state=worst_state(limits),
        kept=count_kept_limits(limits),
        of=len(limits),
        policy=view.terms.policy["name"],
        decisions=status.decisions,
        mean_reward=status.mean_reward,
        waiting=status.waiting,
        missing=counts.missing,
        late=counts.late,
    )
