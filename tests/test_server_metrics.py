"""Metrics, log lines and traces of a server."""

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bylot.errors import BudgetSpent, StoreUnavailable
from bylot.eventlog.commands import MakeDecision
from bylot.problem import at_least, at_most, share
from bylot.server.http_errors import to_api_error
from bylot.server.metrics import MAX_LABELLED_ROUTERS, ServerMetrics
from bylot.server.router_port import count_failure
from bylot.server.telemetry import JsonLineFormatter, RequestTracer, make_tracer
from dashboard_states import StateServer
from live_server import FIVE_EXPERTS, ServerClient, assert_error, live_server
from sample_problem import make_five_expert_problem


def scrape_metrics(server: ServerClient) -> dict[tuple[str, ...], float]:
    """All samples by name and values of labels."""
    return read_samples(server.get("/metrics").text)


def read_samples(text: str) -> dict[tuple[str, ...], float]:
    """Samples by name and values of labels; an empty label is none, as for Prometheus."""
    families = text_string_to_metric_families(text)
    samples = [one for family in families for one in family.samples]
    found = {(one.name, *filter(None, one.labels.values())): one.value for one in samples}
    assert len(found) == len(samples), "two samples with the same labels"
    return found


def test_decisions_and_rewards_are_counted(server: ServerClient) -> None:
    before = scrape_metrics(server)
    router = server.create_router()
    ids = [server.decide(router)["id"] for _ in range(3)]
    for value in (0.5, 0.5):
        server.post(f"/v1/decisions/{ids[0]}/reward", json={"value": value})
    after = scrape_metrics(server)

    def increase(*key: str) -> float:
        return after[key] - before.get(key, 0)

    assert increase("bylot_decisions_total") == 3
    assert increase("bylot_rewards_total", "learned") == 1
    assert increase("bylot_rewards_total", "duplicate") == 1
    route = "POST /v1/routers/{name}/decisions"
    assert increase("bylot_request_seconds_count", route, "201") == 3
    assert after[("bylot_queue_commands",)] == 0
    assert increase("bylot_commit_commands_sum") >= 5


def test_a_router_has_metrics_of_its_limits(server: ServerClient) -> None:
    router = server.create_router()
    name = router.rpartition("/")[2]
    decision = server.decide(router)["id"]
    spend = {"value": 1, "spend": {"usd": 2.25}}
    server.post(f"/v1/decisions/{decision}/reward", json=spend)
    metrics = scrape_metrics(server)
    assert metrics["bylot_router_decisions_total", name] == 1
    assert metrics["bylot_router_mean_reward", name] == 1
    assert metrics["bylot_limit_mean", "usd", "request", name, "at_most"] == 2.25
    assert metrics["bylot_limit_bound", "usd", "request", name, "at_most"] == 3.0
    assert metrics["bylot_limit_kept", "usd", "request", name, "at_most"] == 1
    period = metrics["bylot_limit_period_mean", "usd", "request", name, "at_most"]
    assert period == pytest.approx(2.25, rel=1e-12)
    assert metrics["bylot_limit_missed_periods_total", "usd", "request", name, "at_most"] == 0
    assert 1 < metrics["bylot_router_effective_experts", name] <= 5


