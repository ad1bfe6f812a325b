"""`bylot reward ID VALUE`: how well a decision of a served router went."""

import argparse
import json
from typing import Any

from bylot.cli.server import add_server_options, connect_client


def add(verbs: Any) -> None:
    """The verb and its options."""
    verb = verbs.add_parser("reward", help="tell a served router how well a decision went")
    verb.add_argument("id", metavar="ID", help="of the decision, as it was printed")
    verb.add_argument("value", type=float, metavar="VALUE", help="in the router's range of rewards")
    verb.add_argument(
        "--spend",
        type=parse_named_amount,
        action="append",
        default=[],
        metavar="COST=AMOUNT",
        help="what the panel really cost; may be repeated (default: as stated in the problem)",
    )
    verb.add_argument(
        "--as", dest="under", metavar="NAME", help="which of several rewards of a decision it is"
    )
    add_server_options(verb)
    verb.set_defaults(run=run)


def parse_named_amount(text: str) -> tuple[str, float]:
    """A name and a number."""
    name, _, value = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} given; wanted COST=AMOUNT, such as usd=2.5")
    return name, float(value)


def run(given: argparse.Namespace) -> int:
    """Tell, print; 1 if there is no such decision."""
    from bylot.router.decision import Receipt

    name = given.id.partition(".")[0]
    with connect_client(given) as client:
        spend = dict(given.spend) or None
        receipt = client.router(name).reward(given.id, given.value, spend=spend, key=given.under)
    print(json.dumps({"decision": given.id, "receipt": receipt}) if given.json else receipt)
    return 1 if receipt is Receipt.UNKNOWN else 0
