"""Models and gateways in the configuration file: LiteLLM's list, costs from prices, secrets."""

import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bylot.cli import main
from bylot.errors import BylotError
from bylot.eventlog.loading import read_stored_config
from bylot.gateway.config import (
    Deployment,
    GatewayEntry,
    ModelEntry,
    ScorerEntry,
    build_models,
    split_model_name,
)
from bylot.gateway.router_models import list_prices
from bylot.router.config import RouterConfig
from bylot.server.auth import issue_key
from bylot.server.provision import build_declared
from bylot.server.reconcile import (
    declare_routers,
    find_used_models,
    list_fixed_differences,
    reconcile_routers,
)
from bylot.server.settings import LoadedSettings, load_settings
from bylot.server.telemetry import configure_logging
from bylot.store import open_store
from documents import find_blocks

MODELS = """\
model_list:
  - model_name: small
    litellm_params: {model: openai/gpt-4o-mini, api_key: os.environ/OPENAI_API_KEY}
    model_info: {input_cost_per_token: 1.5e-7, output_cost_per_token: 6e-7}
  - model_name: medium
    litellm_params: {model: hosted_vllm/meta-llama/Llama-3, api_base: "http://gpu:8000/v1"}
    model_info: {input_cost_per_token: 1e-6, output_cost_per_token: 0}
  - model_name: large
    litellm_params: {model: gpt-4o, api_key: os.environ/OPENAI_API_KEY}
    model_info: {input_cost_per_token: "2.5e-6", output_cost_per_token: 1e-5}
"""
ROUTER = """\
routers:
  chat:
    models: [small, medium, large]
    draws: 2
    policy: random
"""
KEY = {"OPENAI_API_KEY": "sk-1"}
ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def restored_loggers() -> Iterator[None]:
    """A start configures the loggers of this process."""
    loggers = [logging.getLogger(name) for name in ("bylot", "uvicorn")]
    before = [(one.handlers, one.propagate, one.level) for one in loggers]
    yield
    for one, state in zip(loggers, before, strict=True):
        one.handlers, one.propagate = state[:2]
        one.setLevel(state[2])


def load(folder: Path, text: str, name: str = "bylot.yaml") -> LoadedSettings:
    (folder / name).write_text(text)
    return load_settings({}, folder / name, {})


def declare(folder: Path, text: str) -> RouterConfig:
    """The configuration of the only router of a file."""
    (one,) = declare_routers(load(folder, text).settings)
    return one.config


def check(folder: Path, text: str, name: str) -> None:
    """Check a file as a start does, without environment variables."""
    settings = load(folder, text, name).settings
    build_models(settings.model_list, {}, only=find_used_models(declare_routers(settings)))


def refuse(folder: Path, text: str, name: str = "bylot.yaml") -> str:
    """The error of a file, without the file."""
    with pytest.raises(BylotError) as caught:
        check(folder, text, name)
    message = str(caught.value)
    assert message.startswith(str(folder / name)), message
    return message.removeprefix(str(folder / name)).lstrip(":, ")


# --- the file ---------------------------------------------------------------------------------


def test_yaml_and_toml_have_the_same_fields(tmp_path: Path) -> None:
    text = """\
store: "sqlite:///x.db"
listen: {host: 0.0.0.0, port: 9000}
limits:   # an empty section
gateway: {max_chats: 7, max_chats_per_key: 3, max_chat_body_bytes: 1000}
keys:
  front: {env: FRONT, scopes: [decide], routers: [chat]}
model_list:
  - model_name: a
    litellm_params: {model: gpt-4o, api_key: os.environ/KEY}
    model_info: {input_cost_per_token: 1e-6}
  - {model_name: b, litellm_params: {model: gpt-4o}, model_info: {input_cost_per_token: 1e-6}}
routers:
  chat:
    models: [a, b]
    draws: 1
    limits: [{cost: usd, at_most: 0.5}]
    wait: 60
    gateway: {ask: hedged, scorer: {regex: {pattern: good}}}
"""
    toml = """\
store = "sqlite:///x.db"
listen = {host = "0.0.0.0", port = 9000}
gateway = {max_chats = 7, max_chats_per_key = 3, max_chat_body_bytes = 1000}
[keys.front]
env = "FRONT"
scopes = ["decide"]
routers = ["chat"]
[[model_list]]
model_name = "a"
litellm_params = {model = "gpt-4o", api_key = "os.environ/KEY"}
model_info = {input_cost_per_token = 1e-6}
[[model_list]]
model_name = "b"
litellm_params = {model = "gpt-4o"}
model_info = {input_cost_per_token = 1e-6}
[routers.chat]
models = ["a", "b"]
draws = 1
wait = 60
limits = [{cost = "usd", at_most = 0.5}]
[routers.chat.gateway]
ask = "hedged"
scorer.regex.pattern = "good"
"""
    yaml, other = load(tmp_path, text).settings, load(tmp_path, toml, "bylot.toml").settings
    assert load(tmp_path, text, "bylot.YML").settings.port == 9000
    for name in ("store", "host", "port", "max_chats", "max_chats_per_key", "keys"):
        assert getattr(yaml, name) == getattr(other, name)
    assert (yaml.max_chats, yaml.max_chat_body_bytes) == (7, 1000)
    assert yaml.routers["chat"].gateway == other.routers["chat"].gateway
    (one,), (two,) = declare_routers(yaml), declare_routers(other)
    assert one.config == two.config
    assert build_models(yaml.model_list, {"KEY": "k"}) == build_models(
        other.model_list, {"KEY": "k"}
    )


