"""The quickstart of the gateway, as a newcomer follows it: its file, its commands, its calls."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from bylot_bench.http_load import ServerProcess
from documents import find_blocks
from server_process import SOURCES
from upstreams import ReplayUpstream

PAGE = (Path(__file__).parent.parent / "docs/gateway.md").read_text(encoding="utf-8")
MODELS = ("small", "medium", "large")
ENDPOINTS = (*MODELS, "referee")
KEYS = {f"{name.upper()}_KEY": f"secret-of-{name}" for name in ENDPOINTS}


def write_config(folder: Path, upstreams: dict[str, ReplayUpstream]) -> Path:
    """The file of the page, with the addresses of real upstreams."""
    text = find_blocks(PAGE, "yaml")[0]
    for number, name in enumerate(ENDPOINTS):
        address = f"http://localhost:900{number + 1}/v1"
        assert address in text
        text = text.replace(address, upstreams[name].url)
    path = folder / "bylot.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_quickstart_works_as_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "PYTHONPATH": SOURCES, **KEYS}
    with (
        ReplayUpstream(("small",), key=KEYS["SMALL_KEY"]) as small,
        ReplayUpstream(("medium",), key=KEYS["MEDIUM_KEY"]) as medium,
        ReplayUpstream(("large",), key=KEYS["LARGE_KEY"]) as large,
        ReplayUpstream(("referee",), key=KEYS["REFEREE_KEY"]) as referee,
    ):
        upstreams = (small, medium, large, referee)
        config = write_config(tmp_path, dict(zip(ENDPOINTS, upstreams, strict=True)))
        log, store = tmp_path / "log", f"sqlite:///{tmp_path}/bylot.db"
        with ServerProcess(
            *("bylot", "serve", "--config", str(config), "--store", store),
            log=log,
            environment=environment,
        ) as server:
            names: dict[str, Any] = {}
            for code in find_blocks(PAGE, r"\{ \.python \.openai \}"):
                adapted = code.replace("http://127.0.0.1:8000", server.url)
                exec(compile(adapted, "docs/gateway.md", "exec"), names)
            record = server.get(f"/v1/decisions/{names['answer'].bylot['decision']}")
            status = server.get("/v1/routers/assistant/status")
        asked = small.received + medium.received + large.received
        judged = referee.received
    answer = names["answer"]
    assert answer.bylot["winner"] in MODELS
    assert len(record["decision"]["subset"]) == 2
    assert asked >= 3, "two members of a chat, and one or two of a response"
    assert judged >= 1
    assert "is a member too" not in log.read_text(encoding="utf-8")
    assert {one["key"] for one in record["rewards"]} >= {"user"}
    assert status["decisions"] == 2, "the chat completion and the response"
    printed = capsys.readouterr().out
    assert answer.choices[0].message.content in printed
    for text in (printed, log.read_text(encoding="utf-8")):
        assert not any(secret in text for secret in KEYS.values())


def test_the_settings_of_the_page_exist() -> None:
    """Every setting that the page names is one of the gateway, with the default that it states."""
    from bylot.gateway.config import GatewayEntry

    entry = GatewayEntry()
    for name, default in {
        "grace_s": 0.2,
        "member_timeout_s": 60,
        "timeout_s": 120,
        "retries": 1,
        "refill": 1,
        "cooldown_after": 3,
        "cooldown_s": 30,
        "good_score": 1,
    }.items():
        assert f"`{name}`" in PAGE
        assert getattr(entry, name) == default
    config = yaml.safe_load(find_blocks(PAGE, "yaml")[0])
    assert set(config["routers"]["assistant"]["gateway"]) <= set(entry.__struct_fields__)
