"""RouterState: whether a router is well, with the reasons, and the facts that it is judged by.

`judge_state` is the only place that decides: lists, pages, statuses, metrics and alerts show what
it returns. Facts of the last minutes are counted in memory, by clocks that callers pass.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Literal, get_args

from msgspec import Struct

from bylot.limits.verdict import VERDICTS, LimitVerdict, VerdictName

StateLevel = Literal["ok", "attention", "critical"]
ReasonKind = Literal["limits", "members", "scoring", "rewards"]
LEVELS: tuple[StateLevel, ...] = get_args(StateLevel)  # the worst last
REASON_KINDS: tuple[ReasonKind, ...] = get_args(ReasonKind)
VERDICT_LEVELS: Mapping[VerdictName, StateLevel] = {
    "will be missed": "critical",
    "missed": "critical",
    "outside": "attention",
    "spent": "attention",
    "will run out": "attention",
}
"""The verdicts on limits that need somebody; all others are ok."""
BUCKET_S = 10
RECENT_BUCKETS = 30  # five minutes
RECENT_US = RECENT_BUCKETS * BUCKET_S * 1_000_000
ATTENTION_SHARE = 0.1  # of recent panels without scores or answers, beyond which it is attention
CRITICAL_SHARE = 0.5  # of them, or of all members, from which on it is critical
MIN_BAD_PANELS = 2
MAX_NAMED_MEMBERS = 3
FADE = 0.99  # of the longest gap and delay, with every reward
PATIENCE = 3.0  # times the longest gap and delay, after which a reward is overdue
MEAN_GAPS = 10.0  # likewise, of the mean gap since the first decision
MIN_OVERDUE, MIN_OVERDUE_US = 20, 30_000_000
FIRST_OVERDUE, FIRST_OVERDUE_US = 1_000, 3_600_000_000  # of a router that never had a reward


class StateReason(Struct, frozen=True):
    """Why a router is not ok: in a word or two, and in a sentence with the numbers."""

    kind: ReasonKind
    level: StateLevel
    name: str
    sentence: str


class RouterState(Struct, frozen=True):
    """The worst of a router's limits, members, scoring and rewards in the last minutes.

    name:     of the worst reason; of a router that is ok, the worst verdict on its limits
    sentence: likewise; empty without limits
    reasons:  all that is not ok, the worst first
    """

    level: StateLevel = "ok"
    name: str = "no limits"
    sentence: str = ""
    reasons: tuple[StateReason, ...] = ()

    def rate_kind(self, kind: ReasonKind) -> int:
        """Return 0 if this part of the router is ok, 1 for attention and 2 for critical."""
        return max((LEVELS.index(x.level) for x in self.reasons if x.kind == kind), default=0)


class PanelHealth(Struct, frozen=True, kw_only=True):
    """What a gateway has seen of its panels in the last minutes.

    unanswered: panels of which no member answered, through no fault of the request
    unscored:   panels that the scorer failed to score
    models:     how many members can be asked
    down:       those of them that are paused after failures
    is_shared:  other servers may have seen other panels
    """

    panels: int
    unanswered: int
    unscored: int
    models: int
    down: tuple[str, ...]
    is_shared: bool = False


class RouterHealth(Struct, frozen=True):
    """All that the state of a router is judged by.

    limits:     the verdicts on its limits; each sentence begins with the name of its limit
    unrewarded: decisions since the last reward, if they should have one by now; else 0
    panels:     None without a gateway
    """

    limits: tuple[LimitVerdict, ...]
    unrewarded: int = 0
    panels: PanelHealth | None = None


def judge_state(health: RouterHealth) -> RouterState:
    """Return the state of a router.

    >>> judge_state(RouterHealth((LimitVerdict("on track", "usd on track: 1 of at most 2"),)))
    RouterState(level='ok', name='on track', sentence='usd on track: 1 of at most 2', reasons=())
    >>> judge_state(RouterHealth((), unrewarded=200)).sentence
    'no rewards for the last 200 decisions'
    """
    reasons = [*judge_limits(health.limits), *judge_panels(health.panels)]
    if health.unrewarded:
        sentence = f"no rewards for the last {health.unrewarded:,} decisions"
        reasons.append(StateReason("rewards", "attention", "no rewards", sentence))
    if reasons:
        reasons.sort(key=lambda reason: -LEVELS.index(reason.level))
        worst = reasons[0]
        return RouterState(worst.level, worst.name, worst.sentence, tuple(reasons))
    if not health.limits:
        return RouterState()
    limit = min(health.limits, key=rank_verdict)
    return RouterState("ok", limit.name, limit.sentence)


def rank_verdict(limit: LimitVerdict) -> int:
    """Return the place of a verdict, 0 for the worst."""
    return VERDICTS.index(limit.name)


def judge_limits(limits: tuple[LimitVerdict, ...]) -> Iterator[StateReason]:
    """Yield a reason for each limit that is not ok, the worst first."""
    for limit in sorted(limits, key=rank_verdict):
        level = VERDICT_LEVELS.get(limit.name)
        if level is not None:
            yield StateReason("limits", level, limit.name, limit.sentence)


def judge_panels(health: PanelHealth | None) -> Iterator[StateReason]:
    """Yield what is wrong with the members and the scoring of a gateway that was asked lately."""
    if health is None or not health.panels:
        return
    note = ", as this server has seen" * health.is_shared
    if health.down:
        level: StateLevel = "attention"
        if len(health.down) >= CRITICAL_SHARE * health.models:
            level = "critical"
        names = ", ".join(health.down[:MAX_NAMED_MEMBERS])
        names += ", ..." * (len(health.down) > MAX_NAMED_MEMBERS)
        sentence = f"{len(health.down)} of {health.models} models down: {names}{note}"
        yield StateReason("members", level, "models down", sentence)
    parts: tuple[tuple[ReasonKind, str, int], ...] = (
        ("members", "not answered", health.unanswered),
        ("scoring", "not scored", health.unscored),
    )
    for kind, name, count in parts:
        if count >= MIN_BAD_PANELS and count > ATTENTION_SHARE * health.panels:
            level = "critical" if count >= CRITICAL_SHARE * health.panels else "attention"
            sentence = f"{name}: {count:,} of the last {health.panels:,} panels{note}"
            yield StateReason(kind, level, name, sentence)


class RecentCounts:
    """Counts by word over the last five minutes, in buckets of ten seconds."""

    def __init__(self) -> None:
        self.buckets: deque[tuple[int, Counter[str]]] = deque(maxlen=RECENT_BUCKETS)

    def add(self, now_s: float, *words: str) -> None:
        """Count each of the words once."""
        number = int(now_s // BUCKET_S)
        if not self.buckets or self.buckets[-1][0] != number:
            self.buckets.append((number, Counter()))
        self.buckets[-1][1].update(words)

    def sum(self, now_s: float) -> Counter[str]:
        """Return the counts of the last minutes."""
        first = int(now_s // BUCKET_S) - RECENT_BUCKETS
        return sum((counts for number, counts in self.buckets if number > first), Counter())


class RewardArrivals:
    """How many decisions were made since the last reward, and whether that is unusual.

    decisions:   since the last reward
    first, last: when the first and the last of these were made, in microseconds
    gap, delay:  the longest recent number of decisions between two rewards, and the longest recent
                 time in microseconds between a decision and its reward; both fade
    """

    def __init__(self) -> None:
        self.decisions = 0
        self.first = 0
        self.last = 0
        self.gap = 0.0
        self.delay: float | None = None

    def add_decision(self, at: int) -> None:
        """Count a decision."""
        if not self.decisions:
            self.first = at
        self.decisions += 1
        self.last = at

    def cancel_decision(self) -> None:
        """Leave out a decision that was never used."""
        self.decisions = max(0, self.decisions - 1)

    def add_reward(self, at: int, made: int) -> None:
        """Note a reward. `made` is when its decision was made, or 0 if that is not known."""
        fade = FADE if self.decisions else 1.0  # rewards that come together are one arrival
        self.gap = max(fade * self.gap, self.decisions)
        if made:
            self.delay = max(fade * (self.delay or 0.0), at - made)
        self.decisions = 0

    def count_overdue(self, now: int, decisions: int, rewards: int) -> int:
        """Return the decisions since the last reward if one of them should have got one by now.

        Returns 0 as long as that is usual, or if there was no decision in the last minutes.

        decisions, rewards: of the router, since its first decision
        """
        if not self.decisions or now - self.last > RECENT_US:
            return 0
        least: float = FIRST_OVERDUE
        wait: float = FIRST_OVERDUE_US
        if rewards and self.delay is not None:
            least = max(MIN_OVERDUE, PATIENCE * self.gap, MEAN_GAPS * decisions / rewards)
            wait = PATIENCE * self.delay
        late = self.decisions >= least and now - self.first >= max(MIN_OVERDUE_US, wait)
        return self.decisions if late else 0
