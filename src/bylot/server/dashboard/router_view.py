"""The data of the two pages: the list of routers, and one router."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from bylot._text import format_sizes
from bylot.api import DecisionRecord, RouterView
from bylot.errors import RouterBusy
from bylot.evaluate.result import ReferenceLevel
from bylot.eventlog.events import format_timestamp, now_us
from bylot.policies.validation import FEEDBACK_WORDS
from bylot.router.state import RouterState
from bylot.router.status import Counters, RouterStatus, TimelinePoints
from bylot.server.dashboard.sections import (
    build_selection,
    context_label,
    count_verdicts,
    format_setting,
    label_text,
    list_config_versions,
    measure_spend,
    model_name,
    read_limits,
    view_limits,
)
from bylot.server.dashboard.source import ConfigChange, ListedRouters, RecentLog
from bylot.server.http_errors import public_message

MAX_CHART_SPANS = 64  # as many as a small chart can show
MAX_LATEST_DECISIONS = 25
MODEL_LEVEL = "random panels, limits ignored, as the policy's model estimates"


def build_router_page(
    view: RouterView,
    latest: Sequence[DecisionRecord],
    changes: Sequence[ConfigChange],
    recent: RecentLog = RecentLog(),  # noqa: B008 - immutable
    members: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Build the page of a router at one moment."""
    status = view.status
    config = view.config
    period = status.period
    declared = read_limits(config)
    limits = view_limits(status, declared)
    return {
        "name": view.name,
        "created": view.created,
        "policy": config.policy["name"],
        "version": config.version,
        "seq": view.seq,  # of the last event of its log
        "verdicts": count_verdicts(status),
        "status": structs.replace(status, distributions=(), timeline=None),  # which stand below
        "period_progress": None if period is None else period.played / period.length,
        "has_periods": period is not None and any(limit.averages_all for limit in status.limits),
        "has_tenants": any(limit["tenants"] is not None for limit in limits),
        "limits": limits,
        "spend": measure_spend(status, now_us()),
        "recent": add_model_level(recent, status),
        "timeline": timeline_spans(status.timeline, [one.cost for one in status.limits]),
        "selection": build_selection(status, config),
        "members": members,  # of its gateway
        "effective_sample": count_effective_sample([one.decision.propensity for one in latest]),
        "latest": [latest_decision(one) for one in latest],
        "settings": list_settings(view),
        "versions": list_config_versions(changes, declared),
    }


def add_model_level(recent: RecentLog, status: RouterStatus) -> RecentLog:
    """Show what the policy's model predicts where the log has no propensities to estimate from."""
    if status.random_panels is None or any(one.value is not None for one in recent.levels):
        return recent
    level = ReferenceLevel(name=MODEL_LEVEL, value=status.random_panels)
    return structs.replace(recent, levels=[level])


