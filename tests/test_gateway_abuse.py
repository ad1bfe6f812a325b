"""Callers and models that misbehave cannot change what is booked, learn secrets or harm others."""

import asyncio
import json
import math
import signal
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import httpx
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

import bylot
from bylot.errors import TooManyContexts
from bylot.gateway.answers import Answer, Failure, ScorerError, Verdict
from bylot.gateway.config import ModelEntry, ScorerEntry, build_models, is_request_parameter
from bylot.gateway.model_responses import count_chars, read_events, read_usage
from bylot.gateway.scoring import PythonScorer, PythonSettings
from bylot.gateway.settlement import cap_spend
from bylot.gateway.stream_run import StreamPump
from bylot.gateway.upstream import ChatBody, UpstreamClient
from bylot.problem import Problem
from bylot.server.auth import issue_key
from gateway_target import (
    RunningGateway,
    make_model_entry,
    run_with_client,
    start_gateway,
    wait_for_quiet,
    write_gateway_config,
)
from live_server import wait_until
from panel_log import read_panel_log
from server_process import serve_store
from upstream_faults import Fault, FaultUpstream
from upstreams import ReplayUpstream

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Where is the Rhine?"}]}
PROBLEM = {"experts": ["a", "b", "c"], "costs": {"usd": [1e-4] * 3}, "draws": 3}


# What callers do


async def interfere(gateway: RunningGateway, requests: Sequence[tuple[str, Any]]) -> list[int]:
    """Send requests about a decision while its stream goes on; their statuses."""
    headers = {"authorization": f"Bearer {gateway.key}"}
    base = gateway.base_url.removesuffix("/v1")
    async with aiohttp.ClientSession(headers=headers) as session:
        body = {"model": gateway.model, "stream": True, **BODY}
        async with session.post(f"{gateway.base_url}/chat/completions", json=body) as response:
            await response.content.readany()
            id_, statuses = response.headers["x-bylot-decision-id"], []
            for path, content in requests:
                filled = json.loads(json.dumps(content).replace("ID", id_))
                async with session.post(base + path.replace("ID", id_), json=filled) as found:
                    statuses.append(found.status)
            await response.read()
    return statuses


def test_nobody_changes_a_decision_whose_panel_is_out(tmp_path: Path) -> None:
    item = {"decision": "ID", "value": 1, "key": "gateway/exact"}
    requests: list[tuple[str, Any]] = [
        ("/v1/decisions/ID/cancel", {}),
        ("/v1/decisions/ID/replace", {"failed": "a"}),
        ("/v1/decisions/ID/reward", {"value": 1, "key": "gateway"}),
        ("/v1/rewards:batch", {"rewards": [item]}),
        ("/feedback", {"inference_id": "ID", "metric_name": "gateway", "value": True}),
        ("/v1/decisions/ID/reward", {"value": 1, "key": "user"}),  # which is allowed
    ]
    with (
        ReplayUpstream(chunk_s=0.05, chunk_chars=4) as upstream,
        start_gateway(tmp_path, [upstream], "first") as gateway,
    ):
        statuses = asyncio.run(interfere(gateway, requests))
        wait_for_quiet(gateway)
    assert statuses == [409, 409, 422, 200, 422, 200]
    log = read_panel_log(gateway.store)
    ((seq, reports),) = log.reports.items()
    assert sorted(one.key or "" for one in reports) == ["gateway", "user"]
    assert 0.0 < log.find_dollars(seq) < math.inf


