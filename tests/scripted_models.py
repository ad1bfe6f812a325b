"""Answers of models without models: made by hand, or by a script in the place of `AskModel`."""

from collections.abc import Mapping, Sequence
from typing import Any

from bylot.gateway.answers import Answer, Failure, Usage

CALL_COST, CALL_USAGE = 0.25, Usage(100, 10)
QUESTION = {"model": "panel", "messages": [{"role": "user", "content": "Capital of France?"}]}


def make_answer(member: str, text: str | None = "Paris", **message: Any) -> Answer:
    """An answer of a member."""
    choice = {"message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop"}
    return Answer(
        member=member, choice=choice, model=member, usage=CALL_USAGE, cost=CALL_COST, seconds=0.1
    )


def make_answers(texts: Mapping[str, str]) -> list[Answer]:
    """Answers by member."""
    return [make_answer(member, text) for member, text in texts.items()]


def make_tool_call(member: str, city: str = "Paris", id: str = "call_1") -> Answer:
    """An answer that calls a tool and has no text."""
    arguments = f'{{"city": "{city}"}}'
    call = {"id": id, "type": "function", "function": {"name": "look_up", "arguments": arguments}}
    return make_answer(member, None, tool_calls=[call])


def make_failure(member: str, reason: str = "timeout") -> Failure:
    """A failed call."""
    return Failure(
        member=member, reason=reason, sent=True, cost=CALL_COST, usage=CALL_USAGE, seconds=0.1
    )


class ScriptedModel:
    """Replies with one text after the other, None for a failure; keeps what it was sent."""

    def __init__(self, *replies: str | None) -> None:
        self.replies = list(replies)
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, name: str, body: dict[str, Any]) -> Answer | Failure:
        self.calls.append((name, body))
        reply = self.replies.pop(0)
        return make_failure(name) if reply is None else make_answer(name, reply)

    @property
    def bodies(self) -> Sequence[dict[str, Any]]:
        return [body for _, body in self.calls]

    def read_messages(self, number: int = 0) -> list[str]:
        """The texts of the messages of a call."""
        return [message["content"] for message in self.bodies[number]["messages"]]
