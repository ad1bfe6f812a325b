"""A long log of which the oldest nine tenths are dropped while the server goes on.

The command handler writes the log directly, as if it had taken a hundred days. Then `bylot serve`
runs on it, first without retention and then with `--keep 10d`, under the same load.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from bylot._text import format_table, print_progress
from bylot.errors import BylotError
from bylot.eventlog.audit import audit_router
from bylot.store import open_store
from bylot_bench.http_load import ServerProcess, format_post, read_answer
from bylot_bench.stored_log import fill_store

DAYS, KEPT_DAYS = 100, 10
CONNECTIONS, REQUESTS_PER_S = 8, 200
BASELINE_S, WARM_UP_S = 60.0, 10.0  # the first requests load the routers
MAX_DROP_S = 3_600.0
SETTLED_S = 10.0  # without a change of the file


def run(routers: int = 10, decisions: int = 10_000_000) -> dict[str, Any]:
    """Fill a store, drop most of it under load, and replay the rest."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.db")
        url = f"sqlite:///{path}"
        began = time.perf_counter()
        fill_store(url, routers, decisions, DAYS)
        filled_s, before = time.perf_counter() - began, path.stat().st_size
        print_progress(
            f"... {before / 2**30:.1f} GB written in {filled_s:.0f} s; load, keeping all"
        )
        with ServerProcess("bylot", "serve", "--store", url) as server:
            end = time.monotonic() + WARM_UP_S + BASELINE_S
            keeping = asyncio.run(
                drive_at_rate(server.port, routers, lambda: time.monotonic() < end)
            )
        print_progress(f"... the same load, keeping {KEPT_DAYS} of {DAYS} days")
        began = time.perf_counter()
        with ServerProcess("bylot", "serve", "--store", url, "--keep", f"{KEPT_DAYS}d") as server:
            dropping = asyncio.run(drive_at_rate(server.port, routers, make_drop_check(path)))
        dropped_s, after = time.perf_counter() - began - SETTLED_S, path.stat().st_size
        print_progress("... replay of what remains")
        return {
            "decisions": decisions,
            "before_gb": before / 2**30,
            "after_gb": after / 2**30,
            "share": after / before,
            "dropped_s": dropped_s,
            "keeping": keeping,
            "dropping": dropping,
            "p99_ratio": dropping["p99_ms"] / keeping["p99_ms"],
            **replay_all(url, routers),
        }


async def drive_at_rate(port: int, routers: int, goes_on: Callable[[], bool]) -> dict[str, Any]:
    """Make decisions at a constant rate; latencies count from when a request was due."""
    latencies: list[float] = []
    errors = 0
    began = time.perf_counter()

    async def drive_one(number: int) -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for n in range(number, 10**9, CONNECTIONS):
            due = began + n / REQUESTS_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if not goes_on():
                break
            writer.write(format_post(f"/v1/routers/r{n % routers}/decisions", b"{}"))
            answer = await read_answer(reader)
            if due > began + WARM_UP_S:
                latencies.append(time.perf_counter() - due)
            errors += b" 201 " not in answer[:20]
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(drive_one(n) for n in range(CONNECTIONS)))
    p50, p99 = (1e3 * np.percentile(latencies, [50, 99])).tolist()
    return {"requests": len(latencies), "errors": errors, "p50_ms": p50, "p99_ms": p99}


def make_drop_check(path: Path) -> Callable[[], bool]:
    """Whether the file still changes in size, or has not become smaller yet."""
    began = time.monotonic()
    first = size = os.stat(path).st_size
    changed = began

    def goes_on() -> bool:
        nonlocal size, changed
        now, found = time.monotonic(), os.stat(path).st_size
        if abs(found - size) > 2**20:
            size, changed = found, now
        if now > began + MAX_DROP_S:
            raise BylotError(f"the store did not shrink to its end within {MAX_DROP_S:g} s")
        return size >= first or now < changed + SETTLED_S

    return goes_on


def replay_all(url: str, routers: int) -> dict[str, Any]:
    """Replay all logs; how much of them is left, and the first fault."""
    events, fault = 0, None
    with closing(open_store(url, read_only=True)) as store:
        for row in store.routers(limit=routers):
            last = store.last_seq(row.number)
            assert last is not None
            events += last + 1 - store.first_seq(row.number)
            fault = fault or audit_router(store, row.name).fault
    return {"events_left": events, "fault": fault}


def render(result: dict[str, Any]) -> str:
    both = result["keeping"], result["dropping"]
    rows = [
        ("", "keeping all", f"dropping {DAYS - KEPT_DAYS} days"),
        ("decide, p50 ms", *(f"{load['p50_ms']:.2f}" for load in both)),
        ("decide, p99 ms", *(f"{load['p99_ms']:.2f}" for load in both)),
        ("requests", *(f"{load['requests']:,}" for load in both)),
        ("failed", *(f"{load['errors']:,}" for load in both)),
    ]
    return "\n".join(
        [
            *format_table(rows),
            f"{result['before_gb']:.2f} GB before, {result['after_gb']:.2f} GB after "
            f"({result['share']:.1%}), in {result['dropped_s']:.0f} s",
            f"{result['events_left']:,} events left: {result['fault'] or 'the replay is equal'}",
        ]
    )
