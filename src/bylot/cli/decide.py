"""`bylot decide NAME`: one panel of a served router."""

import argparse
import json
import math
from typing import Any

from bylot.cli.server import add_server_options, connect_client


def add(verbs: Any) -> None:
    """The verb and its options."""
    verb = verbs.add_parser("decide", help="ask a served router for a panel")
    verb.add_argument("name", metavar="NAME", help="the router")
    verb.add_argument("--context", help="what kind of request it is (default: none)")
    verb.add_argument(
        "--available",
        metavar="EXPERTS",
        type=lambda text: [name.strip() for name in text.split(",")],
        help="those that are up, with commas (default: all)",
    )
    verb.add_argument(
        "--as",
        dest="under",
        metavar="NAME",
        help="your own name for the decision: asked again, it is the same one",
    )
    verb.add_argument(
        "--defer",
        action="store_true",
        help="it may come to nothing: the time for its reward begins when it is activated",
    )
    add_server_options(verb)
    verb.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Ask, print."""
    with connect_client(given) as client:
        router = client.router(given.name)
        made = router.decide(given.context, given.available, key=given.under, defer=given.defer)
    if given.json:
        expected = {name: nan_to_none(cost) for name, cost in made.expected.items()}
        print(json.dumps({**made._asdict(), "expected": expected}))
    else:
        spend = "".join(f"; {name} {cost:.4g}" for name, cost in made.spend.items())
        print(f"{made.id}  {', '.join(made.subset)}")
        chance = f"{made.chance:.4g}" if made.chance else "not told"
        print(f"chance {chance}{spend}")
    return 0


def nan_to_none(cost: float) -> float | None:
    """A number that JSON knows."""
    return None if math.isnan(cost) else cost
