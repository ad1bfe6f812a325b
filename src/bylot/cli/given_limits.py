"""Limits of a router as the command line writes them: "usd=500/day", "usd=20/month/tenant@icu"."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from bylot._text import join_words
from bylot.cli import options
from bylot.errors import ProblemError

if TYPE_CHECKING:
    from bylot.problem import Limit

WINDOWS = ["hour", "day", "week", "month"]  # as in `problem`, which takes long to import
WHEN_SPENT = ["cheapest", "fewer", "refuse"]
BOUND_FORM = "COST=BOUND[/WINDOW[/tenant]][@CONTEXTS]"


class GivenBound(NamedTuple):
    """A bound as --at-most and --at-least give it; per: None if it is not said."""

    name: str
    bound: float
    per: str | None = None
    scope: str | None = None
    where: tuple[str, ...] = ()

    @property
    def window(self) -> str | None:
        """The window of the calendar that it is for; None: it is per request."""
        return self.per if self.per in WINDOWS else None


def parse_bound(text: str) -> GivenBound:
    """Parse a bound, what it is per, and which requests it counts.

    >>> tuple(parse_bound("usd=2.5")), tuple(parse_bound("usd=500/day"))
    (('usd', 2.5, None, None, ()), ('usd', 500.0, 'day', None, ()))
    >>> tuple(parse_bound("usd=20/month/tenant@icu,er"))
    ('usd', 20.0, 'month', 'tenant', ('icu', 'er'))
    """
    amount, at, labels = text.partition("@")
    if at and "=" not in amount:  # a cost may be called gpu@night
        amount, labels = text, ""
    where = options.parse_names(labels) if labels else []
    scope = "tenant" if amount.endswith("/tenant") else None
    rest, slash, per = amount.removesuffix("/tenant").rpartition("/")
    if not slash or "=" in per:  # a cost may be called in/out
        rest, per = amount, ""
    if (per or scope) and per not in ("request", *WINDOWS):
        expected = f"expected a bound per {join_words(('request', *WINDOWS), 'or')}"
        expected += ", and /tenant after a window for each tenant, as in usd=30/month/tenant"
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: {expected}")
    return GivenBound(*options.parse_named_amount(rest), per or None, scope, tuple(where))


def edit_limits(limits: Sequence["Limit"], given: argparse.Namespace) -> list["Limit"]:
    """The limits of a router with the changes of --at-most, --at-least and --drop."""
    from bylot.problem.limits import LOWER, UPPER, Limit
    from bylot.problem.validation import suggest_known_name

    kept = [one for one in limits if not {one.name, name_window(one)} & set(given.drop)]
    names = {name for one in limits for name in (one.name, name_window(one))}
    for name in given.drop:
        if name not in names:
            remedy = suggest_known_name(name, sorted(names), "limits")
            raise ProblemError(f"--drop {name}: no such limit", remedy=remedy)
    edited, costs = {one.key: one for one in kept}, {one.name: one.cost for one in limits}
    for sign, changes in ((UPPER, given.at_most), (LOWER, given.at_least)):
        for one in changes:
            check_limit_is_named(kept, one, sign)
            fields: dict[str, Any] = {"bound": one.bound}
            if one.window is not None:
                more = {"zone": given.zone, "when_spent": given.when_spent}
                fields |= {key: x for key, x in more.items() if x is not None}
            counted: Any = {"per": one.window, "scope": one.scope, "where": one.where}
            new = Limit(costs.get(one.name, one.name), one.bound, sign, **counted)
            edited[new.key] = replace(edited.get(new.key, new), **fields)
    return list(edited.values())


def name_window(limit: "Limit") -> str:
    """A limit as --drop names it: "usd/day", "usd/month/tenant", "usd/request@icu,er"."""
    scope = "/tenant" if limit.scope else ""
    where = f"@{','.join(limit.where)}" if limit.where else ""
    return f"{limit.name}/{limit.per or 'request'}{scope}{where}"


def check_limit_is_named(limits: Sequence["Limit"], given: GivenBound, sign: int) -> None:
    """Refuse a bound that does not say what it is per if it could be meant for another limit."""
    from bylot.problem.window_bounds import name_request_cost

    known = [one for one in limits if (one.name, one.sign) == (given.name, sign)]
    exact = any(one.per is None and not one.where for one in known)
    if given.per is None and not given.where and known and not exact:
        name, bound = given.name, f"={given.bound:g}"
        ends = [name_window(one).removeprefix(name) for one in known]
        ways = [f"{name}{bound}{end}" for end in dict.fromkeys((*ends, "/request"))]
        words = [name_request_cost(one).removeprefix(f"{name} ") for one in known]
        words = words[:1] + [one.removeprefix("per ") for one in words[1:]]
        what = f"{name} is limited {join_words(words, 'and')}"
        raise ProblemError(what, remedy=f"write {join_words(ways, 'or')}")
