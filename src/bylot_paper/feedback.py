"""What feedback is worth: policies played with one score, with member scores, with the winner.

The tables are of `question_scenarios`; `report/feedback` writes what was found.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from bylot.environments import Given
from bylot.errors import PolicyError
from bylot.harness import play_cell
from bylot.metrics import measure_worst_excess
from bylot.policies.validation import FeedbackKind
from bylot.problem import Problem
from bylot.trace import Trace
from bylot_paper import grid
from bylot_paper.grid import Cell, ScenarioJob
from bylot_paper.question_scenarios import QuestionReferences, QuestionScenario
from bylot_paper.records import RECORD_SCHEMA, CellRecord

FIRST_REQUESTS = (250, 1_000)


def run_feedback_job(
    tables: Mapping[str, QuestionScenario], job: ScenarioJob, rounds: int, horizon: int
) -> list[CellRecord]:
    """Play the cells of a scenario and seed; the level of a cell is its kind of feedback."""
    scenario = tables[job.environment]
    given, references = scenario.draw_rounds(rounds, job.seed), scenario.references
    records = []
    for cell in job.cells:
        start = time.thread_time()
        trace = simulate_feedback_cell(scenario.problem, given, cell, rounds, horizon)
        micros = 1e6 * (time.thread_time() - start) / rounds
        found = {**dict.fromkeys(RECORD_SCHEMA), "cell": cell.id, **cell._asdict()}
        if isinstance(trace, PolicyError):
            records.append(found | {"refused": str(trace)})
            continue
        records.append(found | measure_feedback_play(trace, references) | {"micros": micros})
    return records


def simulate_feedback_cell(
    problem: Problem, given: Given, cell: Cell, rounds: int, horizon: int
) -> Trace | PolicyError:
    level: Any = cell.level
    feedback: FeedbackKind = level
    return play_cell(
        problem,
        given,
        grid.make_experiment_policy(cell.policy, cell.experiment, cell.dimensions),
        rounds=rounds,
        seed=cell.seed,
        horizon=horizon,
        feedback=feedback,
        keep_distributions=False,
    )


def measure_feedback_play(trace: Trace, references: QuestionReferences) -> CellRecord:
    """The columns of a record: rewards, also of the first requests, limits and references."""
    rewards, problem = trace.rewards, trace.problem
    outside = measure_worst_excess(problem, trace.mean_spend()[-1]) if problem.limits else 0.0
    return {
        "reward": float(rewards.mean()),
        "reward_late": float(rewards[-max(1, len(rewards) // 10) :].mean()),
        **{f"reward_{count}": float(rewards[:count].mean()) for count in FIRST_REQUESTS},
        "outside": outside,
        "feasible": outside <= 0.0,
        "replaced": int(trace.record.replaced.sum()),
        "size": problem.size,
        "uniform": references.uniform,
        "mixture": references.fixed,
        "mixture_gap": references.gap,
        "mixture_by_context": references.by_context,
        "propensities": bool(np.isfinite(trace.record.propensities).all()),
    }
