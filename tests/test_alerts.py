"""The Grafana board and the alert rules use metrics, labels and values that the server has."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bylot.problem import at_most
from bylot.server.metrics import ServerMetrics
from chat_models import ask_panel, chat_models, chat_server
from dashboard_states import StateServer
from live_server import ServerClient
from sample_problem import make_five_expert_problem

ROOT = Path(__file__).parents[1]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
BOARD = ROOT / "deploy" / "grafana" / "bylot.json"
PROMETHEUS_LABELS = {"job": {"bylot"}, "instance": {"a:8000"}}  # which every scraped sample gets
FUNCTIONS = {"rate", "increase", "sum", "max", "count", "histogram_quantile", "vector"}
WORDS = {"by", "without", "and", "or"}
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[a-zA-Z_:][a-zA-Z0-9_:]*|\[[^\]]*\]|=~|!~|!=|\S')

Samples = dict[str, dict[str, set[str]]]


@pytest.fixture(scope="module")
def samples(server: ServerClient, tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """The values of each label of each metric, after a decision, a reward and a chat request."""
    states = StateServer(tmp_path_factory.mktemp("tenants"))
    limits = [at_most("usd", 40.0, per="day", scope="tenant")]
    states.create("shared", "noisy-or", limits=limits)
    states.play("shared", 10, tenants=["acme"])
    shared = ServerMetrics().render([states.view("shared")]).decode()
    router = server.create_router()
    decision = server.decide(router)["id"]
    server.post(f"/v1/decisions/{decision}/reward", json={"value": 1, "spend": {"usd": 2.25}})
    daily = make_five_expert_problem().replace(limits=[at_most("usd", 500.0, per="day")])
    server.decide(server.store_router(daily))
    with chat_models() as models, chat_server(tmp_path_factory.mktemp("chat"), models) as gateway:
        ask_panel(gateway)
        texts = [server.get("/metrics").text, gateway.get("/metrics").text, shared]
    found: Samples = {"up": {name: set(values) for name, values in PROMETHEUS_LABELS.items()}}
    families = [one for text in texts for one in text_string_to_metric_families(text)]
    for one in (sample for family in families for sample in family.samples):
        labels = found.setdefault(one.name, {k: set(v) for k, v in PROMETHEUS_LABELS.items()})
        for name, value in one.labels.items():
            labels.setdefault(name, set()).add(value)
    return found


def list_alert_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def list_board_expressions() -> list[str]:
    board = json.loads(BOARD.read_text())
    expressions = [one["expr"] for panel in board["panels"] for one in panel["targets"]]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(
                r"label_values\((\w+), (\w+)\)", variable["definition"]
            ).groups()  # type: ignore[union-attr]
            assert variable["query"]["query"] == variable["definition"]
            expressions.append(f"sum by ({label}) ({metric})")
    return expressions


def find_faults(expression: str, samples: Samples) -> Iterator[str]:
    """The metrics, labels and values of an expression that no sample has."""
    tokens = iter(TOKEN.findall(expression))
    used, grouped, dropped = list[str](), set[str](), set[str]()
    for token in tokens:
        if token in ("by", "without"):
            assert next(tokens) == "("
            names = {name for name in iter(lambda: next(tokens), ")") if name != ","}
            (grouped if token == "by" else dropped).update(names)
        elif token == "{":
            matchers = "".join(iter(lambda: next(tokens), "}"))
            yield from find_matcher_faults(used[-1], matchers, samples)
        elif re.match("[a-zA-Z_]", token) and token not in FUNCTIONS | WORDS:
            used.append(token)
            if token not in samples:
                yield f"no metric {token}"
    known = [samples[name] for name in used if name in samples]
    yield from (f"no label {one}" for one in grouped if any(one not in labels for labels in known))
    yield from (f"no label {one}" for one in dropped if all(one not in labels for labels in known))
    assert used, expression


def find_matcher_faults(metric: str, matchers: str, samples: Samples) -> Iterator[str]:
    labels = samples.get(metric, {})
    for name, sign, value in re.findall(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"', matchers):
        if name not in labels:
            yield f"{metric} has no label {name}"
        elif not value.startswith("$"):
            for one in value.split("|") if "~" in sign else [re.escape(value)]:
                if not any(re.fullmatch(one, known) for known in labels[name]):
                    yield f"{metric} never has {name}={one}"


def test_alert_rules_use_what_the_server_exposes(samples: Samples) -> None:
    rules = list_alert_rules()
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 8
    for rule in rules:
        assert list(find_faults(rule["expr"], samples)) == [], rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        metrics = [name for name in re.findall(r"\w+", rule["expr"]) if name in samples]
        by = re.findall(r"by \(([^)]*)\)", rule["expr"])
        labels = set(re.split(r",\s*", by[0])) if by else samples[metrics[0]].keys()
        text = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels, rule["alert"]


def test_the_board_uses_what_the_server_exposes(samples: Samples) -> None:
    expressions = list_board_expressions()
    assert len(expressions) > 12
    for expression in expressions:
        assert list(find_faults(expression, samples)) == [], expression


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("rate(bylot_spent_total[5m])", "no metric bylot_spent_total"),
        ("sum by (expert) (bylot_spend_total)", "no label expert"),
        ("sum without (reason) (bylot_member_calls_total)", "no label reason"),
        ('bylot_spend_total{price="usd"}', "bylot_spend_total has no label price"),
        (
            'bylot_limit_verdict{verdict="within reach"} == 1',
            "bylot_limit_verdict never has verdict=within\\ reach",
        ),
        (
            'bylot_errors_total{code=~"store_down|store_gone"}',
            "bylot_errors_total never has code=store_gone",
        ),
    ],
)
def test_the_tests_above_would_notice_a_fault(
    samples: Samples, expression: str, fault: str
) -> None:
    assert list(find_faults(expression, samples)) == [fault]


def test_the_board_is_a_grafana_dashboard() -> None:
    board = json.loads(BOARD.read_text())
    assert board["schemaVersion"] >= 36
    datasource, router = board["templating"]["list"]
    assert (datasource["type"], datasource["query"]) == ("datasource", "prometheus")
    assert (router["name"], router["multi"], router["includeAll"]) == ("router", True, True)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    cells = set[tuple[int, int]]()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        covered = {
            (place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])
        }
        assert not covered & cells, panel["title"]
        cells |= covered
        for one in (panel, *panel["targets"]):
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({one["refId"] for one in panel["targets"]}) == len(panel["targets"])


def test_every_metric_is_documented_and_no_other(samples: Samples) -> None:
    text = (ROOT / "docs" / "service.md").read_text()
    exposed = {
        re.sub("_(bucket|count|sum)$", "", name)
        for name in samples
        if name.startswith("bylot_") and not name.endswith("_created")
    }
    assert set(re.findall(r"`(bylot_\w+)", text)) == exposed
    for rule in list_alert_rules():
        assert f"| `{rule['alert']}` |" in text


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_rules_and_they_fire(tmp_path: Path) -> None:
    tests = (ROOT / "tests" / "alerts_promtool.yml").read_text().replace("ALERTS", str(ALERTS))
    (tmp_path / "tests.yml").write_text(tests)
    for command in (
        ["check", "rules", str(ALERTS)],
        ["test", "rules", str(tmp_path / "tests.yml")],
    ):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
