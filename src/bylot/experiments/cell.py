"""Cell: one run of an experiment, named by a readable id that fixes everything about it."""

from typing import NamedTuple


class Cell(NamedTuple):
    """What is played: where, under which limits, by whom.

    >>> Cell("crowd", "tight", "regime", "omd", 3, 7).id
    'crowd/tight/regime/omd/N=3/seed=07'
    """

    experiment: str
    level: str
    environment: str
    policy: str
    dimensions: int
    seed: int

    @property
    def id(self) -> str:
        """The name; sorting by it sorts by all fields in turn, up to a hundred seeds."""
        place = f"{self.experiment}/{self.level}/{self.environment}/{self.policy}"
        return f"{place}/N={self.dimensions}/seed={self.seed:02d}"
