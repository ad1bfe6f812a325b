"""Spans of chat requests: one for the request, and one for each call to a member or a judge.

Names and attributes follow OpenTelemetry's conventions for generative AI. No span has a text of a
prompt or of an answer. A server that is not traced uses nothing of this module.
"""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bylot.gateway.answers import Answer, Failure, Usage
from bylot.gateway.config import KNOWN_BASES, Deployment
from bylot.gateway.upstream import CALL_TYPE, CallFailed, ModelCall
from bylot.server.telemetry import RequestTracer

if TYPE_CHECKING:
    from bylot.server.chat_endpoints import Exchange

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