@pytest.mark.parametrize("text", ["", "# only a comment\n", "listen:\nrouters:\nmodel_list:\n"])
def test_a_file_without_entries_is_valid(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text).settings.port == 8000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nlisten:\n  port: 70000\n", "line 3: invalid listen.port 70000: expected a whole numb"),
        (
            "listen:\n  port: 1_000\n",
            "line 2: listen.port is a number or date to some programs, te",
        ),
        ("port: 1\n", "line 1: unknown field 'port'; move it under listen:"),
        ("limits:\n  store: x\n", "line 2: unknown field 'store' in limits; move it to the top"),
        ("\nrouter: {}\n", "line 2: unknown field 'router'; did you mean 'routers'?"),
        ("keys: [a]\n", "line 1: keys: expected a mapping under keys:"),
        ("keys: {a: x}\n", "line 1: keys.a: expected a mapping under keys.a:"),
        (
            "keys:\n  a:\n    scopes: [decid]\n",
            "line 3: keys.a.scopes[0]: Invalid enum value 'decid",
        ),
        ("a: [\n", "line 2: not valid YAML"),
        ("- a\n", "line 1: the file: expected names of settings and their values"),
        ("a: 1\n---\nb: 2\n", "line 2: a second YAML document; keep one configuration per file"),
        ("model_list: {a: 1}\n", "line 1: model_list: expected a list of models"),
        ("model_list:\n  - a\n", "line 2: model_list[0]: expected a mapping"),
        ("model_list:\n  - model_name: a\n", "Object missing required field `litellm_params`"),
        ("model_list:\n- {model_name: '', litellm_params: {}}", "model_list[0].model_name: expec"),
        ("routers:\n  a: {}\n", "line 2: routers.a has neither problem nor models; write problem"),
        (
            "routers:\n  a:\n    problem: 3\n",
            "line 3: routers.a.problem: expected the path of a pr",
        ),
        (
            "routers:\n  a:\n    problem: p.yaml\n    draws: 2\n",
            "line 4: routers.a has a problem and draws; write draws in the problem",
        ),
        (
            "routers:\n  a:\n    problem: p.yaml\n    gateway: {asks: together}\n",
            "line 4: unknown field 'asks' in routers.a.gateway; did you mean 'ask'?",
        ),
        (
            "routers:\n  a:\n    problem: p.yaml\n    gateway:\n      scorer: {exakt: {}}\n",
            "line 5: unknown field 'exakt' in routers.a.gateway.scorer; did you mean 'exact'?",
        ),
        (
            "routers:\n  a:\n    problem: p.yaml\n    gateway:\n      quorum: 9\n",
            "line 5: routers.a.gateway.quorum: expected a whole number <= 8",
        ),
    ],
)
def test_a_fault_of_a_yaml_file_is_explained_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    assert message in refuse(tmp_path, text)


def test_anchors_aliases_and_merged_mappings_can_be_used(tmp_path: Path) -> None:
    text = """\
model_list:
  - model_name: a
    litellm_params: &shared {model: gpt-4o, api_key: k, temperature: 1}
  - model_name: b
    litellm_params:
      <<: [{top_p: 0.5, temperature: 2}, *shared]
      model: gpt-4
  - {model_name: c, litellm_params: *shared}
"""
    models = build_models(load(tmp_path, text).settings.model_list, {})
    a, b, c = (models[name].deployments[0] for name in "abc")
    assert a == c
    assert (b.model, b.parameters) == ("gpt-4", {"temperature": 2, "top_p": 0.5})
    assert "line 9: an alias without an anchor before it" in refuse(tmp_path, f"{text}x: *other\n")
    assert "line 1: an alias without an anchor before it" in refuse(tmp_path, "a: &x [*x]\n")
    assert "line 1: << is not followed by a mapping" in refuse(tmp_path, "<<: 3\n")


# --- LiteLLM's configuration ------------------------------------------------------------------

