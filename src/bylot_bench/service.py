"""CPU and latency of durable requests, against the least that the same web server can do.

Every server is a separate process on loopback with a file in a temporary folder. CPU is user and
system time of the process, so it includes the disk's part.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bylot._text import format_table, print_progress
from bylot.router.config import problem_to_data
from bylot.router.router import Router
from bylot_bench.http_load import (
    LoadResult,
    ServerProcess,
    count_down,
    drive_connections,
    format_decide,
    format_post,
    format_reward,
    make_traffic,
    measure_request_cpu,
)
from bylot_bench.stored_log import make_service_problem

REQUEST_COUNT = 20_000


@contextmanager
def run_bylot_server(*options: str) -> Iterator[ServerProcess]:
    """Run `bylot serve` on a fresh SQLite file with one router."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(
            "bylot", "serve", "--store", f"sqlite:///{folder}/bench.db", *options
        ) as server,
    ):
        problem = problem_to_data(make_service_problem())
        server.post("/v1/routers", {"name": "bench", "problem": problem})
        yield server


def run(soak: float = 0.0) -> dict[str, Any]:
    """Measure everything in one run, so that ratios are of the same machine at the same time."""
    Router(make_service_problem())  # compile once, here: the servers use the cache
    print_progress("... hello, and durable requests at 64 connections")
    cpu, lost = measure_cpu()
    print_progress("... at 1, 16 and 64 connections")
    loads = [measure_throughput(n)._asdict() for n in (1, 16, 64)]
    print_progress("... one commit per request, for comparison")
    result: dict[str, Any] = {
        "cpu_us_per_request": cpu,
        "ratio_to_hello": {name: cpu[name] / cpu["hello"] for name in ("decide", "reward")},
        "load": loads,
        "commit_each": measure_throughput(64, "--commit", "each")._asdict(),
        "lost": lost,
    }
    if soak:
        print_progress(f"... {soak:g} s at 64 connections, watching memory")
        result["soak"] = soak_server(soak)
    return result


def measure_cpu() -> tuple[dict[str, float], int]:
    """Microseconds of CPU per hello, decision and reward at 64 connections, and the losses."""
    with (
        ServerProcess(
            "uvicorn", "bylot_bench.http_load:hello_app", "--no-access-log", ready="/"
        ) as hello,
        run_bylot_server() as server,
    ):
        ids: list[str] = []
        turns: dict[str, list[float]] = {"hello": [], "decide": [], "reward": []}
        lost = 0
        for _ in range(3):  # in turns, so that other load on the machine affects all alike
            first = len(ids)
            hellos = [format_post("/", b"{}")] * REQUEST_COUNT
            turns["hello"].append(measure_request_cpu(hello, hellos, 64))
            decides = [format_decide("bench")] * REQUEST_COUNT
            turns["decide"].append(measure_request_cpu(server, decides, 64, b" 201 ", ids))
            rewards = map(format_reward, ids[first:])
            turns["reward"].append(measure_request_cpu(server, rewards, 64))
            lost += REQUEST_COUNT - (len(ids) - first)
        status = server.get("/v1/routers/bench/status")
        lost += abs(status["decisions"] - len(ids)) + abs(status["rewards"] - len(ids))
    return {name: 1e6 * min(values) for name, values in turns.items()}, lost


def measure_throughput(connections: int, *options: str) -> LoadResult:
    """Load of alternating decisions and rewards."""
    count = REQUEST_COUNT if connections > 1 else REQUEST_COUNT // 10
    traffic = make_traffic(["bench"], count_down(count))
    with run_bylot_server(*options) as server:
        return asyncio.run(drive_connections(server.port, connections, *traffic))


def soak_server(seconds: float) -> dict[str, Any]:
    """Load a server for a long time; compare its memory after a fifth of it and at the end."""
    with run_bylot_server() as server:
        samples: list[int] = []

        async def watch_memory() -> LoadResult:
            end = time.monotonic() + seconds
            traffic = make_traffic(["bench"], lambda: time.monotonic() < end)
            load = asyncio.create_task(drive_connections(server.port, 64, *traffic))
            while not load.done():
                samples.append(server.memory())
                await asyncio.sleep(min(1.0, seconds / 20))
            return await load

        load = asyncio.run(watch_memory())
    memory = {
        "after_a_fifth": samples[len(samples) // 5] / 2**20,
        "at_the_end": samples[-1] / 2**20,
    }
    return {**load._asdict(), "memory_mb": memory}


def render(result: dict[str, Any]) -> str:
    rows = [
        ("CPU per request, 64 connections", "us", "/ hello"),
        *(
            (name, f"{us:.0f}", f"{result['ratio_to_hello'].get(name, 1):.2f}")
            for name, us in result["cpu_us_per_request"].items()
        ),
    ]
    loads = [("decide and reward in turns", "requests/s", "p50 ms", "p99 ms")]
    for load in (*result["load"], result["commit_each"]):
        note = ", one commit per request" if load is result["commit_each"] else ""
        loads.append(
            (
                f"connections: {load['connections']}{note}",
                f"{load['requests_per_s']:,.0f}",
                f"{load['p50_ms']:.1f}",
                f"{load['p99_ms']:.1f}",
            )
        )
    lines = [*format_table(rows), "", *format_table(loads), "", f"{result['lost']} lost"]
    if "soak" in result:
        text = (
            "soak: {requests:,} requests in {seconds:.0f} s, {errors} errors, "
            "{memory_mb[after_a_fifth]:.0f} MB after a fifth of it, "
            "{memory_mb[at_the_end]:.0f} MB at the end"
        )
        lines.append(text.format(**result["soak"]))
    return "\n".join(lines)
