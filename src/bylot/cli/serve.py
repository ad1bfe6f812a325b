"""`bylot serve` and `bylot replay`: run a server, and verify the log of a stored router."""

import argparse
import json
import sys
from contextlib import closing
from typing import Any

from bylot.cli.options import add_verb, explain_missing_extra, parse_port


def add(verbs: Any) -> None:
    """Add `serve` and `replay`."""
    serve = add_verb(
        verbs,
        "serve",
        run_serve,
        "serve routers over HTTP; survives being killed",
        "Serve the routers of a store over HTTP, with a dashboard at /. Every decision and reward "
        "is on disk before it is answered, so the server can be killed at any time. Without API "
        "keys (`bylot keys create`) it accepts requests from this machine only.",
    )
    serve.add_store()
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on")
    serve.add_argument(
        "--port", type=parse_port, default=8000, help="port to listen on; 0 picks a free one"
    )
    serve.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="amount of logging on standard error; debug logs every request",
    )
    serve.add_argument(
        "--rate", type=float, help="requests per second and key, in the long run (default: any)"
    )
    serve.add_count(
        "--burst",
        None,
        "requests per key at once before --rate applies (default: 2 seconds' worth, at least 10)",
    )
    serve.add_choice(
        "--commit",
        ["group", "each"],
        "commit concurrent requests in one transaction, or each in its own; every request is "
        "on disk before it is answered either way",
    )
    replay = add_verb(
        verbs,
        "replay",
        run_replay,
        "replay a stored router's log and verify every event",
        "Replay the log of a stored router from its first event. Every decision, its propensity "
        "and the state must be equal to the last bit. Nothing is written, and the server may keep "
        "running.",
    )
    replay.add_argument("name", metavar="NAME", help="name of the router")
    replay.add_store()
    replay.add_json()


def run_serve(given: argparse.Namespace) -> int:
    """Serve until interrupted."""
    with explain_missing_extra("serve"):
        from bylot.server.lifecycle import run_server
        from bylot.server.state import ServerSettings

    names = ("store", "host", "port", "log_level", "rate", "burst")
    options = {name: getattr(given, name) for name in names}
    run_server(ServerSettings(**options, group_commit=given.commit == "group"))
    return 0


def run_replay(given: argparse.Namespace) -> int:
    """Replay a log; 1 at the first difference."""
    from bylot.eventlog.audit import audit_router
    from bylot.store import open_store

    with closing(open_store(given.store, read_only=True)) as store:
        found = audit_router(store, given.name)
    if given.json:
        print(json.dumps(found._asdict()))
    elif found.fault is None:
        print(f"{given.name}: {found.events:,} events, {found.decisions:,} decisions, all verified")
        print(f"state {found.fingerprint}")
    if found.fault is not None:
        text = f"{given.name}: {found.events:,} events verified, then: {found.fault}"
        print(f"bylot: {text}", file=sys.stderr)
    return 0 if found.fault is None else 1
