"""The results of a what-if run, as objects and as data: runs, references, prices, the sweep."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from bylot.harness import PlaySummary, SeedCurves, seed_std
from bylot.numerics.jit import Floats
from bylot.optima import ShadowPrice
from bylot.policies import policy_to_data
from bylot.problem import Problem
from bylot.problem_files import WrittenLimit
from bylot.whatif.plan import DISTRIBUTION_KINDS, REFERENCES, Reference, WhatifJob, WhatifPlan
from bylot.window_results import WindowResults


class PolicyResult(NamedTuple):
    """All runs of a policy, and what they have in common."""

    policy: str
    kind: str  # of the distribution that it plays
    seeds: Sequence[int]
    runs: Sequence[PlaySummary]
    reward: float  # mean over seeds, as are the next
    late: float  # over the last tenth of the rounds, when most is learned
    spend: Floats  # (d,) cost under each limit
    asked: Floats  # (K,) share of the requests in which each expert is asked
    deviation: float  # standard deviation of the reward over seeds
    kept: int  # number of seeds whose averages over complete periods keep all limits
    periods: int  # number of complete periods of all seeds
    bad_periods: int  # those that ended outside a limit
    keeps: bool  # whether every period and every window of every seed kept the limits
    interval: tuple[float, float] | None  # 95% confidence interval of the reward; None: one seed
    windows: int = 0  # number of windows of the calendar of all seeds that are judged, by limit
    bad_windows: int = 0  # those outside a limit
    refused: float = 0.0  # share of the requests for which a budget left no panel

    @property
    def judged(self) -> int:
        """The number of periods and windows that are judged."""
        return self.periods + self.windows

    @property
    def violated(self) -> int:
        """The number of periods and windows outside a limit."""
        return self.bad_periods + self.bad_windows

    @property
    def allowed(self) -> str:
        """Whether it kept all limits, in a word."""
        return "yes" if self.keeps else "NO" if self.violated else "?"

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """Cells of a table: reward, deviation, last tenth, seeds and periods within the limits."""
        return (
            f"{self.reward:.4f}",
            f"{self.deviation:.4f}" if len(self.runs) > 1 else "-",
            f"{self.late:.4f}",
            f"{self.kept}/{len(self.runs)}" if self.judged else "-",
            f"{self.judged - self.violated}/{self.judged}" if self.judged else "-",
        )

    def list_windows(self, limit: int) -> list[WindowResults]:
        """What each run did in the windows of a limit, or in the periods of the requests that it
        counts; empty if it counts all.
        """
        found = (one for run in self.runs for one in (*run.windows, *run.counted))
        return [one for one in found if one.limit == limit]

    def list_violated(self, problem: Problem) -> list[int]:
        """The places of the limits that were violated in any period or window."""
        found = []
        for n, limit in enumerate(problem.limits):
            apart = self.list_windows(n)
            means = np.concatenate([run.by_period[:, n] for run in self.runs])
            away = limit.sign * (limit.bound - means) > 1e-12 * limit.bound
            if any(one.bad for one in apart) if apart else away.any():
                found.append(n)
        return found

    def window_use(self, limit: int) -> float | None:
        """The part of a bound that complete windows used, on average over seeds; None: unknown."""
        used = [one.used for one in self.list_windows(limit) if one.used is not None]
        return float(np.mean(used)) if used else None

    def reward_curves(self) -> SeedCurves:
        rows = np.array([run.reward_curve for run in self.runs])
        return SeedCurves(self.runs[0].t, rows, [*self.seeds])

    def spend_curves(self, limit: int, period: int | None) -> SeedCurves:
        """Mean cost of each seed under a limit: in each period, or up to each round if None. Of a
        limit of the calendar or of some contexts, the amount of each window or period that all
        seeds have. Without a complete period, there are no points.
        """
        found = self.list_windows(limit)
        if found and (period or any(one.limit == limit for one in self.runs[0].windows)):
            count = min(one.amounts.size for one in found)
            ends = np.mean([one.requests[:count] for one in found], axis=0)
            return SeedCurves(ends, np.array([x.amounts[:count] for x in found]), [*self.seeds])
        curves = [run.by_period if period else run.spend_curve for run in self.runs]
        least = min(map(len, curves))  # runs that refused more requests have fewer periods
        curves = [one[:least] for one in curves]
        t = period * np.arange(1, len(curves[0]) + 1) if period else self.runs[0].t
        return SeedCurves(t, np.array(curves)[:, :, limit], [*self.seeds])


def combine_runs(
    policy: str, kind: str, found: Mapping[int, PlaySummary], plan: WhatifPlan
) -> PolicyResult:
    """The result of a policy from its run under each seed."""
    runs = list(found.values())
    return PolicyResult(
        *(policy, kind, list(found), runs),
        reward=float(np.mean([run.reward for run in runs])),
        late=float(np.mean([run.late for run in runs])),
        spend=np.mean([run.spend for run in runs], axis=0),
        asked=np.mean([run.asked for run in runs], axis=0),
        deviation=float(seed_std(np.array([run.reward for run in runs]))),
        kept=sum(run.kept for run in runs),
        periods=sum(run.all_periods for run in runs),
        bad_periods=sum(run.all_bad_periods for run in runs),
        keeps=all(run.kept_in_all_periods for run in runs),
        interval=find_reward_interval(runs, plan.scenario.requests, plan.file.rewards),
        windows=sum(one.windows for run in runs for one in run.windows),
        bad_windows=sum(run.bad_windows for run in runs),
        refused=float(np.mean([run.refused for run in runs])) / plan.rounds,
    )


def find_reward_interval(
    runs: Sequence[PlaySummary], requests: float, rewards: tuple[float, float]
) -> tuple[float, float] | None:
    """Interval of the mean reward of live requests, of which a table has a sample.

    Its variance is that of the mean over n seeds, s^2 / n, and that of the mean over the requests
    of which the questions of the table are enough, spread^2 / requests.
    """
    n, earned = len(runs), np.array([run.reward for run in runs])
    if n < 2:
        return None
    mean, by_seed = float(earned.mean()), stdtrit(n - 1, 0.975) * float(seed_std(earned))
    by_table = ndtri(0.975) * max(run.spread for run in runs) if requests else 0.0
    half = math.hypot(by_seed / math.sqrt(n), by_table / math.sqrt(requests or 1.0))
    return max(rewards[0], mean - half), min(rewards[1], mean + half)


@dataclass(frozen=True)
class WhatifResults:
    """The results of the finished jobs; an interrupted run has only some."""

    plan: WhatifPlan
    refused: Mapping[str, str]  # what policies reported when they were bound to the problem
    warned: Mapping[str, str]
    results: Mapping[WhatifJob, Any]
    stopped: bool = False

    @cached_property
    def policies(self) -> dict[str, PolicyResult]:
        """The policies that ran, in the order of the plan."""
        return self.policies_at(None)

    def policies_at(self, level: int | None) -> dict[str, PolicyResult]:
        """The policies that ran at a level of the sweep."""
        found = {}
        for policy in self.plan.policies:
            runs = {
                seed: run
                for seed in self.plan.seeds
                if isinstance(run := self.results.get(WhatifJob(policy, seed, level)), PlaySummary)
            }
            if runs:
                found[policy] = combine_runs(policy, self.plan.kind(policy, level), runs, self.plan)
        return found

    def refusals(self, level: int) -> dict[str, str]:
        """The policies that refused to run at a level of the sweep, with their reasons."""
        seed = self.plan.seeds[0]
        found = {
            name: self.results.get(WhatifJob(name, seed, level)) for name in self.plan.policies
        }
        return {name: reason for name, reason in found.items() if isinstance(reason, str)}

    def reference(self, name: str, level: int | None = None) -> Reference | None:
        """A reference that was computed and exists."""
        found = self.results.get(WhatifJob(name, level=level))
        return found if isinstance(found, Reference) else None

    @property
    def references(self) -> dict[str, Reference | str]:
        """All references that were computed, or why there is none."""
        found = {name: self.results.get(WhatifJob(name)) for name in REFERENCES}
        return {name: one for name, one in found.items() if one is not None}

    @cached_property
    def ranked(self) -> list[PolicyResult]:
        """The policies, those that violated limits least often first, then by reward."""
        return sorted(
            self.policies.values(),
            key=lambda one: (one.violated / max(1, one.judged), -one.reward),
        )

    @property
    def headline(self) -> PolicyResult:
        """The best policy that kept the limits, or else the one that violated them least often."""
        return self.ranked[0]

    @property
    def prices(self) -> dict[str, tuple[ShadowPrice, ...]]:
        """Shadow prices by kind of distribution, that of the headline first."""
        if not self.policies:
            return {}
        played = {one.kind for one in self.policies.values()}
        order = [self.headline.kind, *(kind for kind in DISTRIBUTION_KINDS if kind in played)]
        found = {kind: self.reference(kind) for kind in order}
        return {kind: best.prices for kind, best in found.items() if best is not None}

    def gain(self, price: ShadowPrice) -> float:
        """The reward gained by a bound that is 1% looser."""
        return self.plan.file.span * price.gain

    def measured_gain(self, price: ShadowPrice) -> float | None:
        """The gain by the difference quotient on the looser side."""
        return None if price.looser is None else self.plan.file.span * price.gain_at(price.looser)


def results_data(
    results: WhatifResults, sentences: Sequence[str], advice: dict[str, Any] | None
) -> dict[str, Any]:
    """All numbers: the content of `whatif.json`."""
    plan, file, scenario = results.plan, results.plan.file, results.plan.scenario
    return {
        "summary": list(sentences),
        "advice": advice,
        "stopped": results.stopped,
        "problem": {
            "file": str(file.path),
            "experts": list(plan.problem.experts),
            "draws": plan.problem.draws,
            "period": plan.problem.period,
            "rewards": dict(zip(("from", "to"), file.rewards, strict=True)),
            "limits": [
                {
                    "name": one.limit.name,
                    "side": one.limit.side,
                    "bound": one.written,
                    "per": one.per,
                    "bound_per_request": one.limit.bound / (one.requests or 1.0),
                    "unit": file.units.get(one.limit.name),
                    "line": one.line,
                    "window": one.window_data,
                }
                for one in file.limits
            ],
        },
        "scenario": {
            **plain_data(scenario, "description", "synthetic", "dimensions", "contexts"),
            **plain_data(scenario, "questions", "blanks", "unused"),
            "answers": scenario.cells,
        },
        "rounds": plan.rounds,
        "seeds": list(plan.seeds),
        "horizon": plan.horizon,
        "feedback": plan.feedback,
        "call_costs": call_costs_data(plan),
        "requests_per_day": plan.per_day,
        "traffic": None if plan.traffic is None else asdict(plan.traffic),
        "declared_traffic": plan.declared_traffic,
        "window": plan.window,
        "policies": {
            policy: {
                "kind": plan.kind(policy),
                "settings": policy_to_data(plan.policy_at(policy)),
                "uses_feedback": plan.uses_feedback(policy),
                "refused": results.refused.get(policy),
                "warning": results.warned.get(policy),
                **(
                    policy_data(plan, results.policies[policy])
                    if policy in results.policies
                    else {}
                ),
            }
            for policy in plan.policies
        },
        "references": {
            name: {"value": None, "note": one}
            if isinstance(one, str)
            else plain_data(one, "value", "ceiling", "kept", "note", "asked")
            for name, one in results.references.items()
        },
        "prices": {
            kind: [
                price_data(results, written, one)
                for written, one in zip(file.limits, prices, strict=True)
            ]
            for kind, prices in results.prices.items()
        },
        "sweep": sweep_data(results),
    }


def call_costs_data(plan: WhatifPlan) -> dict[str, Any] | None:
    """What calls cost; means by cost, in the order of the experts."""
    if plan.calls is None:
        return None
    return {
        "means": {name: plan.mean_costs[name].tolist() for name in plan.calls.means},
        **plain_data(plan.calls, "noise", "tail", "report"),
    }


def plain_data(source: object, *names: str) -> dict[str, Any]:
    return {name: np.asarray(getattr(source, name)).tolist() for name in names}


def policy_data(plan: WhatifPlan, result: PolicyResult) -> dict[str, Any]:
    fields = [name for name in PlaySummary._fields if name not in ("windows", "counted")]
    return {
        **plain_data(result, "reward", "deviation", "late", "keeps", "kept"),
        **plain_data(result, "periods", "bad_periods", "spend", "asked", "interval"),
        **plain_data(result, "windows", "bad_windows"),
        "refused_share": result.refused,
        "runs": [
            {
                "seed": seed,
                **plain_data(run, *fields),
                "windows": [window_results_data(plan, one) for one in run.windows],
                "counted_periods": [counted_periods_data(plan, one) for one in run.counted],
            }
            for seed, run in zip(result.seeds, result.runs, strict=True)
        ],
    }


def window_results_data(plan: WhatifPlan, found: WindowResults) -> dict[str, Any]:
    """A limit in the windows of a run; the list has the amount of each."""
    limit = plan.problem.limits[found.limit]
    return {
        "limit": limit.name,
        "side": limit.side,
        "per": limit.per,
        **plain_data(found, "windows", "bad", "used", "starts", "requests", "amounts"),
    }


def counted_periods_data(plan: WhatifPlan, found: WindowResults) -> dict[str, Any]:
    """A limit on some contexts in the periods of their requests; the list has the mean of each."""
    limit = plan.problem.limits[found.limit]
    return {
        "limit": limit.name,
        "side": limit.side,
        "where": limit.window_data["where"],
        "periods": found.windows,
        "bad": found.bad,
        **plain_data(found, "starts", "requests", "amounts"),
    }


def price_data(results: WhatifResults, written: WrittenLimit, price: ShadowPrice) -> dict[str, Any]:
    """A shadow price, per unit of the bound per request."""
    span = results.plan.file.span
    return {
        "limit": written.limit.name,
        "side": written.limit.side,
        "per": written.per,
        "price": span * price.price,
        "step": price.step,
        "below": None if price.below is None else span * price.below,
        "above": None if price.above is None else span * price.above,
        "verdict": price.verdict,
        "gain_of_one_percent": results.gain(price),
        "measured_gain_of_one_percent": results.measured_gain(price),
    }


def sweep_data(results: WhatifResults) -> dict[str, Any] | None:
    plan = results.plan
    if plan.sweep is None:
        return None
    limit = plan.sweep.limit
    return {
        "limit": limit.limit.name,
        "side": limit.limit.side,
        "per": limit.per,
        "levels": [
            {
                "bound": level.written,
                "infeasible": level.reason or None,
                "best": {
                    kind: None if best is None else best.value
                    for kind in plan.kinds
                    for best in [results.reference(kind, level.number)]
                },
                "policies": {
                    name: plain_data(one, "reward", "deviation", "keeps")
                    for name, one in results.policies_at(level.number).items()
                },
                "auto": plan.auto_choices(level.number) if level.problem else [],
                "refused": results.refusals(level.number),
            }
            for level in plan.sweep.levels
        ],
    }
