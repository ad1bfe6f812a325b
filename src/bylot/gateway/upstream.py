"""Calls to models over pooled connections: one chat completion, whole or streamed.

Which members are asked, and what is done with their answers, is left to `asking`.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from typing import Any

import aiohttp
import msgspec

from bylot.gateway.answers import Answer, Failure, Usage, estimate_tokens
from bylot.gateway.chat import encode, has_too_many_values
from bylot.gateway.config import Deployment, Model
from bylot.gateway.model_responses import (
    MAX_ANSWER_BYTES,
    MAX_ERROR_BYTES,
    MAX_EVENT_VALUES,
    MAX_TOOL_CALLS,
    REASONING_FIELDS,
    BoundExceeded,
    ModelResponse,
    PacedConnector,
    Redactor,
    count_chars,
    decode_json,
    find_choice,
    read_bounded,
    read_events,
    read_retry_after,
    read_usage,
)

CONNECT_TIMEOUT_S = 10.0
KEEP_ALIVE_S = 30.0
FIRST_BACKOFF_S = 0.2  # doubles with each retry
RETRIED_STATUSES = (408, 429, 502, 503, 504)
CALLER_STATUSES = (400, 413, 415, 422)  # the request is wrong, unless another model answers it
ERROR_TEXTS = ("message", "code", "param")  # of an error, which a caller may read
TOKEN_BOUNDS = ("max_tokens", "max_completion_tokens")
STALE_S = 1.0  # after which a connection that ends without a byte has not been idle for too long
JSON_TYPES = ("application/json", "text/json", "text/plain", "application/octet-stream")
"""The last one is what aiohttp takes a response without a type for."""


class ChatBody:
    """The body of a request to the members, encoded once for all of them.

    fields: of the caller's request, without those that only the gateway uses
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields
        self.encoded = encode(fields)

    def encode_for(self, deployment: Deployment, *, stream: bool) -> bytes:
        """The body with the name of the model, its parameters and its bound on tokens."""
        known = (*self.fields, *TOKEN_BOUNDS)  # bounds on tokens are apart
        parameters = deployment.parameters.items()
        missing = {name: value for name, value in parameters if name not in known}
        extra: dict[str, Any] = {"model": deployment.model, **missing}
        if stream:
            extra |= {"stream": True, "stream_options": {"include_usage": True}}
        if deployment.max_tokens is not None:
            extra |= bound_tokens(deployment.max_tokens, deployment.parameters, self.fields)
            kept = {name: self.fields[name] for name in self.fields if name not in TOKEN_BOUNDS}
            if len(kept) < len(self.fields):
                return encode({**kept, **extra})
        head, rest = encode(extra), self.encoded
        return head if rest == b"{}" else head[:-1] + b"," + rest[1:]


def bound_tokens(
    most: int, parameters: Mapping[str, Any], fields: Mapping[str, Any]
) -> dict[str, int]:
    """Return the bound on tokens of a model, or that of the caller if it is lower, by the name that
    the model is configured with: it may ignore the other name.

    >>> bound_tokens(100, {}, {"max_tokens": 500}), bound_tokens(100, {}, {"max_tokens": 50})
    ({'max_tokens': 100}, {'max_tokens': 50})
    >>> bound_tokens(100, {}, {"max_tokens": -1})  # some models take it for no bound
    {'max_tokens': 100}
    >>> bound_tokens(100, {"max_completion_tokens": 100}, {"max_tokens": 50})
    {'max_completion_tokens': 50}
    """
    own = next((name for name in TOKEN_BOUNDS if name in parameters), TOKEN_BOUNDS[0])
    given = [fields.get(name) for name in TOKEN_BOUNDS]
    return {own: min([most, *(bound for bound in given if type(bound) is int and bound >= 1)])}


