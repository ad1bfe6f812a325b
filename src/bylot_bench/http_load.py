"""Server processes on loopback, and load on them: many connections with one request in flight each.

Requests are written and answers parsed by hand: a client library would use more CPU than the server
that is being measured.
"""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

STOP_TIMEOUT_S = 60.0
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
AsgiMessage = MutableMapping[str, Any]
HELLO_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"5")],
}


async def hello_app(
    scope: AsgiMessage,
    receive: Callable[[], Awaitable[AsgiMessage]],
    send: Callable[[AsgiMessage], Awaitable[None]],
) -> None:
    """The least that uvicorn can do, as a baseline: read the request, answer hello."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send(HELLO_START)
    await send({"type": "http.response.body", "body": b"hello"})


class ServerProcess:
    """`python -m COMMAND --port PORT` on a free loopback port; it can be killed and restarted.

    ready: path that answers once the server is up; log: file for its output; executable: what runs
    the command, if it is not this Python
    """

    start_timeout_s = 300.0  # a server may have to compile first

    def __init__(
        self,
        *command: str,
        ready: str = "/readyz",
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
        executable: tuple[str, ...] = (sys.executable, "-m"),
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = [*executable, *command, "--port", str(self.port)]
        self.ready, self.log, self.environment = f"{self.url}{ready}", log, environment
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def start(self) -> None:
        with open(self.log or os.devnull, "ab") as output:
            self.process = subprocess.Popen(
                self.command, stdout=output, stderr=output, env=self.environment
            )
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def wait_until_ready(self) -> None:
        end = time.monotonic() + self.start_timeout_s
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen(self.ready, timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"{' '.join(self.command)} did not start; see {self.log or '--log'}")

    def kill(self) -> None:
        """Kill it at once (SIGKILL)."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to stop (SIGTERM); return its exit code."""
        self.process.terminate()
        return self.process.wait(STOP_TIMEOUT_S)

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path) as answer:
            return json.load(answer)

    def post(self, path: str, body: Any) -> None:
        """POST a JSON document; raise unless it succeeds."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=120).close()

    def cpu(self) -> float:
        """Seconds of CPU used so far, user and system."""
        return sum(map(int, read_process_stat(self.process.pid)[11:13])) / CLOCK_TICKS_PER_S

    def memory(self) -> int:
        return int(read_process_stat(self.process.pid)[21]) * os.sysconf("SC_PAGE_SIZE")


def read_process_stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name of the command."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


class AnnouncedServer(ServerProcess):
    """A server that the other servers of its store know by its URL."""

    def start(self) -> None:
        if "--advertise" not in self.command:
            self.command += ["--advertise", self.url]
        super().start()


class LoadResult(NamedTuple):
    connections: int
    requests: int
    seconds: float
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    errors: int  # answers that were not as expected


def format_post(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def drive_connections(
    port: int,
    connections: int,
    next_request: Callable[[], bytes | None],
    is_expected: Callable[[bytes], bool],
) -> LoadResult:
    """Send requests over all connections until there is no next one.

    is_expected: judges an answer, given as its status line and body
    """
    latencies: list[float] = []
    errors = 0

    async def drive_one() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (request := next_request()) is not None:
            start = time.perf_counter()
            writer.write(request)
            answer = await read_answer(reader)
            latencies.append(time.perf_counter() - start)
            errors += not is_expected(answer)
        writer.close()
        await writer.wait_closed()

    began = time.perf_counter()
    await asyncio.gather(*(drive_one() for _ in range(connections)))
    seconds = time.perf_counter() - began
    p50, p99 = (1e3 * np.percentile(latencies, [50, 99])).tolist()
    count = len(latencies)
    return LoadResult(connections, count, seconds, count / seconds, p50, p99, errors)


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """Read the status line and the body of one answer."""
    status, _, fields = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
    size = re.search(rb"content-length:(.*)", fields, re.IGNORECASE)
    return status + b"\n" + await reader.readexactly(int(size[1]) if size else 0)


def make_answer_check(status: bytes, ids: list[str] | None = None) -> Callable[[bytes], bool]:
    """Make a check of the status of answers that also collects the ids of decisions."""

    def is_expected(answer: bytes) -> bool:
        if ids is not None and status in answer:
            ids.append(json.loads(answer.partition(b"\n")[2])["id"])
        return status in answer[:20]

    return is_expected


def measure_request_cpu(
    server: ServerProcess,
    requests: Iterable[bytes],
    connections: int,
    status: bytes = b" 200 ",
    ids: list[str] | None = None,
) -> float:
    """Seconds of the server's CPU per request; raise if an answer has another status.

    ids: to collect those of decisions
    """
    before = server.cpu()
    left = iter(requests)
    check = make_answer_check(status, ids)
    load = asyncio.run(drive_connections(server.port, connections, lambda: next(left, None), check))
    if load.errors:
        raise RuntimeError(f"{load.errors} of {load.requests} answers were not{status.decode()}")
    return (server.cpu() - before) / load.requests


def make_traffic(
    names: Sequence[str], goes_on: Callable[[], bool]
) -> tuple[Callable[[], bytes | None], Callable[[bytes], bool]]:
    """Return decisions of routers in turns, the reward of each, and the check of the answers."""
    ids: list[str] = []
    is_decision = make_answer_check(b" 201 ", ids)
    is_reward = make_answer_check(b" 200 ")
    decides = cycle(map(format_decide, names))

    def next_request() -> bytes | None:
        if not goes_on():
            return None
        return format_reward(ids.pop()) if ids else next(decides)

    return next_request, lambda answer: is_decision(answer) or is_reward(answer)


def count_down(count: int) -> Callable[[], bool]:
    """Return a function that is true for so many calls."""
    left = iter(range(count))
    return lambda: next(left, None) is not None


def format_decide(name: str) -> bytes:
    return format_post(f"/v1/routers/{name}/decisions", b'{"context":"chest pain"}')


def format_reward(id: str) -> bytes:
    return format_post(f"/v1/decisions/{id}/reward", b'{"value":0.5}')
