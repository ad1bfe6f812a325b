"""`bylot store migrate|compact`, `bylot router copy|import|export|verify`: no server is needed."""

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bylot.cli.options import (
    add_group,
    add_verb,
    explain_missing_extra,
    print_result,
    read_settings,
)
from bylot.errors import BylotError

if TYPE_CHECKING:
    from bylot.store import Store

NEW_NAME_HELP = "name of the new router"


def add(verbs: Any) -> None:
    places = add_group(verbs, "store", "look after the store of a server")
    migrate = add_verb(
        places,
        "migrate",
        run_migrate,
        "bring the tables of a store to the version of this bylot",
        "Bring the tables of a store to the version of this bylot, under a lock. A server does so "
        "when it starts. Nothing is done if there is nothing to do. Routers whose logs this "
        "version cannot replay are listed, with what can be taken over (docs/upgrade.md).",
    )
    migrate.add_flag(
        "--take-over",
        "begin these routers anew, with their configuration and what can be learned from their "
        "logs; make a backup and stop all servers before",
    )
    migrate.add_path("--out", "folder of the logs of routers that are taken over", ".")
    compact = add_verb(
        places,
        "compact",
        run_compact,
        "return free space of a store to the file system",
        "Return the space of dropped and deleted events to the file system. PostgreSQL does so "
        "while servers use the store, and needs some space for new indexes meanwhile. A file of "
        "SQLite is written again, and requests to its server wait meanwhile; a server with --keep "
        "shrinks its file by itself.",
    )
    for verb in (migrate, compact):
        verb.add_settings("store")
        verb.add_json()


def add_router_verbs(kinds: Any) -> None:
    copy = add_verb(
        kinds,
        "copy",
        run_copy,
        "copy a stored router with all that it has learned",
        "Copy a router to another name or to another store: its configuration, all that it has "
        "learned, and its ledger. Its log is not copied; that of the copy begins with this state. "
        "Open decisions stay with the original. Servers may keep running; one that uses the other "
        "store serves the copy at once.",
    )
    copy.add_argument("name", metavar="NAME", help="name of the router")
    copy.add_argument("new_name", metavar="NEW", help=NEW_NAME_HELP)
    copy.add_option("--to", "URL", "store of the copy (default: the same store)")
    bring = add_verb(
        kinds,
        "import",
        run_import,
        "create a stored router from a file of Router.save",
        "Create a stored router that continues one in memory, from a file of `Router.save`: what "
        "it has learned, and its ledger. Its open decisions are left out.",
    )
    bring.add_argument("new_name", metavar="NAME", help=NEW_NAME_HELP)
    bring.add_argument("file", type=Path, metavar="FILE", help="file of `Router.save`")
    export = add_verb(
        kinds,
        "export",
        run_export,
        "write the log of a stored router to Parquet files",
        "Write a Parquet file for each segment of a log that has ended; those that exist are not "
        "written again. Do so before they are dropped (`bylot serve --keep`). Each file contains "
        "what proves it. The server may keep running.",
    )
    export.add_argument("name", metavar="NAME", help="name of the router")
    export.add_path("--out", "folder of the files", "export")
    text = "also write the events since the last segment; the next export replaces their file"
    export.add_flag("--all", text)
    verify = add_verb(
        kinds,
        "verify",
        run_verify,
        "verify exported files of a log",
        "Verify that no event in the files of an export was changed, and that those of a router "
        "follow each other.",
    )
    verify.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="file, or folder")
    verify.add_json()
    for verb in (copy, bring, export):
        verb.add_settings("store")
        verb.add_json()


def open_existing(
    given: argparse.Namespace,
    url: str | None = None,
    *,
    read_only: bool = True,
    remedy: str = "give the URL of the store of a server, or start one on it first",
) -> "Store":
    """Open a store that must exist: that of the settings, or another one."""
    from bylot.store import hide_password, open_store, store_exists

    url = url or read_settings(given).settings.store
    if not store_exists(url):
        raise BylotError(f"no store at {hide_password(url)}", remedy=remedy)
    return open_store(url, read_only=read_only)


