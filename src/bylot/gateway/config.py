"""What a configuration file declares about models and about the gateway of a router.

`model_list` has the shape of LiteLLM's, so that an existing one can be pasted. Secrets are read
from environment variables when the server starts, and no text of this module shows one.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

from msgspec import Meta, Struct

from bylot._text import find_similar
from bylot.errors import BylotError
from bylot.gateway.prices import check_number, check_whole, read_call_price

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
    "ollama": "http://localhost:11434/v1",
    "ollama_chat": "http://localhost:11434/v1",
}
"""OpenAI-compatible endpoints of providers, for entries without `api_base`."""
OTHER_PREFIXES = {
    *("hosted_vllm", "openai_like", "custom_openai", "litellm_proxy", "lm_studio", "vllm"),
    *("text-completion-openai", "llamafile", "azure_ai", "azure"),
}
"""Providers that LiteLLM removes from the name of a model, and whose `api_base` must be given."""
NOT_SENT = {
    *("model", "base_url", "timeout", "stream_timeout", "max_retries", "num_retries", "fallbacks"),
    *("max_parallel_requests", "rpm", "tpm", "weight", "order", "headers", "extra_headers"),
    *("custom_llm_provider", "drop_params", "additional_drop_params", "allowed_openai_params"),
    *("organization", "tags", "use_in_pass_through", "cooldown_time", "extra_body", "region_name"),
    *("base_model", "mode", "model_info", "access_groups", "max_input_tokens", "max_budget"),
    *("max_output_tokens", "budget_duration", "configurable_clientside_auth_params", "stream"),
    *("merge_reasoning_content_in_choices", "guardrails", "prompt_id", "max_file_size_mb"),
}
"""Names in `litellm_params` that are not parameters of a request to the model."""
NOT_SENT_PATTERN = re.compile(
    "(api|aws|azure|vertex|litellm|supports|input_cost|output_cost|cache|mock|s3|default_api)_.*"
    "|.*(secret|password|credential|access_key|api_key).*|(.*_)?(token|auth)"
)
"""Further such names, and whatever may hold a secret: it is not sent to another service."""

COMMON_PARAMS = (
    *("model", "api_base", "api_key", "timeout", "max_parallel_requests", "max_tokens"),
    *("max_completion_tokens", "temperature", "extra_body", "extra_headers", "organization"),
    *("custom_llm_provider", "input_cost_per_token", "output_cost_per_token"),
)
COMMON_INFO = (
    *("input_cost_per_token", "output_cost_per_token", "max_tokens", "max_input_tokens"),
    "max_output_tokens",
)
OTHER_NAMES = ("models", "max_token", "api_keys", "base_url")  # of LiteLLM or of models
"""Names near those above that are no mistakes."""

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
MemberCount = Annotated[int, Meta(ge=1, le=MAX_MEMBERS)]


class ModelEntry(Struct, frozen=True, kw_only=True):
    """An entry of `model_list`, as in LiteLLM; several of one name share its requests."""

    model_name: str
    litellm_params: dict[str, Any]
    model_info: dict[str, Any] = {}
    place: str = ""  # file and line, for errors

    def __repr__(self) -> str:
        return f"ModelEntry(model_name={self.model_name!r})"  # the rest may have secrets

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("model_name", self.model_name)]


class ScorerEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How answers are scored: exactly one kind, with its settings.

    exact:       1 if the answer, or what `extract` finds in it, is the expected text, which comes
                 with the request as `metadata.bylot_expected`; `{extract: REGEX,
                 ignore_case: true}`
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
        names = self.named_kinds
        if len(names) != 1:
            raise BylotError(
                "scorer",
                got=", ".join(names) or "none",
                expected=f"one of {', '.join(self.__struct_fields__)}",
            )
        return names[0]

    @property
    def named_kinds(self) -> list[str]:
        """The names of the kinds that are given; one, if the entry is valid."""
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]

    def __repr__(self) -> str:
        return f"ScorerEntry({', '.join(self.named_kinds)})"  # a URL may have a password

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, ...) for name in self.named_kinds]


class GatewayEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    pass_fields: further fields of requests that members are sent, such as `top_k`
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
    pass_fields: tuple[str, ...] = ()
    context: dict[str, Any] = {}
    keep_prompts: bool = False


class Deployment(NamedTuple):
    """One endpoint of a model.

    parameters: of every request to it, unless the caller gives others
    has_price:  False: what its calls cost is not known
    max_tokens: the most that a request may ask for, whatever the caller gives; None: no cap
    """

    base: str
    model: str
    headers: Mapping[str, str]
    parameters: Mapping[str, Any]
    timeout_s: float | None
    max_parallel: int | None
    input_price: float  # dollars per token
    output_price: float
    has_price: bool = True
    max_tokens: int | None = None

    @property
    def host(self) -> str:
        """Host and port, without what may be secret in the URL."""
        return urlsplit(self.base).netloc.rpartition("@")[2]

    def __repr__(self) -> str:
        return f"Deployment(host={self.host!r}, model={self.model!r})"  # headers have secrets


class Model(NamedTuple):
    """A member that the gateway can ask: a name, and the endpoints that serve it."""

    name: str
    deployments: tuple[Deployment, ...]


def build_models(
    entries: Sequence[ModelEntry],
    environ: Mapping[str, str] = os.environ,
    only: Collection[str] | None = None,
) -> dict[str, Model]:
    """The models of a list by name, with secrets from the environment.

    only: the names that are needed; others are left out, so that their variables need not be set
    """
    found: dict[str, Model] = {}
    for number, entry in enumerate(entries):
        if only is None or entry.model_name in only:
            made = build_deployment(name_entry(number, entry), entry, environ)
            before = found[entry.model_name].deployments if entry.model_name in found else ()
            found[entry.model_name] = Model(entry.model_name, (*before, made))
    return found


def name_entry(number: int, entry: ModelEntry) -> str:
    """Where an entry is, for a message."""
    name = f"model_list[{number}] ({entry.model_name})"
    return f"{entry.place}: {name}" if entry.place else name


def build_deployment(what: str, entry: ModelEntry, environ: Mapping[str, str]) -> Deployment:
    """One endpoint, checked; no error shows a text of the entry, which may be a secret."""
    params = resolve_variables(what, entry.litellm_params, environ)
    check_text(what, "model", params.get("model"))
    provider, model = split_model_name(params["model"], params.get("custom_llm_provider"))
    check_param_names(what, params, entry.model_info)
    if provider == "azure" and not str(params.get("api_base")).rstrip("/").endswith("/openai/v1"):
        raise BylotError(
            f"{what}: Azure's older API is not spoken",
            remedy="give api_base: https://NAME.openai.azure.com/openai/v1",
        )
    if "*" in model or "*" in entry.model_name:
        raise BylotError(f"{what}: a wildcard", expected="the name of one model")
    body = read_mapping(what, "extra_body", params.get("extra_body"))
    price = read_call_price(what, {**params, **body}, entry.model_info)
    parallel = "max_parallel_requests"
    sent = {name: value for name, value in params.items() if is_request_parameter(name)}
    return Deployment(
        base=choose_base(what, provider, params.get("api_base") or params.get("base_url")),
        model=model,
        headers=build_headers(what, params),
        parameters={**sent, **body},
        timeout_s=check_number(what, "timeout", params.get("timeout"), 1e-3, 86_400),
        max_parallel=check_whole(what, parallel, params.get(parallel)),
        input_price=price.input or 0.0,
        output_price=price.output or 0.0,
        has_price=price.is_known,
        max_tokens=price.asked_tokens,
    )


def check_param_names(what: str, params: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    """Refuse names that are likely to be misspelled: others are sent to the model."""
    for field, given, known in (
        ("litellm_params", params, COMMON_PARAMS),
        ("model_info", info, COMMON_INFO),
    ):
        for name in given:
            near = find_similar(name, known, cutoff=0.85)
            if near not in (None, name) and name not in OTHER_NAMES:
                raise BylotError(
                    f"{what}: {field}: unknown name {name!r}", remedy=f"did you mean {near!r}?"
                )


def split_model_name(full_name: str, custom: str | None = None) -> tuple[str, str]:
    """The provider of a model and its name upstream, as LiteLLM reads `provider/name`.

    >>> split_model_name("openai/gpt-4o"), split_model_name("gpt-4o")
    (('openai', 'gpt-4o'), ('openai', 'gpt-4o'))
    >>> split_model_name("meta-llama/Llama-3"), split_model_name("meta-llama/Llama-3", "openai")
    (('meta-llama', 'meta-llama/Llama-3'), ('openai', 'meta-llama/Llama-3'))
    """
    provider, slash, rest = full_name.partition("/")
    if custom:
        return custom, rest if slash and provider == custom else full_name
    if not slash:
        return "openai", full_name
    is_known = provider in KNOWN_BASES or provider in OTHER_PREFIXES
    return provider, rest if is_known else full_name


def choose_base(what: str, provider: str, given: Any) -> str:
    """The URL of an endpoint, which `/chat/completions` follows."""
    if given is None and provider in KNOWN_BASES:
        return KNOWN_BASES[provider]
    if given is None:
        raise BylotError(
            f"{what}: provider {provider!r} has no known OpenAI-compatible endpoint",
            remedy="give litellm_params.api_base",
        )
    parts = split_url(given) if is_header_text(given) else None
    if parts is None or "@" in given or parts.query or parts.fragment:  # it may have a password
        raise BylotError(
            f"{what}: api_base",
            expected="http://HOST:PORT/v1 or https://..., without a user and without ?",
        )
    base = str(given).rstrip("/")
    is_native = provider.startswith("ollama") and not parts.path.strip("/")
    return f"{base}/v1" if is_native else base


def split_url(url: str) -> SplitResult | None:
    """Split a URL of HTTP; None if it is none."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if valid else None


