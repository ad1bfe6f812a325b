"""The experiment harness: play a cell and measure it; `parallel` runs many of them.

A cell is one policy on one problem in one environment under one seed. What-if runs, the paper's
experiments and the comparison behind the default policy differ only in their cells and reports.
"""

from typing import Any, NamedTuple

import numpy as np

from bylot.counted_requests import average_counted
from bylot.environments import Environment
from bylot.errors import PolicyError
from bylot.metrics import measure_worst_excess
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.policies import Policy
from bylot.problem import Problem
from bylot.simulation import simulate
from bylot.trace import Trace, running_mean
from bylot.window_results import WindowResults, measure_counted_periods, measure_windows

CURVE_POINTS = 200


def play_cell(
    problem: Problem, environment: Environment, policy: str | Policy, **settings: Any
) -> Trace | PolicyError:
    """Simulate one cell with the settings of `simulate`; return the error of a refusing policy."""
    try:
        return simulate(problem, environment, policy, **settings)
    except PolicyError as error:
        return error


class PlaySummary(NamedTuple):
    """What is kept of a trace."""

    reward: float  # mean over all rounds
    late: float  # mean over the last tenth
    spend: Floats  # (d,) mean cost under each limit, over whole periods if there are any
    outside: float  # how far that is outside the worst limit, in units of the largest cost
    periods: int  # whole ones
    bad_periods: int  # those that ended outside a limit
    by_period: Floats  # (periods, d) mean cost in each
    replaced: int  # panels that the guard replaced
    asked: Floats  # (K,) share of the requests whose panel included each expert
    t: Ints  # (n,) the sampled rounds of the curves
    reward_curve: Floats  # (n,) rolling mean
    spend_curve: Floats  # (n, d) running mean
    spread: float = 0.0  # standard deviation of the reward of a request
    refused: int = 0  # requests for which a budget of the calendar left no panel
    windows: tuple[WindowResults, ...] = ()  # of each limit of the calendar
    counted: tuple[WindowResults, ...] = ()  # of other limits on some contexts, in periods of these

    @property
    def bad_windows(self) -> int:
        """The number of windows outside a limit of the calendar."""
        return sum(one.bad for one in self.windows)

    @property
    def all_periods(self) -> int:
        """The number of periods that are judged: of all requests, or of those that a limit counts.

        By the latter, limits are judged one by one.
        """
        every = self.periods if self.has_periods else 0
        return every + sum(one.windows for one in self.counted)

    @property
    def all_bad_periods(self) -> int:
        """The number of these outside a limit."""
        return self.bad_periods + sum(one.bad for one in self.counted)

    @property
    def has_periods(self) -> bool:
        """Is any limit judged in periods of all requests, or is there none at all?"""
        apart = len(self.windows) + len(self.counted)
        return self.spend.size > apart or not apart

    @property
    def is_judged(self) -> bool:
        """Has every limit been judged: in a period, or in a window of the calendar?"""
        windows = all(one.windows for one in self.windows)
        return windows and (self.periods > 0 or not self.has_periods)

    @property
    def kept(self) -> bool:
        """Were all limits kept on average over the whole periods, and in every window?"""
        return self.is_judged and self.outside <= 0.0 and self.bad_windows == 0

    @property
    def kept_in_all_periods(self) -> bool:
        """Were all limits kept at the end of every period, and in every window?"""
        return self.is_judged and self.all_bad_periods + self.bad_windows == 0