def run_migrate(given: argparse.Namespace) -> int:
    """Open the store to write, which migrates it; 1 if a router could not be taken over."""
    from bylot.eventlog.takeover import find_unloadable, take_over
    from bylot.store.schema import STORE_VERSION

    folder = Path(given.out) if given.take_over else None
    taken: dict[str, list[str]] = {}
    failed: dict[str, str] = {}
    with closing(open_existing(given, read_only=False)) as store:
        lines = [f"{store.address} has version {STORE_VERSION}"]
        for row, why in list(find_unloadable(store)):
            lines.append(f"{row.name} cannot be loaded: {why}")
            try:
                taken[row.name] = take_over(store, row, folder)
                head = "taken over:" if folder else "can be taken over:"
                lines += [f"  {head} {part}" for part in taken[row.name]]
            except BylotError as error:
                failed[row.name] = str(error)
                lines.append(f"  left as it is: {error}")
    if taken:
        lines.append("what was spent, open decisions, counters and averages are not taken over")
    if taken and not folder:
        lines.append("make a backup, stop all servers, and add --take-over")
    data = {"store": store.address, "version": STORE_VERSION}
    print_result(given, {**data, "routers": taken, "failed": failed}, "\n".join(lines))
    return 1 if failed and folder else 0


def run_compact(given: argparse.Namespace) -> None:
    with closing(open_existing(given, read_only=False)) as store:
        before = store.size()
        store.compact()
        after = store.size()
    print_result(
        given,
        {"store": store.address, "before": before, "after": after},
        f"{store.address}: {before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB after",
    )


def run_copy(given: argparse.Namespace) -> None:
    from bylot.eventlog.copies import copy_router

    with (
        closing(open_existing(given)) as source,
        closing(open_existing(given, given.to, read_only=False)) as target,
    ):
        row = copy_router(source, given.name, target, given.new_name)
        print_result(
            given,
            {"copied": given.name, "name": row.name, "store": target.address},
            f"{given.name} is copied to {row.name} in {target.address}",
        )


def run_import(given: argparse.Namespace) -> None:
    from bylot.eventlog.copies import import_router

    with closing(open_existing(given, read_only=False)) as target:
        row = import_router(given.file, target, given.new_name)
        print_result(
            given,
            {"imported": str(given.file), "name": row.name, "store": target.address},
            f"imported {given.file} as {row.name} in {target.address}",
        )


def run_export(given: argparse.Namespace) -> None:
    with explain_missing_extra("export"):
        from bylot.eventlog.export import export_router

    files = []
    with closing(open_existing(given)) as store:
        for path, events in export_router(store, given.name, given.out, everything=given.all):
            files.append({"file": str(path), "first": events.first, "last": events.last})
            if not given.json:
                print(f"{path}: events {events.first:,} to {events.last:,}")
    text = (
        f"{len(files)} file{'s' * (len(files) != 1)} in {given.out}"
        if files
        else f"no segment of {given.name} that has ended is kept; --all writes the events that are"
    )
    print_result(given, {"router": given.name, "files": files}, text)


def run_verify(given: argparse.Namespace) -> None:
    """Verify files; an error if one was changed."""
    with explain_missing_extra("export"):
        from bylot.eventlog.export import verify_files

    files = [
        file
        for path in given.paths
        for file in (path.glob("*.parquet") if path.is_dir() else [path])
    ]
    if not files:
        raise BylotError(f"no exported files in {', '.join(map(str, given.paths))}")
    found = verify_files(files)
    lines = [f"{name}: events {one.first:,} to {one.last:,}" for name, one in found.items()]
    print_result(
        given,
        {"verified": {name: {"first": one.first, "last": one.last} for name, one in found.items()}},
        "\n".join([*lines, f"{len(files)} files verified"]),
    )
