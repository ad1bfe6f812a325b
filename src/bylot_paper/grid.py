"""The experiments: their policies, their cells, and the grouping of cells into jobs.

The paper's settings are for raw rewards, sums over N dimensions between 0 and N; policies here
learn from rewards in [0, 1]. Settings that multiply a reward or are compared with one change: an
index mu + c sqrt(...) + lambda.C keeps its order if all of it is divided by N, and a step r / eta
does not change if eta is divided too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product
from typing import Any, NamedTuple, cast, get_args

from bylot.errors import BylotError
from bylot.policies import Omd, Policy, find_policy
from bylot.policies.validation import FeedbackKind
from bylot_paper.policies.bandits import Cbwk, Cucb, Moe
from bylot_paper.scenarios import ALL_LEVELS, BUILT_IN_SCENARIOS, PAPER_LEVELS, find_level_smoothing

PAPER_POLICIES = ("random", "greedy", "cucb", "cbwk", "ts", "ts-bwk", "moe", "omd")
VARIANT_POLICIES = ("cbwk-instant", "ts-bwk-instant", "omd-sum", "omd-frozen", "omd-plain")
BEYOND_POLICIES = ("omd", "ts-bwk", "cbwk", "strict", "tangent", "distinct")
"""The paper's best three and ours."""

GUARDED_POLICIES = ("tangent", "distinct")
"""Our policies that keep limits at the end of every period."""

OWN_POLICIES = ("strict", "tangent", "distinct", "noisy-or")
COMPARED_POLICIES = (*PAPER_POLICIES, *OWN_POLICIES)  # the policies that the default is chosen from

FEEDBACK_POLICIES = (
    *("random", "cucb:c=0.866", "ts", "ts-bwk", "c2mab-v"),
    *("distinct", "noisy-or"),
)
"""The policies compared with each kind of feedback; 0.866 is the bonus of the literature."""

ABLATED_PARTS = {
    "guard=False": "no guard",
    "pace=None": "no pacing",
    "guard=False,pace=None": "neither",
    "eps=0.0": "no floor",
    "clip=False": "no clip",
}
"""What the ablation removes, as settings and in words."""
ABLATED_POLICIES = [*GUARDED_POLICIES, *map(":".join, product(GUARDED_POLICIES, ABLATED_PARTS))]
ABLATION_LABELS = {"": "complete", **ABLATED_PARTS}


def make_experiment_policy(policy: str, experiment: str, dimensions: int) -> Policy:
    """Make a policy with the paper's settings for rewards of 0 to N = dimensions, or with those
    that its name spells out.

    >>> make_experiment_policy("omd:eta_mult=0.1", "beyond", dimensions=3) == Omd(eta_mult=0.1)
    True
    """
    found: Any = find_policy(policy)
    if ":" in policy or policy == "omd-plain":  # the theorems are for rewards in [0, 1]
        return cast(Policy, found)
    N = dimensions
    paper: dict[type[Any], dict[str, float]] = {  # ts-bwk has a posterior of r / N already
        Cucb: {"c": 2.0 / N},
        Cbwk: {"c": 2.0 / N, "step": 10.0 / N},
        Moe: {"rate": 0.01 * N, "step": 4e-4 / N},
        Omd: {"eta_mult": (0.03 if experiment == "sweep" else 0.05) / N},
    }
    return cast(Policy, replace(found, **paper.get(type(found), {})))


CROWD_ENVIRONMENTS = ("stochastic", "regime")
PAPER_ROUNDS = 10_000
SWEEP_STEP_ROUNDS = 10  # rounds between the points of a curve of `sweep`: the batch of OMD
PERIOD_LENGTHS = (250, 1_000, 5_000)
LIMITED_LEVELS = tuple(name for name, level in PAPER_LEVELS.items() if level is not None)
BINDING_LEVELS = ("tight", "stress")
"""The levels at which limits bind: ablations and periods are played at these."""

COMPARISON_EXPERIMENTS = ("default", "worlds", "spans")
"""The experiments that choose the default policy: on the crowd, in other scenarios, in periods."""

FEEDBACK_EXPERIMENT = "feedback"
"""The experiment that shows what feedback is worth, in scenarios whose tables are the user's."""
FEEDBACK_KINDS = get_args(FeedbackKind)


