"""What the gateway counts, and how Prometheus and its log show it."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bylot.eventlog.commands import Command, RecordReward
from bylot.gateway.answers import Answer, Failure, Usage
from bylot.gateway.asking import HealthTable, Pause
from bylot.gateway.member_stats import ANSWER_BUCKETS_S, MemberStats
from bylot.server.auth import Caller
from bylot.server.telemetry import JsonLineFormatter
from chat_models import (
    CALL_COST,
    COMPLETION_TOKENS,
    MEMBERS,
    PROMPT,
    PROMPT_TOKENS,
    ChatModels,
    ask_panel,
    chat_models,
    chat_server,
)
from live_server import ServerClient, wait_until


@pytest.fixture
def models() -> Iterator[ChatModels]:
    with chat_models() as models:
        yield models


def scrape(server: ServerClient) -> dict[tuple[str, ...], float]:
    """All samples by name and values of labels, in the order of the labels' names."""
    return {
        (one.name, *(one.labels[name] for name in sorted(one.labels))): one.value
        for family in text_string_to_metric_families(server.get("/metrics").text)
        for one in family.samples
    }


def wait_for_settlement(server: ServerClient) -> None:
    stats = server.app.state.gateway.find("panel").stats
    wait_until(lambda: stats.settlements)


def make_answer(seconds: float) -> Answer:
    choice = {"message": {"role": "assistant", "content": "yes"}}
    usage = Usage(PROMPT_TOKENS, COMPLETION_TOKENS)
    return Answer(member="a", choice=choice, model="a", usage=usage, cost=0.5, seconds=seconds)


def make_failure(reason: str) -> Failure:
    return Failure(member="a", reason=reason, sent=False, cost=0.0, usage=Usage(), seconds=1.0)


def test_members_are_counted_from_0_before_the_first_request(
    tmp_path: Path, models: ChatModels
) -> None:
    with chat_server(tmp_path, models) as server:
        wait_until(lambda: scrape(server)["bylot_ready",])
        found = scrape(server)
    for name in MEMBERS:
        assert found["bylot_member_calls_total", name, "answered", "panel"] == 0
        assert found["bylot_member_calls_total", name, "timeout", "panel"] == 0
        assert found["bylot_member_paused", name, "panel"] == 0
    assert found["bylot_settlement_failures_total", "panel"] == 0
    assert found["bylot_quorum_misses_total", "panel"] == 0


def test_answers_tokens_costs_and_wins_are_counted(tmp_path: Path, models: ChatModels) -> None:
    with chat_server(tmp_path, models) as server:
        answers = [ask_panel(server).json() for _ in range(4)]
        found = scrape(server)
    for name in MEMBERS:
        assert found["bylot_member_calls_total", name, "answered", "panel"] == 4
        assert found["bylot_member_latency_seconds_count", name, "panel"] == 4
        assert 0 < found["bylot_member_latency_seconds_sum", name, "panel"] < 4
        assert found["bylot_member_tokens_total", "prompt", name, "panel"] == 4 * PROMPT_TOKENS
        completion = found["bylot_member_tokens_total", "completion", name, "panel"]
        assert completion == 4 * COMPLETION_TOKENS
        cost = found["bylot_member_cost_usd_total", name, "panel"]
        assert cost == pytest.approx(4 * CALL_COST, rel=1e-12)
        won = sum(one["bylot"]["winner"] == name for one in answers)
        assert found["bylot_member_wins_total", name, "panel"] == won
    assert found["bylot_panels_total", "panel"] == found["bylot_settlements_total", "panel"] == 4
    assert found["bylot_settlement_failures_total", "panel"] == 0
    assert found["bylot_chats_open",] == 0
    assert found["bylot_request_seconds_count", "POST /v1/chat/completions", "200"] == 4


def test_failures_are_counted_by_reason_and_pause_a_member(
    tmp_path: Path, models: ChatModels
) -> None:
    models.faults["b"] = 503
    with chat_server(tmp_path, models, cooldown_after=2, cooldown_s=600.0) as server:
        for _ in range(2):
            assert ask_panel(server).status_code == 200
        found = scrape(server)
        assert found["bylot_member_calls_total", "b", "http_503", "panel"] == 2
        assert found["bylot_member_calls_total", "b", "answered", "panel"] == 0
        assert found["bylot_member_calls_total", "a", "answered", "panel"] == 2
        paused = [found["bylot_member_paused", name, "panel"] for name in MEMBERS]
        assert paused == [0, 1, 0]
        assert found["bylot_quorum_misses_total", "panel"] == 2


