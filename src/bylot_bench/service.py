"""What a durable request costs, next to the least that the same web server can do.

Every server is a process of its own, on loopback and a file in a temporary folder; CPU is what the
operating system has it down for, user and system together, so the disk's part is in it.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bylot._text import format_table, print_progress
from bylot.problem import Problem, at_most
from bylot.router.persistence import problem_to_data
from bylot.router.router import Router
from bylot_bench.http_load import LoadResult, drive_connections, format_post

SERVICE_EXPERTS = 10
DECIDE_REQUEST = format_post("/v1/routers/bench/decisions", b'{"context":"chest pain"}')
REQUEST_COUNT = 20_000
CONNECTION_COUNTS = (1, 16, 64)
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def make_service_problem() -> Problem:
    """Ten experts, three for each request, under one limit."""
    return Problem(
        experts=[f"expert-{n}" for n in range(SERVICE_EXPERTS)],
        costs={"usd": [1.0 + n / 5 for n in range(SERVICE_EXPERTS)]},
        limits=[at_most("usd", 5.5)],
        draws=3,
    )


class MeasuredServer:
    """A process that listens on a loopback port."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port, self.process = port, process

    def cpu(self) -> float:
        """Seconds of CPU so far, user and system."""
        fields = self.stat()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S

    def memory(self) -> int:
        """Resident bytes."""
        return int(self.stat()[21]) * os.sysconf("SC_PAGE_SIZE")

    def stat(self) -> list[str]:
        """What the system tells of the process, from its state on."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text()
        return text.rpartition(")")[2].split()


@contextmanager
def run_server_process(*line: str, ready: str) -> Iterator[MeasuredServer]:
    """A server for as long as it is needed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", *line, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_ready(f"http://127.0.0.1:{port}{ready}", process)
        yield MeasuredServer(port, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def wait_until_ready(url: str, process: subprocess.Popen[bytes], seconds: float = 60.0) -> None:
    """Wait until it answers."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} did not begin to answer")


def run_hello_server() -> Any:
    """Bare uvicorn."""
    line = ["uvicorn", "bylot_bench.http_load:app", "--no-access-log", "--log-level", "error"]
    return run_server_process(*line, ready="/")


@contextmanager
def run_bylot_server(*options: str) -> Iterator[MeasuredServer]:
    """`bylot serve` on a fresh SQLite file, with one router."""
    with tempfile.TemporaryDirectory() as folder:
        line = ["bylot", "serve", "--store", f"sqlite:///{folder}/bench.db", *options]
        with run_server_process(*line, ready="/readyz") as server:
            body = json.dumps(
                {"name": "bench", "problem": problem_to_data(make_service_problem())}
            ).encode()
            head = {"Content-Type": "application/json"}
            url = f"http://127.0.0.1:{server.port}/v1/routers"
            with urllib.request.urlopen(urllib.request.Request(url, body, head), timeout=120):
                yield server


def run(soak: float = 0.0) -> dict[str, Any]:
    """Everything in one run, so that ratios are of the same machine at the same time."""
    Router(make_service_problem())  # compiled once, here: the servers find it done
    print_progress("... hello, and durable requests at 64 connections")
    cpu, lost = measure_cpu()
    print_progress("... at 1, 16 and 64 connections")
    loads = [load_to_data(n, measure_throughput(n)) for n in CONNECTION_COUNTS]
    print_progress("... one commit for every request, for comparison")
    each = load_to_data(64, measure_throughput(64, "--commit", "each"))
    result: dict[str, Any] = {
        "cpu_us_per_request": cpu,
        "ratio_to_hello": {name: cpu[name] / cpu["hello"] for name in ("decide", "reward")},
        "load": loads,
        "commit_each": each,
        "lost": lost,
    }
    if soak:
        print_progress(f"... {soak:g} s at 64 connections, watching memory")
        result["soak"] = soak_server(soak)
    return result


def measure_cpu() -> tuple[dict[str, float], int]:
    """Microseconds of CPU for a hello, a decision and a reward, at 64 connections; and how many
    answers or acknowledged requests went missing.
    """
    with run_hello_server() as bare, run_bylot_server() as server:
        ids: list[str] = []
        turns: dict[str, list[float]] = {"hello": [], "decide": [], "reward": []}
        lost = 0
        for _ in range(3):  # in turns: whatever else the machine does is then shared
            first = len(ids)
            turns["hello"].append(
                measure_request_cpu(bare, repeat_request(format_post("/", b"{}")), b" 200 ")
            )
            turns["decide"].append(
                measure_request_cpu(server, repeat_request(DECIDE_REQUEST), b" 201 ", ids)
            )
            rewards = iter([format_reward(id_) for id_ in ids[first:]])
            turns["reward"].append(
                measure_request_cpu(server, partial(next, rewards, None), b" 200 ")
            )
            lost += REQUEST_COUNT - (len(ids) - first)
        with urllib.request.urlopen(
            f"http://127.0.0.1:{server.port}/v1/routers/bench/status"
        ) as answer:
            status = json.load(answer)
        lost += abs(status["decisions"] - len(ids)) + abs(status["rewards"] - len(ids))
    return {name: min(values) for name, values in turns.items()}, lost


def repeat_request(request: bytes) -> Callable[[], bytes | None]:
    """The same request, so many times."""
    several = iter([request] * REQUEST_COUNT)
    return lambda: next(several, None)


def format_reward(id_: str) -> bytes:
    """The request that tells a reward."""
    return format_post(f"/v1/decisions/{id_}/reward", b'{"value":0.5}')


def measure_request_cpu(
    server: MeasuredServer,
    following: Callable[[], bytes | None],
    status: bytes,
    ids: list[str] | None = None,
) -> float:
    """Microseconds of the server's CPU per request at 64 connections."""
    before = server.cpu()
    load = asyncio.run(drive_connections(server.port, 64, following, make_listener(status, ids)))
    if load.errors:
        raise RuntimeError(f"{load.errors} of {load.requests} answers were not{status.decode()}")
    return 1e6 * (server.cpu() - before) / load.requests


def make_listener(status: bytes, ids: list[str] | None) -> Callable[[bytes], bool]:
    """Checks the status of an answer, and keeps the ids of decisions."""

    def heard(answer: bytes) -> bool:
        if ids is not None and status in answer:
            ids.append(json.loads(answer.partition(b"\n")[2])["id"])
        return status in answer[:20]

    return heard


def measure_throughput(connections: int, *options: str) -> LoadResult:
    """Decisions and their rewards in turns, over so many connections."""
    count = REQUEST_COUNT if connections > 1 else REQUEST_COUNT // 10
    with run_bylot_server(*options) as server:
        return asyncio.run(drive_pairs(server.port, connections, count))


async def drive_pairs(port: int, connections: int, count: int, until: float = 0.0) -> LoadResult:
    """Decide, then reward what was decided: so many requests, or until a time."""
    waiting: list[str] = []
    sent = 0

    def following() -> bytes | None:
        nonlocal sent
        if (time.monotonic() >= until) if until else (sent >= count):
            return None
        sent += 1
        return format_reward(waiting.pop()) if waiting else DECIDE_REQUEST

    def heard(answer: bytes) -> bool:
        if b" 201 " in answer[:20]:
            waiting.append(json.loads(answer.partition(b"\n")[2])["id"])
            return True
        return b" 200 " in answer[:20]

    return await drive_connections(port, connections, following, heard)


def load_to_data(connections: int, load: LoadResult) -> dict[str, float]:
    """A load as plain data."""
    return {
        "connections": connections,
        "requests_per_s": load.requests / load.seconds,
        "p50_ms": load.p50_ms,
        "p99_ms": load.p99_ms,
        "errors": load.errors,
    }


def soak_server(seconds: float) -> dict[str, Any]:
    """Load for a long time; memory after the first tenth, and at the end."""
    with run_bylot_server() as server:
        samples: list[int] = []

        async def watched() -> LoadResult:
            until = time.monotonic() + seconds
            load = asyncio.create_task(drive_pairs(server.port, 64, 0, until))
            while not load.done():
                samples.append(server.memory())
                await asyncio.sleep(min(1.0, seconds / 20))
            return await load

        load = asyncio.run(watched())
    early, late = samples[len(samples) // 5], samples[-1]
    return load_to_data(64, load) | {
        "requests": load.requests,
        "seconds": load.seconds,
        "memory_mb": {"after_a_fifth": early / 2**20, "at_the_end": late / 2**20},
    }


def render(result: dict[str, Any]) -> str:
    """The result as tables."""
    cpu, ratio = result["cpu_us_per_request"], result["ratio_to_hello"]
    rows = [("CPU per request, 64 connections", "us", "/ hello")]
    rows += [(name, f"{us:.0f}", f"{ratio.get(name, 1):.2f}") for name, us in cpu.items()]
    lines = [*format_table(rows), ""]
    loads = [("decide and reward in turns", "requests/s", "p50 ms", "p99 ms")]
    loads += [format_load_row(f"connections: {one['connections']}", one) for one in result["load"]]
    loads.append(
        format_load_row("connections: 64, one commit for each request", result["commit_each"])
    )
    lines += [*format_table(loads), "", f"{result['lost']} lost"]
    if "soak" in result:
        soak = result["soak"]
        memory = soak["memory_mb"]
        lines.append(
            f"soak: {soak['requests']:,} requests in {soak['seconds']:.0f} s, "
            f"{soak['errors']} errors, {memory['after_a_fifth']:.0f} MB after a fifth of it, "
            f"{memory['at_the_end']:.0f} MB at the end"
        )
    return "\n".join(lines)


def format_load_row(name: str, one: dict[str, float]) -> tuple[str, str, str, str]:
    """A line of the table of loads."""
    return name, f"{one['requests_per_s']:,.0f}", f"{one['p50_ms']:.1f}", f"{one['p99_ms']:.1f}"
