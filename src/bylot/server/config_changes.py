"""What differs between a router as it is declared and as it is stored: what an edit can change, and
what cannot be changed while a router runs.

An edit is applied by `reconcile`; the edits of requests are in `edit_requests`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from bylot import policies
from bylot._text import join_words
from bylot.policies import Auto, find_policy, policy_to_data
from bylot.problem import Limit, Share
from bylot.problem.limits import LimitKey
from bylot.router.config import RouterConfig
from bylot.server.provision import DeclaredRouter

EDITED_FIELDS = ("wait", "default", "aggregate", "max_contexts")
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
    """What differs in fields that cannot be changed while a router runs.

    Those that the file does not give are not at fault: they were only used to create the router.
    """
    config, given = declared.config, declared.given
    mine, other = config.problem, stored.problem
    if mine["draws"] != other["draws"]:
        yield Difference("draws", other["draws"], mine["draws"])
    for name in ("floor", "period"):
        if not are_equal(mine.get(name), other.get(name)):
            yield Difference(name, other.get(name), mine.get(name), name in given)
    if mine.get("traffic") != other.get("traffic"):  # a running router has learned it
        yield Difference("traffic", other.get("traffic"), mine.get("traffic"), is_given=False)
    for name in FIXED_FIELDS:
        was, now = getattr(stored, name), getattr(config, name)
        if was != now:
            yield Difference(name, was, now, name in given)
    if "max_contexts" in given and config.max_contexts < stored.max_contexts:
        yield Difference("max_contexts", stored.max_contexts, config.max_contexts)
    yield from compare_policies(declared, stored)
    for name in ("costs", "max_costs"):
        for one in compare_costs(name, mine, other):
            yield one._replace(is_given=not is_harmless_price(declared, one))


def is_harmless_price(declared: DeclaredRouter, found: Difference) -> bool:
    """Whether a cost differs because a price has changed, which is learned from what calls cost. A
    largest cost that rises is not harmless: limits are promised by it.
    """
    key, _, rest = found.field.partition(".")
    if not declared.is_priced or "declared" in (found.was, found.now):
        return found.was == "none" and key == "max_costs" and declared.is_priced
    cost, _, expert = rest.partition(" of ")
    if key == "max_costs":
        return bool(found.now < found.was)
    return not declared.gives_cost(expert.strip("'"), cost)


def compare_policies(declared: DeclaredRouter, stored: RouterConfig) -> Iterator[Difference]:
    """How the policies differ; `auto`, and settings that are not given, stay what they were."""
    wanted = find_policy(declared.entry.policy)
    mine, other = declared.config.policy, stored.policy
    if mine == other:
        return
    if isinstance(wanted, Auto):
        yield Difference("policy", other["name"], f"{mine['name']} by auto", is_given=False)
        return
    if mine["name"] != other["name"]:
        yield Difference("policy", other["name"], mine["name"])
        return
    defaults = policy_to_data(policies.POLICIES.get(mine["name"], wanted))
    for name, now in mine.items():
        if now != other.get(name):
            is_given = now != defaults.get(name)
            yield Difference(f"policy.{name}", other.get(name), now, is_given)


def compare_costs(
    key: str, mine: Mapping[str, Any], other: Mapping[str, Any]
) -> Iterator[Difference]:
    """How the costs of the experts that stay differ."""
    rows, old_rows = mine.get(key, {}), other.get(key, {})
    for cost in dict.fromkeys([*old_rows, *rows]):
        old, new = (
            dict(zip(problem["experts"], problem[key][cost], strict=True))
            if cost in problem.get(key, {})
            else None
            for problem in (other, mine)
        )
        if old is None or new is None:
            words = ("none", "declared") if old is None else ("declared", "none")
            yield Difference(f"{key}.{cost}", *words)
            continue
        for name in old.keys() & new.keys():
            if not are_equal(old[name], new[name]):
                yield Difference(f"{key}.{cost} of {name!r}", old[name], new[name])


def are_equal(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=COST_TOLERANCE)
    return bool(one == two)


def merge_configs(declared: DeclaredRouter, stored: RouterConfig) -> RouterConfig:
    """The next configuration: what can be edited as it is declared, all else as it is stored."""
    config, mine, old = declared.config, declared.config.problem, stored.problem
    kept = [name for name in old["experts"] if name in set(mine["experts"])]
    experts = [*kept, *(name for name in mine["experts"] if name not in set(kept))]
    problem = {**old, "experts": experts, "limits": mine["limits"]}
    if have_same_limits(mine["limits"], old["limits"]):
        problem["limits"] = old["limits"]
    problem.pop("min_draws", None)
    if mine.get("min_draws") is not None:
        problem["min_draws"] = mine["min_draws"]
    for key in ("costs", "max_costs"):
        if key in old:
            problem[key] = {
                cost: merge_rows(experts, (old, row), (mine, mine[key][cost]))
                for cost, row in old[key].items()
            }
    paused = stored.paused if declared.entry.paused is None else declared.entry.paused
    given = declared.given | {"wait", "default", "aggregate"}
    fields = {name: getattr(config, name) for name in EDITED_FIELDS if name in given}
    paused = tuple(name for name in experts if name in set(paused))
    return structs.replace(stored, problem=problem, paused=paused, **fields)


def merge_rows(
    experts: Sequence[str], *rows: tuple[Mapping[str, Any], Sequence[float]]
) -> list[float]:
    """A cost of each expert, of the first of some rows that has it."""
    known: dict[str, float] = {}
    for problem, row in reversed(rows):
        known |= dict(zip(problem["experts"], row, strict=True))
    return [known[name] for name in experts]


def index_limits(data: Sequence[Any]) -> dict[LimitKey, Limit]:
    limits = map(Limit.from_data, data)
    return {limit.key: limit for limit in limits}


def have_same_limits(one: Sequence[Any], two: Sequence[Any]) -> bool:
    """Whether limits are the same, in whatever order."""
    return not list(describe_limit_changes(one, two))


def list_changes(old: RouterConfig, new: RouterConfig) -> Iterator[str]:
    """What an edit changes, for people."""
    was, now = old.problem, new.problem
    added = [name for name in now["experts"] if name not in set(was["experts"])]
    removed = [name for name in was["experts"] if name not in set(now["experts"])]
    for verb, names in (("add", added), ("remove", removed)):
        if names:
            plural = "s" if len(names) > 1 else ""
            yield f"{verb} expert{plural} {join_words(names, 'and')}"
    limits = list(describe_limit_changes(was["limits"], now["limits"]))
    if limits:
        yield f"limits: {', '.join(limits)}"
    if was.get("min_draws") != now.get("min_draws"):
        yield str(Difference("min_draws", was.get("min_draws"), now.get("min_draws")))
    paused = [name for name in new.paused if name not in old.paused]
    resumed = [name for name in old.paused if name not in new.paused and name not in removed]
    for verb, names in (("pause", paused), ("resume", resumed)):
        if names:
            yield f"{verb} {join_words(names, 'and')}"
    for name in EDITED_FIELDS:
        if getattr(old, name) != getattr(new, name):
            yield str(Difference(name, getattr(old, name), getattr(new, name)))


def describe_limit_changes(old: Sequence[Any], new: Sequence[Any]) -> Iterator[str]:
    """How limits differ: "usd at most 0.002 -> 0.003", "usd at most per day 500 -> 600", "drop usd
    at most 20 per month for each tenant".
    """
    was, now = index_limits(old), index_limits(new)
    for key in dict.fromkeys([*was, *now]):
        one, two = was.get(key), now.get(key)
        limit = one or two
        assert limit is not None
        words = f"{limit.name} {limit.side.replace('_', ' ')}"
        per = limit.words.removeprefix(limit.name)
        if one is None:
            yield f"add {words} {limit.bound:.6g}{per}"
        elif two is None:
            yield f"drop {words} {limit.bound:.6g}{per}"
        else:
            if one.bound != two.bound:
                yield f"{words}{per} {one.bound:.6g} -> {two.bound:.6g}"
            for name in ("zone", "when_spent"):
                if getattr(one, name) != getattr(two, name):
                    change = Difference(name, getattr(one, name), getattr(two, name))
                    yield f"{words}{per}, {change}"
            yield from describe_member_changes(f"{words}{per}", one, two)


def describe_member_changes(words: str, one: Limit, two: Limit) -> Iterator[str]:
    """How the members of the group of a limit differ."""
    old, new = one.cost, two.cost
    if isinstance(old, Share) and isinstance(new, Share):
        joined = [f"+{name}" for name in new.members if name not in set(old.members)]
        left = [f"-{name}" for name in old.members if name not in set(new.members)]
        if joined or left:
            yield f"members of {words} {' '.join([*joined, *left])}"
    elif old != new:
        yield f"{words} is another quantity"
