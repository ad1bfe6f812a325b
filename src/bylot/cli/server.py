"""Options of the verbs that ask a server, and the client they mean."""

import argparse
import os
from typing import Any

CLIENT_RETRIES = 5  # fewer than programs make: somebody sits and waits
DEFAULT_SERVER = "http://127.0.0.1:8000"


def add_server_options(verb: argparse.ArgumentParser) -> None:
    """What all verbs that only ask a server take."""
    add_address_options(verb)
    verb.add_argument("--json", action="store_true", help="print JSON, nothing else")


def add_address_options(verb: argparse.ArgumentParser) -> None:
    """Where the server is, and the key to it."""
    verb.add_argument(
        "--server",
        metavar="URL",
        help=f"address of the server (default: $BYLOT_SERVER, or {DEFAULT_SERVER})",
    )
    verb.add_argument(
        "--key",
        help="as `bylot keys create` printed it (default: $BYLOT_KEY, which other users of this "
        "machine do not see; or none)",
    )


def connect_client(given: argparse.Namespace) -> Any:
    """The client that these options mean."""
    from bylot.client import Client

    return Client(
        given.server or os.environ.get("BYLOT_SERVER") or DEFAULT_SERVER,
        given.key or os.environ.get("BYLOT_KEY") or None,
        retries=CLIENT_RETRIES,
    )