def test_a_hold_outlives_the_server_and_needs_no_gateway(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/routers.db"
    with FaultUpstream(Fault.STREAM_STALL) as upstream:
        routers = {"panel": {"problem": PROBLEM, "gateway": {"answer": "first"}}}
        config = write_gateway_config(tmp_path, [upstream], routers)
        with serve_store(store, log=tmp_path / "log", config=config) as server:
            body = {"model": "bylot/panel", "stream": True, **BODY}
            url = f"{server.url}/v1/chat/completions"
            with httpx.stream("POST", url, json=body, timeout=60) as response:
                id_ = response.headers["x-bylot-decision-id"]
                server.kill()
            with serve_store(store, log=tmp_path / "log") as other:
                path = f"{other.url}/v1/decisions/{id_}"
                spend = {"usd": 0.0}
                for action, content, status, code in (
                    ("cancel", {}, 409, "in_use"),
                    ("replace", {"failed": "a"}, 409, "in_use"),
                    ("reward", {"spend": spend}, 409, "in_use"),
                    ("reward", {"value": 1, "key": "gateway"}, 422, "bad_reward"),
                    ("reward", {"value": 1, "key": "gateway/exact"}, 422, "bad_reward"),
                ):
                    found = httpx.post(f"{path}/{action}", json=content, timeout=60)
                    assert found.status_code == status, found.text
                    assert found.json()["error"]["code"] == code
                assert httpx.post(f"{path}/reward", json={"value": 1}).status_code == 200
    log = read_panel_log(store)
    assert log.compute_dollars() == pytest.approx(3e-4)


def test_a_decision_without_costs_and_scores_is_settled_too(tmp_path: Path) -> None:
    problem = {"experts": ["a", "b", "c"], "draws": 3}
    unknown: Any = dict.fromkeys("abc", (None, None))
    with (
        ReplayUpstream() as upstream,
        start_gateway(tmp_path, [upstream], "first", problem=problem, prices=unknown) as gateway,
    ):
        headers = {"authorization": f"Bearer {gateway.key}"}
        chat = {"model": gateway.model, **BODY}
        answer = gateway.client.post("/v1/chat/completions", json=chat, headers=headers)
        wait_for_quiet(gateway)
        path = f"/v1/decisions/{answer.json()['bylot']['decision']}"
        (report,) = gateway.read(path)["rewards"]
        cancelled = gateway.client.post(f"{path}/cancel", headers=headers)
    assert (report["key"], report["receipt"], report["spend"]) == ("gateway", "settled", None)
    assert cancelled.json()["error"]["code"] == "invalid_state", "it is no longer in use"


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_that_outlasts_the_shutdown_may_have_asked_members(
    stream: bool, tmp_path: Path
) -> None:
    answers: list[httpx.Response] = []
    with (
        ReplayUpstream(latency=30.0) as upstream,
        start_gateway(tmp_path, [upstream], server={"drain_timeout_s": 1.0}) as gateway,
    ):
        request = {"model": gateway.model, "stream": stream, **BODY}
        headers = {"authorization": f"Bearer {gateway.key}"}

        def chat() -> None:
            path = "/v1/chat/completions"
            answers.append(gateway.client.post(path, json=request, headers=headers))

        thread = threading.Thread(target=chat)
        thread.start()
        wait_until(lambda: upstream.active == 3)
        gateway.client.server.handle_exit(15, None)
        thread.join()
    assert answers[0].status_code == 503
    assert answers[0].json()["error"]["code"] == "timeout"  # "draining": nothing was done
    assert int(answers[0].headers["retry-after"]) >= 1
    assert len(read_panel_log(gateway.store).decisions) == 1


def test_a_router_full_of_contexts_serves_requests_without_theirs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        ReplayUpstream() as upstream,
        start_gateway(tmp_path, [upstream], entry={"max_contexts": 3}) as gateway,
    ):
        headers = {"authorization": f"Bearer {gateway.key}"}
        for context in ("x", "y", "z", "one too many", "two", "three", "", "x"):
            response = gateway.client.post(
                "/v1/chat/completions",
                json={"model": gateway.model, **BODY},
                headers={**headers, "x-bylot-context": context},
            )
            assert response.status_code == 200, response.text
            used = response.json()["bylot"]["context"]
            assert used == (context if context in ("x", "y", "z") else None)
        metrics = gateway.client.get("/metrics", headers=headers).text
    assert 'bylot_contexts_left_out_total{router="panel"} 3.0' in metrics
    assert sum("without their contexts" in message for message in caplog.messages) == 1


def test_a_router_has_room_for_requests_without_a_context() -> None:
    problem = Problem(["a", "b"], {"usd": [1.0, 1.0]}, draws=1)
    router = bylot.Router(problem, "omd", max_contexts=2)
    router.decide("x")
    router.decide("y")
    with pytest.raises(TooManyContexts):
        router.decide("z")
    router.decide(None)
    with pytest.raises(TooManyContexts):
        router.decide("z")
    assert router.decide(None).context is None


def test_a_key_does_not_reveal_which_other_routers_there_are(tmp_path: Path) -> None:
    with ReplayUpstream() as upstream, start_gateway(tmp_path, [upstream]) as gateway:
        text, row = issue_key("other", ("decide",), ["elsewhere"], at=0)
        credentials = gateway.client.app.state.credentials
        credentials.keys = {**credentials.keys, row.id: row}
        answers = [
            gateway.client.post(
                "/v1/chat/completions",
                json={"model": f"bylot/{name}", **BODY},
                headers={"authorization": f"Bearer {text}"},
            )
            for name in ("panel", "nothing")
        ]
    assert [one.status_code for one in answers] == [404, 404]
    texts = [one.text.replace("nothing", "panel") for one in answers]
    assert texts[0] == texts[1]


# What models do


