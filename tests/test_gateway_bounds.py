"""What one model sends leaves the server to others."""

import asyncio
import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flooding_model
from bylot.gateway.answers import Answer, Failure
from bylot.gateway.config import ModelEntry
from bylot.gateway.model_responses import (
    MAX_ANSWER_BYTES,
    MAX_ANSWER_VALUES,
    MAX_EVENT_VALUES,
    MAX_INFORMATIONAL_RESPONSES,
    MAX_TOOL_CALLS,
)
from bylot.gateway.stream_run import StreamPump
from bylot.gateway.upstream import ChatBody, UpstreamClient
from bylot_bench.http_load import ServerProcess
from flooding_model import TEXT
from flooding_model import flooding_model as serve_floods
from gateway_target import run_with_client
from server_process import serve_store

FLOOD_S = float(os.environ.get("BYLOT_FLOOD_S", "1"))  # 60: the whole campaign
MAX_MORE_BYTES = 100_000_000
FLOODS = {"informational": "informational-0", "calls": "calls-1", "members": "members-1"}
"""Models that send without end, and models that send one such thing and an answer."""
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}


# One model


@pytest.fixture(scope="module")
def floods() -> Iterator[str]:
    with serve_floods() as base:
        yield base


def ask(base: str, model: str, stream: bool = False) -> tuple[Answer | Failure, int]:
    """What becomes of a call, and how many tool calls of it are kept."""
    params = {"model": f"openai/{model}", "api_base": base}

    async def work(client: UpstreamClient) -> tuple[Answer | Failure, int]:
        call = client.call("a", ChatBody(BODY), 60.0, retries=0)
        if not stream:
            return await call.run(), 0
        pump = StreamPump(call)
        while await pump.chunks.get() is not None:
            pass
        await pump.stop()
        return pump.outcome, len(call.tool_calls)

    return run_with_client([ModelEntry(model_name="a", litellm_params=params)], work)  # type: ignore[no-any-return]


def find_reason(outcome: Answer | Failure) -> str | None:
    return outcome.reason if isinstance(outcome, Failure) else None


@pytest.mark.parametrize("stream", [False, True])
def test_informational_responses_are_bounded(floods: str, stream: bool) -> None:
    for model in (f"informational-{MAX_INFORMATIONAL_RESPONSES + 1}", "informational"):
        outcome, _ = ask(floods, model, stream)
        assert find_reason(outcome) == "too_many_responses"
    outcome, _ = ask(floods, f"informational-{MAX_INFORMATIONAL_RESPONSES}")
    assert isinstance(outcome, Answer)
    assert outcome.text == TEXT


def test_tool_calls_of_a_stream_are_bounded(floods: str) -> None:
    for model in (f"calls-{MAX_TOOL_CALLS + 1}", "calls"):
        outcome, kept = ask(floods, model, stream=True)
        assert find_reason(outcome) == "too_many_tool_calls"
        assert kept == MAX_TOOL_CALLS
    outcome, kept = ask(floods, f"calls-{MAX_TOOL_CALLS}", stream=True)
    assert isinstance(outcome, Answer)
    calls = outcome.choice["message"]["tool_calls"]
    assert len(calls) == kept == MAX_TOOL_CALLS
    assert calls[-1]["id"] == f"call_{MAX_TOOL_CALLS - 1}"
    assert calls[-1]["function"] == {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("kind", "most", "each", "stream"),
    [
        ("members", MAX_ANSWER_VALUES, 2, False),
        ("events", MAX_EVENT_VALUES, 2, True),
        ("text", MAX_ANSWER_BYTES, 1_000, True),
    ],
)
def test_values_and_texts_of_answers_are_bounded(
    floods: str, kind: str, most: int, each: int, stream: bool
) -> None:
    outcome, _ = ask(floods, f"{kind}-{most // each - 20}", stream)
    assert isinstance(outcome, Answer)
    outcome, _ = ask(floods, f"{kind}-{most // each + 1}", stream)
    assert find_reason(outcome) == "too_large"


def test_a_body_of_small_members_is_not_decoded(floods: str) -> None:
    outcome, _ = ask(floods, "members")
    assert find_reason(outcome) == "too_large"