def is_word(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


class UpstreamClient:
    """All models of a server, with one pool of connections."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self.models = models
        self.open_calls: dict[int, int] = {}  # by id of the deployment
        self.slots: dict[int, asyncio.Semaphore] = {}  # likewise
        self.redactors = {
            id(deployment): Redactor(deployment.headers, deployment.base)
            for model in models.values()
            for deployment in model.deployments
        }
        self.session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the pool, in the event loop that uses it."""
        connector = PacedConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
        self.session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            auto_decompress=False,
            response_class=ModelResponse,
            headers={"accept-encoding": "identity", "user-agent": "bylot"},
        )
        self.slots = {
            id(deployment): asyncio.Semaphore(deployment.max_parallel)
            for model in self.models.values()
            for deployment in model.deployments
            if deployment.max_parallel is not None
        }

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()

    def call(self, name: str, body: ChatBody, timeout_s: float, retries: int = 0) -> "ModelCall":
        """A call to a model, not yet begun."""
        return CALL_TYPE.get(ModelCall)(self, self.models[name], body, timeout_s, retries)

    async def ask(self, name: str, fields: Mapping[str, Any], timeout_s: float) -> Answer | Failure:
        """The answer of one model, such as a judge."""
        call = self.call(name, ChatBody(fields), timeout_s, retries=1)
        call.purpose = "judge"
        outcome = await call.run()
        if isinstance(outcome, Failure) and outcome.cost is None:  # at least the prompt is billed
            usage = call.estimate_usage(0)
            return msgspec.structs.replace(outcome, cost=call.price(usage), usage=usage)
        return outcome


