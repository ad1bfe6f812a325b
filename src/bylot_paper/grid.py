"""Which cells an experiment has, which of them are wanted, and the worlds they are played in."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import NamedTuple

from bylot.errors import BylotError
from bylot_paper.crowd_scenario import ALL_LEVELS, PAPER_LEVELS, find_level_smoothing
from bylot_paper.policy_settings import (
    ABLATED_PARTS,
    BEYOND_POLICIES,
    COMPARED_POLICIES,
    GUARDED_POLICIES,
    PAPER_POLICIES,
    VARIANT_POLICIES,
    list_tuning_policies,
)
from bylot_paper.scenarios import BUILT_IN_SCENARIOS


class Cell(NamedTuple):
    """What is played: where, under which limits, by whom; in periods, or to a known end.

    >>> Cell("crowd", "tight", "regime", "omd", 3, 7).id
    'crowd/tight/regime/omd/N=3/seed=07'
    >>> Cell("periods", "stress", "regime", "distinct", 3, 7, period=250).id
    'periods/stress/regime/distinct/P=250/N=3/seed=07'
    """

    experiment: str
    level: str
    environment: str
    policy: str
    dimensions: int
    seed: int
    period: int | None = None

    @property
    def id(self) -> str:
        """The name; sorting by it sorts by all fields in turn, but for periods and 100 seeds."""
        place = f"{self.experiment}/{self.level}/{self.environment}/{self.policy}"
        period = "" if self.period is None else f"/P={self.period}"
        return f"{place}{period}/N={self.dimensions}/seed={self.seed:02d}"


CROWD_ENVIRONMENTS = ("stochastic", "regime")
DEFAULT_SEED_COUNTS = {
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
PAPER_ROUNDS = 10_000
LIMITED_LEVELS = tuple(name for name, level in PAPER_LEVELS.items() if level is not None)
BINDING_LEVELS = ("tight", "stress")
"""The levels at which limits bind: what is past the comparison is played at these."""

PERIOD_LENGTHS = (250, 1_000, 5_000)
PERIODS_LENGTH_FACTOR = 2
"""A play in periods is so many times as long as the others."""

SHARED_SCENARIO_EXPERIMENTS = {"ablation": "beyond", "settings": "beyond"}
"""Experiments that are played in the worlds of another one."""


COMPARISON_EXPERIMENTS = ("default", "worlds", "spans")
"""The experiments that the default is chosen by: all policies on the crowd, in other worlds, and
in periods.
"""

OTHER_SCENARIOS = [
    ("hospital", "own", 8),
    *(("synthetic", level, 3) for level in BINDING_LEVELS),
    *((name, "own", dimensions) for name, (dimensions, _) in BUILT_IN_SCENARIOS.items()),
]
"""Worlds besides the crowd's two environments: their names, limits and dimensions."""


def count_rounds(experiment: str, rounds: int) -> int:
    """Rounds of a play, if those of the paper's are so many."""
    return PERIODS_LENGTH_FACTOR * rounds if experiment == "periods" else rounds


class ScenarioJob(NamedTuple):
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


def sweep(seeds: int = DEFAULT_SEED_COUNTS["sweep"]) -> list[Cell]:
    """Figure 1: the paper's policy at N = 3 and 5 under three levels."""
    return [
        Cell("sweep", level, "stochastic", "omd", N, seed)
        for N, level, seed in product((3, 5), LIMITED_LEVELS, range(seeds))
    ]


def crowd(seeds: int = DEFAULT_SEED_COUNTS["crowd"], variants: bool = False) -> list[Cell]:
    """Figures 2 and 3: all policies at N = 3 under four levels in both environments."""
    return cross_crowd_cells(
        "crowd", PAPER_POLICIES + (VARIANT_POLICIES if variants else ()), tuple(PAPER_LEVELS), seeds
    )


def beyond(seeds: int = DEFAULT_SEED_COUNTS["beyond"]) -> list[Cell]:
    """Past the paper: our policies beside its best, at its three levels and a harder one."""
    return cross_crowd_cells("beyond", BEYOND_POLICIES, (*LIMITED_LEVELS, "stress"), seeds)


def ablation(seeds: int = DEFAULT_SEED_COUNTS["ablation"]) -> list[Cell]:
    """What each part of our policies is good for: they are played without it."""
    less = [f"{name}:{part}" for name in GUARDED_POLICIES for part in ABLATED_PARTS]
    return cross_crowd_cells("ablation", (*GUARDED_POLICIES, *less), BINDING_LEVELS, seeds)


def settings(seeds: int = DEFAULT_SEED_COUNTS["settings"]) -> list[Cell]:
    """What better settings would have gained: a grid of them, which is reported and not used."""
    return cross_crowd_cells("settings", tuple(list_tuning_policies()), BINDING_LEVELS, seeds)


def cross_crowd_cells(
    experiment: str, policies: Sequence[str], levels: Sequence[str], seeds: int
) -> list[Cell]:
    """All of these at N = 3 in both environments."""
    return [
        Cell(experiment, level, environment, policy, 3, seed)
        for environment, seed, policy, level in product(
            CROWD_ENVIRONMENTS, range(seeds), policies, levels
        )
    ]


