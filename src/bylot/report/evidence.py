"""What a claim may ask of the records; a question they cannot answer raises `Untestable`."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from bylot.errors import BylotError
from bylot.kernels.compile import Floats, Ints
from bylot.plots.groups import Curve, Groups, Key, Run, counted
from bylot.plots.wilson import wilson

SEEDS = 3
"""Fewer runs than this say nothing about a spread."""

NEAR = 0.99
"""Near-optimal: at least this part of the true constrained optimum. Equal shares earn about 96%."""

Seeds = dict[int, float]
"""One number a seed."""


class Untestable(BylotError):
    """The records lack what a claim needs; the message says what."""


class Difference(NamedTuple):
    """Mean of a paired difference over seeds, and its standard error."""

    mean: float
    error: float

    @property
    def clear(self) -> bool:
        """Above 0 by more than two standard errors."""
        return self.mean > max(2 * self.error, 1e-12)  # equal plays differ by rounding only

    def __str__(self) -> str:
        return f"{self.mean:+.4f} (s.e. {self.error:.4f})"


class Share(NamedTuple):
    """In how many runs something was so."""

    kept: int
    runs: int

    @property
    def value(self) -> float:
        """From 0 to 1."""
        return self.kept / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval."""
        return wilson(self.kept, self.runs)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.0%} ({self.kept}/{self.runs}, Wilson {low:.0%} to {high:.0%})"


class Evidence:
    """The groups of a table of records, with the run that wrote them.

    asked: the groups that were asked for so far, so that one can tell what a verdict rests on
    near:  what part of the true constrained optimum counts as near-optimal
    """

    def __init__(self, cells: pl.DataFrame, run: Run, near: float = NEAR) -> None:
        self.groups = Groups(cells)
        self.run, self.near = run, near
        self.asked: set[Key] = set()

    def values(self, key: Key, column: str) -> Seeds:
        """One number a seed."""
        self.asked.add(key)
        if key not in self.groups:
            raise Untestable(f"no records of {key}")
        table = self.groups[key].select("seed", column).drop_nulls()
        values = dict(zip(table["seed"].to_list(), table[column].to_list(), strict=True))
        return self.enough(values, key, column)

    def curve(self, key: Key, column: str) -> Curve:
        """A row a seed."""
        self.asked.add(key)
        curve = self.groups.curve(key, column)
        if curve is None:
            raise Untestable(f"no records of {key} with {column}")
        self.enough(dict.fromkeys(curve.names, 0.0), key, column)
        return curve

    def enough(self, values: Seeds, key: Key, column: str) -> Seeds:
        """The values, if they are of enough seeds."""
        if len(values) < SEEDS:
            had = counted((len(values), len(values)))
            lacking = f" with {column}" if len(values) < len(self.groups[key]) else ""
            raise Untestable(f"{had}{lacking} of {key}; a verdict needs {SEEDS}")
        return values

    def each(self, key: Key, column: str, measure: Callable[[Ints, Floats], float]) -> Seeds:
        """A number made of each seed's curve."""
        curve = self.curve(key, column)
        rows = zip(curve.names, curve.seeds, strict=True)
        return {seed: float(measure(curve.t, row)) for seed, row in rows}

    def kept(self, key: Key) -> Seeds:
        """1 for a seed within all limits exactly, else 0."""
        return {seed: float(far <= 0) for seed, far in self.values(key, "outside").items()}

    def feasible(self, key: Key) -> Share:
        """In how many seeds all limits were kept exactly."""
        kept = self.kept(key)
        return Share(int(sum(kept.values())), len(kept))

    def ratio(self, key: Key, column: str = "reward") -> float:
        """Mean over seeds of a reward in parts of the true constrained optimum."""
        best = self.values(key, "optimum")
        parts = [earned / best[seed] for seed, earned in self.values(key, column).items()]
        return float(np.mean(parts))

    @property
    def rounds(self) -> int:
        """How long the run was."""
        if "rounds" not in self.run:
            raise Untestable("the manifest does not say how many rounds were played")
        return int(self.run["rounds"])


def mean(values: Seeds) -> float:
    """Mean over seeds."""
    return float(np.mean(list(values.values())))


def paired(more: Seeds, less: Seeds) -> Difference:
    """more - less over the seeds that both have.

    >>> paired({0: 1.0, 1: 2.0, 2: 3.0}, {0: 0.0, 1: 1.0, 2: 2.0})
    Difference(mean=1.0, error=0.0)
    """
    seeds = sorted(more.keys() & less.keys())
    if len(seeds) < SEEDS:
        raise Untestable(f"only {len(seeds)} seeds are in both groups; a verdict needs {SEEDS}")
    gaps = np.array([more[seed] - less[seed] for seed in seeds])
    return Difference(float(gaps.mean()), float(gaps.std(ddof=1) / math.sqrt(len(gaps))))


def minus(more: Seeds, less: Seeds) -> Seeds:
    """The difference of each seed that both have."""
    return {seed: more[seed] - less[seed] for seed in more.keys() & less.keys()}
