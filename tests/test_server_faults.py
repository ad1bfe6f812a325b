"""Nothing is lost and nothing is done twice if servers of a cluster are killed, stopped, suspended.

A few faults here; `make faults` has a hundred (BYLOT_CLUSTER_FAULTS), and prints the counts.
"""

import asyncio
import contextlib
import io
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from bylot.cli import main
from cluster_servers import AnyServerClient, ClusterServer, post, run_servers
from faults import (
    POOLS,
    ObservedAnswers,
    compare_log_with_answers,
    make_problem,
    run_caller,
    wait_for_progress,
)

FAULTS = int(os.environ.get("BYLOT_CLUSTER_FAULTS", "4"))
SERVERS = 3
CALLERS = 12
KINDS = ("kill", "stop", "suspend")


async def disturb(server: ClusterServer, kind: str, rng: random.Random) -> None:
    """Kill a server, stop it as planned, or suspend it for longer than its lease."""
    if kind == "suspend":
        server.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(rng.uniform(1.0, 8.0))
        server.process.send_signal(signal.SIGCONT)
        return
    await asyncio.to_thread(server.kill if kind == "kill" else server.stop)
    await asyncio.to_thread(server.start)


async def run_campaign(servers: list[ClusterServer]) -> tuple[ObservedAnswers, Counter[str]]:
    """Run callers of all servers, and disturb one server after the other."""
    rng, observed, stop = random.Random(FAULTS), ObservedAnswers(), asyncio.Event()
    kinds: Counter[str] = Counter()
    async with AnyServerClient(servers, seed=1) as client:
        load = [asyncio.create_task(run_caller(client, n, observed, stop)) for n in range(CALLERS)]
        for n in range(FAULTS):
            await wait_for_progress(observed, load)
            await asyncio.sleep(rng.uniform(0.1, 1.0))
            kind = KINDS[n % len(KINDS)]
            kinds[kind] += 1
            await disturb(rng.choice(servers), kind, rng)
            if (n + 1) % 10 == 0:
                made = f"{len(observed.decisions):,} decisions"
                print(f"... {n + 1} faults, {made}", file=sys.stderr)
        await asyncio.sleep(1.0)
        stop.set()
        await asyncio.gather(*load)
    return observed, kinds


def test_no_fault_of_a_server_loses_or_repeats_anything(
    postgres_address: str, tmp_path: Path
) -> None:
    start = time.monotonic()
    with run_servers(postgres_address, tmp_path, SERVERS) as servers:
        for name, (policy, _) in POOLS.items():
            body = {"name": name, "problem": make_problem(name), "policy": policy}
            assert post(servers[0], "/v1/routers", body).status_code == 201
        observed, kinds = asyncio.run(run_campaign(servers))
        counts = compare_log_with_answers(servers[-1], observed)
    print(
        f"\n{dict(kinds)} in {time.monotonic() - start:.0f} s; {counts['decisions']:,} decisions, "
        f"{counts['rewards']:,} rewards, {observed.retries:,} retries; "
        f"{len(observed.faults)} faults"
    )
    for name in POOLS:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = main(["replay", name, "--store", postgres_address])
        assert code == 0, output.getvalue()
    assert observed.faults == []
    assert len(observed.decisions) > 10 * FAULTS