def build_headers(what: str, params: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a request, by name in lower case."""
    headers = {"content-type": "application/json"}
    if params.get("api_key") is not None:
        headers["authorization"] = f"Bearer {check_text(what, 'api_key', params['api_key'])}"
    if params.get("organization") is not None:
        organization = check_text(what, "organization", params["organization"])
        headers["openai-organization"] = organization
    for field in ("headers", "extra_headers"):
        for name, value in read_mapping(what, field, params.get(field)).items():
            if not HEADER_NAME.fullmatch(name):
                raise BylotError(f"{what}: {field}", expected="names of headers and their values")
            headers[name.lower()] = check_text(what, f"{field}.{name}", value)
    return headers


HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def is_header_text(value: Any) -> bool:
    """Whether a value can be sent in a header.

    >>> is_header_text("sk-1"), is_header_text("sk-ä"), is_header_text("")
    (True, False, False)
    """
    return isinstance(value, str) and value.isascii() and value.isprintable() and bool(value)


def is_request_parameter(name: str) -> bool:
    """Whether a field of `litellm_params` is sent to the model.

    >>> is_request_parameter("temperature"), is_request_parameter("aws_secret_access_key")
    (True, False)
    """
    return name not in NOT_SENT and NOT_SENT_PATTERN.fullmatch(name) is None


def resolve_variables(what: str, value: Any, environ: Mapping[str, str]) -> Any:
    """A value with each text `os.environ/NAME` in it replaced by that variable.

    >>> resolve_variables("m", {"api_key": "os.environ/KEY", "n": 1}, {"KEY": "s3cret"})
    {'api_key': 's3cret', 'n': 1}
    """
    if isinstance(value, dict):
        return {k: resolve_variables(f"{what}: {k}", x, environ) for k, x in value.items()}
    if isinstance(value, list):
        return [resolve_variables(what, one, environ) for one in value]
    found = ENV_REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    secret = environ.get(found[1], "").strip()
    if not secret:
        raise BylotError(f"{what}: variable {found[1]} is not set", remedy=f"export {found[1]}=...")
    return secret


def list_model_variables(entries: Sequence[ModelEntry]) -> Iterator[str]:
    """The environment variables that entries refer to."""
    waiting: list[Any] = [part for one in entries for part in (one.litellm_params, one.model_info)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        elif isinstance(value, str) and (found := ENV_REFERENCE.fullmatch(value)):
            yield found[1]


def check_text(what: str, name: str, value: Any) -> str:
    """A text of printable ASCII; the error does not show it, as it may be a secret."""
    if not is_header_text(value):
        raise BylotError(
            f"{what}: {name}",
            expected="a text of printable ASCII characters",
            remedy="put it in quotes if it looks like a number",
        )
    return str(value)


def read_mapping(what: str, name: str, value: Any) -> Mapping[str, Any]:
    """A mapping; empty if it is not given."""
    if value is not None and not isinstance(value, dict):
        raise BylotError(f"{what}: {name}", expected="names and values")
    return value or {}
