"""Which cells an experiment has, which of them are wanted, and the worlds they are played in."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import NamedTuple

from bylot.errors import BylotError
from bylot.experiments.arena import BUILT_IN
from bylot.experiments.cell import Cell
from bylot.experiments.levels import KNOWN, LEVELS, smoothing
from bylot.experiments.lineup import (
    BEYOND,
    CONTENDERS,
    GUARDED,
    PAPER,
    PARTS,
    VARIANTS,
    tried,
)

ENVIRONMENTS = ("stochastic", "regime")
SEEDS = {
    "sweep": 5,
    "crowd": 20,
    "beyond": 20,
    "ablation": 20,
    "periods": 5,
    "settings": 4,
    "default": 20,
    "worlds": 6,
    "spans": 6,
}
ROUNDS = 10_000
LIMITED = tuple(name for name, level in LEVELS.items() if level is not None)
HARD = ("tight", "stress")
"""The levels at which limits bind: what is past the comparison is played at these."""

PERIODS = (250, 1_000, 5_000)
LONGER = 2
"""A play in periods is so many times as long as the others."""

TOGETHER = {"ablation": "beyond", "settings": "beyond"}
"""Experiments that are played in the worlds of another one."""


CONTEST = ("default", "worlds", "spans")
"""The experiments that the default is chosen by: all policies on the crowd, in other worlds, and
in periods.
"""

WORLDS = [
    ("hospital", "own", 8),
    *(("synthetic", level, 3) for level in HARD),
    *((name, "own", dimensions) for name, (dimensions, _) in BUILT_IN.items()),
]
"""Worlds besides the crowd's two environments: their names, limits and dimensions."""


def length(experiment: str, rounds: int) -> int:
    """Rounds of a play, if those of the paper's are so many."""
    return LONGER * rounds if experiment == "periods" else rounds


class Job(NamedTuple):
    """One world and the cells wanted in it: its values are drawn once and shared by all."""

    experiment: str
    environment: str
    dimensions: int
    smoothing: int
    seed: int
    cells: tuple[Cell, ...]

    def __str__(self) -> str:
        skills = f"-smoothing={self.smoothing}" if self.smoothing else ""
        world = f"{self.environment}-N={self.dimensions}{skills}"
        return f"{self.experiment}-{world}-seed={self.seed:02d}"


def sweep(seeds: int = SEEDS["sweep"]) -> list[Cell]:
    """Figure 1: the paper's policy at N = 3 and 5 under three levels."""
    return [
        Cell("sweep", level, "stochastic", "omd", N, seed)
        for N, level, seed in product((3, 5), LIMITED, range(seeds))
    ]


def crowd(seeds: int = SEEDS["crowd"], variants: bool = False) -> list[Cell]:
    """Figures 2 and 3: all policies at N = 3 under four levels in both environments."""
    return everywhere("crowd", PAPER + (VARIANTS if variants else ()), tuple(LEVELS), seeds)


def beyond(seeds: int = SEEDS["beyond"]) -> list[Cell]:
    """Past the paper: our policies beside its best, at its three levels and a harder one."""
    return everywhere("beyond", BEYOND, (*LIMITED, "stress"), seeds)


def ablation(seeds: int = SEEDS["ablation"]) -> list[Cell]:
    """What each part of our policies is good for: they are played without it."""
    less = [f"{name}:{part}" for name in GUARDED for part in PARTS]
    return everywhere("ablation", (*GUARDED, *less), HARD, seeds)


def settings(seeds: int = SEEDS["settings"]) -> list[Cell]:
    """What better settings would have gained: a grid of them, which is reported and not used."""
    return everywhere("settings", tuple(tried()), HARD, seeds)


def everywhere(
    experiment: str, policies: Sequence[str], levels: Sequence[str], seeds: int
) -> list[Cell]:
    """All of these at N = 3 in both environments."""
    return [
        Cell(experiment, level, environment, policy, 3, seed)
        for environment, seed, policy, level in product(
            ENVIRONMENTS, range(seeds), policies, levels
        )
    ]


