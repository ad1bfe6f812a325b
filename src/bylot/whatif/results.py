"""What came of a what-if run: plays by policy, yardsticks, prices, levels; all numbers as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bylot.harness import PlaySummary, SeedCurves, seed_std
from bylot.numerics.jit import Floats
from bylot.optima import ShadowPrice
from bylot.policies import policy_to_data
from bylot.problem_files import WrittenLimit
from bylot.whatif.plan import DISTRIBUTION_KINDS, ReferenceJob, RunJob, WhatifJob, WhatifPlan
from bylot.whatif.references import REFERENCES, MissingReference, Reference


class TrialRuns(NamedTuple):
    """What policies said before they played: why some would not, what others warned of."""

    refused: dict[str, str]
    warned: dict[str, str]


@dataclass(frozen=True)
class PolicyResult:
    """A policy over all seeds that were played."""

    policy: str
    kind: str  # of the law it plays
    seeds: Sequence[int]
    plays: Sequence[PlaySummary]

    @cached_property
    def reward(self) -> float:
        """Mean over seeds of the mean reward."""
        return float(np.mean([one.reward for one in self.plays]))

    @cached_property
    def late(self) -> float:
        """The same over the last tenth of the rounds: what is earned once it has learned."""
        return float(np.mean([one.late for one in self.plays]))

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of the reward over seeds."""
        return float(seed_std(np.array([one.reward for one in self.plays])))

    @property
    def spend(self) -> Floats:
        """(d,) mean cost under each limit."""
        return np.asarray(np.mean([one.spend for one in self.plays], axis=0))

    @property
    def asked(self) -> Floats:
        """(K,) share of requests."""
        return np.asarray(np.mean([one.asked for one in self.plays], axis=0))

    @property
    def kept(self) -> int:
        """Seeds whose whole play was inside all limits."""
        return sum(one.kept for one in self.plays)

    @property
    def periods(self) -> int:
        """Whole periods of all seeds."""
        return sum(one.periods for one in self.plays)

    @property
    def bad_periods(self) -> int:
        """Those that ended outside a limit."""
        return sum(one.bad_periods for one in self.plays)

    @property
    def earned(self) -> tuple[str, str, str]:
        """For tables: reward, its deviation, and what the last tenth earned."""
        apart = f"{self.deviation:.4f}" if len(self.plays) > 1 else "-"
        return f"{self.reward:.4f}", apart, f"{self.late:.4f}"

    @property
    def inside(self) -> tuple[str, str]:
        """For tables: seeds inside all limits, and periods."""
        good = self.periods - self.bad_periods
        if not self.periods:
            return "-", "-"
        return f"{self.kept}/{len(self.plays)}", f"{good}/{self.periods}"

    @property
    def keeps(self) -> bool:
        """Were the limits kept whenever they were due, under every seed?"""
        return all(one.kept_in_all_periods for one in self.plays)

    @property
    def breaks(self) -> bool:
        """Were they left when they were due?"""
        return self.bad_periods > 0

    def rewards(self) -> SeedCurves:
        """Rolling mean reward of every seed."""
        return SeedCurves(
            self.plays[0].t, np.array([one.reward_curve for one in self.plays]), [*self.seeds]
        )

    def spends(self, limit: int) -> SeedCurves:
        """Running mean cost of every seed under a limit."""
        rows = np.array([one.spend_curve[:, limit] for one in self.plays])
        return SeedCurves(self.plays[0].t, rows, [*self.seeds])

    def by_period(self, limit: int, period: int) -> SeedCurves:
        """Mean cost of every seed under a limit in each period, at its end."""
        rows = np.array([one.by_period[:, limit] for one in self.plays])
        return SeedCurves(period * np.arange(1, rows.shape[1] + 1), rows, [*self.seeds])


