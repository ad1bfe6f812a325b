"""What differs between a router as it is declared and as it is stored: what an edit can change, and
what cannot be changed while a router runs.

An edit is applied by `reconcile`; the edits of requests are in `config_requests`.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET

from bylot import policies
from bylot._text import join_words
from bylot.api import EditRouterRequest, ProblemPart
from bylot.policies import Auto, find_policy, policy_to_data
from bylot.problem import Limit, Share
from bylot.router.config import RouterConfig
from bylot.server.config_requests import EDITED_FIELDS
from bylot.server.provision import DeclaredRouter

FIXED_PROBLEM_FIELDS = ("draws", "floor", "period", "traffic")  # a running router learns the last
FIXED_FIELDS = ("seed", "horizon", "rewards", "feedback", "memory")
COST_TOLERANCE = 1e-9  # relative: of costs that are computed from prices


class Difference(NamedTuple):
    """A field of a router that differs, and how; `is_given`: the file gives it."""

    field: str
    was: Any
    now: Any
    is_given: bool = True

    def __str__(self) -> str:
        return f"{self.field}: {format_value(self.was)} -> {format_value(self.now)}"


def format_value(value: Any) -> str:
    """A value of a configuration, for people.

    >>> format_value(None), format_value(0.0030), format_value((0.0, 1.0))
    ('none', '0.003', '0 to 1')
    """
    if value is None:
        return "none"
    if isinstance(value, tuple | list):
        return " to ".join(map(format_value, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def list_fixed_differences(declared: DeclaredRouter, stored: RouterConfig) -> Iterator[Difference]:
    """List what differs in fields that cannot be changed while a router runs.

    Those that the file does not give are not at fault: they were only used to create the router.
    """
    config = declared.config
    old = stored.problem | {name: getattr(stored, name) for name in FIXED_FIELDS}
    new = config.problem | {name: getattr(config, name) for name in FIXED_FIELDS}
    for name in (*FIXED_PROBLEM_FIELDS, *FIXED_FIELDS):
        if not are_equal(old.get(name), new.get(name)):
            yield Difference(name, old.get(name), new.get(name), name in declared.given)
    if "max_contexts" in declared.given and config.max_contexts < stored.max_contexts:
        yield Difference("max_contexts", stored.max_contexts, config.max_contexts)
    yield from compare_policies(declared, stored)
    for key in ("costs", "max_costs"):
        for cost in dict.fromkeys([*old.get(key, {}), *new.get(key, {})]):
            yield from compare_costs(declared, stored, key, cost)


def compare_costs(
    declared: DeclaredRouter, stored: RouterConfig, key: str, cost: str
) -> Iterator[Difference]:
    """List how a cost, or a largest cost, of the experts that stay differs.

    It is not at fault if a price has changed, which is learned from what calls cost. A largest cost
    that rises is: limits are promised by it.
    """
    was, now = (
        dict(zip(problem["experts"], problem[key][cost], strict=True))
        if cost in problem.get(key, {})
        else None
        for problem in (stored.problem, declared.config.problem)
    )
    if was is None or now is None:
        is_priced = was is None and key == "max_costs" and declared.is_priced
        before = None if was is None else "declared"
        after = None if now is None else "declared"
        yield Difference(f"{key}.{cost}", before, after, not is_priced)
        return
    for name in (name for name in was if name in now and not are_equal(was[name], now[name])):
        is_given = now[name] > was[name] if key == "max_costs" else declared.gives_cost(name, cost)
        field = f"{key}.{cost} of {name!r}"
        yield Difference(field, was[name], now[name], is_given or not declared.is_priced)


def compare_policies(declared: DeclaredRouter, stored: RouterConfig) -> Iterator[Difference]:
    """List how the policies differ; `auto`, and settings that are not given, stay as they were."""
    wanted = find_policy(declared.entry.policy)
    mine = declared.config.policy
    other = stored.policy
    if isinstance(wanted, Auto) and mine != other:
        yield Difference("policy", other["name"], f"{mine['name']} by auto", is_given=False)
    elif mine["name"] != other["name"]:
        yield Difference("policy", other["name"], mine["name"])
    else:
        defaults = policy_to_data(policies.POLICIES.get(mine["name"], wanted))
        for name, now in mine.items():
            if now != other.get(name):
                is_given = now != defaults.get(name)
                yield Difference(f"policy.{name}", other.get(name), now, is_given)


def are_equal(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=COST_TOLERANCE)
    return bool(one == two)


def request_edit(declared: DeclaredRouter, stored: RouterConfig) -> EditRouterRequest:
    """Return the edit after which a stored router is as it is declared, as far as it can be."""
    config = declared.config
    mine = config.problem
    old = stored.problem
    added, removed = compare_names(old["experts"], mine["experts"])
    differ = any(describe_limit_changes(old["limits"], mine["limits"]))
    paused = declared.entry.paused
    others = () if paused is None else set(mine["experts"]).difference(paused)
    given = declared.given | {"wait", "default", "aggregate"}
    return EditRouterRequest(
        limits=tuple(mine["limits"]) if differ else UNSET,
        add=tuple(copy_expert(mine, name, old) for name in added),
        remove=tuple(removed),
        pause=paused or (),
        resume=tuple(others),
        min_draws=mine.get("min_draws"),
        **{name: getattr(config, name) for name in EDITED_FIELDS if name in given},
    )


def copy_expert(problem: ProblemPart, name: str, other: ProblemPart) -> ProblemPart:
    """Return an expert as a file writes it, with the costs that another problem has."""
    n = problem["experts"].index(name)
    costs, most = (
        {cost: problem[key][cost][n] for cost in other.get(key, {})}
        for key in ("costs", "max_costs")
    )
    return {"name": name, **costs, "max_costs": most}


def list_changes(old: RouterConfig, new: RouterConfig) -> Iterator[str]:
    """List what an edit changes, for people."""
    was = old.problem
    now = new.problem
    added, removed = compare_names(was["experts"], now["experts"])
    for verb, names in (("add", added), ("remove", removed)):
        if names:
            plural = "s" if len(names) > 1 else ""
            yield f"{verb} expert{plural} {join_words(names, 'and')}"
    limits = list(describe_limit_changes(was["limits"], now["limits"]))
    if limits:
        yield f"limits: {', '.join(limits)}"
    if was.get("min_draws") != now.get("min_draws"):
        yield str(Difference("min_draws", was.get("min_draws"), now.get("min_draws")))
    paused, resumed = compare_names(old.paused, new.paused)
    for verb, names in (("pause", paused), ("resume", [x for x in resumed if x not in removed])):
        if names:
            yield f"{verb} {join_words(names, 'and')}"
    for name in EDITED_FIELDS:
        if getattr(old, name) != getattr(new, name):
            yield str(Difference(name, getattr(old, name), getattr(new, name)))


def compare_names(old: Sequence[str], new: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names that are new, and those that are gone."""
    known = set(old)
    kept = set(new)
    return [name for name in new if name not in known], [name for name in old if name not in kept]