class ModelCall:
    """One call to a member.

    sent:     the model may be working for it, so that it may be billed
    texts:    of a stream so far; finished: the model has said that it is complete
    tool_calls, arguments: of a stream so far, by index
    received_chars: of all that a stream has brought, reasoning and tool calls included
    usage:    as far as the model has reported it
    """

    purpose = "member"

    def __init__(
        self, client: UpstreamClient, model: Model, body: ChatBody, timeout_s: float, retries: int
    ) -> None:
        self.client, self.model, self.body = client, model, body
        self.deployment = model.deployments[0]
        self.timeout_s, self.retries = timeout_s, retries
        self.attempt = 0
        self.sent = False
        self.finished = False
        self.received_chars = 0
        self.texts: list[str] = []
        self.tool_calls: dict[int, dict[str, Any]] = {}
        self.arguments: dict[int, list[str]] = {}
        self.usage: Usage | None = None
        self.retry_after_s: float | None = None
        self.started = self.sent_at = time.perf_counter()

    @property
    def member(self) -> str:
        return self.model.name

    @property
    def headers(self) -> Mapping[str, str]:
        return self.deployment.headers

    @property
    def redactor(self) -> Redactor:
        return self.client.redactors[id(self.deployment)]

    async def run(self) -> Answer | Failure:
        """The answer, or why there is none; a cancelled call raises CancelledError."""
        try:
            async with asyncio.timeout(self.timeout_s):
                while True:
                    try:
                        async with self.open_response(stream=False) as response:
                            return await self.read_answer(response)
                    except CallFailed as error:
                        if not await self.wait_to_retry(error.failure):
                            raise
        except CallFailed as error:
            return error.failure
        except TimeoutError:
            return self.fail("timeout")

    async def stream(self) -> AsyncGenerator[dict[str, Any]]:
        """The chunks of a streamed completion; raises CallFailed if it breaks.

        One that is refused before its first chunk is asked for again, as a whole answer is.
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                while True:
                    try:
                        async with self.open_response(stream=True) as response:
                            async for chunk in self.read_chunks(response):
                                yield chunk
                        return
                    except CallFailed as error:
                        if not await self.wait_to_retry(error.failure):
                            raise
        except TimeoutError:
            raise CallFailed(self.fail("timeout")) from None

    async def wait_to_retry(self, failure: Failure) -> bool:
        """Wait until the same request may succeed: for as long as the model asks for, else longer
        with each attempt. Return whether it may, and soon.
        """
        others = len(self.model.deployments) > 1  # which need not wait
        pause_s = FIRST_BACKOFF_S * 2.0**self.attempt
        if self.retry_after_s is not None and not others:
            pause_s = self.retry_after_s
        left = self.timeout_s - (time.perf_counter() - self.started)
        again = failure.reason == "unreachable" or failure.status in RETRIED_STATUSES
        if failure.sent or not again or self.attempt == self.retries or pause_s >= left:
            return False
        await asyncio.sleep(pause_s)
        self.attempt += 1
        return True

    @contextlib.asynccontextmanager
    async def open_response(self, *, stream: bool) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response to one try, by the least busy endpoint of the model, another one each time.

        Raises CallFailed if there is none, or if it breaks while it is read.
        """
        self.deployment, self.retry_after_s = self.choose_deployment(), None
        try:
            async with asyncio.timeout(self.deployment.timeout_s), self.hold_slot():
                try:
                    async with self.send(stream=stream) as response:
                        yield response
                except BoundExceeded as error:
                    raise CallFailed(self.fail(str(error))) from None
                except aiohttp.ClientPayloadError:
                    raise CallFailed(self.fail("interrupted")) from None
                except (aiohttp.ClientConnectionError, OSError) as error:
                    raise CallFailed(self.fail_to_connect(error)) from None
                except (aiohttp.ClientError, ValueError):
                    raise CallFailed(self.fail("garbage")) from None
        except TimeoutError:
            raise CallFailed(self.fail("timeout")) from None

    @contextlib.asynccontextmanager
    async def hold_slot(self) -> AsyncIterator[None]:
        """Wait until the endpoint takes one more call, and count it as open."""
        key, counts = id(self.deployment), self.client.open_calls
        slot = self.client.slots.get(key)
        counts[key] = counts.get(key, 0) + 1
        try:
            async with slot or contextlib.nullcontext():
                yield
        finally:
            counts[key] -= 1

    def choose_deployment(self) -> Deployment:
        """The endpoint with the fewest open calls; after a failure, one that was not just used."""
        choices = self.model.deployments
        if len(choices) == 1:
            return choices[0]
        others = [one for one in choices if self.attempt == 0 or one is not self.deployment]
        return min(others, key=lambda one: self.client.open_calls.get(id(one), 0))

    def send(self, *, stream: bool) -> Any:
        """The HTTP request of this call, to be entered. From here on it may be billed, unless the
        connection or the model refuses it.
        """
        self.sent, self.sent_at = True, time.perf_counter()
        session, one = self.client.session, self.deployment
        assert session is not None  # `start` was called
        data = self.body.encode_for(one, stream=stream)
        url = f"{one.base}/chat/completions"
        return session.post(url, data=data, headers=self.headers, allow_redirects=False)

    def fail_to_connect(self, error: Exception) -> Failure:
        """The failure of a connection. A request was not taken if there was no connection, or if an
        idle one was closed just when it was used; otherwise the model may have worked for it.
        """
        refused = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
        stale = isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError)
        if refused or (stale and time.perf_counter() - self.sent_at < STALE_S):
            self.sent = self.received_chars > 0
        return self.fail("interrupted" if self.sent else "unreachable")

    async def read_answer(self, response: aiohttp.ClientResponse) -> Answer:
        """Read a whole response; raises CallFailed if it is no answer."""
        content = await read_bounded(response)
        if content is None:
            raise CallFailed(self.fail("too_large"))
        if response.status != 200:
            raise CallFailed(self.refuse(response, content))
        if response.content_type not in JSON_TYPES:
            raise CallFailed(self.fail("wrong_type"))
        body = decode_json(self.redactor.hide_keys(content))
        if isinstance(body, dict) and body.get("error"):
            self.sent = False
            raise CallFailed(self.fail("error_inside"))
        choice = find_choice(body)
        if choice is None:
            raise CallFailed(self.fail("garbage"))
        self.usage = read_usage(body.get("usage"))
        return self.succeed(choice, str(body.get("model") or self.deployment.model))

    def refuse(self, response: aiohttp.ClientResponse, content: bytes) -> Failure:
        """An error status: nothing is billed. No text shows our key or our URL."""
        self.sent = False
        self.retry_after_s = read_retry_after(response.headers.get("retry-after"))
        body = decode_json(content) if len(content) <= MAX_ERROR_BYTES else None
        found = body.get("error") if isinstance(body, dict) else None
        error = found if isinstance(found, dict) else {}
        texts = {name: error[name] for name in ERROR_TEXTS if isinstance(error.get(name), str)}
        hidden = {name: self.redactor.hide(text) for name, text in texts.items()}
        reason = "rate_limited" if response.status == 429 else f"http_{response.status}"
        return self.fail(reason, status=response.status, error=hidden)

    async def read_chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
        """Read a streamed completion; raises CallFailed if it is none, or has no end."""
        if response.status != 200:
            raise CallFailed(self.refuse(response, await read_bounded(response) or b""))
        if response.content_type != "text/event-stream":
            raise CallFailed(self.fail("wrong_type"))
        async for event in read_events(response):
            if event == b"[DONE]":
                if self.finished:
                    return
                break
            yield self.read_chunk(event)
        raise CallFailed(self.fail("interrupted"))

    def read_chunk(self, event: bytes) -> dict[str, Any]:
        """One chunk, with what it adds to text and usage."""
        if has_too_many_values(event, MAX_EVENT_VALUES):
            raise BoundExceeded("too_large")
        chunk = decode_json(self.redactor.hide_keys(event))
        if not isinstance(chunk, dict) or chunk.get("error"):
            reason = "error_inside" if isinstance(chunk, dict) else "garbage"
            self.sent = self.sent and (reason == "garbage" or self.received_chars > 0)
            raise CallFailed(self.fail(reason))
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            raise CallFailed(self.fail("garbage"))
        self.usage = read_usage(chunk.get("usage")) or self.usage
        for choice in choices:
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if isinstance(delta, dict):
                self.add_delta(delta)
            self.finished |= isinstance(choice, dict) and bool(choice.get("finish_reason"))
        if self.received_chars > MAX_ANSWER_BYTES:
            raise BoundExceeded("too_large")
        return chunk

    def add_delta(self, delta: Mapping[str, Any]) -> None:
        """Add a part of a streamed message."""
        for name in ("content", *REASONING_FIELDS):
            text = delta.get(name)
            if isinstance(text, str):
                self.received_chars += len(text)
                if name == "content":
                    self.texts.append(text)
        self.add_tool_calls(delta.get("tool_calls"))

    def add_tool_calls(self, parts: Any) -> None:
        """Add parts of tool calls of a stream: by their index, arguments joined."""
        for part in parts if isinstance(parts, list) else ():
            index = part.get("index") if isinstance(part, dict) else None
            if not isinstance(index, int):
                continue
            call = self.tool_calls.get(index)
            if call is None:
                if len(self.tool_calls) == MAX_TOOL_CALLS:
                    raise BoundExceeded("too_many_tool_calls")
                call = self.tool_calls[index] = {"function": {}}
                self.arguments[index] = []
            for name in ("id", "type"):
                if is_word(part.get(name)):
                    call[name] = part[name]
            function = part.get("function")
            if isinstance(function, dict):
                if is_word(function.get("name")):
                    call["function"]["name"] = function["name"]
                arguments = str(function.get("arguments") or "")
                self.arguments[index].append(arguments)
                self.received_chars += len(arguments)

    def join_message(self) -> dict[str, Any]:
        """The message of a stream."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self.texts)}
        if self.tool_calls:
            for index, call in self.tool_calls.items():
                call["function"]["arguments"] = "".join(self.arguments[index])
            message["tool_calls"] = [self.tool_calls[n] for n in sorted(self.tool_calls)]
            message["content"] = message["content"] or None
        return message

    def succeed(self, choice: Mapping[str, Any], model: str) -> Answer:
        """The answer of this call, with its cost by the usage that the model reported."""
        chars = self.received_chars or count_chars(choice["message"])
        usage = self.usage or self.estimate_usage(chars)
        return Answer(
            member=self.member,
            choice=choice,
            model=model,
            usage=usage,
            cost=self.price(usage),
            seconds=self.seconds,
        )

    def fail(
        self, reason: str, status: int | None = None, error: Mapping[str, str] = {}
    ) -> Failure:
        """The failure of this call. One that was sent may be billed: its cost is not known."""
        begun, usage = self.received_chars > 0, self.usage or Usage()
        if begun:  # a usage of before the end is too low
            usage = max(
                usage, self.estimate_usage(self.received_chars), key=lambda one: one.total_tokens
            )
        known = 0.0 if not self.sent else self.price(usage) if begun else None
        return Failure(
            member=self.member,
            reason=reason,
            sent=self.sent,
            cost=known,
            usage=usage,
            seconds=self.seconds,
            status=status,
            error=error,
            retry_after_s=self.retry_after_s,
        )

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def estimate_usage(self, chars: int) -> Usage:
        """Tokens by the length of the prompt and of an answer of so many characters."""
        prompt = estimate_tokens(len(self.body.encoded.decode(errors="replace")))
        return Usage(prompt, estimate_tokens(chars), estimated=True)

    def price(self, usage: Usage) -> float | None:
        """Dollars; None if the model has no price."""
        one = self.deployment
        if not one.has_price:
            return None
        return one.input_price * usage.prompt_tokens + one.output_price * usage.completion_tokens


CALL_TYPE: ContextVar[Callable[..., ModelCall]] = ContextVar("bylot_call_type")
"""What makes the calls of the current request, if it is traced."""


class CallFailed(Exception):
    """There is no answer, or a stream broke."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure
