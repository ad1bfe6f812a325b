"""What each edit of a router's configuration changed, in words."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from bylot.router.config import RouterConfig
from bylot.server.dashboard.formatting import format_number
from bylot.server.dashboard.source import ConfigChange


class ConfigVersion(Struct, frozen=True):
    """One version of the configuration."""

    version: int
    at: str
    by: str | None
    changes: list[str]


def list_config_versions(changes: Sequence[ConfigChange]) -> list[ConfigVersion]:
    """The versions, newest first, each compared with the one before; a first one that is not
    version 1 only serves for comparison.
    """
    before: list[RouterConfig | None] = [None, *(one.config for one in changes)]
    return [
        ConfigVersion(one.config.version, one.at, one.by, list(describe_changes(old, one.config)))
        for old, one in zip(before, changes, strict=False)
        if old is not None or one.config.version == 1
    ][::-1]


def describe_changes(old: RouterConfig | None, new: RouterConfig) -> Iterator[str]:
    """One line for each difference."""
    if old is None:
        yield "created"
        return
    yield from describe_problem_changes(old.problem, new.problem)
    for field in structs.fields(RouterConfig):
        if field.name not in ("version", "problem", "paused"):
            yield from describe_change(
                field.name, getattr(old, field.name), getattr(new, field.name)
            )
    yield from describe_members("paused", "no longer paused", old.paused, new.paused)


def describe_problem_changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """One line for each difference of the problem."""
    yield from describe_members("added", "removed", old["experts"], new["experts"])
    old_bounds, new_bounds = limit_bounds(old), limit_bounds(new)
    for limit in dict.fromkeys((*old_bounds, *new_bounds)):
        yield from describe_change(limit, old_bounds.get(limit), new_bounds.get(limit))
    old_costs, new_costs = costs_by_expert(old), costs_by_expert(new)
    changed = [one for one in old_costs if new_costs.get(one, old_costs[one]) != old_costs[one]]
    if changed:
        yield f"costs of {', '.join(changed)}"
    for field in ("draws", "floor", "period"):
        yield from describe_change(field, old[field], new[field])


def describe_change(name: str, old: Any, new: Any) -> Iterator[str]:
    """The old and the new value, if they differ."""
    if old != new:
        yield f"{name}: {format_setting(old)} → {format_setting(new)}"


def describe_members(
    added: str, removed: str, old: Sequence[str], new: Sequence[str]
) -> Iterator[str]:
    """The members that were added and removed."""
    for word, names in ((added, set(new) - set(old)), (removed, set(old) - set(new))):
        if names:
            yield f"{word}: {', '.join(sorted(names))}"


def limit_bounds(problem: dict[str, Any]) -> dict[str, float]:
    """The bound of each limit, by its description."""
    found = {}
    for one in problem["limits"]:
        side = "at_most" if "at_most" in one else "at_least"
        found[f"{one.get('share', one.get('cost'))} {side.replace('_', ' ')}"] = one[side]
    return found


def costs_by_expert(problem: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The costs of each expert, by name."""
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
