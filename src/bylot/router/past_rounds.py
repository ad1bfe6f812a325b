"""Past rounds: what a new router learns from a log before its first decision.

A round is a panel that somebody has chosen, and what was reported about it. Beliefs and mean costs
are learned; nothing is booked, and nothing is counted as a decision or a reward of this router.
Reading logs is left to `evaluate.log`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from msgspec import Struct, structs

from bylot.errors import DecisionError, DecisionStateError, PolicyError
from bylot.limits import entries, settlement
from bylot.limits.request import Ticket
from bylot.numerics.jit import Floats, Ints
from bylot.policies.base import Policy
from bylot.policies.validation import RunConfig
from bylot.problem import Problem
from bylot.problem.validation import suggest_known_name
from bylot.router import feedback
from bylot.router.core import ALL_AVAILABLE, RouterCore
from bylot.router.feedback import RewardReport

SPEND_ROUNDING = 1e-9  # relative difference of spend from the declared cost that is rounding
NO_PROBABILITIES: Floats = np.empty(0)


class PastRound(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A panel that was asked, and what was reported about it.

    panel: the different experts
    spend: actual costs of the panel by name; others: as declared
    """

    panel: tuple[str, ...]
    reward: float
    context: str | None = None
    members: dict[str, float] | None = None
    winner: str | None = None
    spend: dict[str, float] = {}


class LoggedRound(Protocol):
    """What an entry of a decision log has of a round."""

    @property
    def id(self) -> str: ...
    @property
    def subset(self) -> tuple[str, ...]: ...
    @property
    def reward(self) -> float | None: ...
    @property
    def context(self) -> str | None: ...
    @property
    def members(self) -> Mapping[str, float] | None: ...
    @property
    def winner(self) -> str | None: ...
    @property
    def spend(self) -> Mapping[str, float]: ...


class LearnedLog(Struct, frozen=True):
    """How many rounds of a log were learned, and how many were left out for each reason."""

    learned: int
    left_out: dict[str, int]

    def __str__(self) -> str:
        total = sum(self.left_out.values())
        reasons = "".join(f"\n  {count:,} {why}" for why, count in self.left_out.items())
        return f"learned {self.learned:,} rounds, left out {total:,}{reasons}"


def check_can_learn(policy: Policy) -> None:
    """Refuse a policy that learns from its own draws only."""
    if not policy.learns_from_logs:
        raise PolicyError(
            f"{policy.name} cannot learn from a log: it needs the probabilities with which it has "
            "drawn a panel itself",
            remedy="use 'noisy-or', which learns from panels that others chose, or start without "
            "a log",
        )


def select_rounds(
    log: Iterable[LoggedRound], problem: Problem, run: RunConfig
) -> tuple[list[PastRound], LearnedLog]:
    """Return the rounds of a log that a router can learn from, and how many they are.

    A log says what a panel has cost, but not whether that was reported: a cost that is as declared
    in every round teaches nothing. Scores and winners that the router does not take are dropped.
    """
    found: list[PastRound] = []
    left_out: Counter[str] = Counter()
    for entry in log:
        if reason := describe_unused(entry, problem):
            left_out[reason] += 1
            continue
        members = entry.members if run.feedback == "members" else None
        winner = entry.winner if run.feedback == "winner" else None
        which = f"{entry.id} of the log"
        report = feedback.check_report(problem, run, which, entry.reward, members, winner)
        assert report.value is not None
        spend = {**entry.spend}
        seen = (entry.context, report.members, report.winner, spend)
        found.append(PastRound(entry.subset, report.value, *seen))
    billed = find_billed_costs(found, problem)
    rounds = [
        structs.replace(
            round, spend={name: round.spend[name] for name in round.spend if name in billed}
        )
        for round in found
    ]
    return rounds, LearnedLog(len(rounds), dict(left_out))


