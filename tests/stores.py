"""Fixtures of stores: the same tests run on each kind, at a new address."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from bylot.store import Event, Store, open_store

Opener = Callable[[], Store]

KINDS = ("sqlite", "postgres")


def make_event(router: int, seq: int, kind: str = "decided", **fields: object) -> Event:
    """An event whose body says which one it is."""
    body = f"event {seq} of {router}".encode()
    return Event(router, seq, kind, None, None, seq, body, b"hash")._replace(**fields)  # type: ignore[arg-type]


def create_router(store: Store, name: str = "a") -> int:
    """Create a router, whose log has event 0, and return its number."""
    return store.create(name, 7, make_event(0, 0, "created")).number


def read_log(store: Store, router: int) -> list[Event]:
    """The whole log of a router."""
    return store.events(router, limit=1_000_000)


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/routers.db"
    return str(request.getfixturevalue("postgres_address"))


@pytest.fixture
def open_store_again(address: str) -> Iterator[Opener]:
    """Opens a store at the same address; all are closed at the end."""
    stores: list[Store] = []

    def open_one() -> Store:
        stores.append(open_store(address))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(open_store_again: Opener) -> Store:
    """A new store."""
    return open_store_again()


def execute_statements(address: str, *statements: str) -> None:
    """Execute statements directly in the database."""
    if address.startswith("sqlite"):
        db = sqlite3.connect(address.removeprefix("sqlite:///"), isolation_level=None)
        for statement in statements:
            db.execute(statement)
        db.close()
    else:
        with psycopg.connect(address, autocommit=True) as server:
            for statement in statements:
                server.execute(statement)
