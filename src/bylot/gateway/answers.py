"""What members return for a request: answers and failures, and what they cost."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

CHARS_PER_TOKEN = 4  # where a model does not report its usage


class Usage(NamedTuple):
    """Tokens of one call; estimated: the model did not report them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Any) -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.estimated or other.estimated,
        )


NO_USAGE = Usage()


class Answer(Struct, frozen=True, kw_only=True):
    """A member's answer: one choice of a chat completion.

    choice:  as the model sent it: message, finish_reason, logprobs
    model:   the name that the model calls itself
    cost:    dollars; None: the model has no price, so that its declared cost counts
    seconds: from the first byte sent to the last received
    """

    member: str
    choice: Mapping[str, Any]
    model: str
    usage: Usage
    cost: float | None
    seconds: float

    @property
    def text(self) -> str:
        """The text of the message; empty if it has none, such as for a tool call."""
        return join_text(self.choice["message"].get("content"))


class Failure(Struct, frozen=True, kw_only=True):
    """A member that did not answer.

    reason: one word: timeout, unreachable, http_500, rate_limited, garbage, too_large, cancelled...
    sent:   whether the model may have worked for it, so that it may be billed
    cost:   dollars; None: it may be billed, so that its declared cost counts
    error:  message, code and param of an error response that are texts, without secrets
    retry_after_s: seconds after which the model wants to be asked again
    """

    member: str
    reason: str
    sent: bool
    cost: float | None
    usage: Usage
    seconds: float
    status: int | None = None  # of the response, if there was one
    error: Mapping[str, str] = {}
    retry_after_s: float | None = None


class Verdict(Struct, frozen=True, kw_only=True):
    """What a scorer says about answers.

    scores: in [0, 1] by member; a member without a score is left out
    source: the scorer, such as `exact` or `judge:gpt`; the key of the report to the router
    winner: the best member; None: the first of the highest score
    text:   the answer that a judge wrote from all, if it was asked to
    cost, usage: of a judge
    """

    scores: dict[str, float]
    source: str
    winner: str | None = None
    text: str | None = None
    cost: float = 0.0
    usage: Usage = NO_USAGE


class Scorer(Protocol):
    """Scores answers; a scorer that cannot do so raises ScorerError."""

    source: str

    async def score(self, request: Mapping[str, Any], answers: Sequence[Answer]) -> Verdict:
        """Score the answers to a request, which is the body of a chat completion."""


class ScorerError(Exception):
    """A scorer failed.

    reason: in words that callers may read
    detail: what follows it in the log: texts of others, such as of an exception
    cost, usage: of what it did until then
    """

    def __init__(
        self, reason: str, cost: float = 0.0, usage: Usage = NO_USAGE, *, detail: str = ""
    ) -> None:
        super().__init__(f"{reason}{detail}")
        self.reason = reason
        self.cost = cost
        self.usage = usage


def join_text(content: Any, separator: str = "") -> str:
    """The text of a message's content, which may be a list of parts; others are left out.

    >>> join_text([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), join_text(None)
    ('ab', '')
    """
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return separator.join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def estimate_tokens(chars: int) -> int:
    """Tokens of a text of so many characters.

    >>> estimate_tokens(8), estimate_tokens(9), estimate_tokens(0)
    (2, 3, 0)
    """
    return -(-chars // CHARS_PER_TOKEN)
