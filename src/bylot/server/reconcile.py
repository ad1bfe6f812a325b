"""Brings the stored routers in line with the configuration file when a server starts.

The file is the truth for the routers that it names: missing ones are created, and others are edited
as a new version, which keeps what they have learned. If one differs in what cannot be edited, the
server does not start, and nothing is changed. Routers that the file does not name stay. The edits
of requests are in `config_requests`.
"""

import logging
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Literal, NamedTuple

from msgspec import UNSET

from bylot._text import join_words
from bylot.api import EditRouterRequest, ProblemPart
from bylot.errors import (
    BylotError,
    BylotWarning,
    DecisionStateError,
    InfeasibleLimits,
    LeaseLost,
    PolicyError,
    RouterBusy,
    RouterExists,
)
from bylot.eventlog.commands import CreateRouter, EditRouter
from bylot.eventlog.config_validation import validate_config
from bylot.eventlog.events import now_us
from bylot.eventlog.loading import read_stored_config
from bylot.gateway.router_models import list_prices, list_used_models
from bylot.policies import POLICIES, Auto, find_policy, policy_to_data
from bylot.policies.registry import check_max_contexts
from bylot.problem import Limit, Share
from bylot.router.config import RouterConfig
from bylot.server.config_requests import EDITED_FIELDS, edit_config
from bylot.server.provision import DeclaredRouter, build_declared
from bylot.server.settings import ServerSettings
from bylot.server.writer import make_command_handler
from bylot.store import EmptyDatabase, Store, find_store_folder, open_store, store_exists

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

    >>> format_value(None), format_value(0.0030), format_value((0.0, 1.0)), format_value(1.5e6)
    ('none', '0.003', '0 to 1', '1,500,000')
    """
    if value is None:
        return "none"
    if isinstance(value, tuple | list):
        return " to ".join(map(format_value, value))
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


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
        defaults = policy_to_data(POLICIES.get(mine["name"], wanted))
        for name, now in mine.items():
            if now != other.get(name):
                yield Difference(f"policy.{name}", other.get(name), now, now != defaults.get(name))


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
            yield f"{verb} expert{'s' * (len(names) > 1)} {join_words(names, 'and')}"
    costs = dict(list_expert_costs(was))
    changed = [name for name, row in list_expert_costs(now) if costs.get(name, row) != row]
    if changed:
        yield f"costs of {', '.join(changed)}"
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


def list_expert_costs(problem: ProblemPart) -> Iterator[tuple[str, tuple[float, ...]]]:
    """List the costs of each expert, in the order of the problem."""
    return zip(problem["experts"], zip(*problem["costs"].values(), strict=True), strict=False)


def compare_names(old: Sequence[str], new: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names that are new, and those that are gone."""
    known = set(old)
    kept = set(new)
    return [name for name in new if name not in known], [name for name in old if name not in kept]


def describe_limit_changes(old: Sequence[Any], new: Sequence[Any]) -> Iterator[str]:
    """Say how limits differ, in whatever order they are: "usd at most 0.002 -> 0.003", "usd at most
    per day 500 -> 600", "drop usd at most 20 per month for each tenant".
    """
    was, now = ({limit.key: limit for limit in map(Limit.from_data, x)} for x in (old, new))
    for key in dict.fromkeys((*was, *now)):
        limit = now.get(key) or was[key]
        name = f"{limit.name} {limit.side.replace('_', ' ')}"
        per = limit.words.removeprefix(limit.name)
        if key in was and key in now:
            yield from describe_limit_change(f"{name}{per}", was[key], limit)
        else:
            verb = "add" if key in now else "drop"
            full = f"{verb} {name} {format_value(limit.bound)}{per}"
            yield ", ".join([full, *limit.window_settings])


def describe_limit_change(name: str, was: Limit, now: Limit) -> Iterator[str]:
    """Say how a limit differs that is there before and after."""
    if was.bound != now.bound:
        yield f"{name} {format_value(was.bound)} -> {format_value(now.bound)}"
    for field in ("zone", "when_spent"):
        if getattr(was, field) != getattr(now, field):
            yield f"{name}, {Difference(field, getattr(was, field), getattr(now, field))}"
    if isinstance(was.cost, Share) and isinstance(now.cost, Share):
        joined, left = compare_names(was.cost.members, now.cost.members)
        if joined or left:  # else in another order
            names = [*(f"+{x}" for x in joined), *(f"-{x}" for x in left)]
            yield f"members of {name} {' '.join(names)}"
    elif was.cost != now.cost:
        yield f"{name} is another quantity"


log = logging.getLogger("bylot.server")

RETRIED_ERRORS = (RouterExists, DecisionStateError, LeaseLost, RouterBusy)
"""Errors of a change that another server made first, or that has the router open."""
RETRY_PAUSE_S = 0.2
EXTRA_WAIT_S = 2.0  # after which the lease of a server that was killed has expired

Stored = Literal["missing", "unreadable"] | RouterConfig
"""What a store has of a router: nothing, a log that is damaged, or its configuration."""


class RouterPlan(NamedTuple):
    """What a start does about a declared router.

    changes: what an edit changes, or what cannot be changed, for people
    kept:    what the router has and the file does not give
    command: what creates or edits it
    error:   why the server does not start
    """

    name: str
    action: Literal["create", "edit", "unchanged", "refused", "unreadable"]
    changes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    command: CreateRouter | EditRouter | None = None
    error: BylotError | None = None

    def __str__(self) -> str:
        text = f"{self.action}: {'; '.join(self.changes)}" if self.changes else self.action
        if self.error is not None and not self.changes:
            text = f"{text}: {self.error}"
        return f"{text} (stays: {'; '.join(self.kept)})" if self.kept else text


