"""Made-up records of the paper's experiments that follow a given story, for figures and claims."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl

from bylot.numerics.jit import Floats
from bylot.reports import PAPER_POLICY_STYLES, write_pages
from bylot_paper.records import RECORD_SCHEMA
from bylot_paper.report import compose_report

LEVELS = ("tight", "medium", "loose", "none")
BOUNDS = {"tight": (1.0, 2.0), "medium": (1.1, 2.5), "loose": (1.5, 5.0), "none": (None, None)}
OPTIMUM = {"tight": 2.95, "medium": 2.955, "loose": 2.965, "none": 2.97}
ROUNDS = 10_000
RUN = {
    "form": "bylot-run",
    "version": 4,
    "data": {"name": "synthetic", "digest": "0" * 16, "synthetic": True},
    "rounds": ROUNDS,
    "window": 500,
    "code": "0" * 16,
}


def write_report_without_figures(records: Any, folder: Path) -> list[Path]:
    """Write the pages of a report; its figures take most of the time and are tested elsewhere."""
    content = compose_report(records, defaultdict(list))
    return write_pages(content.blocks, content.title, folder, content.data)


@dataclass(frozen=True)
class Play:
    """A group of the crowd: its reward goes from `start` to `end` with time constant `tau`."""

    start: float = 2.85
    end: float = 2.93
    tau: float = 500.0
    feasible: float = 1.0  # share of the seeds
    expert: float = 1.5
    noise: float = 0.003
    excess: float = 0.0  # R2 at the first sampled round, falling as 1 / sqrt(t)


@dataclass(frozen=True)
class Descent:
    """A group of the sweep: R1 by n (in parts of its height), R2 by n, experts by n."""

    height: float = 0.1
    r1: Callable[[Floats], Floats] = lambda n: flat_then_falling(n)
    r2: Callable[[Floats], Floats] = lambda n: 0.0 * n
    expert: tuple[float, float] = (1.5, 1.5)  # first and last of a falling mean
    noise: float = 0.3  # of the cost of one round
    lag: float = 0.002  # how much less the paper's proxy of the optimum earns


@dataclass(frozen=True)
class Story:
    """The results of every group; a missing group has no records."""

    crowd: Mapping[tuple[str, str, str], Play] = field(default_factory=dict)
    sweep: Mapping[tuple[int, str], Descent] = field(default_factory=dict)


def make_paper_records(story: Story, seeds: int = 20, points: int = 50, **run: Any) -> Any:
    """Records (cells and run) of a story; the same call gives the same records."""
    rows = [
        make_crowd_record(*key, play, seed, seeds, points)
        for key, play in story.crowd.items()
        for seed in range(seeds)
    ]
    rows += [
        make_sweep_record(*key, descent, seed)
        for key, descent in story.sweep.items()
        for seed in range(min(seeds, 5))
    ]
    cells = pl.DataFrame(rows, schema=RECORD_SCHEMA).sort("cell")
    return SimpleNamespace(cells=cells, run={**RUN, **run})


def make_crowd_record(
    environment: str, level: str, policy: str, play: Play, seed: int, seeds: int, points: int
) -> dict[str, Any]:
    """One row of the comparison."""
    rng = np.random.default_rng([seed, sum(map(ord, environment + level + policy))])
    t = np.linspace(ROUNDS / points, ROUNDS, points)
    decay = np.exp(-t / play.tau)
    # A seed is good or bad for all policies
    seed_effect = 0.004 * np.random.default_rng(seed).normal()
    curve = (
        play.end - (play.end - play.start) * decay + seed_effect + rng.normal(0, play.noise, points)
    )
    workload_bound, expert_bound = BOUNDS[level]
    kept = seed < round(play.feasible * seeds)
    expert = play.expert
    if expert_bound is not None and not kept:
        expert = max(expert, expert_bound + 0.2)
    outside = 0.0 if kept or expert_bound is None else 0.2
    optimum = OPTIMUM[level] + seed_effect
    r2 = play.excess * np.sqrt(t[0] / t) + (outside if play.excess == 0 else 0.0)
    return make_common_columns("crowd", environment, level, policy, 3, seed) | {
        "reward": curve.mean(),
        "reward_late": curve[-points // 10 :].mean(),
        "workload": 0.95,
        "expert": expert,
        "workload_bound": workload_bound,
        "expert_bound": expert_bound,
        "outside": outside,
        "feasible": outside <= 0,
        "r2": outside,
        "optimum": optimum,
        "uniform": 2.80 + seed_effect,
        "regret_true": optimum - curve.mean(),
        "curve_t": t.astype(int).tolist(),
        "curve_reward": curve.tolist(),
        "curve_workload": np.full(points, 0.95).tolist(),
        "curve_expert": np.full(points, expert).tolist(),
        "curve_r1_true": (optimum - np.cumsum(curve) / np.arange(1, points + 1)).tolist(),
        "curve_r2": r2.tolist(),
    }


def make_sweep_record(dimensions: int, level: str, descent: Descent, seed: int) -> dict[str, Any]:
    """One row of the sweep, sampled at every tenth round."""
    rng = np.random.default_rng([seed, dimensions, LEVELS.index(level)])
    n = np.arange(1.0, ROUNDS / 10 + 1)
    seed_effect = 1 + 0.02 * np.random.default_rng(seed).normal()
    r1 = (
        descent.height * seed_effect * descent.r1(n)
        + 0.01 * descent.height * rng.normal(size=n.size) / n
    )
    r2 = seed_effect * descent.r2(n)
    first, last = descent.expert
    per_batch = last + (first - last) / n + rng.normal(0, descent.noise, n.size) / np.sqrt(10)
    expert = np.cumsum(per_batch) / n
    workload = np.cumsum(0.9 + rng.normal(0, descent.noise, n.size) / np.sqrt(10)) / n
    workload_bound, expert_bound = BOUNDS[level]
    optimum = 2.95 * dimensions / 3
    return make_common_columns("sweep", "stochastic", level, "omd", dimensions, seed) | {
        "reward": optimum - r1[-1],
        "reward_late": optimum - r1[-1],
        "workload": workload[-1],
        "expert": expert[-1],
        "workload_bound": workload_bound,
        "expert_bound": expert_bound,
        "outside": r2[-1],
        "feasible": bool(r2[-1] <= 0),
        "r2": r2[-1],
        "optimum": optimum,
        "uniform": optimum * 0.95,
        "regret_true": r1[-1],
        "regret_proxy": r1[-1] - descent.lag,
        "curve_t": (10 * n).astype(int).tolist(),
        "curve_reward": (optimum - r1).tolist(),
        "curve_workload": workload.tolist(),
        "curve_expert": expert.tolist(),
        "curve_r1_true": r1.tolist(),
        "curve_r1_proxy": (r1 - descent.lag).tolist(),
        "curve_r2": r2.tolist(),
    }


def make_common_columns(
    experiment: str, environment: str, level: str, policy: str, dimensions: int, seed: int
) -> dict[str, Any]:
    """The columns that records of all experiments share."""
    name = f"{experiment}/{level}/{environment}/{policy}/N={dimensions}/seed={seed:02d}"
    return dict.fromkeys(RECORD_SCHEMA) | {
        "cell": name,
        "experiment": experiment,
        "environment": environment,
        "level": level,
        "policy": policy,
        "dimensions": dimensions,
        "seed": seed,
        "optimum_gap": 1e-9,
        "r1_bound": 5.0,
        "r2_bound": 0.6,
    }


def play_as_written(environment: str, level: str, policy: str) -> Play:
    """The comparison as the paper reports it, as far as its sentences are consistent."""
    regime, tight = environment == "regime", level == "tight"
    unlimited = {"tight": 0.1, "medium": 0.5}.get(level, 1.0)
    ts_bwk_feasible = {"tight": 0.85 if regime else 0.95}.get(level, 1.0)
    cbwk_feasible = {"tight": 0.65 if regime else 0.4, "medium": 0.8}.get(level, 1.0)
    noisy = Play(
        2.80, 2.82 if tight else 2.85, 2_000, {"tight": 0.5}.get(level, 1.0), 1.9, noise=0.03
    )
    plays = {
        "omd": Play(2.86 if tight else 2.90, 2.96, 3_000, 1.0, 1.8 if tight else 2.2, noise=0.001),
        "ts-bwk": Play(2.87, 2.925 if regime else 2.935, 300, ts_bwk_feasible, 1.9),
        "cbwk": Play(2.60, 2.90 if tight else 2.935, 2_500, cbwk_feasible, 1.9),
        "moe": noisy,
        "ts": Play(2.93, 2.976, 200, unlimited, 2.3),
        "cucb": Play(2.90, 2.94, 200, unlimited, 2.3),
        "greedy": Play(2.94, 2.970, 100, unlimited, 2.3),
        "random": replace(noisy, start=2.60 if tight else 2.75, end=2.75, expert=1.0),
    }
    return plays[policy]


def play_with_less_feasible_rivals(environment: str, level: str, policy: str) -> Play:
    """The same, but both rivals break limits far more often in the changing environment."""
    play = play_as_written(environment, level, policy)
    if (environment, level) == ("regime", "tight") and policy in ("ts-bwk", "cbwk"):
        return replace(play, feasible=0.3 if policy == "ts-bwk" else 0.0)
    return play


def play_contrary(environment: str, level: str, policy: str) -> Play:
    """The comparison reversed: OMD earns less over time and breaks limits, CBwK is best."""
    regime, tight = environment == "regime", level == "tight"
    strict = {"tight": 1.0, "medium": 0.9, "loose": 0.5}.get(level, 1.0)
    late = 2_000.0 if regime else 20_000.0
    plays = {
        "omd": Play(2.90, 2.70 if regime else 2.75, 9_000, 0.7, 2.4 if tight else 2.2, excess=0.1),
        "ts-bwk": Play(2.60, 2.95 if regime else 2.70, late, 0.1 if not regime else 1.0, 1.0),
        "cbwk": Play(2.955, 2.96, 100, 1.0, 1.0, noise=0.01),
        "moe": Play(2.80, 2.80, 200, strict, 1.0, noise=0.001),
        "ts": Play(2.80, 2.80, 200, strict, 1.0 if tight else 1.5),
        "cucb": Play(2.85, 2.85, 200, strict, 1.0 if tight else 1.5),
        "greedy": Play(2.80, 2.80, 200, strict, 1.0 if tight else 1.5),
        "random": Play(2.75 if tight else 2.60, 2.75 if tight else 2.60, 200, 1.0, noise=0.001),
    }
    return plays[policy]


def flat_then_falling(n: Floats) -> Floats:
    """Constant for 30 updates, then falling as 1 / sqrt(n)."""
    return np.asarray(np.where(n < 30, 1.0, np.sqrt(30 / n)))


def falling_until(last: float, size: float) -> Callable[[Floats], Floats]:
    """Falling as 1 / sqrt(n), and 0 from `last` on."""
    return lambda n: np.asarray(np.where(n < last, size / np.sqrt(n), 0.0))


def descent_as_written(dimensions: int, level: str) -> Descent:
    """The sweep as in the paper."""
    wide = dimensions == 5
    noise = 0.6 if wide else 0.3
    if level == "tight":
        excess = falling_until(800, 0.2) if wide else falling_until(300, 0.1)
        return Descent(0.1, r2=excess, expert=(2.6, 1.8), noise=noise)
    if level == "medium":
        return Descent(0.12, r2=falling_until(25, 0.02), noise=noise)
    humped = lambda n: flat_then_falling(n) + 0.25 * np.exp(-(np.log(n / 15) ** 2))  # noqa: E731
    return Descent(0.05 * dimensions, r1=humped, noise=noise)


def falling_then_rising(n: Floats) -> Floats:
    """Falling faster than 1 / sqrt(n), then rising."""
    return np.asarray(np.where(n < 100, n**-0.8, 0.025 * (n / 100) ** 0.3))


def descent_contrary(dimensions: int, level: str) -> Descent:
    """The sweep reversed: R2 stays where it should fall, and N = 5 has neither bump nor spread.

    R1 falls fast at first, then rises.
    """
    bump = lambda n: falling_then_rising(n) + np.exp(-(np.log(n / 15) ** 2))  # noqa: E731
    return Descent(
        0.1,
        r1=bump if (dimensions, level) == (3, "loose") else falling_then_rising,
        r2=falling_until(5, 0.1) if level == "tight" else lambda n: 0.05 + 0.1 / n,
        expert=(1.0, 1.8),
        noise=0.2 if dimensions == 5 else 0.4,
        lag=0.1,
    )


def make_story(crowd: Callable[..., Play], sweep: Callable[..., Descent]) -> Story:
    """Combine a play per cell of the comparison and a descent per cell of the sweep."""
    return Story({key: crowd(*key) for key in GRID}, {key: sweep(*key) for key in SWEEP})


GRID = [
    (environment, level, policy)
    for environment in ("stochastic", "regime")
    for level in LEVELS
    for policy in PAPER_POLICY_STYLES
]
SWEEP = [(dimensions, level) for dimensions in (3, 5) for level in LEVELS[:3]]
AS_WRITTEN = make_story(play_as_written, descent_as_written)
SHAKEN = make_story(play_with_less_feasible_rivals, descent_as_written)
CONTRARY = make_story(play_contrary, descent_contrary)