LITELLM = """\
model_list:
  - model_name: azure-gpt
    rpm: 10
    litellm_params:
      model: azure/gpt-4o
      api_base: https://x.openai.azure.com/openai/v1
      api_version: 2024-02-01
      api_key: os.environ/AZURE_KEY
      rpm: 6
      tpm: 1000
      weight: 2
      drop_params: true
      temperature: 0.2
      top_k: 40
      extra_body: {chat_template: x}
      timeout: 30
      max_parallel_requests: 4
    model_info:
      mode: chat
      base_model: azure/gpt-4o
      max_input_tokens: 128000
      access_groups: [beta]
      supports_vision: true
      input_cost_per_token: 1e-6
  - model_name: "openai/*"
    litellm_params: {model: "openai/*", api_key: os.environ/NOT_SET}
  - model_name: azure-gpt
    litellm_params: {model: openrouter/openai/gpt-4o, api_key: os.environ/AZURE_KEY}
litellm_settings: {drop_params: true, num_retries: 3, request_timeout: 10}
router_settings: {routing_strategy: least-busy, num_retries: 2, redis_host: x}
general_settings:
  master_key: sk-1234
  database_url: postgresql://me:s3cret@db/x
environment_variables: {A: b}
"""


def test_a_configuration_of_litellm_is_read_as_it_is(tmp_path: Path) -> None:
    loaded = load(tmp_path, LITELLM)
    models = build_models(loaded.settings.model_list, {"AZURE_KEY": " k \n"}, only={"azure-gpt"})
    (model,) = models.values()
    first, second = model.deployments
    assert first == Deployment(
        base="https://x.openai.azure.com/openai/v1",
        model="gpt-4o",
        headers={"content-type": "application/json", "authorization": "Bearer k"},
        parameters={"temperature": 0.2, "top_k": 40, "chat_template": "x"},
        timeout_s=30.0,
        max_parallel=4,
        input_price=1e-6,
        output_price=0.0,
        has_price=True,
        max_tokens=None,
    )
    assert (second.base, second.model) == ("https://openrouter.ai/api/v1", "openai/gpt-4o")
    assert not second.has_price
    place = f"{tmp_path}/bylot.yaml, line"
    assert list(loaded.warnings) == [
        f"{place} 31: general_settings of LiteLLM is ignored; instead of master_key use keys; "
        "instead of database_url use store",
        f"{place} 30: router_settings of LiteLLM is ignored; instead of routing_strategy use "
        "routers.NAME.policy; instead of num_retries use routers.NAME.gateway.retries",
        f"{place} 29: litellm_settings of LiteLLM is ignored; instead of num_retries use "
        "routers.NAME.gateway.retries; instead of request_timeout use "
        "routers.NAME.gateway.timeout_s",
        f"{place} 34: environment_variables of LiteLLM is ignored; set the variables before the "
        "server starts",
        f"{place} 2: model_list[0]: ignored fields: rpm",
    ]
    with pytest.raises(BylotError, match=r"model_list\[1\] .*variable NOT_SET is not set"):
        build_models(loaded.settings.model_list, {"AZURE_KEY": "k"})


@pytest.mark.parametrize(
    ("model", "custom", "provider", "upstream"),
    [
        ("gpt-4o", None, "openai", "gpt-4o"),
        ("openai/meta-llama/Llama", None, "openai", "meta-llama/Llama"),
        ("hosted_vllm/Qwen/Q", None, "hosted_vllm", "Qwen/Q"),
        ("Qwen/Q", None, "Qwen", "Qwen/Q"),
        ("Qwen/Q", "openai", "openai", "Qwen/Q"),
        ("openai/gpt", "openai", "openai", "gpt"),
        ("ollama_chat/llama3", None, "ollama_chat", "llama3"),
    ],
)
def test_the_provider_is_removed_from_the_name_of_a_model_as_in_litellm(
    model: str, custom: str | None, provider: str, upstream: str
) -> None:
    assert split_model_name(model, custom) == (provider, upstream)


