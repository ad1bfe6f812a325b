"""The record of one cell: results of the whole run, and curves at some of its rounds."""

from typing import Any, NamedTuple

import numpy as np

from bylot import theory
from bylot.harness import average_periods, rolling_mean, sample_rounds
from bylot.metrics import measure_distance_from_limits, measure_worst_excess
from bylot.numerics.jit import Floats, Ints
from bylot.optima import Optimum
from bylot.policies.omd import PAPER_DUAL
from bylot.problem import Problem
from bylot.simulation import running_mean
from bylot_paper.crowd_scenario import PAPER_DRAWS, CrowdScenario
from bylot_paper.grid import SHARED_SCENARIO_EXPERIMENTS, Cell

SWEEP_STEP_ROUNDS = 10  # the batch of the paper's policy


class CrowdPlay(NamedTuple):
    """What a policy did on the crowd; nothing in it depends on the level of the limits.

    rewards, mean_rewards: (T,) of each round, and their running mean
    spend, mean_spend: (T, 2) workload and experts of each round, and their running mean
    replaced: panels that the guard replaced
    last: final distribution, for `sweep` only
    """

    rewards: Floats
    mean_rewards: Floats
    spend: Floats
    mean_spend: Floats
    replaced: int
    last: Floats | None


CellRecord = dict[str, Any]

CURVE_COLUMNS = (
    *("curve_t", "curve_reward", "curve_workload", "curve_expert"),
    *("curve_r1_true", "curve_r1_proxy", "curve_r2"),
)
COMPARISON_COLUMNS = ("size", "mixture", "mixture_gap", "propensities", "micros")
"""Columns that only the comparison of all policies has."""

RESULT_COLUMNS = (
    *("reward", "reward_late", "workload", "expert", "workload_bound", "expert_bound"),
    *("outside", "feasible", "r2", "optimum", "optimum_gap", "optimum_spread", "uniform"),
    *("regret_true", "regret_proxy", "r1_bound", "r2_bound"),
    *("replaced", "periods", "bad_periods", *COMPARISON_COLUMNS, *CURVE_COLUMNS),
)
"""All columns of a record except those of its cell and its refusal."""


def compute_spend(draws: Ints, rows: Floats) -> Floats:
    """(T, d) cost of the distinct members of each panel.

    >>> compute_spend(np.array([[0, 1, 0]]), np.array([[1.0, 2.0]]))
    array([[3.]])
    """
    panels = np.sort(draws, axis=1)
    new = np.ones(panels.shape)
    new[:, 1:] = panels[:, 1:] != panels[:, :-1]
    return np.stack([(row[panels] * new).sum(axis=1) for row in rows], axis=1)


def record_crowd_cell(
    scenario: CrowdScenario, cell: Cell, play: CrowdPlay, window: int
) -> CellRecord:
    """Make the record of a cell on the crowd."""
    problem, best = scenario.problems[cell.level], scenario.find_optimum(cell.level).optimum
    means, limited = play.mean_spend, bool(problem.limits)
    outside = measure_worst_excess(problem, means[-1]) if limited else 0.0
    return {
        "cell": cell.id,
        **cell._asdict(),
        **measure_rewards(play.rewards, outside, best, scenario.uniform),
        "workload": float(means[-1, 0]),
        "expert": float(means[-1, 1]),
        "workload_bound": float(problem.bounds[0]) if limited else None,
        "expert_bound": float(problem.bounds[1]) if limited else None,
        "replaced": play.replaced,
        **compute_theorem_bounds(problem, scenario, cell.policy.startswith("omd")),
        **count_bad_periods(problem, play.spend, cell.period),
        **dict.fromkeys(COMPARISON_COLUMNS),
        **sample_curves(scenario, cell, play, window),
    }


def measure_rewards(rewards: Floats, outside: float, best: Optimum, uniform: float) -> CellRecord:
    """The columns that every record has: reward, whether limits were kept, and the optimum."""
    reward, late = float(rewards.mean()), rewards[-max(1, len(rewards) // 10) :]
    return {
        "reward": reward,
        "reward_late": float(late.mean()),
        "outside": outside,
        "feasible": outside <= 0.0,
        "optimum": best.value,
        "optimum_gap": best.gap,
        "optimum_spread": best.spread,
        "uniform": uniform,
        "regret_true": best.value - reward,
        "refused": None,
    }


def record_refusal(cell: Cell, reason: str) -> CellRecord:
    """Make the record of a cell whose policy refused the problem."""
    return {**dict.fromkeys(RESULT_COLUMNS), "cell": cell.id, **cell._asdict(), "refused": reason}


def count_bad_periods(problem: Problem, spend: Floats, period: int | None) -> CellRecord:
    """Count the whole periods, and those that ended outside a limit; None without periods.

    >>> from bylot.problem import at_most
    >>> pair = Problem(["a", "b"], {"usd": [1.0, 3.0]}, [at_most("usd", 2.0)], draws=1)
    >>> count_bad_periods(pair, np.array([[1.0], [3.0], [3.0], [3.0], [3.0]]), 2)
    {'periods': 2, 'bad_periods': 1}
    """
    if period is None:
        return {"periods": None, "bad_periods": None}
    means = average_periods(spend, period)
    bad = sum(measure_worst_excess(problem, mean) > 0.0 for mean in means)
    return {"periods": len(means), "bad_periods": bad}


def compute_theorem_bounds(problem: Problem, scenario: CrowdScenario, apply: bool) -> CellRecord:
    """Bounds of Theorems 1 and 2 for the plain algorithm, in units of raw rewards and costs."""
    if not apply:
        return {"r1_bound": None, "r2_bound": None}
    T, N = scenario.rounds, scenario.dimensions
    regret = theory.fixed_step_regret(PAPER_DUAL.step, theory.slope_bound(problem), T)
    most = problem.rows.max(axis=1, initial=0.0)
    return {
        "r1_bound": N * theory.theorem_1(T, problem.size, PAPER_DRAWS, problem.floor),
        "r2_bound": theory.theorem_2(T, PAPER_DRAWS, most, regret) if problem.limits else None,
    }


def sample_curves(scenario: CrowdScenario, cell: Cell, play: CrowdPlay, window: int) -> CellRecord:
    """Sample the curves, and their last values; ablations and tuning runs record no curves.

    R1(t) = mean over s <= t of Phi^{r_s}(q) - r_s, with q the true optimum or, as in the paper, the
    final distribution q_T; R2(t) = distance of the mean cost so far from the limits.
    """
    step = SWEEP_STEP_ROUNDS if cell.experiment == "sweep" else None
    t, problem = sample_rounds(scenario.rounds, step), scenario.problems[cell.level]
    means, rewards = play.mean_spend[t - 1], play.mean_rewards[t - 1]
    distance = measure_distance_from_limits(problem, means) if problem.limits else np.zeros(len(t))
    best = scenario.find_optimum(cell.level).mean_rewards[t - 1]
    proxy = None
    if play.last is not None:
        proxy = running_mean(scenario.expected(play.last))[t - 1] - rewards
    ends = {"regret_proxy": None if proxy is None else float(proxy[-1]), "r2": float(distance[-1])}
    if cell.experiment in SHARED_SCENARIO_EXPERIMENTS:
        return ends | dict.fromkeys(CURVE_COLUMNS)
    return ends | {
        "curve_t": t,
        "curve_reward": rolling_mean(play.rewards, window)[t - 1],
        "curve_workload": means[:, 0],
        "curve_expert": means[:, 1],
        "curve_r1_true": best - rewards,
        "curve_r1_proxy": proxy,
        "curve_r2": distance,
    }
