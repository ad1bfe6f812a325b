"""One play of a what-if run, and what is kept of it."""

import warnings
from typing import NamedTuple

import numpy as np

from bylot.errors import OutOfReachWarning, PolicyError, SurrogateWarning
from bylot.experiments.outcome import by_period, rolling, sampled
from bylot.kernels.compile import Floats, Ints
from bylot.metrics import outside
from bylot.problem import Problem
from bylot.simulation import Trace, running_mean, simulate
from bylot.text import patience, say
from bylot.whatif.setup import Play, Setup

WARM = 20  # rounds, which is enough to compile all that a longer play needs


class Played(NamedTuple):
    """What a policy did under a seed.

    reward:   mean over all rounds; late: over the last tenth
    spend:    (d,) mean cost under each limit, per request: over whole periods, if there was one
    outside:  how far that is outside its worst limit, in units of the largest cost; 0 if all hold
    periods:  whole periods, and how many of them ended outside a limit
    by_period: (periods, d), mean cost in each
    asked:    (K,) the share of requests in whose panel each expert was
    t, reward_curve, spend_curve: rolling mean of the reward and running mean of the costs (n, d)
    """

    reward: float
    late: float
    spend: Floats
    outside: float
    periods: int
    bad_periods: int
    by_period: Floats
    replaced: int
    asked: Floats
    t: Ints
    reward_curve: Floats
    spend_curve: Floats

    @property
    def kept(self) -> bool:
        """Were all limits kept on average over the whole periods?"""
        return self.periods > 0 and self.outside <= 0.0

    @property
    def promised(self) -> bool:
        """Were they kept whenever they were due, and due at all?"""
        return self.periods > 0 and self.bad_periods == 0


def play(setup: Setup, job: Play) -> Played | str:
    """A play, or why its policy would not play."""
    problem = setup.at(job.level)
    assert problem is not None, "levels that cannot be kept are not played"
    try:
        return summed_up(setup, played(setup, problem, job.policy, setup.rounds, job.seed))
    except PolicyError as error:
        return setup.file.worded(str(error), problem)


def played(setup: Setup, problem: Problem, policy: str, rounds: int, seed: int) -> Trace:
    """As many rounds as are wanted, with the end that all plays are told of."""
    return simulate(
        problem,
        setup.met[seed],
        policy,
        rounds=rounds,
        seed=seed,
        horizon=setup.horizon,
        keep_law=False,
    )


def summed_up(setup: Setup, trace: Trace) -> Played:
    """What is kept of a trace; rewards in the range of the problem file."""
    problem = trace.problem
    periods = by_period(problem, trace.spend, setup.period)
    t, tenth = sampled(setup.rounds, "crowd"), max(1, setup.rounds // 10)
    shape = setup.due // setup.period, setup.period, len(problem.limits)
    spend = trace.spend[: setup.due or None].mean(axis=0)
    return Played(
        reward=setup.reward(float(trace.rewards.mean())),
        late=setup.reward(float(trace.rewards[-tenth:].mean())),
        spend=spend,
        outside=outside(problem, spend),
        periods=periods["periods"],
        bad_periods=periods["bad_periods"],
        by_period=trace.spend[: setup.due].reshape(shape).mean(axis=1),
        replaced=int(trace.record.replaced.sum()),
        asked=asked(trace.draws, problem.size),
        t=t,
        reward_curve=setup.reward(rolling(trace.rewards, setup.window)[t - 1]),
        spend_curve=running_mean(trace.spend)[t - 1],
    )


def asked(draws: Ints, size: int) -> Floats:
    """The share of panels in which each expert is, however often it was drawn for one.

    >>> asked(np.array([[0, 1], [1, 1]]), size=3)
    array([0.5, 1. , 0. ])
    """
    panels = np.sort(draws, axis=1)
    new = np.ones(panels.shape, np.bool_)
    new[:, 1:] = panels[:, 1:] != panels[:, :-1]
    return np.bincount(panels[new], minlength=size) / len(draws)


class Tried(NamedTuple):
    """What policies said before they played: why some would not, what others warned of."""

    refused: dict[str, str]
    warned: dict[str, str]


def tried(setup: Setup) -> Tried:
    """Let every policy play a few rounds: compiles it, and hears what it has to say."""
    said, count = Tried({}, {}), len(setup.policies)
    for n, policy in enumerate(setup.policies, 1):
        say(f"... {policy} is made ready, {n} of {count}")
        wait = patience("    it is compiled, which takes half a minute or more, once per machine")
        with wait, warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                played(setup, setup.problem, policy, min(WARM, setup.rounds), setup.seeds[0])
            except PolicyError as error:
                said.refused[policy] = setup.file.worded(str(error))
        mine = [one for one in heard if issubclass(one.category, OURS)]
        if mine:
            said.warned[policy] = setup.file.worded(str(mine[0].message))
    return said


OURS = (OutOfReachWarning, SurrogateWarning)
"""What a policy may warn of when it is bound to a problem."""