def test_ollama_is_asked_at_its_openai_endpoint() -> None:
    for base, expected in (
        (None, "http://localhost:11434/v1"),
        ("http://gpu:11434", "http://gpu:11434/v1"),
        ("http://gpu:11434/", "http://gpu:11434/v1"),
        ("http://gpu:11434/v1", "http://gpu:11434/v1"),
    ):
        params = {"model": "ollama/llama3", "api_base": base}
        entry = ModelEntry(model_name="a", litellm_params=params)
        assert build_models([entry], {})["a"].deployments[0].base == expected


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "model: expected a text"),
        ({"model": 4}, "model: expected a text"),
        (
            {"model": "bedrock/x"},
            "provider 'bedrock' has no known OpenAI-compatible endpoint; give",
        ),
        ({"model": "a", "api_base": "gpu:8000"}, "api_base: expected http://HOST:PORT/v1"),
        ({"model": "a", "api_base": "http://u:p4ss@gpu"}, "api_base: expected http://HOST"),
        ({"model": "a", "api_base": "http://gpu:99999"}, "api_base: expected http://HOST"),
        ({"model": "a", "api_base": 7}, "api_base: expected http://HOST"),
        ({"model": "a", "api_key": 1234}, "api_key: expected a text .*; put it in quotes"),
        ({"model": "a", "api_key": "p4ss\n"}, "api_key: expected a text"),
        ({"model": "a", "headers": "p4ss"}, "headers: expected names and values"),
        ({"model": "a", "headers": {"x": "p4ss\n"}}, r"headers\.x: expected a text"),
        ({"model": "a", "headers": {"x y": "p4ss"}}, "headers: expected names of headers"),
        ({"model": "a", "extra_headers": {"x": "os.environ/NO"}}, "variable NO is not set"),
        ({"model": "a", "timeout": "p4ss"}, r"timeout: expected a number in \[0.001"),
        ({"model": "a", "timeout": -1}, "invalid .* timeout -1: expected a number"),
        ({"model": "a", "max_tokens": "p4ss"}, "max_tokens: expected a whole number"),
        ({"model": "a", "input_cost_per_token": 3}, "input_cost_per_token 3: expected a number in"),
        ({"model": "a", "extra_body": ["p4ss"]}, "extra_body: expected names and values"),
    ],
)
def test_a_fault_of_a_model_is_explained_without_what_may_be_secret(
    params: dict[str, Any], message: str
) -> None:
    entry = ModelEntry(model_name="m", litellm_params=params)
    with pytest.raises(BylotError, match=message) as caught:
        build_models([entry], {})
    assert "model_list[0] (m)" in str(caught.value)
    assert "p4ss" not in str(caught.value)


def test_secrets_of_other_services_are_not_sent_to_a_model() -> None:
    names = ("aws_secret_access_key", "vertex_credentials", "api_version", "password", "auth_token")
    params = {"model": "a", **dict.fromkeys(names, "x"), "max_tokens": 9, "organization": "o"}
    (made,) = build_models([ModelEntry(model_name="m", litellm_params=params)], {})["m"].deployments
    assert made.parameters == {"max_tokens": 9}
    assert made.headers["openai-organization"] == "o"
    assert made.max_tokens == 9


# --- routers ----------------------------------------------------------------------------------


def test_costs_of_models_follow_from_their_prices(tmp_path: Path) -> None:
    problem = declare(tmp_path, MODELS + ROUTER).problem
    assert problem["experts"] == ["small", "medium", "large"]
    assert problem["costs"] == {"usd": [0.000375, 0.0005, 0.00625]}
    assert "max_costs" not in problem
    typical = (
        "    typical_tokens: {input: 1000, output: 0}\n    limits: [{cost: usd, at_most: 1}]\n"
    )
    problem = declare(tmp_path, MODELS + ROUTER + typical).problem
    assert problem["costs"] == {"usd": [0.00015, 0.001, 0.0025]}
    assert problem["limits"] == [{"cost": "usd", "at_most": 1.0}]


def test_the_largest_costs_follow_from_the_lengths_of_calls_if_all_are_known(
    tmp_path: Path,
) -> None:
    lengths = "max_input_tokens: 1000, max_tokens: 100, "
    text = MODELS.replace("{input_cost", f"{{{lengths}input_cost")
    problem = declare(tmp_path, text + ROUTER).problem
    assert problem["max_costs"] == {"usd": [0.00021, 0.001, 0.0035]}
    for gateway, more in (
        ("{refill: 0}", 0.0),
        ("{}", 0.0035 / 2),  # the call of a member that was replaced
        ("{refill: 0, answer: pick, scorer: {judge: {model: small}}}", 2 * 0.00021 / 2),
        ("{refill: 0, ask: in_turn, scorer: {judge: {model: small}}}", 4 * 0.00021 / 2),
    ):
        found = declare(tmp_path, f"{text}{ROUTER}    gateway: {gateway}\n").problem
        largest = [0.00021 + more, 0.001 + more, 0.0035 + more]
        assert found["max_costs"]["usd"] == pytest.approx(largest)
    assert problem["costs"] == {"usd": [0.000135, 0.0005, 0.00225]}  # no longer than a call can be
    text = text.replace("max_tokens: 100, ", "", 1)
    assert "max_costs" not in declare(tmp_path, text + ROUTER).problem


def test_several_endpoints_of_a_model_share_its_requests(tmp_path: Path) -> None:
    text = MODELS.replace("model_name: medium", "model_name: small")
    router = ROUTER.replace("medium, ", "")
    assert declare(tmp_path, text + router).problem["costs"] == {"usd": [0.0004375, 0.00625]}