def periods(seeds: int = DEFAULT_SEED_COUNTS["periods"], rounds: int = PAPER_ROUNDS) -> list[Cell]:
    """No end is known, and limits are to hold in every period: of some lengths, and of the whole.

    Periods that do not come up twice are left out.
    """
    whole = count_rounds("periods", rounds)
    lengths = [*(length for length in PERIOD_LENGTHS if 2 * length <= whole), whole]
    return [
        Cell("periods", level, environment, policy, 3, seed, period)
        for environment, seed, policy, level, period in product(
            CROWD_ENVIRONMENTS,
            range(seeds),
            ("omd", "ts-bwk", *GUARDED_POLICIES),
            BINDING_LEVELS,
            lengths,
        )
    ]


def default(seeds: int = DEFAULT_SEED_COUNTS["default"]) -> list[Cell]:
    """All policies on the crowd, at all levels, in both environments."""
    return cross_crowd_cells("default", COMPARED_POLICIES, tuple(ALL_LEVELS), seeds)


def worlds(seeds: int = DEFAULT_SEED_COUNTS["worlds"]) -> list[Cell]:
    """All policies in all other worlds."""
    return [
        Cell("worlds", level, world, policy, dimensions, seed)
        for (world, level, dimensions), seed, policy in product(
            OTHER_SCENARIOS, range(seeds), COMPARED_POLICIES
        )
    ]


def spans(seeds: int = DEFAULT_SEED_COUNTS["spans"], rounds: int = PAPER_ROUNDS) -> list[Cell]:
    """All policies in periods, on the crowd where limits bind and in the hospital: who may be
    taken is judged on what all were played in.
    """
    lengths = [length for length in PERIOD_LENGTHS if 2 * length <= rounds]
    places = [
        (name, level, 3) for name, level in product(CROWD_ENVIRONMENTS, BINDING_LEVELS)
    ] + OTHER_SCENARIOS[:1]
    return [
        Cell("spans", level, world, policy, dimensions, seed, period)
        for (world, level, dimensions), seed, policy, period in product(
            places, range(seeds), COMPARED_POLICIES, lengths
        )
    ]


GRIDS: dict[str, Callable[[int], list[Cell]]] = {
    grid.__name__: grid
    for grid in (sweep, crowd, beyond, ablation, periods, settings, default, worlds, spans)
}
"""All experiments, at the paper's number of rounds and without variants, for a number of seeds."""


def select_cells(
    cells: Sequence[Cell], patterns: Sequence[str], away: Mapping[str, str] | None = None
) -> list[Cell]:
    """The cells whose id matches one of the patterns (as file names do); all if there is none.

    away: worlds whose cells are left out, and why

    >>> [cell.id for cell in select_cells(sweep(seeds=1), ["*/tight/*/N=5/*"])]
    ['sweep/tight/stochastic/omd/N=5/seed=00']
    """
    left = away or {}
    there = [cell for cell in cells if cell.environment not in left]
    for pattern in patterns:
        if not any(fnmatchcase(cell.id, pattern) for cell in there):
            meant = [cell.environment for cell in cells if fnmatchcase(cell.id, pattern)]
            raise BylotError(
                left[meant[0]] if meant else describe_unmatched_pattern(pattern, cells[0])
            )
    if not patterns:
        return there
    return [cell for cell in there if any(fnmatchcase(cell.id, one) for one in patterns)]


def describe_unmatched_pattern(pattern: str, cell: Cell) -> str:
    """What to say of a pattern that is nobody's, with the id of some cell."""
    flags = {"--variants": VARIANT_POLICIES, "--settings": ("settings/",)}
    add = [flag for flag, names in flags.items() if any(name in pattern for name in names)]
    return (
        f"no cell matches --only {pattern!r}; ids look like {cell.id}, and a pattern "
        f"like '*/tight/*/omd/*'{''.join(f'; add {flag} to play those' for flag in add)}"
    )


def group_cells_by_scenario(cells: Iterable[Cell]) -> list[ScenarioJob]:
    """The cells by world, in the order in which the worlds first come up."""
    worlds: dict[tuple[str, str, int, int, int], list[Cell]] = {}
    for cell in cells:
        experiment, skills = find_scenario_experiment(cell), find_level_smoothing(cell.level)
        key = experiment, cell.environment, cell.dimensions, skills, cell.seed
        worlds.setdefault(key, []).append(cell)
    return [ScenarioJob(*key, tuple(inside)) for key, inside in worlds.items()]


def find_scenario_experiment(cell: Cell) -> str:
    """The experiment in whose worlds a cell is played.

    >>> find_scenario_experiment(Cell("spans", "own", "hospital", "distinct", 8, 0, period=250))
    'worlds'
    """
    if cell.experiment == "spans":
        return "default" if cell.environment in CROWD_ENVIRONMENTS else "worlds"
    return SHARED_SCENARIO_EXPERIMENTS.get(cell.experiment, cell.experiment)
