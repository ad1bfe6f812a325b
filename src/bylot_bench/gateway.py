"""CPU and latency of the gateway: a panel of three against one call through the LiteLLM proxy.

All servers are processes on loopback. One upstream plays all models: it waits as long as the prompt
says for a model, so that the latency that the gateway adds is known exactly.
"""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bylot._text import format_table, print_progress
from bylot_bench.http_load import (
    AsgiMessage,
    ServerProcess,
    format_post,
    measure_request_cpu,
    read_answer,
)

MODELS = ("small", "medium", "large")
REQUEST_COUNT, TURNS, WARM_UP_REQUESTS = 2_000, 3, 50
CONNECTIONS = 8
RATE_PER_S, RATE_SECONDS = 50.0, 20.0
HANG_S, GRACE_S = 30.0, 0.2
ANSWER = {
    "id": "chatcmpl-upstream",
    "object": "chat.completion",
    "created": 0,
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "The answer is (C). " * 20},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 60, "completion_tokens": 100, "total_tokens": 160},
}


async def upstream_app(
    scope: AsgiMessage,
    receive: Callable[[], Awaitable[AsgiMessage]],
    send: Callable[[AsgiMessage], Awaitable[None]],
) -> None:
    """All models: wait as the prompt says for this model, then answer."""
    if scope["type"] != "http":
        return
    content, more = b"", True
    while more:
        message = await receive()
        content += message.get("body", b"")
        more = message.get("more_body", False)
    body: dict[str, Any] = json.loads(content or b'{"model": "", "messages": []}')
    if body["messages"]:
        waits = json.loads(body["messages"][-1]["content"])
        await asyncio.sleep(waits.get(body["model"], 0.0))
    answer = json.dumps({**ANSWER, "model": body["model"]}).encode()
    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": answer})


def format_chat(model: str, waits: dict[str, float]) -> bytes:
    """A chat request, with the seconds that each model waits."""
    chat = {"model": model, "messages": [{"role": "user", "content": json.dumps(waits)}]}
    return format_post("/v1/chat/completions", json.dumps(chat).encode())


def list_models(upstream: ServerProcess) -> list[dict[str, Any]]:
    """The models in the shape that bylot and LiteLLM share."""
    return [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"openai/{name}",
                "api_base": f"{upstream.url}/v1",
                "api_key": "none",
            },
            "model_info": {"input_cost_per_token": 1e-7, "output_cost_per_token": 4e-7},
        }
        for name in MODELS
    ]


@contextmanager
def run_gateway(upstream: ServerProcess, **gateway: Any) -> Iterator[ServerProcess]:
    """Run `bylot serve` with one router that asks all three models."""
    with tempfile.TemporaryDirectory() as folder:
        problem = {
            "draws": len(MODELS),
            "experts": list(MODELS),
            "costs": {"usd": [5e-5, 5e-5, 5e-5]},
        }
        config = {
            "store": f"sqlite:///{folder}/bench.db",
            "model_list": list_models(upstream),
            "routers": {"panel": {"problem": problem, "gateway": gateway}},
        }
        path = Path(folder, "bylot.yaml")
        path.write_text(json.dumps(config))  # JSON is YAML
        with ServerProcess("bylot", "serve", "--config", str(path)) as server:
            yield server