def test_models_may_have_further_costs_groups_and_limits(tmp_path: Path) -> None:
    router = """\
routers:
  chat:
    models:
      - {name: small, watts: 1, group: own}
      - {name: medium, watts: 2, usd: 0.002}
      - {name: large, watts: 9}
    costs: {watts: W}
    draws: 2
    min_draws: 1
    period: 900
    contexts: [code, prose]
    limits:
      - {cost: watts, at_most: 9}
      - {group: own, at_least: 0.2}
    policy: random
    gateway: {quorum: 1}
"""
    problem = declare(tmp_path, MODELS + router).problem
    assert problem["costs"] == {"usd": [0.000375, 0.002, 0.00625], "watts": [1.0, 2.0, 9.0]}
    assert (problem["min_draws"], problem["period"], len(problem["limits"])) == (1, 900, 2)
    message = refuse(tmp_path, MODELS + router.replace("cost: watts", "cost: wats"))
    assert message.startswith("line 23: unknown cost 'wats'; did you mean 'watts'?")
    router = router.replace("policy: random", "policy: distinct\n    traffic: 2000")
    daily = router.replace("at_most: 9}", "at_most: 9, per: day, zone: Asia/Kolkata}")
    problem = declare(tmp_path, MODELS + daily).problem
    assert problem["traffic"] == 2_000
    window = {"per": "day", "zone": "Asia/Kolkata"}
    assert problem["limits"][0] == {"cost": "watts", "at_most": 9.0, **window}
    message = refuse(tmp_path, MODELS + daily.replace("Kolkata", "Kolkatta"))
    assert message.startswith("line 23: invalid time zone 'Asia/Kolkatta': expected a name of the")


def test_a_problem_may_be_in_the_file_or_in_another_one(tmp_path: Path) -> None:
    problem = "experts: [small, large]\ncosts: {usd: [1, 2]}\ndraws: 1\n"
    (tmp_path / "pool.yaml").write_text(problem)
    inline = "routers:\n  chat:\n    policy: random\n    problem:\n"
    inline += "".join(f"      {line}\n" for line in problem.splitlines())
    path = "routers: {chat: {policy: random, problem: pool.yaml}}\n"
    assert declare(tmp_path, inline) == declare(tmp_path, path)
    wrong = refuse(tmp_path, inline.replace("draws: 1", "draws: many"))
    assert wrong.startswith("line 7: invalid draws (text): expected a whole number")


