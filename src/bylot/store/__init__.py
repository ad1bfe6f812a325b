"""Stores of event logs in SQLite and PostgreSQL: the only modules that use SQL."""

from pathlib import Path

from bylot.errors import UnsupportedStore, install_command
from bylot.store.protocol import EmptyDatabase, Store
from bylot.store.schema import (
    ApiKey,
    DecisionEvents,
    Event,
    RouterRow,
    Segment,
    ServerRow,
    Snapshot,
)
from bylot.store.sqlite import SqliteStore

SQLITE_PREFIX = "sqlite:///"
POSTGRES_PREFIXES = ("postgresql://", "postgres://")


def open_store(address: str, *, read_only: bool = False) -> Store:
    """Open a store, and create it if it does not exist; `read_only` refuses calls that write.

    UnsupportedStore if the URL names no supported store, or the store has an unsupported version.
    """
    if address.startswith(SQLITE_PREFIX):
        return SqliteStore(path_from_url(address), read_only=read_only)
    if address.startswith(POSTGRES_PREFIXES):
        try:
            from bylot.store.postgres import PostgresStore
        except ImportError as error:
            raise UnsupportedStore(
                f"a store at {POSTGRES_PREFIXES[0]}… needs psycopg ({error})",
                remedy=install_command("postgres"),
            ) from None
        return PostgresStore(address, read_only=read_only)
    raise make_unsupported_error(address)


def make_unsupported_error(address: str) -> UnsupportedStore:
    """The error about a URL of another kind; it shows the scheme only, as passwords may follow."""
    scheme, slashes, _ = address.partition("://")
    return UnsupportedStore(
        f"unsupported store URL scheme {scheme!r}" if slashes else "the store URL has no scheme",
        remedy="use sqlite:///routers.db for a relative path, sqlite:////srv/routers.db for an "
        "absolute one, or postgresql://user@host/database",
    )


def hide_password(address: str) -> str:
    """The URL without its password."""
    if address.startswith(SQLITE_PREFIX):
        return address
    if not address.startswith(POSTGRES_PREFIXES):
        raise make_unsupported_error(address)
    from bylot.store.postgres import format_postgres_url, parse_postgres_url

    return format_postgres_url(parse_postgres_url(address))


def store_exists(address: str) -> bool:
    """Whether a file exists; remote databases are assumed to exist, they are not contacted."""
    return not address.startswith(SQLITE_PREFIX) or path_from_url(address).exists()


def path_from_url(address: str) -> Path:
    """The file of a URL, taken literally: nothing is decoded."""
    name = address.removeprefix(SQLITE_PREFIX)
    if not name or name == ":memory:" or "\0" in name:
        raise UnsupportedStore(
            f"{address!r} names no file", remedy=f"use {SQLITE_PREFIX}routers.db"
        )
    return Path(name)


def find_store_folder(url: str) -> Path | None:
    """The folder of an SQLite file; None for a database.

    >>> find_store_folder("sqlite:////srv/routers.db")
    PosixPath('/srv')
    """
    return Path(url.removeprefix(SQLITE_PREFIX)).parent if url.startswith(SQLITE_PREFIX) else None


__all__ = [
    "ApiKey",
    "DecisionEvents",
    "EmptyDatabase",
    "Event",
    "RouterRow",
    "Segment",
    "ServerRow",
    "Snapshot",
    "Store",
    "find_store_folder",
    "hide_password",
    "open_store",
    "store_exists",
]
