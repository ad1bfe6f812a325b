"""Prometheus metrics: of requests as they are served, of routers when they are scraped."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bylot.api import ReceiptName, RewardReceipt, RouterView
from bylot.router.decision import Decision
from bylot.router.status import LimitStatus

MAX_LABELLED_ROUTERS = 200  # exported one by one: those used last
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
COMMIT_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1_000)
LIMIT_LABELS = ("router", "cost", "side")


class ServerMetrics:
    """Metrics of one server, in its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        into = self.registry
        self.requests = Histogram(
            "bylot_request_seconds",
            "Latency of requests",
            ["route", "status"],
            buckets=LATENCY_BUCKETS_S,
            registry=into,
        )
        self.decisions = Counter("bylot_decisions", "Decisions made", registry=into)
        rewards = Counter("bylot_rewards", "Rewards, by receipt", ["receipt"], registry=into)
        self.rewards = {receipt: rewards.labels(receipt) for receipt in get_args(ReceiptName)}
        sizes, seconds = COMMIT_SIZE_BUCKETS, LATENCY_BUCKETS_S
        said = "Commands per commit"
        self.sizes = Histogram("bylot_commit_commands", said, buckets=sizes, registry=into)
        said = "Duration of commits"
        self.commits = Histogram("bylot_commit_seconds", said, buckets=seconds, registry=into)
        said = "Commands that wait for their commit"
        self.queue = Gauge("bylot_queue_commands", said, registry=into)
        self.recent: dict[str, None] = {}  # names of routers, the last used at the end

    def record_commit(self, size: int, seconds: float) -> None:
        self.sizes.observe(size)
        self.commits.observe(seconds)

    def count(self, answer: Decision | RewardReceipt) -> None:
        """Count a decision or a reward."""
        if isinstance(answer, Decision):
            self.decisions.inc()
            self.touch(answer.id.partition(".")[0])
        else:
            self.rewards[answer.receipt].inc()
            self.touch(answer.decision.partition(".")[0])

    def touch(self, router: str) -> None:
        """Mark a router as used last."""
        recent = self.recent
        recent.pop(router, None)
        recent[router] = None
        if len(recent) > MAX_LABELLED_ROUTERS:
            del recent[next(iter(recent))]

    def render(self, views: Sequence[RouterView]) -> bytes:
        """All metrics in the text format of Prometheus."""
        each = CollectorRegistry()
        each.register(RouterCollector(views))
        return generate_latest(self.registry) + generate_latest(each)


class RouterCollector(Collector):
    """Collects the status of routers."""

    def __init__(self, views: Sequence[RouterView]) -> None:
        self.views = views

    def collect(self) -> Iterator[Metric]:
        """One family per number of a router or of a limit."""
        limits = [
            ([view.name, one.cost, one.side], one)
            for view in self.views
            for one in view.status.limits
        ]
        for name, said in ROUTER_GAUGES.items():
            family = GaugeMetricFamily(f"bylot_router_{name}", said, labels=["router"])
            for view in self.views:
                family.add_metric([view.name], float_or_nan(getattr(view.status, name)))
            yield family
        for name, (said, of_limit) in LIMIT_GAUGES.items():
            family = GaugeMetricFamily(f"bylot_limit_{name}", said, labels=LIMIT_LABELS)
            for labels, one in limits:
                family.add_metric(labels, float_or_nan(of_limit(one)))
            yield family
        said = "Periods that ended outside the limit since its bound last changed"
        missed = CounterMetricFamily("bylot_limit_missed_periods", said, labels=LIMIT_LABELS)
        for labels, one in limits:
            if one.current is not None:
                missed.add_metric(labels, one.current.missed)
        yield missed


def float_or_nan(value: float | None) -> float:
    """NaN for an unknown value."""
    return math.nan if value is None else float(value)


ROUTER_GAUGES = {
    "decisions": "Decisions since the router was created",
    "rewards": "Rewards learned since the router was created",
    "waiting": "Decisions that wait for their reward",
    "mean_reward": "Mean reward",
    "kept": "1 if all limits are kept, see bylot_limit_kept",
    "effective_experts": "Effective number of experts, exp(entropy)",
}
"""By their names in a status: the description."""
LIMIT_GAUGES: Mapping[str, tuple[str, Callable[[LimitStatus], float | None]]] = {
    "mean": ("Average settled cost since the first decision", lambda one: one.mean),
    "period_mean": (
        "Average settled cost in the current period",
        lambda one: None if one.current is None else one.current.mean,
    ),
    "bound": ("Bound of the limit", lambda one: one.bound),
    "price": ("Shadow price: reward per decision for one unit of the bound", lambda one: one.price),
    "kept": (
        "1 if the limit can hold at the end of this period; without periods, if it holds",
        lambda one: one.kept,
    ),
}
"""By name: the description, and how to read the value from a status."""
