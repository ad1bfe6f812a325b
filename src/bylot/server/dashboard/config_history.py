"""What an edit of a router's terms changed, in words."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from bylot.router.config import RouterConfig
from bylot.server.dashboard.formatting import number
from bylot.server.dashboard.source import ConfigChange

NO_SETTING = "none"


class ConfigVersion(Struct, frozen=True):
    """One version of the terms."""

    version: int
    at: str
    by: str | None
    changes: list[str]


def list_config_versions(edits: Sequence[ConfigChange]) -> list[ConfigVersion]:
    """The versions, newest first, each against the one before; the first that is at hand, if it is
    not that of the creation, is only what the next one is held against.
    """
    before: list[RouterConfig | None] = [None, *(one.terms for one in edits)]
    return [
        ConfigVersion(one.terms.version, one.at, one.by, list(describe_changes(old, one.terms)))
        for old, one in zip(before, edits, strict=False)
        if old is not None or one.terms.version == 1
    ][::-1]


def describe_changes(old: RouterConfig | None, new: RouterConfig) -> Iterator[str]:
    """One line for each thing that is different."""
    if old is None:
        yield "created"
        return
    yield from describe_problem_changes(old.problem, new.problem)
    for field in structs.fields(RouterConfig):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if field.name not in ("version", "problem", "paused") and before != after:
            yield f"{field.name}: {format_setting(before)} → {format_setting(after)}"
    yield from describe_membership_changes(
        "paused", "no longer paused", set(old.paused), set(new.paused)
    )


def describe_problem_changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What is different about a problem."""
    yield from describe_membership_changes(
        "added", "removed", set(old["experts"]), set(new["experts"])
    )
    was, now = limit_bounds(old), limit_bounds(new)
    for limit in [*was, *(one for one in now if one not in was)]:
        if was.get(limit) != now.get(limit):
            yield f"{limit}: {format_setting(was.get(limit))} → {format_setting(now.get(limit))}"
    was_paid, is_paid = costs_by_expert(old), costs_by_expert(new)
    dearer = [one for one in was_paid if is_paid.get(one, was_paid[one]) != was_paid[one]]
    if dearer:
        yield f"costs of {', '.join(dearer)}"
    for field in ("draws", "floor", "period"):
        if old[field] != new[field]:
            yield f"{field}: {format_setting(old[field])} → {format_setting(new[field])}"


def limit_bounds(problem: dict[str, Any]) -> dict[str, float]:
    """The bound of each limit, by what it says."""
    found = {}
    for one in problem["limits"]:
        side = "at_most" if "at_most" in one else "at_least"
        found[f"{one.get('share', one.get('cost'))} {side.replace('_', ' ')}"] = one[side]
    return found


def costs_by_expert(problem: dict[str, Any]) -> dict[str, dict[str, float]]:
    """What each expert costs, by name."""
    rows = problem["costs"].items()
    return {one: {name: row[i] for name, row in rows} for i, one in enumerate(problem["experts"])}


def describe_membership_changes(
    came: str, went: str, old: set[str], new: set[str]
) -> Iterator[str]:
    """Who came and who went."""
    for word, names in ((came, new - old), (went, old - new)):
        if names:
            yield f"{word}: {', '.join(sorted(names))}"


def format_setting(value: Any) -> str:
    """A setting in a few characters."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {format_setting(one)}" for key, one in value.items())
    if isinstance(value, tuple | list):
        return " to ".join(map(format_setting, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NO_SETTING if value is None else str(value)
    return number(value)