def test_names_that_are_no_models_and_made_up_reasons_are_no_labels(
    tmp_path: Path, models: ChatModels
) -> None:
    models.faults["b"] = 799
    with chat_server(tmp_path, models) as server:
        ask_panel(server)
        ask_panel(server, model="bylot/unknown")
        (gateway,) = server.app.state.gateway.routers.values()
        gateway.stats.members["not in model_list"].asked += 1
        found = scrape(server)
    labels = {part for name, *parts in found if name.startswith("bylot_member") for part in parts}
    assert "not in model_list" not in labels
    assert "http_799" not in labels
    assert found["bylot_member_calls_total", "b", "other", "panel"] == 1
    assert not any("unknown" in part for key in found for part in key)


def test_codes_that_models_give_are_no_labels(tmp_path: Path, models: ChatModels) -> None:
    models.faults |= dict.fromkeys(MEMBERS, 400)
    with chat_server(tmp_path, models) as server:
        assert ask_panel(server).json()["error"]["code"] == "x1"
        found = scrape(server)
    assert found["bylot_errors_total", "refused"] == 1
    assert ("bylot_errors_total", "x1") not in found


def test_a_settlement_that_fails_is_counted(
    tmp_path: Path, models: ChatModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chat_server(tmp_path, models) as server:
        ask_panel(server)

        port = server.app.state.gateway.port
        execute = port.execute

        async def fail_to_report(command: Command) -> object:
            if isinstance(command, RecordReward):
                raise ValueError("no such decision")
            return await execute(command)

        monkeypatch.setattr(port, "execute", fail_to_report)
        ask_panel(server)
        found = scrape(server)
    assert found["bylot_settlements_total", "panel"] == 1
    assert found["bylot_settlement_failures_total", "panel"] == 1


def test_a_key_sees_only_the_members_of_its_routers(
    tmp_path: Path, models: ChatModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chat_server(tmp_path, models) as server:
        ask_panel(server)
        assert ("bylot_member_paused", "a", "panel") in scrape(server)
        other = Caller(None, frozenset({"read"}), frozenset({"another"}))
        monkeypatch.setattr(server.app.state.credentials, "authenticate", lambda headers: other)
        assert not any("panel" in key for key in scrape(server))


def test_latencies_are_in_buckets_of_at_most_their_bound() -> None:
    stats = MemberStats()
    for seconds in (0.1, 0.1001, 3.0, 500.0):
        stats.add_call(make_answer(seconds))
    found = dict(stats.latencies.list_buckets())
    assert [*found] == [*map(str, ANSWER_BUCKETS_S), "+Inf"]
    assert (found["0.1"], found["0.25"], found["2.0"], found["5.0"]) == (1, 2, 2, 3)
    assert (found["120.0"], found["+Inf"]) == (3, 4)
    assert stats.latencies.seconds == pytest.approx(503.2001)


def test_the_pause_of_a_member_ends_with_a_call_that_succeeds() -> None:
    now = 100.0
    health = HealthTable(1, 30.0, clock=lambda: now)
    health.end(make_failure("timeout"))
    assert health.find_pause("a") == Pause(30.0, trying=False)
    now = 140.0
    assert health.find_pause("a") == Pause(0.0, trying=False)
    health.begin("a")
    assert health.find_pause("a") == Pause(0.0, trying=True)
    health.end(make_answer(1.0))
    assert health.find_pause("a") is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("answer", ["all", "first"])
def test_prompts_and_answers_are_logged_only_if_they_are_to_be_kept(
    tmp_path: Path,
    models: ChatModels,
    caplog: pytest.LogCaptureFixture,
    stream: bool,
    answer: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    for keep in (False, True):
        folder = tmp_path / str(keep)
        folder.mkdir()
        with chat_server(folder, models, keep_prompts=keep, answer=answer) as server:
            caplog.clear()
            assert ask_panel(server, stream=stream).status_code == 200
            wait_for_settlement(server)
            records = list(caplog.records)
        lines = [JsonLineFormatter().format(one) for one in records]
        told = [one for one in lines if "xylophone" in one or "says hello" in one]
        assert len(told) == keep
    line = json.loads(told[0])
    assert (line["level"], line["message"], line["router"]) == ("info", "chat", "panel")
    assert line["messages"] == [{"role": "user", "content": PROMPT}]
    assert line["answers"][line["winner"]]["content"] == f"{line['winner']} says hello"
    assert line["decision"].startswith("panel.")
