"""If the scorer fails, the member with the best earlier scores wins, and the answer says so.

BYLOT_UNSCORED_CHATS sets how many callers ask while the judge is dead.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bylot.gateway.answers import Answer, Verdict
from bylot.gateway.config import GatewayEntry, ScorerEntry
from bylot.server.settings import RouterEntry
from chat_replies import Body, RequestError
from gateway_target import create_routers, make_model_entry
from live_server import ServerClient, live_server, wait_until
from upstreams import ReplayUpstream

CHATS = int(os.environ.get("BYLOT_UNSCORED_CHATS", "20"))
SCORES = {"good": 9, "bad": 1}
PROBLEM = {"experts": ["bad", "good"], "costs": {"usd": [1e-4] * 2}, "draws": 2}


class JudgedUpstream(ReplayUpstream):
    """Two members that say their names, the bad one sooner, and a judge that knows them."""

    is_dead = False

    def __init__(self) -> None:
        super().__init__(("good", "bad", "judge"), latency={"good": 0.01, "bad": 0.0, "judge": 0.0})

    async def reply_to_chat(self, request: web.Request, body: Body) -> web.StreamResponse:
        name = body["model"]
        completion = self.complete(body)
        completion["choices"][0]["message"]["content"] = f"I am {name}"
        if name == "judge":
            if self.is_dead:
                raise RequestError(500, "out of memory")
            shown = json.dumps(body["messages"])
            order = re.findall("I am (good|bad)", shown)
            reply = json.dumps({"scores": [SCORES[name] for name in order]})
            completion["choices"][0]["message"]["content"] = reply
        await self.wait(request, name)
        return web.json_response(completion)


@contextmanager
def serve(folder: Path, upstream: ReplayUpstream, **gateway: Any) -> Iterator[ServerClient]:
    """A server whose router asks both members, with its store in a folder."""
    judge = ScorerEntry(judge={"model": "judge"})
    entry = GatewayEntry(**{"answer": "pick", "scorer": judge, "retries": 0, **gateway})
    path = folder / "problem.json"
    path.write_text(json.dumps(PROBLEM))
    routers = {"panel": RouterEntry(problem=path, gateway=entry)}
    models = tuple(make_model_entry(name, upstream) for name in upstream.models)
    create_routers(f"sqlite:///{folder}/bylot.db", models, routers)
    with live_server(folder, model_list=models, routers=routers) as server:
        wait_until(lambda: server.get("/readyz").status_code == 200, 300)
        yield server


def chat(server: ServerClient, count: int) -> list[dict[str, Any]]:
    """The objects `bylot` of chats."""
    body = {"model": "bylot/panel", "messages": [{"role": "user", "content": "Who are you?"}]}
    answers = [server.post("/v1/chat/completions", json=body) for _ in range(count)]
    assert {answer.status_code for answer in answers} == {200}
    return [answer.json()["bylot"] for answer in answers]


def count_wins(server: ServerClient) -> Counter[str]:
    stats = server.app.state.gateway.find("panel").stats
    return Counter({name: member.won for name, member in stats.members.items() if member.won})


@pytest.mark.parametrize("gateway", [{"answer": "pick"}, {"answer": "synthesise"}])
def test_a_dead_judge_leaves_the_choice_to_what_was_learned_also_after_a_restart(
    gateway: dict[str, Any], tmp_path: Path
) -> None:
    with JudgedUpstream() as upstream:
        with serve(tmp_path, upstream, **gateway) as server:
            for found in chat(server, 6):
                assert found["scorer"] == "judge:judge"
                assert found["scores"] == {"good": 0.9, "bad": 0.1}
            upstream.is_dead = True
            during = chat(server, CHATS)
            assert count_wins(server) == {"good": 6}, "a choice without scores is no win"
            assert server.app.state.gateway.find("panel").stats.unscored == CHATS
        with serve(tmp_path, upstream, **gateway) as server:
            after = chat(server, CHATS)
            assert not count_wins(server)
            upstream.is_dead = False
            assert [found["scorer"] for found in chat(server, 1)] == ["judge:judge"]
            assert count_wins(server) == {"good": 1}
    for found in (*during, *after):
        assert found["winner"] == "good"
        assert found["scores"] == {}
        assert found["scorer"].startswith("failed: judge:judge failed: http_500")


def test_before_anything_is_learned_the_first_answer_is_returned(tmp_path: Path) -> None:
    with JudgedUpstream() as upstream, serve(tmp_path, upstream) as server:
        upstream.is_dead = True
        assert {found["winner"] for found in chat(server, 3)} == {"bad"}


def test_in_turn_the_best_so_far_wins_if_the_judge_fails(tmp_path: Path) -> None:
    with JudgedUpstream() as upstream, serve(tmp_path, upstream, ask="in_turn") as server:
        chat(server, 2)
        upstream.is_dead = True
        assert {found["winner"] for found in chat(server, 3)} == {"good"}


def raise_secret(request: Mapping[str, Any], answers: Sequence[Answer]) -> Any:
    raise ValueError("password hunter2")


def score_secret(request: Mapping[str, Any], answers: Sequence[Answer]) -> Any:
    return {"hunter2": 1}


def choose_good(request: Mapping[str, Any], answers: Sequence[Answer]) -> Any:
    return Verdict(scores={}, source="", winner="good")


@pytest.mark.parametrize("name", ["raise_secret", "score_secret"])
def test_texts_of_a_scorer_are_logged_and_not_sent_to_callers(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scorer = ScorerEntry(python={"function": f"test_gateway_unscored:{name}"})
    with JudgedUpstream() as upstream, serve(tmp_path, upstream, scorer=scorer) as server:
        (found,) = chat(server, 1)
    assert found["scorer"].startswith("failed: python:test_gateway_unscored")
    assert "hunter2" not in str(found)
    assert "hunter2" in caplog.text


def test_a_winner_without_scores_is_the_winner(tmp_path: Path) -> None:
    scorer = ScorerEntry(python={"function": "test_gateway_unscored:choose_good"})
    with JudgedUpstream() as upstream, serve(tmp_path, upstream, scorer=scorer) as server:
        (found,) = chat(server, 1)
        assert found["winner"] == "good"
        assert count_wins(server) == {"good": 1}
