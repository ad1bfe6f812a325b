"""`bylot router tenant` and `tenants`: what tenants have spent, and their own bounds."""

import argparse
from typing import TYPE_CHECKING, Any

from bylot._text import format_number
from bylot.cli.given_limits import BOUND_FORM, parse_bound
from bylot.cli.options import add_named_verb, connect_client, print_result
from bylot.errors import AccessDenied, ProblemError

if TYPE_CHECKING:
    from bylot.client import RemoteRouter
    from bylot.limits.keys import TenantWindow


def add(kinds: Any) -> None:
    tenant = add_named_verb(
        kinds,
        "tenant",
        run_tenant,
        "show what a tenant has spent, or give it bounds of its own",
        "Show a tenant in the current windows of the limits for each tenant. With --at-most, give "
        "it bounds of its own, in place of those that it had.",
    )
    tenant.add_argument("tenant", metavar="TENANT", help="name of the tenant")
    own = tenant.add_mutually_exclusive_group()
    text = "its own bound of a budget for each tenant, as in usd=50/month; repeatable"
    form: dict[str, Any] = {"type": parse_bound, "action": "append", "default": []}
    metavar = BOUND_FORM.replace("[/WINDOW[/tenant]]", "/WINDOW")
    own.add_argument("--at-most", **form, metavar=metavar, help=text)
    text = "remove its own bounds: those of all tenants apply again"
    own.add_argument("--clear", action="store_true", help=text)
    text = "list the tenants that have bounds of their own, or requests in recent windows"
    add_named_verb(kinds, "tenants", run_tenants, text)


def run_tenant(given: argparse.Namespace) -> None:
    from bylot.problem.limits import UPPER, Limit

    with connect_client(given) as client:
        router = client.router(given.name)
        zones = find_zones(router)
        own = []
        for bound in given.at_most:
            if "per" not in bound.counted:
                raise ProblemError(
                    f"--at-most {bound.name}={bound.bound:g}: no window",
                    remedy=f"write {bound.name}={bound.bound:g}/month, or whatever the limit "
                    "is per",
                )
            counted = bound.counted | {"scope": "tenant"}
            own.append(Limit(bound.name, bound.bound, UPPER, **counted))
        changes = given.at_most or given.clear
        view = router.set_tenant(given.tenant, own) if changes else router.tenant(given.tenant)
    lines = [f"{given.tenant}, a tenant of {given.name}"]
    lines += [describe_tenant(window, zones.get(window.limit, "UTC")) for window in view]
    print_result(given, view, "\n".join(lines))


def run_tenants(given: argparse.Namespace) -> None:
    from bylot.limits.keys import format_tenant

    with connect_client(given) as client:
        router = client.router(given.name)
        zones = find_zones(router)
        views = list(router.tenants())
    lines = [
        f"{format_tenant(view.tenant)}: {describe_tenant(window, zones.get(window.limit, 'UTC'))}"
        for view in views
        for window in view
    ]
    text = "\n".join(lines) or f"no tenants of {given.name} yet"
    print_result(given, {"tenants": views}, text)


def find_zones(router: "RemoteRouter") -> dict[str, str]:
    """The time zone of each limit, by its words; none if the key may not read them."""
    try:
        limits = router.problem.limits
    except AccessDenied:
        return {}
    return {limit.words: limit.zone for limit in limits}


def describe_tenant(window: "TenantWindow", zone: str) -> str:
    """A tenant in the window of one limit, in a sentence."""
    from bylot.problem.instants import format_instant

    asked = f"{window.requests:,} request{'s' * (window.requests != 1)}"
    end = f"until {format_instant(window.ends, zone)}"
    bound = f"{format_number(window.bound)}{' (its own bound)' if window.own else ''}"
    if window.left is None:
        mean = format_number(window.spent / max(window.requests, 1))
        return f"{window.limit}: {mean} per request, with a bound of {bound}; {asked} {end}"
    open_calls = f", {format_number(window.reserved)} reserved" if window.reserved else ""
    left = f"{open_calls}, {format_number(window.left)} left"
    return f"{window.limit}: {format_number(window.spent)} of {bound} spent{left}; {asked} {end}"
