"""Prometheus metrics: of requests as they are served, of all else when they are scraped."""

import math
import tomllib
from collections import Counter as Multiset
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

from msgspec import structs
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from bylot.api import ReceiptName, RewardReceipt, RouterView
from bylot.eventlog.events import now_us
from bylot.gateway.gateway import RouterGateway
from bylot.gateway.member_stats import ANSWERED, LatencyHistogram
from bylot.limits.verdict import VERDICTS
from bylot.problem import Limit
from bylot.router.decision import Decision
from bylot.router.state import REASON_KINDS
from bylot.router.status import Counters

MAX_LABELLED_ROUTERS = 200  # exported one by one: those used last
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
REQUEST_BUCKETS_S = (*LATENCY_BUCKETS_S, 20.0, 60.0, 120.0)  # models may be waited for
COMMIT_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1_000)
WATCHED_ERROR_CODES = ("store_down", "store_damaged", "timeout", "overloaded", "internal_error")
WATCHED_OUTCOMES = (ANSWERED, "timeout", "unreachable", "rate_limited", "cancelled")
LIMIT_LABELS = ("router", "cost", "side", "per", "scope", "where")
ALL_REQUESTS = ""  # `scope` of most limits; to Prometheus, a label that is not there
MEMBER_LABELS = ("router", "member")
LabelledRows = defaultdict[str, list[tuple[Sequence[str], Mapping[str, Any]]]]
"""By subject, such as `router`: the values of labels, and numbers by name."""
METRICS = tomllib.loads(Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8"))
SPEND_COUNTERS = METRICS["spend_counters"]
ROUTER_TABLES = {
    "router_gauges": ("router",),
    "state_gauges": ("router", "kind"),
    "router_counters": ("router",),
    "refused_counters": ("router", "scope"),
    "spend_counters": ("router", "cost"),
    "limit_gauges": LIMIT_LABELS,
    "window_gauges": LIMIT_LABELS,
    "tenant_gauges": (*LIMIT_LABELS, "state"),
    "limit_counters": LIMIT_LABELS,
    "verdict_gauges": (*LIMIT_LABELS, "verdict"),
}
"""The tables of `METRICS` about routers, in the order of the output, and their labels."""
GATEWAY_TABLES = {
    "gateway_counters": ("router",),
    "member_counters": MEMBER_LABELS,
    "member_gauges": MEMBER_LABELS,
    "call_counters": (*MEMBER_LABELS, "outcome"),
    "token_counters": (*MEMBER_LABELS, "kind"),
}
"""Likewise those about gateways."""


class ServerMetrics(Collector):
    """Metrics of one server, in its own registry.

    What every request counts is plain numbers, which only the event loop changes: a metric of
    prometheus_client takes a lock for each.
    """

    def __init__(self) -> None:
        self.registry = into = CollectorRegistry()
        self.decisions, self.rewards = 0, dict.fromkeys(get_args(ReceiptName), 0)
        self.latencies = defaultdict[tuple[str, int], LatencyHistogram](  # by route and status
            lambda: LatencyHistogram(REQUEST_BUCKETS_S)
        )
        into.register(self)
        self.sizes = Histogram(
            "bylot_commit_commands",
            "Commands per commit",
            buckets=COMMIT_SIZE_BUCKETS,
            registry=into,
        )
        self.commits = Histogram(
            "bylot_commit_seconds", "Duration of commits", buckets=LATENCY_BUCKETS_S, registry=into
        )
        self.queue = Gauge(
            "bylot_queue_commands", "Commands that wait for their commit", registry=into
        )
        self.open_chats = Gauge(
            "bylot_chats_open", "Chat requests that are being served", registry=into
        )
        self.ready = Gauge("bylot_ready", "1 if /readyz responds 200", registry=into)
        self.errors = Counter("bylot_errors", "Requests that failed", ["code"], registry=into)
        for code in WATCHED_ERROR_CODES:
            self.errors.labels(code)  # from 0 on, so that the first one is an increase
        self.recent: dict[str, None] = {}  # names of routers, the last used at the end
        self.refused: dict[str, Multiset[str]] = {}  # requests, by those names and by scope

    def collect(self) -> Iterator[Metric]:
        """What every request counts."""
        yield CounterMetricFamily("bylot_decisions", "Decisions made", value=self.decisions)
        rewards = CounterMetricFamily("bylot_rewards", "Rewards, by receipt", labels=["receipt"])
        for receipt, count in self.rewards.items():
            rewards.add_metric([receipt], count)
        yield rewards
        labels = ["route", "status"]
        times = HistogramMetricFamily("bylot_request_seconds", "Latency of requests", labels=labels)
        for (route, status), one in self.latencies.items():
            times.add_metric([route, str(status)], one.list_buckets(), one.seconds)
        yield times

    def record_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.latencies[route, status].add(seconds)

    def record_commit(self, size: int, seconds: float) -> None:
        self.sizes.observe(size)
        self.commits.observe(seconds)

    def count(self, answer: Decision | RewardReceipt) -> None:
        """Count a decision or a reward."""
        if isinstance(answer, Decision):
            self.decisions += 1
            self.touch(answer.id.partition(".")[0])
        else:
            self.rewards[answer.receipt] += 1
            self.touch(answer.decision.partition(".")[0])

    def count_refused(self, router: str, scope: str = ALL_REQUESTS) -> None:
        """Count a request that was refused, as a budget of the router, or of a tenant, is spent."""
        self.refused.setdefault(router, Multiset())[scope] += 1
        self.touch(router)

    def touch(self, router: str) -> None:
        """Mark a router as used last."""
        recent = self.recent
        recent.pop(router, None)
        recent[router] = None
        if len(recent) > MAX_LABELLED_ROUTERS:
            oldest = next(iter(recent))
            del recent[oldest]
            self.refused.pop(oldest, None)

    def render(self, views: Sequence[RouterView], gateways: Sequence[RouterGateway] = ()) -> bytes:
        """All metrics in the text format of Prometheus."""
        found = [*collect_routers(views, self.refused, now_us()), *collect_gateways(gateways)]
        each: Any = SimpleNamespace(collect=lambda: found)  # all that a text needs of a registry
        return generate_latest(self.registry) + generate_latest(each)


def collect_routers(
    views: Sequence[RouterView], refused: Mapping[str, Mapping[str, int]], now: int
) -> Iterator[Metric]:
    """Collect the status of routers: one family per number of a router, of one of its costs, or of
    a limit. What is counted continues from the log after a restart.

    refused: requests since the server was started, by router and scope. They are in no log until
             the next decision, which may be hours later
    now:     microseconds since 1970
    """
    rows = LabelledRows(list)
    for view in views:
        name, status = view.name, view.status
        counters = structs.asdict(status.counters or Counters())
        more = {"lowest_reward": view.config.rewards[0]}
        rows["router"].append(((name,), counters | structs.asdict(status) | more))
        rate = status.state.rate_kind
        rows["state"] += [((name, kind), {"state": rate(kind)}) for kind in REASON_KINDS]
        rows["spend"] += [
            ((name, cost), {field: counters[field].get(cost, 0.0) for field in SPEND_COUNTERS})
            for cost in status.costs
        ]
        declared = map(Limit.from_data, view.config.problem["limits"])
        labelled = [(name, *limit.labels) for limit in declared]
        scopes = dict.fromkeys([ALL_REQUESTS, *(scope for *_, scope, _ in labelled)])
        times = refused.get(name, {})
        rows["refused"] += [((name, key), {"refused": times.get(key, 0)}) for key in scopes]
        for limit, labels in zip(status.limits, labelled, strict=True):
            current = limit.current
            period = (
                {"period_mean": current.mean, "missed_periods": current.missed} if current else {}
            )
            rows["limit"].append((labels, structs.asdict(limit) | period))
            rows["window"].append((labels, limit.list_window_numbers(now)))
            rows["tenant"] += [
                ((*labels, word), {"tenants": count}) for word, count in limit.tenant_counts.items()
            ]
            rows["verdict"] += [
                ((*labels, word), {"verdict": word == limit.verdict}) for word in VERDICTS
            ]
    yield from make_families(ROUTER_TABLES, rows)


def collect_gateways(gateways: Sequence[RouterGateway]) -> Iterator[Metric]:
    """Collect what gateways have counted since the server started: one family per number of a
    router or of one of its members.

    Only names of `model_list` are labels, and outcomes that the gateway itself names.
    """
    rows = LabelledRows(list)
    name, said = METRICS["member_histograms"]["latency"]
    latencies = HistogramMetricFamily(name, said, labels=MEMBER_LABELS)
    for gateway in gateways:
        rows["gateway"].append(((gateway.router,), vars(gateway.stats)))
        for member, stats in gateway.list_stats().items():
            labels = gateway.router, member
            paused = gateway.health.find_pause(member) is not None
            rows["member"].append((labels, {**vars(stats), "paused": paused}))
            times = stats.latencies
            latencies.add_metric(labels, times.list_buckets(), times.seconds)
            outcomes = dict.fromkeys(WATCHED_OUTCOMES, 0) | stats.failed
            outcomes[ANSWERED] = stats.answered
            rows["call"] += [((*labels, word), {"calls": n}) for word, n in outcomes.items()]
            kinds = {"prompt": stats.prompt_tokens, "completion": stats.completion_tokens}
            rows["token"] += [((*labels, word), {"tokens": n}) for word, n in kinds.items()]
    yield from make_families(GATEWAY_TABLES, rows)
    yield latencies


def make_families(tables: Mapping[str, Sequence[str]], rows: LabelledRows) -> Iterator[Metric]:
    """A family for each metric of each table, with a sample of every row that has its number; an
    unknown one is NaN.
    """
    for table, labels in tables.items():
        subject, _, kind = table.partition("_")
        make = CounterMetricFamily if kind == "counters" else GaugeMetricFamily
        for field, (name, said) in METRICS[table].items():
            family = make(name, said, labels=labels)
            for values, numbers in rows[subject]:
                if field in numbers:
                    value = numbers[field]
                    family.add_metric(values, math.nan if value is None else float(value))
            yield family
