"""Brings the stored routers in line with the configuration file when a server starts.

The file is the truth for the routers that it names: missing ones are created, and others are edited
as a new version, which keeps what they have learned. If one differs in what cannot be edited, the
server does not start, and nothing is changed. Routers that the file does not name stay.
"""

import logging
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Literal, NamedTuple

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
from bylot.policies.registry import check_max_contexts
from bylot.router.config import RouterConfig
from bylot.server.config_changes import (
    format_value,
    list_changes,
    list_fixed_differences,
    request_edit,
)
from bylot.server.config_requests import edit_config
from bylot.server.provision import DeclaredRouter, build_declared
from bylot.server.settings import ServerSettings
from bylot.server.writer import make_command_handler
from bylot.store import EmptyDatabase, Store, find_store_folder, open_store, store_exists

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
    routers = settings.routers.items()
    return [build_declared(name, entry, prices, folder) for name, entry in routers]


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
