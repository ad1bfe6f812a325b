"""Start-up time and latency of a server whose store has many routers and a long log.

The command handler writes the log directly, in batches; then `bylot serve` runs on it, and on a
store with a single router for comparison.
"""

import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from bylot._text import format_table
from bylot_bench import time_quickest
from bylot_bench.http_load import ServerProcess, drive_connections, format_post, make_answer_check
from bylot_bench.stored_log import fill_store

TIMED_REQUESTS = 2_000


def run(routers: int = 1_000, decisions: int = 10_000_000) -> dict[str, Any]:
    """Fill a small and a large store, and measure a server on each."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = (f"sqlite:///{folder}/{name}.db" for name in ("small", "large"))
        fill_store(small, 1, 1_000)
        began = time.perf_counter()
        fill_store(large, routers, decisions)
        return {
            "routers": routers,
            "decisions": decisions,
            "fill_s": time.perf_counter() - began,
            "file_gb": Path(f"{folder}/large.db").stat().st_size / 2**30,
            "empty": measure_server(small, 1),
            "full": measure_server(large, routers),
        }


def measure_server(store: str, routers: int) -> dict[str, Any]:
    """Measure the seconds until a server is ready, then milliseconds of requests to it."""
    began = time.perf_counter()
    with ServerProcess("bylot", "serve", "--store", store) as server:
        ready = time.perf_counter() - began
        firsts = [  # the first decision of a router loads it
            time_quickest(partial(server.post, f"/v1/routers/r{n}/decisions", {}))
            for n in range(0, routers, max(1, routers // 20))
        ]
        requests = iter([format_post("/v1/routers/r0/decisions", b"{}")] * TIMED_REQUESTS)
        check = make_answer_check(b" 201 ")
        load = asyncio.run(drive_connections(server.port, 1, lambda: next(requests, None), check))
        last = int(server.get("/v1/routers/r0")["seq"])
        pages = {"first": -1, "middle": last // 2, "last": max(-1, last - 100)}
        page = "/v1/routers/r0/events?limit=100&after="
        return {
            "start_s": ready,
            "first_decide_ms": 1e3 * sum(firsts) / len(firsts),
            "decide_p50_ms": load.p50_ms,
            "decide_p99_ms": load.p99_ms,
            "page_ms": {
                name: 1e3 * time_quickest(partial(server.get, f"{page}{after}"), passes=200)
                for name, after in pages.items()
            },
        }


def render(result: dict[str, Any]) -> str:
    empty, full = result["empty"], result["full"]
    times = {
        "ready after, s": (empty["start_s"], full["start_s"]),
        "first decision of a router, ms": (empty["first_decide_ms"], full["first_decide_ms"]),
        "decide, p50 ms": (empty["decide_p50_ms"], full["decide_p50_ms"]),
        "decide, p99 ms": (empty["decide_p99_ms"], full["decide_p99_ms"]),
        **{
            f"{page} 100 events of a log, ms": (ms, full["page_ms"][page])
            for page, ms in empty["page_ms"].items()
        },
    }
    head = f"{result['routers']:,} routers, {result['decisions']:,} decisions"
    rows = [("", "one router, 1,000 decisions", head)]
    rows += [(name, f"{one:.2f}", f"{other:.2f}") for name, (one, other) in times.items()]
    filled = f"written in {result['fill_s']:.0f} s, {result['file_gb']:.1f} GB"
    return "\n".join([*format_table(rows), filled])
