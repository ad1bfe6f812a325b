"""Limits of a router as the command line writes them: "usd=500/day", "usd=20/month/tenant@icu"."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from bylot._scopes import SCOPE_NAMES
from bylot._text import join_words
from bylot._windows import WINDOW_NAMES
from bylot.cli import options
from bylot.errors import ProblemError

if TYPE_CHECKING:
    from bylot.problem import Limit

WHEN_SPENT = ["cheapest", "fewer", "refuse"]
BOUND_FORM = "COST=BOUND[/WINDOW[/tenant]][@CONTEXTS]"


class GivenBound(NamedTuple):
    """A bound as --at-most and --at-least give it.

    per:     as it is written; None if it is not said
    counted: the settings of its limit that say which requests count together
    """

    name: str
    bound: float
    per: str | None
    counted: dict[str, Any]


def parse_bound(text: str) -> GivenBound:
    """Parse a bound, what it is per, and which requests it counts.

    >>> tuple(parse_bound("usd=2.5")), tuple(parse_bound("usd=500/day"))
    (('usd', 2.5, None, {}), ('usd', 500.0, 'day', {'per': 'day'}))
    >>> parse_bound("usd=20/month/tenant@icu,er").counted
    {'per': 'month', 'scope': 'tenant', 'where': ('icu', 'er')}
    """
    amount, at, labels = text.partition("@")
    if at and "=" not in amount:  # a cost may be called gpu@night
        amount, labels = text, ""
    scope = next((name for name in SCOPE_NAMES if amount.endswith(f"/{name}")), None)
    rest, slash, per = amount.removesuffix(f"/{scope}").rpartition("/")
    if not slash or "=" in per:  # a cost may be called in/out
        rest, per = amount, ""
    if (per or scope) and per not in ("request", *WINDOW_NAMES):
        raise argparse.ArgumentTypeError(
            f"invalid value {text!r}: expected a bound per "
            f"{join_words(('request', *WINDOW_NAMES), 'or')}, and /tenant after a window for each "
            "tenant, as in usd=30/month/tenant"
        )
    said = {"per": per if per in WINDOW_NAMES else None, "scope": scope}
    where = tuple(options.parse_names(labels)) if labels else None
    counted = {name: x for name, x in {**said, "where": where}.items() if x is not None}
    return GivenBound(*options.parse_named_amount(rest), per or None, counted)


def edit_limits(limits: Sequence["Limit"], given: argparse.Namespace) -> list["Limit"]:
    """The limits of a router with the changes of --at-most, --at-least and --drop."""
    from bylot.problem.limits import LOWER, UPPER, Limit
    from bylot.problem.validation import suggest_known_name

    kept = [limit for limit in limits if not {limit.name, limit.path} & set(given.drop)]
    names = {name for limit in limits for name in (limit.name, limit.path)}
    for name in given.drop:
        if name not in names:
            raise ProblemError(
                f"--drop {name}: no such limit",
                remedy=suggest_known_name(name, sorted(names), "limits"),
            )
    edited = {limit.key: limit for limit in kept}
    costs = {limit.name: limit.cost for limit in limits}
    for sign, changes in ((UPPER, given.at_most), (LOWER, given.at_least)):
        for change in changes:
            check_limit_is_named(kept, change, sign)
            fields: dict[str, Any] = {"bound": change.bound}
            if "per" in change.counted:
                more = {"zone": given.zone, "when_spent": given.when_spent}
                fields |= {key: x for key, x in more.items() if x is not None}
            new = Limit(costs.get(change.name, change.name), change.bound, sign, **change.counted)
            edited[new.key] = replace(edited.get(new.key, new), **fields)
    return list(edited.values())


def check_limit_is_named(limits: Sequence["Limit"], given: GivenBound, sign: int) -> None:
    """Refuse a bound that does not say what it is per if it could be meant for another limit."""
    known = [limit for limit in limits if (limit.name, limit.sign) == (given.name, sign)]
    exact = any(limit.averages_all for limit in known)
    if given.per is None and not given.counted and known and not exact:
        name = given.name
        ends = [limit.path.removeprefix(name) for limit in known]
        ways = [f"{name}={given.bound:g}{end}" for end in dict.fromkeys((*ends, "/request"))]
        words = [limit.words.removeprefix(f"{name} ") for limit in known]
        words = words[:1] + [word.removeprefix("per ") for word in words[1:]]
        raise ProblemError(
            f"{name} is limited {join_words(words, 'and')}",
            remedy=f"write {join_words(ways, 'or')}",
        )
