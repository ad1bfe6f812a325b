"""Two PostgreSQL servers: a primary and its synchronous standby, which can take its place."""

import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import LiteralString

import psycopg

from postgres import PostgresServer

SYNC_STATE_SQL: LiteralString = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
SETTLE_S = 30.0  # within which a standby is connected, and a promotion done


class PostgresPair:
    """A primary that acknowledges a commit once its standby has it too.

    A promotion takes three steps, as an operator or a tool does it: the old primary is made sure
    to be off, the standby is promoted, and the old primary is built again as a standby of the new
    one. The new primary does not wait for a standby until it has one.
    """

    def __init__(self, folder: Path, host: str, subnet: str) -> None:
        self.host, self.subnet = host, subnet
        self.primary, self.standby = (
            PostgresServer(make_folder(folder, name), (host, find_free_port(host)))
            for name in ("a", "b")
        )
        servers = (self.primary, self.standby)
        hosts = ",".join(f"{host}:{one.listen[1]}" for one in servers if one.listen)
        self.url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def start(self) -> None:
        """Create the primary and its standby."""
        self.primary.create()
        with (self.primary.folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {self.subnet} trust\nlocal replication all trust\n")
        self.primary.start()
        self.add_standby()

    def add_standby(self) -> None:
        """Copy the primary, and wait for the copy from then on."""
        data = self.standby.folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        source = ("-d", f"{self.primary.address}&application_name=standby")
        options = ("-R", "-X", "stream", "-c", "fast", "--no-sync")
        self.standby.run_program("pg_basebackup", *source, "-D", data, *options)
        with (data / "postgresql.auto.conf").open("a") as settings:
            settings.write("synchronous_standby_names = ''\n")  # for the time after its promotion
        self.standby.start()
        self.set_synchronous("*")
        self.wait_for(self.primary, SYNC_STATE_SQL)

    def set_synchronous(self, names: LiteralString) -> None:
        with psycopg.connect(self.primary.address, autocommit=True) as admin:
            admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            admin.execute("SELECT pg_reload_conf()")

    def wait_for(self, server: PostgresServer, query: LiteralString) -> None:
        """Wait until a query of a server returns a row."""
        deadline = time.monotonic() + SETTLE_S
        with psycopg.connect(server.address, autocommit=True) as admin:
            while admin.execute(query).fetchone() is None:
                assert time.monotonic() < deadline, query
                time.sleep(0.02)

    def promote(self) -> None:
        """Promote the standby; the primary is off or frozen."""
        self.standby.run_program("pg_ctl", "promote", "-w", "-D", self.standby.folder / "data")
        self.primary, self.standby = self.standby, self.primary

    def rebuild_standby(self) -> None:
        """Make the old primary, whose processes have ended, the standby of the new one."""
        assert self.standby.process is None
        self.add_standby()

    def stop(self) -> None:
        for server in (self.standby, self.primary):
            if server.process is not None:
                with suppress(ProcessLookupError):
                    server.kill()


def make_folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder


def find_free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


@contextmanager
def run_postgres_pair(
    host: str = "127.0.0.1", subnet: str = "127.0.0.1/32"
) -> Iterator[PostgresPair]:
    """A primary with a standby on an address of this machine, which accept a subnet."""
    # Short, as it is the path of a socket
    folder = Path(tempfile.mkdtemp(prefix="bylot-pair-"))
    folder.chmod(0o755)
    pair = PostgresPair(folder, host, subnet)
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
        shutil.rmtree(folder, ignore_errors=True)
