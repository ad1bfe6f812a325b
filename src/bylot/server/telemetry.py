"""Spans for OpenTelemetry, if it is installed and its environment variables say where they go."""

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

STANDARD_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "taskName",
    "color_message",
}


class JsonLineFormatter(logging.Formatter):
    """One JSON object per line; whatever was given as `extra` is in it."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as a line."""
        line = {
            "at": f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        given = {k: v for k, v in vars(record).items() if k not in STANDARD_RECORD_FIELDS}
        line.update(
            (k, v) for k, v in given.items() if not k.startswith("_")
        )  # other packages' own
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(level: str) -> None:
    """Send the logs of the service, and of what serves it, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLineFormatter())
    for name, least in (("bylot", level.upper()), ("uvicorn", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)


OTLP_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class RequestTracer:
    """One span for every request, below that of whoever sent it."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace
        from opentelemetry.propagate import extract

        self.provider, self.extract = provider, extract
        self.tracer = provider.get_tracer("bylot")
        self.server, self.error = trace.SpanKind.SERVER, trace.StatusCode.ERROR

    def begin(self, method: str, route: str, about: str, headers: Mapping[bytes, bytes]) -> Any:
        """A request was taken up."""
        carrier = {name.decode("latin-1"): v.decode("latin-1") for name, v in headers.items()}
        facts = {"http.request.method": method, "http.route": route}
        if about:
            facts["bylot.about"] = about  # the name of a router, or the id of a decision
        return self.tracer.start_span(
            f"{method} {route}", self.extract(carrier), self.server, facts
        )

    def end(self, span: Any, status: int) -> None:
        """It was answered."""
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(self.error)
        span.end()

    def close(self) -> None:
        """Send what is left."""
        self.provider.shutdown()


def make_tracer(environment: Mapping[str, str] = os.environ) -> RequestTracer | None:
    """As OpenTelemetry's own variables say; None where they say nothing, or it is not installed.

    OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER=console; OTEL_SDK_DISABLED=true wins.
    """
    kind = environment.get("OTEL_TRACES_EXPORTER", "otlp")
    placed = kind == "console" or (
        kind == "otlp" and any(environment.get(at) for at in OTLP_ENDPOINT_VARIABLES)
    )
    if not placed or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        return None
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(make_span_exporter(kind)))
    return RequestTracer(provider)


def make_span_exporter(kind: str) -> Any:
    """Where spans go; the exporter reads the rest of its settings from the environment itself."""
    if kind == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
