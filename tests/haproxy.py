"""HAProxy in front of servers: round robin, with a health check on /readyz."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
CHECK_INTERVAL_MS = 200
MAX_START_S = 10.0

needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")

DEFAULTS = f"""
global
    nbthread 1
    stats socket {{folder}}/haproxy.sock mode 600 level admin
defaults
    mode http
    timeout connect 1s
    timeout client 60s
    timeout server 60s
    timeout check 1s
    retries 3
    option redispatch 1
    option httpchk GET /readyz
    default-server inter {CHECK_INTERVAL_MS}ms fall 2 rise 1
"""


class Haproxy:
    """A balancer of servers, and for each server a port that leads to this one only.

    targets: their addresses as host:port
    key:     an API key that is added to all requests
    """

    def __init__(self, folder: Path, targets: Sequence[str], key: str | None = None) -> None:
        self.folder, self.ports = folder, find_free_ports(len(targets) + 1)
        self.url, *self.server_urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        more = f"    http-request set-header Authorization 'Bearer {key}'\n" if key else ""
        parts = [DEFAULTS.format(folder=folder)]
        servers = [f"    server s{n} {target}" for n, target in enumerate(targets)]
        checked = [f"{one} check" for one in servers]
        parts.append(make_listener("balanced", self.ports[0], more, checked))
        for n, port in enumerate(self.ports[1:]):
            parts.append(make_listener(f"only-s{n}", port, more, [servers[n]]))
        (folder / "haproxy.cfg").write_text("".join(parts))

    @property
    def port(self) -> int:
        """The port of the balancer."""
        return self.ports[0]

    def start(self) -> None:
        """Start it, and wait until it listens."""
        assert HAPROXY is not None
        command = [HAPROXY, "-db", "-f", str(self.folder / "haproxy.cfg")]
        with (self.folder / "haproxy.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + MAX_START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert self.process.poll() is None, (self.folder / "haproxy.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def make_listener(name: str, port: int, more: str, servers: Sequence[str]) -> str:
    lines = "\n".join(servers)
    return f"listen {name}\n    bind 127.0.0.1:{port}\n    balance roundrobin\n{more}{lines}\n"


def find_free_ports(count: int) -> list[int]:
    """Different ports of the loopback interface that are free now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


@contextmanager
def run_haproxy(folder: Path, targets: Sequence[str], key: str | None = None) -> Iterator[Haproxy]:
    """A balancer in front of servers, ended with the test."""
    balancer = Haproxy(folder, targets, key)
    balancer.start()
    try:
        yield balancer
    finally:
        balancer.stop()
