"""What each member has done so far: counts, latencies, costs and scores, for people and metrics."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from msgspec import Struct

from bylot.gateway.answers import Answer, Failure, Verdict
from bylot.gateway.asking import PanelResult

RECENT_CALLS = 1_000  # over which latencies are shown
PRIOR_SCORE, PRIOR_COUNT = 0.5, 4.0  # of a member without scores


class MemberView(Struct, frozen=True, kw_only=True):
    """The statistics of a member since the server started.

    median_s, p99_s: of its latest answers; None: it has none
    cost_per_win:    dollars; None: it has not won
    """

    name: str
    asked: int
    answered: int
    won: int
    failed: dict[str, int]
    tokens: int
    cost_usd: float
    mean_score: float | None
    median_s: float | None
    p99_s: float | None
    cost_per_win: float | None
    paused: bool


class MemberStats:
    """Counters of one member."""

    def __init__(self) -> None:
        self.asked = self.answered = self.won = self.tokens = self.scored = 0
        self.cost, self.score_sum = 0.0, 0.0
        self.failed: Counter[str] = Counter()
        self.seconds: deque[float] = deque(maxlen=RECENT_CALLS)

    def add_call(self, outcome: Answer | Failure) -> None:
        """Count a call that has ended."""
        self.asked += 1
        self.tokens += outcome.usage.prompt_tokens + outcome.usage.completion_tokens
        if isinstance(outcome, Answer):
            self.answered += 1
            self.seconds.append(outcome.seconds)
        else:
            self.failed[outcome.reason] += 1

    @property
    def expected_score(self) -> float:
        """The mean score, drawn towards one half while there are few."""
        return (PRIOR_SCORE * PRIOR_COUNT + self.score_sum) / (PRIOR_COUNT + self.scored)

    def view(self, name: str, paused: bool) -> MemberView:
        times = sorted(self.seconds)
        last = len(times) - 1
        return MemberView(
            name=name,
            asked=self.asked,
            answered=self.answered,
            won=self.won,
            failed=dict(self.failed),
            tokens=self.tokens,
            cost_usd=self.cost,
            mean_score=self.score_sum / self.scored if self.scored else None,
            median_s=times[last // 2] if times else None,
            p99_s=times[round(0.99 * last)] if times else None,
            cost_per_win=self.cost / self.won if self.won else None,
            paused=paused,
        )


class StatsTable:
    """Counters of all members of a gateway."""

    def __init__(self) -> None:
        self.members: dict[str, MemberStats] = {}
        self.requests = self.quorum_misses = 0

    def get(self, name: str) -> MemberStats:
        return self.members.setdefault(name, MemberStats())

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
