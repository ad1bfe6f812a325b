"""How a job is run: its world is made, its cells are played, their records are returned."""

from dataclasses import dataclass

import numpy as np

from bylot.data import Crowd
from bylot.errors import PolicyError
from bylot.experiments.cell import Cell
from bylot.experiments.contest import contest
from bylot.experiments.grid import CONTEST, Job, length
from bylot.experiments.hospital import Hospital
from bylot.experiments.levels import problem
from bylot.experiments.lineup import heeds_periods, settings
from bylot.experiments.outcome import Played, Row, outcome, refusal, spending
from bylot.experiments.world import World
from bylot.simulation import running_mean, simulate

Game = tuple[str, str | None, int | None]
"""A policy, and the level and the period that it minds."""


@dataclass(frozen=True)
class Setup:
    """What all cells of a run share."""

    crowd: Crowd
    rounds: int
    hospital: Hospital | None = None

    def __post_init__(self) -> None:
        self.crowd.pool(seed=0)  # refuses a crowd that is too small, before anything is begun

    @property
    def window(self) -> int:
        """Rounds in a rolling mean: the paper's 500 of 10,000, the same part of shorter plays."""
        return max(1, self.rounds // 20)


def run(setup: Setup, job: Job, rounds: int | None = None) -> list[Row]:
    """The records of a job's cells; of their first rounds only, if a number of them is given."""
    told = length(job.experiment, setup.rounds)
    if job.experiment in CONTEST:
        return contest(setup.crowd, setup.hospital, job, rounds or told, told)
    world = World(
        setup.crowd,
        job.environment,
        job.dimensions,
        job.seed,
        rounds or told,
        job.smoothing,
        exact=job.experiment not in ("sweep", "crowd"),
    )
    once: dict[Game, Played | str] = {}
    rows = []
    for cell in job.cells:
        if game(cell) not in once:
            once[game(cell)] = attempted(world, cell, told)
        played = once[game(cell)]
        if isinstance(played, str):
            rows.append(refusal(cell, played))
        else:
            rows.append(outcome(world, cell, played, setup.window))
    return rows


def game(cell: Cell) -> Game:
    """What its policy looks at: cells of one world that agree in it are one play."""
    aware = settings(cell.policy, cell.experiment, cell.dimensions).aware
    period = cell.period if heeds_periods(cell.policy) else None
    return cell.policy, cell.level if aware else None, period


def attempted(world: World, cell: Cell, told: int) -> Played | str:
    """A play, or why there is none: a promise may not be possible in so few rounds."""
    try:
        return play(world, cell, told)
    except PolicyError as error:
        return str(error)


def play(world: World, cell: Cell, told: int) -> Played:
    """One play, on rewards of 0 to N, to an end that is told, or in periods without one."""
    proxy = cell.experiment == "sweep"  # which needs the distribution at the end
    limited = world.problems[cell.level]
    if cell.period is not None:
        limited = problem(world.pool, cell.level, cell.period)
    trace = simulate(
        limited,
        world.given,
        settings(cell.policy, cell.experiment, cell.dimensions),
        rounds=world.rounds,
        seed=world.seed,
        horizon=told if cell.period is None else None,
        rewards=(0.0, float(world.dimensions)),
        keep_law=proxy,
    )
    rows = np.array([world.pool.workload, world.pool.expert])
    spend = spending(trace.draws, rows)
    return Played(
        rewards=trace.rewards,
        earned=running_mean(trace.rewards),
        spend=spend,
        means=running_mean(spend),
        replaced=int(trace.record.replaced.sum()),
        last=trace.record.law[-1].copy() if proxy else None,
    )
