"""Sections of a router's page: limits as gauges, their windows and tenants in words, selection
probabilities, configuration history.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from bylot._text import format_number
from bylot.limits.gauge import LimitGauge
from bylot.limits.status import CostStatus, LimitStatus
from bylot.limits.verdict import VERDICTS
from bylot.problem import Limit
from bylot.problem.instants import format_instant
from bylot.problem.limits import list_contexts
from bylot.router.config import RouterConfig
from bylot.router.status import RouterStatus
from bylot.server.config_changes import compare_limits
from bylot.server.dashboard.source import ConfigChange

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
MAX_EXPERT_ROWS = 200  # of a page; the status has all experts
MIN_RATE_MINUTES = 10  # a day is not extrapolated from less
MAX_NAMED_CONTEXTS = 3  # in the heading of a card


class LimitView(Struct, frozen=True, kw_only=True):
    """One limit on the page; mean: since the first decision; stated, expected: average cost by the
    price list, before the draw.
    """

    status: LimitStatus
    side: str  # at most, at least
    per: str  # per day: what the bound is for; empty if it is for an average over periods
    is_total: bool  # it is a budget: the bound is for the total of a window
    is_budget: bool  # of all tenants together
    is_average: bool  # the bound is for an average, of all tenants together
    counts_all: bool  # it counts requests of all contexts, as averages since the first decision do
    charts_bound: bool
    is_plain: bool  # neither in windows of the calendar nor for each tenant
    shows_mean: bool  # among the details: what a decision cost since the first one
    now_name: str  # of the average of the current period or window
    missed_name: str
    contexts: str  # whose requests count; empty: all
    window: dict[str, Any] | None
    tenants: dict[str, Any] | None  # of a limit for each tenant
    mean: float | None
    stated: float
    expected: float
    gauge: LimitGauge


def read_limits(config: RouterConfig) -> list[Limit]:
    """The limits of a configuration, in the order of its problem."""
    return [Limit.from_data(data) for data in config.problem["limits"]]


def view_limits(status: RouterStatus, limits: Sequence[Limit]) -> list[LimitView]:
    """The limits of a router, in the order of its problem."""
    return [
        view_limit(found, limit, status.costs[found.cost])
        for found, limit in zip(status.limits, limits, strict=True)
    ]


def view_limit(status: LimitStatus, limit: Limit, cost: CostStatus) -> LimitView:
    """View a limit; what it is for comes from its declaration, the numbers from its status."""
    decisions = max(1, cost.decisions)
    name = limit.per or "period"
    tenants = view_tenants(status, limit.zone)
    return LimitView(
        status=status,
        side=status.side.replace("_", " "),
        per=limit.describe_unit(MAX_NAMED_CONTEXTS),
        **status.choose_numbers(),
        now_name=f"this {name}, per decision",
        missed_name=f"earlier {name}s{'' if tenants is None else ' of tenants'} missed",
        contexts=", ".join(map(label_text, list_contexts([limit]))),
        window=view_window(status),
        tenants=tenants,
        mean=status.mean if cost.decisions else None,
        stated=cost.stated / decisions,
        expected=cost.expected / decisions,
        gauge=status.gauge,
    )


def view_window(status: LimitStatus) -> dict[str, Any] | None:
    """The current window in the local time of its zone, in words: from when to when, and how long
    its bound lasts; None if there is none (yet).
    """
    window = status.window
    if window is None:
        return None
    starts, ends = (format_local(at, window.zone) for at in (window.starts, window.ends))
    lasts = f"the end of the {window.per}"
    if status.verdict == "spent":
        lasts = "it is spent"
    elif (until := window.refused_from or window.lasts_until) is not None:
        lasts = format_local(until - until % MINUTE_US, window.zone)
    return {
        "span": f"{starts} to {ends} {window.zone}",
        "lasts": lasts,
        "reserved": max(window.reserved, 0.0),  # 0 if open calls may well cost less than declared
        "to_come": round(window.to_come),  # requests that are forecast for the rest of it
    }


def format_local(at: int, zone: str) -> str:
    """Date and time of the local clock, without the zone.

    >>> format_local(1_794_956_400_000_000, "Europe/Berlin")
    '2026-11-18 00:00'
    """
    return format_instant(at, zone).removesuffix(f" {zone}")


def view_tenants(status: LimitStatus, zone: str) -> dict[str, Any] | None:
    """All tenants in the window of a limit for each of them, and a table of those closest to their
    bounds; None for other limits.
    """
    tenants = status.tenants
    if tenants is None:
        return None
    starts, ends = (format_local(at, zone) for at in (tenants.starts, tenants.ends))
    spent_name, order = status.tenant_words
    return {
        "span": f"{starts} to {ends} {zone}",
        "active": tenants.active,
        "spent": tenants.spent,
        "outside": tenants.outside,
        "total": tenants.total,
        "caption": describe_order(order, tenants.active - len(tenants.top)),
        "spent_name": spent_name,
        "shows_used": status.side == "at_most",  # a minimum is not used up
        "rows": [
            {
                "tenant": label_text(use.tenant),
                "spent": use.spent,  # of a share, its average
                "bound": use.bound,
                "used": use.spent / (use.bound or 1.0),  # share of the bound
            }
            for use in tenants.top
        ],
    }


def describe_order(order: str, others: int) -> str:
    """Write the caption of a table of tenants, of which some others are not shown.

    >>> describe_order("Largest used shares first", others=1)
    'Largest used shares first; 1 tenant is not shown'
    """
    if not others:
        return order
    return f"{order}; {others:,} {'tenant is' if others == 1 else 'tenants are'} not shown"


def label_text(label: str) -> str:
    """A context or a tenant on the page.

    >>> label_text("chest pain"), label_text(" ")
    ('chest pain', "' '")
    """
    return label if label.strip() else repr(label)


def count_verdicts(status: RouterStatus) -> str:
    """How many limits have which verdict, the worst first: 1 recovering, 2 on track."""
    found = Counter(one.verdict for one in status.limits)
    counts = [f"{found[verdict]} {verdict}" for verdict in VERDICTS if verdict in found]
    return ", ".join(counts) or "no limits"


class SpendRow(Struct, frozen=True):
    """One cost: per decision and in total, in this period and since the first decision; rates."""

    cost: str
    period_mean: float | None
    period_total: float | None
    mean: float | None
    total: float
    per_hour: float | None
    per_day: float | None


class SpendTable(Struct, frozen=True):
    """What was spent, by cost; hours: over which the rates are measured, None if too few."""

    hours: float | None
    rows: list[SpendRow]


def measure_spend(status: RouterStatus, now: int) -> SpendTable:
    """Totals and rates of every cost; rates of the last day, or since the first decision, up to
    the last full minute, so that a page of an idle router changes rarely.
    """
    points, first, hours = status.timeline, 0, None
    if points is not None and points.started:
        first = max(0, bisect_right(points.started, now - 24 * HOUR_US) - 1)
        minutes = (now - points.started[first]) // MINUTE_US
        hours = minutes / 60 if minutes >= MIN_RATE_MINUTES else None
    period = {
        limit.cost: limit.current.mean
        for limit in status.limits
        if limit.current is not None and limit.averages_all
    }
    rows, played = [], 0 if status.period is None else status.period.played
    for name, cost in status.costs.items():
        now_mean, rate = period.get(name), None
        if points is not None and hours is not None:
            rate = sum(points.spent[name][first:]) / hours
        period_total = None if now_mean is None else now_mean * played
        mean = cost.settled / cost.decisions if cost.decisions else None
        per_day = None if rate is None else 24 * rate
        rows.append(SpendRow(name, now_mean, period_total, mean, cost.settled, rate, per_day))
    return SpendTable(hours, rows)


class ContextColumn(Struct, frozen=True):
    """A context of the table."""

    context: str
    decisions: int


class ExpertRow(Struct, frozen=True):
    """An expert of the table; by_context: in the order of the columns."""

    expert: str
    paused: bool
    overall: float
    by_context: list[float]


class SelectionTable(Struct, frozen=True):
    """Experts by probability, contexts by number of decisions; kind: what the numbers mean."""

    kind: str
    columns: list[ContextColumn]
    rows: list[ExpertRow]
    others: int  # contexts without a column
    experts_left: int  # without a row, those of the lowest probability
    entropy: float  # in nats


def build_selection(status: RouterStatus, config: RouterConfig) -> SelectionTable:
    shown, whole = status.distributions, status.whole
    seats = min(config.problem["draws"], len(status.q)) if whole else 1
    likely = sorted(enumerate(status.q.items()), key=lambda one: -one[1][1])[:MAX_EXPERT_ROWS]
    rows = [
        ExpertRow(name, name in config.paused, p, [seats * one.distribution[i] for one in shown])
        for i, (name, p) in likely
    ]
    kind = "probability of each draw" if status.multinomial else "share of the draws so far"
    return SelectionTable(
        kind="inclusion probability" if whole else kind,
        columns=[ContextColumn(context_label(one.context), one.visits) for one in shown],
        rows=rows,
        others=status.contexts - len(shown),
        experts_left=len(status.q) - len(rows),
        entropy=math.log(status.effective_experts),
    )


def context_label(context: str | None) -> str:
    """The name of a context on the page.

    >>> context_label("chest pain"), context_label(None)
    ('chest pain', 'no context')
    """
    return "no context" if context is None else label_text(context)


class ConfigVersion(Struct, frozen=True):
    """One version of the configuration; bounds: of the present limits, None: it had no such one,
    or it is not for the average of all decisions.
    """

    version: int
    at: str
    by: str | None
    changes: list[str]
    paused: tuple[str, ...]
    bounds: list[float | None]


def list_config_versions(
    changes: Sequence[ConfigChange], limits: Sequence[Limit]
) -> list[ConfigVersion]:
    """List the versions, newest first, each compared with the one before.

    A first one that is not version 1 only serves for comparison.
    """
    found, before = list[ConfigVersion](), None
    for change in changes:
        config, (at, by) = change.config, (change.at, change.by)
        if before is not None or config.version == 1:
            lines = list(describe_changes(before, config))
            known = {limit.key: limit for limit in read_limits(config)}
            bounds = [
                known[limit.key].charted_bound if limit.key in known else None for limit in limits
            ]
            found.append(ConfigVersion(config.version, at, by, lines, config.paused, bounds))
        before = config
    return found[::-1]


def describe_changes(old: RouterConfig | None, new: RouterConfig) -> Iterator[str]:
    """One line for each difference."""
    if old is None:
        yield "created"
        return
    before, after = old.problem, new.problem
    yield from describe_members("added", "removed", before["experts"], after["experts"])
    old_costs, new_costs = costs_by_expert(before), costs_by_expert(after)
    changed = [one for one in old_costs if new_costs.get(one, old_costs[one]) != old_costs[one]]
    if changed:
        yield f"costs of {', '.join(changed)}"
    yield from describe_limits(read_limits(old), read_limits(new))
    values, new_values = setting_values(old), setting_values(new)
    for name in dict.fromkeys((*values, *new_values)):
        value, new_value = values.get(name), new_values.get(name)
        if value != new_value:
            yield f"{name}: {format_setting(value)} → {format_setting(new_value)}"
    yield from describe_members("paused", "no longer paused", old.paused, new.paused)


def describe_limits(old: Iterable[Limit], new: Iterable[Limit]) -> Iterator[str]:
    """One line for each difference of a limit; one that is new or gone is told with all it says."""
    for limit, field, was, now in compare_limits(old, new):
        name = f"{limit.name} {limit.side.replace('_', ' ')} {limit.describe_unit()}".rstrip()
        if field == "limit":
            yield f"{name}: {format_limit(was)} → {format_limit(now)}"
        elif field == "bound":
            yield f"{name}: {format_number(was)} → {format_number(now)}"
        elif field != "cost":
            yield f"{name}, {field.replace('_', ' ')}: {was} → {now}"


def format_limit(limit: Limit | None) -> str:
    """The bound of a limit, with the zone and `when_spent` of its window."""
    if limit is None:
        return "none"
    return ", ".join([format_number(limit.bound), *limit.window_settings])


def describe_members(
    added: str, removed: str, old: Sequence[str], new: Sequence[str]
) -> Iterator[str]:
    for word, names in ((added, set(new) - set(old)), (removed, set(old) - set(new))):
        if names:
            yield f"{word}: {', '.join(sorted(names))}"


def setting_values(config: RouterConfig) -> dict[str, Any]:
    """All settings but limits, by name."""
    values = {name: config.problem.get(name) for name in ("draws", "min_draws", "floor", "period")}
    kept = [one for one in config.__struct_fields__ if one not in ("version", "problem", "paused")]
    return values | {name: getattr(config, name) for name in kept}


def costs_by_expert(problem: dict[str, Any]) -> dict[str, dict[str, float]]:
    rows = problem["costs"].items()
    return {one: {name: row[i] for name, row in rows} for i, one in enumerate(problem["experts"])}


def format_setting(value: Any) -> str:
    """A setting in a few characters."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {format_setting(one)}" for key, one in value.items())
    if isinstance(value, tuple | list):
        return " to ".join(map(format_setting, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "none" if value is None else str(value)
    return format_number(value)
