"""RouterCore: problem, rule, state and sums of one router, behind one compiled handle.

It draws panels, learns from rewards and settles costs. Locks, open decisions and event logs are its
callers'.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bylot.errors import DecisionError, TooManyContexts
from bylot.limits.book import (
    ALL_AVAILABLE,
    NO_FLOATS,
    NO_LABELS,
    CostsByName,
    LimitBook,
    RequestLabels,
    Tables,
    check_context,
)
from bylot.limits.keys import NO_KEYS, KeyNames
from bylot.limits.request import Ticket, View
from bylot.numerics.jit import Bools, Floats, Ints, announce_compilation
from bylot.policies.base import NO_SCORES, NO_WINNER, BoundPolicy, Policy
from bylot.policies.binding import BoundRules, bind_policy, start_policy
from bylot.policies.compiled_handle import (
    average_distribution,
    find_entries,
    make_handle,
    make_totals,
)
from bylot.policies.validation import RunConfig
from bylot.problem import Problem
from bylot.problem.validation import suggest_known_name
from bylot.router.changes import DecisionMade
from bylot.router.cost_sums import CostSums
from bylot.router.edits import rebind_for_traffic
from bylot.router.price_average import READING_DECISIONS, PriceAverage, add_reading

OF_HANDLE = ("_handle", "_entries", "_stated", "_inclusion")  # what `_make_handle` makes
Refusals = Iterable[tuple[int, int]]


class RouterCore:
    """A policy bound to a problem. Not thread-safe: the caller must hold the lock.

    rules:    policy and limits bound to the problem, if that was done before
    rows:     of the state of a router that is being restored; the caller fills it in
    contexts: the row of the state of each context
    book:     the limits, with their ledgers
    sums:     of the costs of decisions
    skipped:  visits by context that a change of the problem has added: see `count_visits`
    prices:   of the limits, averaged since their bounds last changed
    """

    def __init__(
        self,
        problem: Problem,
        policy: Policy,
        run: RunConfig,
        max_contexts: int,
        *,
        rules: BoundRules | None = None,
        rows: int = 1,
    ) -> None:
        self.policy = policy
        self.run = run
        self.max_contexts = max_contexts
        self.contexts: dict[str | None, int] = {}
        self.skipped: list[int] = []
        self.book = LimitBook(problem, self.contexts)
        self.sums = CostSums(problem.costs, make_totals(len(problem.costs)))
        with announce_compilation(policy.name):
            if rules is None:
                rules = bind_policy(policy, problem, run.horizon, run.feedback)
            self.bind(start_policy(policy, problem, *rules, rows))
            # Now, so that no decision or reward waits; what a status needs is compiled with it.
            for name in ("draw_and_book", "learn_feedback"):
                getattr(self._entries, name)
            self.book.compile()

    def bind(self, bound: BoundPolicy) -> None:
        """Take a policy bound to a problem, and compute what follows from it."""
        problem = bound.problem
        self.problem = problem
        self.rule = bound.rule
        self.totals = self.sums.totals
        self._index = {name: i for i, name in enumerate(problem.experts)}
        self._costs: Floats = np.array(list(problem.costs.values())).reshape(-1, problem.size)
        self.prices = [PriceAverage() for _ in problem.limits]
        self._excess = {
            name: (largest - problem.costs[name]).tolist()
            for name, largest in problem.max_costs.items()
        }
        self.state = bound.state
        self.book.bind(problem, bound.limits)
        self._make_handle()
        self._note_contexts()

    def _make_handle(self) -> None:
        """Make what compiled code takes, and arrays that it fills in for each decision."""
        limits = self.book.pointer
        self._handle = make_handle(self.rule, self.state, limits, self.totals, self._costs)
        self._entries = find_entries(self._handle)
        self._stated = np.empty((2, len(self._costs)))
        self._inclusion = np.empty(self.problem.draws)

    def refresh(self) -> None:
        """Hand ledgers of keys that were restored to the compiled side."""
        self.book.bind(self.problem, self.book.tables)
        self._make_handle()
        self._note_contexts()

    def _note_contexts(self) -> None:
        """Write which limits count the requests of each known context."""
        for label, row in self.contexts.items():
            self.book.note_context(label, row)

    @property
    def rules(self) -> BoundRules:
        """The rules of policy and limits."""
        return BoundRules(self.rule, None if self.book.tables is None else self.book.tables.rule)

    @property
    def bound(self) -> BoundPolicy:
        """The policy at work."""
        return BoundPolicy(self.problem, self.rule, self.state, self.book.tables)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: all but the handle and its functions, which are rebuilt."""
        return {name: value for name, value in vars(self).items() if name not in OF_HANDLE}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        vars(self).update(fields)
        self.totals = self.sums.totals
        self._make_handle()

    @property
    def t(self) -> int:
        """Decisions so far."""
        return self.sums.t

    def decide(
        self,
        context: str | None,
        available: Bools,
        at: int = 0,
        *,
        keys: KeyNames = NO_KEYS,
        refused: Refusals = (),
        tables: Tables | None = None,
    ) -> DecisionMade:
        """Draw a panel and book its cost; the caller keeps the decision for the reward.

        at:      the time, for windows of the calendar
        keys:    whose limits count the request too
        refused: times and numbers of requests that were refused since the last decision
        tables:  of windows, in a replay: as they were when the decision was made
        """
        book = self.book
        if book.follows_clock:
            at = max(at, book.at)
            if tables is None:
                tables = book.find_due(at)  # may raise an error
        row = self.find_context(context)  # may replace the handle
        t = self.totals.rounds.item(0)
        if book.follows_clock:
            for when, requests in refused:
                book.count_refused(when, requests)
            rebind_for_traffic(self)
            book.enter(at, tables)
        if book.keyed is not None and book.open_keys(keys, t):
            self._make_handle()
        drawn = self._entries.draw_and_book(
            self._handle,
            row,
            book.at,
            self.run.seed,
            t,
            available,
            self._stated,
            self._inclusion,
        )
        if book.left is not None and book.left.item(0) == book.period:
            self.sums.end_period()
        if (t + 1) % READING_DECISIONS == 0:
            add_reading(self.prices, self.read_prices())
        draws, q, learned, share, feasible, propensity, weight, replaced = drawn
        q, learned = NO_FLOATS if q is None else q, NO_FLOATS if learned is None else learned
        rest = (available, share, feasible, propensity, weight, replaced)
        fields = (t, row, draws, q, learned, *rest)
        ticket: Ticket = tuple.__new__(Ticket, fields)  # a third of the time of `Ticket(*fields)`
        panel = tuple(map(self.problem.experts.__getitem__, draws.tolist()))
        known = propensity == propensity  # it is not NaN
        spend, expected = self._stated.tolist()
        names = self.sums.names
        # Of one length each: to check that, or to name the fields, would take half as long again.
        return DecisionMade(
            ticket,
            panel,
            self._inclusion.tolist() if known else None,
            propensity if known else None,
            dict(zip(names, spend)),  # noqa: B905
            dict(zip(names, expected)),  # noqa: B905
            self._hold(draws) if self._excess else {},
            context,
            keys,
        )

    def _hold(self, draws: Ints) -> dict[str, float]:
        """Return what a panel can cost beyond what is declared, by name of the cost."""
        members = dict.fromkeys(draws.tolist())
        return {name: sum([row[i] for i in members]) for name, row in self._excess.items()}

    def read_prices(self) -> list[float]:
        """Return the price of each limit, in rewards of [0, 1] per unit; NaN: unknown."""
        prices: list[float] = self.policy.prices(self.problem, self.rule, self.state).tolist()
        return prices

    def learn(
        self, ticket: Ticket, value: float, scores: Floats = NO_SCORES, winner: int = NO_WINNER
    ) -> None:
        """Learn from a reward and the rest of `Feedback`, as `check_report` has accepted them."""
        low, high = self.run.low, self.run.high
        self._entries.learn_feedback(self._handle, ticket, value, scores, winner, low, high)

    def learn_past(self, ticket: Ticket, value: float, scores: Floats, winner: int) -> None:
        """Learn from round t of a log, before the first decision, and count no reward."""
        given = (ticket.context, ticket.draws, self.run.seed, -1 - ticket.t)
        self._entries.note_past_panel(self._handle, *given)
        self.learn(ticket, value, scores, winner)
        self.totals.rewards[0] = 0
        self.totals.total[0] = 0.0

    def preview_state(self, context: int, available: Bools) -> tuple[Any, View]:
        """Return the state after the next decision in this context, which may move the
        distribution, and what the policy would see of the limits then.
        """
        state = copy.deepcopy(self.state)
        pointer = self.book.preview()
        totals = make_totals(len(self._costs))
        handle = make_handle(self.rule, state, pointer, totals, self._costs)
        request = (context, self.book.at, self.run.seed, self.t, available)
        self._entries.draw_and_book(handle, *request, self._stated, self._inclusion)
        return state, View(pointer, context, available, False, False)

    def settle(
        self,
        ticket: Ticket | None,
        corrections: CostsByName,
        by_member: Mapping[str, CostsByName] | None = None,
        *,
        t: int | None = None,
        labels: RequestLabels = NO_LABELS,
        panel: Iterable[str] = (),
        held: CostsByName | None = None,
    ) -> None:
        """Book what a panel cost beyond what is booked for it, by name; guards continue from there.

        ticket: of the decision, if this is the first report of these costs, and it is of this pool:
                what calls cost is learned from it. None: booked, not learned
        by_member: what each member cost, by name of the cost, where that was reported
        t:      number of the decision, if there is no ticket; None: it counts as of now
        labels: of the request
        panel:  without a ticket, the names of those whose costs are reported for the first time
        held:   what is reserved for the decision, by name of the cost, and is released for these
                costs; None: what a decision of now would reserve if there is a ticket, else nothing
        """
        book = self.book
        if ticket is not None:
            t = ticket.t
            self.sums.correct(corrections, in_period=t >= book.first)
            with announce_compilation(self.policy.name):
                book.settle_calls(t, ticket.draws, corrections, by_member or {}, labels, held)
            return
        self.sums.correct(corrections, in_period=t is None or t >= book.first)
        book.correct(self.t if t is None else t, corrections, labels)
        if t is not None and held is not None:
            book.release(t, self._find_members(panel), corrections, held)

    def _find_members(self, panel: Iterable[str]) -> Ints:
        """Return the numbers of those in a panel who are still experts."""
        known = [self._index[name] for name in dict.fromkeys(panel) if name in self._index]
        return np.array(known, np.int64)

    def cancel(
        self,
        t: int,
        spend: CostsByName,
        expected: CostsByName,
        panel: Iterable[str] = (),
        labels: RequestLabels = NO_LABELS,
        held: CostsByName | None = None,
    ) -> dict[str, float]:
        """Exclude decision t, of these costs, from all averages; return the costs it had booked.

        What was reserved for it (held, by name of the cost) is released. If it is of the current
        period, that has one more decision to come (`cancel_round`); a decision of an earlier period
        leaves the current one as it is.
        """
        played = self.book.played_rounds
        period = self.sums.find_period(played)
        in_period = bool(played and t >= period.first)
        self.book.cancel(
            t,
            self._find_members(panel),
            spend,
            labels,
            held or {},
            in_period=in_period,
            edited=t < period.edited,
        )
        counted = self.sums.exclude(t, spend, expected, played, in_period=in_period)
        return {name: spend[name] for name in counted}

    def exchange_call(
        self,
        t: int,
        failed: int,
        added: int,
        labels: RequestLabels = NO_LABELS,
        held: Iterable[str] = (),
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Book a call of one expert instead of another in decision t, before its first report.

        Return by how much its stated costs change, and what is reserved for it under the costs
        named in `held`.
        """
        since = self.sums.uncounted.since
        more = {
            name: float(row[added] - row[failed])
            for name, row in self.problem.costs.items()
            if t >= since.get(name, 0)
        }
        rows = {name: self._excess[name] for name in held}
        more_held = {name: row[added] - row[failed] for name, row in rows.items()}
        self.settle(None, more, t=t, labels=labels)
        self.book.exchange(t, failed, added, labels, more_held)
        return more, more_held

    def resize_state(self, rows: int) -> Any:
        """Return the state with the given number of rows for contexts."""
        resized = self.policy.start(self.rule, rows)
        for old, new in zip(iterate_arrays(self.state), iterate_arrays(resized), strict=True):
            kept = min(len(old), len(new))
            new[:kept] = old[:kept]
        return resized

    def mask_available(
        self, available: Iterable[str] | None, active: Bools = ALL_AVAILABLE
    ) -> Bools:
        """Return a mask of the available experts without the paused ones; empty: all."""
        if available is None:
            return active
        if isinstance(available, str) or not isinstance(available, Iterable):
            raise DecisionError(
                "available",
                got=available,
                expected="a list of names",
                remedy=f"write available=[{available!r}]",
            )
        mask = np.zeros(self.problem.size, np.bool_)
        for name in available:
            if not isinstance(name, str) or name not in self._index:
                raise DecisionError(
                    f"available: no expert {name!r}",
                    remedy=suggest_known_name(name, self.problem.experts, "experts"),
                )
            mask[self._index[name]] = True
        if not mask.any():
            raise DecisionError("no expert is available", remedy="name at least one")
        if active.size:
            mask &= active
            if not mask.any():
                raise DecisionError(f"all of available={list(available)} are paused")
        return ALL_AVAILABLE if mask.all() else mask

    def find_context(self, label: str | None) -> int:
        """Return the row of a context, a new one if it was never seen."""
        row = self.contexts.get(label) if label.__class__ is str or label is None else None
        if row is not None:
            return row
        check_context(label)
        number = len(self.contexts)
        self._check_capacity(label, number, label is None or None in self.contexts)
        if number == len(self.state.visits):
            rows = max(number + 1, min(2 * number, self.count_capacity()))
            self.state = self.resize_state(rows)
            self.book.grow_contexts(rows)
            self._make_handle()
        self.contexts[label] = number
        self.book.note_context(label, number)
        return number

    def _check_capacity(self, label: str | None, number: int, has_none: bool) -> None:
        """Refuse a new context if there are too many before it."""
        most = self.policy.max_contexts(self.problem.size)
        declared = self.max_contexts + has_none  # None has room
        if number >= min(declared, most):
            capacity = self.count_capacity()
            limited = capacity < self.max_contexts
            verb = "has capacity for" if limited else "was declared for"
            other = "policy='distinct', which needs less" if limited else "a larger max_contexts"
            raised = "" if limited else ", raise max_contexts by an edit (of a stored router)"
            raise TooManyContexts(
                f"context {label!r} would be number {number + 1:,}, and this router {verb} "
                f"{capacity:,}",
                remedy=f"use coarser contexts{raised}, or create a router with {other}",
            )

    def check_new_contexts(self, labels: Iterable[str | None]) -> None:
        """Refuse contexts if there would be too many with them."""
        every = dict.fromkeys([*self.contexts, *labels])
        for label in every:
            check_context(label)
        if len(every) > len(self.contexts):
            self._check_capacity([*every][-1], len(every) - 1, None in every)

    def count_capacity(self) -> int:
        """Return the largest number of contexts that there can be."""
        return min(self.max_contexts, self.policy.max_contexts(self.problem.size))

    def count_visits(self) -> Ints:
        """Return the decisions by context: what the policy has counted, less what changes of the
        problem have added.
        """
        visits: Ints = self.state.visits[: len(self.contexts)].copy()
        visits[: len(self.skipped)] -= np.array(self.skipped, np.int64)
        return visits

    def read_distribution(self, context: int, available: Bools) -> Floats:
        """Return the distribution of a draw in one context."""
        only = np.eye(1, context + 1, context)[0]
        return average_distribution(self._handle, only, available)

    def average_distribution(self, available: Bools) -> Floats:
        """Return the distribution of a draw, or the inclusion in a set, averaged by visits."""
        visits = self.count_visits().astype(np.float64)
        count = int(available.sum()) if available.size else self.problem.size
        seats = min(self.problem.draws, count) if self.policy.draws_sets else 1
        weights = visits if visits.any() else np.ones(1)
        with announce_compilation(f"the status of {self.policy.name}"):
            return seats * average_distribution(self._handle, weights, available)


def iterate_arrays(fields: Any, without: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield all arrays of nested NamedTuples, in order, without those of these names."""
    for name, value in fields._asdict().items():
        if name in without:
            continue
        if isinstance(value, tuple):
            yield from iterate_arrays(value, without)
        else:
            yield value
