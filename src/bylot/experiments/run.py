"""How a job is run: its world is made, its cells are played, their records are returned."""

from dataclasses import dataclass

import numpy as np

from bylot.data import Crowd
from bylot.experiments.cell import Cell
from bylot.experiments.grid import Job
from bylot.experiments.lineup import settings
from bylot.experiments.outcome import Played, Row, outcome, spending
from bylot.experiments.world import World
from bylot.policies import Policy
from bylot.simulation import running_mean, simulate


@dataclass(frozen=True)
class Setup:
    """What all cells of a run share."""

    crowd: Crowd
    rounds: int

    def __post_init__(self) -> None:
        self.crowd.pool(seed=0)  # refuses a crowd that is too small, before anything is begun

    @property
    def window(self) -> int:
        """Rounds in a rolling mean: the paper's 500 of 10,000, the same part of shorter plays."""
        return max(1, self.rounds // 20)


def run(setup: Setup, job: Job) -> list[Row]:
    """The records of a job's cells."""
    world = World(setup.crowd, job.environment, job.dimensions, job.seed, setup.rounds)
    once: dict[str, Played] = {}  # plays of policies that do not look at limits
    rows = []
    for cell in job.cells:
        policy = settings(cell.policy, cell.experiment, cell.dimensions)
        played = once.get(cell.policy)
        if played is None:
            played = play(world, cell, policy)
            if not policy.aware:
                once[cell.policy] = played
        rows.append(outcome(world, cell, played, setup.window))
    return rows


def play(world: World, cell: Cell, policy: Policy) -> Played:
    """One play of the whole horizon, on rewards of 0 to N."""
    proxy = cell.experiment == "sweep"  # which needs the distribution at the end
    trace = simulate(
        world.problems[cell.level],
        world.given,
        policy,
        rounds=world.rounds,
        seed=world.seed,
        horizon=world.rounds,
        rewards=(0.0, float(world.dimensions)),
        keep_law=proxy,
    )
    rows = np.array([world.pool.workload, world.pool.expert])
    last = trace.record.law[-1].copy() if proxy else None
    means = running_mean(spending(trace.draws, rows))
    return Played(trace.rewards, running_mean(trace.rewards), means, last)
