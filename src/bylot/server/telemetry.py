"""Logs as JSON lines on stderr, and OpenTelemetry spans if OpenTelemetry is configured.

A chat request has a span, and so has each call to a member or a judge. Names and attributes follow
OpenTelemetry's conventions for generative AI. No span has a text of a prompt or of an answer.
"""

import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bylot.gateway.answers import Answer, Failure, Usage
from bylot.gateway.config import KNOWN_BASES, Deployment
from bylot.gateway.upstream import CALL_TYPE, CallFailed, ModelCall

if TYPE_CHECKING:
    from bylot.server.chat_endpoints import Exchange

STANDARD_FIELDS = {*vars(logging.makeLogRecord({})), "message", "taskName", "color_message"}
OTLP_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class JsonLineFormatter(logging.Formatter):
    """One JSON object per line, with the fields given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        extra = {k: v for k, v in vars(record).items() if k not in STANDARD_FIELDS}
        line |= {k: v for k, v in extra.items() if not k.startswith("_")}  # others are private
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(level: str) -> None:
    """Send the logs of bylot and of uvicorn to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLineFormatter())
    for name, threshold in (("bylot", level.upper()), ("uvicorn", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(threshold)


class RequestTracer:
    """One span for every request, a child of the sender's span."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace
        from opentelemetry.propagate import extract, inject

        self.provider, self.extract, self.inject = provider, extract, inject
        self.tracer = provider.get_tracer("bylot")
        self.server, self.error = trace.SpanKind.SERVER, trace.StatusCode.ERROR
        self.client = trace.SpanKind.CLIENT
        self.set_span = trace.set_span_in_context

    def begin(self, method: str, route: str, target: str, headers: Mapping[bytes, bytes]) -> Any:
        """Start the span of a request; target: a router's name or a decision's id."""
        carrier = {name.decode("latin-1"): v.decode("latin-1") for name, v in headers.items()}
        facts = {"http.request.method": method, "http.route": route}
        if target:
            facts["bylot.target"] = target
        return self.tracer.start_span(
            f"{method} {route}", self.extract(carrier), self.server, facts
        )

    def begin_call(self, parent: Any, name: str, facts: Mapping[str, Any]) -> Any:
        """Start the span of a call to another service, a child of the request's."""
        return self.tracer.start_span(name, self.set_span(parent), self.client, facts)

    def make_headers(self, span: Any) -> dict[str, str]:
        """The headers that make what another service does a part of the trace."""
        headers: dict[str, str] = {}
        self.inject(headers, self.set_span(span))
        return headers

    def end(self, span: Any, status: int) -> None:
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(self.error)
        span.end()


def make_tracer(environment: Mapping[str, str] = os.environ) -> RequestTracer | None:
    """A tracer as OpenTelemetry's variables configure it, None if they or the package are missing.

    OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER=console; OTEL_SDK_DISABLED=true wins.
    """
    kind = environment.get("OTEL_TRACES_EXPORTER", "otlp")
    has_endpoint = any(environment.get(name) for name in OTLP_VARIABLES)
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or not (
        kind == "console" or (kind == "otlp" and has_endpoint)
    ):
        return None
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    except ImportError:
        return None
    provider = TracerProvider()
    if kind == "console":
        provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return RequestTracer(provider)


CONVENTION_NAMES = {"mistral": "mistral_ai", "xai": "x_ai", "gemini": "gcp.gemini"}
PROVIDERS = {base: CONVENTION_NAMES.get(name, name) for name, base in KNOWN_BASES.items()}
"""Providers by their endpoints, with the names of the conventions."""


class ChatTrace:
    """The span of one chat request; calls that are made while it is served are its children."""

    def __init__(
        self,
        tracer: RequestTracer,
        route: str,
        exchange: "Exchange",
        headers: Mapping[bytes, bytes],
    ) -> None:
        self.tracer, self.exchange = tracer, exchange
        self.span = tracer.begin("POST", route, "", headers)
        CALL_TYPE.set(partial(TracedCall, self))  # of the task that serves this request

    @property
    def decision(self) -> str | None:
        """The id of the decision, once it is made."""
        decision = getattr(self.exchange.run, "decision", None)
        return None if decision is None else str(decision.id)

    def end(self, status: int) -> None:
        """End the span of the request."""
        run = self.exchange.run
        if run is not None:
            set_known(self.span, "bylot.router", run.route.router)
            set_known(self.span, "bylot.decision", self.decision)
            set_known(self.span, "bylot.winner", run.winner)
        self.tracer.end(self.span, status)


class TracedCall(ModelCall):
    """A call to a model with a span of its own, which covers all of its attempts."""

    span: Any = None

    def __init__(self, trace: ChatTrace, *given: Any) -> None:
        super().__init__(*given)
        self.trace, self.trace_headers = trace, dict[str, str]()

    @property
    def headers(self) -> Mapping[str, str]:
        return {**self.deployment.headers, **self.trace_headers}

    async def run(self) -> Answer | Failure:
        """As without a trace."""
        outcome: Answer | Failure | None = None
        self.begin_span()
        try:
            outcome = await super().run()
        finally:
            self.end_span(outcome or self.fail("cancelled"))
        return outcome

    async def stream(self) -> AsyncGenerator[dict[str, Any]]:
        """As without a trace."""
        outcome: Answer | Failure | None = None
        self.begin_span()
        try:
            async with contextlib.aclosing(super().stream()) as chunks:
                async for chunk in chunks:
                    yield chunk
            outcome = self.succeed({"message": self.join_message()}, self.deployment.model)
        except CallFailed as error:
            outcome = error.failure
            raise
        finally:
            self.end_span(outcome or self.fail("cancelled"))

    def begin_span(self) -> None:
        """Start the span, with what is known before the call."""
        tracer, facts = self.trace.tracer, describe_deployment(self.deployment)
        facts |= {"bylot.member": self.member, "bylot.purpose": self.purpose}
        if self.trace.decision is not None:
            facts["bylot.decision"] = self.trace.decision
        self.span = tracer.begin_call(self.trace.span, f"chat {self.deployment.model}", facts)
        self.trace_headers = tracer.make_headers(self.span)

    def end_span(self, outcome: Answer | Failure) -> None:
        """End the span, with what became of the call; an endpoint may have replaced another."""
        span, is_answer = self.span, isinstance(outcome, Answer)
        reason = "answered" if isinstance(outcome, Answer) else outcome.reason
        for name, value in describe_deployment(self.deployment).items():
            span.set_attribute(name, value)
        usage = outcome.usage
        if usage != Usage() and not usage.estimated:  # as the model reported them
            span.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)
        span.set_attribute("bylot.outcome", reason)
        set_known(span, "bylot.cost_usd", outcome.cost)
        if isinstance(outcome, Answer):
            span.set_attribute("gen_ai.response.model", outcome.model)
            finish = outcome.choice.get("finish_reason")
            if isinstance(finish, str):
                span.set_attribute("gen_ai.response.finish_reasons", (finish,))
        elif outcome.status is not None:
            span.set_attribute("http.response.status_code", outcome.status)
        if not is_answer and reason != "cancelled":  # the gateway cancels what it does not need
            span.set_attribute("error.type", reason)
            span.set_status(self.trace.tracer.error)
        span.end()


def describe_deployment(one: Deployment) -> dict[str, Any]:
    """An endpoint as attributes; one that is not known speaks the protocol of OpenAI."""
    parts = urlsplit(one.base)
    usual = 443 if parts.scheme == "https" else 80
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDERS.get(one.base, "openai"),
        "gen_ai.request.model": one.model,
        "server.address": parts.hostname or "",
        "server.port": parts.port or usual,
    }


def set_known(span: Any, name: str, value: Any) -> None:
    if value is not None:
        span.set_attribute(name, value)