def test_counters_of_spend_and_reward_never_decrease(server: ServerClient) -> None:
    """Costs that are settled lower, and cancelled decisions, are counted apart."""
    router = server.create_router(rewards=[-1, 1], policy="random")
    name, seen = router.rpartition("/")[2], list[dict[tuple[str, ...], float]]()
    decisions = [server.decide(router) for _ in range(4)]
    stated = sum(one["spend"]["usd"] for one in decisions)
    lower, higher, cancelled, plain = decisions
    for id, value, change in ((lower["id"], -1.0, -0.5), (higher["id"], 0.25, 0.75)):
        seen.append(scrape_metrics(server))
        decision = lower if id == lower["id"] else higher
        spend = {"usd": decision["spend"]["usd"] + change}
        server.post(f"/v1/decisions/{id}/reward", json={"value": value, "spend": spend})
    seen.append(scrape_metrics(server))
    server.post(f"/v1/decisions/{cancelled['id']}/cancel")
    seen.append(scrape_metrics(server))
    server.post(f"/v1/decisions/{plain['id']}/reward", json={"value": -1.0})
    seen.append(scrape_metrics(server))
    late = {"spend": {"usd": plain["spend"]["usd"] - 0.25}}  # known to be lower only afterwards
    server.post(f"/v1/decisions/{plain['id']}/reward", json=late | {"key": "bill"})
    seen.append(scrape_metrics(server))
    for before, after in itertools.pairwise(seen):
        assert all(after[key] >= old for key, old in before.items() if key[0].endswith("_total"))
    last, cost = seen[-1], ("usd", name)
    declared = [seen[n]["bylot_declared_cost_total", *cost] for n in (0, -1)]
    assert declared == pytest.approx([stated, stated])
    reported = [
        lower["spend"]["usd"] - 0.5,
        higher["spend"]["usd"] + 0.75,
        0,
        plain["spend"]["usd"],
    ]
    spent = [one.get(("bylot_spend_total", *cost), 0.0) for one in seen]
    assert spent == pytest.approx([0.0, *itertools.accumulate(reported), sum(reported)])
    assert last["bylot_spend_added_total", *cost] == pytest.approx(0.75)
    saved = 0.5 + 0.25 + cancelled["spend"]["usd"]
    assert last["bylot_spend_saved_total", *cost] == pytest.approx(saved)
    settled = server.get(f"{router}/status").json()["costs"]["usd"]["settled"]
    assert settled == pytest.approx(stated + 0.75 - saved)
    assert last["bylot_router_earned_total", name] == pytest.approx(0 + 1.25)
    assert last["bylot_router_rewards_total", name] == 3
    assert last["bylot_router_lowest_reward", name] == -1
    assert seen[0]["bylot_router_earned_total", name] == 0