def summarize_play(
    trace: Trace,
    period: int,
    window: int,
    rewards: tuple[float, float] = (0.0, 1.0),
    times: Ints | None = None,
) -> PlaySummary:
    """Summarize a trace; its rewards, which lie in [0, 1], are mapped to the range `rewards`.

    Limits of the calendar are judged in their windows, by the times of the requests; the others at
    the end of periods, of which refused requests are no part: limits on some contexts in periods of
    the requests that they count, as a router keeps them.
    """
    problem = trace.problem
    rounds = len(trace.rewards)
    low = rewards[0]
    span = rewards[1] - rewards[0]
    t = sample_rounds(rounds)
    decided = trace.spend[~trace.refused]
    counted = trace.counted[~trace.refused]
    averaged = np.array([limit.per is None for limit in problem.limits], np.bool_)
    of_all = np.array([limit.averages_all for limit in problem.limits], np.bool_)
    has_periods = averaged.any() or not averaged.size
    by_period = average_periods(decided, period) if has_periods else decided[:0]
    played = len(by_period) * period or None
    spend = average_rows(decided[:played])
    curve = running_mean(trace.spend, t)
    in_counted = measure_counted_periods(trace, period)
    if not trace.counted.all():  # averages are of the requests that count; without any, the bound
        every = counted.astype(np.float64)
        among = trace.counted.astype(np.float64)
        shares = average_periods(every, period) if has_periods else every[:0]
        by_period = average_counted(by_period, shares, problem.bounds)
        spend = average_counted(spend, average_rows(every[:played]), problem.bounds)
        curve = average_counted(curve, running_mean(among, t), problem.bounds)
    for found in in_counted:
        if found.windows:
            spend[found.limit] = found.amounts[found.judged].mean()

    def measure_excess(mean: Floats, judged: Bools) -> float:
        return measure_worst_excess(problem, np.where(judged, mean, problem.bounds))

    return PlaySummary(
        reward=low + span * float(trace.rewards.mean()),
        late=low + span * float(trace.rewards[-max(1, rounds // 10) :].mean()),
        spend=spend,
        outside=measure_excess(spend, averaged),
        periods=len(by_period),
        bad_periods=sum(measure_excess(mean, of_all) > 0.0 for mean in by_period),
        by_period=by_period,
        replaced=int(trace.record.replaced.sum()),
        asked=request_shares(trace.draws, problem.size),
        t=t,
        reward_curve=low + span * rolling_mean(trace.rewards, window, t),
        spend_curve=curve,
        spread=span * float(trace.rewards.std()),
        refused=int(trace.refused.sum()),
        windows=() if times is None else measure_windows(trace, times),
        counted=in_counted,
    )


def average_rows(rows: Floats) -> Floats:
    """The mean of some rows; 0 without any."""
    return np.asarray(rows.mean(axis=0)) if len(rows) else np.zeros(rows.shape[1])


def average_periods(spend: Floats, period: int) -> Floats:
    """(periods, d) mean cost in each whole period.

    >>> average_periods(np.array([[1.0], [3.0], [3.0], [3.0], [3.0]]), 2)
    array([[2.],
           [3.]])
    """
    count = len(spend) // period
    return np.asarray(spend[: count * period].reshape(count, period, spend.shape[1]).mean(axis=1))


def request_shares(draws: Ints, size: int) -> Floats:
    """The share of requests whose panel includes each expert, however often it was drawn for one.

    >>> request_shares(np.array([[0, 1], [1, 1]]), size=3)
    array([0.5, 1. , 0. ])
    >>> request_shares(np.array([[0, 1], [-1, -1]]), size=3)  # the second one was refused
    array([0.5, 0.5, 0. ])
    """
    panels = np.sort(draws, axis=1)
    new = np.ones(panels.shape, np.bool_)
    new[:, 1:] = panels[:, 1:] != panels[:, :-1]
    new &= panels >= 0
    return np.bincount(panels[new], minlength=size) / len(draws)


def sample_rounds(rounds: int, step: int | None = None) -> Ints:
    """The rounds of a curve, counted from 1; the last one is always included.

    >>> sample_rounds(25, step=10)
    array([10, 20, 25])
    """
    step = max(1, rounds // CURVE_POINTS) if step is None else step
    points = np.arange(step, rounds + 1, step)
    return points if points.size and points[-1] == rounds else np.append(points, rounds)


def rolling_mean(rewards: Floats, window: int, t: Ints) -> Floats:
    """Mean of the last `window` rewards at the rounds t, counted from 1; of fewer at the start.

    >>> rolling_mean(np.array([1.0, 3.0, 5.0]), 2, np.array([1, 3]))
    array([1., 4.])
    """
    sums = np.concatenate([[0.0], np.cumsum(rewards)])
    start = np.maximum(0, t - window)
    return np.asarray((sums[t] - sums[start]) / (t - start))


class SeedCurves(NamedTuple):
    """One curve per seed, sampled at the rounds t."""

    t: Ints
    seeds: Floats
    names: list[int]

    @property
    def mean(self) -> Floats:
        return np.asarray(self.seeds.mean(axis=0))

    @property
    def std(self) -> Floats:
        """Standard deviation over seeds (ddof = 1); 0 for a single seed."""
        return seed_std(self.seeds)


def seed_std(values: Floats) -> Floats:
    """Standard deviation over the first axis (ddof = 1); 0 for a single seed.

    >>> seed_std(np.array([1.0, 3.0])).round(3)
    np.float64(1.414)
    """
    if len(values) < 2:
        return np.zeros(values.shape[1:])
    return np.asarray(values.std(axis=0, ddof=1))[()]