def compare_limits(
    old: Iterable[Limit], new: Iterable[Limit]
) -> Iterator[tuple[Limit, str, Any, Any]]:
    """List how limits differ, in whatever order they are: the limit, its field, what it was and
    what it is. The field "limit" stands for all of a limit that is added, or dropped.
    """
    was, now = ({limit.key: limit for limit in limits} for limits in (old, new))
    for key in dict.fromkeys((*was, *now)):
        limit = was.get(key) or now[key]
        if key not in was or key not in now:
            yield limit, "limit", was.get(key), now.get(key)
            continue
        for field in ("bound", "zone", "when_spent", "cost"):
            before = getattr(limit, field)
            after = getattr(now[key], field)
            if before != after:
                yield limit, field, before, after


def describe_limit_changes(old: Sequence[Any], new: Sequence[Any]) -> Iterator[str]:
    """Say how limits differ: "usd at most 0.002 -> 0.003", "usd at most per day 500 -> 600", "drop
    usd at most 20 per month for each tenant".
    """
    for limit, field, was, now in compare_limits(
        map(Limit.from_data, old), map(Limit.from_data, new)
    ):
        side = f"{limit.name} {limit.side.replace('_', ' ')}"
        per = limit.words.removeprefix(limit.name)
        if field == "limit":
            yield f"{'drop' if was else 'add'} {side} {limit.bound:.6g}{per}"
        elif field == "bound":
            yield f"{side}{per} {was:.6g} -> {now:.6g}"
        elif field != "cost":
            yield f"{side}{per}, {Difference(field, was, now)}"
        elif isinstance(was, Share) and isinstance(now, Share):
            joined, left = compare_names(was.members, now.members)
            names = [f"+{name}" for name in joined] + [f"-{name}" for name in left]
            if names:  # else in another order
                yield f"members of {side}{per} {' '.join(names)}"
        else:
            yield f"{side}{per} is another quantity"
