"""Cell: one run of an experiment, named by a readable id that fixes everything about it."""

from typing import NamedTuple


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
