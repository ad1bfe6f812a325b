"""`bylot keys create|list|revoke`: the API keys of a server, directly in its store."""

import argparse
import json
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bylot.cli.options import add_group, add_verb
from bylot.errors import BylotError

if TYPE_CHECKING:
    from bylot.store import Store

KEY_SCOPES = ("decide", "reward", "read", "admin")


def add(verbs: Any) -> None:
    """Add `keys` and its verbs."""
    kinds = add_group(verbs, "keys", "create, list and revoke API keys of a server")
    create = add_verb(
        kinds,
        "create",
        run_create_key,
        "create a key and print it once",
        "Create a key. It is printed once; the store keeps only a digest of it. A running server "
        "accepts it within a second, and from then on requires a key for every request.",
    )
    create.add_argument("label", metavar="LABEL", help="purpose of the key, e.g. triage-frontend")
    create.add_argument(
        "--scope",
        action="append",
        choices=KEY_SCOPES,
        help="what the key may do; repeatable (default: all but admin, which creates, edits and "
        "deletes routers)",
    )
    create.add_list(
        "--router", "NAME", "restrict the key to this router; repeatable (default: all routers)"
    )
    listing = add_verb(kinds, "list", run_list_keys, "list all keys, without their secrets")
    revoke = add_verb(kinds, "revoke", run_revoke_key, "revoke a key")
    revoke.add_argument("id", metavar="ID", help="id of the key, as shown by `bylot keys list`")
    for verb in (create, listing, revoke):
        verb.add_store()
        verb.add_json()


def open_key_store(given: argparse.Namespace, *, create: bool = False) -> "Store":
    """Open the store; `create` makes a new one if there is none."""
    from bylot.store import open_store, store_exists

    if not create and not store_exists(given.store):
        remedy = "give the --store of the server, or create the first key with `bylot keys create`"
        raise BylotError(f"no store at {given.store}", remedy=remedy)
    return open_store(given.store)


def run_create_key(given: argparse.Namespace) -> int:
    """Create, store and print a key."""
    from bylot.eventlog.events import now_us
    from bylot.server.auth import issue_key

    scopes: Any = given.scope or KEY_SCOPES[:3]
    secret, key = issue_key(given.label, scopes, given.router, now_us())
    with closing(open_key_store(given, create=True)) as store:
        store.add_key(key)
    if given.json:
        data = {"key": secret, "id": key.id, "scopes": key.scopes, "store": store.address}
        print(json.dumps(data))
    else:
        print(
            f"{secret}\n\nSave it now: it is not shown again. "
            f"Scopes: {', '.join(key.scopes)}; store: {store.address}"
        )
    return 0


def run_list_keys(given: argparse.Namespace) -> int:
    """List all keys."""
    from bylot._text import format_table

    with closing(open_key_store(given)) as store:
        keys = store.keys()
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
        cells = [[format_key_cell(cell) for cell in row.values()] for row in rows]
        print("\n".join(format_table([tuple(rows[0]), *cells])))
    else:
        print("no keys: the server accepts requests from its own machine only")
    return 0


def run_revoke_key(given: argparse.Namespace) -> int:
    """Revoke a key; 1 if it does not exist."""
    from bylot.eventlog.events import now_us

    with closing(open_key_store(given)) as store:
        if not store.revoke(given.id, now_us()):
            raise BylotError(f"no key {given.id!r}", remedy="see `bylot keys list`")
    print(json.dumps({"revoked": given.id}) if given.json else f"{given.id} is revoked")
    return 0


def format_utc(microseconds: int) -> str:
    """Format a time to the second, in UTC."""
    return f"{datetime.fromtimestamp(microseconds // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def format_key_cell(cell: Any) -> str:
    """Format a cell of the table of keys."""
    return " ".join(cell) or "all" if isinstance(cell, list) else cell or "-"
