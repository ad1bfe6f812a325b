"""What a what-if run is asked to do: the problem, the world, the policies, how long and how often.

Owns which jobs there are; what they compute is left to `play` and `yardsticks`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from bylot.environments import Environment, Given, Outcomes
from bylot.errors import BylotError, InfeasibleLimits
from bylot.numerics.jit import Floats
from bylot.outcome_tables.text_lines import quote_field
from bylot.policies import NoisyOr, Policy, Strict, policy_to_data, resolve_policy
from bylot.problem import Problem
from bylot.problem.validation import suggest_known_name
from bylot.problem_files import ProblemFile, WrittenLimit
from bylot.problem_files.limits import per_request_bound
from bylot.scenario import OptimumInput, Scenario


class DistributionKind(NamedTuple):
    """A kind of law.

    law:  what there is one of, to be best
    who:  who plays such laws, in a sentence
    name: for a column
    free: the yardstick that is the best of them if nothing were limited
    """

    law: str
    who: str
    name: str
    free: str


DISTRIBUTION_KINDS = {
    "panels": DistributionKind(
        "lot of panels of different experts",
        "panels of different experts",
        "best panels",
        "free-panels",
    ),
    "exact": DistributionKind(
        "law of independent draws", "independent draws", "best draws", "free-draws"
    ),
}
"""By the yardstick that is the best of the kind within the limits."""

POLICY_DESCRIPTIONS = {
    "distinct": "asks as many different experts as there are draws and learns whom to ask how "
    "often",
    "noisy-or": "asks as many different experts and learns by a model what sets of them miss",
    "tangent": "draws independently, so that it asks fewer at times, and learns the odds",
    "strict": "draws independently, within odds that keep the limits in every request on average; "
    "made for worlds that may be against you",
    "omd": "is the paper's algorithm as in its experiments: independent draws, under a stand-in "
    "that is stricter than the limits",
    "omd-plain": "is the algorithm that the paper's theorems speak of",
    "omd-sum": "is a variant of omd: gradients of a batch are summed",
    "omd-frozen": "is a variant of omd: the dual stands still within a batch",
    "random": "asks different experts by lot, all as often; it neither learns nor minds limits",
    "greedy": "asks those that earned most so far; it minds no limits",
    "cucb": "asks those that may be best (upper confidence bounds); it minds no limits",
    "cbwk": "does as cucb, with a price on each limit that holds averages near it, on either side",
    "cbwk-instant": "is a variant of cbwk: prices follow each request by itself",
    "ts": "asks those that look best in a draw from its beliefs (Thompson); it minds no limits",
    "ts-bwk": "does as ts, with a price on each limit that holds averages near it, on either side",
    "ts-bwk-instant": "is a variant of ts-bwk: prices follow each request by itself",
    "moe": "learns a gate over experts (mixture of experts), with a price on each limit",
}
"""What each policy does; what it promises depends on its settings."""


def distribution_kind(policy: Policy) -> str:
    """The kind of law that a policy plays."""
    return "exact" if policy.multinomial else "panels"


def distribution_kinds(policies: Iterable[Policy]) -> list[str]:
    """The kinds of several, each once."""
    there = set(map(distribution_kind, policies))
    return [one for one in DISTRIBUTION_KINDS if one in there]


def describe_policy(words: str, policy: Policy) -> str:
    """What the policy that goes by these words does and promises: that of its name, with settings
    of its own or not, or the one that `auto` took.
    """
    name, colon, _ = words.partition(":")
    if name == "auto":
        took = policy_to_data(policy)["name"]
        does = f"{words} is {took} here, which {POLICY_DESCRIPTIONS[took]}"
    else:
        does = (
            f"{words} {POLICY_DESCRIPTIONS[name]}{' (with settings of your own)' if colon else ''}"
        )
    return "; ".join([does, *describe_guarantees(policy)]) + "."


def describe_guarantees(policy: Policy) -> list[str]:
    """What it says of the limits, if it has a guard, and of its odds, if it may have none."""
    made = []
    if getattr(policy, "guard", False):
        made.append("it guards the limits: they hold at the end of every period")
    elif hasattr(policy, "guard") and not isinstance(policy, Strict):  # whose odds say enough
        made.append("its guard is off: it does not promise that any limit holds")
    if isinstance(policy, NoisyOr):
        made.append(describe_propensities(policy.explore))
    return made


def describe_propensities(explore: float) -> str:
    """Of how many of its panels `noisy-or` tells the odds.

    >>> describe_propensities(0.02)
    'it tells the odds of its panels in 2% of its rounds, which it sets aside for that'
    """
    if explore == 0:
        return "it cannot tell the odds of its panels"
    rounds = f"{100 * explore:g}% of its rounds, which it sets aside for that"
    return f"it tells the odds of its panels in {rounds if explore < 1 else 'every round'}"


MAX_SWEEP_LEVELS = 100  # levels
SWEEP_FORMAT = "NAME=FROM:TO:COUNT, such as usd=0.5:3:10"


class SweepLevel(NamedTuple):
    """A bound in the unit of the file, and the problem with it; None, and why, if no policy could
    keep it.
    """

    number: int
    written: float
    problem: Problem | None
    reason: str = ""


@dataclass(frozen=True)
class BoundSweep:
    """The limit that is moved, and where to."""

    promise: WrittenLimit
    levels: tuple[SweepLevel, ...]


def parse_sweep(file: ProblemFile, text: str) -> BoundSweep:
    """What `NAME=FROM:TO:COUNT` asks for; NAME may end in `.at_most` or `.at_least`."""
    name, bounds = parse_sweep_text(text)
    promise = find_swept_limit(file, name)
    return BoundSweep(
        promise, tuple(make_sweep_level(file, promise, n, b) for n, b in enumerate(bounds))
    )


def parse_sweep_text(text: str) -> tuple[str, list[float]]:
    """A name and bounds.

    >>> parse_sweep_text("usd=0.5:3:6")
    ('usd', [0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
    """
    name, _, rest = text.rpartition("=")
    try:
        low, high, count = rest.split(":")
        first, last, n = float(low), float(high), int(count)
    except ValueError:
        raise BylotError(f"--sweep {text!r} is not {SWEEP_FORMAT}") from None
    if not (0 <= first < last < np.inf and 2 <= n <= MAX_SWEEP_LEVELS):
        raise BylotError(
            f"--sweep {text!r} asks for {n} levels from {first:g} to {last:g}; "
            f"wanted 2 to {MAX_SWEEP_LEVELS} levels, from a bound of 0 or more up to a larger one"
        )
    return name, [float(f"{bound:.12g}") for bound in np.linspace(first, last, n)]


def find_swept_limit(file: ProblemFile, name: str) -> WrittenLimit:
    """The limit of this name, on the side it says."""
    sides = {f"{one.limit.name}.{one.limit.side}": one for one in file.limits}
    fits = [side for side, one in sides.items() if name in (one.limit.name, side)]
    if len(fits) == 1:
        return sides[fits[0]]
    if fits:
        ways = " or ".join(f"{side}=..." for side in fits)
        raise BylotError(f"--sweep: {quote_field(name)} is limited on both sides; write {ways}")
    names = list(dict.fromkeys(one.limit.name for one in file.limits))
    raise BylotError(
        f"--sweep: {file.path} has no limit on {quote_field(name)}; {suggest_known_name(name, names, 'limits')}"
    )


def make_sweep_level(
    file: ProblemFile, promise: WrittenLimit, number: int, written: float
) -> SweepLevel:
    """One bound."""
    problem = file.problem
    bound = per_request_bound(written, problem.draws) if promise.per == "draw" else written
    limits = [one.at(bound) if one.key == promise.limit.key else one for one in problem.limits]
    try:
        return SweepLevel(number, written, problem.replace(limits=limits))
    except InfeasibleLimits as error:
        return SweepLevel(number, written, None, str(error))


MAX_CACHED_VALUES = 50_000_000  # values that are kept in memory

RewardValues = TypeVar("RewardValues", float, Floats)


class RunJob(NamedTuple):
    """A policy plays all rounds under a seed; `level` is one of the sweep, None the problem's own
    bound.
    """

    policy: str
    seed: int
    level: int | None = None

    def __str__(self) -> str:
        place = "" if self.level is None else f", level {self.level + 1} of the sweep"
        return f"{self.policy}, seed {self.seed}{place}"


class ReferenceJob(NamedTuple):
    """A yardstick to be computed, by its name in `yardsticks.MARKS`."""

    what: str
    level: int | None = None

    def __str__(self) -> str:
        return self.what if self.level is None else f"{self.what}, level {self.level + 1}"


WhatifJob = RunJob | ReferenceJob


@dataclass(frozen=True)
class WhatifPlan:
    """All that was asked for, checked; policies in words, such as `noisy-or:explore=0.02`."""

    file: ProblemFile
    world: Scenario
    policies: Sequence[str]
    seeds: Sequence[int]
    rounds: int
    sweep: BoundSweep | None = None

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
    def levels(self) -> Sequence[SweepLevel]:
        """The levels of the sweep."""
        return () if self.sweep is None else self.sweep.levels

    @cached_property
    def ground(self) -> OptimumInput:
        """What optima are computed on."""
        return self.world.ground(self.rounds, self.seeds)

    @cached_property
    def met(self) -> dict[int, Environment]:
        """The world under every seed. To draw noise is dearer than to play on it, so it is drawn
        once for all policies, if there is room for it.
        """
        world = self.world.environment
        room = self.rounds * self.world.size * len(self.seeds) <= MAX_CACHED_VALUES
        if isinstance(world, Outcomes) or not room:
            return dict.fromkeys(self.seeds, world)
        return {seed: Given(*world.rounds(0, self.rounds, seed)) for seed in self.seeds}

    @property
    def span(self) -> float:
        """What the best request earns above the worst, in the rewards of the problem file."""
        low, high = self.file.rewards
        return high - low

    def reward(self, earned: RewardValues) -> RewardValues:
        """What a world earns, in [0, 1], as a reward of the problem file; to policies, which learn
        on [0, 1], they are the same.
        """
        return self.file.rewards[0] + self.span * earned

    def at(self, level: int | None) -> Problem | None:
        """The problem with its own bound or that of a level; None if that cannot be kept."""
        return self.problem if level is None else self.levels[level].problem

    def cast(self, policy: str, level: int | None = None) -> Policy:
        """Who plays under these words: `auto` looks at the bounds."""
        return resolve_policy(policy, self.at(level) or self.problem)

    def kind(self, policy: str, level: int | None = None) -> str:
        """The kind of law that is played under these words."""
        return distribution_kind(self.cast(policy, level))

    @property
    def kinds(self) -> list[str]:
        """All kinds that are played, at any bound."""
        levels = (None, *(level.number for level in self.levels if level.problem))
        return distribution_kinds(
            self.cast(policy, level) for policy in self.policies for level in levels
        )

    def took(self, level: int | None = None) -> list[str]:
        """Who plays for whoever left it to the problem: "auto is distinct"."""
        return [
            f"{policy} is {policy_to_data(self.cast(policy, level))['name']}"
            for policy in self.policies
            if policy.partition(":")[0] == "auto"
        ]

    def jobs(self, refused: Collection[str], marks: Sequence[str]) -> list[WhatifJob]:
        """Everything to compute: one play of each policy, what to measure it by, the other plays,
        the sweep. Whoever stops it on the way has something to compare.
        """
        playing = [policy for policy in self.policies if policy not in refused]
        made: list[WhatifJob] = [RunJob(policy, seed) for seed in self.seeds for policy in playing]
        made[len(playing) : len(playing)] = [ReferenceJob(what) for what in marks]
        for n in [level.number for level in self.levels if level.problem]:
            made += [ReferenceJob(kind, n) for kind in self.kinds]
            made += [RunJob(policy, seed, n) for policy in self.policies for seed in self.seeds]
        return made