@dataclass(frozen=True)
class WhatifResults:
    """Results of the jobs that were done, and what policies said before; some may be missing."""

    setup: WhatifPlan
    tried: TrialRuns
    results: Mapping[WhatifJob, Any]
    stopped: bool = False

    @cached_property
    def standings(self) -> dict[str, PolicyResult]:
        """Policies that were played, in the order that was asked for."""
        return self.at(None)

    def at(self, level: int | None) -> dict[str, PolicyResult]:
        """Policies that were played at a level of the sweep."""
        made = {}
        for policy in self.setup.policies:
            plays = {
                seed: found
                for seed in self.setup.seeds
                if isinstance(found := self.results.get(RunJob(policy, seed, level)), PlaySummary)
            }
            if plays:
                kind = self.setup.kind(policy, level)
                made[policy] = PolicyResult(policy, kind, list(plays), list(plays.values()))
        return made

    def refusals(self, level: int) -> dict[str, str]:
        """Policies that would not play at a level of the sweep, and why."""
        seed = self.setup.seeds[0]
        said = {name: self.results.get(RunJob(name, seed, level)) for name in self.setup.policies}
        return {name: why for name, why in said.items() if isinstance(why, str)}

    def mark(self, what: str, level: int | None = None) -> Reference | None:
        """A yardstick that was computed and exists."""
        found = self.results.get(ReferenceJob(what, level))
        return found if isinstance(found, Reference) else None

    @property
    def marks(self) -> dict[str, Reference | MissingReference]:
        """All yardsticks that were computed, whether they exist or not."""
        found = {what: self.results.get(ReferenceJob(what)) for what in REFERENCES}
        return {what: one for what, one in found.items() if one is not None}

    @property
    def best(self) -> PolicyResult | None:
        """The policy that earned most of those that kept the limits whenever they were due."""
        keepers = [one for one in self.standings.values() if one.keeps]
        return max(keepers, key=lambda one: one.reward, default=None)

    @property
    def headline(self) -> PolicyResult:
        """The policy that the report is about: the best that kept the limits, or else of all."""
        return self.best or max(self.standings.values(), key=lambda one: one.reward)

    @property
    def prices(self) -> dict[str, tuple[ShadowPrice, ...]]:
        """Of each limit, at the best law of every kind that was played, the headline's first."""
        if not self.standings:
            return {}
        there = {one.kind for one in self.standings.values()}
        played = sorted(
            there, key=lambda one: (one != self.headline.kind, [*DISTRIBUTION_KINDS].index(one))
        )
        found = {one: self.mark(one) for one in played}
        return {one: best.prices for one, best in found.items() if best is not None}

    def in_unit(self, promise: WrittenLimit, per_request: float) -> float:
        """An average per request in the unit that the file has the limit in."""
        return per_request / self.setup.problem.draws if promise.per == "draw" else per_request

    def gain(self, price: ShadowPrice, by: float = 0.01) -> float:
        """What moving a bound outwards by a fraction of itself would add: by its price or, at a
        kink, where there are many, by the difference.
        """
        measured = self.measured_gain(price, by)
        if price.verdict == "kink" and measured is not None:
            return measured
        return self.priced_gain(price, by)

    def priced_gain(self, price: ShadowPrice, by: float = 0.01) -> float:
        """The same by its price."""
        return self.setup.span * abs(price.price) * by * price.limit.bound

    def measured_gain(self, price: ShadowPrice, by: float = 0.01) -> float | None:
        """The same by the difference towards the looser side."""
        looser = price.above if price.limit.sign < 0 else price.below
        return None if looser is None else self.setup.span * abs(looser) * by * price.limit.bound


