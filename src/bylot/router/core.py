"""RouterCore: problem, rule, state and totals of one router, behind one compiled handle.

It draws panels and learns from rewards. Locks, open decisions and event logs are its callers'.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from bylot.errors import DecisionError, PolicyError, TenantError, TooManyContexts
from bylot.limits import entries, settlement, substitutes
from bylot.limits.keys import (
    NO_KEYS,
    KeyLedgers,
    KeyNames,
    TenantWindow,
    check_key_name,
    continue_keys,
)
from bylot.limits.ledger import EVERYBODY
from bylot.limits.migrate import begin_windows
from bylot.limits.records import LimitTables
from bylot.limits.request import Ticket, View
from bylot.limits.window_status import make_spent_error
from bylot.limits.windows import fill_tables, list_due_tables, note_context_label
from bylot.numerics.jit import Bools, Floats, Ints, announce_compilation
from bylot.numerics.philox import RngKey
from bylot.policies import compiled_handle as compiled
from bylot.policies import retargeting
from bylot.policies.base import NO_SCORES, NO_WINNER, BoundPolicy, Policy
from bylot.policies.binding import (
    BoundRules,
    bind_policy,
    migrate_policy,
    point_to,
    start_policy,
)
from bylot.policies.registry import check_kept_limits
from bylot.policies.validation import RunConfig, check_run_config
from bylot.problem import Problem
from bylot.problem.change import has_same_pool
from bylot.problem.validation import suggest_known_name
from bylot.router import price_average
from bylot.router.changes import DecisionMade, RequestLabels, Tables
from bylot.router.price_average import PriceAverage

OF_HANDLE = ("_handle", "_entries", "_left", "pointer")  # what `_set_state` makes of the state
ALL_AVAILABLE: Bools = np.empty(0, np.bool_)
NO_FLOATS: Floats = np.empty(0)
CostsByName = Mapping[str, float]
Refusals = Iterable[tuple[int, int]]


class UncountedDecisions(Struct):
    """The decisions that the sums of each cost are not averaged over."""

    since: dict[str, int] = {}  # decisions made before the cost was introduced, by name
    unused: dict[str, int] = {}  # decisions since then that were cancelled, by name


NO_LABELS = RequestLabels()


class PeriodStart(NamedTuple):
    """Where the current period began.

    first:  decisions with smaller numbers are of earlier periods
    offset: decisions so far minus rounds played in this period. It is constant within a period,
            unless decisions are cancelled: if it differs, a new period has begun.
    edited: decisions of this period with smaller numbers are from before its last edit
    """

    first: int
    offset: int
    edited: int = 0


class RouterCore:
    """A policy bound to a problem. Not thread-safe: the caller must hold the lock.

    rules:      policy and limits bound to the problem, if that was done before
    rows:       of the state of a router that is being restored; the caller fills it in
    contexts:   the row of the state of each context
    before_period: decisions and sum of each cost before the current period
    skipped:    visits by context that a change of the problem has added: see `count_visits`
    follows_clock: whether the time of a request matters to limits
    reads_labels: whether its context or its keys do
    prices:     of the limits, averaged since their bounds last changed
    at:         time of the last decision under limits of the calendar
    tables:     of windows, if the last decision or edit had to fill them
    keyed:      the ledgers of all keys, if there are limits for each of them
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
        self.uncounted = UncountedDecisions()
        self.period = PeriodStart(0, 0)
        self.before_period: dict[str, tuple[int, float]] = {}
        self.skipped: list[int] = []
        self.at = 0
        self.tables: Tables | None = None
        self.keyed = continue_keys(None, problem, 0, 0)
        with announce_compilation(policy.name):
            if rules is None:
                rules = bind_policy(policy, problem, run.horizon, run.feedback)
            totals = compiled.make_totals(len(problem.costs))
            self._bind(start_policy(policy, problem, *rules, rows), totals)
            self._compile()

    def _bind(self, bound: BoundPolicy, totals: compiled.Totals) -> None:
        """Bind to a problem and rebuild derived tables."""
        problem = bound.problem
        self.problem = problem
        self.rule = bound.rule
        self.totals = totals
        self._index = {name: i for i, name in enumerate(problem.experts)}
        self.cost_names = tuple(problem.costs)
        self._costs: Floats = np.array(list(problem.costs.values())).reshape(-1, problem.size)
        self.prices = [PriceAverage() for _ in problem.limits]
        self._excess = {
            name: (largest - problem.costs[name]).tolist()
            for name, largest in problem.max_costs.items()
        }
        self._set_state(bound.state, bound.limits)
        self._note_contexts()

    def _set_state(self, state: Any, limits: LimitTables | None) -> None:
        """Replace the states of policy and limits, and hand them to the compiled side."""
        if limits is not None and self.keyed is not None:
            limits = limits._replace(state=self.keyed.join(limits.state))
        self.state = state
        self.limits = limits
        self.follows_clock = limits is not None and limits.follows_clock
        self.reads_labels = limits is not None and limits.reads_labels
        self._left: Any = None if limits is None else limits.state.clock["left"]
        self.pointer: Any = point_to(limits, self.problem)
        self._handle = compiled.make_handle(
            self.rule, state, self.pointer, self.totals, self._costs
        )
        self._entries = compiled.find_entries(self._handle)

    def refresh(self) -> None:
        """Hand ledgers of keys that were restored to the compiled side."""
        self._set_state(self.state, self.limits)
        self._note_contexts()

    def _note_contexts(self) -> None:
        """Write which limits count the requests of each known context."""
        if self.limits is not None:
            for label, row in self.contexts.items():
                note_context_label(self.limits.state, self.problem.limits, row, label)

    @property
    def rules(self) -> BoundRules:
        """The rules of policy and limits."""
        return BoundRules(self.rule, None if self.limits is None else self.limits.rule)

    @property
    def bound(self) -> BoundPolicy:
        """The policy at work."""
        return BoundPolicy(self.problem, self.rule, self.state, self.limits)

    def _compile(self) -> None:
        """Compile now, so that no decision or reward has to wait for it.

        What a status needs is compiled with the first one.
        """
        for name in ("draw_and_book", "learn_feedback"):
            getattr(self._entries, name)
        if self.limits is not None and self.problem.needs_guard:
            entries.compile_for_requests(self.pointer)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: all but the handle and its functions, which are rebuilt."""
        return {name: value for name, value in vars(self).items() if name not in OF_HANDLE}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        vars(self).update(fields)
        self._set_state(self.state, self.limits)

    @property
    def t(self) -> int:
        """Decisions so far."""
        return int(self.totals.rounds[0])

    def check_keys(self, keys: KeyNames) -> None:
        """Require a key of each scope that limits have, and no other."""
        scopes = self.problem.scopes
        for scope, name in keys.items():
            if scope not in scopes:
                raise TenantError(
                    f"this router has no limits for each {scope}",
                    remedy=f"leave out {scope} {name!r}",
                )
            check_key_name(scope, name)
        for scope in scopes:
            if scope not in keys:
                raise TenantError(
                    f"this router has limits for each {scope}, and the request names none",
                    remedy=f"give {scope}='...' with every request",
                    field=scope,
                )

    def check_budgets(
        self, at: int, available: Bools, context: str | None = None, keys: KeyNames = NO_KEYS
    ) -> None:
        """Raise BudgetSpent if a budget of the calendar leaves no panel now; nothing changes."""
        self.check_keys(keys)
        if not self.follows_clock:
            return
        now = max(at, self.at)
        self._find_places(RequestLabels(context, keys), look=True)
        j = entries.find_spent(self.pointer, now, available)
        if j >= 0:
            limit = self.problem.limits[j]
            if self.keyed is not None:
                limit = self.keyed.find_limit(limit, keys)
            raise make_spent_error(limit, now, at, keys)

    def _find_places(self, labels: RequestLabels, look: bool = False) -> None:
        """Find the ledgers of a request with these labels.

        look: it may have keys that are not known yet
        """
        if self.limits is None or not self.reads_labels:
            return
        check_context(labels.context)
        counted = ALL_AVAILABLE
        if len(self.limits.state.counts):
            row = self.contexts.get(labels.context)
            if row is not None:
                counted = self.limits.state.counts[row]
            else:
                limits = self.problem.limits
                counted = np.array([limit.counts(labels.context) for limit in limits], np.bool_)
        if self.keyed is not None:
            self.keyed.find(labels.keys, self.limits.state, look)
        entries.find_places(self.pointer, counted)

    def look_at_everybody(self) -> None:
        """Find the ledgers of everybody, as a status does."""
        if self.limits is not None:
            self.limits.state.keys["slot"] = EVERYBODY
            entries.find_places(self.pointer, ALL_AVAILABLE)

    def _open_keys(self, keys: KeyNames) -> None:
        """Let the next decision be booked under its keys, and make room for new ones."""
        assert self.limits is not None
        if self.keyed is None:
            return
        if not self.keyed.has_room(keys):
            self.keyed.make_room(self.problem, self.limits.state)
            self._set_state(self.state, self.limits)
        self.keyed.open(keys, self.limits.state, self.t)

    def get_keyed(self) -> KeyLedgers:
        """Return the ledgers of keys, or raise an error if there are no limits for any."""
        if self.keyed is None:
            raise TenantError(
                "this router has no limits for each tenant", remedy="add one with scope='tenant'"
            )
        return self.keyed

    def measure_key(self, scope: str, name: str, at: int) -> list[TenantWindow]:
        """Return what a key has spent in the windows of this time."""
        return self.get_keyed().measure((scope, name), max(at, self.at))

    def count_refused(self, at: int, requests: int) -> None:
        """Count requests that were refused: they are traffic too, of which only windows know."""
        if self.follows_clock:
            entries.note_refused(self.pointer, max(at, self.at), requests)

    def follow_traffic(self) -> None:
        """Bind the policy again if the traffic is not what it was bound for."""
        run = self.run
        found = retargeting.retarget(self.policy, self.bound, run.horizon, run.feedback)
        if found is not None:
            self.change_problem(found.problem, found=found)

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
        now = max(at, self.at)
        if self.follows_clock and tables is None:
            assert self.limits is not None
            due = list_due_tables(self.problem, self.limits.state, now)  # may raise an error
            tables = None if due is None else freeze_tables(due)
        row = self.find_context(context)  # may replace the handle
        t = self.totals.rounds.item(0)
        if self.follows_clock:
            for when, requests in refused:
                self.count_refused(when, requests)
            if retargeting.is_check_due(t):
                self.follow_traffic()
            self.at = now
            self.tables = tables
            if tables is not None:
                assert self.limits is not None
                fill_tables(self.limits.state, tables)
        if self.limits is not None:
            self._open_keys(keys)
        costs = np.empty((2, len(self.cost_names)))
        inclusion = np.empty(self.problem.draws)
        drawn = self._entries.draw_and_book(
            self._handle,
            row,
            self.at,
            self.run.seed,
            t,
            available,
            costs,
            inclusion,
        )
        self._note_draw(t)
        draws, q, learned, share, feasible, propensity, weight, replaced = drawn
        q, learned = NO_FLOATS if q is None else q, NO_FLOATS if learned is None else learned
        ticket = Ticket(
            t, row, draws, q, learned, available, share, feasible, propensity, weight, replaced
        )
        experts = self.problem.experts
        panel = tuple([experts[i] for i in draws.tolist()])
        known = propensity == propensity  # it is not NaN
        spend, expected = costs.tolist()
        # Of one length each: to check that, or to name the fields, would take half as long again.
        return DecisionMade(
            ticket,
            panel,
            inclusion.tolist() if known else None,
            propensity if known else None,
            dict(zip(self.cost_names, spend)),  # noqa: B905
            dict(zip(self.cost_names, expected)),  # noqa: B905
            self._hold(draws),
            context,
            keys,
        )

    def _hold(self, draws: Ints) -> dict[str, float]:
        """Return what a panel can cost beyond what is declared, by name of the cost."""
        if not self._excess:
            return {}
        members = dict.fromkeys(draws.tolist())
        return {name: sum([row[i] for i in members]) for name, row in self._excess.items()}

    @property
    def played_rounds(self) -> int:
        """Rounds of the current period so far; 0 where no limits are kept."""
        if self.limits is None:
            return 0
        return int(self.limits.rule.period - self._left.item(0))

    def find_period(self) -> PeriodStart:
        """Return where the current period began, which may have begun since that was noted."""
        offset = self.t - self.played_rounds
        return self.period if self.period.offset == offset else PeriodStart(offset, offset)

    def _note_draw(self, t: int) -> None:
        """Note where a period ends, and the prices from time to time, after decision t."""
        if self.limits is not None and self.played_rounds == 0:  # a period has ended
            sums = self.name_costs(self.totals.spent)
            self.before_period = {name: (self.count_decisions(name), sums[name]) for name in sums}
        if (t + 1) % price_average.READING_DECISIONS == 0:
            price_average.add_reading(self.prices, self.read_prices())

    def read_prices(self) -> list[float]:
        """The price of each limit now, in rewards of [0, 1] per unit of its bound; NaN: unknown."""
        prices: list[float] = self.policy.prices(self.problem, self.rule, self.state).tolist()
        return prices

    def learn(
        self, ticket: Ticket, value: float, scores: Floats = NO_SCORES, winner: int = NO_WINNER
    ) -> None:
        """Learn from a reward and the rest of `Feedback`, as `check_report` has accepted them."""
        low, high = self.run.low, self.run.high
        self._entries.learn_feedback(self._handle, ticket, value, scores, winner, low, high)

    def preview_state(self, context: int, available: Bools) -> tuple[Any, View]:
        """Return the state after the next decision in this context, which may move the
        distribution, and what the policy would see of the limits then.
        """
        bound, costs = copy.deepcopy(self.bound), len(self.cost_names)
        if bound.limits is not None:
            bound.limits.state.keys["slot"] = EVERYBODY
        pointer = point_to(bound.limits, self.problem)
        totals = compiled.make_totals(costs)
        handle = compiled.make_handle(self.rule, bound.state, pointer, totals, self._costs)
        unused = np.empty((2, costs)), np.empty(self.problem.draws)
        request = context, self.at, self.run.seed, self.t, available
        self._entries.draw_and_book(handle, *request, *unused)
        return bound.state, View(pointer, context, available, False, False)

    def settle(
        self,
        ticket: Ticket | None,
        corrections: CostsByName,
        spend_by_member: Mapping[str, CostsByName] | None = None,
        *,
        t: int | None = None,
        labels: RequestLabels = NO_LABELS,
        panel: Iterable[str] = (),
        held: CostsByName | None = None,
    ) -> None:
        """Book what a panel cost beyond what is booked for it, by name; guards continue from there.

        ticket: of the decision, if this is the first report of these costs, and it is of this pool:
                what calls cost is learned from it. None: booked, not learned
        spend_by_member: what each member cost, by name of the cost, where that was reported
        t:      number of the decision, if there is no ticket; None: it counts as of now
        labels: of the request
        panel:  without a ticket, the names of those whose costs are reported for the first time
        held:   what is reserved for the decision, by name of the cost, and is released for these
                costs; None: what a decision of now would reserve if there is a ticket, else nothing
        """
        self.totals.spent[:] += [corrections.get(name, 0.0) for name in self.problem.costs]
        if self.limits is None:
            return
        t = t if ticket is None else ticket.t
        if t is not None and t < self.limits.state.clock["first"][0]:  # of an earlier period
            for name, (n, cost) in self.before_period.items():
                self.before_period[name] = n, cost + float(corrections.get(name, 0.0))
        reserve = NO_FLOATS if held is None else settlement.scale_reserve(self.problem, held)
        self._find_places(labels)
        if ticket is None:
            more = settlement.scale_corrections(self.problem, corrections)
            entries.correct_spend(self.pointer, self.t if t is None else t, more)
            if t is not None and held is not None:
                named = [limit.name in corrections for limit in self.problem.limits]
                rows, members = np.flatnonzero(named), self._find_members(panel)
                entries.release_calls(self.pointer, t, rows, members, reserve)
        else:
            amounts = ticket.draws, corrections, spend_by_member or {}
            with announce_compilation(self.policy.name):
                settled = settlement.scale_spend(self.problem, *amounts)
                entries.settle_calls(self.pointer, ticket.t, *settled, reserve)

    def _find_members(self, panel: Iterable[str]) -> Ints:
        """Return the numbers of those in a panel who are still experts."""
        known = [self._index[name] for name in dict.fromkeys(panel) if name in self._index]
        return np.array(known, np.int64)

    def list_certain_costs(self) -> set[str]:
        """Return the names of the costs under limits that hold whatever calls cost."""
        rows = () if self.limits is None else np.flatnonzero(self.limits.rule.rows["certain"])
        return {self.problem.limits[j].name for j in rows}

    def cancel(
        self,
        t: int,
        spend: CostsByName,
        expected: CostsByName,
        panel: Iterable[str] = (),
        labels: RequestLabels = NO_LABELS,
        held: CostsByName | None = None,
    ) -> dict[str, float]:
        """Exclude decision t, of these costs, from all averages; returns the costs it had booked.
        What was reserved for it (held, by name of the cost) is released.

        If it is of the current period, that has one more decision to come (`cancel_round`); a
        decision of an earlier period leaves the current one as it is.
        """
        names = [name for name in self.problem.costs if name in spend]
        counted = [name for name in names if t >= self.uncounted.since.get(name, 0)]
        for sums, given in ((self.totals.spent, spend), (self.totals.expected, expected)):
            sums[:] -= [given[name] if name in counted else 0.0 for name in self.problem.costs]
        for name in counted:
            self.uncounted.unused[name] = self.uncounted.unused.get(name, 0) + 1
        period = self.find_period()
        in_period = bool(self.played_rounds and t >= period.first)
        if self.limits is not None:
            members = self._find_members(panel)
            reserve = settlement.scale_reserve(self.problem, held or {})
            negated = {name: -cost for name, cost in spend.items()}
            less = settlement.scale_corrections(self.problem, negated)
            if t < period.edited:  # an edit has counted it as `bound`, and kept what is beyond
                rows = self.limits.rule.rows
                less = np.where(rows["planned"], np.maximum(less, -rows["bound"]), less)
            self._find_places(labels)
            entries.cancel_round(self.pointer, t, less, members, reserve, in_period)
        if in_period:
            self.period = period._replace(offset=period.offset + 1)
        else:
            for name in counted:
                n, cost = self.before_period.get(name, (0, 0.0))
                self.before_period[name] = n - 1, cost - spend[name]
        return {name: spend[name] for name in counted}

    def mark_substitutes(self, failed: int) -> Bools:
        """The experts in whose favour a call of the failed one can be given up under all limits."""
        return substitutes.mark_substitutes(self.problem, self.limits, failed)

    def draw_substitute(
        self, context: int, t: int, number: int, candidates: Bools, active: Bools
    ) -> int:
        """Draw one of the candidates from the distribution of a context as it is now.

        number: of exchanges in decision t so far
        """
        with announce_compilation(f"the distributions of {self.policy.name}"):
            q = self.read_distribution(context, active)
        return substitutes.draw_substitute(q, candidates, RngKey(self.run.seed, t), number)

    def exchange_call(
        self,
        t: int,
        failed: int,
        added: int,
        labels: RequestLabels = NO_LABELS,
        held: Iterable[str] = (),
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Book a call of one expert instead of another in decision t, before its first report.

        Returns by how much its stated costs change, and what is reserved for it under the costs
        named in `held`.
        """
        costs, since = self.problem.costs, self.uncounted.since
        more = {
            name: float(row[added] - row[failed])
            for name, row in costs.items()
            if t >= since.get(name, 0)
        }
        rows = {name: self._excess[name] for name in held}
        more_held = {name: row[added] - row[failed] for name, row in rows.items()}
        self.settle(None, more, t=t, labels=labels)
        if self.limits is not None:
            reserve = settlement.scale_reserve(self.problem, more_held)
            self._find_places(labels)
            entries.exchange_call(self.pointer, t, failed, added, reserve)
        return more, more_held

    def keep_traffic(self, problem: Problem) -> Problem:
        """The problem at the traffic that was learned, if it has limits of the calendar."""
        learned = self.problem.traffic
        if learned is None or not isinstance(problem, Problem):
            return problem
        return problem.at_traffic(learned)

    def change_problem(
        self,
        problem: Problem,
        rules: BoundRules | None = None,
        *,
        found: BoundPolicy | None = None,
        at: int = 0,
        tables: Tables | None = None,
    ) -> bool:
        """Continue under another problem with all that was learned; whether the pool is the same.

        Limits that cannot be kept raise an error, and nothing was changed.

        rules:  policy and limits bound to this problem, if that was done before
        found:  the policy migrated to it, if that was done before
        at:     the time, for windows of the calendar
        tables: of windows, in a replay: as they were when the problem was changed
        """
        run = self.run
        check_run_config(problem, run.seed, run.horizon, (run.low, run.high), run.feedback)
        self.tables = None
        if problem == self.problem:
            return True
        old = self.problem
        period = self.find_period()
        edited = found is None
        if found is None:
            try:
                check_kept_limits(self.policy, problem)
                if rules is None:
                    rules = bind_policy(self.policy, problem, run.horizon, run.feedback)
            except PolicyError as error:
                raise error.for_running_router() from None
            before = self.bound._replace(state=self._shrink_state(problem.size))
            with announce_compilation(self.policy.name):
                found = migrate_policy(self.policy, before, problem, *rules)
            if found.limits is not None and found.limits.follows_clock and self.at > 0:
                assert self.limits is not None
                now = max(at, self.at)
                state = self.limits.state
                begun = begin_windows(old, problem, state, found.limits, now, tables)
                self.tables = freeze_tables(begun)
                self.at = now
        sums = self.name_costs(self.totals.spent), self.name_costs(self.totals.expected)
        spent, expected = (
            np.array([by_name.get(name, 0.0) for name in problem.costs]) for by_name in sums
        )
        totals = self.totals._replace(spent=spent, expected=expected)
        was, t = self.uncounted, self.t
        self.uncounted = UncountedDecisions(
            {name: was.since.get(name, 0) if name in old.costs else t for name in problem.costs},
            {name: n for name, n in was.unused.items() if name in problem.costs},
        )
        self.keyed = continue_keys(self.keyed, problem, max(at, self.at), t)
        visits = self.count_visits()
        priced = dict(zip(old.limits, self.prices, strict=True))
        self._bind(found, totals)
        self.prices = [priced.get(limit, PriceAverage()) for limit in problem.limits]
        self.skipped = (self.state.visits[: visits.size] - visits).tolist()
        offset = t - self.played_rounds
        first = period.first if offset == period.offset else max(period.first, offset)
        self.period = PeriodStart(first, offset, t if edited else period.edited)
        for name in problem.costs.keys() - old.costs.keys():
            self.before_period.pop(name, None)
        return has_same_pool(old, problem)

    def _shrink_state(self, size: int) -> Any:
        """The state without spare rows, if they would not fit with so many experts."""
        rows, used = len(self.state.visits), len(self.contexts)
        capacity = min(rows, self.policy.max_contexts(size))
        if capacity < max(1, used):
            raise PolicyError(
                f"with {size:,} experts the policy has capacity for {capacity:,} contexts, and the "
                f"router has {used:,}",
                remedy="add fewer experts, or create a new router with 'distinct'",
            )
        return self.state if capacity == rows else self._resize_state(capacity)

    def _resize_state(self, rows: int) -> Any:
        """The state with so many rows for contexts."""
        resized = self.policy.start(self.rule, rows)
        for old, new in zip(iterate_arrays(self.state), iterate_arrays(resized), strict=True):
            kept = min(len(old), len(new))
            new[:kept] = old[:kept]
        return resized

    def mask_available(
        self, available: Iterable[str] | None, active: Bools = ALL_AVAILABLE
    ) -> Bools:
        """A mask of the available experts without the paused ones; an empty mask means all."""
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
        """The row of a context, a new one if it was never seen."""
        check_context(label)
        if label in self.contexts:
            return self.contexts[label]
        number, capacity = len(self.contexts), self.count_capacity()
        most = self.policy.max_contexts(self.problem.size)
        declared = self.max_contexts + (label is None or None in self.contexts)  # None has room
        if number >= min(declared, most):
            limited = capacity < self.max_contexts
            verb = "has capacity for" if limited else "was declared for"
            other = "policy='distinct', which needs less" if limited else "a larger max_contexts"
            raised = "" if limited else ", raise max_contexts by an edit (of a stored router)"
            raise TooManyContexts(
                f"context {label!r} would be number {number + 1:,}, and this router {verb} "
                f"{capacity:,}",
                remedy=f"use coarser contexts{raised}, or create a router with {other}",
            )
        if number == len(self.state.visits):
            self._grow_contexts(max(number + 1, min(2 * number, capacity)))
        self.contexts[label] = number
        if self.limits is not None:
            note_context_label(self.limits.state, self.problem.limits, number, label)
        return number

    def _grow_contexts(self, rows: int) -> None:
        """Make room for so many contexts."""
        limits = self.limits
        if limits is not None and len(limits.state.counts):
            counts = np.ones((rows, len(self.problem.limits)), np.bool_)
            counts[: len(limits.state.counts)] = limits.state.counts
            limits = limits._replace(state=limits.state._replace(counts=counts))
        self._set_state(self._resize_state(rows), limits)

    def count_capacity(self) -> int:
        """The largest number of contexts that there can be."""
        return min(self.max_contexts, self.policy.max_contexts(self.problem.size))

    def count_decisions(self, cost: str) -> int:
        """Decisions that the sum of a cost is averaged over."""
        gone = self.uncounted
        return self.t - gone.since.get(cost, 0) - gone.unused.get(cost, 0)

    def is_spent(self, j: int, at: int, available: Bools) -> bool:
        """Whether budget j leaves no panel for a request that it counts."""
        self._find_places(RequestLabels(self.problem.limits[j].some_context), look=True)
        spent: bool = entries.find_spent(self.pointer, at, available) == j
        return spent

    def count_visits(self) -> Ints:
        """Decisions by context: the policy's own counts, less what changes of the problem added."""
        visits: Ints = self.state.visits[: len(self.contexts)].copy()
        visits[: len(self.skipped)] -= np.array(self.skipped, np.int64)
        return visits

    def read_distribution(self, context: int, available: Bools) -> Floats:
        """The distribution of a draw in one context."""
        only = np.eye(1, context + 1, context)[0]
        return compiled.average_distribution(self._handle, only, available)

    def name_costs(self, sums: Floats) -> dict[str, float]:
        """Numbers under the names of the costs."""
        return dict(zip(self.cost_names, sums.tolist(), strict=True))

    def average_distribution(self, available: Bools) -> Floats:
        """The distribution of a draw, or the inclusion in a set, averaged by visits."""
        visits = self.count_visits().astype(np.float64)
        count = int(available.sum()) if available.size else self.problem.size
        seats = min(self.problem.draws, count) if self.policy.draws_sets else 1
        weights = visits if visits.any() else np.ones(1)
        with announce_compilation(f"the status of {self.policy.name}"):
            return seats * compiled.average_distribution(self._handle, weights, available)


def freeze_tables(tables: Iterable[Iterable[int]]) -> Tables:
    """Return tables of windows that nobody can change."""
    return tuple(map(tuple, tables))


def check_context(label: object) -> None:
    """Require a label that a context can have."""
    if label is not None and not isinstance(label, str):
        raise DecisionError("context", got=label, expected="a string or None")


def iterate_arrays(fields: Any, without: tuple[str, ...] = ()) -> Iterator[Any]:
    """All arrays of nested NamedTuples, in order, without those of these names."""
    for name, value in fields._asdict().items():
        if name in without:
            continue
        if isinstance(value, tuple):
            yield from iterate_arrays(value, without)
        else:
            yield value