def declare_routers(settings: ServerSettings) -> list[DeclaredRouter]:
    """The routers of the configuration, validated."""
    prices, folder = list_prices(settings.model_list), find_store_folder(settings.store)
    return [build_declared(name, entry, prices, folder) for name, entry in settings.routers.items()]


def find_used_models(declared: Sequence[DeclaredRouter]) -> set[str]:
    """The models that the gateways of declared routers ask."""
    return {
        name
        for one in declared
        if one.entry.gateway is not None
        for name in list_used_models(one.entry.gateway, one.config.problem["experts"])
    }


def read_stored(store: Store, name: str) -> Stored:
    """What a store has of a router."""
    row = store.find(name)
    if row is None:
        return "missing"
    return read_stored_config(store, row) or "unreadable"


def plan_router(declared: DeclaredRouter, stored: Stored) -> RouterPlan:
    """What to do about a declared router; nothing is written."""
    name = declared.name
    if stored == "unreadable":  # reported when the router is opened
        return RouterPlan(name, "unreadable")
    try:
        if isinstance(stored, str):
            check_playable(declared.config, is_new=True)
            return RouterPlan(name, "create", command=CreateRouter(name, declared.config))
        different = list(list_fixed_differences(declared, stored))
        fixed = tuple(str(one) for one in different if one.is_given)
        kept = tuple(
            f"{one.field} {format_value(one.was)}" for one in different if not one.is_given
        )
        if fixed:
            return RouterPlan(name, "refused", fixed, kept, error=make_refusal(declared, fixed))
        new = edit_config(stored, request_edit(declared, stored))
        changes = tuple(list_changes(stored, new))
        if not changes:
            return RouterPlan(name, "unchanged", kept=kept)
        check_playable(new, is_new=False)
        return RouterPlan(name, "edit", changes, kept, EditRouter(name, new, stored.version))
    except BylotError as error:
        return RouterPlan(name, "refused", error=BylotError(f"router {name!r}: {error}"))


def make_refusal(declared: DeclaredRouter, fixed: Sequence[str]) -> BylotError:
    """The error about a router that differs in what cannot be edited."""
    what = f"router {declared.name!r} differs from {declared.source} in what cannot be changed "
    remedy = "declare a router under another name, or set the file back"
    return BylotError(f"{what}while it runs: {'; '.join(fixed)}", remedy=remedy)


def check_playable(config: RouterConfig, is_new: bool) -> None:
    """Refuse a configuration that its policy cannot play."""
    try:
        canonical, parts = validate_config(config)
        with warnings.catch_warnings():  # the change itself warns
            warnings.simplefilter("ignore", BylotWarning)
            parts.policy.bind(parts.problem, parts.run.horizon, parts.run.feedback)
        check_max_contexts(parts.policy, parts.problem.size, canonical.max_contexts)
    except (InfeasibleLimits, PolicyError) as error:
        raise error if is_new else error.for_running_router() from None


def plan_routers(settings: ServerSettings, declared: Sequence[DeclaredRouter]) -> list[RouterPlan]:
    """What a start would do about the declared routers; the store is only read."""
    if not declared:
        return []
    stored: Mapping[str, Stored] = {}
    if store_exists(settings.store):
        with (
            suppress(EmptyDatabase),
            closing(open_store(settings.store, read_only=True)) as store,
        ):
            stored = {one.name: read_stored(store, one.name) for one in declared}
    return [plan_router(one, stored.get(one.name, "missing")) for one in declared]


def reconcile_routers(
    store: Store, settings: ServerSettings, declared: Sequence[DeclaredRouter]
) -> None:
    """Create and edit the declared routers; if one of them is refused, nothing is changed."""
    for one in declared:
        plan = plan_router(one, read_stored(store, one.name))
        if plan.error is not None:
            raise plan.error
    for one in declared:
        for warning in one.warnings:
            log.warning("%s", warning)
        apply_declared(store, settings, one)


def apply_declared(store: Store, settings: ServerSettings, declared: DeclaredRouter) -> None:
    """Create or edit a router; again, if another server was faster."""
    deadline = time.monotonic() + settings.lease_s + EXTRA_WAIT_S
    while True:
        plan = plan_router(declared, read_stored(store, declared.name))
        if plan.error is not None:
            raise plan.error
        if plan.command is None:
            return
        result = perform_plan(settings, plan.command)
        if not isinstance(result, Exception):
            log.info("router %s: %s, from %s", plan.name, plan, declared.source)
            return
        if not isinstance(result, RETRIED_ERRORS):
            raise result
        if time.monotonic() > deadline:
            if not isinstance(result, RouterBusy):
                raise result
            log.warning(
                "router %s is not changed (%s), as another server has it: %s; restart this server "
                "when that one has ended",
                *(plan.name, plan, result),
            )
            return
        time.sleep(RETRY_PAUSE_S)


def perform_plan(settings: ServerSettings, command: CreateRouter | EditRouter) -> Any:
    """Execute the command of a plan, and return the view of the router or the error."""
    with closing(make_command_handler(settings.store, settings.lease_s)) as handler:
        (result,) = handler.perform([command], now_us())
    return result