class Cell(NamedTuple):
    """One run of an experiment; its id fixes everything about it.

    period: length of the periods in which limits must hold; None for a run with a known horizon

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
        """The name; sorting by it sorts by all fields in turn, except periods and 100 seeds."""
        place = f"{self.experiment}/{self.level}/{self.environment}/{self.policy}"
        period = "" if self.period is None else f"/P={self.period}"
        return f"{place}{period}/N={self.dimensions}/seed={self.seed:02d}"


class ScenarioJob(NamedTuple):
    """One scenario and the cells to run in it: they share its values, which are drawn once."""

    experiment: str
    environment: str
    dimensions: int
    smoothing: int
    seed: int
    cells: tuple[Cell, ...]

    def __str__(self) -> str:
        skills = f"-smoothing={self.smoothing}" if self.smoothing else ""
        scenario = f"{self.experiment}-{self.environment}-N={self.dimensions}"
        return f"{scenario}{skills}-seed={self.seed:02d}"


Place = tuple[str, str, int]  # environment, level of the limits, number of dimensions


class Grid(NamedTuple):
    """The cells of an experiment: all combinations of places, seeds and policies."""

    seeds: int
    places: Sequence[Place]
    policies: Sequence[str]
    in_periods: bool = False


def place_on_crowd(levels: Iterable[str]) -> list[Place]:
    """These levels in both environments of the crowd, at N = 3."""
    return [(environment, level, 3) for environment in CROWD_ENVIRONMENTS for level in levels]


OTHER_SCENARIOS: list[Place] = [
    ("hospital", "own", 8),
    *(("synthetic", level, 3) for level in BINDING_LEVELS),
    *((name, "own", dimensions) for name, (dimensions, _) in BUILT_IN_SCENARIOS.items()),
]
"""Scenarios besides the two environments of the crowd."""

GRIDS = {
    "sweep": Grid(5, [("stochastic", x, N) for N in (3, 5) for x in LIMITED_LEVELS], ["omd"]),
    "crowd": Grid(20, place_on_crowd(PAPER_LEVELS), PAPER_POLICIES),
    "beyond": Grid(20, place_on_crowd([*LIMITED_LEVELS, "stress"]), BEYOND_POLICIES),
    "ablation": Grid(20, place_on_crowd(BINDING_LEVELS), ABLATED_POLICIES),
    "periods": Grid(
        5, place_on_crowd(BINDING_LEVELS), ["omd", "ts-bwk", *GUARDED_POLICIES], in_periods=True
    ),
    FEEDBACK_EXPERIMENT: Grid(20, [], FEEDBACK_POLICIES),
    "default": Grid(20, place_on_crowd(ALL_LEVELS), COMPARED_POLICIES),
    "worlds": Grid(6, OTHER_SCENARIOS, COMPARED_POLICIES),
    "spans": Grid(
        6, [*place_on_crowd(BINDING_LEVELS), OTHER_SCENARIOS[0]], COMPARED_POLICIES, in_periods=True
    ),
}
"""sweep: Figure 1. crowd: Figures 2 and 3. beyond: our policies beside the paper's best, at a
harder level too. ablation: our policies without one of their parts. periods: no known end, limits
must hold in every period. default, worlds, spans: all policies on the crowd, in other scenarios,
and in periods. feedback: in the scenarios whose tables are given, with one score, with member
scores and with the winner.
"""


def list_feedback_cells(tables: Iterable[str], seeds: int | None = None) -> list[Cell]:
    """List the cells of `feedback` in these scenarios; the level of a cell is its kind of feedback.

    A policy that learns from the reward alone is played once.
    """
    grid = GRIDS[FEEDBACK_EXPERIMENT]
    return [
        Cell(FEEDBACK_EXPERIMENT, kind, table, policy, 1, seed)
        for table, seed, policy in product(tables, range(seeds or grid.seeds), grid.policies)
        for kind in cast(Policy, find_policy(policy)).feedback
    ]


def list_cells(
    experiment: str, seeds: int | None = None, rounds: int = PAPER_ROUNDS, variants: bool = False
) -> list[Cell]:
    """List the cells of an experiment; `variants` adds other readings of the paper's policies."""
    grid = GRIDS[experiment]
    policies = [*grid.policies, *(VARIANT_POLICIES if variants else ())]
    periods: list[int | None] = [None]
    if grid.in_periods:  # of lengths that occur at least twice
        whole = count_rounds(experiment, rounds)
        periods = [length for length in PERIOD_LENGTHS if 2 * length <= whole]
        periods += [whole] if experiment == "periods" else []
    return [
        Cell(experiment, level, environment, policy, dimensions, seed, period)
        for (environment, level, dimensions), seed, policy, period in product(
            grid.places, range(seeds or grid.seeds), policies, periods
        )
    ]


def count_rounds(experiment: str, rounds: int) -> int:
    """Rounds per run of an experiment; `periods` runs twice as long as the others."""
    return 2 * rounds if experiment == "periods" else rounds


def select_cells(
    cells: Sequence[Cell], patterns: Sequence[str], excluded: Mapping[str, str] | None = None
) -> list[Cell]:
    """Select the cells whose id matches a pattern (as file names do); all without patterns.

    excluded: environments whose cells are left out, each with the reason

    >>> [cell.id for cell in select_cells(list_cells("sweep", seeds=1), ["*/tight/*/N=5/*"])]
    ['sweep/tight/stochastic/omd/N=5/seed=00']
    """
    reasons = excluded or {}
    included = [cell for cell in cells if cell.environment not in reasons]
    for pattern in patterns:
        if not any(fnmatchcase(cell.id, pattern) for cell in included):
            meant = [cell.environment for cell in cells if fnmatchcase(cell.id, pattern)]
            if meant:
                raise BylotError(reasons[meant[0]])
            remedy = f"ids look like {cells[0].id}, and patterns like '*/tight/*/omd/*'"
            if any(name in pattern for name in VARIANT_POLICIES):
                remedy += "; add --variants to include those"
            raise BylotError(f"no cell matches --only {pattern!r}", remedy=remedy)
    return [
        cell
        for cell in included
        if not patterns or any(fnmatchcase(cell.id, pattern) for pattern in patterns)
    ]


def group_cells_by_scenario(cells: Iterable[Cell]) -> list[ScenarioJob]:
    """Group cells by scenario, in the order in which scenarios first occur."""
    groups: dict[tuple[str, str, int, int, int], list[Cell]] = {}
    for cell in cells:
        experiment = "beyond" if cell.experiment == "ablation" else cell.experiment
        if experiment == "spans":
            experiment = "default" if cell.environment in CROWD_ENVIRONMENTS else "worlds"
        key = (
            experiment,
            cell.environment,
            cell.dimensions,
            find_level_smoothing(cell.level),
            cell.seed,
        )
        groups.setdefault(key, []).append(cell)
    return [ScenarioJob(*key, tuple(group)) for key, group in groups.items()]
