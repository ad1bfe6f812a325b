"""The plan of a what-if run: the problem, the scenario, the policies, and the jobs they need.

Reference values are jobs too: optima, the best fixed panel, equal shares, and the shadow prices of
limits.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from bylot import optima
from bylot._text import join_words, name_panels
from bylot._windows import WINDOW_SIZES
from bylot.environments import CallCosts, Environment, Given, Outcomes, Traffic
from bylot.errors import BylotError, InfeasibleLimits
from bylot.limits.binding import get_period
from bylot.metrics import measure_worst_excess
from bylot.numerics.jit import Floats, Ints
from bylot.outcome_tables.sheets import quote_field
from bylot.policies import Auto, Policy, find_policy, policy_to_data
from bylot.policies.validation import FEEDBACK_WORDS, FeedbackKind
from bylot.problem import Problem
from bylot.problem.validation import suggest_known_name
from bylot.problem.window_bounds import has_known_optimum, restate_per_request
from bylot.problem_files import ProblemFile, WrittenLimit
from bylot.scenario import OptimumInput, Scenario

MAX_SWEEP_LEVELS = 100
MAX_CACHED_VALUES = 50_000_000  # values of a noisy environment that are kept in memory
DEFAULT_ROUNDS, MAX_DEFAULT_ROUNDS = 10_000, 200_000


class WhatifJob(NamedTuple):
    """A run of a policy under a seed; without a seed, a value of `REFERENCES`."""

    name: str
    seed: int | None = None
    level: int | None = None  # of the sweep; None: the bound of the file

    def __str__(self) -> str:
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.name}{seed}{'' if self.level is None else f', level {self.level + 1}'}"


class SweepLevel(NamedTuple):
    """A bound in the unit of the file, and the problem with it, or why no policy can keep it."""

    number: int
    written: float
    problem: Problem | None
    reason: str = ""


class BoundSweep(NamedTuple):
    """The limit whose bound is varied, and the problems with these bounds."""

    limit: WrittenLimit
    levels: tuple[SweepLevel, ...]


def choose_rounds(problem: Problem, traffic: Traffic | None) -> int:
    """Choose the requests of a run: enough for the longest windows, if that is not too many.

    >>> from bylot.problem import at_most
    >>> daily = Problem(["a", "b"], {"usd": [1, 2]}, [at_most("usd", 90, per="day")], draws=1)
    >>> [choose_rounds(daily, Traffic("flat", per_day=n)) for n in (100, 2_000, 1_000_000)]
    [10000, 56000, 200000]
    """
    days = max(
        (WINDOW_SIZES[calendar.per].played_days for calendar in problem.calendars), default=0
    )
    wanted = 0 if traffic is None else round(days * traffic.per_day)
    return min(max(wanted, DEFAULT_ROUNDS), MAX_DEFAULT_ROUNDS)


def parse_sweep(file: ProblemFile, text: str) -> BoundSweep:
    """Parse `NAME=FROM:TO:COUNT`; NAME may end in `.at_most` or `.at_least`."""
    name, bounds = parse_sweep_text(text)
    swept = find_swept_limit(file, name)
    problem, levels = file.problem, []
    for n, written in enumerate(bounds):
        other = swept.limit.at(swept.to_bound(written, problem.draws))
        limits = [other if limit.key == other.key else limit for limit in problem.limits]
        try:
            levels.append(SweepLevel(n, written, problem.replace(limits=limits)))
        except InfeasibleLimits as error:
            levels.append(SweepLevel(n, written, None, str(error)))
    return BoundSweep(swept, tuple(levels))


def parse_sweep_text(text: str) -> tuple[str, list[float]]:
    """The name and the bounds of a sweep.

    >>> parse_sweep_text("usd=0.5:3:6")
    ('usd', [0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
    """
    name, _, rest = text.rpartition("=")
    try:
        low, high, count = rest.split(":")
        first, last, n = float(low), float(high), int(count)
    except ValueError:
        raise BylotError(
            "--sweep", got=text, expected="NAME=FROM:TO:COUNT, such as usd=0.5:3:10"
        ) from None
    if not (0 <= first < last < np.inf and 2 <= n <= MAX_SWEEP_LEVELS):
        raise BylotError(
            "--sweep",
            got=text,
            expected=f"2 to {MAX_SWEEP_LEVELS} levels from a bound of 0 or more to a larger one",
        )
    return name, [float(f"{bound:.12g}") for bound in np.linspace(first, last, n)]


def find_swept_limit(file: ProblemFile, name: str) -> WrittenLimit:
    """The limit with this name, or with this name and side; or with the window after it."""
    sides: dict[str, WrittenLimit] = {}
    fits = []
    for written in file.limits:
        limit = written.limit
        side = f"{limit.name}.{limit.side}"
        full = side if limit.per is None else f"{side}.{written.per}"
        full += (f".{limit.scope}" if limit.scope else "") + f"@{','.join(limit.where)}".rstrip("@")
        sides[full] = written
        short = f"{limit.name}.{full.removeprefix(f'{side}.')}"  # usd.month.tenant
        if name in (limit.name, side, f"{limit.name}.{written.per}", short, full):
            fits.append(full)
    if len(fits) == 1 or name in fits:
        return sides[name if name in fits else fits[0]]
    if fits:
        several = len({sides[full].limit.key._replace(sign=0) for full in fits}) > 1
        how = "several times" if several else "on both sides"
        raise BylotError(
            f"--sweep: {quote_field(name)} is limited {how}",
            remedy=f"write {' or '.join(f'{full}=...' for full in fits)}",
        )
    raise BylotError(
        f"--sweep: {file.path} has no limit on {quote_field(name)}",
        remedy=suggest_known_name(
            name, list(dict.fromkeys(written.limit.name for written in file.limits)), "limits"
        ),
    )


@dataclass(frozen=True)
class WhatifPlan:
    """What is simulated; policies as specs, such as `noisy-or:explore=0.02`."""

    file: ProblemFile
    scenario: Scenario
    policies: Sequence[str]
    seeds: Sequence[int]
    rounds: int
    sweep: BoundSweep | None = None
    per_day: float | None = None  # requests; None: unknown
    feedback: FeedbackKind = "panel"
    calls: CallCosts | None = None  # None: calls cost what is declared
    traffic: Traffic | None = None  # when requests arrive, for limits of the calendar
    declared_traffic: float | None = None  # of the file; None: policies learn it

    @cached_property
    def arrivals(self) -> dict[int, Ints | None]:
        """When the requests of each seed arrive; None if no limit is of the calendar."""
        if self.traffic is None:
            return dict.fromkeys(self.seeds)
        return {seed: self.traffic.arrivals(self.rounds, seed) for seed in self.seeds}

    @property
    def has_windows(self) -> bool:
        """Whether limits are of the calendar."""
        return bool(self.problem.calendars)

    @property
    def has_periods(self) -> bool:
        """Whether limits hold at the end of periods, as all do that are not of the calendar."""
        return not self.has_windows or any(limit.per is None for limit in self.problem.limits)

    @property
    def budgets(self) -> dict[int, WrittenLimit]:
        """The limits on what windows cost in all, by their places."""
        return {n: found for n, found in enumerate(self.file.limits) if found.limit.is_total}

    def describe_tenants(self) -> list[str]:
        """Describe how limits for each tenant are played, if there are any."""
        text = (
            "All requests are played as those of one tenant, so limits for each tenant count "
            "all of them: give the traffic of one tenant to see what it would get."
        )
        return [text] if self.problem.scopes else []

    @property
    def judged_units(self) -> str:
        """What limits are judged in: "periods", "runs", "windows" or "periods and windows"."""
        periods = ["periods" if self.horizon is None else "runs"] * self.has_periods
        return join_words([*periods, *["windows"] * self.has_windows], "and")

    @property
    def judged_unit(self) -> str:
        """One of these: "period", "run", "window", or "period and window"."""
        return " and ".join(one.removesuffix("s") for one in self.judged_units.split(" and "))

    @property
    def mean_costs(self) -> dict[str, Floats]:
        """What calls cost on average, by name of the cost: at most the declared largest costs."""
        costs = dict(self.problem.costs)
        for name, means in (self.calls.means if self.calls else {}).items():
            costs[name] = np.minimum(means, self.problem.max_costs.get(name, np.inf))
        return costs

    @property
    def per_requests(self) -> str:
        """What totals are of, in a sentence."""
        return "a day" if self.per_day else "per 1,000 requests"

    @property
    def problem(self) -> Problem:
        return self.file.problem

    @property
    def panels(self) -> str:
        """The panels of different experts that mixtures are of, in a sentence."""
        problem = self.problem
        return name_panels(problem.min_members, min(problem.draws, problem.size))

    @property
    def horizon(self) -> int | None:
        """The horizon that policies know; None if the problem has periods, or windows, in which
        requests may be refused.
        """
        return None if self.problem.period or self.has_windows else self.rounds

    @property
    def period(self) -> int:
        """The number of rounds at whose end the limits hold."""
        if self.has_windows and self.has_periods:
            return get_period(self.problem, None)
        return self.problem.period or self.rounds

    @property
    def complete(self) -> int:
        """The number of rounds in complete periods."""
        return self.rounds // self.period * self.period

    @property
    def window(self) -> int:
        return max(1, self.rounds // 20)

    @property
    def has_several_periods(self) -> bool:
        """Whether there are several complete periods, so that each is shown by itself."""
        return self.complete > self.period

    @property
    def levels(self) -> tuple[SweepLevel, ...]:
        return () if self.sweep is None else self.sweep.levels

    @property
    def bounds(self) -> list[tuple[float, int | None]]:
        """The bounds of the sweep in order, each with its level, and that of the file (None)."""
        if self.sweep is None:
            return []
        own = self.sweep.limit.written
        others = [(one.written, one.number) for one in self.levels if one.written != own]
        return sorted([*others, (own, None)], key=lambda one: one[0])

    @cached_property
    def optimum_input(self) -> OptimumInput:
        return self.scenario.optimum_input(self.rounds, self.seeds)

    @cached_property
    def environments(self) -> dict[int, Environment]:
        """The environment under each seed; noise is drawn once for all if memory allows."""
        environment = self.scenario.environment
        values = self.rounds * self.scenario.size * len(self.seeds)
        if isinstance(environment, Outcomes) or values > MAX_CACHED_VALUES:
            return dict.fromkeys(self.seeds, environment)
        return {seed: Given(*environment.rounds(0, self.rounds, seed)) for seed in self.seeds}

    def problem_at(self, level: int | None) -> Problem | None:
        """The problem at a level of the sweep, or of the file; None if it is infeasible."""
        return self.problem if level is None else self.levels[level].problem

    def policy_at(self, spec: str, level: int | None = None) -> Policy:
        """The policy of a spec, whether it can run or not; `auto` depends on the bounds."""
        found, problem = find_policy(spec), self.problem_at(level) or self.problem
        return found.resolve(problem, self.feedback) if isinstance(found, Auto) else found

    def describe_feedback(self) -> str:
        """What policies learned from."""
        told = {
            "panel": "one reward per request",
            "members": "the reward, and what each member of the panel would have earned alone",
            "winner": "the reward, and which member would have earned most alone",
        }
        text = f"Feedback: {told[self.feedback]}."
        ignoring = [spec for spec in self.policies if not self.uses_feedback(spec)]
        if not ignoring:
            return text
        verb, learn = ("ignore", "they learn") if len(ignoring) > 1 else ("ignores", "it learns")
        return (
            f"{text} {join_words(ignoring, 'and')} {verb} {FEEDBACK_WORDS[self.feedback]}: {learn} "
            "from the reward alone."
        )

    def uses_feedback(self, spec: str) -> bool:
        """Whether a policy learns from all that is reported."""
        return self.feedback in self.policy_at(spec).feedback

    def kind(self, spec: str, level: int | None = None) -> str:
        """The kind of distribution that a policy plays: "exact" (i.i.d. draws) or "panels"."""
        return "exact" if self.policy_at(spec, level).draws_iid else "panels"

    @property
    def kinds(self) -> list[str]:
        levels = (None, *(level.number for level in self.levels if level.problem))
        found = {self.kind(spec, level) for spec in self.policies for level in levels}
        return sorted(found, reverse=True)

    def auto_choices(self, level: int | None = None) -> list[str]:
        """What `auto` selects: "auto is distinct"."""
        return [
            f"{spec} is {policy_to_data(self.policy_at(spec, level))['name']}"
            for spec in self.policies
            if spec.partition(":")[0] == "auto"
        ]

    def jobs(self, refused: Collection[str], references: Sequence[str]) -> list[WhatifJob]:
        """One run per policy, the references, the other runs, the sweep: soon comparable."""
        playing = [policy for policy in self.policies if policy not in refused]
        jobs = [WhatifJob(policy, seed) for seed in self.seeds for policy in playing]
        jobs[len(playing) : len(playing)] = [WhatifJob(name) for name in references]
        for n in [level.number for level in self.levels if level.problem]:
            jobs += [WhatifJob(kind, level=n) for kind in self.kinds]
            jobs += [WhatifJob(policy, seed, n) for policy in self.policies for seed in self.seeds]
        return jobs


REFERENCE_SLACK = 1e-9  # in units of the largest cost: an optimum lies on its limits


class DistributionKind(NamedTuple):
    """A kind of distribution that policies play."""

    best: str  # the best of the kind, in a sentence, with `WhatifPlan.panels`
    plays: str  # what the policies of this kind play
    label: str  # the best of the kind, in a column
    free: str  # the reference for the best of the kind without limits


DISTRIBUTION_KINDS = {
    "panels": DistributionKind(
        "mixture of {panels}", "panels of different experts", "best panels", "free-panels"
    ),
    "exact": DistributionKind(
        "distribution of independent draws", "independent draws", "best draws", "free-draws"
    ),
}
"""By the reference that is the best of the kind under the limits."""


@dataclass(frozen=True, eq=False)
class Reference:
    """What a policy that does not learn would earn."""

    value: float  # expected reward of a request
    ceiling: float | None = None  # proved upper bound of all of its kind
    asked: Floats | None = None  # (K,) share of the requests in which each expert is asked
    kept: bool = True  # whether it keeps all limits
    note: str = ""
    prices: tuple[optima.ShadowPrice, ...] = ()  # of each limit, if computed

    @property
    def cells(self) -> tuple[str, str, str]:
        """Cells of a table: value, ceiling, whether it keeps the limits."""
        ceiling = "-" if self.ceiling is None else f"{self.ceiling:.4f}"
        return f"{self.value:.4f}", ceiling, "yes" if self.kept else "no"


def compute_reference(plan: WhatifPlan, problem: Problem, job: WhatifJob) -> Reference | str:
    """One reference, with shadow prices for the bounds of the file, or why there is none."""
    priced = job.level is None and job.name in DISTRIBUTION_KINDS
    if not has_known_optimum(problem):
        return "not known: limits are on some contexts; leave `where` out to compare"
    try:
        if plan.calls is not None and plan.calls.means:
            problem = problem.replace(costs=plan.mean_costs)
        problem = restate_per_request(problem)
        return REFERENCES[job.name](plan, problem, priced=priced)
    except InfeasibleLimits:
        return MISSING_REASONS.get(job.name, "does not exist").format(panels=plan.panels)


MISSING_REASONS = {
    "panels": "does not exist: {panels} cannot keep the limits",
    "exact": "not found",
    "surrogate": "does not exist: the surrogate is infeasible, although the limits are not",
}


def compute_optimum(
    solve: Callable[..., Any],
    plan: WhatifPlan,
    problem: Problem,
    priced: bool,
    limited: bool = True,
    **options: Any,
) -> Reference:
    """The best distribution by context that `solve` finds, `limited` or not."""
    stack, contexts = plan.optimum_input
    options["contexts"] = contexts
    best = solve(problem if limited else problem.replace(limits=[]), stack, **options)
    is_mixture = isinstance(best, optima.Optimum)
    inclusion = np.atleast_2d(best.inclusion) if is_mixture else best.inclusion(problem.draws)
    asked: Floats = plan.optimum_input.context_shares() @ inclusion
    return Reference(
        value=plan.file.to_reward(best.value),
        ceiling=plan.file.to_reward(best.ceiling),
        asked=asked,
        kept=measure_worst_excess(problem, problem.rows @ asked) <= REFERENCE_SLACK,
        prices=optima.check_shadow_prices(problem, stack, best, **options) if priced else (),
    )


def compute_best_set(plan: WhatifPlan, problem: Problem, priced: bool) -> Reference | str:
    best = optima.best_set(problem, plan.optimum_input.stack)
    if not best.members:
        return "no panel keeps the upper limits"
    proof = "proved optimal" if best.proved else "the best found by a greedy search"
    if not best.feasible:
        proof = "no fixed panel keeps all limits; this one keeps the upper ones"
    return Reference(
        plan.file.to_reward(best.value),
        asked=np.array([float(name in best.members) for name in problem.experts]),
        kept=best.feasible,
        note=f"{', '.join(best.members)}: {proof}",
    )


def compute_equal_shares(plan: WhatifPlan, problem: Problem, priced: bool) -> Reference:
    """M different experts at random, all equally often."""
    K, M = problem.size, min(problem.draws, problem.size)
    away = measure_worst_excess(problem, problem.rows.sum(axis=1) * M / K)
    value = plan.file.to_reward(equal_shares_value(plan.optimum_input.stack, M))
    return Reference(value, asked=np.full(K, M / K), kept=away <= REFERENCE_SLACK)


def equal_shares_value(stack: optima.ValueStack, M: int) -> float:
    """Expected reward of M different experts, every set equally likely.

    The r-th best of K (from 0) is the best of the set with probability C(K-1-r, M-1) / C(K, M).

    >>> equal_shares_value(optima.ValueStack([[0.0, 1.0, 0.5]]), 2)
    0.8333333333333333
    """
    K = stack.size
    probability = [math.comb(K - 1 - r, M - 1) / math.comb(K, M) for r in range(K)]
    ranked = np.take_along_axis(stack.values, stack.order.astype(np.int64), axis=2)
    return float(stack.weights @ (ranked @ np.array(probability)).sum(axis=1))


REFERENCES: Mapping[str, Callable[..., Reference | str]] = {
    "panels": partial(compute_optimum, partial(optima.optimum, fewer=False)),
    "exact": partial(
        compute_optimum,
        partial(optima.iid_optimum, starts=2),
        exact=True,  # more led to the same
    ),
    "surrogate": partial(compute_optimum, optima.iid_optimum),
    "most": partial(compute_optimum, partial(optima.optimum, fewer=True)),
    "set": compute_best_set,
    "equal": compute_equal_shares,
    "free-panels": partial(compute_optimum, partial(optima.optimum, fewer=False), limited=False),
    "free-draws": partial(compute_optimum, optima.iid_optimum, limited=False),
}
"""In the order of the report."""
