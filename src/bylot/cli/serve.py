"""`bylot serve`: routers over HTTP, every decision and reward on disk before it is told."""

import argparse
from typing import Any

from bylot.cli.numbers import parse_positive
from bylot.cli.store import add_store_option, explain_missing_extra


def add(verbs: Any) -> None:
    """The verb and its options."""
    verb = verbs.add_parser(
        "serve",
        help="serve routers over HTTP, nothing lost if it is killed",
        description="Serve the routers of a store over HTTP, with a dashboard at /. Every decision "
        "and reward is on disk before it is answered, so the server may be killed at any time. "
        "Without keys (`bylot keys create`) it answers to this machine only.",
    )
    add_store_option(verb)
    verb.add_argument("--host", default="127.0.0.1", help="where to listen (default 127.0.0.1)")
    verb.add_argument(
        "--port",
        type=parse_port,
        default=8000,
        help="which port (default 8000; 0: one that is free, printed)",
    )
    verb.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="how much to say on standard error (default info; debug has a line for each request)",
    )
    verb.add_argument(
        "--rate",
        type=float,
        metavar="PER_SECOND",
        help="requests that each key may send in the long run (default: any number)",
    )
    verb.add_argument(
        "--burst",
        type=parse_positive,
        metavar="COUNT",
        help="requests that each key may send at once before --rate applies (default: those of two "
        "seconds, at least 10)",
    )
    verb.add_argument(
        "--commit",
        choices=["group", "each"],
        default="group",
        help="write what came in together in one transaction, or each request by itself "
        "(default group; no request is answered before it is on disk in either case)",
    )
    verb.set_defaults(run=run)


def parse_port(text: str) -> int:
    """The number of a port."""
    value = int(text)
    if not 0 <= value < 65_536:
        raise argparse.ArgumentTypeError(f"{text} given; wanted a number from 0 to 65,535")
    return value


def run(given: argparse.Namespace) -> int:
    """Serve until told to stop."""
    with explain_missing_extra():
        from bylot.server.lifecycle import run_server
        from bylot.server.state import ServerSettings

    fields = ("store", "host", "port", "log_level", "rate", "burst")
    asked = {name: getattr(given, name) for name in fields}
    run_server(ServerSettings(**asked, group=given.commit == "group"))
    return 0
