"""What an OpenAI-compatible model replies to `POST /v1/responses`: a text, streamed or not."""

from collections.abc import Iterator, Mapping
from typing import Any

from chat_replies import Body, RequestError

COPIED = ("temperature", "top_p", "metadata", "user")


def translate_to_chat(body: Mapping[str, Any]) -> Body:
    """The chat completion that asks the same."""
    given = body.get("input")
    if not isinstance(given, str | list) or not given:
        raise RequestError(400, "Missing required parameter: 'input'.", param="input")
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
    if body.get("instructions"):
        messages.insert(0, {"role": "system", "content": body["instructions"]})
    chat = {"model": body["model"], "messages": messages}
    chat |= {name: body[name] for name in COPIED if body.get(name) is not None}
    if body.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = body["max_output_tokens"]
    if body.get("stream"):
        chat["stream"] = True
    return chat


def make_response(body: Mapping[str, Any], completion: Mapping[str, Any]) -> Body:
    """The response object of a completion."""
    choice, usage = completion["choices"][0], completion["usage"]
    done = choice["finish_reason"] == "stop"
    id = completion["id"].removeprefix("chatcmpl-")
    return {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": completion["created"],
        "status": "completed" if done else "incomplete",
        "error": None,
        "incomplete_details": None if done else {"reason": "max_output_tokens"},
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": completion["model"],
        "output": [make_item(id, choice["message"]["content"], "completed")],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }


def make_part(text: str) -> Body:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def make_item(id: str, text: str | None, status: str) -> Body:
    """A message of the output; None: it has no part yet."""
    parts = [] if text is None else [make_part(text)]
    return {
        "id": f"msg_{id}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": parts,
    }


def make_response_events(response: Mapping[str, Any], size: int) -> Iterator[Body]:
    """The events of a stream, in OpenAI's order; a delta has `size` characters."""
    [item] = response["output"]
    text, id = item["content"][0]["text"], item["id"].removeprefix("msg_")
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    place = {"output_index": 0, "item_id": item["id"], "content_index": 0}
    events: list[Body] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": make_item(id, None, "in_progress"),
        },
        {"type": "response.content_part.added", **place, "part": make_part("")},
    ]
    for at in range(0, len(text), size):
        delta = {"delta": text[at : at + size], "logprobs": []}
        events.append({"type": "response.output_text.delta", **place, **delta})
    events += [
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": make_part(text)},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": f"response.{response['status']}", "response": response},
    ]
    for number, event in enumerate(events):
        yield {**event, "sequence_number": number}
