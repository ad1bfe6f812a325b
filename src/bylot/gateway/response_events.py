"""Responses of OpenAI's Responses API: the response object, and the events of its stream.

Both are made from the choices of a chat completion. A message, or a delta of one, is added to an
`Output`, whose items grow; the events say how.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bylot.gateway.answers import Usage, join_text
from bylot.gateway.chat import MODEL_PREFIX, ChatError, Completion, encode

INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons to stop early, by the finish_reason of a choice."""
ECHOED_DEFAULTS: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "user": None,
}
"""Fields of a request that its response repeats, and what they are if they were not given."""


class OutputItem:
    """A message, whose parts are texts, or a call of a function, whose text is its arguments.

    texts: pieces by part: output_text, refusal or arguments
    call:  call_id and name of a function; None: a message
    """

    def __init__(self, index: int, call: dict[str, str] | None = None) -> None:
        self.id = f"{'msg' if call is None else 'fc'}_{secrets.token_hex(12)}"
        self.index, self.call = index, call
        self.texts: dict[str, list[str]] = {}

    @property
    def place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index}

    def join(self, part: str) -> str:
        return "".join(self.texts[part])

    def render(self, status: str) -> dict[str, Any]:
        """The item as it is now."""
        if self.call is not None:
            head = {"type": "function_call", "id": self.id, "status": status}
            return {**head, **self.call, "arguments": "".join(self.texts.get("arguments", ()))}
        content = [render_part(part, self.join(part)) for part in self.texts]
        head = {"type": "message", "id": self.id, "status": status}
        return {**head, "role": "assistant", "content": content}


def render_part(part: str, text: str) -> dict[str, Any]:
    """A part of a message."""
    if part == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


Growth = tuple[OutputItem, str, str, bool, bool]
"""A text that was added: its item, its part, the text, and whether item and part are new."""


def read_index(part: Mapping[str, Any], usual: int) -> int:
    """The index of a choice or of a call; models may leave it out."""
    found = part.get("index")
    return found if isinstance(found, int) else usual


class Output:
    """The items of a response, as they grow."""

    def __init__(self) -> None:
        self.items: list[OutputItem] = []
        self.places: dict[tuple[Any, ...], OutputItem] = {}
        self.incomplete_reason: str | None = None

    def add(self, choice: Mapping[str, Any], message: Mapping[str, Any]) -> Iterator[Growth]:
        """Add a message of a choice, or a delta of it."""
        number = read_index(choice, 0)
        reason = INCOMPLETE_REASONS.get(str(choice.get("finish_reason")))
        self.incomplete_reason = self.incomplete_reason or reason
        for part, name in (("output_text", "content"), ("refusal", "refusal")):
            text = join_text(message.get(name))
            if text:
                yield self.grow((number,), part, text)
        calls = message.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                yield self.add_call((number, read_index(call, position)), call)

    def add_call(self, key: tuple[Any, ...], call: Mapping[str, Any]) -> Growth:
        """Add a call, or a delta of one; only the first delta has its id and name."""
        found = call.get("function")
        function = found if isinstance(found, dict) else {}
        head = {"call_id": str(call.get("id") or ""), "name": str(function.get("name") or "")}
        head["call_id"] = head["call_id"] or f"call_{secrets.token_hex(12)}"
        return self.grow(key, "arguments", join_text(function.get("arguments")), head)

    def grow(
        self, key: tuple[Any, ...], part: str, text: str, call: dict[str, str] | None = None
    ) -> Growth:
        """Add a text to the item of a key, which is made if it is new."""
        item, is_new_item = self.places.get(key), key not in self.places
        if item is None:
            item = self.places[key] = OutputItem(len(self.items), call)
            self.items.append(item)
        is_new_part = part not in item.texts
        item.texts.setdefault(part, []).append(text)
        return item, part, text, is_new_item, is_new_part

    def ensure_message(self) -> Iterator[Growth]:
        """Add an empty message if there is no item."""
        if not self.items:
            yield self.grow((0,), "output_text", "")

    @property
    def status(self) -> str:
        """Of a response, and of its items, after the last text."""
        return "completed" if self.incomplete_reason is None else "incomplete"