def test_the_feedback_of_a_scored_gateway_is_members_unless_it_is_given(tmp_path: Path) -> None:
    scored = "    gateway: {scorer: exact}\n"
    assert declare(tmp_path, MODELS + ROUTER).feedback == "panel"
    assert declare(tmp_path, MODELS + ROUTER + "    gateway: {}\n").feedback == "panel"
    assert declare(tmp_path, MODELS + ROUTER + scored).feedback == "members"
    panel = f"{scored}    feedback: panel\n"
    assert declare(tmp_path, MODELS + ROUTER + panel).feedback == "panel"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[small, medium, large]",
            "[smal, medium, huge]",
            "line 13: model_list has no model 'smal' and 'huge'; for 'smal' did you mean 'small'?; "
            "add what is missing to model_list",
        ),
        (
            "draws: 2",
            "draws: 9",
            "line 16: routers.chat.gateway: invalid draws 9: expected at most 8",
        ),
        (
            "{}",
            "{quorum: 3}",
            "line 16: routers.chat.gateway.quorum: invalid quorum 3: expected at",
        ),
        ("{}", "{answer: pick}", "routers.chat.gateway: answer: pick needs a scorer; add one"),
        ("{}", "{answer: synthesise}", "answer: synthesise needs a scorer"),
        ("{}", "{ask: in_turn}", "ask: in_turn needs a scorer"),
        ("{}", "{answer: synthesise, scorer: exact}", "needs a judge, and the scorer is exact"),
        ("{}", "{scorer: {}}", "gateway.scorer: invalid scorer 'none': expected one of exact"),
        (
            "{}",
            "{scorer: {exact: {}, regex: {}}}",
            "invalid scorer 'exact, regex': expected one of",
        ),
        ("{}", "{scorer: judge}", "gateway.scorer.judge: judge: model: expected a name of model_l"),
        (
            "{}",
            "{scorer: {judge: {model: larg}}}",
            "judge: model_list has no model 'larg'; for 'larg' did you mean 'large'?",
        ),
        ("{}", "{scorer: {judge: 3}}", "scorer.judge: expected an object or null, got a whole"),
        (
            "typical_tokens: {}",
            "typical_tokens: {inputs: 3}",
            "typical_tokens: expected {input: TOK",
        ),
        (
            "typical_tokens: {}",
            "typical_tokens: {input: -1}",
            "typical_tokens.input: expected a who",
        ),
        ("models: [small", "models: [{usd: 1}", "line 13: models[0]: expected the name of a model"),
        ("models: [small, medium, large]", "models: small", "models: expected a list of models"),
        ("models: [small", "models: [small, small", "duplicate expert 'small'"),
        (
            "model_info: {input_cost_per_token: 1e-6, output_cost_per_token: 0}",
            "",
            "line 13: no price of 'medium', and others have one; give input_cost_per_token",
        ),
    ],
)
def test_a_fault_of_a_gateway_is_explained(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = f"{MODELS}{ROUTER}    gateway: {{}}\n    typical_tokens: {{}}\n"
    declare(tmp_path, text)
    head, found, tail = text.rpartition(old)
    if old == "{}":
        head, found, tail = text.partition("gateway: {}")
        new = f"gateway: {new}"
    assert found
    assert message in refuse(tmp_path, head + new + tail)


def test_a_gateway_needs_its_experts_in_the_list_and_its_cost_in_the_problem(
    tmp_path: Path,
) -> None:
    problem = "experts: [small, larg]\ndraws: 1\ncosts: {eur: [1, 2]}\n"
    (tmp_path / "pool.yaml").write_text(problem)
    router = "routers: {chat: {policy: random, problem: pool.yaml, gateway: {}}}\n"
    assert "model_list has no model 'larg'" in refuse(tmp_path, MODELS + router)
    (tmp_path / "pool.yaml").write_text(problem.replace("larg", "large"))
    message = refuse(tmp_path, MODELS + router)
    assert "gateway.cost: cost 'usd' is no cost of the problem, and 'small' has a price" in message
    declare(tmp_path, MODELS + router.replace("gateway: {}", "gateway: {cost: eur}"))
    unpriced = "\n".join(line for line in MODELS.splitlines() if "model_info" not in line)
    declare(tmp_path, f"{unpriced}\n{router}")


def test_a_missing_variable_is_an_error_only_of_models_that_a_gateway_asks(tmp_path: Path) -> None:
    with_gateway = f"{MODELS}{ROUTER}    gateway: {{}}\n"
    message = refuse(tmp_path, with_gateway)
    assert message == (
        "line 2: model_list[0] (small): api_key: variable OPENAI_API_KEY is not set; "
        "export OPENAI_API_KEY=..."
    )
    settings = load(tmp_path, MODELS + ROUTER).settings
    assert find_used_models(declare_routers(settings)) == set()
    judge = with_gateway.replace("medium, large]", "medium]").replace(
        "{}", "{scorer: {judge: {model: large}}}"
    )
    settings = load(tmp_path, judge).settings
    assert find_used_models(declare_routers(settings)) == {"small", "medium", "large"}


def test_a_change_of_prices_leaves_the_declared_costs(tmp_path: Path) -> None:
    """What calls cost is learned. Only costs that the file gives must stay what they were."""
    store = f"store: sqlite:///{tmp_path}/bylot.db\n"

    def start(text: str) -> None:
        settings = load(tmp_path, store + text).settings
        with closing(open_store(settings.store)) as opened:
            reconcile_routers(opened, settings, declare_routers(settings))

    start(MODELS + ROUTER)
    dearer = MODELS.replace("1.5e-7", "3e-7")
    start(dearer + ROUTER)
    with closing(open_store(f"sqlite:///{tmp_path}/bylot.db")) as opened:
        row = opened.find("chat")
        assert row is not None
        config = read_stored_config(opened, row)
        assert config is not None
        assert config.problem["costs"]["usd"][0] == 0.000375
    with pytest.raises(BylotError, match=r"costs\.usd of 'small': 0\.000375 -> 0\.0005"):
        start(dearer + ROUTER.replace("[small", "[{name: small, usd: 0.0005}"))


def test_a_largest_cost_may_fall_but_not_rise(tmp_path: Path) -> None:
    lengths = "max_input_tokens: 1000, max_tokens: 100, "
    text = MODELS.replace("{input_cost", f"{{{lengths}input_cost") + ROUTER
    stored = declare(tmp_path, text)
    for price, harmless in (("1e-7", True), ("3e-7", False)):
        settings = load(tmp_path, text.replace("1.5e-7", price)).settings
        (declared,) = declare_routers(settings)
        found = [one for one in list_fixed_differences(declared, stored) if one.is_given]
        assert bool(found) != harmless, found


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("openai/gpt-4o-mini", "azure/gpt-4o-mini", "Azure's older API is not spoken"),
        ("openai/gpt-4o-mini", "openai/*", "a wildcard: expected the name of one model"),
        ("input_cost_per_token", "input_cost_per_tokens", "did you mean 'input_cost_per_token'?"),
        ("api_key:", "api_kei:", "did you mean 'api_key'?"),
    ],
)
def test_entries_that_cannot_work_are_refused(
    tmp_path: Path, old: str, new: str, fault: str
) -> None:
    entries = load(tmp_path, MODELS.replace(old, new, 1)).settings.model_list
    with pytest.raises(BylotError) as caught:
        build_models(entries, KEY)
    assert fault in str(caught.value)


def test_a_limit_on_dollars_needs_prices(tmp_path: Path) -> None:
    text = re.sub(r"    model_info: .*\n", "", MODELS)
    router = f"{ROUTER}    limits: [{{cost: usd, at_most: 0.001}}]\n"
    message = refuse(tmp_path, text + router)
    assert "a limit on 'usd', and no model has a price" in message
    assert "give input_cost_per_token" in message