def test_a_stream_leaves_turns_to_other_tasks(floods: str) -> None:
    async def work(client: UpstreamClient) -> int:
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count_turns())
        call = client.call("a", ChatBody(BODY), 60.0, retries=0)
        with contextlib.suppress(Exception):
            async for _ in call.stream():
                pass
        other.cancel()
        await asyncio.wait([other])
        return turns

    params = {"model": "openai/lines-20", "api_base": floods}
    turns = run_with_client([ModelEntry(model_name="a", litellm_params=params)], work)
    assert turns >= 150  # for 20,000 chunks


# One server, of which another router is used


def send(port: int, path: str, body: dict[str, Any], seconds: float, pause_s: float) -> Any:
    """Send a request again and again; the status and the seconds of each response."""
    found, end = [], time.monotonic() + seconds
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as sender:
        while time.monotonic() < end:
            start = time.perf_counter()
            sender.request("POST", path, json.dumps(body))
            response = sender.getresponse()
            response.read()
            found.append((response.status, time.perf_counter() - start))
            time.sleep(pause_s)
    return np.array(found)


def time_decisions(port: int, seconds: float) -> Any:
    """The seconds of each decision of the router `other`."""
    found = send(port, "/v1/routers/other/decisions", {}, seconds, 0.005)
    assert set(found[:, 0]) == {201}
    return found[:, 1]


def read_memory(pid: int) -> int:
    """Bytes of a process in memory."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def find_peak_memory(pid: int, seconds: float) -> int:
    """The most bytes of a process in memory within some seconds."""
    end = time.monotonic() + seconds
    peak = 0
    while time.monotonic() < end:
        peak = max(peak, read_memory(pid))
        time.sleep(0.01)
    return peak


@pytest.fixture(scope="module")
def flooded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a router for each flood, and the router `other`."""
    folder = tmp_path_factory.mktemp("flooded")
    command = [sys.executable, flooding_model.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        base = f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        models = [
            {"model_name": f"{name}.{n}", "litellm_params": {"model": name, "api_base": base}}
            for name in (*FLOODS, *FLOODS.values())
            for n in (1, 2)
        ]
        problem = folder / "problem.json"
        problem.write_text(json.dumps({"experts": ["x", "y"], "costs": {}, "draws": 1}))
        routers: dict[str, Any] = {"other": {"problem": str(problem), "policy": "random"}}
        for name in (*FLOODS, *FLOODS.values()):
            gateway = {"answer": "first", "member_timeout_s": 20, "cooldown_after": 1_000}
            problem = folder / f"{name}.json"
            pair = {"experts": [f"{name}.1", f"{name}.2"], "costs": {"usd": [1, 1]}, "draws": 1}
            problem.write_text(json.dumps(pair))
            routers[name] = {"problem": str(problem), "policy": "random", "gateway": gateway}
        config = folder / "bylot.yaml"
        config.write_text(json.dumps({"model_list": models, "routers": routers}))
        with serve_store(f"sqlite:///{folder}/bylot.db", folder / "log", config=config) as server:
            yield server
        process.terminate()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_one_model_leaves_the_server_to_others(
    flood: str, flooded_server: ServerProcess
) -> None:
    body = {"stream": flood == "calls", **BODY}
    pid = flooded_server.process.pid
    port = flooded_server.port
    time_decisions(port, 0.5)
    idle = time_decisions(port, FLOOD_S)
    played: list[Any] = []
    for model in (FLOODS[flood], flood):  # the first one is the control: as many chats, no flood
        before = read_memory(pid)
        asked = {"model": f"bylot/{model}", **body}
        with ThreadPoolExecutor(2) as threads:
            chats = threads.submit(send, port, "/v1/chat/completions", asked, FLOOD_S, 0.1)
            peak = threads.submit(find_peak_memory, pid, FLOOD_S)
            played.append(time_decisions(port, FLOOD_S))
        count = len(chats.result())
        assert count
    more = peak.result() - before
    time.sleep(0.5)
    kept = read_memory(pid) - before
    control, flooded = played
    p99s = [1e3 * float(np.quantile(times, 0.99)) for times in (idle, control, flooded)]
    counts = len(idle), len(control), len(flooded)
    print(
        f"{flood}: {count} chats; idle, other chats, flood: {counts} decisions, p99 {p99s} ms, "
        f"at most {more / 1e6:.0f} MB more, then {kept / 1e6:.0f}"
    )
    assert more <= MAX_MORE_BYTES
    assert kept <= MAX_MORE_BYTES / 2
    if FLOOD_S >= 60:
        assert p99s[2] <= 2 * p99s[1]
