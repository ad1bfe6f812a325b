"""Logs as JSON lines on stderr, and OpenTelemetry spans if OpenTelemetry is configured."""

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

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
