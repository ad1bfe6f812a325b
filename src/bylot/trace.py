"""The trace of a simulation: what was drawn, earned and spent in each round.

Playing is left to `simulation`, measures to `metrics`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot.counted_requests import average_counted, mark_counted
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.policies import Policy
from bylot.policies.validation import FeedbackKind
from bylot.problem import Problem


class PlayRecord(NamedTuple):
    """What is recorded in every round."""

    draws: Ints  # (T, M); -1 if the request was refused
    draw_probabilities: Floats  # (T, M) of i.i.d. draws; NaN if panels are drawn as sets
    rewards: Floats  # (T,)
    spend: Floats  # (T, d): cost under each limit
    feasible: Bools  # (T,) the distribution kept the limits
    contexts: Ints  # (T,)
    propensities: Floats  # (T,) of the panels; NaN if unknown, or not computed (omd)
    replaced: Bools  # (T,) by the guard, as the draw would have endangered a limit
    distributions: Floats  # (T, K); (0, K) if not kept
    scores: Floats  # (T, M) of the expert of each draw; (0, M) if they are not reported
    winners: Ints  # (T,) the expert that earned the reward, or -1; (0,) if not reported
    numbers: Ints  # (T,) of the decisions; refused: -1 - the next number; (0,) without times


def make_play_record(
    problem: Problem, rounds: int, keep_distributions: bool, feedback: FeedbackKind = "panel"
) -> PlayRecord:
    return PlayRecord(
        draws=np.empty((rounds, problem.draws), np.int64),
        draw_probabilities=np.full((rounds, problem.draws), np.nan),
        rewards=np.empty(rounds),
        spend=np.zeros((rounds, len(problem.limits))),
        feasible=np.empty(rounds, np.bool_),
        contexts=np.empty(rounds, np.int64),
        propensities=np.full(rounds, np.nan),
        replaced=np.zeros(rounds, np.bool_),
        distributions=np.empty((rounds if keep_distributions else 0, problem.size)),
        scores=np.empty((rounds if feedback == "members" else 0, problem.draws)),
        winners=np.empty(rounds if feedback == "winner" else 0, np.int64),
        numbers=np.zeros(0, np.int64),
    )


@dataclass(frozen=True, repr=False, eq=False)
class Trace:
    """The record of a simulation, as arrays over rounds, and its settings.

    Attributes
    ----------
    problem, policy, seed, horizon, feedback
        As they were given.
    range
        The range of rewards, which is mapped to [0, 1] for learning.
    record
        Arrays of all rounds.
    context_names
        Of contexts 0, 1, ..., for limits on some of them.
    """

    problem: Problem
    policy: Policy
    seed: int
    horizon: int | None
    range: tuple[float, float]
    record: PlayRecord
    feedback: FeedbackKind = "panel"
    context_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Trace of {len(self.rewards)} rounds, seed {self.seed}, {self.policy}>"

    @property
    def uses_feedback(self) -> bool:
        """Whether the policy learned from all of the feedback; if not, from the rewards alone."""
        return self.feedback in self.policy.feedback

    @property
    def rewards(self) -> Floats:
        """(T,) rewards as the environment gave them."""
        return self.record.rewards

    @property
    def draws(self) -> Ints:
        """(T, M) expert numbers, with multiplicity; -1 of a refused request."""
        return self.record.draws

    @property
    def spend(self) -> Floats:
        """(T, d) realised cost of each round under each limit; 0 if that does not count it."""
        return self.record.spend

    @property
    def counted(self) -> Bools:
        """(T, d) rounds that each limit counts: all, or those of its contexts."""
        return mark_counted(self.problem, self.record.contexts, self.context_names)

    @property
    def refused(self) -> Bools:
        """(T,) requests for which no budget of the calendar left a panel."""
        numbers = self.record.numbers
        return numbers < 0 if numbers.size else np.zeros(len(self.rewards), np.bool_)

    @property
    def scores(self) -> Floats:
        """(T, M) own score of the expert of each draw; (0, M) if they were not reported."""
        return self.record.scores

    def mean_spend(self) -> Floats:
        """Compute running averages of the costs.

        Returns
        -------
        ndarray, shape (T, d)
            The average cost of the first t rounds under each limit, of those that it counts, for
            every t; NaN before the first of these.
        """
        means = running_mean(self.record.spend)
        shares = running_mean(self.counted.astype(np.float64))
        return average_counted(means, shares, np.full(means.shape[1], np.nan))


def running_mean(rows: Floats, t: Ints | None = None) -> Floats:
    """The mean of the first t rows, for every t or for those given, which count from 1.

    >>> running_mean(np.array([1.0, 3.0, 2.0]))
    array([1., 2., 2.])
    >>> running_mean(np.array([1.0, 3.0, 2.0]), np.array([2]))
    array([2.])
    """
    sums = np.cumsum(rows, axis=0)
    count = np.arange(1, len(rows) + 1) if t is None else t
    sums = sums if t is None else sums[t - 1]
    return np.asarray(sums / count.reshape(-1, *[1] * (rows.ndim - 1)))