def test_counters_continue_after_a_restart(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        router = server.create_router()
        server.post(f"/v1/decisions/{server.decide(router)['id']}/reward", json={"value": 0.5})
        before = scrape_metrics(server)
    with live_server(tmp_path) as server:
        server.decide(router)
        after = scrape_metrics(server)
    for name in ("decisions", "rewards", "earned"):
        key = f"bylot_router_{name}_total", router.rpartition("/")[2]
        assert after[key] == before[key] + (name == "decisions")


def test_a_server_that_is_not_ready_still_has_metrics(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        router = server.create_router()
        server.decide(router)
        assert scrape_metrics(server)["bylot_ready",] == 1
        server.app.state.writer.store_error = StoreUnavailable("the disk is gone")
        found = scrape_metrics(server)
        assert found["bylot_ready",] == 0
        assert found["bylot_decisions_total",] == 1
        assert ("bylot_router_decisions_total", router.rpartition("/")[2]) not in found
        assert server.get("/readyz").status_code == 503
        assert scrape_metrics(server)["bylot_errors_total", "store_down"] == 1


def test_a_tightened_limit_that_holds_since_is_reported_as_kept(server: ServerClient) -> None:
    router = server.create_router(problem={**FIVE_EXPERTS, "period": 400})
    name = router.rpartition("/")[2]
    limit = "usd", "request", name, "at_most"
    expensive = {"available": ["ann", "bob"]}
    server.post(f"{router}/decisions:batch", json={"decisions": [expensive] * 400})
    assert scrape_metrics(server)["bylot_limit_missed_periods_total", *limit] == 1
    limits = [{"cost": "usd", "at_most": 2.5}, *FIVE_EXPERTS["limits"][1:]]
    assert server.patch(router, json={"limits": limits}).status_code == 200
    server.post(f"{router}/decisions:batch", json={"decisions": [{}] * 430})
    metrics = scrape_metrics(server)
    # Over all decisions, including those before the edit
    assert metrics["bylot_limit_mean", *limit] > 2.5
    assert metrics["bylot_limit_kept", *limit] == metrics["bylot_router_kept", name] == 1
    assert metrics["bylot_limit_missed_periods_total", *limit] == 0
    one = server.get(f"{router}/status").json()["limits"][0]
    assert (one["kept"], one["kept_since_first"]) == (True, False)


def test_a_limit_that_available_experts_cannot_keep_is_reported_as_not_kept(
    server: ServerClient,
) -> None:
    router = server.create_router(problem={**FIVE_EXPERTS, "period": 400})
    limit = "usd", "request", router.rpartition("/")[2], "at_most"
    for _ in range(100):
        server.decide(router, available=["ann", "bob"])
    assert scrape_metrics(server)["bylot_limit_kept", *limit] == 0


def test_a_policy_without_periods_has_no_metric_of_missed_periods(server: ServerClient) -> None:
    router = server.create_router(policy="random")
    server.decide(router)
    metrics = scrape_metrics(server)
    limit = "usd", "request", router.rpartition("/")[2], "at_most"
    assert ("bylot_limit_period_mean", *limit) not in metrics
    assert ("bylot_limit_missed_periods_total", *limit) not in metrics


def test_a_budget_of_the_calendar_has_metrics_of_its_window(server: ServerClient) -> None:
    limits = [
        at_most("usd", 3.0),
        at_most("usd", 10.0, per="month", zone="Europe/Berlin"),
        at_least(share("novice", ["cat", "eve"]), 0.3, per="week"),
    ]
    router = server.store_router(make_five_expert_problem().replace(limits=limits))
    name = router.rpartition("/")[2]
    per_month, per_week = ("usd", "month", name, "at_most"), ("novice", "week", name, "at_least")
    server.decide(router)
    metrics = scrape_metrics(server)
    assert metrics["bylot_limit_bound", *per_month] == 10
    assert metrics["bylot_limit_bound", "usd", "request", name, "at_most"] == 3
    decided, status = [], 201
    while status == 201:
        response = server.post(f"{router}/decisions", json={})
        status = response.status_code
        decided.append(response.json())
    assert status == 429
    assert decided[-1]["error"]["code"] == "budget_spent"
    retry_s = float(response.headers["Retry-After"])
    batch = server.post(f"{router}/decisions:batch", json={"decisions": [{}] * 3}).json()
    assert [one["status"] for one in batch["results"]] == [429] * 3
    now = scrape_metrics(server)
    assert now["bylot_refused_total", name] == 4, "counted at once, not with the next decision"
    assert metrics["bylot_refused_total", name] == 0, "from 0 on: the first one is an increase"
    spent = now["bylot_limit_window_spent", *per_month]
    assert 8 < spent <= 10
    assert spent == pytest.approx(now["bylot_declared_cost_total", "usd", name])
    assert now["bylot_limit_window_used_ratio", *per_month] == pytest.approx(spent / 10)
    assert now["bylot_limit_window_left", *per_month] == pytest.approx(10 - spent)
    assert now["bylot_limit_window_reserved", *per_month] == 0
    assert now["bylot_limit_window_projected", *per_month] >= spent
    assert now["bylot_limit_window_lasts_seconds", *per_month] == 0
    ends_s = now["bylot_limit_window_ends_seconds", *per_month]
    assert ends_s == pytest.approx(retry_s, abs=60)
    assert now["bylot_limit_verdict", "usd", "month", name, "at_most", "spent"] == 1
    assert now["bylot_limit_kept", *per_month] == 1
    for metric in ("requests", "requests_to_come", "ends_seconds"):
        assert (f"bylot_limit_window_{metric}", *per_week) in now
    for metric in ("spent", "left", "used_ratio", "lasts_seconds"):
        assert (f"bylot_limit_window_{metric}", *per_week) not in now, "it has no total"
    assert now["bylot_limit_window_requests", *per_week] == len(decided)


def test_limits_on_the_same_cost_have_different_labels(tmp_path: Path) -> None:
    icu, other = {"context": ["chest pain"]}, {"context": ["chest pain", "headache, tense"]}
    groups = (None, icu, other)
    limits = [at_most("usd", 3.0 + n, where=where) for n, where in enumerate(groups)]
    limits += [at_most("usd", 900.0 + n, per="day", where=x) for n, x in enumerate(groups)]
    limits += [
        at_most("usd", 903.0 + n, per="day", scope="tenant", where=x) for n, x in enumerate(groups)
    ]
    limits.append(at_least(share("novice", ["cat", "eve"]), 0.1, per="day", scope="tenant"))
    server = StateServer(tmp_path)
    server.create("hospital", "noisy-or", limits=limits)
    server.play("hospital", 90, tenants=["acme", "bolt", "x" * 200])
    found = read_samples(ServerMetrics().render([server.view("hospital")]).decode())
    bounds = {key[1:]: value for key, value in found.items() if key[0] == "bylot_limit_bound"}
    assert len(bounds) == len(limits)
    group = "chest pain,headache\\, tense"
    assert bounds["usd", "request", "hospital", "at_most", group] == 5.0
    assert bounds["usd", "day", "hospital", "tenant", "at_most"] == 903.0
    assert bounds["usd", "day", "hospital", "tenant", "at_most", group] == 905.0
    assert not any("acme" in key for key in found), "tenants are no labels"


def test_limits_for_each_tenant_have_metrics_of_how_many_there_are(tmp_path: Path) -> None:
    server = StateServer(tmp_path)
    server.create("shared", "noisy-or", limits=[at_most("usd", 40.0, per="day", scope="tenant")])
    metrics, labels = ServerMetrics(), ("usd", "day", "shared", "tenant", "at_most")
    before = read_samples(metrics.render([server.view("shared")]).decode())
    assert before["bylot_limit_tenants", *labels, "active"] == 0
    assert before["bylot_refused_total", "shared"] == 0
    assert before["bylot_refused_total", "shared", "tenant"] == 0
    server.play("shared", 40, tenants=["acme"], minutes=0.01)
    server.play("shared", 4, tenants=["bolt"], minutes=0.01)
    (refused,) = server.do(MakeDecision("shared", keys={"tenant": "acme"}))
    assert isinstance(refused, BudgetSpent)
    count_failure(metrics, MakeDecision("shared", keys={"tenant": "acme"}), refused)
    sent = to_api_error(refused)  # as another server of a cluster gets it
    count_failure(metrics, MakeDecision("shared", keys={"tenant": "acme"}), sent)
    after = read_samples(metrics.render([server.view("shared")]).decode())
    assert after["bylot_limit_tenants", *labels, "active"] == 2
    assert after["bylot_limit_tenants", *labels, "spent"] == 1
    assert after["bylot_refused_total", "shared"] == 0
    assert after["bylot_refused_total", "shared", "tenant"] == 2
    assert not any(key[0].startswith("bylot_limit_window") for key in after)


def test_only_the_most_recent_routers_have_labels() -> None:
    server_metrics = ServerMetrics()
    for number in range(MAX_LABELLED_ROUTERS + 5):
        server_metrics.touch(f"r{number}")
        server_metrics.touch("r0")
    assert len(server_metrics.recent) == MAX_LABELLED_ROUTERS
    assert "r0" in server_metrics.recent
    assert "r1" not in server_metrics.recent


def test_refused_requests_are_only_counted_of_routers_with_labels() -> None:
    server_metrics = ServerMetrics()
    for number in range(MAX_LABELLED_ROUTERS + 5):
        server_metrics.count_refused(f"r{number}")
    assert set(server_metrics.refused) == set(server_metrics.recent)


def test_a_log_line_is_json_with_all_fields() -> None:
    record = logging.makeLogRecord(
        {
            "msg": "a %s",
            "args": ("b",),
            "levelname": "INFO",
            "target": "r.1.2.9f3ab01c",
            "created": 0.5,
        }
    )
    log_line = json.loads(JsonLineFormatter().format(record))
    assert log_line == {
        "at": "1970-01-01T00:00:00.500000Z",
        "level": "info",
        "message": "a b",
        "target": "r.1.2.9f3ab01c",
    }


def test_requests_are_logged_at_debug_level_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with live_server(tmp_path) as server:
        decision = server.decide(server.create_router())["id"]
        path = f"/v1/decisions/{decision}/reward"
        caplog.set_level(logging.INFO, "bylot.server")
        server.post(path, json={"value": 1})
        assert not [one for one in caplog.records if one.message == "request"]
        caplog.set_level(logging.DEBUG, "bylot.server")
        server.post(path, json={"value": 1})
    (log_line,) = [one for one in caplog.records if one.message == "request"]
    assert vars(log_line)["target"] == decision
    assert vars(log_line)["status"] == 200


def test_a_tracer_is_made_only_if_opentelemetry_is_configured() -> None:
    assert make_tracer({}) is None
    assert (
        make_tracer({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"})
        is None
    )
    disabled = {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "console"}
    assert make_tracer(disabled) is None


def test_the_span_of_a_request_belongs_to_the_trace_of_the_caller(tmp_path: Path) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export: Any = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    provider, exporter = sdk.TracerProvider(), memory.InMemorySpanExporter()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    with live_server(tmp_path) as server:
        server.app.state.tracer = RequestTracer(provider)
        trace = "0af7651916cd43dd8448eb211c80319c"
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        assert_error(
            server.post("/v1/decisions/a.1.1.9f3ab01c/reward", json={"value": 1}, headers=headers),
            404,
        )
        (span,) = exporter.get_finished_spans()
    assert span.name == "POST /v1/decisions/{id}/reward"
    assert f"{span.context.trace_id:032x}" == trace
    assert span.attributes["bylot.target"] == "a.1.1.9f3ab01c"
    assert span.attributes["http.response.status_code"] == 404
