"""What each member has done since the server started: counts, latencies, costs and scores.

This is the only place that counts. The dashboard and Prometheus read it when they are asked.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import accumulate

from bylot.gateway.answers import Answer, Failure, Verdict
from bylot.gateway.asking import PanelResult

ANSWER_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0)
ANSWERED = "answered"
FAILURE_REASONS = {
    *("timeout", "unreachable", "rate_limited", "interrupted", "cancelled", "garbage"),
    *("wrong_type", "too_large", "too_many_responses", "too_many_tool_calls", "error_inside"),
    *(f"http_{one.value}" for one in HTTPStatus),
}
"""Reasons that are counted by their name; others, which a model may make up, as `other`."""
PRIOR_SCORE, PRIOR_COUNT = 0.5, 4.0  # of a member without scores


class LatencyHistogram:
    """Latencies by bucket: at most so many seconds; the last bucket has no bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one latency."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.seconds += seconds

    def list_buckets(self) -> list[tuple[str, int]]:
        """The histogram as Prometheus has it: how many took at most so many seconds."""
        return list(zip((*map(str, self.bounds), "+Inf"), accumulate(self.counts), strict=True))


class MemberStats:
    """Counters of one member.

    seconds:   of its latest answers
    latencies: of all its answers
    earlier:   its scores before the server started, as far as they were read from the log
    """

    def __init__(self) -> None:
        self.asked = self.answered = self.won = self.scored = 0
        self.prompt_tokens = self.completion_tokens = 0
        self.cost = self.score_sum = 0.0
        self.failed: Counter[str] = Counter()
        self.seconds: deque[float] = deque(maxlen=1_000)  # of the last calls
        self.latencies = LatencyHistogram(ANSWER_BUCKETS_S)
        self.earlier: Sequence[float] = ()

    def add_call(self, outcome: Answer | Failure) -> None:
        """Count a call that has ended."""
        self.asked += 1
        self.prompt_tokens += outcome.usage.prompt_tokens
        self.completion_tokens += outcome.usage.completion_tokens
        if isinstance(outcome, Answer):
            self.answered += 1
            self.seconds.append(outcome.seconds)
            self.latencies.add(outcome.seconds)
        else:
            self.failed[outcome.reason if outcome.reason in FAILURE_REASONS else "other"] += 1

    @property
    def expected_score(self) -> float:
        """The mean score, drawn towards one half while there are few."""
        total = PRIOR_SCORE * PRIOR_COUNT + self.score_sum + sum(self.earlier)
        return total / (PRIOR_COUNT + self.scored + len(self.earlier))


class StatsTable:
    """Counters of all members of a gateway.

    settlements, settlement_failures: panels whose scores and costs were reported to their router,
                                      and those of which they were not
    """

    def __init__(self) -> None:
        self.members = defaultdict[str, MemberStats](MemberStats)
        self.requests = self.quorum_misses = self.unanswered = self.unscored = 0
        self.settlements = self.settlement_failures = self.without_context = 0

    def add_panel(
        self, result: PanelResult, spend: Mapping[str, float], verdict: Verdict | None
    ) -> None:
        """Count a panel that has ended; spend: dollars by member."""
        self.requests += 1
        for one in result.calls:
            self.members[one.member].add_call(one)
        for name, cost in spend.items():
            self.members[name].cost += cost
        for name, score in (verdict.scores if verdict else {}).items():
            stats = self.members[name]
            stats.scored += 1
            stats.score_sum += score

    def order_by_score(self, members: Sequence[str]) -> list[str]:
        """Members by their expected scores, the best first: fewest calls until a good answer."""
        return sorted(members, key=lambda name: -self.members[name].expected_score)