def timeline_spans(points: TimelinePoints | None, costs: Iterable[str]) -> list[dict[str, Any]]:
    """List the spans of a timeline, oldest first, at most `MAX_CHART_SPANS`.

    Means are None if nothing was counted; settled costs per decision are in the order given.
    """
    if points is None:
        return []
    by = -(-len(points.started) // MAX_CHART_SPANS) or 1
    decisions, rewards = sum_groups(points.decisions, by), sum_groups(points.rewards, by)
    reward = divide_sums(sum_groups(points.total, by), rewards)
    spent = [divide_sums(sum_groups(points.spent[name], by), decisions) for name in costs]
    return [
        {
            "at": format_timestamp(at),
            "decisions": decisions[i],
            "rewards": rewards[i],
            "reward": reward[i],
            "costs": [row[i] for row in spent],
        }
        for i, at in enumerate(points.started[::by])
    ]


def sum_groups(column: Sequence[Any], by: int) -> list[Any]:
    """Sums of `by` neighbours each; the last group may be smaller.

    >>> sum_groups([1, 2, 3, 4, 5], by=2)
    [3, 7, 5]
    """
    return [sum(column[i : i + by]) for i in range(0, len(column), by)]


def divide_sums(sums: Sequence[float], counts: Sequence[int]) -> list[float | None]:
    """Means with six digits.

    >>> divide_sums([2.0, 0.0], [3, 0])
    [0.666667, None]
    """
    pairs = zip(sums, counts, strict=True)
    return [float(f"{total / count:.6g}") if count else None for total, count in pairs]


def latest_decision(record: DecisionRecord) -> dict[str, Any]:
    """View a decision: experts with their inclusion probabilities and scores, settled costs."""
    one, spend = record.decision, dict(record.decision.spend)
    for reward in record.rewards:
        spend |= reward.spend or {}
    skipped = ("late", "settled")
    learned = [reward.value for reward in record.rewards if reward.receipt not in skipped]
    inclusion = one.inclusion or {}
    notes = {"replaced by the guard": one.replaced, "a limit could not be met": not one.feasible}
    notes |= {f"{name} failed and was replaced": True for name in one.failed}
    return {
        "id": one.id,
        "at": one.at or "",
        "context": context_label(one.context),
        "keys": ", ".join(map(label_text, one.keys.values())) or None,
        "panel": [
            {"name": name, "value": inclusion.get(name), "score": describe_score(record, name)}
            for name in one.subset
        ],
        "propensity": one.propensity,
        "spend": list_named_values(spend),
        "state": record.state,
        "reward": learned[-1] if learned else None,
        "notes": ", ".join(note for note, holds in notes.items() if holds),
    }


def list_named_values(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List names and values, such as those of costs and of settings."""
    return [{"name": name, "value": value} for name, value in values.items()]


def describe_score(record: DecisionRecord, name: str) -> str:
    """The score of a member that was learned, or that it won; empty if there is none."""
    score = (record.learned_members or {}).get(name)
    if score is None:
        return "won" if name == record.learned_winner else ""
    return f"scored {score:.4g}"


def count_effective_sample(propensities: Sequence[float | None]) -> float | None:
    """Kish's effective sample size, (sum w)^2 / sum w^2 with w = 1 / propensity.

    >>> count_effective_sample([0.5, 0.5, None]), count_effective_sample([None])
    (2.0, None)
    """
    weights = [1 / propensity for propensity in propensities if propensity is not None]
    return sum(weights) ** 2 / sum(one * one for one in weights) if weights else None


def list_settings(view: RouterView) -> list[dict[str, Any]]:
    """The configuration, one line per setting."""
    config, problem = view.config, view.config.problem
    settings = {key: value for key, value in config.policy.items() if key != "name"}
    ignored = ", ignored by the policy" * (not view.status.uses_feedback)
    sizes = format_sizes(problem.get("min_draws", problem["draws"]), problem["draws"])
    lines = {
        "experts": f"{len(problem['experts'])}, of which {sizes} are drawn",
        "policy": config.policy["name"] + (f" ({format_setting(settings)})" if settings else ""),
        "reward range": format_setting(config.rewards),
        "feedback": f"{FEEDBACK_WORDS[config.feedback]}{ignored}",
        "reward deadline": format_setting(config.wait) + (" s" if config.wait is not None else ""),
        "default reward": format_setting(config.default),
        "several rewards": config.aggregate,
        "paused": ", ".join(config.paused) or "none",
        "horizon": format_setting(config.horizon),
        "seed": str(config.seed),
        "maximum contexts": format_setting(view.status.max_contexts),
        "open decisions kept": format_setting(config.memory),
    }
    return list_named_values(lines)


OVERVIEW_FIELDS = (
    *("name", "model", "location", "error", "state", "verdicts", "policy", "decisions"),
    *("mean_reward", "waiting", "missing", "late"),
)
"""Of a router of the list; all but its name and location are None if only these are known."""


def build_overview(routers: ListedRouters, chat_routers: Collection[str] = ()) -> dict[str, Any]:
    """Build the list of routers by name; chat_routers: names of those that have a gateway."""
    rows: list[dict[str, Any]] = [
        dict.fromkeys(OVERVIEW_FIELDS)
        | {"name": name, "model": model_name(name) if name in chat_routers else None}
        | overview_facts(found)
        for name, found in routers.items()
    ]
    levels = [row["state"].level for row in rows if row["state"] is not None]
    return {
        "count": len(rows),
        "decisions": sum(row["decisions"] or 0 for row in rows),
        "attention": len(levels) - levels.count("ok"),
        "critical": levels.count("critical"),
        "failed": sum(row["error"] is not None for row in rows),  # cannot be served
        "unknown": sum(row["location"] != "here" for row in rows),  # not in the counts above
        "routers": rows,
    }


def overview_facts(found: RouterView | Exception | None) -> dict[str, Any]:
    """List what is known of a router, and where it is served."""
    if found is None:
        return {"location": "not loaded"}
    if isinstance(found, RouterBusy):
        return {"location": "another server"}
    if isinstance(found, Exception):
        message = public_message(found)
        state = RouterState("critical", "cannot be served", message)
        return {"location": "here", "error": message, "state": state}
    status, counters = found.status, found.status.counters or Counters()
    return {
        "location": "here",
        "state": status.state,
        "verdicts": count_verdicts(status),
        "policy": found.config.policy["name"],
        "decisions": status.decisions,
        "mean_reward": status.mean_reward,
        "waiting": status.waiting,
        "missing": counters.missing,
        "late": counters.late,
    }
