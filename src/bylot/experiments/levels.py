"""The four levels of constraint tightness (the paper's Table 1), and the problem each makes."""

from typing import NamedTuple

from bylot.data import Pool
from bylot.problem import Limit, Problem, at_most

DRAWS = 5  # M, in all of section 6


class Level(NamedTuple):
    """How tight: what the budget has above M times the mean workload, and the cap on experts."""

    margin: float
    cap: float


LEVELS: dict[str, Level | None] = {
    "tight": Level(margin=0.0, cap=2.0),
    "medium": Level(margin=0.1, cap=2.5),
    "loose": Level(margin=0.5, cap=5.0),
    "none": None,  # no limits at all
}


def problem(pool: Pool, level: str) -> Problem:
    """The pool under a level: mean workload <= M mean(workload) + margin, mean experts <= cap."""
    costs = {"workload": pool.workload, "expert": pool.expert}
    return Problem(pool.workers, costs, limits(pool, LEVELS[level]), draws=DRAWS)


def limits(pool: Pool, level: Level | None) -> list[Limit]:
    """The two limits of a level."""
    if level is None:
        return []
    budget = DRAWS * float(pool.workload.mean()) + level.margin
    return [at_most("workload", budget), at_most("expert", level.cap)]
