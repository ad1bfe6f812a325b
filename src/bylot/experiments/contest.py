"""The contest that the default is chosen by: every policy in every world, against what could be
earned there.
"""

import time
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from bylot.data import Crowd
from bylot.errors import BylotError, PolicyError
from bylot.experiments import arena as arenas
from bylot.experiments.arena import BUILT_IN, Arena
from bylot.experiments.cell import Cell
from bylot.experiments.grid import ENVIRONMENTS, Job
from bylot.experiments.hospital import Hospital
from bylot.experiments.lineup import settings
from bylot.experiments.outcome import FIGURES, Row, by_period, earned, refusal
from bylot.experiments.world import STARTS, World
from bylot.metrics import outside
from bylot.optima import Mixture, Optimum, best_mixture, optimum
from bylot.problem import Problem
from bylot.simulation import Trace, simulate


class Yardstick(NamedTuple):
    """What could be earned under the limits: by lots of panels, by draws of one law, by chance."""

    mixture: Mixture
    law: Optimum
    uniform: float


def contest(crowd: Crowd, hospital: Hospital | None, job: Job, rounds: int, told: int) -> list[Row]:
    """The records of a job's cells: `rounds` are played, and a horizon of `told` is told."""
    place = made(crowd, hospital, job, rounds)
    sticks: dict[str, Yardstick] = {}
    rows = []
    for cell in job.cells:
        if cell.level not in sticks:
            sticks[cell.level] = yardstick(place, cell.level)
        rows.append(entered(place, cell, sticks[cell.level], rounds, told))
    return rows


def made(crowd: Crowd, hospital: Hospital | None, job: Job, rounds: int) -> Arena:
    """The arena of a job."""
    name, seed = job.environment, job.seed
    if name in ENVIRONMENTS:
        world = World(crowd, name, job.dimensions, seed, rounds, job.smoothing)
        return arenas.of_crowd(world)
    if name == "synthetic":
        return arenas.made_up(job.smoothing, rounds, seed)
    if name in BUILT_IN:
        return BUILT_IN[name][1](rounds, seed)
    if hospital is None:
        raise BylotError("cells of the hospital were asked for without its files; give --hospital")
    return arenas.hospital(hospital, rounds, seed)


def yardstick(place: Arena, level: str) -> Yardstick:
    """The best that lots of panels, and draws of one law, could have earned."""
    problem, stack, contexts = place.problems[level], place.stack, place.contexts
    several = contexts is not None
    mixture = best_mixture(problem, stack, contexts=contexts, aggregate=several)
    law = optimum(
        problem,
        stack,
        exact=True,
        floor=False,
        starts=STARTS,
        contexts=contexts,
        aggregate=several,
    )
    even = np.full(problem.size, 1 / problem.size)
    return Yardstick(mixture, law, stack.value(even, problem.draws))


def entered(place: Arena, cell: Cell, stick: Yardstick, rounds: int, told: int) -> Row:
    """The record of a cell, or that its policy would not play."""
    problem = in_periods(place.problems[cell.level], cell.period)
    start = time.thread_time()
    try:
        trace = simulate(
            problem,
            place.given,
            settings(cell.policy, cell.experiment, cell.dimensions),
            rounds=rounds,
            seed=cell.seed,
            horizon=told if cell.period is None else None,
            late=place.late,
            keep_law=False,
        )
    except PolicyError as error:
        return refusal(cell, str(error))
    micros = 1e6 * (time.thread_time() - start) / rounds
    return {"cell": cell.id, **cell._asdict(), **figures(trace, cell, stick), "micros": micros}


def in_periods(problem: Problem, period: int | None) -> Problem:
    """The same limits, to hold in every period."""
    told = {field.name: getattr(problem, field.name) for field in fields(problem)}
    return Problem.known(**{**told, "period": period})


def figures(trace: Trace, cell: Cell, stick: Yardstick) -> dict[str, Any]:
    """What is kept of a play."""
    problem = trace.problem
    away = outside(problem, trace.mean_spend()[-1])
    return {
        **dict.fromkeys(FIGURES),
        **earned(trace.rewards, away, stick.law, stick.uniform),
        "replaced": int(trace.record.replaced.sum()),
        **by_period(problem, trace.spend, cell.period),
        "size": problem.size,
        "mixture": stick.mixture.value,
        "mixture_gap": stick.mixture.gap,
        "told": propensities(trace),
    }


def propensities(trace: Trace) -> bool:
    """Was the chance of every panel that was drawn known, so that a log of it can be evaluated?"""
    record = trace.record
    known = (record.chance > 0.0) | np.isfinite(record.odds).all(axis=1) | record.replaced
    return bool(known.all())
