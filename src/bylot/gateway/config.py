"""What a configuration file declares about models and about the gateway of a router.

`model_list` has the shape of LiteLLM's, so that an existing one can be pasted. Secrets are read
from environment variables when the server starts, and no text of this module shows one.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from bylot.errors import BylotError

MAX_MEMBERS = 8  # of a panel that the gateway asks
ENV_REFERENCE = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)")
KNOWN_BASES = {
    "openai": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "together_ai": "https://api.together.xyz/v1",
    "fireworks_ai": "https://api.fireworks.ai/inference/v1",
    "xai": "https://api.x.ai/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "anthropic": "https://api.anthropic.com/v1",
}
"""OpenAI-compatible endpoints of providers, for entries without `api_base`."""
NOT_SENT = {
    *("model", "api_base", "base_url", "api_key", "timeout", "stream_timeout", "max_retries"),
    *("max_parallel_requests", "rpm", "tpm", "weight", "order", "headers", "extra_headers"),
    *("custom_llm_provider", "input_cost_per_token", "output_cost_per_token", "drop_params"),
    *("organization", "tags", "use_in_pass_through", "cooldown_time", "mock_response"),
}
"""Names in `litellm_params` that are not parameters of a request to the model."""

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Price = Annotated[float, Meta(ge=0, le=1e6)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
MemberCount = Annotated[int, Meta(ge=1, le=MAX_MEMBERS)]


class ModelEntry(Struct, frozen=True, kw_only=True):
    """An entry of `model_list`, as in LiteLLM; several of one name share its requests."""

    model_name: str
    litellm_params: dict[str, Any]
    model_info: dict[str, Any] = {}


class ScorerEntry(Struct, frozen=True, kw_only=True):
    """How answers are scored: exactly one kind, with its settings.

    exact:       1 if the answer, or what `extract` finds in it, is the expected text, which comes
                 with the request as `metadata.bylot_expected`; `{extract: REGEX, ignore_case: true}`
    regex:       1 if the pattern is found in the answer; `{pattern: REGEX}`
    json_schema: 1 if the answer is JSON of the schema; `{schema: {...}}`; without a schema, that
                 of the request's `response_format`
    python:      a function `score(request, answers)`, as `package.module:function`, or the name of
                 an entry point in the group `bylot.scorers`; `{function: NAME}`
    http:        a service that is sent the request and the answers; `{url: URL, timeout_s: 10}`
    judge:       a model that reads the shuffled answers; `{model: NAME, max_chars: 8000, ...}`
    """

    exact: dict[str, Any] | None = None
    regex: dict[str, Any] | None = None
    json_schema: dict[str, Any] | None = None
    python: dict[str, Any] | None = None
    http: dict[str, Any] | None = None
    judge: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        """The name of the kind; an error unless there is exactly one."""
        names = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(names) != 1:
            expected = f"one of {', '.join(self.__struct_fields__)}"
            raise BylotError("scorer", got=", ".join(names) or "none", expected=expected)
        return names[0]


class GatewayEntry(Struct, frozen=True, kw_only=True):
    """How the gateway asks the panel of a router, and what it answers.

    ask:        all members at once, one after the other until an answer is good, or staggered
    answer:     the first answer; the best by the scorer; all, a choice each; or one that the judge
                writes from all
    quorum:     answers that suffice; then the others have `grace_s` more; None: all
    hedge_s:    with `hedged`, seconds between two starts
    good_score: with `in_turn`, the score at which no further member is asked
    timeout_s, member_timeout_s: for the request, and for one member
    refill:     how many members that failed are replaced by others of the same distribution
    retries:    of one call, if the model answers 429, 502, 503 or 504, or cannot be reached
    cooldown_s: pause of a member that failed `cooldown_after` times in a row; then one call tries
    cost:       name of the router's cost in dollars that settled calls are booked in
    keep_prompts: whether prompts and answers are written to the log file of the server
    """

    ask: Literal["together", "in_turn", "hedged"] = "together"
    answer: Literal["first", "pick", "all", "synthesise"] = "first"
    scorer: ScorerEntry | None = None
    quorum: MemberCount | None = None
    grace_s: Annotated[float, Meta(ge=0, le=3_600)] = 0.2
    hedge_s: Seconds = 1.0
    good_score: Annotated[float, Meta(ge=0, le=1)] = 1.0
    timeout_s: Seconds = 120.0
    member_timeout_s: Seconds = 60.0
    refill: Annotated[int, Meta(ge=0, le=MAX_MEMBERS)] = 1
    retries: Annotated[int, Meta(ge=0, le=10)] = 1
    cooldown_after: Count = 3
    cooldown_s: Seconds = 30.0
    cost: str = "usd"
    context: dict[str, Any] = {}
    keep_prompts: bool = False


class Deployment(NamedTuple):
    """One endpoint of a model.

    parameters: of every request to it, unless the caller gives others
    """

    base: str
    model: str
    headers: Mapping[str, str]
    parameters: Mapping[str, Any]
    timeout_s: float | None
    max_parallel: int | None
    input_price: float  # dollars per token
    output_price: float


class Model(NamedTuple):
    """A member that the gateway can ask: a name, and the endpoints that serve it."""

    name: str
    deployments: tuple[Deployment, ...]


def build_models(
    entries: Sequence[ModelEntry], environ: Mapping[str, str] = os.environ
) -> dict[str, Model]:
    """The models of a list by name, with secrets from the environment."""
    found: dict[str, Model] = {}
    for number, entry in enumerate(entries):
        what = f"model_list[{number}] ({entry.model_name})"
        made = build_deployment(what, entry, environ)
        before = found[entry.model_name].deployments if entry.model_name in found else ()
        found[entry.model_name] = Model(entry.model_name, (*before, made))
    return found


def build_deployment(what: str, entry: ModelEntry, environ: Mapping[str, str]) -> Deployment:
    """One endpoint, checked."""
    params = {
        name: resolve_variable(f"{what}: {name}", value, environ)
        for name, value in entry.litellm_params.items()
    }
    full_name = params.get("model")
    if not isinstance(full_name, str) or not full_name:
        raise BylotError(f"{what}: litellm_params.model", expected="the name of the model upstream")
    provider, slash, rest = full_name.partition("/")
    known = slash and (provider in KNOWN_BASES or params.get("custom_llm_provider") == provider)
    base = params.get("api_base") or params.get("base_url") or KNOWN_BASES.get(provider)
    if base is None and not slash:
        base = KNOWN_BASES["openai"]
    if base is None:
        raise BylotError(
            f"{what}: provider {provider!r} has no known OpenAI-compatible endpoint",
            remedy="give litellm_params.api_base",
        )
    parts = urlsplit(str(base))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        expected = "http://HOST:PORT/v1 or https://..., without a user"
        raise BylotError(f"{what}: api_base", expected=expected)  # it may have a password
    keeps_prefix = (
        params.get("custom_llm_provider") is None and not known and not is_prefix(provider)
    )
    prices = {**params, **entry.model_info}
    headers = {"content-type": "application/json"}
    if params.get("api_key"):
        headers["authorization"] = f"Bearer {params['api_key']}"
    for name, value in (params.get("extra_headers") or params.get("headers") or {}).items():
        headers[str(name).lower()] = str(value)
    return Deployment(
        base=str(base).rstrip("/"),
        model=full_name if keeps_prefix or not slash else rest,
        headers=headers,
        parameters={name: value for name, value in params.items() if name not in NOT_SENT},
        timeout_s=check_number(what, "timeout", params.get("timeout"), 1e-3, 86_400),
        max_parallel=check_whole(
            what, "max_parallel_requests", params.get("max_parallel_requests")
        ),
        input_price=check_price(what, prices, "input_cost_per_token"),
        output_price=check_price(what, prices, "output_cost_per_token"),
    )


PREFIXES = ("hosted_vllm", "openai_like", "custom_openai", "litellm_proxy", "lm_studio", "vllm")


def is_prefix(provider: str) -> bool:
    """Whether LiteLLM removes this provider from the name of a model before it sends it.

    >>> is_prefix("hosted_vllm"), is_prefix("meta-llama")
    (True, False)
    """
    return provider in PREFIXES or provider in KNOWN_BASES


def resolve_variable(what: str, value: Any, environ: Mapping[str, str]) -> Any:
    """A value, or that of the environment variable that `os.environ/NAME` refers to.

    >>> resolve_variable("api_key", "os.environ/KEY", {"KEY": "s3cret"})
    's3cret'
    """
    found = ENV_REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    secret = environ.get(found[1], "").strip()
    if not secret:
        raise BylotError(f"{what}: variable {found[1]} is not set", remedy=f"export {found[1]}=...")
    return secret


def check_price(what: str, given: Mapping[str, Any], name: str) -> float:
    """A price in dollars per token; 0 if it is not given."""
    return check_number(what, name, given.get(name), 0.0, 1.0) or 0.0


def check_number(what: str, name: str, value: Any, low: float, high: float) -> float | None:
    """A number within bounds, or None if it is not given."""
    if value is None:
        return None
    if isinstance(value, str):  # YAML reads 1e-6 as a text
        try:
            value = float(value)
        except ValueError:
            value = None
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise BylotError(f"{what}: {name}", got=value, expected=f"a number in [{low:g}, {high:g}]")
    return float(value)


def check_whole(what: str, name: str, value: Any) -> int | None:
    """A whole number of at least 1, or None if it is not given."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise BylotError(f"{what}: {name}", got=value, expected="a whole number of at least 1")
    return value
