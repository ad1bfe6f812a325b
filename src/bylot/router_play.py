"""Playing a router in an environment: the same trace as the compiled loop, call by call."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from bylot.counted_requests import mark_counted
from bylot.environments import CallCosts, Environment
from bylot.environments.call_costs import draw_call_costs, report_calls
from bylot.numerics.philox import RngKey
from bylot.numerics.sum_max import sum_max
from bylot.policies import Policy
from bylot.policies.base import NO_WINNER
from bylot.policies.validation import FeedbackKind, check_at_least_one
from bylot.problem import Problem
from bylot.router.decision import Decision
from bylot.simulation import (
    CHUNK_ROUNDS,
    check_environment,
    fill_member_scores,
    find_winner,
    read_rounds,
)
from bylot.trace import Trace, make_play_record


class Playable(Protocol):
    """A router, in memory, in a store or behind a server."""

    @property
    def problem(self) -> Problem: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def seed(self) -> int: ...
    @property
    def horizon(self) -> int | None: ...
    @property
    def rewards(self) -> tuple[float, float]: ...
    @property
    def feedback(self) -> FeedbackKind: ...
    def decide(self, context: str | None = None) -> Decision: ...
    def reward(
        self,
        id: str,
        value: float,
        *,
        members: Mapping[str, float] | None = None,
        winner: str | None = None,
        spend: Mapping[str, Any] | None = None,
    ) -> Any: ...


def play(
    router: Playable,
    environment: Environment,
    rounds: int,
    *,
    start: int = 0,
    calls: CallCosts | None = None,
) -> Trace:
    """Drive a router through some rounds of an environment: decide, then report its feedback.

    A new router gives the same trace as `simulate` with its settings, bit for bit, if the contexts
    of the environment first occur in the order of their numbers: a router numbers contexts as they
    occur. Distributions are not kept.

    Parameters
    ----------
    router : Router or RemoteRouter
        The router to drive.
    environment : Environment
        The contexts and values of the rounds.
    rounds, start : int
        The number of rounds to play, and the first one, to continue an earlier play.
    calls : CallCosts, optional
        What calls really cost, and what is reported of that with the rewards.

    Returns
    -------
    Trace
        What was drawn, earned and spent in each round.

    Raises
    ------
    ValuesError
        If the environment does not fit the problem of the router.
    """
    problem = router.problem
    check_environment(environment, problem)
    check_at_least_one("rounds", rounds)
    kind, low = router.feedback, router.rewards[0]
    table = None if calls is None else calls.bind(problem)
    record = make_play_record(problem, rounds, keep_distributions=False, feedback=kind)
    place = {name: i for i, name in enumerate(problem.experts)}
    limits, stop = [limit.name for limit in problem.limits], start + rounds
    for first in range(start, stop, CHUNK_ROUNDS):
        chunk = read_rounds(environment, first, min(first + CHUNK_ROUNDS, stop), router.seed)
        for n, (values, context) in enumerate(zip(*chunk, strict=True), first - start):
            decision = router.decide(str(context) if environment.contexts > 1 else None)
            record.draws[n] = [place[name] for name in decision.draws]
            record.rewards[n], record.contexts[n] = sum_max(values, record.draws[n]), context
            more: dict[str, Any] = {}
            if kind == "members":
                fill_member_scores(record.scores[n], values, record.draws[n])
                more["members"] = dict(zip(decision.draws, record.scores[n].tolist(), strict=True))
            elif kind == "winner":
                won = find_winner(values, record.draws[n], low, RngKey(router.seed, start + n))
                record.winners[n] = won
                more["winner"] = problem.experts[won] if won != NO_WINNER else None
            record.spend[n] = [decision.spend[name] for name in limits]
            if table is not None:
                costs = draw_call_costs(table, record.draws[n], RngKey(router.seed, start + n))
                record.spend[n] = costs.sum(axis=1)
                more["spend"] = report_calls(table, problem, record.draws[n], costs)
            router.reward(decision.id, float(record.rewards[n]), **more)
            record.draw_probabilities[n] = decision.draw_probabilities or np.nan
            record.feasible[n], record.replaced[n] = decision.feasible, decision.replaced
            record.propensities[n] = np.nan if decision.propensity is None else decision.propensity
    given = router.policy, router.seed, router.horizon, router.rewards
    names = tuple(map(str, range(environment.contexts)))
    record.spend[~mark_counted(problem, record.contexts, names)] = 0.0
    return Trace(problem, *given, record, kind, names)
