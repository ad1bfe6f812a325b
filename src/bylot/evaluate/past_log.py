"""Past logs: the rounds of a decision log that a new router can learn from."""

from collections import Counter

from msgspec import Struct, structs

from bylot.evaluate.entries import LogEntry
from bylot.evaluate.log import DecisionLog
from bylot.policies.validation import FeedbackKind, check_run_config
from bylot.problem import Problem
from bylot.router.feedback import check_report
from bylot.router.past_rounds import PastRound

SPEND_ROUNDING = 1e-9  # relative difference of spend from the declared cost that is rounding


class PastLog(Struct, frozen=True):
    """Rounds to learn from, and how many were left out for each reason."""

    rounds: list[PastRound]
    left_out: dict[str, int]

    def __str__(self) -> str:
        total = sum(self.left_out.values())
        reasons = "".join(f"\n  {count:,} {why}" for why, count in self.left_out.items())
        return f"{len(self.rounds):,} rounds to learn from, {total:,} left out{reasons}"


def select_rounds(
    log: DecisionLog,
    rewards: tuple[float, float] = (0.0, 1.0),
    feedback: FeedbackKind = "panel",
) -> PastLog:
    """Select what a new router can learn from a log, for `Router.learn_from`.

    A log says what a panel has cost, but not whether that was reported: a cost that is as declared
    in every round teaches nothing.

    Parameters
    ----------
    log
        The log, of the experts of the router or of others: ``read_log(path, problem, gone=None)``.
    rewards, feedback
        As of the router. Scores and winners that it does not take are dropped.

    Returns
    -------
    PastLog
        Its `rounds`, and how many were left out for each reason: without a reward, with experts
        that the router does not have, or with too many.

    Raises
    ------
    RewardError
        If a reward or a score is outside the range.

    Examples
    --------
    >>> from bylot.evaluate import LogEntry, log_from_entries
    >>> pool = Problem(["ann", "bob", "eve"], {"usd": [1, 2, 4]}, draws=2)
    >>> entries = [
    ...     LogEntry("d0", 0, ("ann", "bob"), reward=0.4),
    ...     LogEntry("d1", 1, ("ann", "eve"), reward=None),
    ... ]
    >>> print(select_rounds(log_from_entries(pool, entries)))
    1 rounds to learn from, 1 left out
      1 without a reward
    """
    problem = log.problem
    run = check_run_config(problem, 0, None, rewards, feedback)
    rounds: list[PastRound] = []
    left_out: Counter[str] = Counter()
    for entry, place in zip(log.entries, log.places, strict=True):
        if reason := describe_unused(entry, problem):
            left_out[reason] += 1
            continue
        members = entry.members if feedback == "members" else None
        winner = entry.winner if feedback == "winner" else None
        report = check_report(problem, run, f"{entry.id} ({place})", entry.reward, members, winner)
        assert report.value is not None
        seen = (entry.context, report.members, winner, dict(entry.spend))
        rounds.append(PastRound(entry.subset, report.value, *seen))
    billed = find_billed_costs(rounds, problem)
    for n, round in enumerate(rounds):
        spend = {name: cost for name, cost in round.spend.items() if name in billed}
        rounds[n] = structs.replace(round, spend=spend)
    return PastLog(rounds, dict(left_out))


def describe_unused(entry: LogEntry, problem: Problem) -> str | None:
    """Return why nothing can be learned from an entry, or None."""
    if entry.reward is None:
        return "without a reward"
    if not set(problem.experts).issuperset(entry.subset):
        return "with experts that this router does not have"
    if len(entry.subset) > problem.draws:
        return f"with more than {problem.draws} experts"
    return None


def find_billed_costs(rounds: list[PastRound], problem: Problem) -> set[str]:
    """Return the costs that differ from the declared ones in some round."""
    derived = {limit.name for limit in problem.limits if limit.is_derived}
    billed: set[str] = set()
    for round in rounds:
        members = [problem.experts.index(name) for name in round.panel]
        for name in round.spend.keys() & problem.costs.keys() - derived - billed:
            declared = problem.costs[name][members].sum()
            if abs(round.spend[name] - declared) > SPEND_ROUNDING * max(declared, 1.0):
                billed.add(name)
    return billed
