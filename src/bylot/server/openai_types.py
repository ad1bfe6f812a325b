"""Bodies of the gateway as OpenAI's clients send and receive them, for the OpenAPI document.

They describe the main fields. Requests are checked by `gateway.chat` and `gateway.responses`.
"""

from typing import Any, Literal

from msgspec import Struct


class ChatCompletionBody(Struct, frozen=True):
    """A request for a chat completion; members are also sent other fields of OpenAI's that cannot
    raise what a call costs, and further ones only if the router allows them by name.

    model: bylot/ROUTER; metadata: `bylot_context` is the context of the decision, `bylot_tenant`
    the tenant whose limits count it, `bylot_expected` the expected answer; names that begin with
    bylot_ are not sent to the members
    """

    model: str
    messages: list[dict[str, Any]]
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    tools: list[dict[str, Any]] | None = None
    response_format: dict[str, Any] | None = None


class ResponsesBody(Struct, frozen=True):
    """A request of the Responses API; a field that is not supported is refused with its name.

    model: bylot/ROUTER; input: a text, or a list of messages, calls of functions and their outputs;
    metadata: as for a chat completion, and returned with the response
    """

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    stream: bool | None = None
    metadata: dict[str, Any] | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None


class ChatUsage(Struct, frozen=True):
    """Tokens of all members and of the judge."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(Struct, frozen=True):
    """A chat completion; with `stream` it comes as chunks.

    bylot: decision, members, winner, scores and costs; scorer: its name, or why it failed
    """

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: ChatUsage
    bylot: dict[str, Any]


class ResponseTokens(Struct, frozen=True):
    """Tokens of all members and of the judge; the details are 0."""

    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class ResponseObject(Struct, frozen=True):
    """A response, with the fields of its request; with `stream` it comes as events.

    bylot: decision, members, winner, scores and costs; scorer: its name, or why it failed
    """

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Literal["completed", "incomplete"]
    output: list[dict[str, Any]]
    usage: ResponseTokens
    bylot: dict[str, Any]
    error: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}


class ModelCard(Struct, frozen=True):
    """A model that a request can name."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "bylot"


class ModelList(Struct, frozen=True):
    """All models that the caller may use."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


class OpenAiErrorDetail(Struct, frozen=True):
    """What is wrong; param: the field of the request."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAiError(Struct, frozen=True):
    """The body of every error of the gateway, in OpenAI's envelope."""

    error: OpenAiErrorDetail
