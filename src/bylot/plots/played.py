"""Who and what the figures of a comparison show: what may be shown, and what was played of it."""

from collections.abc import Mapping
from typing import NamedTuple

from bylot.experiments import GUARDED
from bylot.plots.groups import Groups, Key
from bylot.plots.style import ENVIRONMENTS, HARDER, LEVELS, OURS, POLICIES, Look

WIDTH = 0.8
"""Share of a level's place on the axis that its policies fill."""


class Cast(NamedTuple):
    """A comparison of policies: how they and the levels look, in the order of legends."""

    experiment: str
    policies: Mapping[str, Look]
    levels: Mapping[str, Look]
    lead: tuple[str, ...]  # the policies that it is about
    best: str  # what they are measured against


PAPER = Cast("crowd", POLICIES, LEVELS, ("omd",), "true optimum in hindsight")
BEYOND = Cast("beyond", OURS, HARDER, GUARDED, "best multinomial policy in hindsight")


class Played(NamedTuple):
    """What the records hold of a comparison: nothing else is given a place in a figure."""

    cast: Cast
    environments: list[str]
    levels: list[str]
    policies: list[str]

    @classmethod
    def of(cls, groups: Groups, cast: Cast) -> "Played":
        """In the order of the cast; variants are left to the tables."""
        keys = [
            key
            for key in groups
            if key.experiment == cast.experiment and key.policy in cast.policies
        ]
        return cls(
            cast,
            [one for one in ENVIRONMENTS if any(key.environment == one for key in keys)],
            [one for one in cast.levels if any(key.level == one for key in keys)],
            [one for one in cast.policies if any(key.policy == one for key in keys)],
        )

    def key(self, environment: str, level: str, policy: str) -> Key:
        """A group of the comparison."""
        return Key(self.cast.experiment, environment, level, policy, 3)

    def look(self, policy: str) -> Look:
        """How a policy is drawn."""
        return self.cast.policies[policy]

    def offset(self, policy: str) -> float:
        """Where a policy stands within the place of a level."""
        return WIDTH * ((self.policies.index(policy) + 0.5) / len(self.policies) - 0.5)
