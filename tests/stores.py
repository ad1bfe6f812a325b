"""Stores to test with: the same tests for each kind, in a place of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bylot.store import Event, Store, open_store

Opener = Callable[[], Store]

KINDS = ("sqlite", "postgres")


def line(router: int, seq: int, kind: str = "decided", **more: object) -> Event:
    """A line of a log that says which one it is."""
    body = f"line {seq} of {router}".encode()
    return Event(router, seq, kind, None, None, seq, body, b"seal")._replace(**more)  # type: ignore[arg-type]


def made(store: Store, name: str = "a") -> int:
    """The number of a new router, whose log has line 0."""
    return store.create(name, 7, line(0, 0, "created")).number


def log(store: Store, router: int) -> list[Event]:
    """All of it."""
    return store.events(router, limit=1_000_000)


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for a store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/routers.db"
    return str(request.getfixturevalue("postgres_address"))


@pytest.fixture
def opened(address: str) -> Iterator[Opener]:
    """Opens the same place again and again, and closes all at the end."""
    stores: list[Store] = []

    def open_again() -> Store:
        stores.append(open_store(address))
        return stores[-1]

    yield open_again
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Opener) -> Store:
    """A new store."""
    return opened()
