"""The key of a model is in nothing that the gateway says, however the model quotes it."""

import base64
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web

from bylot.gateway.model_responses import REDACTED, Redactor
from bylot.server.telemetry import RequestTracer
from chat_replies import Body, encode_event
from gateway_target import RunningGateway, start_gateway, wait_for_quiet
from upstreams import ReplayUpstream

sdk = pytest.importorskip("opentelemetry.sdk.trace")
export: Any = pytest.importorskip("opentelemetry.sdk.trace.export")
memory: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

KEY = "sk-live/7f+Zq9=TOPSECRET"
STATUSES = (400, 401, 413, 415, 422, 500)
PROBLEM = {"experts": ["a", "b"], "costs": {"usd": [1e-4] * 2}, "draws": 1}
PATHS = ("/", "/routers/panel", "/routers/panel.json", "/metrics", "/v1/routers/panel")


def escape_json(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


DISGUISES: dict[str, Callable[[], str]] = {
    "as it is": lambda: KEY,
    "as a header": lambda: f"Bearer {KEY}",
    "escaped": lambda: escape_json(KEY),  # once more in JSON
    "in a URL": lambda: quote(KEY, safe=""),
    "in Base64": lambda: base64.b64encode(f"user:{KEY}".encode()).decode(),
}
WORDS = [KEY, quote(KEY, safe=""), escape_json(KEY)]
WORDS += [base64.b64encode(f"{before}{KEY}".encode()).decode()[4:-4] for before in ("user:", "")]


class QuotingUpstream(ReplayUpstream):
    """Models that answer with a status and quote a text; of status 200, in the middle of a stream,
    or in an answer if `answers` is set.
    """

    status, text, answers = 400, "", False

    async def reply_to_chat(self, request: web.Request, body: Body) -> web.StreamResponse:
        said = f"the key {self.text} is wrong"
        error = {"error": {"message": said, "code": self.text, "param": self.text}}
        if self.status != 200:
            content = json.dumps(error).replace("\\\\u", "\\u")  # JSON itself escapes it
            return web.Response(text=content, status=self.status, content_type="application/json")
        completion = self.complete(body)
        if self.answers:
            completion["model"] = said
            completion["choices"][0]["message"]["content"] = said
            self.chunk_chars = len(said)
        if not body.get("stream"):
            return web.json_response(completion)
        events = list(self.encode_chunks(body, completion))
        broken = events if self.answers else [*events[:2], encode_event(error)]
        return await self.stream(request, iter(broken))


class Quoted:
    """A gateway before models that quote their key, and all that it has said."""

    def __init__(
        self, gateway: RunningGateway, upstream: QuotingUpstream, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.gateway, self.upstream, self.caplog = gateway, upstream, caplog
        self.said: list[str] = []
        provider, self.spans = sdk.TracerProvider(), memory.InMemorySpanExporter()
        provider.add_span_processor(export.SimpleSpanProcessor(self.spans))
        gateway.client.app.state.tracer = RequestTracer(provider)
        self.headers = {"authorization": f"Bearer {gateway.key}"}

    def ask(self, path: str, stream: bool) -> str:
        """What a caller gets."""
        asked: Any = {"messages": [{"role": "user", "content": "hello"}]}
        if path == "/v1/responses":
            asked = {"input": "hello"}
        body = {"model": "bylot/panel", "stream": stream, **asked}
        response = self.gateway.client.post(path, json=body, headers=self.headers)
        text = response.text + str(response.headers)
        self.said.append(text)
        return text

    def check(self) -> None:
        """Nothing of what was said, logged, traced, counted, shown or stored has the key."""
        wait_for_quiet(self.gateway)
        found = self.gateway.client.app.state.gateway.find("panel").stats
        assert found.requests == len(self.said)
        for path in PATHS:
            page = self.gateway.client.get(path, headers=self.headers)
            assert page.status_code == 200, path
            self.said.append(page.text)
        spans = self.spans.get_finished_spans()
        assert len(spans) > len(found.members)
        self.said += [span.to_json() for span in spans]
        self.said += [self.caplog.text, *(str(vars(record)) for record in self.caplog.records)]
        stored = Path(self.gateway.store.removeprefix("sqlite:///")).parent.glob("bylot.db*")
        self.said += [file.read_bytes().decode("latin-1") for file in stored]
        for text in self.said:
            assert not [word for word in WORDS if word in text.replace("\\\\", "\\")], text[:1_000]


@pytest.fixture
def quoted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Quoted]:
    caplog.set_level(logging.DEBUG)
    with (
        QuotingUpstream(("a", "b"), key=KEY) as upstream,
        start_gateway(
            tmp_path, [upstream], "first", problem=PROBLEM, cooldown_after=1_000, retries=0
        ) as gateway,
    ):
        yield Quoted(gateway, upstream, caplog)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_that_quotes_the_key_is_passed_on_without_it(
    quoted: Quoted, stream: bool, path: str
) -> None:
    for status in STATUSES:
        for disguise in DISGUISES.values():
            quoted.upstream.status = status
            quoted.upstream.text = disguise()
            text = quoted.ask(path, stream)
            assert (REDACTED in text) == (status not in (401, 500))
            assert ("is wrong" in text) == (status not in (401, 500)), "the rest is kept"
    quoted.check()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_an_error_in_a_stream_that_quotes_the_key_is_not_passed_on(
    quoted: Quoted, path: str
) -> None:
    quoted.upstream.status = 200
    for disguise in DISGUISES.values():
        quoted.upstream.text = disguise()
        assert "is wrong" not in quoted.ask(path, stream=True)
    quoted.check()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_quotes_the_key_is_passed_on_without_it(
    quoted: Quoted, stream: bool, path: str
) -> None:
    quoted.upstream.status = 200
    quoted.upstream.answers = True
    quoted.upstream.text = KEY
    assert f"the key {REDACTED} is wrong" in quoted.ask(path, stream)
    quoted.check()


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_is_found_wherever_the_key_begins(
    encode: Callable[[bytes], bytes], before: str
) -> None:
    redactor = Redactor({"authorization": f"Bearer {KEY}"}, "")
    text = encode(f"{before}{KEY} and more".encode()).decode()
    shown = redactor.hide(text).replace(REDACTED, "")
    assert 0 < len(shown) <= 4 * (len(before) + len(" and more") + 4) / 3


@pytest.mark.parametrize(
    "text",
    [
        KEY.lower(),
        KEY.encode().hex(),
        KEY.replace("/", "\\/"),
        quote(quote(KEY, safe=""), safe=""),
        escape_json(KEY).replace("\\", "\\\\"),
        "".join(f"&#{ord(char)};" for char in KEY),
        "".join(f"&#x{ord(char):X};" for char in KEY),
    ],
)
def test_other_encodings_are_found(text: str) -> None:
    redactor = Redactor({"authorization": f"Bearer {KEY}"}, "")
    assert redactor.hide(f"<{text}>") == f"<{REDACTED}>"


def test_all_headers_and_the_url_are_hidden_in_errors_and_placeholders_are_not() -> None:
    headers = {"content-type": "application/json", "authorization": "Bearer none", "x-id": "org-77"}
    redactor = Redactor(headers, "http://models.internal/v1")
    text = "none of org-77 at http://models.internal/v1/chat, application/json"
    shown = f"none of {REDACTED} at {REDACTED}/chat, application/json"
    assert redactor.hide(text) == shown


def test_answers_keep_words_that_are_short_keys_or_no_keys() -> None:
    headers = {"authorization": "Bearer placeholder", "x-title": "a title of some length"}
    redactor = Redactor(headers, "https://api.openai.com/v1")
    text = b"a placeholder, a title of some length, https://api.openai.com/v1"
    assert redactor.hide_keys(text) == text


def test_secrets_of_other_shapes_are_hidden_in_linear_time() -> None:
    two_words = Redactor({"x-key": "secretone secrettwo"}, "")
    assert two_words.hide("got secretone secrettwo!") == "got [redacted]!"
    slashes = Redactor({"x-key": "\\" * 6 + "secret"}, "")
    assert slashes.hide("\\" * 12 + "secret") == "[redacted]"
    hostile = "\\" * 5_000 + "x"
    assert slashes.hide(hostile) == hostile  # which took seconds if each backslash was optional
