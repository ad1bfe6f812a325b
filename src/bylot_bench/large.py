"""A store with many routers and a long log: how soon a server is up, and whether it is as quick.

The log is written by the keeper itself, in batches; then `bylot serve` is started on it, and on a
store with nothing in it but one router.
"""

import asyncio
import json
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from bylot._text import format_table, print_progress
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import CreateRouter, MakeDecision
from bylot.eventlog.events import now_us
from bylot.policies import find_policy, policy_to_data
from bylot.router.config import RouterConfig
from bylot.router.persistence import problem_to_data
from bylot.store import open_store
from bylot_bench.http_load import LoadResult, drive_connections, format_post
from bylot_bench.service import (
    MeasuredServer,
    make_listener,
    make_service_problem,
    run_server_process,
)

FILL_BATCH_DECISIONS = 1_000  # decisions of one commit
TIMED_REQUESTS = 2_000  # requests of a measurement
TIMED_PAGES = 200  # of 100 lines each


def run(routers: int = 1_000, decisions: int = 10_000_000) -> dict[str, Any]:
    """Fill, start, ask."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = (f"sqlite:///{folder}/{name}.db" for name in ("small", "large"))
        fill_store(small, 1, 1_000)
        began = time.perf_counter()
        fill_store(large, routers, decisions)
        filled = time.perf_counter() - began
        size = Path(f"{folder}/large.db").stat().st_size
        before, after = measure_server(small, 1), measure_server(large, routers)
    return {
        "routers": routers,
        "decisions": decisions,
        "fill_s": filled,
        "file_gb": size / 2**30,
        "empty": before,
        "full": after,
    }


def fill_store(address: str, routers: int, decisions: int) -> None:
    """Routers that have been asked, all equally often, each in a stretch of batches."""
    keeper = CommandHandler(open_store(address), "bench")
    policy = policy_to_data(find_policy("distinct"))
    for n in range(routers):
        terms = RouterConfig(problem=problem_to_data(make_service_problem()), policy=policy, seed=n)
        raise_failures(keeper.perform([CreateRouter(f"r{n}", terms)], now_us()))
        left = decisions // routers
        while left > 0:
            raise_failures(
                keeper.perform([MakeDecision(f"r{n}")] * min(left, FILL_BATCH_DECISIONS), now_us())
            )
            left -= FILL_BATCH_DECISIONS
        if n % 50 == 49:
            print_progress(f"... {n + 1:,} of {routers:,} routers")
    keeper.close()


def raise_failures(answers: list[Any]) -> None:
    """Nothing here may fail."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer


def measure_server(address: str, routers: int) -> dict[str, Any]:
    """Seconds until a server is ready, then milliseconds of requests to it."""
    began = time.perf_counter()
    with run_server_process("bylot", "serve", "--store", address, ready="/readyz") as server:
        ready = time.perf_counter() - began
        firsts = [time_first_decision(server, n) for n in range(0, routers, max(1, routers // 20))]
        load = asyncio.run(load_one_connection(server))
        last = read_last_seq(server)
        return {
            "start_s": ready,
            "first_decide_ms": 1e3 * sum(firsts) / len(firsts),
            "decide_p50_ms": load.p50_ms,
            "decide_p99_ms": load.p99_ms,
            "page_ms": {
                name: time_log_page(server, at) for name, at in choose_log_pages(last).items()
            },
        }


def time_first_decision(server: MeasuredServer, n: int) -> float:
    """Seconds for the first decision of a router, which opens it."""
    began = time.perf_counter()
    url = f"http://127.0.0.1:{server.port}/v1/routers/r{n}/decisions"
    head = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, b"{}", head), timeout=60):
        return time.perf_counter() - began


async def load_one_connection(server: MeasuredServer) -> LoadResult:
    """Decisions over one connection, one after the other."""
    several = iter([format_post("/v1/routers/r0/decisions", b"{}")] * TIMED_REQUESTS)
    return await drive_connections(
        server.port, 1, lambda: next(several, None), make_listener(b" 201 ", None)
    )


def read_last_seq(server: MeasuredServer) -> int:
    """The last line of the first router."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/routers/r0") as answer:
        return int(json.load(answer)["seq"])


def choose_log_pages(last: int) -> dict[str, int]:
    """Where to read pages of the log."""
    return {"first": -1, "middle": last // 2, "last": max(-1, last - 100)}


def time_log_page(server: MeasuredServer, after: int) -> float:
    """Milliseconds for a hundred lines of the log after one, the quickest of some turns."""
    url = f"http://127.0.0.1:{server.port}/v1/routers/r0/events?after={after}&limit=100"
    best = float("inf")
    for _ in range(TIMED_PAGES):
        began = time.perf_counter()
        with urllib.request.urlopen(url) as answer:
            answer.read()
        best = min(best, time.perf_counter() - began)
    return 1e3 * best


def render(result: dict[str, Any]) -> str:
    """The result as a table."""
    head = f"{result['routers']:,} routers, {result['decisions']:,} decisions"
    rows: list[tuple[str, ...]] = [("", "one router, 1,000 decisions", head)]
    for name, key in (
        ("ready after, s", "start_s"),
        ("first decision of a router, ms", "first_decide_ms"),
        ("decide, p50 ms", "decide_p50_ms"),
        ("decide, p99 ms", "decide_p99_ms"),
    ):
        rows.append((name, f"{result['empty'][key]:.2f}", f"{result['full'][key]:.2f}"))
    for place in ("first", "middle", "last"):
        times = (result[one]["page_ms"][place] for one in ("empty", "full"))
        rows.append((f"{place} 100 lines of a log, ms", *(f"{ms:.2f}" for ms in times)))
    filled = f"written in {result['fill_s']:.0f} s, {result['file_gb']:.1f} GB"
    return "\n".join([*format_table(rows), filled])