def periods(seeds: int = SEEDS["periods"], rounds: int = ROUNDS) -> list[Cell]:
    """No end is known, and limits are to hold in every period: of some lengths, and of the whole.

    Periods that do not come up twice are left out.
    """
    whole = length("periods", rounds)
    lengths = [*(length for length in PERIODS if 2 * length <= whole), whole]
    return [
        Cell("periods", level, environment, policy, 3, seed, period)
        for environment, seed, policy, level, period in product(
            ENVIRONMENTS, range(seeds), ("omd", "ts-bwk", *GUARDED), HARD, lengths
        )
    ]


def default(seeds: int = SEEDS["default"]) -> list[Cell]:
    """All policies on the crowd, at all levels, in both environments."""
    return everywhere("default", CONTENDERS, tuple(KNOWN), seeds)


def worlds(seeds: int = SEEDS["worlds"]) -> list[Cell]:
    """All policies in all other worlds."""
    return [
        Cell("worlds", level, world, policy, dimensions, seed)
        for (world, level, dimensions), seed, policy in product(WORLDS, range(seeds), CONTENDERS)
    ]


def spans(seeds: int = SEEDS["spans"], rounds: int = ROUNDS) -> list[Cell]:
    """All policies in periods, on the crowd where limits bind and in the hospital: who may be
    taken is judged on what all were played in.
    """
    lengths = [length for length in PERIODS if 2 * length <= rounds]
    places = [(name, level, 3) for name, level in product(ENVIRONMENTS, HARD)] + WORLDS[:1]
    return [
        Cell("spans", level, world, policy, dimensions, seed, period)
        for (world, level, dimensions), seed, policy, period in product(
            places, range(seeds), CONTENDERS, lengths
        )
    ]


GRIDS: dict[str, Callable[[int], list[Cell]]] = {
    grid.__name__: grid
    for grid in (sweep, crowd, beyond, ablation, periods, settings, default, worlds, spans)
}
"""All experiments, at the paper's number of rounds and without variants, for a number of seeds."""


def chosen(
    cells: Sequence[Cell], patterns: Sequence[str], away: Mapping[str, str] | None = None
) -> list[Cell]:
    """The cells whose id matches one of the patterns (as file names do); all if there is none.

    away: worlds whose cells are left out, and why

    >>> [cell.id for cell in chosen(sweep(seeds=1), ["*/tight/*/N=5/*"])]
    ['sweep/tight/stochastic/omd/N=5/seed=00']
    """
    left = away or {}
    there = [cell for cell in cells if cell.environment not in left]
    for pattern in patterns:
        if not any(fnmatchcase(cell.id, pattern) for cell in there):
            meant = [cell.environment for cell in cells if fnmatchcase(cell.id, pattern)]
            raise BylotError(left[meant[0]] if meant else unmatched(pattern, cells[0]))
    if not patterns:
        return there
    return [cell for cell in there if any(fnmatchcase(cell.id, one) for one in patterns)]


def unmatched(pattern: str, cell: Cell) -> str:
    """What to say of a pattern that is nobody's, with the id of some cell."""
    flags = {"--variants": VARIANTS, "--settings": ("settings/",)}
    add = [flag for flag, names in flags.items() if any(name in pattern for name in names)]
    return (
        f"no cell matches --only {pattern!r}; ids look like {cell.id}, and a pattern "
        f"like '*/tight/*/omd/*'{''.join(f'; add {flag} to play those' for flag in add)}"
    )


def jobs(cells: Iterable[Cell]) -> list[Job]:
    """The cells by world, in the order in which the worlds first come up."""
    worlds: dict[tuple[str, str, int, int, int], list[Cell]] = {}
    for cell in cells:
        experiment, skills = played_in(cell), smoothing(cell.level)
        key = experiment, cell.environment, cell.dimensions, skills, cell.seed
        worlds.setdefault(key, []).append(cell)
    return [Job(*key, tuple(inside)) for key, inside in worlds.items()]


def played_in(cell: Cell) -> str:
    """The experiment in whose worlds a cell is played.

    >>> played_in(Cell("spans", "own", "hospital", "distinct", 8, 0, period=250))
    'worlds'
    """
    if cell.experiment == "spans":
        return "default" if cell.environment in ENVIRONMENTS else "worlds"
    return TOGETHER.get(cell.experiment, cell.experiment)
