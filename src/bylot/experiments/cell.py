"""Cell: one run of an experiment, named by a readable id that fixes everything about it."""

import re
from typing import NamedTuple

from bylot.errors import BylotError

FORM = re.compile(
    r"(?P<experiment>\w+)/(?P<level>\w+)/(?P<environment>\w+)/(?P<policy>[\w-]+)"
    r"/N=(?P<dimensions>\d+)/seed=(?P<seed>\d+)"
)


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

    @classmethod
    def read(cls, name: str) -> "Cell":
        """The cell of an id.

        >>> Cell.read("sweep/loose/stochastic/omd/N=5/seed=00").dimensions
        5
        """
        found = FORM.fullmatch(name)
        if found is None:
            raise BylotError(f"{name!r} is no cell; one is crowd/tight/regime/omd/N=3/seed=07")
        words = found.groupdict()
        numbers = {key: int(words.pop(key)) for key in ("dimensions", "seed")}
        return cls(**words, **numbers)
