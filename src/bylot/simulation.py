"""Playing a policy in an environment: one compiled loop over the very steps the router runs."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bylot.environments import Environment, Rounds
from bylot.errors import ValuesError
from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, Ints, compiled
from bylot.kernels.draw import add_cost
from bylot.kernels.summax import sum_max
from bylot.policies import Auto, Policy, settled
from bylot.policies.contract import decide, law, learn, odds_of
from bylot.policies.terms import Terms, agreed, at_least_one, within
from bylot.problem import Problem

CHUNK = 4096  # rounds of values held in memory at a time


class Record(NamedTuple):
    """What is written down in every round; `law` has no lines if it is not to be kept."""

    draws: Ints  # (T, M)
    odds: Floats  # (T, M); NaN where the policy cannot tell
    rewards: Floats  # (T,)
    spend: Floats  # (T, d): cost under each limit
    feasible: Bools  # (T,)
    contexts: Ints  # (T,)
    chance: Floats  # (T,) of the whole panel; 0 where the policy does not tell
    replaced: Bools  # (T,) by the guard, as the draw would have endangered a limit
    law: Floats  # (T or 0, K)


@dataclass(frozen=True, repr=False, eq=False)
class Trace:
    """The record of one play, arrays over t, and what it was a play of."""

    problem: Problem
    policy: Policy
    seed: int
    horizon: int | None
    range: tuple[float, float]  # of rewards, mapped to [0, 1] for learning
    record: Record

    def __repr__(self) -> str:
        return f"<Trace of {len(self.rewards)} rounds, seed {self.seed}, {self.policy}>"

    @property
    def rewards(self) -> Floats:
        """(T,) rewards as the environment gave them."""
        return self.record.rewards

    @property
    def draws(self) -> Ints:
        """(T, M) expert numbers, with multiplicity."""
        return self.record.draws

    @property
    def spend(self) -> Floats:
        """(T, d) realised cost of each round under each limit."""
        return self.record.spend

    def mean_spend(self) -> Floats:
        """(T, d) running average cost under each limit."""
        return running_mean(self.record.spend)


def running_mean(rows: Floats) -> Floats:
    """The mean of the first t rows, for every t.

    >>> running_mean(np.array([1.0, 3.0, 2.0]))
    array([1., 2., 2.])
    """
    count = np.arange(1, len(rows) + 1, dtype=np.float64)
    return np.cumsum(rows, axis=0) / count.reshape(-1, *[1] * (rows.ndim - 1))


@compiled
def play(
    rule: Any,
    state: Any,
    rows: Floats,
    values: Floats,
    contexts: Ints,
    seed: int,
    start: int,
    low: float,
    span: float,
    record: Record,
) -> None:
    """Rounds start, start + 1, ... on the given values; the policy learns (r - low) / span."""
    up = np.empty(0, np.bool_)  # all of them
    # Fields are taken out of the loop: compiled code counts a reference at every access.
    draws, odds, rewards, spend, feasible, visited, chances, replaced, laws = record
    for n in range(values.shape[0]):
        t = start + n
        context = contexts[n]
        ticket = decide(rule, state, context, Chance(seed, t), up)
        reward = sum_max(values[n], ticket.draws)
        learn(rule, state, ticket, (reward - low) / span)
        for j in range(ticket.draws.size):
            draws[t, j] = ticket.draws[j]
        for j in range(ticket.draws.size):
            odds[t, j] = odds_of(ticket, j)
        rewards[t] = reward
        add_cost(spend[t], rows, ticket.draws)
        feasible[t] = ticket.feasible
        visited[t] = context
        chances[t] = ticket.chance
        replaced[t] = ticket.replaced
        if laws.shape[0] > 0:
            q = law(rule, state, context, up)
            for i in range(q.size):
                laws[t, i] = q[i]


def simulate(
    problem: Problem,
    environment: Environment,
    policy: str | Policy | Auto = "auto",
    *,
    rounds: int,
    seed: int = 0,
    horizon: int | None = None,
    rewards: tuple[float, float] = (0.0, 1.0),
    keep_law: bool = True,
) -> Trace:
    """Play a policy for some rounds, exactly as a `Router` with the same arguments would.

    horizon: the number of rounds the policy is told of, as Theorem 1 needs; None is a service
             that does not know its end.
    rewards: the range that is mapped to [0, 1] before the policy learns.
    keep_law: keep the (rounds x K) distributions played, which true regret needs.
    """
    terms = agreed(problem, seed, horizon, rewards)
    at_least_one("rounds", rounds)
    fitting(environment, problem)
    settings = settled(policy, problem)
    rule = settings.bind(problem, horizon)
    state = settings.start(rule, environment.contexts)
    record = blank(problem, rounds, keep_law)
    rows = np.array(problem.rows)  # writable: a read-only array would compile a second loop
    for start in range(0, rounds, CHUNK):
        stop = min(start + CHUNK, rounds)
        values, contexts = met(environment, start, stop, seed)
        span = terms.high - terms.low
        play(rule, state, rows, values, contexts, seed, start, terms.low, span, record)
        in_range(record.rewards[start:stop], terms)
    return Trace(problem, settings, seed, horizon, (terms.low, terms.high), record)


def fitting(environment: Environment, problem: Problem) -> None:
    """Refuse what is no environment, or one of another pool."""
    if not hasattr(environment, "rounds"):
        raise ValuesError(
            f"a {type(environment).__name__} is no environment; "
            "wrap values in bylot.environments.Given"
        )
    if environment.shape[1] != problem.size:
        raise ValuesError(
            f"the environment has {environment.shape[1]} experts and the problem {problem.size}; "
            "give values with one column for each expert"
        )


def met(environment: Environment, start: int, stop: int, seed: int) -> Rounds:
    """Rounds of an environment, of the shape it declared: compiled code will not look again."""
    values, contexts = environment.rounds(start, stop, seed)
    values = np.ascontiguousarray(values, dtype=np.float64)
    contexts = np.ascontiguousarray(contexts, dtype=np.int64)
    declared = (stop - start, *environment.shape)
    if values.shape != declared or contexts.shape != declared[:1]:
        raise ValuesError(
            f"rounds {start} to {stop}: values of shape {values.shape} and contexts of shape "
            f"{contexts.shape} came, and the environment had declared {declared}"
        )
    if contexts.min() < 0 or contexts.max() >= environment.contexts:
        raise ValuesError(
            f"rounds {start} to {stop}: contexts from {contexts.min()} to {contexts.max()} came, "
            f"and the environment had declared {environment.contexts}"
        )
    return Rounds(values, contexts)


def in_range(rewards: Floats, terms: Terms) -> None:
    """Refuse rewards that a router with these terms would refuse."""
    low, high = float(rewards.min()), float(rewards.max())  # NaN, if there is one
    if not (within(low, terms.low, terms.high) and within(high, terms.low, terms.high)):
        raise ValuesError(
            f"rewards from {low:.4g} to {high:.4g} came up, and the range is "
            f"[{terms.low:g}, {terms.high:g}]; scale the values, or declare rewards=(low, high)"
        )


def blank(problem: Problem, rounds: int, keep_law: bool) -> Record:
    """An empty record."""
    return Record(
        draws=np.empty((rounds, problem.draws), np.int64),
        odds=np.full((rounds, problem.draws), np.nan),
        rewards=np.empty(rounds),
        spend=np.zeros((rounds, len(problem.limits))),
        feasible=np.empty(rounds, np.bool_),
        contexts=np.empty(rounds, np.int64),
        chance=np.zeros(rounds),
        replaced=np.zeros(rounds, np.bool_),
        law=np.empty((rounds if keep_law else 0, problem.size)),
    )
