"""A request that one model refuses is asked of another; only what all refuse is the caller's fault.

BYLOT_REFUSED_CHATS sets how many requests meet a model that refuses all of them.
"""

import os
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from chat_replies import Body, RequestError
from gateway_target import RunningGateway, start_gateway, wait_for_quiet
from panel_log import read_panel_log
from upstreams import ReplayUpstream

CHATS = int(os.environ.get("BYLOT_REFUSED_CHATS", "20"))
MESSAGES = [{"role": "user", "content": "Where is the Rhine?"}]
MODELS = ("bad", "good")
PROBLEM = {"experts": MODELS, "costs": {"usd": [1e-4] * 2}, "draws": 1}


class RefusingUpstream(ReplayUpstream):
    """Models of which some answer with an error status to everything.

    statuses: by model
    """

    def __init__(self) -> None:
        super().__init__(MODELS)
        self.statuses: dict[str, int] = {}

    async def reply_to_chat(self, request: web.Request, body: Body) -> web.StreamResponse:
        status = self.statuses.get(body["model"])
        if status is not None:
            raise RequestError(status, f"{body['model']} cannot read this", "unreadable", "stop")
        return await super().reply_to_chat(request, body)


def chat(gateway: RunningGateway, stream: bool) -> httpx.Response:
    body = {"model": gateway.model, "messages": MESSAGES, "stream": stream}
    headers = {"authorization": f"Bearer {gateway.key}"}
    return gateway.client.post("/v1/chat/completions", json=body, headers=headers)


def list_paused(gateway: RunningGateway) -> list[str]:
    health = gateway.client.app.state.gateway.find("panel").health
    return [name for name in MODELS if health.find_pause(name)]


@pytest.mark.parametrize("policy", ["distinct", "noisy-or"])
def test_a_model_that_refuses_everything_fails_no_chat(policy: str, tmp_path: Path) -> None:
    with (
        RefusingUpstream() as upstream,
        start_gateway(
            tmp_path,
            [upstream],
            "first",
            problem=PROBLEM,
            entry={"policy": policy},
            cooldown_s=0.001,
        ) as gateway,
    ):
        for status in (400, 413, 415, 422):
            upstream.statuses["bad"] = status
            for stream in (False, True):
                answers = [chat(gateway, stream) for _ in range(CHATS)]
                assert {answer.status_code for answer in answers} == {200}
                assert not any(b"cannot read" in answer.content for answer in answers)
        wait_for_quiet(gateway)
        failed = gateway.client.app.state.gateway.find("panel").stats.members["bad"].failed
        assert set(failed) == {"http_400", "http_413", "http_415", "http_422"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_that_another_model_answers_counts_as_a_failure(
    stream: bool, tmp_path: Path
) -> None:
    with (
        RefusingUpstream() as upstream,
        start_gateway(
            tmp_path, [upstream], "first", problem=PROBLEM, cooldown_after=2, cooldown_s=600
        ) as gateway,
    ):
        upstream.statuses["bad"] = 400
        for _ in range(60):
            assert chat(gateway, stream).status_code == 200
        wait_for_quiet(gateway)
        assert list_paused(gateway) == ["bad"]
        assert [body["model"] for body in upstream.bodies].count("bad") == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 422])
def test_a_request_that_all_models_refuse_is_relayed_and_pauses_nobody(
    status: int, stream: bool, tmp_path: Path
) -> None:
    with (
        RefusingUpstream() as upstream,
        start_gateway(tmp_path, [upstream], "first", problem=PROBLEM, cooldown_after=1) as gateway,
    ):
        upstream.statuses = {"bad": status, "good": status}
        for _ in range(6):
            response = chat(gateway, stream)
            assert response.status_code == status
            error = response.json()["error"]
            assert error["message"].endswith("cannot read this")
            assert (error["code"], error["param"]) == ("unreadable", "stop")
        wait_for_quiet(gateway)
        assert list_paused(gateway) == []
        assert len(upstream.bodies) == 12, "the substitute was asked too"


def test_a_refusal_and_a_failure_are_no_fault_of_the_caller(tmp_path: Path) -> None:
    with (
        RefusingUpstream() as upstream,
        start_gateway(tmp_path, [upstream], "first", problem=PROBLEM) as gateway,
    ):
        upstream.statuses = {"bad": 400, "good": 500}
        response = chat(gateway, stream=False)
        assert response.status_code == 502
        assert "cannot read" not in response.text


def test_a_refusal_does_not_end_a_pause(tmp_path: Path) -> None:
    with (
        RefusingUpstream() as upstream,
        start_gateway(
            tmp_path, [upstream], "first", problem=PROBLEM, cooldown_after=1, cooldown_s=0.001
        ) as gateway,
    ):
        upstream.statuses = {"bad": 500}
        for _ in range(100):  # until it is drawn
            assert chat(gateway, stream=False).status_code == 200
            if list_paused(gateway):
                break
        upstream.statuses = {"bad": 400, "good": 400}
        for _ in range(6):
            assert chat(gateway, stream=False).status_code == 400
        assert list_paused(gateway) == ["bad"], "it has not answered since"


@pytest.mark.parametrize("stream", [False, True])
def test_another_panel_is_drawn_if_limits_allow_no_substitute(stream: bool, tmp_path: Path) -> None:
    """Under a limit on dollars, a substitute may not cost more than the member that it replaces."""
    limits = [{"cost": "usd", "at_most": 3e-4}]
    problem = {"experts": MODELS, "costs": {"usd": [1e-4, 2e-4]}, "limits": limits, "draws": 1}
    with (
        RefusingUpstream() as upstream,
        start_gateway(
            tmp_path, [upstream], "first", problem=problem, cooldown_after=3, cooldown_s=600
        ) as gateway,
    ):
        upstream.statuses["bad"] = 400
        for _ in range(100):  # until it is drawn
            assert chat(gateway, stream).status_code == 200
            wait_for_quiet(gateway)
            if list_paused(gateway):
                break
        assert list_paused(gateway) == ["bad"]
        upstream.statuses["good"] = 400
        assert chat(gateway, stream).status_code == 400, "no other model is available"
        wait_for_quiet(gateway)
    log = read_panel_log(gateway.store)
    assert log.cancelled == 3, "a decision that was refused costs nothing"
    assert not log.replaced
    assert set(log.reports) == set(log.decisions), "all others are settled"


def test_a_request_that_all_refuse_is_relayed_also_if_limits_allow_no_substitute(
    tmp_path: Path,
) -> None:
    limits = [{"cost": "usd", "at_most": 3e-4}]
    problem = {"experts": MODELS, "costs": {"usd": [1e-4, 2e-4]}, "limits": limits, "draws": 1}
    with (
        RefusingUpstream() as upstream,
        start_gateway(tmp_path, [upstream], "first", problem=problem, cooldown_after=1) as gateway,
    ):
        upstream.statuses = {"bad": 400, "good": 400}
        for number in range(8):
            assert chat(gateway, stream=number % 2 == 0).status_code == 400
        wait_for_quiet(gateway)
        assert list_paused(gateway) == []
        assert len(upstream.bodies) == 16
    log = read_panel_log(gateway.store)
    assert set(log.reports) == set(log.decisions)
    assert log.compute_dollars() == 0.0
