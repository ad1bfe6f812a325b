"""The criterion of the gateway: no difference to the model but in model, ids and sums of usage."""

from collections.abc import Iterable, Mapping
from typing import Any

NOT_COMPARED = {"id", "created", "model", "system_fingerprint", "service_tier", "usage", "bylot"}


def compare(real: Mapping[str, Any], via_gateway: Mapping[str, Any]) -> None:
    """Completions must be equal but for the model, ids, times, sums of usage and `bylot`."""
    one, other = strip(real), strip(via_gateway)
    assert one == other
    assert list_usage(real) <= list_usage(via_gateway)
    assert isinstance(via_gateway["id"], str)
    assert isinstance(via_gateway["created"], int)


def strip(completion: Mapping[str, Any]) -> dict[str, Any]:
    """What must be equal of a completion; ids of tool calls are part of it."""
    return {name: value for name, value in completion.items() if name not in NOT_COMPARED}


def list_usage(completion: Mapping[str, Any]) -> set[str]:
    """The counts of a completion: names, not numbers; they must add up."""
    usage = completion.get("usage")
    if usage is None:
        return set()
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens"] > 0
    return {"prompt_tokens", "completion_tokens", "total_tokens"} & set(usage)


def join_chunks(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The completion that a stream adds up to, wherever it was cut into chunks."""
    whole: dict[str, Any] = {"object": "", "choices": [], "usage": None}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        whole |= {name: value for name, value in chunk.items() if name not in ("choices", "usage")}
        whole["usage"] = chunk.get("usage") or whole["usage"]
        for part in chunk["choices"]:
            choice = choices.setdefault(
                part["index"],
                {"index": part["index"], "message": {}, "logprobs": None, "finish_reason": None},
            )
            assert choice["finish_reason"] is None, "a delta after the finish"
            choice["finish_reason"] = part["finish_reason"]
            choice["logprobs"] = part.get("logprobs")
            add_delta(choice["message"], part["delta"])
    whole["choices"] = [choices[index] for index in sorted(choices)]
    return whole


def add_delta(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a piece to a message: texts are joined, calls by their index."""
    for name, value in delta.items():
        if name == "tool_calls":
            for piece in value:
                calls = message.setdefault("tool_calls", {})
                call = calls.setdefault(piece["index"], {"function": {"arguments": ""}})
                function = piece.get("function", {})
                call["function"]["arguments"] += function.get("arguments") or ""
                call["function"] |= {"name": function["name"]} if "name" in function else {}
                call |= {key: piece[key] for key in ("id", "type") if key in piece}
        elif isinstance(value, str) and isinstance(message.get(name), str) and name != "role":
            message[name] += value
        else:
            message[name] = value
