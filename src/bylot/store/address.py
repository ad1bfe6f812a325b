"""Which store an address means."""

from pathlib import Path

from bylot.errors import StoreUnknown
from bylot.extras import install
from bylot.store.contract import Store
from bylot.store.sqlite import SqliteStore

FILE = "sqlite:///"
SERVER = ("postgresql://", "postgres://")


def open_store(address: str, *, read_only: bool = False) -> Store:
    """The store at an address, made if there is none yet.

    sqlite:///relative.db, sqlite:////absolute/path.db or postgresql://user:password@host/database
    """
    if address.startswith(FILE):
        return SqliteStore(path_of(address), read_only=read_only)
    if address.startswith(SERVER):
        try:
            from bylot.store.postgres import PostgresStore
        except ImportError as error:
            raise StoreUnknown(
                f"a store at {SERVER[0]}… needs psycopg ({error}); {install('postgres')}"
            ) from None
        return PostgresStore(address, read_only=read_only)
    scheme = address.split(":")[0]  # what follows may have a password in it
    raise StoreUnknown(
        f"{scheme!r} names no kind of store; give sqlite:///routers.db for a file here, "
        "sqlite:////srv/routers.db for one elsewhere, or postgresql://user@host/database"
    )


def shown(address: str) -> str:
    """An address that may be shown to anybody: without its password."""
    if not address.startswith(SERVER):
        return address
    from bylot.store.postgres import parts, plain

    return plain(parts(address))


def is_there(address: str) -> bool:
    """Is there something to open? Of a database that is not asked, who knows: yes."""
    return not address.startswith(FILE) or path_of(address).exists()


def path_of(address: str) -> Path:
    """The file of an address, as it is written: nothing in it stands for something else."""
    name = address.removeprefix(FILE)
    if not name or name == ":memory:" or "\0" in name:
        raise StoreUnknown(f"{address!r} names no file to keep things in; give {FILE}routers.db")
    return Path(name)
