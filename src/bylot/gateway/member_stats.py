"""What each member has done since the server started: counts, latencies, costs and scores.

This is the only place that counts. The dashboard and Prometheus read it when they are asked.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import accumulate

from msgspec import Struct

from bylot.gateway.answers import Answer, Failure, Verdict
from bylot.gateway.asking import PanelResult
from bylot.gateway.health import Pause

RECENT_CALLS = 1_000  # over which latencies are shown
ANSWER_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0)
ANSWERED = "answered"
FAILURE_REASONS = {
    *("timeout", "unreachable", "rate_limited", "interrupted", "cancelled", "garbage"),
    *("wrong_type", "too_large", "too_many_responses", "too_many_tool_calls", "error_inside"),
    *(f"http_{one.value}" for one in HTTPStatus),
}
"""Reasons that are counted by their name; others, which a model may make up, as `other`."""
PRIOR_SCORE, PRIOR_COUNT = 0.5, 4.0  # of a member without scores


class MemberView(Struct, frozen=True, kw_only=True):
    """The statistics of a member since the server started.

    answered_share:  of the calls; None: it was not asked
    failed:          calls by the reason of their failure, the most frequent first
    median_s, p99_s: of its latest answers; None: it has none
    cost_per_win:    dollars; None: it has not won
    has_model:       whether `model_list` has it; otherwise it cannot be asked
    pause:           after failures, until a call succeeds; None: it is available
    """

    name: str
    asked: int
    answered: int
    answered_share: float | None
    won: int
    failed: dict[str, int]
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    mean_score: float | None
    median_s: float | None
    p99_s: float | None
    cost_per_win: float | None
    has_model: bool
    pause: Pause | None


class MemberStats:
    """Counters of one member.

    seconds:   of its latest answers
    latencies: its answers by bucket of `ANSWER_BUCKETS_S`; the last one has no bound
    earlier:   its scores before the server started, as far as they were read from the log
    """

    def __init__(self) -> None:
        self.asked = self.answered = self.won = self.scored = 0
        self.prompt_tokens = self.completion_tokens = 0
        self.cost = self.score_sum = self.seconds_sum = 0.0
        self.failed: Counter[str] = Counter()
        self.seconds: deque[float] = deque(maxlen=RECENT_CALLS)
        self.latencies = [0] * (len(ANSWER_BUCKETS_S) + 1)
        self.earlier: Sequence[float] = ()

    def add_call(self, outcome: Answer | Failure) -> None:
        """Count a call that has ended."""
        self.asked += 1
        self.prompt_tokens += outcome.usage.prompt_tokens
        self.completion_tokens += outcome.usage.completion_tokens
        if isinstance(outcome, Answer):
            seconds = outcome.seconds
            self.answered += 1
            self.seconds.append(seconds)
            self.seconds_sum += seconds
            self.latencies[bisect_left(ANSWER_BUCKETS_S, seconds)] += 1
        else:
            self.failed[outcome.reason if outcome.reason in FAILURE_REASONS else "other"] += 1

    @property
    def expected_score(self) -> float:
        """The mean score, drawn towards one half while there are few."""
        total = PRIOR_SCORE * PRIOR_COUNT + self.score_sum + sum(self.earlier)
        return total / (PRIOR_COUNT + self.scored + len(self.earlier))

    def iterate_buckets(self) -> Iterator[tuple[str, int]]:
        """The histogram of latencies as Prometheus has it: answers of at most so many seconds."""
        bounds = (*map(str, ANSWER_BUCKETS_S), "+Inf")
        yield from zip(bounds, accumulate(self.latencies), strict=True)

    def view(self, name: str, has_model: bool, pause: Pause | None) -> MemberView:
        """The statistics as they are now."""
        times = sorted(self.seconds)
        last = len(times) - 1
        return MemberView(
            name=name,
            asked=self.asked,
            answered=self.answered,
            answered_share=self.answered / self.asked if self.asked else None,
            won=self.won,
            failed=dict(self.failed.most_common()),
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cost_usd=self.cost,
            mean_score=self.score_sum / self.scored if self.scored else None,
            median_s=times[last // 2] if times else None,
            p99_s=times[round(0.99 * last)] if times else None,
            cost_per_win=self.cost / self.won if self.won else None,
            has_model=has_model,
            pause=pause,
        )


class StatsTable:
    """Counters of all members of a gateway."""

    def __init__(self) -> None:
        self.members: dict[str, MemberStats] = {}
        self.requests = self.quorum_misses = self.unanswered = self.unscored = 0
        self.settlements = self.settlement_failures = self.without_context = 0

    def get(self, name: str) -> MemberStats:
        """The counters of a member, new ones if it has none."""
        found = self.members.get(name)
        if found is None:
            found = self.members[name] = MemberStats()
        return found

    def add_settlement(self, settled: bool) -> None:
        """Count a panel whose scores and costs were reported to its router, or were not."""
        if settled:
            self.settlements += 1
        else:
            self.settlement_failures += 1

    def add_panel(
        self, result: PanelResult, spend: Mapping[str, float], verdict: Verdict | None
    ) -> None:
        """Count a panel that has ended; spend: dollars by member."""
        self.requests += 1
        for one in result.calls:
            self.get(one.member).add_call(one)
        for name, cost in spend.items():
            self.get(name).cost += cost
        for name, score in (verdict.scores if verdict else {}).items():
            stats = self.get(name)
            stats.scored += 1
            stats.score_sum += score

    def order_by_score(self, members: Sequence[str]) -> list[str]:
        """Members by their expected scores, the best first: fewest calls until a good answer."""
        return sorted(members, key=lambda name: -self.get(name).expected_score)
