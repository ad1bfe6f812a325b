"""Mixed chats over faulty models for a long time: only errors of models, and no growing memory.

BYLOT_SOAK_S sets the seconds; `make soak` takes half an hour.
"""

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import numpy as np
import pytest

from bylot.eventlog.audit import audit_router
from bylot.store import open_store
from bylot_bench.http_load import ServerProcess
from gateway_target import write_gateway_config
from server_process import serve_store
from upstream_faults import FaultUpstream, make_fault_mix
from upstreams import LogNormal, ReplayUpstream

SECONDS = float(os.environ.get("BYLOT_SOAK_S", "60"))
RATE_PER_S = 50.0
SAMPLE_S = 5.0
MODELS = ("a", "b", "c", "d", "e")
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
ALLOWED_CODES = ("no_answer", "timeout", "rate_limited")  # of models that all failed


class Sample(NamedTuple):
    """What a server uses at a time."""

    megabytes: float
    files: int


def make_router(**gateway: Any) -> dict[str, Any]:
    """A router of all models, which remembers so few decisions that it is full in a minute."""
    problem = {
        "experts": MODELS,
        "costs": {"usd": [1e-4] * len(MODELS)},
        "limits": [{"cost": "usd", "at_most": 4e-4}],
        "draws": 3,
    }
    settings = {"member_timeout_s": 2.0, "cooldown_s": 2.0, "quorum": 2, **gateway}
    return {"problem": problem, "memory": 1_000, "gateway": settings}


ROUTERS = {
    "first": make_router(answer="first"),
    "pick": make_router(answer="pick", scorer={"regex": {"pattern": "[a-m]"}}),
    "turns": make_router(answer="pick", ask="in_turn", scorer={"exact": {}}),
    "hedged": make_router(ask="hedged", hedge_s=0.1),
}


def make_request(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A path and a body: chats and responses, whole or streamed, some with tools."""
    model, text = f"bylot/{rng.choice(list(ROUTERS))}", f"Tell me about {rng.random()}."
    body: dict[str, Any] = {"model": model, "stream": rng.random() < 0.4}
    if rng.random() < 0.2:
        return "/v1/responses", {**body, "input": text}
    if rng.random() < 0.2:
        body["tools"] = [TOOL]
    metadata = {"bylot_expected": "42"}
    messages = [{"role": "user", "content": text}]
    return "/v1/chat/completions", {**body, "messages": messages, "metadata": metadata}


async def send_chats(server: ServerProcess, outcomes: Counter[str], odd: list[bytes]) -> None:
    """Send requests at a steady rate; one caller in twenty leaves early."""
    rng, tasks = random.Random(7), set[asyncio.Task[None]]()

    async def send(path: str, body: dict[str, Any], patience: float | None) -> None:
        try:
            async with asyncio.timeout(patience), session.post(path, json=body) as response:
                content = await response.read()
        except TimeoutError:
            outcomes["left"] += 1
            return
        except aiohttp.ClientError as error:
            outcomes["broken"] += 1
            odd.append(repr(error).encode())
            return
        outcomes[str(response.status)] += 1
        if response.status != 200 and not any(code.encode() in content for code in ALLOWED_CODES):
            odd.append(content)

    async with aiohttp.ClientSession(
        server.url,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=60),
    ) as session:
        start = time.monotonic()
        for n in range(int(SECONDS * RATE_PER_S)):
            await asyncio.sleep(start + n / RATE_PER_S - time.monotonic())
            patience = rng.uniform(0.01, 0.5) if rng.random() < 0.05 else None
            task = asyncio.create_task(send(*make_request(rng), patience))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)


async def watch(server: ServerProcess, samples: list[Sample]) -> None:
    """Take samples of a server until cancelled."""
    files = Path(f"/proc/{server.process.pid}/fd")
    while True:
        samples.append(Sample(server.memory() / 1e6, len(list(files.iterdir()))))
        await asyncio.sleep(SAMPLE_S)


async def soak(server: ServerProcess) -> tuple[Counter[str], list[bytes], list[Sample]]:
    """Send all requests; outcomes, what should not be, and samples of the server."""
    outcomes, odd, samples = Counter[str](), list[bytes](), list[Sample]()
    watcher = asyncio.create_task(watch(server, samples))
    await send_chats(server, outcomes, odd)
    watcher.cancel()
    return outcomes, odd, samples


@pytest.mark.slow
def test_mixed_chats_leave_memory_flat_and_no_error_of_the_gateway(tmp_path: Path) -> None:
    latency = LogNormal(0.1, 0.7, seed=1)
    faulty = FaultUpstream(
        mix=make_fault_mix(0.2),
        seed=4,
        models=MODELS[:3],
        slow_s=1.0,
        latency=latency,
        keep_requests=False,
    )
    healthy = ReplayUpstream(MODELS[3:], latency=latency, keep_requests=False)
    store = f"sqlite:///{tmp_path}/bylot.db"
    with faulty, healthy:
        config = write_gateway_config(tmp_path, [faulty, healthy], ROUTERS)
        more = {"BYLOT_MAX_CHATS_PER_KEY": "256"}  # this machine may be busy with other tests
        with serve_store(store, log=tmp_path / "log", config=config, **more) as server:
            outcomes, odd, samples = asyncio.run(soak(server))
    later = samples[len(samples) // 3 :]
    memory = np.array([one.megabytes for one in later])
    growth = float(np.polyfit(np.linspace(0, 1, memory.size), memory, 1)[0])
    print(
        f"\n{dict(outcomes)}; memory {memory[0]:.0f} to {memory[-1]:.0f} MB "
        f"({growth:+.1f} MB by a line through the last two thirds), "
        f"at most {max(one.files for one in later)} open files"
    )
    assert odd == []
    assert sum(outcomes.values()) == int(SECONDS * RATE_PER_S)
    assert growth < 0.05 * memory.mean()
    with contextlib.closing(open_store(store, read_only=True)) as opened:
        for router in ROUTERS:
            assert audit_router(opened, router).fault is None
