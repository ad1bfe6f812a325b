"""A real server in a process of its own."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCES = str(Path(__file__).parent.parent / "src")
LONG = 120.0  # seconds: a machine that has to compile meanwhile is slow


class ServerProcess:
    """`bylot serve` on a store; it can be killed, and started again where it was."""

    def __init__(self, store: str) -> None:
        self.store, self.port = store, free_port()
        self.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it is there."""
        words = ["serve", "--store", self.store, "--port", str(self.port), "--log-level", "warning"]
        paths = os.pathsep.join([SOURCES, os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bylot", *words], env={**os.environ, "PYTHONPATH": paths}
        )
        end = time.monotonic() + LONG
        while not self.ready():
            assert self.process.poll() is None, "the server ended"
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.05)

    def ready(self) -> bool:
        """Does it answer?"""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=1):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """As one should."""
        self.process.terminate()
        self.process.wait(LONG)


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def started(store: str) -> Iterator[ServerProcess]:
    """A server, for a while."""
    server = ServerProcess(store)
    try:
        yield server
    finally:
        server.stop()
