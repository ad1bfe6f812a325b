"""A gateway that is killed while panels are out forgets no decision and books none twice.

A few kills here; `make faults` kills it 50 times on each store (BYLOT_CHAT_KILLS).
"""

import asyncio
import contextlib
import json
import math
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bylot.eventlog.audit import audit_router
from bylot.store import open_store
from bylot_bench.http_load import ServerProcess
from gateway_target import write_gateway_config
from panel_log import PanelLog, read_panel_log
from server_process import serve_store
from upstream_faults import Fault, FaultUpstream

KILLS = int(os.environ.get("BYLOT_CHAT_KILLS", "2"))
CALLERS = 12
MODELS = ("a", "b", "c", "d", "e")
MIX = {Fault.NONE: 0.85, Fault.STATUS_500: 0.1, Fault.HANG: 0.05}
DECLARED_USD = 1e-4


@dataclass
class ObservedChats:
    """What callers saw: the object `bylot` of answers by decision, and decisions in headers only.

    broken: requests that the server had taken and did not answer, as it was killed
    """

    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    headers: set[str] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0


def write_config(folder: Path, upstream: FaultUpstream) -> Path:
    """A configuration file with one router of all models."""
    problem = {
        "experts": MODELS,
        "costs": {"usd": [DECLARED_USD] * len(MODELS)},
        "limits": [{"cost": "usd", "at_most": 4 * DECLARED_USD}],
        "draws": 3,
    }
    gateway = {
        "answer": "pick",
        "scorer": {"regex": {"pattern": "[a-m]"}},
        "member_timeout_s": 1.0,
        "cooldown_after": 100,
    }
    routers = {"panel": {"problem": problem, "gateway": gateway}}
    return write_gateway_config(folder, [upstream], routers)


async def run_caller(
    session: aiohttp.ClientSession, n: int, seen: ObservedChats, stop: asyncio.Event
) -> None:
    """Send chats, every second one as a stream; none is repeated."""
    count = 0
    while not stop.is_set():
        count += 1
        body = {
            "model": "bylot/panel",
            "stream": count % 2 == 0,
            "messages": [{"role": "user", "content": f"Caller {n} asks for the {count}. time."}],
        }
        try:
            async with session.post("/v1/chat/completions", json=body) as response:
                seen.statuses[response.status] += 1
                if id_ := response.headers.get("x-bylot-decision-id"):
                    seen.headers.add(id_)
                for details in find_details(await response.read()):
                    seen.answers[details["decision"]] = details
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.05)
        except aiohttp.ClientError:
            seen.broken += 1


def find_details(content: bytes) -> list[dict[str, Any]]:
    """The objects `bylot` of a response, whole or streamed."""
    events = [line.removeprefix(b"data: ") for line in content.splitlines() if line.strip()]
    documents = [json.loads(one) for one in events if one.startswith(b"{")]
    return [one["bylot"] for one in documents if "bylot" in one]


async def run_campaign(server: ServerProcess, upstream: FaultUpstream) -> ObservedChats:
    """Run callers, and kill the server at random times while members are being asked."""
    rng, seen, stop = random.Random(KILLS), ObservedChats(), asyncio.Event()
    async with aiohttp.ClientSession(server.url) as session:
        load = [
            asyncio.create_task(run_caller(session, n, seen, stop)) for n in range(1, CALLERS + 1)
        ]
        for _ in range(KILLS):
            before = len(seen.answers)
            while len(seen.answers) < before + 10:
                assert not any(one.done() for one in load), [one for one in load if one.done()]
                await asyncio.sleep(0.01)
            await asyncio.sleep(rng.uniform(0.0, 0.5))
            while not upstream.active:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        stop.set()
        await asyncio.gather(*load)
    return seen


def count_calls(upstream: FaultUpstream) -> tuple[int, Counter[str]]:
    """How many chats reached a model at all, and how many reached each model."""
    asked: dict[str, set[str]] = {}
    for body in upstream.bodies:
        asked.setdefault(body["messages"][0]["content"], set()).add(body["model"])
    return len(asked), Counter(model for models in asked.values() for model in models)


def check_log(log: PanelLog, seen: ObservedChats, upstream: FaultUpstream) -> None:
    """Compare the log with the answers and with the calls of models."""
    for id_ in seen.headers | set(seen.answers):
        assert int(id_.split(".")[2]) in log.decisions, f"{id_} was sent to a caller and is lost"
    for seq, reports in log.reports.items():
        assert len(reports) == 1, f"decision {seq} was settled {len(reports)} times"
    for id_, details in seen.answers.items():
        seq = int(id_.split(".")[2])
        (report,) = log.reports[seq]
        assert report.spend is not None
        assert math.isclose(report.spend["usd"], details["cost_usd"], rel_tol=1e-9), id_
        assert log.list_members(seq) >= set(details["members"])
    chats, calls = count_calls(upstream)
    assert len(log.decisions) >= chats, "a model was asked without a decision in the log"
    drawn = Counter(name for seq in log.decisions for name in log.list_members(seq))
    for model, count in calls.items():
        assert drawn[model] >= count, f"{model} was asked more often than it was drawn"


def test_no_decision_is_lost_or_booked_twice_if_the_gateway_is_killed(
    address: str, tmp_path: Path
) -> None:
    with FaultUpstream(mix=MIX, seed=2, models=MODELS, latency=0.05) as upstream:
        config = write_config(tmp_path, upstream)
        with serve_store(address, log=tmp_path / "log", config=config) as server:
            seen = asyncio.run(run_campaign(server, upstream))
            status = server.get("/v1/routers/panel/status")
    log = read_panel_log(address)
    unsettled = len(log.decisions) - len(log.reports)
    print(
        f"\n{address.split(':')[0]}: {KILLS} kills, {len(log.decisions):,} decisions, "
        f"{len(log.replaced):,} with a substitute, {unsettled:,} out when the gateway was killed, "
        f"{len(seen.answers):,} answers, {seen.broken:,} requests without one"
    )
    assert set(seen.statuses) <= {200, 502, 503, 504}, seen.statuses
    check_log(log, seen, upstream)
    assert 0 < unsettled <= seen.broken
    assert status["decisions"] == len(log.decisions) + log.cancelled
    assert math.isclose(status["costs"]["usd"]["settled"], log.compute_dollars(), rel_tol=1e-9)
    with contextlib.closing(open_store(address, read_only=True)) as store:
        assert audit_router(store, "panel").fault is None