async def serve_lines(parts: Sequence[bytes]) -> list[bytes]:
    """The events of a stream that comes in these parts."""

    async def iterate() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    response = SimpleNamespace(content=SimpleNamespace(iter_any=iterate))
    return [event async for event in read_events(cast(aiohttp.ClientResponse, response))]


@given(
    st.lists(st.text("abc é", min_size=1, max_size=5), max_size=6),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.booleans(),
    st.lists(st.integers(0, 200), max_size=8),
)
def test_events_are_the_same_however_they_are_cut(
    texts: list[str], end: bytes, is_ended: bool, cuts: list[int]
) -> None:
    texts = [one.strip() or "x" for one in texts]
    lines = [b"data: " + one.encode() for one in texts]
    content = (
        b"\xef\xbb\xbf: comment" + end + (end * 2).join(lines) + (end * 2 if is_ended else b"")
    )
    places = sorted({min(cut, len(content)) for cut in cuts})
    parts = [content[a:b] for a, b in zip([0, *places], [*places, len(content)], strict=True)]
    assert asyncio.run(serve_lines(parts)) == [one.encode() for one in texts]


def test_usage_is_taken_only_if_it_can_be_true() -> None:
    assert read_usage({"prompt_tokens": 5, "total_tokens": 12}) == (5, 7, False)
    assert read_usage({"prompt_tokens": 2**39, "completion_tokens": 1}) is None
    assert read_usage({"prompt_tokens": 5, "total_tokens": 3}) is None
    assert read_usage({"prompt_tokens": True, "completion_tokens": 1}) is None


def test_costs_beyond_all_measure_are_capped_not_lost() -> None:
    declared = {"a": 1e-7, "b": 2e-7}
    capped = cap_spend({"a": 3.0, "b": 1.0}, declared)
    assert capped["a"] == 3 * capped["b"]
    assert sum(capped.values()) == pytest.approx(1_000 * 2 * 2e-7)
    assert cap_spend({"a": 1e-6}, declared) == {"a": 1e-6}


def test_all_that_a_message_says_is_counted() -> None:
    call = {"function": {"name": "f", "arguments": "x" * 40}}
    assert count_chars({"content": None, "tool_calls": [call], "reasoning": "y" * 8}) == 48
    parts = [{"type": "text", "text": "abcd"}, {"type": "text", "text": "ef"}]
    assert count_chars({"content": parts}) == 6


