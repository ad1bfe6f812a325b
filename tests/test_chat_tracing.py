"""The spans of chat requests: of the request, of members, and of a judge."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bylot.gateway.answers import Answer, Verdict
from bylot.gateway.config import ScorerEntry
from bylot.gateway.gateway import Gateway
from bylot.gateway.upstream import CALL_TYPE
from bylot.server.telemetry import RequestTracer
from chat_models import (
    CALL_COST,
    COMPLETION_TOKENS,
    MEMBERS,
    PROMPT_TOKENS,
    ChatModels,
    ask_panel,
    chat_models,
    chat_server,
)
from live_server import ServerClient, wait_until

ANY_SCORER = ScorerEntry(regex={"pattern": "."})  # replaced by one of the test
TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}

sdk = pytest.importorskip("opentelemetry.sdk.trace")
export: Any = pytest.importorskip("opentelemetry.sdk.trace.export")
memory: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")


@pytest.fixture
def models() -> Iterator[ChatModels]:
    with chat_models() as models:
        yield models


class Spans:
    """The spans of a server, by name."""

    def __init__(self, server: ServerClient) -> None:
        provider, self.exporter = sdk.TracerProvider(), memory.InMemorySpanExporter()
        provider.add_span_processor(export.SimpleSpanProcessor(self.exporter))
        server.app.state.tracer = RequestTracer(provider)

    def wait_for(self, number: int) -> dict[str, Any]:
        wait_until(lambda: len(self.exporter.get_finished_spans()) >= number)
        found = self.exporter.get_finished_spans()
        assert len(found) == number
        return {one.name: one for one in found}


class Judge:
    """A scorer that asks a model, and prefers `b`."""

    source = "judge:referee"

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    async def score(self, request: Mapping[str, Any], answers: Sequence[Answer]) -> Verdict:
        await self.gateway.client.ask("referee", {"messages": request["messages"]}, 5.0)
        scores = {one.member: float(one.member == "b") for one in answers}
        return Verdict(scores=scores, source=self.source)


def test_a_request_and_its_members_have_spans_in_one_trace(
    tmp_path: Path, models: ChatModels
) -> None:
    with chat_server(tmp_path, models) as server:
        spans = Spans(server)
        answer = ask_panel(server, headers=HEADERS).json()["bylot"]
        found = spans.wait_for(4)
    request = found.pop("POST /v1/chat/completions")
    assert request.attributes["bylot.router"] == "panel"
    assert request.attributes["bylot.decision"] == answer["decision"]
    assert request.attributes["bylot.winner"] == answer["winner"]
    assert request.attributes["http.response.status_code"] == 200
    assert set(found) == {f"chat {name}-large" for name in MEMBERS}
    for name in MEMBERS:
        span = found[f"chat {name}-large"]
        assert f"{span.context.trace_id:032x}" == TRACE
        assert span.parent.span_id == request.context.span_id
        assert span.kind.name == "CLIENT"
        assert span.status.status_code.name == "UNSET"
        assert dict(span.attributes) == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": f"{name}-large",
            "gen_ai.response.model": f"{name}-large-1",
            "gen_ai.response.finish_reasons": ("stop",),
            "gen_ai.usage.input_tokens": PROMPT_TOKENS,
            "gen_ai.usage.output_tokens": COMPLETION_TOKENS,
            "server.address": "127.0.0.1",
            "server.port": models.server_port,
            "bylot.member": name,
            "bylot.purpose": "member",
            "bylot.decision": answer["decision"],
            "bylot.outcome": "answered",
            "bylot.cost_usd": pytest.approx(CALL_COST),
        }


def test_models_are_sent_the_trace(tmp_path: Path, models: ChatModels) -> None:
    with chat_server(tmp_path, models) as server:
        spans = Spans(server)
        ask_panel(server, headers=HEADERS)
        found = spans.wait_for(4)
    assert len(models.requests) == 3
    for name, headers in models.requests:
        span = found[f"chat {name}-large"]
        assert headers["traceparent"] == f"00-{TRACE}-{span.context.span_id:016x}-01"


def test_a_call_that_fails_is_an_error_with_its_type(tmp_path: Path, models: ChatModels) -> None:
    models.faults["b"] = 503
    with chat_server(tmp_path, models) as server:
        spans = Spans(server)
        ask_panel(server)
        span = spans.wait_for(4)["chat b-large"]
    assert span.status.status_code.name == "ERROR"
    assert span.attributes["error.type"] == span.attributes["bylot.outcome"] == "http_503"
    assert span.attributes["http.response.status_code"] == 503
    assert "gen_ai.usage.input_tokens" not in span.attributes


@pytest.mark.parametrize("answer", ["first", "all"])
def test_a_stream_has_the_same_spans(tmp_path: Path, models: ChatModels, answer: str) -> None:
    with chat_server(tmp_path, models, answer=answer) as server:
        spans = Spans(server)
        assert "[DONE]" in ask_panel(server, stream=True).text
        found = spans.wait_for(4)
    request = found.pop("POST /v1/chat/completions")
    winner = found[f"chat {request.attributes['bylot.winner']}-large"]
    assert winner.attributes["bylot.outcome"] == "answered"
    assert winner.attributes["gen_ai.usage.output_tokens"] == COMPLETION_TOKENS
    for span in found.values():  # a call that was stopped is no error
        assert span.attributes["bylot.outcome"] in ("answered", "cancelled")
        assert span.status.status_code.name == "UNSET"
        assert span.attributes["bylot.decision"] == request.attributes["bylot.decision"]


def test_a_judge_has_a_span(
    tmp_path: Path, models: ChatModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chat_server(tmp_path, models, ("referee",), answer="pick", scorer=ANY_SCORER) as server:
        (gateway,) = server.app.state.gateway.routers.values()
        monkeypatch.setattr(gateway, "scorer", Judge(server.app.state.gateway))
        spans = Spans(server)
        assert ask_panel(server).json()["bylot"]["winner"] == "b"
        found = spans.wait_for(5)
    judge, request = found["chat referee-large"], found["POST /v1/chat/completions"]
    assert judge.attributes["bylot.purpose"] == "judge"
    assert judge.parent.span_id == request.context.span_id
    assert request.attributes["bylot.winner"] == "b"


def test_no_span_has_a_text(tmp_path: Path, models: ChatModels) -> None:
    with chat_server(tmp_path, models, keep_prompts=True) as server:
        spans = Spans(server)
        ask_panel(server)
        found = spans.wait_for(4)
    for span in found.values():
        assert "xylophone" not in span.to_json()
        assert "says hello" not in span.to_json()


def test_a_wrong_request_has_a_span_without_a_decision(tmp_path: Path, models: ChatModels) -> None:
    with chat_server(tmp_path, models) as server:
        spans = Spans(server)
        assert ask_panel(server, model="bylot/nobody").status_code == 404
        (span,) = spans.wait_for(1).values()
    assert span.attributes["http.response.status_code"] == 404
    assert "bylot.decision" not in span.attributes


def test_nothing_is_sent_or_made_without_a_tracer(tmp_path: Path, models: ChatModels) -> None:
    with chat_server(tmp_path, models) as server:
        ask_panel(server, headers=HEADERS)
    assert CALL_TYPE.get(None) is None
    assert all("traceparent" not in headers for _, headers in models.requests)
