"""Chats over all faults of models: no error while a member answers, every panel settled once.

BYLOT_CHATS sets how many requests are sent; `make faults` sends 10,000.
"""

import asyncio
import contextlib
import math
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bylot.eventlog.audit import audit_router
from bylot.store import open_store
from gateway_target import RunningGateway, start_gateway, wait_for_quiet
from panel_log import read_panel_log
from upstream_faults import Fault, FaultUpstream, make_fault_mix
from upstreams import ReplayUpstream

CHATS = int(os.environ.get("BYLOT_CHATS", "150"))
CONCURRENT = 24


async def chat(
    session: aiohttp.ClientSession, gateway: RunningGateway, stream: bool
) -> tuple[int, bytes]:
    """One request; status and body of its response."""
    body = {
        "model": gateway.model,
        "stream": stream,
        "messages": [{"role": "user", "content": f"Tell me about {random.random()}."}],
    }
    headers = {"authorization": f"Bearer {gateway.key}"}
    url = f"{gateway.base_url}/chat/completions"
    async with session.post(url, json=body, headers=headers) as response:
        return response.status, await response.read()


async def chat_many(
    gateway: RunningGateway, count: int, leave: float, seed: int
) -> tuple[Counter[str], list[bytes]]:
    """Send requests; some are streamed, some callers leave early. Outcomes, and failed bodies."""
    rng, outcomes, failed = random.Random(seed), Counter[str](), list[bytes]()
    limit = asyncio.Semaphore(CONCURRENT)

    async def one(stream: bool, patience: float | None) -> None:
        async with limit:
            try:
                status, body = await asyncio.wait_for(chat(session, gateway, stream), patience)
            except (TimeoutError, aiohttp.ClientError):
                outcomes["left" if patience else "broken"] += 1
                return
            ended = not stream or b"[DONE]" in body
            outcomes[f"{status}" if status != 200 or ended else "ended early"] += 1
            if status != 200:
                failed.append(body)

    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        plans = [
            (rng.random() < 0.4, rng.uniform(0.01, 0.5) if rng.random() < leave else None)
            for _ in range(count)
        ]
        await asyncio.gather(*(one(*plan) for plan in plans))
    return outcomes, failed


@pytest.mark.parametrize("answer", ["first", "pick"])
def test_every_panel_is_settled_once_whatever_its_members_do(tmp_path: Path, answer: str) -> None:
    settings: dict[str, Any] = {"member_timeout_s": 1.0, "quorum": 2, "cooldown_s": 0.5}
    with (
        FaultUpstream(
            mix=make_fault_mix(0.5), seed=3, models=("a", "b", "c"), slow_s=0.5
        ) as faulty,
        ReplayUpstream(("d", "e")) as healthy,
        start_gateway(tmp_path, [faulty, healthy], answer, **settings) as gateway,
    ):
        outcomes, failed = asyncio.run(chat_many(gateway, CHATS, leave=0.1, seed=5))
        wait_for_quiet(gateway)
        status = gateway.read("/v1/routers/panel/status")
    assert sum(outcomes.values()) == CHATS
    assert outcomes["broken"] == 0
    for body in failed:
        assert b"no member of the panel answered" in body, body
    log = read_panel_log(gateway.store)
    assert status["decisions"] - status["counters"]["cancelled"] == len(log.decisions)
    assert len(log.decisions) >= CHATS - outcomes["left"]
    assert set(log.reports) == set(log.decisions), "a panel was not settled, or twice"
    assert all(len(some) == 1 and some[0].spend for some in log.reports.values())
    assert math.isclose(status["costs"]["usd"]["settled"], log.compute_dollars(), rel_tol=1e-9)
    with contextlib.closing(open_store(gateway.store, read_only=True)) as store:
        assert audit_router(store, "panel").fault is None
    assert faulty.count_applied().keys() >= {Fault.HANG, Fault.STATUS_500} or CHATS < 100
