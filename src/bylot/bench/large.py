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

from bylot.bench.load import Load, drive, post
from bylot.bench.service import Server, listener, pool, served
from bylot.codec import write_problem
from bylot.durable.clock import now
from bylot.durable.commands import Create, Decide
from bylot.durable.keeper import Keeper
from bylot.durable.terms import Terms
from bylot.policies import named, write
from bylot.store import open_store
from bylot.text import say, table

BATCH = 1_000  # decisions of one commit
ASKED = 2_000  # requests of a measurement
PAGES = 200  # of 100 lines each


def run(routers: int = 1_000, decisions: int = 10_000_000) -> dict[str, Any]:
    """Fill, start, ask."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = (f"sqlite:///{folder}/{name}.db" for name in ("small", "large"))
        fill(small, 1, 1_000)
        began = time.perf_counter()
        fill(large, routers, decisions)
        filled = time.perf_counter() - began
        size = Path(f"{folder}/large.db").stat().st_size
        before, after = measured(small, 1), measured(large, routers)
    return {
        "routers": routers,
        "decisions": decisions,
        "fill_s": filled,
        "file_gb": size / 2**30,
        "empty": before,
        "full": after,
    }


def fill(address: str, routers: int, decisions: int) -> None:
    """Routers that have been asked, all equally often, each in a stretch of batches."""
    keeper = Keeper(open_store(address), "bench")
    policy = write(named("distinct"))
    for n in range(routers):
        terms = Terms(problem=write_problem(pool()), policy=policy, seed=n)
        done(keeper.perform([Create(f"r{n}", terms)], now()))
        left = decisions // routers
        while left > 0:
            done(keeper.perform([Decide(f"r{n}")] * min(left, BATCH), now()))
            left -= BATCH
        if n % 50 == 49:
            say(f"... {n + 1:,} of {routers:,} routers")
    keeper.close()


def done(answers: list[Any]) -> None:
    """Nothing here may fail."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer


def measured(address: str, routers: int) -> dict[str, Any]:
    """Seconds until a server is ready, then milliseconds of requests to it."""
    began = time.perf_counter()
    with served("bylot", "serve", "--store", address, ready="/readyz") as server:
        ready = time.perf_counter() - began
        firsts = [first(server, n) for n in range(0, routers, max(1, routers // 20))]
        load = asyncio.run(asked(server))
        last = seq(server)
        return {
            "start_s": ready,
            "first_decide_ms": 1e3 * sum(firsts) / len(firsts),
            "decide_p50_ms": load.p50_ms,
            "decide_p99_ms": load.p99_ms,
            "page_ms": {name: page(server, at) for name, at in places(last).items()},
        }


def first(server: Server, n: int) -> float:
    """Seconds for the first decision of a router, which opens it."""
    began = time.perf_counter()
    url = f"http://127.0.0.1:{server.port}/v1/routers/r{n}/decisions"
    head = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, b"{}", head), timeout=60):
        return time.perf_counter() - began


async def asked(server: Server) -> Load:
    """Decisions over one connection, one after the other."""
    several = iter([post("/v1/routers/r0/decisions", b"{}")] * ASKED)
    return await drive(server.port, 1, lambda: next(several, None), listener(b" 201 ", None))


def seq(server: Server) -> int:
    """The last line of the first router."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/routers/r0") as answer:
        return int(json.load(answer)["seq"])


def places(last: int) -> dict[str, int]:
    """Where to read pages of the log."""
    return {"first": -1, "middle": last // 2, "last": max(-1, last - 100)}


def page(server: Server, after: int) -> float:
    """Milliseconds for a hundred lines of the log after one, the quickest of some turns."""
    url = f"http://127.0.0.1:{server.port}/v1/routers/r0/events?after={after}&limit=100"
    best = float("inf")
    for _ in range(PAGES):
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
    return "\n".join([*table(rows), filled])
