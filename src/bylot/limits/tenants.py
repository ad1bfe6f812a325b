"""Tenants: the ledgers of all tenants by name, their own bounds, and which of them are archived.

A tenant without a request in the current window and the one before has nothing in its ledger that
matters any more: its slot is used for another one.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
from msgspec import Struct

from bylot.errors import TenantError
from bylot.limits.binding import make_ledgers
from bylot.limits.ledger import UNKNOWN
from bylot.limits.records import LEDGER, NO_AMOUNT, LimitState, Records
from bylot.limits.rows import compute_row_units
from bylot.numerics.jit import Floats
from bylot.problem import Limit, Problem
from bylot.problem.calendar import WindowName, find_window
from bylot.problem.limits import LIMIT_DEFAULTS, LimitKey
from bylot.problem.window_bounds import DAYS_PER_WINDOW

FIRST_SLOTS = 64
MIN_FREE_PART = 4  # a quarter of the slots is free after archiving, or there will be twice as many
MAX_TENANT_CHARS = 200
MAX_SHOWN_CHARS = 40  # of a name in a sentence
MAX_TOP_TENANTS = 10
BOUND_TOLERANCE = 1e-9  # relative; what is spent is a sum of many costs, and of corrections


class TenantWindow(Struct, frozen=True, kw_only=True):
    """One tenant in the current window of one limit; instants are microseconds since 1970."""

    limit: str  # in words
    per: str
    bound: float
    own: bool  # is the bound this tenant's own?
    spent: float
    reserved: float  # more that open calls may cost
    left: float | None  # None for a share of requests
    used: float | None
    requests: int
    starts: int
    ends: int


class TenantUse(Struct, frozen=True):
    """What a tenant has spent in the current window; of a share, its average per request."""

    tenant: str
    spent: float
    bound: float


class TenantsSummary(Struct, frozen=True, kw_only=True):
    """All tenants in the current window of one limit; instants are microseconds since 1970.

    active:  with a request in the window
    spent:   whose bound leaves no room for the cheapest panel
    outside: that have spent more than their bound or, of a share, whose average is outside it
    total:   of what all have spent
    top:     those that used most of their bounds; of a minimum, those with the lowest averages
    """

    per: WindowName
    starts: int
    ends: int
    active: int
    spent: int
    outside: int = 0
    total: float
    top: tuple[TenantUse, ...]


class TenantsData(Struct):
    """Tenants in a file; ledgers: field by field."""

    names: list[str | None]  # by slot
    ledgers: dict[str, Any]
    own: dict[str, list[dict[str, Any]]]  # limits with the bounds of single tenants


class Tenants:
    """The tenants of a router with limits for each of them.

    limits:  those with a scope, by their places in the problem
    slots:   of the ledgers, by the name of the tenant
    own:     limits with bounds of single tenants, also of archived ones
    ledgers: (slots, limits) of LEDGER, the last part of those in the state of the limits
    """

    def __init__(self, problem: Problem) -> None:
        self.bind(problem)
        self.slots: dict[str, int] = {}
        self.names: list[str | None] = [None] * FIRST_SLOTS
        self.free = list(range(FIRST_SLOTS))  # a heap: the lowest is used next
        self.ledgers = self.make_ledgers(FIRST_SLOTS)
        self.own: dict[str, tuple[Limit, ...]] = {}

    def make_ledgers(self, slots: int) -> Records:
        """Return empty ledgers of so many tenants."""
        return make_ledgers(slots * len(self.limits)).reshape(slots, len(self.limits))

    def join(self, state: LimitState) -> LimitState:
        """Return a state of limits whose last ledgers are those of the tenants."""
        d = len(state.place)
        joined = np.concatenate([state.ledgers[: 2 * d], self.ledgers.reshape(-1)])
        self.ledgers = joined[2 * d :].reshape(self.ledgers.shape)
        return state._replace(ledgers=joined)

    def bind(self, problem: Problem) -> None:
        """Take limits and units from a problem."""
        self.limits = {j: one for j, one in enumerate(problem.limits) if one.scope == "tenant"}
        self.units: Floats = (-problem.signs * compute_row_units(problem))[list(self.limits)]

    @property
    def count(self) -> int:
        """Tenants that are not archived."""
        return len(self.slots)

    def has_room(self, name: str) -> bool:
        """Return whether a tenant has a slot, or there is a free one."""
        return name in self.slots or bool(self.free)

    def make_room(self, problem: Problem, state: LimitState) -> None:
        """Archive idle tenants, and make twice as many slots if that frees few; then `join`."""
        self.archive_idle(problem, state)
        if len(self.free) * MIN_FREE_PART < len(self.names):
            self.grow()

    def open(self, name: str, t: int) -> int:
        """Return the slot of a tenant, a new one before decision t if it has none."""
        slot = self.slots.get(name)
        if slot is None:
            slot = heappop(self.free)
            self.slots[name] = slot
            self.names[slot] = name
            self.clear(slot, name)
            self.ledgers["first"][slot] = self.ledgers["first_before"][slot] = t
        return slot

    def clear(self, slot: int, name: str) -> None:
        """Empty a slot for a tenant."""
        self.ledgers[slot] = self.make_ledgers(1)[0]
        self.ledgers["amount"][slot] = self.list_amounts(name)

    def find_slot(self, name: str, state: LimitState) -> int:
        """Return the slot for a look at a tenant, which may have no ledgers."""
        slot = self.slots.get(name)
        if slot is None:
            d = len(state.place)
            state.ledgers["amount"][[d + j for j in self.limits]] = self.list_amounts(name)
        return UNKNOWN if slot is None else slot

    def archive_idle(self, problem: Problem, state: LimitState) -> None:
        """Free the slots of tenants without a request in the current windows and those before."""
        calendars = [problem.calendars.index(limit.calendar) for limit in self.limits.values()]
        starts = state.edges[calendars, state.windows["place"][calendars]]
        least = np.minimum(state.windows["previous"][calendars], starts)
        busy = (self.ledgers["start"] >= np.maximum(least, 1)).any(axis=1)
        for slot in np.flatnonzero(~busy).tolist():
            name = self.names[slot]
            if name is not None:
                del self.slots[name]
                self.names[slot] = None
                heappush(self.free, slot)

    def grow(self) -> None:
        """Twice as many slots."""
        n = len(self.names)
        self.ledgers = np.concatenate([self.ledgers, self.make_ledgers(n)])
        self.names.extend([None] * n)
        self.free.extend(range(n, 2 * n))  # above all others: it stays a heap

    def list_own_bounds(self, name: str) -> dict[LimitKey, float]:
        """The bounds that a tenant has for itself."""
        return {limit.key: limit.bound for limit in self.own.get(name, ())}

    def list_amounts(self, name: str) -> list[float]:
        """The own bounds of a tenant in units of the rows; NO_AMOUNT: that of all."""
        own = self.list_own_bounds(name)
        bounds = [own.get(limit.key) for limit in self.limits.values()]
        pairs = zip(bounds, self.units.tolist(), strict=True)
        return [NO_AMOUNT if bound is None else bound / unit for bound, unit in pairs]

    def find_limit(self, limit: Limit, name: str) -> Limit:
        """Return a limit with the bound of a tenant, if it has its own."""
        return next((own for own in self.own.get(name, ()) if own.key == limit.key), limit)

    def set_bounds(self, name: str, limits: Sequence[Limit]) -> None:
        """Give a tenant bounds of its own; without any, those of all apply again."""
        check_tenant_name(name)
        known = {limit.key: limit for limit in self.limits.values() if limit.is_total}
        for limit in limits:
            if limit.key not in known:
                words = ", ".join(budget.words for budget in known.values())
                raise TenantError(
                    f"there is no budget of {limit.words} that a tenant can have another bound of",
                    remedy=f"there is one of {words}" if words else "add one with scope='tenant'",
                )
            for field in ("zone", "when_spent"):
                given, usual = getattr(limit, field), getattr(known[limit.key], field)
                if given not in (usual, LIMIT_DEFAULTS[field]):
                    what = f"{field} of the bound of {limit.words} of tenant {name!r}"
                    remedy = "leave it out: only the bound can be another one"
                    raise TenantError(what, got=given, expected=repr(usual), remedy=remedy)
        if len({limit.key for limit in limits}) < len(limits):
            raise TenantError(f"tenant {name!r} has two bounds for the same budget")
        self.forget_windows_before(name, limits)
        self.own.pop(name, None)
        if limits:
            self.own[name] = tuple(known[limit.key].at(limit.bound) for limit in limits)
        if name in self.slots:
            self.ledgers["amount"][self.slots[name]] = self.list_amounts(name)

    def forget_windows_before(self, name: str, limits: Sequence[Limit]) -> None:
        """Let later reports change no windows that were judged by other bounds."""
        if name in self.slots:
            new = {limit.key: limit.bound for limit in limits}
            old = self.list_own_bounds(name)
            for k, limit in enumerate(self.limits.values()):
                if new.get(limit.key, limit.bound) != old.get(limit.key, limit.bound):
                    forget_before(self.ledgers[self.slots[name] : self.slots[name] + 1, k])

    def migrate(self, new: Problem, at: int, t: int) -> None:
        """Continue under other limits with what tenants have spent and reserved, before decision t.

        A limit in another zone, or in longer windows, goes on from what the current window of the
        same cost has spent (`move_window`). In shorter ones tenants begin with nothing: how much of
        it was spent in those is not known, so reports about earlier decisions do not count there.
        """
        was, units, ledgers = self.limits, self.units, self.ledgers
        self.bind(new)
        self.ledgers = self.make_ledgers(len(self.names))
        self.ledgers["first"] = self.ledgers["first_before"] = t
        places = list(was)
        for k, limit in enumerate(self.limits.values()):
            found = find_ledger_source(list(was.values()), limit)
            if found is None:
                continue
            source = was[places[found]]
            column, ratio = ledgers[:, found].copy(), units[found] / self.units[k]
            for name in ("spent", "before", "reserved", "reserved_before"):
                column[name] *= ratio
            if source.calendar != limit.calendar:
                assert limit.calendar is not None
                assert source.calendar is not None
                new_start = find_window(limit.calendar, at).start
                oldest = find_window(source.calendar, new_start).start
                move_window(column, oldest, new_start, t)
            elif source.bound != limit.bound:
                forget_before(column)
            self.ledgers[:, k] = column
        known = {limit.key: limit for limit in self.limits.values()}
        for name, own in list(self.own.items()):
            kept = tuple(known[one.key].at(one.bound) for one in own if one.key in known)
            if kept:
                self.own[name] = kept
            else:
                del self.own[name]
        for name, slot in self.slots.items():
            self.ledgers["amount"][slot] = self.list_amounts(name)

    def measure(self, name: str, at: int) -> list[TenantWindow]:
        """Measure a tenant in the window of each limit at an instant."""
        check_tenant_name(name)
        slot = self.slots.get(name)
        found = []
        own = self.list_own_bounds(name)
        for k, limit in enumerate(self.limits.values()):
            assert limit.calendar is not None
            begins, ends = find_window(limit.calendar, at)
            ledger = self.ledgers[-1 if slot is None else slot, k]
            now = slot is not None and int(ledger["start"]) == begins
            unit = float(self.units[k])
            bound = own.get(limit.key, limit.bound)
            spent, reserved = (float(ledger[field]) * unit * now for field in ("spent", "reserved"))
            left = max(bound - spent - reserved, 0.0) if limit.is_total else None
            used = spent / bound if limit.is_total and bound > 0 else None
            found.append(
                TenantWindow(
                    limit=limit.words,
                    per=limit.per or "",
                    bound=bound,
                    own=limit.key in own,
                    spent=spent + 0.0,
                    reserved=reserved + 0.0,
                    left=left,
                    used=used,
                    requests=int(ledger["requests"]) if now else 0,
                    starts=begins,
                    ends=ends,
                )
            )
        return found

    def summarize(self, j: int, at: int, cheapest: float) -> TenantsSummary:
        """All tenants in the window of limit j at this time; cheapest: cost of a panel."""
        k, limit = list(self.limits).index(j), self.limits[j]
        column, unit = self.ledgers[:, k], float(self.units[k])
        assert limit.calendar is not None
        window = find_window(limit.calendar, at)
        named = np.array([name is not None for name in self.names], np.bool_)
        active = np.flatnonzero(named & (column["start"] == window.start))
        spent = column["spent"][active] * unit
        amounts, total = column["amount"][active], float(spent.sum())
        bounds = np.where(amounts == NO_AMOUNT, limit.bound, amounts * unit)
        room = bounds - spent - column["reserved"][active] * unit
        if not limit.is_total:
            spent = spent / np.maximum(column["requests"][active], 1)
        outside = limit.sign * (spent - bounds) < -BOUND_TOLERANCE * bounds
        used = spent / np.maximum(bounds, 1e-300)
        order = np.argsort(limit.sign * used, kind="stable")[:MAX_TOP_TENANTS].tolist()
        top = tuple(
            TenantUse(str(self.names[active[n]]), float(spent[n]), float(bounds[n])) for n in order
        )
        walled = int((room < cheapest).sum()) if limit.is_total else 0
        return TenantsSummary(
            per=limit.calendar.per,
            starts=window.start,
            ends=window.end,
            active=active.size,
            spent=walled,
            outside=int(outside.sum()),
            total=total + 0.0,
            top=top,
        )

    def to_data(self, encode: Callable[[Any], Any]) -> TenantsData:
        """All of it, arrays by `encode`."""
        fields = LEDGER.names or ()
        ledgers = {name: encode(np.ascontiguousarray(self.ledgers[name])) for name in fields}
        own = {name: [one.to_data() for one in limits] for name, limits in self.own.items()}
        return TenantsData(list(self.names), ledgers, own)

    def fill_from_data(self, data: TenantsData, fill: Callable[[str, Any, Any], None]) -> None:
        """Inverse of `to_data`; fill: writes one array."""
        self.names = list(data.names)
        self.slots = {name: slot for slot, name in enumerate(self.names) if name is not None}
        self.free = [slot for slot, name in enumerate(self.names) if name is None]
        self.ledgers = self.make_ledgers(len(self.names))
        for name in LEDGER.names or ():
            array = np.ascontiguousarray(self.ledgers[name])
            fill(name, data.ledgers[name], array)
            self.ledgers[name] = array
        self.own = {
            name: tuple(Limit.from_data(one) for one in limits) for name, limits in data.own.items()
        }


def continue_tenants(tenants: Tenants | None, problem: Problem, at: int, t: int) -> Tenants | None:
    """Return the tenants under another problem, before decision t.

    None: it has no limits for each of them.
    """
    if not problem.has_tenants:
        return None
    if tenants is None:
        return Tenants(problem)
    tenants.migrate(problem, at, t)
    return tenants


def move_window(column: Records, oldest: int, new_start: int, t: int) -> None:
    """Let all known windows that began at `oldest` or later count as one that began at `new_start`.

    The oldest is the one in which the new window begins: some of it does not belong to the new one,
    but nobody knows how much. A ledger without such windows begins at decision t.
    """
    now, then = (column[name] >= oldest for name in ("start", "start_before"))
    column["spent"] = column["spent"] * now + column["before"] * then
    column["reserved"] = column["reserved"] * now + column["reserved_before"] * then
    column["first"] = np.where(then, column["first_before"], np.where(now, column["first"], t))
    column["start"] = np.where(now, new_start, 0)
    forget_before(column)


def forget_before(column: Records) -> None:
    """Forget the windows before the current ones."""
    column["before"], column["requests_before"], column["start_before"] = 0.0, 0, 0
    column["reserved_before"] = 0.0
    column["first_before"] = column["first"]


def find_ledger_source(was: Sequence[Limit], wanted: Limit) -> int | None:
    """The place of the same limit or, if there is none, of one on the same cost in the longest
    windows that are not longer; None: there is none.
    """
    same = [one.key == wanted.key for one in was]
    if any(same):
        return same.index(True)
    days = [DAYS_PER_WINDOW[one.per or ""] for one in was]
    shorter = [
        place
        for place, one in enumerate(was)
        if one.key._replace(per="") == wanted.key._replace(per="")
        and days[place] <= DAYS_PER_WINDOW[wanted.per or ""]
    ]
    return max(shorter, key=days.__getitem__, default=None)


def format_tenant(name: str) -> str:
    """The name of a tenant in a sentence: on one line, and not too long.

    >>> format_tenant("acme"), format_tenant(" "), len(format_tenant("x" * 200))
    ('acme', "' '", 40)
    """
    shown = name if name.isprintable() and name.strip() else repr(name)
    return shown if len(shown) <= MAX_SHOWN_CHARS else f"{shown[: MAX_SHOWN_CHARS - 1]}…"


def check_tenant_name(name: object) -> str:
    """Require a name that a tenant can have."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_TENANT_CHARS:
        expected = f"a text of 1 to {MAX_TENANT_CHARS} characters"
        raise TenantError("tenant", got=name, expected=expected)
    return name
