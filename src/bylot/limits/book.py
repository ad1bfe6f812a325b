"""LimitBook: the limits of one router at work, in its time and with the ledgers of its keys.

It finds the ledgers of a request, refuses it, and books, settles and takes back what decisions
cost. Which panel is drawn is left to the policy, and what happens to a decision to the router.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bylot.errors import DecisionError, TenantError
from bylot.limits import entries, settlement
from bylot.limits.keys import (
    NO_KEYS,
    KeyLedgers,
    KeyNames,
    TenantWindow,
    check_key_name,
    continue_keys,
)
from bylot.limits.ledger import EVERYBODY
from bylot.limits.records import Limits, LimitTables
from bylot.limits.request import Unlimited, point_to
from bylot.limits.substitutes import mark_substitutes
from bylot.limits.window_status import make_spent_error
from bylot.limits.windows import fill_tables, list_due_tables, note_context_label
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.problem import Problem
from bylot.problem.instants import FULL_HOUR_US

ALL_AVAILABLE: Bools = np.empty(0, np.bool_)
NO_FLOATS: Floats = np.empty(0)
OF_COMPILED = ("pointer", "left")  # what `bind` makes of the tables
CostsByName = Mapping[str, float]
Tables = tuple[tuple[int, ...], ...]
"""Edges of windows of each calendar, and offsets of local time: `windows.list_tables`."""


class RequestLabels(NamedTuple):
    """What a request says about itself, by which limits count it or not."""

    context: str | None = None
    keys: KeyNames = NO_KEYS


NO_LABELS = RequestLabels()


class LimitBook:
    """All that a router knows of its limits: ledgers, windows, keys, and refusals not yet logged.

    contexts: the router's rows of contexts, by label
    tables:   rule and state of the limits; None: nobody keeps them
    keyed:    the ledgers of all keys, if there are limits for each of them
    at:       the time of the last decision under limits of the calendar
    filled:   the windows that the last decision or edit had to fill in, if it had to
    refused:  requests that were refused since the last decision, by the hour
    pointer:  `Limits` or `Unlimited`
    left:     (1,) decisions to come of the current period, of `period` in all; None as tables
    follows_clock: whether the time of a request matters
    reads_labels:  whether its context or its keys do
    """

    def __init__(self, problem: Problem, contexts: dict[str | None, int]) -> None:
        self.problem = problem
        self.contexts = contexts
        self.tables: LimitTables | None = None
        self.keyed = continue_keys(None, problem, 0, 0)
        self.at = 0
        self.filled: Tables | None = None
        self.refused: dict[int, int] = {}

    def bind(self, problem: Problem, tables: LimitTables | None) -> None:
        """Take the tables of a problem, and hand them to the compiled side."""
        if tables is not None and self.keyed is not None:
            tables = tables._replace(state=self.keyed.join(tables.state))
        self.problem = problem
        self.tables = tables
        self.follows_clock = tables is not None and tables.follows_clock
        self.reads_labels = tables is not None and tables.reads_labels
        self.left: Any = None if tables is None else tables.state.clock["left"]
        self.period = 0 if tables is None else tables.rule.period
        self.pointer: Any = point_to(tables, problem)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: all but what `bind` makes."""
        return {name: value for name, value in vars(self).items() if name not in OF_COMPILED}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        vars(self).update(fields)
        self.bind(self.problem, self.tables)

    @property
    def kept(self) -> LimitTables:
        """Rule and state, where limits are kept."""
        assert self.tables is not None
        return self.tables

    @property
    def played_rounds(self) -> int:
        """Rounds of the current period so far; 0 where no limits are kept."""
        return 0 if self.left is None else self.period - self.left.item(0)

    @property
    def first(self) -> int:
        """The first decision of the current period."""
        return 0 if self.tables is None else int(self.tables.state.clock["first"][0])

    def compile(self) -> None:
        """Compile what requests call, so that none waits for it."""
        if self.tables is not None and self.problem.needs_guard:
            entries.compile_for_requests(self.pointer)

    def note_context(self, label: str | None, row: int) -> None:
        """Write which limits count the requests of a context."""
        if self.tables is not None:
            note_context_label(self.tables.state, self.problem.limits, row, label)

    def grow_contexts(self, rows: int) -> None:
        """Make room for the given number of contexts."""
        tables = self.tables
        if tables is not None and len(tables.state.counts):
            counts = np.ones((rows, len(self.problem.limits)), np.bool_)
            counts[: len(tables.state.counts)] = tables.state.counts
            self.bind(self.problem, tables._replace(state=tables.state._replace(counts=counts)))

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

    def check_budgets(self, at: int, available: Bools, labels: RequestLabels = NO_LABELS) -> None:
        """Raise BudgetSpent, and count it by the hour, if a budget of the calendar leaves no panel.

        Nothing else changes until the next decision, which says how many requests were refused.
        """
        self.check_keys(labels.keys)
        if not self.follows_clock:
            return
        now = max(at, self.at)
        self.find_places(labels, look=True)
        j = entries.find_spent(self.pointer, now, available)
        if j >= 0:
            limit = self.problem.limits[j]
            if self.keyed is not None:
                limit = self.keyed.find_limit(limit, labels.keys)
            hour = at - at % FULL_HOUR_US
            self.refused[hour] = self.refused.get(hour, 0) + 1
            raise make_spent_error(limit, now, at, labels.keys)

    def is_spent(self, j: int, at: int, available: Bools) -> bool:
        """Return whether budget j leaves no panel for a request that it counts."""
        self.find_places(RequestLabels(self.problem.limits[j].some_context), look=True)
        spent: bool = entries.find_spent(self.pointer, at, available) == j
        return spent

    def find_places(self, labels: RequestLabels, look: bool = False) -> None:
        """Find the ledgers of a request with these labels.

        look: it may have keys that are not known yet
        """
        if self.tables is None or not self.reads_labels:
            return
        check_context(labels.context)
        counted = ALL_AVAILABLE
        if len(self.tables.state.counts):
            row = self.contexts.get(labels.context)
            if row is not None:
                counted = self.tables.state.counts[row]
            else:
                limits = self.problem.limits
                counted = np.array([limit.counts(labels.context) for limit in limits], np.bool_)
        if self.keyed is not None:
            self.keyed.find(labels.keys, self.tables.state, look)
        entries.find_places(self.pointer, counted)

    def look_at_everybody(self) -> None:
        """Find the ledgers of everybody, as a status does."""
        if self.tables is not None:
            self.tables.state.keys["slot"] = EVERYBODY
            entries.find_places(self.pointer, ALL_AVAILABLE)

    def preview(self) -> Limits | Unlimited:
        """Return what compiled code takes, of a copy, and for a request without keys."""
        tables = copy.deepcopy(self.tables)
        if tables is not None:
            tables.state.keys["slot"] = EVERYBODY
        return point_to(tables, self.problem)

    def find_due(self, now: int) -> Tables | None:
        """Return the windows to be filled in for a decision at this time; None if there are none.

        It may raise an error, and changes nothing.
        """
        due = list_due_tables(self.problem, self.kept.state, now)
        return None if due is None else freeze_tables(due)

    def enter(self, now: int, tables: Tables | None) -> None:
        """Let it be this time, with these windows filled in."""
        self.at = now
        self.filled = tables
        if tables is not None:
            fill_tables(self.kept.state, tables)

    def open_keys(self, keys: KeyNames, t: int) -> bool:
        """Let decision t be booked under its keys; return whether the tables were made again."""
        keyed = self.get_keyed()
        state = self.kept.state
        is_full = not keyed.has_room(keys)
        if is_full:
            keyed.make_room(self.problem, state)
            self.bind(self.problem, self.tables)
        keyed.open(keys, self.kept.state, t)
        return is_full

    def count_refused(self, at: int, requests: int) -> None:
        """Count requests that were refused: they are traffic too, of which only windows know."""
        if self.follows_clock:
            entries.note_refused(self.pointer, max(at, self.at), requests)

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

    def list_certain_costs(self) -> set[str]:
        """Return the names of the costs under limits that hold whatever calls cost."""
        rows = () if self.tables is None else np.flatnonzero(self.tables.rule.rows["certain"])
        return {self.problem.limits[j].name for j in rows}

    def mark_substitutes(self, failed: int) -> Bools:
        """Return the experts in whose favour a call of the failed one can be given up."""
        return mark_substitutes(self.problem, self.tables, failed)

    def settle_calls(
        self,
        t: int,
        members: Ints,
        corrections: CostsByName,
        by_member: Mapping[str, CostsByName],
        labels: RequestLabels,
        held: CostsByName | None,
    ) -> None:
        """Book and learn what the members of decision t cost beyond what is booked, by name.

        held: what is reserved for it, and is released; None: what one of now would reserve
        """
        if self.tables is not None:
            self.find_places(labels)
            settled = settlement.scale_spend(self.problem, members, corrections, by_member)
            entries.settle_calls(self.pointer, t, *settled, self.scale_reserve(held))

    def learn_bill(self, members: Ints, corrections: CostsByName) -> None:
        """Learn what a panel of a log cost beyond what is declared, by name, and book nothing."""
        if self.tables is not None:
            nobody = np.zeros(len(self.problem.limits), np.bool_)
            entries.find_places(self.pointer, nobody)  # what no ledger counts is not booked
            bill = settlement.scale_spend(self.problem, members, corrections, {})
            entries.settle_calls(self.pointer, 0, *bill, NO_FLOATS)
            self.look_at_everybody()

    def correct(self, t: int, corrections: CostsByName, labels: RequestLabels) -> None:
        """Book what decision t cost beyond what is booked, by name; nothing is learned."""
        if self.tables is not None:
            self.find_places(labels)
            more = settlement.scale_corrections(self.problem, corrections)
            entries.correct_spend(self.pointer, t, more)

    def release(self, t: int, members: Ints, costs: Iterable[str], held: CostsByName) -> None:
        """Release what decision t, whose ledgers were found, holds for these costs."""
        if self.tables is not None:
            named = [limit.name in costs for limit in self.problem.limits]
            rows = np.flatnonzero(named)
            entries.release_calls(self.pointer, t, rows, members, self.scale_reserve(held))

    def scale_reserve(self, held: CostsByName | None) -> Floats:
        """Return a reserve in units of the rows; empty: it is not known."""
        return NO_FLOATS if held is None else settlement.scale_reserve(self.problem, held)

    def cancel(
        self,
        t: int,
        members: Ints,
        spend: CostsByName,
        labels: RequestLabels,
        held: CostsByName,
        *,
        in_period: bool,
        edited: bool,
    ) -> None:
        """Take back what decision t has booked, and release what it holds.

        in_period: it is of the current period, which has one more decision to come
        edited:    an edit since then has counted it as `bound`, and kept what is beyond
        """
        if self.tables is not None:
            negated = {name: -cost for name, cost in spend.items()}
            less = settlement.scale_corrections(self.problem, negated)
            if edited:
                rows = self.tables.rule.rows
                less = np.where(rows["planned"], np.maximum(less, -rows["bound"]), less)
            self.find_places(labels)
            reserve = self.scale_reserve(held)
            entries.cancel_round(self.pointer, t, less, members, reserve, in_period)

    def exchange(
        self, t: int, failed: int, added: int, labels: RequestLabels, more_held: CostsByName
    ) -> None:
        """Wait for a call of one expert instead of another, and change the reserve by as much."""
        if self.tables is not None:
            self.find_places(labels)
            reserve = self.scale_reserve(more_held)
            entries.exchange_call(self.pointer, t, failed, added, reserve)


def freeze_tables(tables: Iterable[Iterable[int]]) -> Tables:
    """Return tables of windows that nobody can change."""
    return tuple(map(tuple, tables))


def check_context(label: object) -> None:
    """Require a label that a context can have."""
    if label is not None and not isinstance(label, str):
        raise DecisionError("context", got=label, expected="a string or None")
