"""One play of a what-if run, and what is kept of it."""

import warnings
from typing import NamedTuple

import numpy as np

from bylot._text import announce_if_slow, print_progress
from bylot.errors import OutOfReachWarning, PolicyError, SurrogateWarning
from bylot.metrics import measure_worst_excess
from bylot.numerics.jit import Floats, Ints
from bylot.problem import Problem
from bylot.simulation import Trace, running_mean, simulate
from bylot.whatif.plan import RunJob, WhatifPlan
from bylot_paper.outcome import count_bad_periods, rolling_mean, sample_rounds

WARMUP_ROUNDS = 20  # rounds, which is enough to compile all that a longer play needs


class RunResult(NamedTuple):
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


def run_cell(setup: WhatifPlan, job: RunJob) -> RunResult | str:
    """A play, or why its policy would not play."""
    problem = setup.at(job.level)
    assert problem is not None, "levels that cannot be kept are not played"
    try:
        return summarize_trace(
            setup, simulate_policy(setup, problem, job.policy, setup.rounds, job.seed)
        )
    except PolicyError as error:
        return setup.file.worded(str(error), problem)


def simulate_policy(
    setup: WhatifPlan, problem: Problem, policy: str, rounds: int, seed: int
) -> Trace:
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


def summarize_trace(setup: WhatifPlan, trace: Trace) -> RunResult:
    """What is kept of a trace; rewards in the range of the problem file."""
    problem = trace.problem
    periods = count_bad_periods(problem, trace.spend, setup.period)
    t, tenth = sample_rounds(setup.rounds, "crowd"), max(1, setup.rounds // 10)
    shape = setup.due // setup.period, setup.period, len(problem.limits)
    spend = trace.spend[: setup.due or None].mean(axis=0)
    return RunResult(
        reward=setup.reward(float(trace.rewards.mean())),
        late=setup.reward(float(trace.rewards[-tenth:].mean())),
        spend=spend,
        outside=measure_worst_excess(problem, spend),
        periods=periods["periods"],
        bad_periods=periods["bad_periods"],
        by_period=trace.spend[: setup.due].reshape(shape).mean(axis=1),
        replaced=int(trace.record.replaced.sum()),
        asked=request_shares(trace.draws, problem.size),
        t=t,
        reward_curve=setup.reward(rolling_mean(trace.rewards, setup.window)[t - 1]),
        spend_curve=running_mean(trace.spend)[t - 1],
    )


def request_shares(draws: Ints, size: int) -> Floats:
    """The share of panels in which each expert is, however often it was drawn for one.

    >>> request_shares(np.array([[0, 1], [1, 1]]), size=3)
    array([0.5, 1. , 0. ])
    """
    panels = np.sort(draws, axis=1)
    new = np.ones(panels.shape, np.bool_)
    new[:, 1:] = panels[:, 1:] != panels[:, :-1]
    return np.bincount(panels[new], minlength=size) / len(draws)


class TrialRuns(NamedTuple):
    """What policies said before they played: why some would not, what others warned of."""

    refused: dict[str, str]
    warned: dict[str, str]


def try_policies(setup: WhatifPlan) -> TrialRuns:
    """Let every policy play a few rounds: compiles it, and hears what it has to say."""
    said, count = TrialRuns({}, {}), len(setup.policies)
    for n, policy in enumerate(setup.policies, 1):
        print_progress(f"... {policy} is made ready, {n} of {count}")
        wait = announce_if_slow(
            "    it is compiled, which takes half a minute or more, once per machine"
        )
        with wait, warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                simulate_policy(
                    setup, setup.problem, policy, min(WARMUP_ROUNDS, setup.rounds), setup.seeds[0]
                )
            except PolicyError as error:
                said.refused[policy] = setup.file.worded(str(error))
        mine = [one for one in heard if issubclass(one.category, BINDING_WARNINGS)]
        if mine:
            said.warned[policy] = setup.file.worded(str(mine[0].message))
    return said


BINDING_WARNINGS = (OutOfReachWarning, SurrogateWarning)
"""What a policy may warn of when it is bound to a problem."""