def describe_unused(entry: LoggedRound, problem: Problem) -> str | None:
    """Return why nothing can be learned from an entry, or None."""
    if entry.reward is None:
        return "without a reward"
    if not set(problem.experts).issuperset(entry.subset):
        return "with experts that this router does not have"
    if len(entry.subset) > problem.draws:
        return f"with more than {problem.draws} experts"
    return None


def find_billed_costs(rounds: Iterable[PastRound], problem: Problem) -> set[str]:
    """Return the costs that differ from the declared ones in some round."""
    derived = {limit.name for limit in problem.limits if limit.is_derived}
    index = {name: i for i, name in enumerate(problem.experts)}
    billed: set[str] = set()
    for round in rounds:
        members = [index[name] for name in round.panel]
        for name in round.spend.keys() & problem.costs.keys() - derived - billed:
            declared = float(problem.costs[name][members].sum())
            if abs(round.spend[name] - declared) > SPEND_ROUNDING * max(declared, 1.0):
                billed.add(name)
    return billed


class CheckedRound(NamedTuple):
    """A round that fits the router: its draws, and the report about them."""

    round: PastRound
    draws: Ints
    report: RewardReport


def learn_rounds(core: RouterCore, rounds: Sequence[PastRound]) -> None:
    """Learn from rounds in the order of a log; an error has changed nothing."""
    check_can_learn(core.policy)
    if core.t > 0:
        raise DecisionStateError(
            f"the router has made {core.t:,} decisions: it learns from a log before the first one",
            remedy="create another router",
        )
    index = {name: i for i, name in enumerate(core.problem.experts)}
    checked = [check_round(core, index, n, round) for n, round in enumerate(rounds)]
    core.check_new_contexts(round.context for round in rounds)
    before = int(core.state.visits.sum())
    for t, (round, draws, report) in enumerate(checked, before):
        learn_round(core, t, round, draws, report)


def check_round(
    core: RouterCore, index: Mapping[str, int], n: int, round: PastRound
) -> CheckedRound:
    """Return a round with its draws and its report, or raise an error."""
    id = f"{n} of the log"
    most = core.problem.draws
    if not 0 < len(round.panel) <= most or len(set(round.panel)) < len(round.panel):
        raise DecisionError(
            f"panel of round {id}", got=round.panel, expected=f"1 to {most} different experts"
        )
    for name in round.panel:
        if name not in index:
            remedy = suggest_known_name(name, core.problem.experts, "experts")
            raise DecisionError(f"panel of round {id}: no expert {name!r}", remedy=remedy)
    given = (round.reward, round.members, round.winner, round.spend or None)
    report = feedback.check_report(core.problem, core.run, id, *given)
    feedback.check_panel_names(report, round.panel, id)
    feedback.check_spend_range(report.spend, core.problem)
    members = np.array([index[name] for name in round.panel], np.int64)
    return CheckedRound(round, np.resize(members, most), report)


def learn_round(
    core: RouterCore, t: int, round: PastRound, draws: Ints, report: RewardReport
) -> None:
    """Learn from round t, as from the report about a panel that somebody else has drawn."""
    problem = core.problem
    row = core.find_context(round.context)
    if report.spend and core.limits is not None:
        members = draws[: len(round.panel)]
        costs = {name: float(problem.costs[name][members].sum()) for name in report.spend}
        more = {name: spend - costs[name] for name, spend in report.spend.items()}
        entries.learn_bill(core.pointer, *settlement.scale_spend(problem, draws, more, {}))
    ticket = Ticket(
        t=t,
        context=row,
        draws=draws,
        draw_probabilities=NO_PROBABILITIES,
        inclusion=NO_PROBABILITIES,
        available=ALL_AVAILABLE,
        share=1.0,
        feasible=True,
        propensity=np.nan,
        weight=1.0,
        replaced=False,
    )
    names = [problem.experts[i] for i in draws.tolist()]
    more_feedback = feedback.arrange_feedback(report.members, report.winner, names, ticket)
    assert report.value is not None
    core.learn_past(ticket, report.value, *more_feedback)
