"""What a what-if run is asked to do: the problem, the world, the policies, how long and how often.

Owns which jobs there are; what they compute is left to `play` and `yardsticks`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from bylot.environments import Environment, Given, Outcomes
from bylot.files import ProblemFile
from bylot.kernels.compile import Floats
from bylot.policies import Policy, settled, write
from bylot.problem import Problem
from bylot.whatif.cast import kind, kinds
from bylot.whatif.levels import Level, Sweep
from bylot.worlds import Ground, World

ROOM = 50_000_000  # values that are kept in memory

Rewards = TypeVar("Rewards", float, Floats)


class Play(NamedTuple):
    """A policy plays all rounds under a seed; `level` is one of the sweep, None the problem's own
    bound.
    """

    policy: str
    seed: int
    level: int | None = None

    def __str__(self) -> str:
        place = "" if self.level is None else f", level {self.level + 1} of the sweep"
        return f"{self.policy}, seed {self.seed}{place}"


class Mark(NamedTuple):
    """A yardstick to be computed, by its name in `yardsticks.MARKS`."""

    what: str
    level: int | None = None

    def __str__(self) -> str:
        return self.what if self.level is None else f"{self.what}, level {self.level + 1}"


Job = Play | Mark


@dataclass(frozen=True)
class Setup:
    """All that was asked for, checked; policies in words, such as `panel:explore=0.02`."""

    file: ProblemFile
    world: World
    policies: Sequence[str]
    seeds: Sequence[int]
    rounds: int
    sweep: Sweep | None = None

    @property
    def problem(self) -> Problem:
        """As the file has it."""
        return self.file.problem

    @property
    def horizon(self) -> int | None:
        """The end that policies are told of; none where the problem has periods."""
        return None if self.problem.period else self.rounds

    @property
    def period(self) -> int:
        """The rounds at whose end limits are to hold."""
        return self.problem.period or self.rounds

    @property
    def due(self) -> int:
        """The rounds of whole periods: what comes after them is not due when a play ends."""
        return self.rounds - self.rounds % self.period

    @property
    def window(self) -> int:
        """Rounds of a rolling mean."""
        return max(1, self.rounds // 20)

    @property
    def levels(self) -> Sequence[Level]:
        """The levels of the sweep."""
        return () if self.sweep is None else self.sweep.levels

    @cached_property
    def ground(self) -> Ground:
        """What optima are computed on."""
        return self.world.ground(self.rounds, self.seeds)

    @cached_property
    def met(self) -> dict[int, Environment]:
        """The world under every seed. To draw noise is dearer than to play on it, so it is drawn
        once for all policies, if there is room for it.
        """
        world = self.world.environment
        room = self.rounds * self.world.size * len(self.seeds) <= ROOM
        if isinstance(world, Outcomes) or not room:
            return dict.fromkeys(self.seeds, world)
        return {seed: Given(*world.rounds(0, self.rounds, seed)) for seed in self.seeds}

    @property
    def span(self) -> float:
        """What the best request earns above the worst, in the rewards of the problem file."""
        low, high = self.file.rewards
        return high - low

    def reward(self, earned: Rewards) -> Rewards:
        """What a world earns, in [0, 1], as a reward of the problem file; to policies, which learn
        on [0, 1], they are the same.
        """
        return self.file.rewards[0] + self.span * earned

    def at(self, level: int | None) -> Problem | None:
        """The problem with its own bound or that of a level; None if that cannot be kept."""
        return self.problem if level is None else self.levels[level].problem

    def cast(self, policy: str, level: int | None = None) -> Policy:
        """Who plays under these words: `auto` looks at the bounds."""
        return settled(policy, self.at(level) or self.problem)

    def kind(self, policy: str, level: int | None = None) -> str:
        """The kind of law that is played under these words."""
        return kind(self.cast(policy, level))

    @property
    def kinds(self) -> list[str]:
        """All kinds that are played, at any bound."""
        levels = (None, *(level.number for level in self.levels if level.problem))
        return kinds(self.cast(policy, level) for policy in self.policies for level in levels)

    def took(self, level: int | None = None) -> list[str]:
        """Who plays for whoever left it to the problem: "auto is distinct"."""
        return [
            f"{policy} is {write(self.cast(policy, level))['name']}"
            for policy in self.policies
            if policy.partition(":")[0] == "auto"
        ]

    def jobs(self, refused: Collection[str], marks: Sequence[str]) -> list[Job]:
        """Everything to compute: one play of each policy, what to measure it by, the other plays,
        the sweep. Whoever stops it on the way has something to compare.
        """
        playing = [policy for policy in self.policies if policy not in refused]
        made: list[Job] = [Play(policy, seed) for seed in self.seeds for policy in playing]
        made[len(playing) : len(playing)] = [Mark(what) for what in marks]
        for n in [level.number for level in self.levels if level.problem]:
            made += [Mark(kind, n) for kind in self.kinds]
            made += [Play(policy, seed, n) for policy in self.policies for seed in self.seeds]
        return made
