"""`bylot router create|list|show|edit|log|delete`: the routers of a server."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bylot.cli.amend import add_edit
from bylot.cli.numbers import parse_natural, parse_positive
from bylot.cli.policy import POLICY_HELP, format_policy
from bylot.cli.problem import add_experts_option
from bylot.cli.server import add_server_options, connect_client


def add(verbs: Any) -> None:
    """The verb and what it can do."""
    router = verbs.add_parser("router", help="make, list, show, edit and delete served routers")
    kinds = router.add_subparsers(title="what to do", metavar="WHAT", required=True)
    add_create(kinds)

    listing = kinds.add_parser("list", help="all routers of the server")
    add_server_options(listing)
    listing.set_defaults(run=run_list)

    show = kinds.add_parser("show", help="how a router stands: its limits, what it has learned")
    show.add_argument("name", metavar="NAME", help="the router")
    add_server_options(show)
    show.set_defaults(run=run_show)

    add_edit(kinds)

    log = kinds.add_parser("log", help="print its decisions and rewards, for `bylot evaluate`")
    log.add_argument("name", metavar="NAME", help="the router")
    add_server_options(log)
    log.set_defaults(run=run_log)

    delete = kinds.add_parser("delete", help="forget a router and all its decisions")
    delete.add_argument("name", metavar="NAME", help="the router")
    delete.add_argument("--yes", action="store_true", help="without which nothing is deleted")
    add_server_options(delete)
    delete.set_defaults(run=run_delete)


def add_create(kinds: Any) -> None:
    """Make a router, and on which terms."""
    create = kinds.add_parser("create", help="make a router of a problem file")
    create.add_argument("name", metavar="NAME", help="small letters, digits, - and _; at most 63")
    create.add_argument("file", type=Path, metavar="PROBLEM", help="a .yaml, .toml or .json file")
    add_experts_option(create)
    create.add_argument(
        "--policy", default="auto", help=f"which policy (default auto): {POLICY_HELP}"
    )
    create.add_argument(
        "--seed", type=parse_natural, default=0, help="of everything random (default 0)"
    )
    create.add_argument(
        "--horizon", type=parse_positive, help="decisions to come (default: nobody knows)"
    )
    create.add_argument(
        "--rewards",
        type=float,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="the range that rewards are given in (default: as in the file, or 0 1)",
    )
    create.add_argument(
        "--wait",
        type=float,
        metavar="SECONDS",
        help="within which a reward counts (default: as long as its decision is held)",
    )
    create.add_argument(
        "--default",
        type=float,
        metavar="VALUE",
        help="what counts as the reward if none came in that time (default: nothing is learned)",
    )
    create.add_argument(
        "--aggregate",
        choices=["earliest", "last", "sum"],
        default="earliest",
        help="which of several rewards of a decision counts (default earliest)",
    )
    create.add_argument(
        "--max-contexts",
        type=parse_positive,
        metavar="COUNT",
        help="contexts made when first seen, up to this many (default: 1000, or as many as the "
        "policy has room for)",
    )
    create.add_argument(
        "--memory",
        type=parse_positive,
        default=100_000,
        metavar="COUNT",
        help="decisions held for their rewards (default 100000)",
    )
    add_server_options(create)
    create.set_defaults(run=run_create)


def run_create(given: argparse.Namespace) -> int:
    """Read, send, print."""
    from bylot.policies import Auto, resolve_policy
    from bylot.policies.capacity import fill_auto_contexts
    from bylot.problem_files import read

    terms = ("seed", "horizon", "wait", "default", "aggregate", "max_contexts", "memory")
    file = read(given.file, given.experts)
    policy = fill_auto_contexts(given.policy, given.max_contexts or len(file.contexts) or None)
    with connect_client(given) as client:
        client.create(
            given.name,
            file.problem,
            policy,
            rewards=tuple(given.rewards or file.rewards),
            **{name: getattr(given, name) for name in terms},
        )
    plays = format_policy(resolve_policy(policy, file.problem))
    said = {"created": given.name, "policy": plays}
    auto = f"{given.policy}: " if isinstance(policy, Auto) else ""
    line = f"{given.name}: {file.problem.size} experts, policy {auto}{plays}"
    print(json.dumps(said) if given.json else line)
    return 0


def run_list(given: argparse.Namespace) -> int:
    """Ask, print."""
    from bylot._text import format_table

    head = ("name", "policy", "created")
    with connect_client(given) as client:
        rows = [
            (one.name, read_router_policy(client, one.name), one.created)
            for one in client.routers()
        ]
    if given.json:
        print(json.dumps({"routers": [dict(zip(head, row, strict=True)) for row in rows]}))
    else:
        print("\n".join(format_table([head, *rows])) if rows else "no routers yet")
    return 0


def read_router_policy(client: Any, name: str) -> str:
    """The policy of a router, by the first line of its log: no edit changes it, and routers that
    nobody asks need not be opened for a list.
    """
    import msgspec

    from bylot import policies
    from bylot.client import requests
    from bylot.client.decision_log import ConfigLine

    (first,) = client.send(requests.events_call(name, -1, limit=1)).events
    return format_policy(
        policies.policy_from_data(msgspec.json.decode(first.body, type=ConfigLine).terms.policy)
    )


def run_show(given: argparse.Namespace) -> int:
    """Ask, print."""
    from bylot.client import requests

    with connect_client(given) as client:
        if given.json:
            print(json.dumps(client.send(requests.view_call(given.name))))
            return 0
        router = client.router(given.name)
        terms, status = router.terms(), router.status()
    paused = f"; paused: {', '.join(terms.paused)}" if terms.paused else ""
    plays = format_policy(terms.policy)
    print(f"{given.name}, policy {plays}, version {terms.version} of its terms{paused}\n{status}")
    return 0


def run_log(given: argparse.Namespace) -> int:
    """Ask, print a line for each decision."""
    from bylot.client.decision_log import read_entries

    with connect_client(given) as client:
        for one in read_entries(client, given.name):
            print(one.line())
    return 0


def run_delete(given: argparse.Namespace) -> int:
    """Delete, if that is really meant."""
    if not given.yes:
        print(
            f"bylot: {given.name} and all its decisions would be gone; add --yes if that is meant",
            file=sys.stderr,
        )
        return 2
    with connect_client(given) as client:
        client.router(given.name).delete()
    print(json.dumps({"deleted": given.name}) if given.json else f"{given.name} is deleted")
    return 0
