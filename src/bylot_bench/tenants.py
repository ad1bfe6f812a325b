"""Decisions with a budget for each of 10,000 tenants, against one budget for all; and memory.

Both routers choose 5 of 50 experts with `noisy-or` under a budget per day, on a simulated clock.
"""

import gc
import time
import tracemalloc
from typing import Any

import numpy as np

from bylot._scopes import ScopeName
from bylot._text import format_table
from bylot.problem import Problem, at_most
from bylot.router.router import Router

K, M, TENANTS, PASSING_TENANTS = 50, 5, 10_000, 100_000
START_S, DAY_S = 1_774_000_000, 86_400
MAX_TIME_RATIO, MAX_TENANT_BYTES = 1.5, 1_000
TURN_DECISIONS = 1_000


class TenantPlayer:
    """A router with a budget per day, and a clock that every request moves."""

    def __init__(self, scope: ScopeName | None, bound: float, step_s: float) -> None:
        costs = np.random.default_rng(0).lognormal(-1.5, 1.0, K)
        problem = Problem(
            experts=[f"e{i}" for i in range(K)],
            costs={"usd": costs},
            limits=[at_most("usd", bound * float(costs.mean()), per="day", scope=scope)],
            draws=M,
        )
        self.at = float(START_S)
        self.step_s = step_s
        self.names_tenants = scope is not None
        self.made = 0
        self.router = Router(problem, "noisy-or", clock=lambda: self.at, memory=100)

    def decide(self, tenant: int) -> None:
        """A decision and its reward."""
        self.at += self.step_s
        self.made += 1
        decision = self.router.decide(tenant=f"tenant-{tenant}" if self.names_tenants else None)
        self.router.reward(decision.id, 0.5 + 0.4 * ("e7" in decision.subset))


def run(turns: int = 15) -> dict[str, Any]:
    """Measure all; the median ratio of turns counts."""
    step_s = DAY_S / (20 * TENANTS)  # 20 requests of each tenant per day
    alone = TenantPlayer(None, 100.0 * TENANTS, step_s)
    many = TenantPlayer("tenant", 100.0, step_s)
    many.decide(0)
    opened = measure_memory(many, TENANTS)
    rng, times = np.random.default_rng(1), []
    for turn in range(turns + 1):
        tenants, spent = rng.integers(TENANTS, size=TURN_DECISIONS).tolist(), []
        for player in (alone, many):
            start = time.process_time()
            for tenant in tenants:
                player.decide(tenant)
            spent.append((time.process_time() - start) / TURN_DECISIONS)
        times += [spent] if turn else []  # the first one fills caches
    ratio = float(np.median([of_many / of_one for of_one, of_many in times]))
    passing = measure_archive()
    result: dict[str, Any] = {
        "us_without": 1e6 * float(np.median([one for one, _ in times])),
        "us_with": 1e6 * float(np.median([one for _, one in times])),
        "ratio": ratio,
        "bytes_per_tenant": opened,
        **passing,
    }
    checks = {
        "time": ratio > MAX_TIME_RATIO,
        "memory of a tenant": opened > MAX_TENANT_BYTES,
        "growth": passing["bytes_at_end"] > 1.2 * passing["bytes_at_half"],
    }
    result["missed"] = [name for name, missed in checks.items() if missed]
    return result


def measure_memory(player: TenantPlayer, tenants: int) -> float:
    """Bytes that each new tenant takes."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for tenant in range(1, tenants):
        player.decide(tenant)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / (tenants - 1)


def measure_archive() -> dict[str, Any]:
    """Open 100,000 tenants, 1,000 a day, of which each makes one request."""
    player, sizes = TenantPlayer("tenant", 100.0, DAY_S / 1_000), []
    tracemalloc.start()
    for tenant in range(PASSING_TENANTS):
        player.decide(tenant)
        if tenant + 1 in (PASSING_TENANTS // 2, PASSING_TENANTS):
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    return {
        "bytes_at_half": sizes[0],
        "bytes_at_end": sizes[1],
        "slots_at_end": len(player.router.core.book.get_keyed().keys),
    }


def render(result: dict[str, Any]) -> str:
    rows = [
        ("", "measured", "at most"),
        ("decide + reward, one budget", f"{result['us_without']:.1f} us", ""),
        (f"with {TENANTS:,} tenants", f"{result['us_with']:.1f} us", ""),
        ("ratio", f"{result['ratio']:.2f}", f"{MAX_TIME_RATIO}"),
        ("memory of a tenant", f"{result['bytes_per_tenant']:,.0f} bytes", f"{MAX_TENANT_BYTES:,}"),
        (f"slots after {PASSING_TENANTS:,} tenants", f"{result['slots_at_end']:,}", ""),
        ("memory after half of them", f"{result['bytes_at_half']:,} bytes", ""),
        ("memory after all", f"{result['bytes_at_end']:,} bytes", "1.2 times that"),
    ]
    lines = format_table(rows)
    lines += [f"missed: {', '.join(result['missed'])}"] if result["missed"] else []
    return "\n".join(lines)
