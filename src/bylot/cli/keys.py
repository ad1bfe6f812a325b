"""`bylot keys create|list|revoke`: who may ask a server, straight in its store."""

import argparse
import json
from datetime import UTC, datetime
from typing import Any

from bylot.cli.store import add_store_option, explain_missing_extra
from bylot.eventlog import events

KEY_SCOPES = ("decide", "reward", "read", "admin")


def add(verbs: Any) -> None:
    """The verb and what it can do."""
    keys = verbs.add_parser("keys", help="make, list and revoke the keys of a server")
    kinds = keys.add_subparsers(title="what to do", metavar="WHAT", required=True)

    create = kinds.add_parser(
        "create",
        help="make a key, and print it once",
        description="Make a key. It is printed now and never again: the store has a digest of it. "
        "A server that runs knows it within a second; from then on it wants one of everybody.",
    )
    create.add_argument("label", metavar="LABEL", help="what it is for, such as triage-frontend")
    create.add_argument(
        "--scope",
        action="append",
        choices=KEY_SCOPES,
        help="what it is good for; may be repeated (default: all but admin, which makes, edits, "
        "deletes and reads routers)",
    )
    create.add_argument(
        "--router",
        action="append",
        default=[],
        metavar="NAME",
        help="for this router only; may be repeated (default: all)",
    )
    add_key_options(create)
    create.set_defaults(run=run_create)

    listing = kinds.add_parser("list", help="all keys, without their secrets")
    add_key_options(listing)
    listing.set_defaults(run=run_list)

    revoke = kinds.add_parser("revoke", help="a key that is none from now on")
    revoke.add_argument("id", metavar="ID", help="as `bylot keys list` tells it")
    add_key_options(revoke)
    revoke.set_defaults(run=run_revoke)


def add_key_options(verb: argparse.ArgumentParser) -> None:
    """What all of them take."""
    add_store_option(verb)
    verb.add_argument("--json", action="store_true", help="print one JSON object, nothing else")


def open_key_store(given: argparse.Namespace, *, make: bool = False) -> Any:
    """The store; make: a new one, if there is none."""
    from bylot.errors import BylotError

    with explain_missing_extra():
        from bylot.store import open_store, store_exists

    if not make and not store_exists(given.store):
        raise BylotError(
            f"there is no store {given.store}; give the --store of the server, "
            "or make the first key with `bylot keys create`"
        )
    return open_store(given.store)


def run_create(given: argparse.Namespace) -> int:
    """Make, keep, print."""
    with explain_missing_extra():
        from bylot.server.auth import issue_key

    scopes: Any = given.scope or KEY_SCOPES[:3]
    secret, key = issue_key(given.label, scopes, given.router, events.now_us())
    store = open_key_store(given, make=True)
    try:
        store.add_key(key)
    finally:
        store.close()
    if given.json:
        told = {"key": secret, "id": key.id, "scopes": key.scopes, "store": store.address}
        print(json.dumps(told))
    else:
        print(
            f"{secret}\n\nKeep it: it is not shown again. It may {', '.join(key.scopes)}, "
            f"at servers of {store.address}."
        )
    return 0


def run_list(given: argparse.Namespace) -> int:
    """Look, print."""
    from bylot._text import format_table

    store = open_key_store(given)
    try:
        keys = store.keys()
    finally:
        store.close()
    rows = [
        {
            "id": key.id,
            "label": key.label,
            "scopes": list(key.scopes),
            "routers": list(key.routers),
            "created": format_utc(key.created),
            "revoked": None if key.revoked is None else format_utc(key.revoked),
        }
        for key in keys
    ]
    if given.json:
        print(json.dumps({"keys": rows}))
    elif rows:
        head = tuple(rows[0])
        print(
            "\n".join(
                format_table([head, *(tuple(map(format_key_cell, row.values())) for row in rows)])
            )
        )
    else:
        print("no keys: a server answers to its own machine only")
    return 0


def run_revoke(given: argparse.Namespace) -> int:
    """Revoke, print; 1 if there is no such key."""
    from bylot.errors import BylotError

    store = open_key_store(given)
    try:
        if not store.revoke(given.id, events.now_us()):
            raise BylotError(f"there is no key {given.id!r}; `bylot keys list` has their ids")
    finally:
        store.close()
    print(json.dumps({"revoked": given.id}) if given.json else f"{given.id} is revoked")
    return 0


def format_utc(microseconds: int) -> str:
    """A time to the second, UTC."""
    return f"{datetime.fromtimestamp(microseconds // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def format_key_cell(cell: Any) -> str:
    """A cell of the table."""
    return " ".join(cell) or "all" if isinstance(cell, list) else cell or "-"
