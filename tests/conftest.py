"""Fixtures that several test modules use, and the mark of the tests of research."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bylot.policies.catalog import POLICY_HOMES, POLICY_VARIANTS, RESEARCH
from postgres import postgres_address, postgres_server
from stores import address, open_store_again, store

if TYPE_CHECKING:
    from live_server import ServerClient

ROOT = Path(__file__).parent.parent
RESEARCH_FOLDERS = (ROOT / "tests" / "paper", ROOT / "src" / "bylot_paper")

__all__ = ["address", "open_store_again", "postgres_address", "postgres_server", "store"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["ServerClient"]:
    """One server with default settings, shared by all tests that need no server of their own."""
    from live_server import live_server

    with live_server(tmp_path_factory.mktemp("server")) as client:
        yield client


def is_research(item: pytest.Item) -> bool:
    """Return whether a test is about bylot_paper: by its place, or by a policy it is given."""
    if any(item.path.is_relative_to(folder) for folder in RESEARCH_FOLDERS):
        return True
    given = item.callspec.params if hasattr(item, "callspec") else {}
    names = [str(given.get("policy")).partition(":")[0], *str(given.get("name")).split(", ")]
    homes = [POLICY_HOMES.get(POLICY_VARIANTS.get(name, name)) for name in names]
    return any(isinstance(home, str) and home.startswith(RESEARCH) for home in homes)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of research, which `make test-paper` runs and `make test` does not."""
    for item in filter(is_research, items):
        item.add_marker("paper")
