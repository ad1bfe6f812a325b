"""Sections of a router's page: limits as gauges, their windows and tenants in words, selection
probabilities, configuration history, and how the models of its gateway have done so far.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from bylot._text import format_number
from bylot.eventlog.events import format_timestamp
from bylot.gateway.asking import Pause
from bylot.gateway.chat import MODEL_PREFIX
from bylot.gateway.gateway import RouterGateway
from bylot.limits.status import CostStatus, LimitStatus
from bylot.limits.verdict import VERDICTS
from bylot.problem import Limit
from bylot.problem.instants import format_instant
from bylot.problem.limits import list_contexts
from bylot.router.config import RouterConfig
from bylot.router.status import RouterStatus
from bylot.server.dashboard.source import ConfigChange
from bylot.server.reconcile import list_changes

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
MAX_EXPERT_ROWS = 200  # of a page; the status has all experts
MIN_RATE_MINUTES = 10  # a day is not extrapolated from less
MAX_NAMED_CONTEXTS = 3  # in the heading of a card


def read_limits(config: RouterConfig) -> list[Limit]:
    """The limits of a configuration, in the order of its problem."""
    return [Limit.from_data(data) for data in config.problem["limits"]]


def view_limits(status: RouterStatus, limits: Sequence[Limit]) -> list[dict[str, Any]]:
    """The limits of a router, in the order of its problem."""
    return [
        view_limit(found, limit, status.costs[found.cost])
        for found, limit in zip(status.limits, limits, strict=True)
    ]


def view_limit(status: LimitStatus, limit: Limit, cost: CostStatus) -> dict[str, Any]:
    """View a limit; what it is for comes from its declaration, the numbers from its status."""
    decisions = max(1, cost.decisions)
    now_name, missed_name = status.current_words
    return {
        "status": status,
        "side": status.side.replace("_", " "),
        "per": limit.describe_unit(MAX_NAMED_CONTEXTS),  # empty for an average over periods
        **status.choose_numbers(),
        "now_name": now_name,
        "missed_name": missed_name,
        "contexts": ", ".join(map(label_text, list_contexts([limit]))),  # empty: all
        "window": view_window(status),
        "tenants": view_tenants(status, limit.zone),
        "mean": status.mean if cost.decisions else None,  # since the first decision
        "stated": cost.stated / decisions,  # by the price list
        "expected": cost.expected / decisions,  # before the draw
        "gauge": status.gauge,
    }


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


def measure_spend(status: RouterStatus, now: int) -> dict[str, Any]:
    """Measure every cost per decision and in total, in this period and since the first decision.

    Rates are of the last day, or since the first decision, up to the last full minute, so that a
    page of an idle router changes rarely. Its `hours` are None if they are too few.
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
        rows.append(
            {
                "cost": name,
                "period_mean": now_mean,
                "period_total": None if now_mean is None else now_mean * played,
                "mean": cost.settled / cost.decisions if cost.decisions else None,
                "total": cost.settled,
                "per_hour": rate,
                "per_day": None if rate is None else 24 * rate,
            }
        )
    return {"hours": hours, "rows": rows}


def build_selection(status: RouterStatus, config: RouterConfig) -> dict[str, Any]:
    """Build the table of probabilities: experts by theirs, contexts by number of decisions."""
    shown, whole = status.distributions, status.whole
    seats = min(config.problem["draws"], len(status.q)) if whole else 1
    likely = sorted(enumerate(status.q.items()), key=lambda one: -one[1][1])[:MAX_EXPERT_ROWS]
    rows = [
        {
            "expert": name,
            "paused": name in config.paused,
            "overall": p,
            "by_context": [seats * one.distribution[i] for one in shown],
        }
        for i, (name, p) in likely
    ]
    kind = "probability of each draw" if status.multinomial else "share of the draws so far"
    return {
        "kind": "inclusion probability" if whole else kind,  # what the numbers mean
        "columns": [
            {"context": context_label(one.context), "decisions": one.visits} for one in shown
        ],
        "rows": rows,
        "others": status.contexts - len(shown),  # contexts without a column
        "experts_left": len(status.q) - len(rows),  # without a row, of the lowest probability
        "entropy": math.log(status.effective_experts),  # in nats
    }


def context_label(context: str | None) -> str:
    """The name of a context on the page.

    >>> context_label("chest pain"), context_label(None)
    ('chest pain', 'no context')
    """
    return "no context" if context is None else label_text(context)


def list_config_versions(
    changes: Sequence[ConfigChange], limits: Sequence[Limit]
) -> list[dict[str, Any]]:
    """List the versions, newest first, each compared with the one before.

    A first one that is not version 1 only serves for comparison. Bounds are of the present limits,
    None where there was no such one, or where it is not for the average of all decisions.
    """
    found, before = list[dict[str, Any]](), None
    for change in changes:
        config = change.config
        if before is not None or config.version == 1:
            lines = ["created"] if before is None else list(list_changes(before, config))
            known = {limit.key: limit for limit in read_limits(config)}
            found.append(
                {
                    "version": config.version,
                    "at": change.at,
                    "by": change.by,
                    "changes": lines,
                    "paused": config.paused,
                    "bounds": [
                        known[limit.key].charted_bound if limit.key in known else None
                        for limit in limits
                    ],
                }
            )
        before = config
    return found[::-1]


def format_setting(value: Any) -> str:
    """A setting in a few characters."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {format_setting(one)}" for key, one in value.items())
    if isinstance(value, tuple | list):
        return " to ".join(map(format_setting, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "none" if value is None else str(value)
    return format_number(value)


MAX_MEMBER_ROWS = 200


def build_members(gateway: RouterGateway, experts: Iterable[str]) -> dict[str, Any]:
    """Build the table of a gateway, the most asked members first, since the server started.

    experts: of the present configuration of the router
    """
    stats = gateway.stats
    asked = [name for name, one in stats.members.items() if one.asked]
    known = dict.fromkeys((*experts, *asked))
    names = sorted(known, key=lambda name: -stats.members[name].asked)
    return {
        "model": model_name(gateway.router),  # what callers ask for
        "since": format_timestamp(int(1_000_000 * gateway.gateway.since)),
        "panels": stats.requests,
        "quorum_misses": stats.quorum_misses,
        "unanswered": stats.unanswered,  # panels of which no member has answered
        "unscored": stats.unscored,  # those that the scorer did not score
        "unsettled": stats.settlement_failures,  # whose scores and costs were not stored
        "paused": sum(gateway.health.find_pause(name) is not None for name in names),
        "members_left": max(0, len(names) - MAX_MEMBER_ROWS),  # without a row
        "rows": [make_row(gateway, name) for name in names[:MAX_MEMBER_ROWS]],
    }


def model_name(router: str) -> str:
    """The model that callers ask for to reach a router."""
    return MODEL_PREFIX + router


def make_row(gateway: RouterGateway, name: str) -> dict[str, Any]:
    """Make the row of a member: its counters since the server started, and its state now.

    What is None is not known: the member was not asked, or has no answer yet.
    """
    stats = gateway.stats.members[name]
    state, sentence = describe_pause(gateway.health.find_pause(name))
    if name not in gateway.gateway.client.models:
        state, sentence = "no model", "not in model_list"
    times = sorted(stats.seconds)
    last = len(times) - 1
    return {
        "name": name,
        "state": state,
        "sentence": sentence,
        "asked": stats.asked,
        "answered": stats.answered,
        "answered_share": stats.answered / stats.asked if stats.asked else None,  # of the calls
        "won": stats.won,
        "mean_score": stats.score_sum / stats.scored if stats.scored else None,
        "median_s": times[last // 2] if times else None,  # of its latest answers, as the next
        "p99_s": times[round(0.99 * last)] if times else None,
        "cost_per_1000_wins": 1_000 * (stats.cost / stats.won) if stats.won else None,
        "failures": [  # the most frequent reasons first
            {"reason": word.replace("_", " "), "count": n} for word, n in stats.failed.most_common()
        ],
    }


def describe_pause(pause: Pause | None) -> tuple[str, str]:
    """The state of a member, and a sentence.

    >>> describe_pause(Pause(left_s=11.2, trying=False)), describe_pause(None)
    (('paused', 'paused for 12 s'), ('available', 'available'))
    """
    if pause is None:
        return "available", "available"
    if pause.trying:
        return "being tried", "being tried"
    if pause.left_s > 0:
        return "paused", f"paused for {math.ceil(pause.left_s)} s"
    return "paused", "tried with the next panel"
