"""Rules of the gateway from end to end: who is asked again, what is returned, what is booked."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bylot.errors import BylotError
from bylot.gateway.answers import Answer, Failure
from bylot.gateway.config import GatewayEntry, ModelEntry, ScorerEntry, build_models
from bylot.gateway.stream_run import StreamPump
from bylot.gateway.upstream import ChatBody, UpstreamClient
from bylot.server.provision import build_declared
from bylot.server.settings import RouterEntry
from gateway_target import (
    RunningGateway,
    make_model_entry,
    run_with_client,
    start_gateway,
    wait_for_quiet,
)
from panel_log import read_panel_log
from upstream_faults import Fault, FaultUpstream
from upstreams import ReplayUpstream

BODY = {"messages": [{"role": "user", "content": "Where is the Rhine?"}]}
SLOW_SCORER_S = 1.5
PROBLEM = {"experts": ["a", "b", "c"], "costs": {"usd": [1e-4] * 3}, "draws": 3}


def score_by_name(request: Mapping[str, Any], answers: Sequence[Answer]) -> dict[str, float]:
    """c is best, a is worst."""
    return {one.member: {"a": 0.1, "b": 0.5}.get(one.member, 1.0) for one in answers}


async def score_slowly(request: Mapping[str, Any], answers: Sequence[Answer]) -> list[float]:
    await asyncio.sleep(SLOW_SCORER_S)
    return [1.0] * len(answers)


def use(function: str) -> ScorerEntry:
    """A scorer of this module."""
    return ScorerEntry(python={"function": f"test_gateway_rules:{function}"})


async def post(
    gateway: RunningGateway, *, stream: bool = False, leave_s: float | None = None
) -> tuple[int, Mapping[str, str], bytes]:
    """One request; status, headers and body of its response."""
    url = f"{gateway.base_url}/chat/completions"
    body = {"model": gateway.model, "stream": stream, **BODY}
    headers = {"authorization": f"Bearer {gateway.key}"}
    async with (
        asyncio.timeout(leave_s),
        aiohttp.ClientSession(headers=headers) as session,
        session.post(url, json=body) as response,
    ):
        return response.status, response.headers, await response.read()


def test_in_turn_the_good_answer_is_returned_also_with_first(tmp_path: Path) -> None:
    with (
        ReplayUpstream() as upstream,
        start_gateway(
            tmp_path, [upstream], "first", ask="in_turn", scorer=use("score_by_name")
        ) as gateway,
    ):
        for _ in range(3):
            _, headers, _ = asyncio.run(post(gateway))
            assert headers["x-bylot-winner"] == "c"


def test_no_substitute_is_asked_once_the_quorum_is_met(tmp_path: Path) -> None:
    with (
        FaultUpstream(
            choose=lambda body: Fault.HANG if body["model"] == "a" else Fault.NONE,
            models=("a", "b", "c", "d"),
        ) as upstream,
        start_gateway(
            tmp_path,
            [upstream],
            "all",
            problem={"experts": ["a", "b", "c", "d"], "costs": {"usd": [1e-4] * 4}, "draws": 3},
            quorum=2,
            grace_s=2.0,
            member_timeout_s=0.3,
            cooldown_after=100,
        ) as gateway,
    ):
        for _ in range(6):
            asyncio.run(post(gateway))
        wait_for_quiet(gateway)
        assert "a" in {body["model"] for body in upstream.bodies}
        assert len(upstream.bodies) == 18
    assert not read_panel_log(gateway.store).replaced


@pytest.mark.parametrize("stream", [False, True])
def test_a_panel_that_takes_too_long_is_a_time_out(tmp_path: Path, stream: bool) -> None:
    with (
        FaultUpstream(Fault.HANG) as upstream,
        start_gateway(tmp_path, [upstream], "first", timeout_s=0.5) as gateway,
    ):
        status, _, _ = asyncio.run(post(gateway, stream=stream))
        wait_for_quiet(gateway)
        members = gateway.client.app.state.gateway.routers["panel"].health.members
    assert status == 504
    assert {one.failures for one in members.values()} == {1}


@pytest.mark.parametrize("stream", [False, True])
def test_the_caller_of_first_does_not_wait_for_the_scorer(tmp_path: Path, stream: bool) -> None:
    with (
        ReplayUpstream() as upstream,
        start_gateway(tmp_path, [upstream], "first", scorer=use("score_slowly")) as gateway,
    ):
        start = time.monotonic()
        status, headers, _ = asyncio.run(post(gateway, stream=stream))
        seconds = time.monotonic() - start
        wait_for_quiet(gateway)
    assert status == 200
    assert seconds < SLOW_SCORER_S
    assert ("x-bylot-cost-usd" in headers) == (not stream), "what a stream costs is not known yet"
    ((report,),) = read_panel_log(gateway.store).reports.values()
    assert report.members, "it was scored all the same"


def test_scores_are_learned_although_the_caller_has_left_meanwhile(tmp_path: Path) -> None:
    with (
        ReplayUpstream() as upstream,
        start_gateway(tmp_path, [upstream], "pick", scorer=use("score_slowly")) as gateway,
    ):
        with pytest.raises(TimeoutError):
            asyncio.run(post(gateway, leave_s=0.5 * SLOW_SCORER_S))
        wait_for_quiet(gateway)
    ((report,),) = read_panel_log(gateway.store).reports.values()
    assert report.members == dict.fromkeys("abc", 1.0)


def test_a_judge_is_booked_although_it_breaks_off(tmp_path: Path) -> None:
    with (
        FaultUpstream(
            choose=lambda body: Fault.HANG if body["model"] == "judge" else Fault.NONE,
            models=("a", "b", "c", "judge"),
        ) as upstream,
        start_gateway(
            tmp_path,
            [upstream],
            problem=PROBLEM,
            scorer=ScorerEntry(judge={"model": "judge"}),
            member_timeout_s=0.5,
        ) as gateway,
    ):
        asyncio.run(post(gateway))
        wait_for_quiet(gateway)
        bodies = upstream.bodies
    members = read_panel_log(gateway.store)
    ((report,),) = members.reports.values()
    assert report.spend is not None
    prompt = next(len(str(one)) for one in bodies if one["model"] == "judge")
    assert report.spend["usd"] > 0.8 * prompt / 4 * 1e-7, "at least its prompt is billed"


def test_an_expert_without_a_model_is_not_asked(tmp_path: Path) -> None:
    with (
        ReplayUpstream() as upstream,
        start_gateway(tmp_path, [upstream], problem={**PROBLEM, "draws": 2}) as gateway,
    ):
        asyncio.run(post(gateway))
        headers = {"authorization": f"Bearer {gateway.key}"}
        edit = {"add": [{"name": "new", "usd": 1e-4}]}
        edited = gateway.client.patch("/v1/routers/panel", json=edit, headers=headers)
        assert edited.status_code == 200, edited.text
        for _ in range(12):
            status, _, body = asyncio.run(post(gateway))
            assert status == 200, body
        wait_for_quiet(gateway)
    log = read_panel_log(gateway.store)
    assert set(log.reports) == set(log.decisions)
    assert not any("new" in one.draws for one in log.decisions.values())


def test_every_endpoint_has_its_own_time_out() -> None:
    with ReplayUpstream(("a",), latency=0.6) as slow, ReplayUpstream(("a",)) as fast:
        entries = [make_model_entry("a", one) for one in (slow, fast)]
        entries[0].litellm_params["timeout"] = 0.2

        async def ask(client: UpstreamClient) -> list[Answer | Failure]:
            calls = [client.call("a", ChatBody(BODY), 5.0).run() for _ in range(2)]
            return list(await asyncio.gather(*calls))

        first, second = run_with_client(entries, ask)
    assert isinstance(first, Failure)
    assert first.reason == "timeout"
    assert isinstance(second, Answer), "the time-out of the other endpoint is not its own"


def test_a_stream_of_tool_calls_that_breaks_is_booked_at_the_price_of_what_it_sent() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    body = ChatBody({**BODY, "tools": [tool], "tool_choice": "required"})

    async def read(client: UpstreamClient) -> Answer | Failure:
        pump = StreamPump(client.call("a", body, 5.0))
        while await asyncio.wait_for(pump.chunks.get(), 5.0) is not None:
            pass
        await pump.stop()
        return pump.outcome

    with FaultUpstream(Fault.STREAM_RESET, models=("a",), chunk_chars=2) as upstream:
        outcome = run_with_client([make_model_entry("a", upstream)], read)
    assert isinstance(outcome, Failure)
    assert outcome.sent
    assert outcome.cost, "arguments of a tool call are tokens too"


def test_a_fault_of_ours_ends_a_stream(caplog: pytest.LogCaptureFixture) -> None:
    async def read(client: UpstreamClient) -> Answer | Failure:
        await client.close()
        pump = StreamPump(client.call("a", ChatBody(BODY), 5.0))
        assert await asyncio.wait_for(pump.chunks.get(), 5.0) is None
        return pump.outcome

    with ReplayUpstream(("a",)) as upstream:
        outcome = run_with_client([make_model_entry("a", upstream)], read)
    assert isinstance(outcome, Failure)
    assert "the stream of a failed" in caplog.text


def test_only_parameters_bound_what_is_asked_for() -> None:
    """`max_tokens` of `model_info` is what the model can do, as in LiteLLM; it is not sent."""
    params = {"model": "openai/a", "api_base": "http://localhost/v1"}
    for more, info, sent in (
        ({}, {"max_tokens": 200_000}, None),
        ({"max_tokens": 100}, {"max_tokens": 200_000}, 100),
    ):
        entry = ModelEntry(model_name="a", litellm_params={**params, **more}, model_info=info)
        (deployment,) = build_models([entry])["a"].deployments
        assert deployment.max_tokens == sent


def test_clusters_without_a_place_are_refused_before_anything_is_created(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(PROBLEM))
    entry = RouterEntry(problem=path, gateway=GatewayEntry(context={"clusters": 16}))
    with pytest.raises(BylotError, match=r"no file; give context\.file"):
        build_declared("panel", entry, {name: [] for name in "abc"})