# --- the example and the page -----------------------------------------------------------------


def test_check_accepts_the_example_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, _ = issue_key("frontend", ("decide", "reward"), (), 0)
    config = str(ROOT / "deploy" / "bylot.yaml")
    words = ["serve", "--check", "--config", config, "--store", f"sqlite:///{tmp_path}/x.db"]
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert main(words) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    assert "keys.frontend: FRONTEND_KEY contains no API key" in said[0]
    assert all("variable OPENAI_API_KEY is not set" in line for line in said[1:])
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("FRONTEND_KEY", secret)
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert lines["chat"].split() == ["chat", "create"]
    assert "gpu.internal:8000" in lines["medium"]
    assert "$2.5 input, $10 output per million tokens; max_tokens 2000" in lines["large"]
    typical = "(a typical call has 500 input and 500 output tokens)"
    assert f"chat: usd per call: small 0.000375, medium 0.00075, large 0.00625 {typical}" in out
    assert "included: small 0.2003, medium 0.1979, large 0.5199" in out
    assert secret not in out
    assert not list(tmp_path.iterdir())


def test_check_names_models_without_a_price_and_models_that_no_gateway_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bylot.yaml").write_text(LITELLM)
    assert main(["serve", "--check", "--config", str(tmp_path / "bylot.yaml")]) == 0
    out, err = capsys.readouterr()
    assert out.count("no gateway asks it") == 3
    assert out.count("no price: its calls are booked at the declared cost") == 2
    assert "s3cret" not in out + err
    assert err.count("bylot: warning: ") == 5


def test_the_example_of_the_page_is_valid(tmp_path: Path) -> None:
    (example,) = find_blocks((ROOT / "docs" / "deploy.md").read_text(encoding="utf-8"), "yaml")
    settings = load(tmp_path, example).settings
    (one,) = declare_routers(settings)
    assert one.config.problem["costs"]["watts"] == [0.0, 700.0]
    assert one.config.feedback == "members"
    assert list(build_models(settings.model_list, KEY)) == ["small", "own"]


# --- secrets ----------------------------------------------------------------------------------

MARK = "s3cretmark"
SECRETS = f"""\
store: postgresql://bylot:{MARK}@db.invalid/bylot
model_list:
  - model_name: small
    litellm_params:
      model: gpt-4o
      api_key: sk-{MARK}
      headers: {{x-auth: "{MARK}"}}
      extra_headers: {{x-other: "{MARK}"}}
      aws_secret_access_key: {MARK}
    model_info: {{input_cost_per_token: 1e-6, note: {MARK}}}
  - model_name: large
    litellm_params: {{model: gpt-4o, api_key: sk-{MARK}, api_base: "https://h/v1"}}
    model_info: {{input_cost_per_token: 1e-6}}
general_settings: {{master_key: {MARK}, database_url: "postgresql://u:{MARK}@h/d"}}
environment_variables: {{A: {MARK}}}
routers:
  chat:
    models: [small, large]
    draws: 1
    policy: random
    gateway: {{scorer: {{http: {{url: "http://h/", headers: {{a: {MARK}}}}}}}}}
"""


def test_no_repr_shows_a_secret(tmp_path: Path) -> None:
    loaded = load(tmp_path, SECRETS)
    settings = loaded.settings
    models = build_models(settings.model_list, {})
    declared = build_declared("chat", settings.routers["chat"], list_prices(settings.model_list))
    gateway = settings.routers["chat"].gateway
    assert gateway is not None
    for one in (loaded, settings, settings.model_list, models, declared, gateway):
        assert MARK not in repr(one)
        assert MARK not in str(one)
    for shown in (settings, settings.model_list[0], gateway.scorer):
        assert MARK not in repr(list(shown.__rich_repr__()))  # type: ignore[union-attr]
    assert MARK in repr(settings.model_list[0].litellm_params)  # so that the test can fail
    assert repr(models["small"].deployments[0]) == (
        "Deployment(host='api.openai.com', model='gpt-4o')"
    )


def test_check_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bylot.yaml").write_text(SECRETS)
    monkeypatch.setenv("UNUSED", MARK)
    config = ["serve", "--config", str(tmp_path / "bylot.yaml")]
    assert main([*config, "--check"]) == 1  # there is no such database
    printed = "".join(capsys.readouterr())
    assert "api.openai.com" in printed
    assert MARK not in printed
    assert main(config) == 1
    assert MARK not in "".join(capsys.readouterr())
    assert main([*config, "--check", "--store", f"sqlite:///{tmp_path}/x.db"]) == 0
    printed = "".join(capsys.readouterr())
    assert "create" in printed
    assert MARK not in printed


