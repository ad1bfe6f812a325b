"""What is kept of one cell: figures of the whole play, and curves at some of its rounds."""

from typing import Any, NamedTuple

import numpy as np

from bylot import theory
from bylot.harness import rolling_mean, sample_rounds
from bylot.metrics import measure_distance_from_limits, measure_worst_excess
from bylot.numerics.jit import Floats, Ints
from bylot.optima import Optimum
from bylot.policies.omd import PAPER_DUAL
from bylot.problem import Problem
from bylot.simulation import running_mean
from bylot_paper.crowd_scenario import PAPER_DRAWS, CrowdScenario
from bylot_paper.grid import SHARED_SCENARIO_EXPERIMENTS, Cell

SWEEP_STEP_ROUNDS = 10  # rounds between two updates of the paper's policy: the clock of the sweep


class CrowdPlay(NamedTuple):
    """What a policy did in a world; nothing in it depends on the level it is judged at."""

    rewards: Floats  # (T,)
    earned: Floats  # (T,) their mean up to each round
    spend: Floats  # (T, 2) cost of each round: workload and experts
    means: Floats  # (T, 2) its mean up to each round
    replaced: int  # rounds in which a guard played something else than what was drawn
    last: Floats | None  # the final distribution, if it is kept


CellRecord = dict[str, Any]

CURVE_COLUMNS = (
    *("curve_t", "curve_reward", "curve_workload", "curve_expert"),
    *("curve_r1_true", "curve_r1_proxy", "curve_r2"),
)
COMPARISON_COLUMNS = ("size", "mixture", "mixture_gap", "told", "micros")
"""What is known only where all policies are compared."""

RESULT_COLUMNS = (
    *("reward", "reward_late", "workload", "expert", "workload_bound", "expert_bound"),
    *("outside", "feasible", "r2", "optimum", "optimum_gap", "optimum_spread", "uniform"),
    *("regret_true", "regret_proxy", "r1_bound", "r2_bound"),
    *("replaced", "periods", "bad_periods", *COMPARISON_COLUMNS, *CURVE_COLUMNS),
)
"""All that a record has besides its name and its refusal."""


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
    world: CrowdScenario, cell: Cell, played: CrowdPlay, window: int
) -> CellRecord:
    """The record of a cell."""
    problem, best = world.problems[cell.level], world.best(cell.level).found
    means, limited = played.means, bool(problem.limits)
    away = measure_worst_excess(problem, means[-1]) if limited else 0.0
    figures = {
        **measure_rewards(played.rewards, away, best, world.uniform),
        "workload": float(means[-1, 0]),
        "expert": float(means[-1, 1]),
        "workload_bound": float(problem.bounds[0]) if limited else None,
        "expert_bound": float(problem.bounds[1]) if limited else None,
        "replaced": played.replaced,
        **compute_theorem_bounds(problem, world, cell.policy.startswith("omd")),
        **count_bad_periods(problem, played.spend, cell.period),
        **dict.fromkeys(COMPARISON_COLUMNS),
    }
    return {
        "cell": cell.id,
        **cell._asdict(),
        **figures,
        **sample_curves(world, cell, played, window),
    }


def measure_rewards(rewards: Floats, away: float, best: Optimum, uniform: float) -> CellRecord:
    """What every play has: its reward, whether it kept the limits, and what could be earned."""
    reward, late = float(rewards.mean()), rewards[-max(1, len(rewards) // 10) :]
    return {
        "reward": reward,
        "reward_late": float(late.mean()),
        "outside": away,
        "feasible": away <= 0.0,
        "optimum": best.value,
        "optimum_gap": best.gap,
        "optimum_spread": best.spread,
        "uniform": uniform,
        "regret_true": best.value - reward,
        "refused": None,
    }


def record_refusal(cell: Cell, reason: str) -> CellRecord:
    """The record of a cell that its policy would not play: what was asked for, and why not."""
    return {**dict.fromkeys(RESULT_COLUMNS), "cell": cell.id, **cell._asdict(), "refused": reason}


def count_bad_periods(problem: Problem, spend: Floats, period: int | None) -> CellRecord:
    """How many whole periods there were, and how many left a limit; nothing where there is none.

    >>> from bylot.problem import at_most
    >>> pair = Problem(["a", "b"], {"usd": [1.0, 3.0]}, [at_most("usd", 2.0)], draws=1)
    >>> count_bad_periods(pair, np.array([[1.0], [3.0], [3.0], [3.0], [3.0]]), 2)
    {'periods': 2, 'bad_periods': 1}
    """
    if period is None:
        return {"periods": None, "bad_periods": None}
    count = len(spend) // period
    means = spend[: count * period].reshape(count, period, spend.shape[1]).mean(axis=1)
    return {
        "periods": count,
        "bad_periods": sum(measure_worst_excess(problem, mean) > 0.0 for mean in means),
    }


def compute_theorem_bounds(problem: Problem, world: CrowdScenario, apply: bool) -> CellRecord:
    """What Theorems 1 and 2 allow the plain algorithm, in units of the raw rewards and costs."""
    if not apply:
        return {"r1_bound": None, "r2_bound": None}
    T, N = world.rounds, world.dimensions
    regret = theory.fixed_step_regret(PAPER_DUAL.step, theory.slope_bound(problem), T)
    most = problem.rows.max(axis=1, initial=0.0)
    return {
        "r1_bound": N * theory.theorem_1(T, problem.size, PAPER_DRAWS, problem.floor),
        "r2_bound": theory.theorem_2(T, PAPER_DRAWS, most, regret) if problem.limits else None,
    }


def sample_curves(world: CrowdScenario, cell: Cell, played: CrowdPlay, window: int) -> CellRecord:
    """Running figures at the sampled rounds, and the final ones that are their ends; those of the
    ablation and of the sweep over settings are not kept, as nobody looks at them.

    R1(t) = mean over s <= t of Phi^{r_s}(q) - r_s, with q the true optimum and, as the paper has
    it, the final distribution q_T; R2(t) = distance of the mean cost so far from the limits.
    """
    step = SWEEP_STEP_ROUNDS if cell.experiment == "sweep" else None
    t, problem = sample_rounds(world.rounds, step), world.problems[cell.level]
    means = played.means[t - 1]
    away = measure_distance_from_limits(problem, means) if problem.limits else np.zeros(len(t))
    earned = played.earned[t - 1]
    best = world.best(cell.level).earned[t - 1]
    proxy = None
    if played.last is not None:
        proxy = running_mean(world.expected(played.last))[t - 1] - earned
    ends = {"regret_proxy": None if proxy is None else float(proxy[-1]), "r2": float(away[-1])}
    if cell.experiment in SHARED_SCENARIO_EXPERIMENTS:
        return ends | dict.fromkeys(CURVE_COLUMNS)
    return ends | {
        "curve_t": t,
        "curve_reward": rolling_mean(played.rewards, window)[t - 1],
        "curve_workload": means[:, 0],
        "curve_expert": means[:, 1],
        "curve_r1_true": best - earned,
        "curve_r1_proxy": proxy,
        "curve_r2": away,
    }
