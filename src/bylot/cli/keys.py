"""`bylot keys create|list|revoke`: who may ask a server, straight in its store."""

import argparse
import json
from datetime import UTC, datetime
from typing import Any

from bylot.cli.store import add_store, needing_serve
from bylot.durable import clock

SCOPES = ("decide", "reward", "read", "admin")


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
        choices=SCOPES,
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
    shared(create)
    create.set_defaults(run=run_create)

    listing = kinds.add_parser("list", help="all keys, without their secrets")
    shared(listing)
    listing.set_defaults(run=run_list)

    revoke = kinds.add_parser("revoke", help="a key that is none from now on")
    revoke.add_argument("id", metavar="ID", help="as `bylot keys list` tells it")
    shared(revoke)
    revoke.set_defaults(run=run_revoke)


def shared(verb: argparse.ArgumentParser) -> None:
    """What all of them take."""
    add_store(verb)
    verb.add_argument("--json", action="store_true", help="print one JSON object, nothing else")


def opened(given: argparse.Namespace, *, make: bool = False) -> Any:
    """The store; make: a new one, if there is none."""
    from bylot.errors import BylotError

    with needing_serve():
        from bylot.store import is_there, open_store

    if not make and not is_there(given.store):
        raise BylotError(
            f"there is no store {given.store}; give the --store of the server, "
            "or make the first key with `bylot keys create`"
        )
    return open_store(given.store)


def run_create(given: argparse.Namespace) -> int:
    """Make, keep, print."""
    with needing_serve():
        from bylot.service.credentials import issue

    scopes: Any = given.scope or SCOPES[:3]
    secret, key = issue(given.label, scopes, given.router, clock.now())
    store = opened(given, make=True)
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
    from bylot.text import table

    store = opened(given)
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
            "created": moment(key.created),
            "revoked": None if key.revoked is None else moment(key.revoked),
        }
        for key in keys
    ]
    if given.json:
        print(json.dumps({"keys": rows}))
    elif rows:
        head = tuple(rows[0])
        print("\n".join(table([head, *(tuple(map(said, row.values())) for row in rows)])))
    else:
        print("no keys: a server answers to its own machine only")
    return 0


def run_revoke(given: argparse.Namespace) -> int:
    """Revoke, print; 1 if there is no such key."""
    from bylot.errors import BylotError

    store = opened(given)
    try:
        if not store.revoke(given.id, clock.now()):
            raise BylotError(f"there is no key {given.id!r}; `bylot keys list` has their ids")
    finally:
        store.close()
    print(json.dumps({"revoked": given.id}) if given.json else f"{given.id} is revoked")
    return 0


def moment(microseconds: int) -> str:
    """A time to the second, UTC."""
    return f"{datetime.fromtimestamp(microseconds // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def said(cell: Any) -> str:
    """A cell of the table."""
    return " ".join(cell) or "all" if isinstance(cell, list) else cell or "-"
