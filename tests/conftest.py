"""Fixtures that several test modules use."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from postgres import postgres_address, postgres_server
from stores import address, open_store_again, store

if TYPE_CHECKING:
    from live_server import ServerClient

__all__ = ["address", "open_store_again", "postgres_address", "postgres_server", "store"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["ServerClient"]:
    """One server with default settings, shared by all tests that need no server of their own."""
    from live_server import live_server

    with live_server(tmp_path_factory.mktemp("server")) as client:
        yield client
