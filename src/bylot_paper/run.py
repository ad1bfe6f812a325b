"""Run a job: build its scenario, play its cells, return their records.

The paper's experiments are played on raw rewards and record curves; the comparison that chooses the
default policy, and that of kinds of feedback, are played on rewards in [0, 1] in all scenarios and
record only final results.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bylot import theory
from bylot.errors import BylotError, PolicyError
from bylot.harness import average_periods, play_cell, rolling_mean, sample_rounds
from bylot.metrics import measure_distance_from_limits, measure_worst_excess
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.sampling import compute_panel_costs
from bylot.optima import IidOptimum, iid_optimum, optimum
from bylot.policies.omd import PAPER_DUAL_STEP
from bylot.problem import Problem
from bylot.trace import Trace, running_mean
from bylot_paper import grid, scenarios
from bylot_paper.crowd import Crowd, make_synthetic_crowd
from bylot_paper.records import RECORD_SCHEMA, CellRecord

FIRST_REQUESTS = (250, 1_000)


@dataclass(frozen=True)
class RunSetup:
    """What all cells of a run share; tables: the scenarios of `feedback` by name."""

    crowd: Crowd
    rounds: int
    hospital: scenarios.HospitalPanel | None = None
    tables: Mapping[str, scenarios.QuestionScenario] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.crowd.pool(seed=0)  # refuse a crowd that is too small before anything starts

    @property
    def window(self) -> int:
        """Rounds in a rolling mean: the paper's 500 of 10,000, in proportion for shorter runs."""
        return max(1, self.rounds // 20)


def run_job(setup: RunSetup, job: grid.ScenarioJob, rounds: int | None = None) -> list[CellRecord]:
    """Play the cells of a job and return their records.

    rounds: stop after so many; the policies are still given the full horizon
    """
    horizon = grid.count_rounds(job.experiment, setup.rounds)
    if job.experiment in grid.COMPARISON_EXPERIMENTS:
        return run_comparison_job(setup, job, rounds or horizon, horizon)
    if job.experiment == grid.FEEDBACK_EXPERIMENT:
        return run_feedback_job(setup, job, rounds or horizon, horizon)
    return run_crowd_job(setup, job, rounds or horizon, horizon)


def simulate_cell(
    cell: grid.Cell,
    scenario: scenarios.CrowdScenario | scenarios.ComparisonScenario,
    rounds: int,
    horizon: int,
) -> Trace | PolicyError:
    """Simulate a cell: with a known horizon, or in periods without one."""
    problem = scenario.problems[cell.level]
    return play_cell(
        problem if cell.period is None else problem.replace(period=cell.period),
        scenario.given,
        grid.make_experiment_policy(cell.policy, cell.experiment, cell.dimensions),
        rounds=rounds,
        seed=cell.seed,
        horizon=horizon if cell.period is None else None,
        rewards=(0.0, scenario.max_reward),
        late=scenario.late,
        keep_distributions=cell.experiment == "sweep",
    )


def make_record(cell: grid.Cell, **values: Any) -> CellRecord:
    """Make the record of a cell; other columns are None."""
    return {**dict.fromkeys(RECORD_SCHEMA), "cell": cell.id, **cell._asdict(), **values}


def run_crowd_job(
    setup: RunSetup, job: grid.ScenarioJob, rounds: int, horizon: int
) -> list[CellRecord]:
    """Play cells on the crowd; those that differ only in what their policy ignores share a play."""
    scenario = scenarios.CrowdScenario(
        setup.crowd,
        job.environment,
        job.dimensions,
        job.seed,
        rounds,
        job.smoothing,
        exact=job.experiment not in ("sweep", "crowd"),
    )
    plays: dict[tuple[str, str | None, int | None], tuple[Trace, Floats] | PolicyError] = {}
    costs = np.array([scenario.pool.workload, scenario.pool.expert])
    records = []
    for cell in job.cells:
        policy = grid.make_experiment_policy(cell.policy, cell.experiment, cell.dimensions)
        guarded = cell.policy.partition(":")[0] in grid.GUARDED_POLICIES
        key = (
            cell.policy,
            cell.level if policy.uses_limits else None,
            cell.period if guarded else None,
        )
        if key not in plays:
            trace = simulate_cell(cell, scenario, rounds, horizon)
            if isinstance(trace, PolicyError):
                plays[key] = trace
            else:
                plays[key] = trace, compute_panel_costs(trace.draws, costs)
        play = plays[key]
        if isinstance(play, PolicyError):
            records.append(make_record(cell, refused=str(play)))
        else:
            records.append(record_crowd_cell(scenario, cell, *play, setup.window))
    return records


def record_crowd_cell(
    scenario: scenarios.CrowdScenario, cell: grid.Cell, play: Trace, spend: Floats, window: int
) -> CellRecord:
    """The record of a play, which may be one at another level, if its policy ignores limits.

    spend: (T, 2) what its panels cost in each round
    """
    problem = scenario.problems[cell.level]
    t = sample_rounds(len(spend), grid.SWEEP_STEP_ROUNDS if cell.experiment == "sweep" else None)
    means = running_mean(spend, t)
    bounds = {}
    outside = 0.0
    if problem.limits:
        outside = measure_worst_excess(problem, means[-1])
        bounds = {"workload_bound": problem.bounds[0], "expert_bound": problem.bounds[1]}
    if cell.policy.startswith("omd"):
        bounds |= compute_theorem_bounds(problem, scenario)
    best = scenario.find_optimum(cell.level)[0]
    return make_record(
        cell,
        **measure_play(play, outside),
        **describe_optimum(best, scenario.uniform),
        regret_true=best.value - float(play.rewards.mean()),
        workload=float(means[-1, 0]),
        expert=float(means[-1, 1]),
        **{name: float(bound) for name, bound in bounds.items()},
        **count_bad_periods(problem, spend, cell.period),
        **sample_curves(scenario, cell, play, t, means, window),
    )


def measure_play(play: Trace, outside: float) -> CellRecord:
    """Return the columns that every record has: rewards, and whether limits were kept."""
    rewards = play.rewards
    return {
        "reward": float(rewards.mean()),
        "reward_late": float(rewards[-max(1, len(rewards) // 10) :].mean()),
        "outside": outside,
        "feasible": outside <= 0.0,
        "replaced": int(play.record.replaced.sum()),
    }


def describe_optimum(best: IidOptimum, uniform: float) -> CellRecord:
    """Return the columns about the best independent draws; uniform: what equal shares earn."""
    return {
        "optimum": best.value,
        "optimum_gap": best.gap,
        "optimum_spread": best.spread,
        "uniform": uniform,
    }


def count_bad_periods(problem: Problem, spend: Floats, period: int | None) -> CellRecord:
    """Count the whole periods, and those that ended outside a limit; nothing without periods.

    >>> from bylot.problem import at_most
    >>> pair = Problem(["a", "b"], {"usd": [1.0, 3.0]}, [at_most("usd", 2.0)], draws=1)
    >>> count_bad_periods(pair, np.array([[1.0], [3.0], [3.0], [3.0], [3.0]]), 2)
    {'periods': 2, 'bad_periods': 1}
    """
    if period is None:
        return {}
    means = average_periods(spend, period)
    return {
        "periods": len(means),
        "bad_periods": sum(measure_worst_excess(problem, mean) > 0.0 for mean in means),
    }


def compute_theorem_bounds(problem: Problem, scenario: scenarios.CrowdScenario) -> dict[str, float]:
    """Bounds of Theorems 1 and 2 for the plain algorithm, in units of raw rewards and costs."""
    T = scenario.rounds
    regret_bound = theory.theorem_1(T, problem.size, scenarios.PAPER_DRAWS, problem.floor)
    bounds = {"r1_bound": scenario.dimensions * regret_bound}
    if problem.limits:
        bounds["r2_bound"] = theory.theorem_2(
            T,
            scenarios.PAPER_DRAWS,
            problem.rows.max(axis=1, initial=0.0),
            theory.fixed_step_regret(PAPER_DUAL_STEP, theory.slope_bound(problem), T),
        )
    return bounds


def sample_curves(
    scenario: scenarios.CrowdScenario,
    cell: grid.Cell,
    play: Trace,
    t: Ints,
    means: Floats,
    window: int,
) -> CellRecord:
    """Sample the curves at the rounds t, and their last values; ablations record no curves.

    means: (n, 2) the running mean of the costs at these rounds

    R1(t) = mean over s <= t of Phi^{r_s}(q) - r_s, with q the true optimum or, as in the paper, the
    final distribution q_T; R2(t) = distance of the mean cost so far from the limits.
    """
    problem = scenario.problems[cell.level]
    rewards = running_mean(play.rewards, t)
    distance = measure_distance_from_limits(problem, means) if problem.limits else np.zeros(len(t))
    proxy = None
    ends = {"r2": float(distance[-1])}
    if cell.experiment == "sweep":
        proxy = running_mean(scenario.expected(play.record.distributions[-1]), t) - rewards
        ends["regret_proxy"] = float(proxy[-1])
    if cell.experiment == "ablation":
        return ends
    return ends | {
        "curve_t": t,
        "curve_reward": rolling_mean(play.rewards, window, t),
        "curve_workload": means[:, 0],
        "curve_expert": means[:, 1],
        "curve_r1_true": scenario.find_optimum(cell.level)[1][t - 1] - rewards,
        "curve_r1_proxy": proxy,
        "curve_r2": distance,
    }


def run_comparison_job(
    setup: RunSetup, job: grid.ScenarioJob, rounds: int, horizon: int
) -> list[CellRecord]:
    """Play the cells of the comparison that chooses the default policy."""
    scenario = make_scenario(setup, job, rounds)
    references = {
        level: compute_references(scenario, level)
        for level in dict.fromkeys(cell.level for cell in job.cells)
    }

    def measure(cell: grid.Cell, trace: Trace) -> CellRecord:
        play = trace.record  # a log of it can be evaluated if all propensities are known
        known = np.isfinite(play.propensities) | np.isfinite(play.draw_probabilities).all(axis=1)
        return {
            **measure_play(trace, measure_worst_excess(trace.problem, trace.mean_spend()[-1])),
            **references[cell.level],
            "regret_true": references[cell.level]["optimum"] - float(trace.rewards.mean()),
            **count_bad_periods(trace.problem, trace.spend, cell.period),
            "size": trace.problem.size,
            "propensities": bool((known | play.replaced).all()),
        }

    return record_timed_cells(
        job.cells, rounds, lambda cell: simulate_cell(cell, scenario, rounds, horizon), measure
    )


def record_timed_cells(
    cells: Sequence[grid.Cell],
    rounds: int,
    play: Callable[[grid.Cell], Trace | PolicyError],
    measure: Callable[[grid.Cell, Trace], CellRecord],
) -> list[CellRecord]:
    """Play cells one after the other, and return their records with the CPU time of a round."""
    records = []
    for cell in cells:
        start = time.thread_time()
        trace = play(cell)
        micros = 1e6 * (time.thread_time() - start) / rounds
        if isinstance(trace, PolicyError):
            records.append(make_record(cell, refused=str(trace)))
        else:
            records.append(make_record(cell, **measure(cell, trace), micros=micros))
    return records


def run_feedback_job(
    setup: RunSetup, job: grid.ScenarioJob, rounds: int, horizon: int
) -> list[CellRecord]:
    """Play the cells of a scenario and seed with some feedback, which is the level of a cell."""
    scenario = setup.tables[job.environment]
    given = scenario.draw_rounds(rounds, job.seed)
    references = scenario.references

    def play(cell: grid.Cell) -> Trace | PolicyError:
        return play_cell(
            scenario.problem,
            given,
            grid.make_experiment_policy(cell.policy, cell.experiment, cell.dimensions),
            rounds=rounds,
            seed=cell.seed,
            horizon=horizon,
            feedback=cell.level,
            keep_distributions=False,
        )

    return record_timed_cells(
        job.cells, rounds, play, lambda _, trace: measure_feedback_play(trace, references)
    )


def measure_feedback_play(trace: Trace, references: scenarios.QuestionReferences) -> CellRecord:
    """Return the columns of a record: rewards, also of the first requests, and references."""
    problem = trace.problem
    outside = measure_worst_excess(problem, trace.mean_spend()[-1]) if problem.limits else 0.0
    return {
        **measure_play(trace, outside),
        **{f"reward_{n}": float(trace.rewards[:n].mean()) for n in FIRST_REQUESTS},
        "size": problem.size,
        "uniform": references.uniform,
        "mixture": references.fixed,
        "mixture_gap": references.gap,
        "mixture_by_context": references.by_context,
        "propensities": bool(np.isfinite(trace.record.propensities).all()),
    }


def make_scenario(
    setup: RunSetup, job: grid.ScenarioJob, rounds: int
) -> scenarios.ComparisonScenario:
    """Make a scenario of the comparison: a built-in one, the hospital's, or a pool of a crowd."""
    name, crowd = job.environment, setup.crowd
    if name in scenarios.BUILT_IN_SCENARIOS:
        return scenarios.BUILT_IN_SCENARIOS[name][1](rounds, job.seed)
    if name == "hospital":
        if setup.hospital is None:
            raise BylotError("the hospital scenario needs its files", remedy="give --hospital")
        return scenarios.make_hospital_scenario(setup.hospital, rounds, job.seed)
    if name == "synthetic":  # besides the crowd of the run
        crowd, name = make_synthetic_crowd(), "stochastic"
    pool = scenarios.CrowdScenario(crowd, name, job.dimensions, job.seed, rounds, job.smoothing)
    return scenarios.make_comparison_scenario(pool.problems, pool.given.values / pool.dimensions)


def compute_references(scenario: scenarios.ComparisonScenario, level: str) -> CellRecord:
    """Compute the best reward within the limits: of independent draws, with that of the uniform
    distribution, and of mixtures of panels.
    """
    problem, stack, contexts = scenario.problems[level], scenario.stack, scenario.contexts
    mixture = optimum(problem, stack, contexts=contexts)
    draws = iid_optimum(
        problem, stack, exact=True, starts=scenarios.OPTIMUM_STARTS, contexts=contexts
    )
    uniform = stack.value(np.full(problem.size, 1 / problem.size), problem.draws)
    return {
        **describe_optimum(draws, uniform),
        "mixture": mixture.value,
        "mixture_gap": mixture.gap,
    }
