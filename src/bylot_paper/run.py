"""How a job is run: its world is made, its cells are played, their records are returned."""

from dataclasses import dataclass

import numpy as np

from bylot.errors import PolicyError
from bylot.simulation import running_mean, simulate
from bylot_paper.comparison import run_comparison_job
from bylot_paper.crowd import Crowd
from bylot_paper.crowd_scenario import CrowdScenario, make_level_problem
from bylot_paper.grid import COMPARISON_EXPERIMENTS, Cell, ScenarioJob, count_rounds
from bylot_paper.outcome import (
    CellRecord,
    CrowdPlay,
    compute_spend,
    record_crowd_cell,
    record_refusal,
)
from bylot_paper.policy_settings import is_period_aware, make_experiment_policy
from bylot_paper.scenarios import HospitalPanel

PlayKey = tuple[str, str | None, int | None]
"""A policy, and the level and the period that it minds."""


@dataclass(frozen=True)
class RunSetup:
    """What all cells of a run share."""

    crowd: Crowd
    rounds: int
    hospital: HospitalPanel | None = None

    def __post_init__(self) -> None:
        self.crowd.pool(seed=0)  # refuses a crowd that is too small, before anything is begun

    @property
    def window(self) -> int:
        """Rounds in a rolling mean: the paper's 500 of 10,000, the same part of shorter plays."""
        return max(1, self.rounds // 20)


def run_job(setup: RunSetup, job: ScenarioJob, rounds: int | None = None) -> list[CellRecord]:
    """The records of a job's cells; of their first rounds only, if a number of them is given."""
    told = count_rounds(job.experiment, setup.rounds)
    if job.experiment in COMPARISON_EXPERIMENTS:
        return run_comparison_job(setup.crowd, setup.hospital, job, rounds or told, told)
    world = CrowdScenario(
        setup.crowd,
        job.environment,
        job.dimensions,
        job.seed,
        rounds or told,
        job.smoothing,
        exact=job.experiment not in ("sweep", "crowd"),
    )
    once: dict[PlayKey, CrowdPlay | str] = {}
    rows = []
    for cell in job.cells:
        if make_play_key(cell) not in once:
            once[make_play_key(cell)] = try_crowd_play(world, cell, told)
        played = once[make_play_key(cell)]
        if isinstance(played, str):
            rows.append(record_refusal(cell, played))
        else:
            rows.append(record_crowd_cell(world, cell, played, setup.window))
    return rows


def make_play_key(cell: Cell) -> PlayKey:
    """What its policy looks at: cells of one world that agree in it are one play."""
    aware = make_experiment_policy(cell.policy, cell.experiment, cell.dimensions).aware
    period = cell.period if is_period_aware(cell.policy) else None
    return cell.policy, cell.level if aware else None, period


def try_crowd_play(world: CrowdScenario, cell: Cell, told: int) -> CrowdPlay | str:
    """A play, or why there is none: a promise may not be possible in so few rounds."""
    try:
        return play_crowd_cell(world, cell, told)
    except PolicyError as error:
        return str(error)


def play_crowd_cell(world: CrowdScenario, cell: Cell, told: int) -> CrowdPlay:
    """One play, on rewards of 0 to N, to an end that is told, or in periods without one."""
    proxy = cell.experiment == "sweep"  # which needs the distribution at the end
    limited = world.problems[cell.level]
    if cell.period is not None:
        limited = make_level_problem(world.pool, cell.level, cell.period)
    trace = simulate(
        limited,
        world.given,
        make_experiment_policy(cell.policy, cell.experiment, cell.dimensions),
        rounds=world.rounds,
        seed=world.seed,
        horizon=told if cell.period is None else None,
        rewards=(0.0, float(world.dimensions)),
        keep_distributions=proxy,
    )
    rows = np.array([world.pool.workload, world.pool.expert])
    spend = compute_spend(trace.draws, rows)
    return CrowdPlay(
        rewards=trace.rewards,
        earned=running_mean(trace.rewards),
        spend=spend,
        means=running_mean(spend),
        replaced=int(trace.record.replaced.sum()),
        last=trace.record.distributions[-1].copy() if proxy else None,
    )
