"""`bylot serve`, `replay` and `keys`: run a server, verify a log, manage keys."""

import argparse
import json
import sys
from contextlib import closing
from typing import Any

from bylot.cli import options
from bylot.cli.stores import open_existing
from bylot.errors import BylotError
from bylot.server.settings import DEFAULT_SCOPES, SCOPES, SETTINGS

KEY_STORE_REMEDY = (
    "give the --store of the server, or create the first key with `bylot keys create`"
)


def add(verbs: Any) -> None:
    serve = options.add_verb(
        verbs,
        "serve",
        run_serve,
        "serve routers over HTTP; survives being killed",
        "Serve the routers of a store over HTTP, with a dashboard at /. Every decision and reward "
        "is on disk before it is answered, so the server can be killed at any time. Without API "
        "keys (`bylot keys create`) it accepts requests from this machine only.",
    )
    serve.add_settings(*SETTINGS)
    serve.add_flag(
        "--check",
        "print what a start would change in the store, the models, and each setting with its "
        "origin, and exit; 1 if the server would not start",
    )
    replay = options.add_verb(
        verbs,
        "replay",
        run_replay,
        "replay a stored router's log and verify every event",
        "Replay the log of a stored router, from its first event or, if that was dropped, from the "
        "oldest snapshot. Every decision, its propensity "
        "and the state must be equal to the last bit. Nothing is written, and the server may keep "
        "running.",
    )
    replay.add_argument("name", metavar="NAME", help="name of the router")
    kinds = options.add_group(verbs, "keys", "create, list and revoke API keys of a server")
    create = options.add_verb(
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
        choices=SCOPES,
        help="what the key may do; repeatable (default: all but admin, which creates, edits and "
        "deletes routers)",
    )
    create.add_list(
        "--router", "NAME", "restrict the key to this router; repeatable (default: all routers)"
    )
    create.add_flag(
        "--for-config",
        "do not store the key; print it, and the table of a configuration file that declares it",
    )
    listing = options.add_verb(kinds, "list", run_list_keys, "list all keys, without their secrets")
    revoke = options.add_verb(kinds, "revoke", run_revoke_key, "revoke a key")
    revoke.add_argument("id", metavar="ID", help="id of the key, as shown by `bylot keys list`")
    for verb in (replay, create, listing, revoke):
        verb.add_settings("store")
        verb.add_json()


def run_serve(given: argparse.Namespace) -> int:
    with options.explain_missing_extra("serve"):
        from bylot.server.app import run_server

    loaded = options.read_settings(given)
    for warning in loaded.warnings:
        print(f"bylot: warning: {warning}", file=sys.stderr)
    if not given.check:
        return run_server(loaded.settings)
    from bylot.server.check_report import check_start

    with options.explain_missing_extra("postgres"):
        report = check_start(loaded)
    print("\n".join(report.lines))
    for warning in report.warnings:
        print(f"bylot: warning: {warning}", file=sys.stderr)
    for error in report.errors:
        print(f"bylot: {error}", file=sys.stderr)
    return 1 if report.errors else 0


def run_replay(given: argparse.Namespace) -> int:
    """Replay a log; 1 at the first difference."""
    from bylot.eventlog.audit import audit_router
    from bylot.store import open_store

    with closing(open_store(options.read_settings(given).settings.store, read_only=True)) as store:
        found = audit_router(store, given.name)
    counts = f"{given.name}: {found.events:,} events"
    counts += f" from number {found.first:,} on" if found.first else ""
    if given.json or found.fault is None:
        options.print_result(
            given,
            found._asdict(),
            f"{counts}, {found.decisions:,} decisions, all verified\nstate {found.fingerprint}",
        )
    if found.fault is not None:
        print(f"bylot: {counts} verified, then: {found.fault}", file=sys.stderr)
    return 0 if found.fault is None else 1


def run_create_key(given: argparse.Namespace) -> None:
    from bylot.eventlog.events import now_us
    from bylot.server.auth import issue_key
    from bylot.store import open_store

    scopes: Any = given.scope or DEFAULT_SCOPES
    secret, key = issue_key(given.label, scopes, given.router, now_us())
    if given.for_config:
        routers = f"\nrouters = {json.dumps(given.router)}" if given.router else ""
        text = (
            f"{secret}\n\n[keys.{json.dumps(given.label)}]\n"
            f'digest = "{key.id}:{key.digest.hex()}"\nscopes = {json.dumps(scopes)}{routers}'
        )
        options.print_result(given, {"key": secret, "id": key.id, "digest": key.digest.hex()}, text)
        return
    with closing(open_store(options.read_settings(given).settings.store)) as store:
        store.add_key(key)
    facts = f"Scopes: {', '.join(key.scopes)}; store: {store.address}"
    options.print_result(
        given,
        {"key": secret, "id": key.id, "scopes": key.scopes, "store": store.address},
        f"{secret}\n\nSave it now: it is not shown again. {facts}",
    )


def run_list_keys(given: argparse.Namespace) -> None:
    from bylot._text import format_table
    from bylot.eventlog.events import format_timestamp

    with closing(open_existing(given, read_only=False, remedy=KEY_STORE_REMEDY)) as store:
        keys = store.keys()
    rows: list[dict[str, Any]] = [key._asdict() for key in keys]
    for row in rows:
        del row["digest"]
        for name in ("created", "revoked"):
            row[name] = None if row[name] is None else format_timestamp(row[name])
    declared = list(options.read_settings(given).settings.keys)
    text = (
        "no keys in the store"
        if declared
        else "no keys: the server accepts requests from its own machine only"
    )
    if rows:
        cells = [
            [" ".join(cell) or "all" if isinstance(cell, tuple) else cell or "-" for cell in values]
            for values in (row.values() for row in rows)
        ]
        text = "\n".join(format_table([tuple(rows[0]), *cells]))
    if declared:
        text = f"{text}\ndeclared in the configuration: {', '.join(declared)}"
    options.print_result(given, {"keys": rows, "declared": declared}, text)


def run_revoke_key(given: argparse.Namespace) -> None:
    """Revoke a key, or raise if it does not exist."""
    from bylot.eventlog.events import now_us

    with closing(open_existing(given, read_only=False, remedy=KEY_STORE_REMEDY)) as store:
        if not store.revoke(given.id, now_us()):
            raise BylotError(f"no key {given.id!r}", remedy="see `bylot keys list`")
    options.print_result(given, {"revoked": given.id}, f"{given.id} is revoked")
