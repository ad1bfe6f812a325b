"""Past rounds: what a new router learns from a log before its first decision.

A round is a panel that somebody has chosen, and what was reported about it. Beliefs and mean costs
are learned; nothing is booked, and nothing is counted as a decision or a reward of this router.
`evaluate.past_log` makes rounds of a log.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from bylot.errors import BylotError, DecisionError, DecisionStateError, PolicyError
from bylot.limits.book import ALL_AVAILABLE, NO_FLOATS
from bylot.limits.request import Ticket
from bylot.numerics.jit import Ints
from bylot.policies.base import Policy
from bylot.problem.validation import suggest_known_name
from bylot.router import feedback
from bylot.router.core import RouterCore
from bylot.router.feedback import RewardReport


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


def check_can_learn(policy: Policy) -> None:
    """Refuse a policy that learns from its own draws only."""
    if not policy.learns_from_logs:
        raise PolicyError(
            f"{policy.name} cannot learn from a log: it needs the probabilities with which it has "
            "drawn a panel itself",
            remedy="use 'noisy-or', which learns from panels that others chose, or start without "
            "a log",
        )


def learn_rounds(core: RouterCore, rounds: Sequence[PastRound]) -> None:
    """Learn from rounds in the order of a log; an error has changed nothing."""
    check_can_learn(core.policy)
    if core.t > 0:
        raise DecisionStateError(
            f"the router has made {core.t:,} decisions: it learns from a log before the first one",
            remedy="create another router",
        )
    checked = [check_round(core, n, round) for n, round in enumerate(rounds)]
    core.check_new_contexts(round.context for round in rounds)
    before = int(core.state.visits.sum())
    for t, (round, (members, report)) in enumerate(zip(rounds, checked, strict=True), before):
        learn_round(core, t, core.find_context(round.context), members, report)
    core.skipped = core.state.visits[: len(core.contexts)].tolist()  # these were no visits


def can_learn_round(core: RouterCore, round: PastRound) -> bool:
    """Return whether a round fits the router, which may have been edited since it was learned."""
    try:
        check_round(core, 0, round)
    except BylotError:
        return False
    return True


def check_round(core: RouterCore, n: int, round: PastRound) -> tuple[Ints, RewardReport]:
    """Return the members of a panel and the report about it, or raise an error."""
    id = f"{n} of the log"
    most = core.problem.draws
    if not 0 < len(round.panel) <= most or len(set(round.panel)) < len(round.panel):
        raise DecisionError(
            f"panel of round {id}", got=round.panel, expected=f"1 to {most} different experts"
        )
    experts = core.problem.experts
    for name in round.panel:
        if name not in experts:
            remedy = suggest_known_name(name, experts, "experts")
            raise DecisionError(f"panel of round {id}: no expert {name!r}", remedy=remedy)
    given = (round.reward, round.members, round.winner, round.spend or None)
    report = feedback.check_report(core.problem, core.run, id, *given)
    feedback.check_panel_names(report, round.panel, id)
    feedback.check_spend_range(report.spend, core.problem)
    return np.array([experts.index(name) for name in round.panel], np.int64), report


def learn_round(core: RouterCore, t: int, row: int, members: Ints, report: RewardReport) -> None:
    """Learn from round t, as from the report about a panel that somebody else has drawn."""
    problem = core.problem
    draws = np.resize(members, problem.draws)
    if report.spend:
        costs = problem.costs
        more = {name: x - costs[name][members].sum() for name, x in report.spend.items()}
        core.book.learn_bill(draws, more)
    ticket = Ticket(
        t=t,
        context=row,
        draws=draws,
        draw_probabilities=NO_FLOATS,
        inclusion=NO_FLOATS,
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
