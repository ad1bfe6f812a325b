"""Run a job: build its scenario, play its cells, return their records.

The paper's experiments are played on raw rewards and record curves; the comparison that chooses the
default policy is played on rewards in [0, 1] in all scenarios and records only final results.
"""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bylot.errors import BylotError, PolicyError
from bylot.harness import play_cell
from bylot.metrics import measure_worst_excess
from bylot.optima import Mixture, Optimum, best_mixture, optimum
from bylot.problem import Problem
from bylot.simulation import Trace, running_mean
from bylot_paper import scenarios
from bylot_paper.crowd import Crowd
from bylot_paper.crowd_scenario import OPTIMUM_STARTS, CrowdScenario
from bylot_paper.grid import (
    COMPARISON_EXPERIMENTS,
    CROWD_ENVIRONMENTS,
    Cell,
    ScenarioJob,
    count_rounds,
)
from bylot_paper.outcome import (
    RESULT_COLUMNS,
    CellRecord,
    CrowdPlay,
    compute_spend,
    count_bad_periods,
    measure_rewards,
    record_crowd_cell,
    record_refusal,
)
from bylot_paper.policy_settings import is_period_aware, make_experiment_policy
from bylot_paper.scenarios import ComparisonScenario, HospitalPanel


@dataclass(frozen=True)
class RunSetup:
    """What all cells of a run share."""

    crowd: Crowd
    rounds: int
    hospital: HospitalPanel | None = None

    def __post_init__(self) -> None:
        self.crowd.pool(seed=0)  # refuse a crowd that is too small before anything starts

    @property
    def window(self) -> int:
        """Rounds in a rolling mean: the paper's 500 of 10,000, in proportion for shorter runs."""
        return max(1, self.rounds // 20)


def run_job(setup: RunSetup, job: ScenarioJob, rounds: int | None = None) -> list[CellRecord]:
    """Play the cells of a job and return their records.

    rounds: stop after so many; the policies are still given the full horizon
    """
    horizon = count_rounds(job.experiment, setup.rounds)
    if job.experiment in COMPARISON_EXPERIMENTS:
        return run_comparison_job(setup, job, rounds or horizon, horizon)
    return run_crowd_job(setup, job, rounds or horizon, horizon)


def simulate_cell(
    cell: Cell,
    problem: Problem,
    scenario: CrowdScenario | ComparisonScenario,
    rounds: int,
    horizon: int,
) -> Trace | PolicyError:
    """Simulate a cell: with a known horizon, or in periods without one."""
    return play_cell(
        problem if cell.period is None else problem.replace(period=cell.period),
        scenario.given,
        make_experiment_policy(cell.policy, cell.experiment, cell.dimensions),
        rounds=rounds,
        seed=cell.seed,
        horizon=horizon if cell.period is None else None,
        rewards=(0.0, scenario.max_reward),
        late=scenario.late,
        keep_distributions=cell.experiment == "sweep",
    )


def run_crowd_job(setup: RunSetup, job: ScenarioJob, rounds: int, horizon: int) -> list[CellRecord]:
    """Play the cells of the paper's experiments and those beyond; cells that differ only in what
    their policy ignores share one play.
    """
    exact = job.experiment not in ("sweep", "crowd")
    scenario = CrowdScenario(
        setup.crowd, job.environment, job.dimensions, job.seed, rounds, job.smoothing, exact
    )
    plays: dict[tuple[str, str | None, int | None], CrowdPlay | PolicyError] = {}
    records = []
    for cell in job.cells:
        aware = make_experiment_policy(cell.policy, cell.experiment, cell.dimensions).uses_limits
        period = cell.period if is_period_aware(cell.policy) else None
        key = cell.policy, cell.level if aware else None, period
        if key not in plays:
            plays[key] = play_crowd_cell(scenario, cell, horizon)
        play = plays[key]
        if isinstance(play, PolicyError):
            records.append(record_refusal(cell, str(play)))
        else:
            records.append(record_crowd_cell(scenario, cell, play, setup.window))
    return records


def play_crowd_cell(scenario: CrowdScenario, cell: Cell, horizon: int) -> CrowdPlay | PolicyError:
    """Play one cell on the crowd."""
    problem = scenario.problems[cell.level]
    trace = simulate_cell(cell, problem, scenario, scenario.rounds, horizon)
    if isinstance(trace, PolicyError):
        return trace
    spend = compute_spend(trace.draws, np.array([scenario.pool.workload, scenario.pool.expert]))
    return CrowdPlay(
        rewards=trace.rewards,
        mean_rewards=running_mean(trace.rewards),
        spend=spend,
        mean_spend=running_mean(spend),
        replaced=int(trace.record.replaced.sum()),
        last=trace.record.distributions[-1].copy() if cell.experiment == "sweep" else None,
    )


class ReferenceValues(NamedTuple):
    """The best reward within the limits: of mixtures of panels, of independent draws, and of the
    uniform distribution.
    """

    mixture: Mixture
    draws: Optimum
    uniform: float


def run_comparison_job(
    setup: RunSetup, job: ScenarioJob, rounds: int, horizon: int
) -> list[CellRecord]:
    """Play the cells of the comparison that chooses the default policy."""
    scenario = make_job_scenario(setup, job, rounds)
    levels = dict.fromkeys(cell.level for cell in job.cells)
    references = {level: compute_references(scenario, level) for level in levels}
    return [
        record_comparison_cell(scenario, cell, references[cell.level], rounds, horizon)
        for cell in job.cells
    ]


def make_job_scenario(setup: RunSetup, job: ScenarioJob, rounds: int) -> ComparisonScenario:
    """Make the scenario of a job of the comparison."""
    name, seed = job.environment, job.seed
    if name in CROWD_ENVIRONMENTS:
        on_crowd = CrowdScenario(setup.crowd, name, job.dimensions, seed, rounds, job.smoothing)
        return scenarios.scenario_from_crowd(on_crowd)
    if name == "synthetic":
        return scenarios.make_synthetic_scenario(job.smoothing, rounds, seed)
    if name in scenarios.BUILT_IN_SCENARIOS:
        return scenarios.BUILT_IN_SCENARIOS[name][1](rounds, seed)
    if setup.hospital is None:
        raise BylotError("the hospital scenario needs its files", remedy="give --hospital")
    return scenarios.make_hospital_scenario(setup.hospital, rounds, seed)


def compute_references(scenario: ComparisonScenario, level: str) -> ReferenceValues:
    """Compute what the best mixture of panels and the best independent draws would have earned."""
    problem, stack, contexts = scenario.problems[level], scenario.stack, scenario.contexts
    blocks: dict[str, Any] = {"contexts": contexts, "aggregate": contexts is not None}
    mixture = best_mixture(problem, stack, **blocks)
    draws = optimum(problem, stack, exact=True, floor=False, starts=OPTIMUM_STARTS, **blocks)
    uniform = np.full(problem.size, 1 / problem.size)
    return ReferenceValues(mixture, draws, stack.value(uniform, problem.draws))


def record_comparison_cell(
    scenario: ComparisonScenario, cell: Cell, best: ReferenceValues, rounds: int, horizon: int
) -> CellRecord:
    """Play one cell and record it, or the refusal of its policy."""
    start = time.thread_time()
    trace = simulate_cell(cell, scenario.problems[cell.level], scenario, rounds, horizon)
    micros = 1e6 * (time.thread_time() - start) / rounds
    if isinstance(trace, PolicyError):
        return record_refusal(cell, str(trace))
    problem = trace.problem
    outside = measure_worst_excess(problem, trace.mean_spend()[-1])
    return {
        **dict.fromkeys(RESULT_COLUMNS),
        "cell": cell.id,
        **cell._asdict(),
        **measure_rewards(trace.rewards, outside, best.draws, best.uniform),
        "replaced": int(trace.record.replaced.sum()),
        **count_bad_periods(problem, trace.spend, cell.period),
        "size": problem.size,
        "mixture": best.mixture.value,
        "mixture_gap": best.mixture.gap,
        "propensities": has_known_propensities(trace),
        "micros": micros,
    }


def has_known_propensities(trace: Trace) -> bool:
    """Is the propensity of every drawn panel known, so that a log of it can be evaluated?"""
    record = trace.record
    known = np.isfinite(record.propensities) | np.isfinite(record.draw_probabilities).all(axis=1)
    return bool((known | record.replaced).all())