WRONG = [
    ("model: gpt-4o\n", ""),
    ("api_key:", "api_kye: !"),
    ("api_key: sk-", "api_key: *"),
    ("api_key: sk-", "api_key: &"),
    ("api_key: sk-", "api_key: !"),
    ("api_key: sk-", "api_key: %"),
    (f"api_key: sk-{MARK}", f"api_key: {{{MARK}: 1}}"),
    (f"api_key: sk-{MARK}", f'api_key: "{MARK}\\n"'),
    (f"api_key: sk-{MARK}\n", f'api_key: "{MARK}\n'),
    (f"api_key: sk-{MARK}\n", f"api_key: [{MARK}\n"),
    (f"api_key: sk-{MARK}\n", f"api_key: sk-{MARK}: x\n"),
    (f"api_key: sk-{MARK}\n", f"max_tokens: {MARK}\n"),
    (f"api_key: sk-{MARK}\n", f"timeout: {MARK}\n"),
    ("headers: {x-auth:", "headers: {x y:"),
    (f'headers: {{x-auth: "{MARK}"}}', f"headers: {MARK}"),
    (f'{{x-auth: "{MARK}"}}', f'{{x-auth: ["{MARK}"]}}'),
    ("https://h/v1", f"https://h/v1?key={MARK}"),
    ("https://h/v1", f"https://user:{MARK}@h/"),
    ("https://h/v1", f"gpu:{MARK}"),
    ("https://h/v1", f"http://h:{MARK}"),
    ("store: postgresql://", "stor: postgresql://"),
    ("store: postgresql://", "store: mysql://"),
    ("store: ", "store: [a, "),
    (f"store: postgresql://bylot:{MARK}", f"store: {{a: {MARK}}}\nx: "),
    ("model_list:\n", f"model_list: {MARK}\nx:\n"),
    ("model_list:\n", f"model_list:\n  - {MARK}\n"),
    ("    litellm_params:\n", f"    litellm_params: {MARK}\n    x:\n"),
    ("draws: 1", f"draws: {MARK}"),
    ("models: [small", f"models: [{{name: small, api_key: {MARK}}}"),
    ("http: {url", f"htp: {{{MARK}: x, url"),
    ("scorer: {http", f"scorer: {{exact: {MARK}, http"),
    ("gateway: {", f"gateway: {{quorum: {MARK}, "),
    ("routers:\n", f"keys: {{a: {MARK}}}\nrouters:\n"),
    ("routers:\n", f"keys: {MARK}\nrouters:\n"),
    ("routers:\n", f"listen: {MARK}\nrouters:\n"),
]


@pytest.mark.parametrize(("old", "new"), WRONG, ids=range(len(WRONG)))
def test_no_error_of_a_wrong_file_shows_a_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    text = SECRETS.replace(old, new, 1)
    assert text != SECRETS
    text = text.replace("store: postgresql://", "#", 1)
    path = tmp_path / "bylot.yaml"
    path.write_text(text)
    store = [] if "\nstor" in f"\n{text}" else ["--store", f"sqlite:///{tmp_path}/x.db"]
    main(["serve", "--config", str(path), "--check", *store])
    printed = "".join(capsys.readouterr())
    assert MARK not in printed
    shown = "store"
    try:
        settings = load_settings({}, path, {}).settings
        build_models(settings.model_list, {})
        declare_routers(settings)
    except BylotError as error:
        shown = "".join(traceback.format_exception(error)) + repr(error)
    assert MARK not in shown


def test_no_log_of_a_start_shows_a_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SECRETS.replace(f"postgresql://bylot:{MARK}@db.invalid/bylot", f"sqlite:///{tmp_path}/x")
    settings = load(tmp_path, text).settings
    configure_logging("debug")
    with closing(open_store(settings.store)) as store:
        reconcile_routers(store, settings, declare_routers(settings))
    logging.getLogger("bylot.server").info("%s", settings, extra={"settings": settings})
    printed = capsys.readouterr().err
    assert "router chat: create" in printed
    assert MARK not in printed
    assert MARK.encode() not in (tmp_path / "x").read_bytes()


def test_a_secret_of_an_environment_variable_is_not_shown_by_an_error() -> None:
    params = {"model": "a", "timeout": "os.environ/WRONG"}
    entry = ModelEntry(model_name="m", litellm_params=params)
    with pytest.raises(BylotError, match="timeout: expected a number") as caught:
        build_models([entry], {"WRONG": MARK})
    assert MARK not in str(caught.value)


def test_the_kind_of_a_scorer_must_be_one() -> None:
    assert ScorerEntry(exact={}).kind == "exact"
    assert GatewayEntry().scorer is None
    with pytest.raises(BylotError, match="expected one of exact, regex"):
        _ = ScorerEntry().kind


def test_a_wrong_word_is_answered_with_the_right_ones(tmp_path: Path) -> None:
    message = refuse(tmp_path, f"{MODELS}{ROUTER}    gateway: {{answer: best}}\n")
    assert "invalid value 'best': expected 'first', 'pick', 'all' or 'synthesise'" in message
