"""Rules for the reports about a decision: receipts, aggregation, corrections of costs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from bylot.errors import DecisionStateError, RewardConflict, RewardError
from bylot.policies.validation import RunConfig, is_reward_in_range
from bylot.router.changes import RewardReceived
from bylot.router.decision import ReceiptName
from bylot.router.feedback import RewardReport
from bylot.router.open_decisions import OpenDecision

MAX_REWARDS_PER_DECISION = 100

RewardAggregation = Literal["earliest", "last", "sum"]


class RewardTerms(NamedTuple):
    """Which rewards count, and when; as in `RouterConfig`."""

    memory: int = 100_000
    wait: float | None = None
    default: float | None = None
    aggregate: RewardAggregation = "earliest"


def check_reward_count(one: OpenDecision, id: str) -> None:
    """Refuse a reward of a decision that has too many."""
    if len(one.rewards) >= MAX_REWARDS_PER_DECISION:
        raise DecisionStateError(
            f"decision {id} has {len(one.rewards)} rewards, and takes at most "
            f"{MAX_REWARDS_PER_DECISION}",
            remedy="combine rewards before you report them; nothing was changed",
        )


def check_callers_key(decision: OpenDecision, key: str | None, id: str) -> None:
    """Refuse a caller's report under a key of the decision's holder."""
    if decision.is_reserved(key):
        raise RewardError(
            "key",
            got=key,
            expected=f"another one for decision {id}: reports of the {decision.holder} have it",
        )


def check_same_reward(old: RewardReceived, report: RewardReport, id: str) -> None:
    """Refuse another report under the key of an old one."""
    which = "" if old.key is None else f" under key {old.key!r}"
    for what, was, now in (
        ("reward", old.value, report.value),
        ("members", old.members, report.members),
        ("winner", old.winner, report.winner),
        ("spend", old.spend, report.spend),
        ("spend by member", old.member_spend, report.member_spend),
    ):
        if was != now:
            raise RewardConflict(f"decision {id} already has {what} {was}{which}, got {now}")


def choose_receipt(
    one: OpenDecision,
    report: RewardReport,
    is_open: bool,
    at: int,
    how: RewardAggregation,
    same_pool: bool,
    id: str,
) -> ReceiptName:
    """What to do with a report about a decision."""
    if is_open and one.is_deferred:
        raise DecisionStateError(f"decision {id} is deferred", remedy="activate it first")
    if report.value is None:
        return "settled"
    if not is_open:
        return "noted" if one.has_reward else "late"
    if not same_pool:
        return "noted"
    if 0 <= one.due < at:
        return "late"
    if how == "earliest" or one.due < 0:
        return "noted" if one.pending else "learned"
    return "pending"


def check_reward_sum(one: OpenDecision, report: RewardReport, run: RunConfig, id: str) -> None:
    """Sums of rewards, and of the scores of a member, must be in the range of rewards."""
    pending, sums = one.pending, dict[str, tuple[float, float]]()
    if report.value is not None and not report.from_members:
        sums["rewards"] = report.value, sum(list_values(pending))
    totals = combine_scores(pending, "sum")
    for name, score in (report.members or {}).items():
        sums[f"scores of {name!r} for"] = score, totals.get(name, 0.0)
    for what, (value, before) in sums.items():
        total = before + value
        if not is_reward_in_range(total, run.low, run.high):
            of = "of decision" if what == "rewards" else "decision"
            raise RewardError(
                f"with {value} the {what} {of} {id} would sum to {total}",
                expected=f"at most a number in [{run.low}, {run.high}]",
                remedy="nothing was changed",
            )


def list_values(reports: Iterable[RewardReceived]) -> list[float]:
    """The rewards that were reported as such."""
    known = ((one.value, one.from_members) for one in reports)
    return [value for value, from_members in known if value is not None and not from_members]


def combine_scores(reports: Iterable[RewardReceived], how: RewardAggregation) -> dict[str, float]:
    """The last score, or the sum of scores, of each member that has one."""
    scores: dict[str, float] = {}
    for one in reports:
        for name, score in (one.members or {}).items():
            scores[name] = score + (scores.get(name, 0.0) if how == "sum" else 0.0)
    return scores


def aggregate_rewards(
    reports: Sequence[RewardReceived], how: RewardAggregation, run: RunConfig
) -> RewardReport:
    """What counts of several reports. Rewards, and the scores of each member, are aggregated by
    themselves; a reward that was not reported is the best of the aggregated scores; of several
    winners the last one counts. The configuration may have changed since the reports came, so sums
    are clipped to the range.

    >>> unit = RunConfig(seed=0, horizon=None, low=0.0, high=1.0)
    >>> first = RewardReceived(0.25, "pending", members={"ann": 0.25}, from_members=True)
    >>> then = RewardReceived(0.0, "pending", members={"bob": 0.0}, from_members=True)
    >>> report = aggregate_rewards([first, then], "last", unit)
    >>> report.value, report.members
    (0.25, {'ann': 0.25, 'bob': 0.0})
    """
    if how == "earliest":
        return RewardReport(reports[0].value, reports[0].members, reports[0].winner)

    def clip(value: float) -> float:
        return min(max(value, run.low), run.high) if how == "sum" else value

    scores = {name: clip(score) for name, score in combine_scores(reports, how).items()}
    winner = next((one.winner for one in reversed(reports) if one.winner is not None), None)
    values = list_values(reports)
    best = max(scores.values(), default=0.0)
    value = clip(sum(values) if how == "sum" else values[-1]) if values else best
    return RewardReport(value, scores or None, winner)


def collect_costs(rewards: Iterable[RewardReceived]) -> dict[str, float]:
    """Return the costs that were reported, the last report of each."""
    known: dict[str, float] = {}
    for reward in rewards:
        known.update(reward.spend or {})
    return known


def compute_cost_corrections(
    spend: Mapping[str, float], stated: Mapping[str, float], rewards: Iterable[RewardReceived]
) -> dict[str, float]:
    """The difference to what is booked: the spend of the last reward, or else the stated cost.

    >>> compute_cost_corrections({"usd": 5.0}, {"usd": 2.0, "ms": 9.0}, [])
    {'usd': 3.0}
    """
    booked = {**stated, **collect_costs(rewards)}
    return {name: cost - booked.get(name, 0.0) for name, cost in spend.items()}
