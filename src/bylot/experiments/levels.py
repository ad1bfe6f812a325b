"""The levels of constraint tightness (the paper's Table 1, and one past it), and the problem each
makes.
"""

from typing import NamedTuple

from bylot.data import Pool
from bylot.problem import Limit, Problem, at_most

DRAWS = 5  # M, in all of section 6


class Level(NamedTuple):
    """How tight: what the budget has above a share of M times the mean workload, and the cap on
    experts; and how many annotations by an average worker smooth the skills that are played on.
    """

    margin: float
    cap: float
    share: float = 1.0
    smoothing: int = 0


LEVELS: dict[str, Level | None] = {
    "tight": Level(margin=0.0, cap=2.0),
    "medium": Level(margin=0.1, cap=2.5),
    "loose": Level(margin=0.5, cap=5.0),
    "none": None,  # no limits at all
}
"""The paper's. A quarter of its skills is exactly 1: the optimum is all but the largest reward."""

STRESS = Level(margin=0.0, cap=1.0, share=0.8, smoothing=10)
"""Where there is more to tell policies apart by: no skill is exactly 1, and limits are tighter."""

KNOWN: dict[str, Level | None] = {**LEVELS, "stress": STRESS}


def smoothing(level: str) -> int:
    """Of the skills that this level is played on; a world's own limits ask for none."""
    known = KNOWN.get(level)
    return known.smoothing if known else 0


def problem(pool: Pool, level: str, period: int | None = None) -> Problem:
    """The pool under a level: mean workload <= share M mean(workload) + margin, experts <= cap."""
    costs = {"workload": pool.workload, "expert": pool.expert}
    promised = limits(pool, KNOWN[level])
    return Problem(pool.workers, costs, promised, draws=DRAWS, period=period)


def limits(pool: Pool, level: Level | None) -> list[Limit]:
    """The two limits of a level."""
    if level is None:
        return []
    budget = level.share * DRAWS * float(pool.workload.mean()) + level.margin
    return [at_most("workload", budget), at_most("expert", level.cap)]