def make_response_head(router: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What does not change while a response is made."""
    return {
        "id": f"resp_{secrets.token_hex(24)}",
        "object": "response",
        "created_at": int(time.time()),
        "model": MODEL_PREFIX + router,
        **{
            name: usual if given.get(name) is None else given[name]
            for name, usual in ECHOED_DEFAULTS.items()
        },
        "background": False,
        "previous_response_id": None,
        "store": False,
        "truncation": "disabled",
    }


def render_state(
    head: Mapping[str, Any], output: Output, status: str, **more: Any
) -> dict[str, Any]:
    """The response object at one moment."""
    item_status = status if status in ("completed", "incomplete") else "incomplete"
    reason = output.incomplete_reason
    return {
        **head,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if status == "incomplete" else None,
        "output": [one.render(item_status) for one in output.items],
        "usage": None,
        **more,
    }


def render_token_counts(usage: Usage) -> dict[str, Any]:
    """The usage; models do not report its details in a common way, so that they are 0."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }


def render_response(router: str, given: Mapping[str, Any], made: Completion) -> bytes:
    """The body of a response that is not streamed."""
    output = Output()
    for choice in made.choices:
        for _ in output.add(choice, choice["message"]):
            pass
    for _ in output.ensure_message():
        pass
    more = {"usage": render_token_counts(made.usage), "bylot": made.details}
    return encode(render_state(make_response_head(router, given), output, output.status, **more))


class ResponseWriter:
    """The events of a streamed response."""

    def __init__(self, router: str, given: Mapping[str, Any]) -> None:
        self.head = make_response_head(router, given)
        self.output = Output()
        self.sequence = 0

    def render(self, kind: str, **fields: Any) -> bytes:
        """One event, with its number."""
        data = encode({"type": kind, "sequence_number": self.sequence, **fields})
        self.sequence += 1
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"

    def begin(self) -> Iterator[bytes]:
        """The events before all others, once."""
        if self.sequence == 0:
            state = render_state(self.head, self.output, "in_progress")
            yield self.render("response.created", response=state)
            yield self.render("response.in_progress", response=state)

    def write(self, choices: Sequence[Mapping[str, Any]]) -> bytes:
        """The events of one chunk."""
        events = list(self.begin())
        for choice in choices:
            delta = choice.get("delta")
            for growth in self.output.add(choice, delta if isinstance(delta, dict) else {}):
                events += self.render_growth(growth)
        return b"".join(events)

    def render_growth(self, growth: Growth) -> Iterator[bytes]:
        """The events of a text that was added."""
        item, part, text, is_new_item, is_new_part = growth
        if is_new_item:
            head = item.render("in_progress")
            head["arguments" if item.call else "content"] = "" if item.call else []
            yield self.render("response.output_item.added", output_index=item.index, item=head)
        if part == "arguments":
            if text:
                name = "response.function_call_arguments.delta"
                yield self.render(name, **item.place, delta=text)
            return
        place = locate_part(item, part)
        if is_new_part:
            yield self.render("response.content_part.added", **place, part=render_part(part, ""))
        if text:
            more: dict[str, Any] = {"logprobs": []} if part == "output_text" else {}
            yield self.render(f"response.{part}.delta", **place, delta=text, **more)

    def end(self, usage: Usage, details: Mapping[str, Any]) -> bytes:
        """All items are done, then the response is."""
        events = list(self.begin())
        for growth in self.output.ensure_message():
            events += self.render_growth(growth)
        for item in self.output.items:
            events += self.render_item_done(item)
        status = self.output.status
        more = {"usage": render_token_counts(usage), "bylot": details}
        state = render_state(self.head, self.output, status, **more)
        return b"".join([*events, self.render(f"response.{status}", response=state)])

    def render_item_done(self, item: OutputItem) -> Iterator[bytes]:
        """The last events of an item."""
        for part in item.texts:
            text = item.join(part)
            if part == "arguments":
                fields = {**item.place, "name": (item.call or {}).get("name"), "arguments": text}
                yield self.render("response.function_call_arguments.done", **fields)
                continue
            place = locate_part(item, part)
            more = {"text": text, "logprobs": []} if part == "output_text" else {"refusal": text}
            yield self.render(f"response.{part}.done", **place, **more)
            yield self.render("response.content_part.done", **place, part=render_part(part, text))
        done = item.render(self.output.status)
        yield self.render("response.output_item.done", output_index=item.index, item=done)

    def fail(self, error: ChatError) -> bytes:
        """A failed response, then the error, which OpenAI's clients raise."""
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        if 400 <= error.status < 500 and error.status != 429:
            code = "invalid_prompt"
        failed = {"code": code, "message": error.message}
        state = render_state(self.head, self.output, "failed", error=failed)
        flat = {"message": error.message, "code": error.code, "param": error.param}
        return b"".join(
            [
                *self.begin(),
                self.render("response.failed", response=state),
                self.render("error", **flat, **error.body),
            ]
        )


def locate_part(item: OutputItem, part: str) -> dict[str, Any]:
    """Where a part of a message is."""
    return {**item.place, "content_index": list(item.texts).index(part)}