@contextmanager
def run_litellm(upstream: ServerProcess, command: str) -> Iterator[ServerProcess]:
    """Run the LiteLLM proxy with one worker; command: its executable."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_text(json.dumps({"model_list": list_models(upstream)}))
        with ServerProcess(
            *("--config", str(path), "--host", "127.0.0.1", "--num_workers", "1"),
            ready="/health/liveliness",
            environment={  # on loopback, for this run
                **os.environ,
                "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
            },
            executable=(command,),
        ) as server:
            yield server


def run(litellm: str | None = None) -> dict[str, Any]:
    """Measure everything in one run; litellm: the executable of its proxy, if it is installed."""
    with ServerProcess(
        "uvicorn", "bylot_bench.gateway:upstream_app", "--no-access-log", ready="/"
    ) as upstream:
        print_progress("... CPU of a panel of three, and of one call through LiteLLM")
        cpu, lost = measure_cpu(upstream, litellm)
        print_progress(f"... latency at {RATE_PER_S:g} requests a second")
        with run_gateway(upstream, answer="first", quorum=len(MODELS)) as server:
            added = asyncio.run(measure_added_latency(server, "panel", needed=len(MODELS)))
        print_progress("... latency while one member hangs")
        with run_gateway(
            upstream,
            answer="all",
            quorum=2,
            grace_s=GRACE_S,
            member_timeout_s=HANG_S,
            refill=0,
            cooldown_after=10**6,
        ) as server:
            hung = asyncio.run(measure_added_latency(server, "panel", needed=2, hangs="large"))
    return {
        "cpu_ms_per_request": cpu,
        "ratio_to_litellm": cpu["bylot_panel_3"] / cpu["litellm_one"] if litellm else None,
        "added_p50_ms": added["p50"],
        "added_p99_ms": added["p99"],
        "hanging_member_added_p99_ms": hung["p99"],
        "lost": lost + added["lost"] + hung["lost"],
    }


def measure_cpu(upstream: ServerProcess, litellm: str | None) -> tuple[dict[str, float], int]:
    """Milliseconds of the servers' CPU per request, in turns; the least counts."""
    with ExitStack() as stack:
        server = stack.enter_context(run_gateway(upstream, answer="first", quorum=len(MODELS)))
        targets = {"bylot_panel_3": (server, format_chat("bylot/panel", {}), REQUEST_COUNT)}
        if litellm is not None:
            proxy = stack.enter_context(run_litellm(upstream, litellm))
            targets["litellm_one"] = proxy, format_chat(MODELS[0], {}), REQUEST_COUNT // 4
        for target, chat, _ in targets.values():
            measure_request_cpu(target, [chat] * WARM_UP_REQUESTS, CONNECTIONS)
        turns: dict[str, list[float]] = {name: [] for name in targets}
        for _ in range(TURNS):  # alternately, so that other load on the machine affects all alike
            for name, (target, chat, count) in targets.items():
                turns[name].append(1e3 * measure_request_cpu(target, [chat] * count, CONNECTIONS))
        status = server.get("/v1/routers/panel/status")
    sent = REQUEST_COUNT * TURNS + WARM_UP_REQUESTS
    return {name: min(values) for name, values in turns.items()}, sent - status["decisions"]


async def measure_added_latency(
    server: ServerProcess, router: str, needed: int, hangs: str | None = None
) -> dict[str, float]:
    """Milliseconds beyond the wait of the slowest member that was needed, at a fixed rate."""
    rng = np.random.default_rng(7)
    added: list[float] = []
    lost = 0

    async def ask_once(at: float) -> None:
        nonlocal lost
        waits = dict(zip(MODELS, rng.lognormal(np.log(0.03), 0.5, 3).tolist(), strict=True))
        if hangs is not None:
            waits[hangs] = HANG_S
        await asyncio.sleep(at - time.perf_counter())
        start = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(format_chat(f"bylot/{router}", waits))
        answer = await read_answer(reader)
        seconds = time.perf_counter() - start
        writer.close()
        lost += b" 200 " not in answer[:20]
        added.append(1e3 * (seconds - sorted(waits.values())[needed - 1]))

    begin = time.perf_counter() + 0.5
    await asyncio.gather(
        *(ask_once(begin + n / RATE_PER_S) for n in range(int(RATE_PER_S * RATE_SECONDS)))
    )
    p50, p99 = np.percentile(added, [50, 99]).tolist()
    return {"p50": p50, "p99": p99, "lost": lost}


def render(result: dict[str, Any]) -> str:
    """The figures as text."""
    cpu = result["cpu_ms_per_request"]
    litellm = (
        f"{cpu['litellm_one']:.2f}"
        if "litellm_one" in cpu
        else "not measured: give --litellm COMMAND"
    )
    rows = [
        ("CPU per request", "ms"),
        ("panel of 3 through bylot", f"{cpu['bylot_panel_3']:.2f}"),
        ("one call through LiteLLM", litellm),
    ]
    late = [
        ("latency beyond the slowest member that was needed", "ms"),
        (f"median, {RATE_PER_S:g} requests a second", f"{result['added_p50_ms']:.1f}"),
        ("99 %", f"{result['added_p99_ms']:.1f}"),
        (
            f"99 %, one member hangs, quorum 2, grace {1e3 * GRACE_S:.0f} ms",
            f"{result['hanging_member_added_p99_ms']:.1f}",
        ),
    ]
    return "\n".join([*format_table(rows), "", *format_table(late), "", f"{result['lost']} lost"])
