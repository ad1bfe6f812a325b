"""RouterCore: problem, rule, state and totals of one router, behind one compiled handle.

It draws panels and learns from rewards. Locks, open decisions and event logs are its callers'.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from bylot._text import announce_if_slow
from bylot.errors import DecisionError, PolicyError, RewardError
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.policies.base import BoundPolicy, Policy, Ticket, has_same_pool
from bylot.policies.budget import cancel_round, correct_spend, count_played_rounds, report_budget
from bylot.policies.capacity import limit_contexts
from bylot.policies.compiled_handle import (
    BookedDecision,
    CompiledHandle,
    Totals,
    average_distribution,
    decide_and_book,
    learn_reward,
    make_totals,
)
from bylot.policies.validation import RunConfig, check_run_config, is_reward_in_range
from bylot.problem import Problem
from bylot.problem.validation import suggest_known_name
from bylot.router.status import (
    CostStatus,
    LimitInPeriod,
    PeriodStatus,
    RouterStatus,
    count_effective_experts,
    make_limit_status,
)

MAX_ABS_REWARD = 1e300
COMPILED_HANDLE_TYPES: set[Any] = set()  # types of handles that were compiled in this process
ALL_AVAILABLE: Bools = np.empty(0, np.bool_)


class CostTotals(Struct):
    """The decisions that the sums of each cost are averaged over.

    since:  decisions made before the cost was introduced, by name
    unused: decisions since then that were cancelled, by name
    """

    since: dict[str, int] = {}
    unused: dict[str, int] = {}

    def count_decisions(self, cost: str, t: int) -> int:
        """Decisions since the cost exists, of t in all, without cancelled ones."""
        return t - self.since.get(cost, 0) - self.unused.get(cost, 0)

    def change_costs(self, old: Iterable[str], new: Iterable[str], t: int) -> None:
        """Continue with other costs from decision t on; those of the same name go on."""
        known, names = set(old), list(new)
        self.since = {name: self.since.get(name, 0) if name in known else t for name in names}
        self.unused = {name: n for name, n in self.unused.items() if name in names}


class RouterCore:
    """A policy bound to a problem. Not thread-safe: the caller must hold the lock.

    rule, rows: of a router that is being restored; its state is then filled in by the caller
    contexts:   the row of the state of each context
    period:     see `cancel`
    skipped:    visits by context that a change of the problem has added: see `count_visits`
    """

    def __init__(
        self,
        problem: Problem,
        policy: Policy,
        run: RunConfig,
        max_contexts: int,
        *,
        rule: Any = None,
        rows: int = 1,
    ) -> None:
        self.policy, self.run, self.max_contexts = policy, run, max_contexts
        self.contexts: dict[str | None, int] = {}
        self.costs = CostTotals()
        self.period = 0, 0
        self.skipped: list[int] = []
        rule = policy.bind(problem, run.horizon) if rule is None else rule
        self._bind(problem, rule, policy.start(rule, rows), make_totals(len(problem.costs)))
        self._compile()

    def _bind(self, problem: Problem, rule: Any, state: Any, totals: Totals) -> None:
        """Bind to a problem and rebuild derived tables."""
        self.problem, self.rule, self.totals = problem, rule, totals
        self._index = {name: i for i, name in enumerate(problem.experts)}
        self._costs: Floats = np.array(list(problem.costs.values())).reshape(-1, problem.size)
        self._set_state(state)

    def _set_state(self, state: Any) -> None:
        """Replace the state, and hand it to the compiled side."""
        self.state = state
        self._handle = CompiledHandle(self.rule, state, self.totals, self._costs)

    def _compile(self) -> None:
        """Compile now, on a scratch state, so that no request has to wait for it."""
        kind = self._handle._numba_type_
        if kind in COMPILED_HANDLE_TYPES:
            return
        low, high = self.run.low, self.run.high
        totals = make_totals(len(self.problem.costs))
        scratch = CompiledHandle(self.rule, self.policy.start(self.rule), totals, self._costs)
        with announce_if_slow("... compiling, once for this version on this machine"):
            ticket = decide_and_book(scratch, 0, 0, 0, ALL_AVAILABLE).ticket
            learn_reward(scratch, ticket, low, low, high)
            self.status()
        COMPILED_HANDLE_TYPES.add(kind)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: all but the handle, which is rebuilt."""
        return {name: value for name, value in vars(self).items() if name != "_handle"}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        vars(self).update(fields)
        self._set_state(self.state)

    @property
    def t(self) -> int:
        """Decisions so far."""
        return int(self.totals.rounds[0])

    def decide(self, context: str | None, available: Bools) -> BookedDecision:
        """Draw a panel and book its cost; the caller keeps the ticket for the reward."""
        row = self.find_context(context)  # may replace the handle
        return decide_and_book(self._handle, row, self.run.seed, self.t, available)

    def learn(self, ticket: Ticket, value: float) -> None:
        """Learn from a reward that `check_reward` has accepted."""
        learn_reward(self._handle, ticket, value, self.run.low, self.run.high)

    def preview_state(self, context: int, available: Bools) -> Any:
        """The state after the next decision in this context, which may move the distribution."""
        state = copy.deepcopy(self.state)
        totals = make_totals(len(self.problem.costs))
        handle = CompiledHandle(self.rule, state, totals, self._costs)
        decide_and_book(handle, context, self.run.seed, self.t, available)
        return state

    def check_reward(self, value: Any, id: str) -> float:
        """The reward as a float, or an error; nothing is changed."""
        low, high = self.run.low, self.run.high
        what = f"reward for decision {id}"
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise RewardError(what, got=value, expected="a number", remedy="nothing was changed")
        if isinstance(value, np.floating):
            value = float(value)  # a narrow type cannot be compared with what is beyond it
        if not -MAX_ABS_REWARD < value < MAX_ABS_REWARD:  # NaN fails this too
            raise RewardError(
                what, got=value, expected="a finite number", remedy="nothing was changed"
            )
        if not is_reward_in_range(float(value), low, high):
            raise RewardError(
                what,
                got=value,
                expected=f"a number in [{low}, {high}]",
                remedy="nothing was changed; declare a wider range with rewards=(low, high)",
            )
        return float(value)

    def settle(self, corrections: Mapping[str, float]) -> None:
        """Book what panels cost beyond the stated costs, by name; guards continue from there."""
        self.totals.spent[:] += [corrections.get(name, 0.0) for name in self.problem.costs]
        correct_spend(self.problem, self.rule, self.state, corrections)

    def cancel(
        self, t: int, spend: Mapping[str, float], expected: Mapping[str, float]
    ) -> dict[str, float]:
        """Exclude decision t, of these costs, from all averages; returns the costs it had booked.

        If it is of the current period, that has one more decision to come (`cancel_round`); a
        decision of an earlier period, or from before a change, leaves the current one as it is.
        """
        names = [name for name in self.problem.costs if name in spend]
        counted = [name for name in names if t >= self.costs.since.get(name, 0)]
        for sums, given in ((self.totals.spent, spend), (self.totals.expected, expected)):
            sums[:] -= [given[name] if name in counted else 0.0 for name in self.problem.costs]
        for name in counted:
            self.costs.unused[name] = self.costs.unused.get(name, 0) + 1
        # self.period is (first decision of the period, t minus the rounds played in it). Within a
        # period the second number changes only when a decision is cancelled.
        first, level = self.period
        rounds = count_played_rounds(self.rule, self.state)
        if level != self.t - rounds:
            first = self.t - rounds
        if rounds and t >= first:
            cancel_round(self.problem, self.rule, self.state, spend)
            rounds -= 1
        self.period = first, self.t - rounds
        return {name: spend[name] for name in counted}

    def change_problem(self, problem: Problem) -> bool:
        """Continue under another problem with all that was learned; whether the pool is the same.

        Limits that cannot be kept raise an error, and nothing was changed.
        """
        check_run_config(problem, self.run.seed, self.run.horizon, (self.run.low, self.run.high))
        if problem == self.problem:
            return True
        old = self.problem
        try:
            rule = self.policy.bind(problem, self.run.horizon)
        except PolicyError as error:
            raise error.for_running_router() from None
        before = BoundPolicy(old, self.rule, self._shrink_state(problem.size))
        state = self.policy.migrate(before, problem, rule)
        totals = self.totals._replace(
            spent=self._reorder(self.totals.spent, problem),
            expected=self._reorder(self.totals.expected, problem),
        )
        self.costs.change_costs(old.costs, problem.costs, self.t)
        visits = self.count_visits()
        self._bind(problem, rule, state, totals)
        self.skipped = (state.visits[: visits.size] - visits).tolist()
        self.period = self.t, self.t - count_played_rounds(rule, state)
        return has_same_pool(old, problem)

    def _reorder(self, sums: Floats, problem: Problem) -> Floats:
        """Sums by cost in the order of another problem's costs, 0 for new ones."""
        by_name = self.name_costs(sums)
        return np.array([by_name.get(name, 0.0) for name in problem.costs], np.float64)

    def _shrink_state(self, size: int) -> Any:
        """The state without spare rows, if they would not fit with so many experts."""
        rows, used = len(self.state.visits), len(self.contexts)
        capacity = limit_contexts(self.policy, size, rows)
        if capacity < max(1, used):
            raise PolicyError(
                f"with {size:,} experts the policy has capacity for {capacity:,} contexts, and the "
                f"router has {used:,}",
                remedy="add fewer experts, or create a new router with 'distinct'",
            )
        return self.state if capacity == rows else self._resize_state(capacity)

    def _resize_state(self, rows: int) -> Any:
        """The state with so many rows for contexts."""
        return resize_arrays(self.state, self.policy.start(self.rule, rows))

    def mask_available(self, available: Iterable[str] | None) -> Bools:
        """A mask of the available experts; an empty mask means all."""
        if available is None:
            return ALL_AVAILABLE
        if isinstance(available, str):
            raise DecisionError("available", got=available, expected="a list of names")
        mask = np.zeros(self.problem.size, np.bool_)
        for name in available:
            if not isinstance(name, str) or name not in self._index:
                remedy = suggest_known_name(name, self.problem.experts, "experts")
                raise DecisionError(f"no expert {name!r}", remedy=remedy)
            mask[self._index[name]] = True
        if not mask.any():
            raise DecisionError("no expert is available", remedy="name at least one")
        return ALL_AVAILABLE if mask.all() else mask

    def find_context(self, label: str | None) -> int:
        """The row of a context, a new one if it was never seen."""
        if label is not None and not isinstance(label, str):
            raise DecisionError("context", got=label, expected="a string or None")
        if label in self.contexts:
            return self.contexts[label]
        number, capacity = len(self.contexts), self.count_capacity()
        if number >= capacity:
            limited = capacity < self.max_contexts
            verb = "has capacity for" if limited else "was declared for"
            other = "policy='distinct', which needs less" if limited else "a larger max_contexts"
            raise DecisionError(
                f"context {label!r} would be number {number + 1:,}, and this router {verb} "
                f"{capacity:,}",
                remedy=f"use coarser contexts, or create a router with {other}",
            )
        if number == len(self.state.visits):
            self._set_state(self._resize_state(min(2 * number, capacity)))
        self.contexts[label] = number
        return number

    def count_capacity(self) -> int:
        """The largest number of contexts that there can be."""
        return limit_contexts(self.policy, self.problem.size, self.max_contexts)

    def status(self, available: Bools = ALL_AVAILABLE, waiting: int = 0) -> RouterStatus:
        """The status, with the distribution over the available experts."""
        rewards, problem, t = int(self.totals.rewards[0]), self.problem, self.t
        spent, expected = map(self.name_costs, (self.totals.spent, self.totals.expected))
        costs = {
            name: CostStatus(
                spent[name], expected[name], spent[name], self.costs.count_decisions(name, t)
            )
            for name in problem.costs
        }
        span = self.run.high - self.run.low
        prices = span * self.policy.prices(problem, self.rule, self.state)
        now = report_budget(problem, self.rule, self.state)
        limits = tuple(
            make_limit_status(
                one,
                costs[one.name].settled / max(1, costs[one.name].decisions),
                float(price),
                now and LimitInPeriod(*now.of(j)),
            )
            for j, (one, price) in enumerate(zip(problem.limits, prices, strict=True))
        )
        q = self.average_distribution(available).tolist()
        return RouterStatus(
            decisions=t,
            rewards=rewards,
            waiting=waiting,
            contexts=len(self.contexts),
            max_contexts=self.count_capacity(),
            mean_reward=float(self.totals.total[0]) / rewards if rewards else None,
            kept=all(one.kept for one in limits),
            limits=limits,
            costs=costs,
            q=dict(zip(problem.experts, q, strict=True)),
            effective_experts=count_effective_experts(q),
            multinomial=self.policy.draws_iid,
            whole=self.policy.draws_sets,
            period=now and PeriodStatus(now.period, now.played, now.replaced),
        )

    def count_visits(self) -> Ints:
        """Decisions by context. A change of the problem moves the policy's own count on to where
        a step is due; `skipped` corrects for that.
        """
        visits: Ints = self.state.visits[: len(self.contexts)].copy()
        visits[: len(self.skipped)] -= np.array(self.skipped, np.int64)
        return visits

    def name_costs(self, sums: Floats) -> dict[str, float]:
        """Numbers under the names of the costs."""
        return dict(zip(self.problem.costs, sums.tolist(), strict=True))

    def average_distribution(self, available: Bools) -> Floats:
        """The distribution over the available experts, averaged over contexts by their visits: of
        a draw, or if a panel is drawn as one set, the inclusion probabilities.
        """
        visits = self.count_visits().astype(np.float64)
        count = int(available.sum()) if available.size else self.problem.size
        seats = min(self.problem.draws, count) if self.policy.draws_sets else 1
        weights = visits if visits.any() else np.ones(1)
        return seats * average_distribution(self._handle, weights, available)


def resize_arrays(old: Any, blank: Any) -> Any:
    """Copy the leading rows of nested NamedTuples of arrays into others of more or fewer rows."""
    for before, after in zip(iterate_arrays(old), iterate_arrays(blank), strict=True):
        rows = min(len(before), len(after))
        after[:rows] = before[:rows]
    return blank


def iterate_arrays(fields: tuple[Any, ...]) -> Iterator[Any]:
    """All arrays of nested NamedTuples, in order."""
    for value in fields:
        if isinstance(value, tuple):
            yield from iterate_arrays(value)
        else:
            yield value
