"""`bylot replay NAME`: proof that a router's state is what its log adds up to."""

import argparse
import json
import sys
from typing import Any

from bylot.cli.store import add_store_option, explain_missing_extra


def add(verbs: Any) -> None:
    """The verb and its options."""
    verb = verbs.add_parser(
        "replay",
        help="play a stored router's log again: is every line what it was?",
        description="Play the log of a stored router again from its first line. Every decision, "
        "its odds and the state must come out the same to the last bit. Nothing is changed; the "
        "server may run meanwhile.",
    )
    verb.add_argument("name", metavar="NAME", help="the router")
    add_store_option(verb)
    verb.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    verb.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Play, print; 1 at the first difference."""
    with explain_missing_extra():
        from bylot.eventlog.audit import audit_router
        from bylot.store import open_store

    store = open_store(given.store, read_only=True)
    try:
        found = audit_router(store, given.name)
    finally:
        store.close()
    if given.json:
        print(json.dumps(found._asdict()))
    elif found.fault is None:
        print(f"{given.name}: {found.lines:,} lines, {found.decisions:,} decisions, all as logged")
        print(f"state {found.fingerprint}")
    if found.fault is not None:
        print(
            f"bylot: {given.name}: {found.lines:,} lines agree, then: {found.fault}",
            file=sys.stderr,
        )
    return 0 if found.fault is None else 1
