"""The contest that the default is chosen by: every policy in every world, against what could be
earned there.
"""

import time
from typing import Any, NamedTuple

import numpy as np

from bylot.errors import BylotError, PolicyError
from bylot.metrics import measure_worst_excess
from bylot.optima import Mixture, Optimum, best_mixture, optimum
from bylot.simulation import Trace, simulate
from bylot_paper import scenarios as arenas
from bylot_paper.crowd import Crowd
from bylot_paper.crowd_scenario import OPTIMUM_STARTS, CrowdScenario
from bylot_paper.grid import CROWD_ENVIRONMENTS, Cell, ScenarioJob
from bylot_paper.outcome import (
    RESULT_COLUMNS,
    CellRecord,
    count_bad_periods,
    measure_rewards,
    record_refusal,
)
from bylot_paper.policy_settings import make_experiment_policy
from bylot_paper.scenarios import BUILT_IN_SCENARIOS, ComparisonScenario, HospitalPanel


class ReferenceValues(NamedTuple):
    """What could be earned under the limits: by lots of panels, by draws of one law, by chance."""

    mixture: Mixture
    law: Optimum
    uniform: float


def run_comparison_job(
    crowd: Crowd, hospital: HospitalPanel | None, job: ScenarioJob, rounds: int, told: int
) -> list[CellRecord]:
    """The records of a job's cells: `rounds` are played, and a horizon of `told` is told."""
    place = make_job_scenario(crowd, hospital, job, rounds)
    sticks: dict[str, ReferenceValues] = {}
    rows = []
    for cell in job.cells:
        if cell.level not in sticks:
            sticks[cell.level] = compute_references(place, cell.level)
        rows.append(record_comparison_cell(place, cell, sticks[cell.level], rounds, told))
    return rows


def make_job_scenario(
    crowd: Crowd, hospital: HospitalPanel | None, job: ScenarioJob, rounds: int
) -> ComparisonScenario:
    """The arena of a job."""
    name, seed = job.environment, job.seed
    if name in CROWD_ENVIRONMENTS:
        world = CrowdScenario(crowd, name, job.dimensions, seed, rounds, job.smoothing)
        return arenas.scenario_from_crowd(world)
    if name == "synthetic":
        return arenas.make_synthetic_scenario(job.smoothing, rounds, seed)
    if name in BUILT_IN_SCENARIOS:
        return BUILT_IN_SCENARIOS[name][1](rounds, seed)
    if hospital is None:
        raise BylotError("cells of the hospital were asked for without its files; give --hospital")
    return arenas.make_hospital_scenario(hospital, rounds, seed)


def compute_references(place: ComparisonScenario, level: str) -> ReferenceValues:
    """The best that lots of panels, and draws of one law, could have earned."""
    problem, stack, contexts = place.problems[level], place.stack, place.contexts
    several = contexts is not None
    mixture = best_mixture(problem, stack, contexts=contexts, aggregate=several)
    law = optimum(
        problem,
        stack,
        exact=True,
        floor=False,
        starts=OPTIMUM_STARTS,
        contexts=contexts,
        aggregate=several,
    )
    even = np.full(problem.size, 1 / problem.size)
    return ReferenceValues(mixture, law, stack.value(even, problem.draws))


def record_comparison_cell(
    place: ComparisonScenario, cell: Cell, stick: ReferenceValues, rounds: int, told: int
) -> CellRecord:
    """The record of a cell, or that its policy would not play."""
    problem = place.problems[cell.level].replace(period=cell.period)
    start = time.thread_time()
    try:
        trace = simulate(
            problem,
            place.given,
            make_experiment_policy(cell.policy, cell.experiment, cell.dimensions),
            rounds=rounds,
            seed=cell.seed,
            horizon=told if cell.period is None else None,
            late=place.late,
            keep_distributions=False,
        )
    except PolicyError as error:
        return record_refusal(cell, str(error))
    micros = 1e6 * (time.thread_time() - start) / rounds
    return {
        "cell": cell.id,
        **cell._asdict(),
        **measure_trace(trace, cell, stick),
        "micros": micros,
    }


def measure_trace(trace: Trace, cell: Cell, stick: ReferenceValues) -> dict[str, Any]:
    """What is kept of a play."""
    problem = trace.problem
    away = measure_worst_excess(problem, trace.mean_spend()[-1])
    return {
        **dict.fromkeys(RESULT_COLUMNS),
        **measure_rewards(trace.rewards, away, stick.law, stick.uniform),
        "replaced": int(trace.record.replaced.sum()),
        **count_bad_periods(problem, trace.spend, cell.period),
        "size": problem.size,
        "mixture": stick.mixture.value,
        "mixture_gap": stick.mixture.gap,
        "told": has_known_propensities(trace),
    }


def has_known_propensities(trace: Trace) -> bool:
    """Was the chance of every panel that was drawn known, so that a log of it can be evaluated?"""
    record = trace.record
    known = np.isfinite(record.propensities) | np.isfinite(record.draw_probabilities).all(axis=1)
    known |= record.replaced
    return bool(known.all())
