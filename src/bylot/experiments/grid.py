"""Which cells an experiment has, which of them are wanted, and the worlds they are played in."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import NamedTuple

from bylot.errors import BylotError
from bylot.experiments.cell import Cell
from bylot.experiments.levels import LEVELS
from bylot.experiments.lineup import PAPER, VARIANTS

ENVIRONMENTS = ("stochastic", "regime")
SEEDS = {"sweep": 5, "crowd": 20}
ROUNDS = 10_000


class Job(NamedTuple):
    """One world and the cells wanted in it: its values are drawn once and shared by all."""

    experiment: str
    environment: str
    dimensions: int
    seed: int
    cells: tuple[Cell, ...]

    def __str__(self) -> str:
        return f"{self.experiment}-{self.environment}-N={self.dimensions}-seed={self.seed:02d}"


def sweep(seeds: int = SEEDS["sweep"]) -> list[Cell]:
    """Figure 1: the paper's policy at N = 3 and 5 under three levels."""
    levels = [name for name, level in LEVELS.items() if level is not None]
    return [
        Cell("sweep", level, "stochastic", "omd", N, seed)
        for N, level, seed in product((3, 5), levels, range(seeds))
    ]


def crowd(seeds: int = SEEDS["crowd"], variants: bool = False) -> list[Cell]:
    """Figures 2 and 3: all policies at N = 3 under four levels in both environments."""
    policies = PAPER + (VARIANTS if variants else ())
    return [
        Cell("crowd", level, environment, policy, 3, seed)
        for environment, seed, policy, level in product(
            ENVIRONMENTS, range(seeds), policies, LEVELS
        )
    ]


def chosen(cells: Sequence[Cell], patterns: Sequence[str]) -> list[Cell]:
    """The cells whose id matches one of the patterns (as file names do); all if there is none.

    >>> [cell.id for cell in chosen(sweep(seeds=1), ["*/tight/*/N=5/*"])]
    ['sweep/tight/stochastic/omd/N=5/seed=00']
    """
    for pattern in patterns:
        if not any(fnmatchcase(cell.id, pattern) for cell in cells):
            variant = any(name in pattern for name in VARIANTS)
            raise BylotError(
                f"no cell matches --only {pattern!r}; ids look like {cells[0].id}, and a pattern "
                f"like '*/tight/*/omd/*'{'; add --variants to play those' * variant}"
            )
    if not patterns:
        return list(cells)
    return [cell for cell in cells if any(fnmatchcase(cell.id, one) for one in patterns)]


def jobs(cells: Iterable[Cell]) -> list[Job]:
    """The cells by world, in the order in which the worlds first come up."""
    worlds: dict[tuple[str, str, int, int], list[Cell]] = {}
    for cell in cells:
        key = cell.experiment, cell.environment, cell.dimensions, cell.seed
        worlds.setdefault(key, []).append(cell)
    return [Job(*key, tuple(inside)) for key, inside in worlds.items()]
