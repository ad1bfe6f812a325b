"""Numbers for Prometheus: counted as requests pass, and asked of the routers when scraped."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bylot.api import RouterView
from bylot.router.status import LimitStatus, RouterStatus

MAX_LABELLED_ROUTERS = 200  # that are told one by one: those that were asked last
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
COMMIT_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1_000)
LIMIT_LABELS = ("router", "cost", "side")  # labels
RECEIPT_LABELS = ("learned", "pending", "noted", "late", "duplicate")


class ServerMetrics:
    """One server's numbers, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        into = self.registry
        self.requests = Histogram(
            "bylot_request_seconds",
            "Time from a request to its answer",
            ["route", "status"],
            buckets=LATENCY_BUCKETS_S,
            registry=into,
        )
        self.decisions = Counter("bylot_decisions", "Decisions made", registry=into)
        rewards = Counter("bylot_rewards", "Rewards told, by receipt", ["receipt"], registry=into)
        self.rewards = {receipt: rewards.labels(receipt) for receipt in RECEIPT_LABELS}
        self.sizes = Histogram(
            "bylot_commit_commands",
            "Commands that shared a commit",
            buckets=COMMIT_SIZE_BUCKETS,
            registry=into,
        )
        self.commits = Histogram(
            "bylot_commit_seconds",
            "Time from taking commands up to their commit",
            buckets=LATENCY_BUCKETS_S,
            registry=into,
        )
        self.queue = Gauge("bylot_queue_commands", "Commands without an answer yet", registry=into)
        self.recent: dict[str, None] = {}  # names of routers, those asked last at the end

    def commit(self, size: int, seconds: float) -> None:
        """One commit."""
        self.sizes.observe(size)
        self.commits.observe(seconds)

    def touch(self, router: str) -> None:
        """A router was asked."""
        recent = self.recent
        recent.pop(router, None)
        recent[router] = None
        if len(recent) > MAX_LABELLED_ROUTERS:
            del recent[next(iter(recent))]

    def text(self, views: Sequence[RouterView]) -> bytes:
        """All of it, as Prometheus reads it."""
        each = CollectorRegistry()
        each.register(RouterCollector(views))
        return generate_latest(self.registry) + generate_latest(each)


class RouterCollector(Collector):
    """Routers as they stand."""

    def __init__(self, views: Sequence[RouterView]) -> None:
        self.views = views

    def collect(self) -> Iterator[Metric]:
        """Each number of each router, and of each of its limits."""
        for name, (said, of) in ROUTER_GAUGES.items():
            family = GaugeMetricFamily(f"bylot_router_{name}", said, labels=["router"])
            for view in self.views:
                family.add_metric([view.name], float_or_nan(of(view.status)))
            yield family
        for name, (said, of_limit) in LIMIT_GAUGES.items():
            family = GaugeMetricFamily(f"bylot_limit_{name}", said, labels=LIMIT_LABELS)
            for view in self.views:
                for one in view.status.limits:
                    family.add_metric([view.name, one.cost, one.side], float_or_nan(of_limit(one)))
            yield family
        yield self.missed()

    def missed(self) -> Metric:
        """Periods that were not kept, where a policy has periods: only this grows, or begins anew
        with another bound.
        """
        said = "Periods that ended outside it, since it has this bound"
        family = CounterMetricFamily("bylot_limit_missed_periods", said, labels=LIMIT_LABELS)
        for view in self.views:
            for one in view.status.limits:
                if one.current is not None:
                    labels = [view.name, one.cost, one.side]
                    family.add_metric(labels, one.current.missed)
        return family


def float_or_nan(value: float | None) -> float:
    """What is not known is not a number."""
    return math.nan if value is None else float(value)


ROUTER_GAUGES: Mapping[str, tuple[str, Callable[[RouterStatus], float | None]]] = {
    "decisions": ("Decisions since its creation", lambda status: status.decisions),
    "rewards": ("Rewards learned since its creation", lambda status: status.rewards),
    "waiting": ("Decisions whose reward may still come", lambda status: status.waiting),
    "mean_reward": ("Mean reward", lambda status: status.mean_reward),
    "kept": ("1 if all limits are kept, as bylot_limit_kept", lambda status: status.kept),
    "effective_experts": (
        "Experts that would be as hard to guess if all were drawn equally often",
        lambda status: status.effective_experts,
    ),
}
LIMIT_GAUGES: Mapping[str, tuple[str, Callable[[LimitStatus], float | None]]] = {
    "mean": ("Settled cost per decision since the first", lambda one: one.mean),
    "period_mean": (
        "Settled cost per decision of this period",
        lambda one: None if one.current is None else one.current.mean,
    ),
    "bound": ("Its bound", lambda one: one.bound),
    "price": ("Reward per decision that one unit of the bound would buy", lambda one: one.price),
    "kept": (
        "1 if it can be kept at the end of this period; without periods, if it is kept so far",
        lambda one: one.kept,
    ),
}
"""What is told, by name: its description, and how to read it from a status."""