def results_data(found: WhatifResults, sentences: Sequence[str]) -> dict[str, Any]:
    """All numbers, for programs: what `whatif.json` holds."""
    setup = found.setup
    file, world = setup.file, setup.world
    low, high = file.rewards
    return {
        "summary": list(sentences),
        "stopped": found.stopped,
        "problem": {
            "file": str(file.path),
            "experts": list(setup.problem.experts),
            "draws": setup.problem.draws,
            "period": setup.problem.period,
            "rewards": {"from": low, "to": high},
            "limits": [swept_limit_data(promise, file.units) for promise in file.limits],
        },
        "world": {
            "story": world.story,
            "made_up": world.made_up,
            "dimensions": list(world.dimensions),
            "contexts": list(world.contexts),
            "questions": world.questions,
            "answers": world.cells,
            "blanks": world.blanks,
            "unused": list(world.unused),
        },
        "rounds": setup.rounds,
        "seeds": list(setup.seeds),
        "horizon": setup.horizon,
        "window": setup.window,
        "policies": {
            policy: {
                "kind": setup.kind(policy),
                "settings": policy_to_data(setup.cast(policy)),
                "refused": found.tried.refused.get(policy),
                "warning": found.tried.warned.get(policy),
                **(
                    policy_result_data(found.standings[policy]) if policy in found.standings else {}
                ),
            }
            for policy in setup.policies
        },
        "yardsticks": {what: reference_data(one) for what, one in found.marks.items()},
        "prices": {
            kind: [price_data(found, one) for one in prices]
            for kind, prices in found.prices.items()
        },
        "sweep": sweep_data(found),
    }


def swept_limit_data(promise: WrittenLimit, units: Mapping[str, str]) -> dict[str, Any]:
    """A limit."""
    limit = promise.limit
    return {
        "name": limit.name,
        "side": limit.side,
        "bound": promise.written,
        "per": promise.per,
        "bound_per_request": limit.bound,
        "unit": units.get(limit.name),
        "line": promise.line,
    }


def policy_result_data(one: PolicyResult) -> dict[str, Any]:
    """A policy."""
    return {
        "reward": one.reward,
        "deviation": one.deviation,
        "late": one.late,
        "keeps": one.keeps,
        "kept": one.kept,
        "periods": one.periods,
        "bad_periods": one.bad_periods,
        "spend": one.spend.tolist(),
        "asked": one.asked.tolist(),
        "plays": [
            {"seed": seed}
            | {
                name: value.tolist() if isinstance(value, np.ndarray) else value
                for name, value in play._asdict().items()
            }
            for seed, play in zip(one.seeds, one.plays, strict=True)
        ],
    }


def reference_data(one: Reference | MissingReference) -> dict[str, Any]:
    """A yardstick."""
    if isinstance(one, MissingReference):
        return {"value": None, "note": one.note}
    return {
        "value": one.value,
        "ceiling": one.ceiling,
        "kept": one.kept,
        "note": one.note,
        "asked": None if one.asked is None else one.asked.tolist(),
    }


def price_data(found: WhatifResults, one: ShadowPrice) -> dict[str, Any]:
    """A price, per unit of the bound per request."""
    span = found.setup.span
    return {
        "limit": one.limit.name,
        "side": one.limit.side,
        "price": span * one.price,
        "step": one.step,
        "below": None if one.below is None else span * one.below,
        "above": None if one.above is None else span * one.above,
        "verdict": one.verdict,
        "gain_of_one_percent": found.gain(one),
        "measured_gain_of_one_percent": found.measured_gain(one),
    }


def sweep_data(found: WhatifResults) -> dict[str, Any] | None:
    """The levels of the sweep."""
    sweep = found.setup.sweep
    if sweep is None:
        return None
    return {
        "limit": sweep.promise.limit.name,
        "side": sweep.promise.limit.side,
        "per": sweep.promise.per,
        "levels": [
            {
                "bound": level.written,
                "impossible": level.reason or None,
                "best": {
                    one: None if (best := found.mark(one, level.number)) is None else best.value
                    for one in found.setup.kinds
                },
                "policies": {
                    name: {"reward": one.reward, "deviation": one.deviation, "keeps": one.keeps}
                    for name, one in found.at(level.number).items()
                },
                "took": [] if level.problem is None else found.setup.took(level.number),
                "refused": found.refusals(level.number),
            }
            for level in sweep.levels
        ],
    }
