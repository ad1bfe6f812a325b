"""Which store an address means."""

from pathlib import Path

from bylot.errors import UnsupportedStore, install_command
from bylot.store.protocol import Store
from bylot.store.sqlite import SqliteStore

SQLITE_PREFIX = "sqlite:///"
POSTGRES_PREFIXES = ("postgresql://", "postgres://")


def open_store(address: str, *, read_only: bool = False) -> Store:
    """The store at an address, made if there is none yet.

    sqlite:///relative.db, sqlite:////absolute/path.db or postgresql://user:password@host/database
    """
    if address.startswith(SQLITE_PREFIX):
        return SqliteStore(path_from_url(address), read_only=read_only)
    if address.startswith(POSTGRES_PREFIXES):
        try:
            from bylot.store.postgres import PostgresStore
        except ImportError as error:
            raise UnsupportedStore(
                f"a store at {POSTGRES_PREFIXES[0]}… needs psycopg ({error}); {install_command('postgres')}"
            ) from None
        return PostgresStore(address, read_only=read_only)
    scheme = address.split(":")[0]  # what follows may have a password in it
    raise UnsupportedStore(
        f"{scheme!r} names no kind of store; give sqlite:///routers.db for a file here, "
        "sqlite:////srv/routers.db for one elsewhere, or postgresql://user@host/database"
    )


def hide_password(address: str) -> str:
    """An address that may be shown to anybody: without its password."""
    if not address.startswith(POSTGRES_PREFIXES):
        return address
    from bylot.store.postgres import format_postgres_url, parse_postgres_url

    return format_postgres_url(parse_postgres_url(address))


def store_exists(address: str) -> bool:
    """Is there something to open? Of a database that is not asked, who knows: yes."""
    return not address.startswith(SQLITE_PREFIX) or path_from_url(address).exists()


def path_from_url(address: str) -> Path:
    """The file of an address, as it is written: nothing in it stands for something else."""
    name = address.removeprefix(SQLITE_PREFIX)
    if not name or name == ":memory:" or "\0" in name:
        raise UnsupportedStore(
            f"{address!r} names no file to keep things in; give {SQLITE_PREFIX}routers.db"
        )
    return Path(name)