class OddModel:
    """A model on a loopback port that answers as a function says."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.received = answer, 0

    async def __aenter__(self) -> UpstreamClient:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.respond)
        self.runner = web.AppRunner(app, access_log=None)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        assert self.runner.addresses
        params = {
            "model": "openai/a",
            "api_base": f"http://127.0.0.1:{self.runner.addresses[0][1]}/v1",
            "api_key": "sk-secret",
        }
        info = {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6}
        entry = ModelEntry(model_name="a", litellm_params=params, model_info=info)
        self.client = UpstreamClient(build_models([entry]))
        await self.client.start()
        return self.client

    async def __aexit__(self, *raised: object) -> None:
        await self.client.close()
        await self.runner.cleanup()

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.received += 1
        response: web.StreamResponse = await self.answer(request)
        return response


def ask_odd_model(answer: Any, stream: bool = False) -> tuple[Answer | Failure, int]:
    """What becomes of a call, and how often the model was asked."""

    async def run() -> tuple[Answer | Failure, int]:
        model = OddModel(answer)
        async with model as client:
            call = client.call("a", ChatBody(BODY), 20.0, retries=1)
            if not stream:
                return await call.run(), model.received
            pump = StreamPump(call)
            while await asyncio.wait_for(pump.chunks.get(), 20.0) is not None:
                pass
            await pump.stop()
            return pump.outcome, model.received

    return asyncio.run(run())


def test_a_connection_that_ends_after_a_while_is_not_asked_again_and_is_booked() -> None:
    async def close(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1.2)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    outcome, received = ask_odd_model(close)
    assert isinstance(outcome, Failure)
    assert (outcome.reason, outcome.cost, received) == ("interrupted", None, 1)


def test_a_refusal_that_quotes_the_key_is_passed_on_without_it() -> None:
    async def quote(request: web.Request) -> web.StreamResponse:
        message = f"wrong: {request.headers['authorization']}"
        return web.json_response({"error": {"message": message}}, status=400)

    outcome, _ = ask_odd_model(quote)
    assert isinstance(outcome, Failure)
    assert outcome.status == 400
    assert outcome.error == {"message": "wrong: Bearer [redacted]"}
    assert not is_request_parameter("openai_api_key")
    assert not is_request_parameter("hf_auth")


def test_a_response_without_a_type_is_read() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        message = {"role": "assistant", "content": "hello"}
        body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
        response = web.StreamResponse(headers={"content-length": str(len(body))})
        await response.prepare(request)
        await response.write(body)
        return response

    outcome, _ = ask_odd_model(answer)
    assert isinstance(outcome, Answer)
    assert outcome.text == "hello"


@pytest.mark.parametrize("calls", ["text", 7, [None], {"a": 1}])
def test_tool_calls_that_are_none_are_garbage(calls: Any) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    outcome, _ = ask_odd_model(answer)
    assert isinstance(outcome, Failure)
    assert outcome.reason == "garbage"


def make_event(**delta: Any) -> bytes:
    finish = None if delta else "stop"
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def test_a_stream_may_begin_with_many_empty_chunks() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(300):
            await response.write(make_event(role="assistant"))
        await response.write(make_event(content="hello") + make_event() + b"data: [DONE]\n")
        return response

    async def run() -> Answer | Failure:
        async with OddModel(answer) as client:
            pump = StreamPump(client.call("a", ChatBody(BODY), 20.0))
            assert await asyncio.wait_for(pump.begun, 20.0) is None
            while await pump.chunks.get() is not None:
                pass
            await pump.stop()
            return pump.outcome

    outcome = asyncio.run(run())
    assert isinstance(outcome, Answer)
    assert outcome.text == "hello"


def test_a_stream_that_is_refused_is_asked_for_again() -> None:
    with FaultUpstream(Fault.STATUS_503, Fault.NONE, models=("a",)) as upstream:
        entries = [make_model_entry("a", upstream)]

        async def read(client: UpstreamClient) -> Answer | Failure:
            pump = StreamPump(client.call("a", ChatBody(BODY), 20.0, retries=1))
            while await asyncio.wait_for(pump.chunks.get(), 20.0) is not None:
                pass
            await pump.stop()
            return pump.outcome

        assert isinstance(run_with_client(entries, read), Answer)


# What scorers do


def exit_at_once(request: Mapping[str, Any], answers: Sequence[Answer]) -> Any:
    raise SystemExit(3)


def ask_for_money(request: Mapping[str, Any], answers: Sequence[Answer]) -> Any:
    return Verdict(scores={}, source="", cost=cast(float, request["cost"]))


@pytest.mark.parametrize("cost", [math.nan, -1.0, math.inf, None, "free"])
def test_a_scorer_cannot_book_what_is_no_cost(cost: Any) -> None:
    scorer = PythonScorer("x", PythonSettings(function="test_gateway_abuse:ask_for_money"))
    with pytest.raises(ScorerError, match="the cost of a verdict"):
        asyncio.run(scorer.score({"cost": cost}, []))


def test_a_scorer_cannot_end_the_server() -> None:
    scorer = PythonScorer("x", PythonSettings(function="test_gateway_abuse:exit_at_once"))
    with pytest.raises(ScorerError, match=r"it called sys\.exit"):
        asyncio.run(scorer.score({}, []))


# What operators do


def test_streams_that_are_out_when_the_server_stops_are_settled(tmp_path: Path) -> None:
    """At the declared costs, as the members were asked; not at nothing, and not never."""
    store, count = f"sqlite:///{tmp_path}/routers.db", 4
    with FaultUpstream(Fault.HANG) as upstream:
        routers = {"panel": {"problem": PROBLEM, "gateway": {"answer": "first"}}}
        config = write_gateway_config(tmp_path, [upstream], routers)
        with serve_store(
            store, log=tmp_path / "log", config=config, BYLOT_DRAIN_TIMEOUT_S="1"
        ) as server:

            async def run() -> None:
                async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
                    body = {"model": "bylot/panel", "stream": True, **BODY}
                    url = "/v1/chat/completions"
                    work = [asyncio.create_task(client.post(url, json=body)) for _ in range(count)]
                    while upstream.active < 3 * count:
                        await asyncio.sleep(0.02)
                    server.process.send_signal(signal.SIGTERM)
                    await asyncio.gather(*work, return_exceptions=True)

            asyncio.run(run())
            assert server.process.wait(30) == 0
    log = read_panel_log(store)
    assert len(log.decisions) == len(log.reports) == count
    assert log.compute_dollars() == pytest.approx(count * 3e-4)


def test_the_schema_of_a_caller_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"type": "TOP SECRET"}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with (
        ReplayUpstream() as upstream,
        start_gateway(tmp_path, [upstream], scorer=ScorerEntry(json_schema={})) as gateway,
    ):
        gateway.client.post(
            "/v1/chat/completions",
            json={"model": gateway.model, **BODY, "response_format": form},
            headers={"authorization": f"Bearer {gateway.key}"},
        )
        wait_for_quiet(gateway)
    assert "SECRET" not in caplog.text
