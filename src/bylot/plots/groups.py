"""Records in groups: the cells that differ only in their seed, and their curves as arrays."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bylot.experiments import BATCH, length
from bylot.kernels.compile import Floats, Ints

Run = Mapping[str, Any]
"""What `run.json` says of the run that wrote the records."""


class Key(NamedTuple):
    """What the cells of one group share."""

    experiment: str
    environment: str
    level: str
    policy: str
    dimensions: int
    period: int | None = None

    def __str__(self) -> str:
        """The group in words.

        >>> print(Key("periods", "regime", "tight", "distinct", 3, period=250))
        distinct in periods of 250 (tight, regime, N = 3)
        """
        period = "" if self.period is None else f" of {self.period:,}"
        place = f"{self.level}, {self.environment}, N = {self.dimensions}"
        return f"{self.policy} in {self.experiment}{period} ({place})"


def crowd(environment: str, level: str, policy: str) -> Key:
    """A group of the comparison of policies."""
    return Key("crowd", environment, level, policy, 3)


def sweep(dimensions: int, level: str) -> Key:
    """A group of the sweep of limits."""
    return Key("sweep", "stochastic", level, "omd", dimensions)


class Curve(NamedTuple):
    """A row a seed, sampled at rounds t; `names` are the numbers of the seeds."""

    t: Ints
    seeds: Floats
    names: list[int]

    @property
    def n(self) -> Floats:
        """The clock of the sweep: updates of OMD, one every BATCH rounds."""
        return self.t / BATCH

    @property
    def mean(self) -> Floats:
        """Mean over seeds."""
        return np.asarray(self.seeds.mean(axis=0))

    @property
    def std(self) -> Floats:
        """Standard deviation over seeds (ddof = 1); 0 if there is one seed only."""
        return spread(self.seeds)


def spread(values: Floats) -> Floats:
    """Standard deviation along the seeds, ddof = 1; a single seed shows none.

    >>> spread(np.array([1.0, 3.0])).round(3)
    np.float64(1.414)
    """
    if len(values) < 2:
        return np.zeros(values.shape[1:])
    return np.asarray(values.std(axis=0, ddof=1))[()]


class Groups:
    """All groups of a table of records; what is missing, or was refused, is simply not there."""

    def __init__(self, cells: pl.DataFrame) -> None:
        self.tables: dict[Key, pl.DataFrame] = {}
        if cells.is_empty():
            return
        played = cells.filter(pl.col("refused").is_null()).sort("seed")
        parts = played.partition_by(list(Key._fields), as_dict=True)
        self.tables = {Key(*key): part for key, part in parts.items()}

    def __contains__(self, key: Key) -> bool:
        return key in self.tables

    def __getitem__(self, key: Key) -> pl.DataFrame:
        return self.tables[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(sorted(self.tables))

    def values(self, key: Key, column: str) -> Floats:
        """One number a seed; an absent group, like an empty value, gives none."""
        if key not in self.tables:
            return np.zeros(0)
        return self.tables[key][column].drop_nulls().to_numpy().astype(float)

    def curve(self, key: Key, column: str) -> Curve | None:
        """A curve over all seeds of a group; None if it has none.

        Seeds of one run are sampled at the same rounds; of runs of unequal length, what all have.
        """
        if key not in self.tables:
            return None
        table = self.tables[key].select("seed", "curve_t", column).drop_nulls()
        rows = [np.asarray(row, dtype=float) for row in table[column].to_list()]
        size = min(map(len, rows), default=0)
        if size == 0:
            return None
        t = np.asarray(table["curve_t"][0].to_list()[:size], dtype=np.int64)
        return Curve(t, np.stack([row[:size] for row in rows]), table["seed"].to_list())

    def seeds(self, experiment: str) -> tuple[int, int]:
        """How many seeds the groups of an experiment have, the fewest and the most."""
        counts = [len(one) for key, one in self.tables.items() if key.experiment == experiment]
        return min(counts, default=0), max(counts, default=0)


def synthetic(run: Run) -> bool:
    """Is the crowd made up? Every output says so if it is."""
    return bool(run.get("data", {}).get("synthetic", False))


def heading(title: str, run: Run, seeds: tuple[int, int], experiment: str = "crowd") -> str:
    """Title of a figure, and under it the data, the rounds and the seeds behind it."""
    data = "a made-up crowd" if synthetic(run) else f"{run.get('data', {}).get('name', '?')} data"
    rounds = "unknown number of rounds"
    if "rounds" in run:
        rounds = f"{length(experiment, run['rounds']):,} rounds"
    mark = "SYNTHETIC: " if synthetic(run) else ""
    return f"{mark}{title}\n{data}, {rounds}, {counted(seeds)}"


def counted(seeds: tuple[int, int]) -> str:
    """A number of seeds, or from how few to how many.

    >>> counted((1, 1)), counted((14, 20))
    ('1 seed', '14 to 20 seeds')
    """
    fewest, most = seeds
    return f"{fewest} seed{'s' * (fewest != 1)}" if fewest == most else f"{fewest} to {most} seeds"
