"""`bylot router edit NAME`: other limits, experts and times for a router that runs."""

import argparse
import json
from typing import Any

from bylot.cli.reward import parse_named_amount
from bylot.cli.server import add_server_options, connect_client


def add_edit(kinds: Any) -> None:
    """What can be changed."""
    edit = kinds.add_parser(
        "edit",
        help="change limits, experts and times while it runs",
        description="Change the terms of a router from its next decision on. The change is checked "
        "as a new problem would be, and is a line of the router's log.",
    )
    edit.add_argument("name", metavar="NAME", help="the router")
    for side in ("at-most", "at-least"):
        edit.add_argument(
            f"--{side}",
            type=parse_named_amount,
            action="append",
            default=[],
            metavar="COST=BOUND",
            help="another bound for a limit on this side, or a new limit on a cost",
        )
    edit.add_argument(
        "--drop", action="append", default=[], metavar="COST", help="all limits on a cost or share"
    )
    edit.add_argument(
        "--add",
        type=parse_expert,
        action="append",
        default=[],
        metavar="NAME:COST=AMOUNT,SHARE",
        help="an expert, with all its costs, and the shares that it is a member of",
    )
    for what, said in (
        ("remove", "an expert, for good"),
        ("pause", "an expert who is not to be asked for now"),
        ("resume", "a paused expert"),
    ):
        edit.add_argument(f"--{what}", action="append", default=[], metavar="EXPERT", help=said)
    edit.add_argument(
        "--wait", type=parse_optional_number, metavar="SECONDS|none", help="as of `create`"
    )
    edit.add_argument(
        "--default", type=parse_optional_number, metavar="VALUE|none", help="as of `create`"
    )
    edit.add_argument("--aggregate", choices=["earliest", "last", "sum"], help="as of `create`")
    add_server_options(edit)
    edit.set_defaults(run=run)


def parse_expert(text: str) -> dict[str, Any]:
    """An expert.

    >>> parse_expert("zoe:usd=2.5,junior=1,generalists")
    {'name': 'zoe', 'costs': {'usd': 2.5, 'junior': 1.0}, 'shares': ['generalists']}
    """
    name, _, rest = text.partition(":")
    parts = [part.strip() for part in rest.split(",") if part.strip()]
    return {
        "name": name,
        "costs": dict(parse_named_amount(part) for part in parts if "=" in part),
        "shares": [part for part in parts if "=" not in part],
    }


def parse_optional_number(text: str) -> tuple[float | None]:
    """A number or none; in a tuple, as a missing option is None too."""
    return (None if text == "none" else float(text),)


def run(given: argparse.Namespace) -> int:
    """Look, change, send; 1 if somebody else changed it in between."""
    with connect_client(given) as client:
        router = client.router(given.name)
        terms = router.terms()
        changes: dict[str, Any] = {
            name: getattr(given, name)
            for name in ("add", "remove", "pause", "resume", "aggregate")
            if getattr(given, name)
        }
        for name in ("wait", "default"):
            if getattr(given, name) is not None:
                (changes[name],) = getattr(given, name)
        if given.at_most or given.at_least or given.drop:
            changes["limits"] = edit_limits(terms.problem.limits, given)
        made = router.change(version=terms.version, **changes)
    said = {"name": given.name, "version": made.version}
    print(json.dumps(said) if given.json else f"{given.name}: version {made.version}")
    return 0


def edit_limits(limits: Any, given: argparse.Namespace) -> list[Any]:
    """The limits with other bounds, without those that are dropped, and with new ones."""
    from bylot.errors import ProblemError
    from bylot.problem import at_least, at_most
    from bylot.problem.validation import suggest_known_name

    known = [limit.name for limit in limits]
    for name in given.drop:
        if name not in known:
            raise ProblemError(
                f"--drop {name}: no such limit; {suggest_known_name(name, known, 'limits')}"
            )
    kept = [limit for limit in limits if limit.name not in given.drop]
    for made, wanted in ((at_most, given.at_most), (at_least, given.at_least)):
        for name, bound in wanted:
            new = made(name, bound)
            old = [n for n, one in enumerate(kept) if (one.name, one.sign) == (name, new.sign)]
            if old:
                kept[old[0]] = kept[old[0]].at(bound)
            else:
                kept.append(new)
    return kept
