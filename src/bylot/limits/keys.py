"""Keys: the ledgers of all tenants by name, their own bounds, and which of them are archived.

A key is a scope and a name in it, such as a tenant: limits with that scope have ledgers for each.
One without a request in the current window and the one before has nothing in its ledgers that
matters any more: its slot is used for another one.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
from msgspec import Struct

from bylot._scopes import SCOPE_NAMES
from bylot.errors import TenantError
from bylot.limits.binding import make_ledgers
from bylot.limits.ledger import ARCHIVED, EVERYBODY, UNKNOWN
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

KeyNames = Mapping[str, str]
"""The names that a request gives, by scope: {"tenant": "acme"}."""
NO_KEYS: KeyNames = {}
Key = tuple[str, str]
"""A scope and a name in it."""


def list_given_keys(names: Mapping[Any, Any]) -> dict[str, str]:
    """Return the keys of a request without those that are None.

    >>> list_given_keys({"tenant": "acme", "user": None})
    {'tenant': 'acme'}
    """
    return {scope: name for scope, name in names.items() if name is not None}


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

    scope:   what they are, if not tenants
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
    scope: str = "tenant"


class KeysData(Struct):
    """Keys in a file; ledgers: field by field."""

    keys: list[Key | None]  # by slot
    ledgers: dict[str, Any]
    own: list[tuple[Key, list[dict[str, Any]]]]  # limits with the bounds of single keys


class KeyLedgers:
    """The ledgers of all keys of a router with limits for each of them.

    limits:  those with a scope, by their places in the problem
    slots:   of the ledgers, by key
    keys:    by slot
    known:   how many there are, by scope
    own:     limits with bounds of single keys, also of archived ones
    ledgers: (slots, limits) of LEDGER, the last part of those in the state of the limits; those of
             limits of another scope stay empty
    """

    def __init__(self, problem: Problem) -> None:
        self.bind(problem)
        self.slots: dict[Key, int] = {}
        self.keys: list[Key | None] = [None] * FIRST_SLOTS
        self.known: Counter[str] = Counter()
        self.free = list(range(FIRST_SLOTS))  # a heap: the lowest is used next
        self.ledgers = self.make_ledgers(FIRST_SLOTS)
        self.own: dict[Key, tuple[Limit, ...]] = {}

    def make_ledgers(self, slots: int) -> Records:
        """Return empty ledgers of the given number of keys."""
        return make_ledgers(slots * len(self.limits)).reshape(slots, len(self.limits))

    def join(self, state: LimitState) -> LimitState:
        """Return a state of limits whose last ledgers are those of the keys."""
        d = len(state.place)
        joined = np.concatenate([state.ledgers[: 2 * d], self.ledgers.reshape(-1)])
        self.ledgers = joined[2 * d :].reshape(self.ledgers.shape)
        return state._replace(ledgers=joined)

    def bind(self, problem: Problem) -> None:
        """Take limits and units from a problem."""
        self.limits = {j: limit for j, limit in enumerate(problem.limits) if limit.scope}
        self.units: Floats = (-problem.signs * compute_row_units(problem))[list(self.limits)]

    def has_room(self, names: KeyNames) -> bool:
        """Return whether the keys of a request have slots, or there are free ones."""
        return len(self.free) >= sum(key not in self.slots for key in names.items())

    def make_room(self, problem: Problem, state: LimitState) -> None:
        """Archive idle keys, and make twice as many slots if that frees few; then `join`."""
        self.archive_idle(problem, state)
        if len(self.free) * MIN_FREE_PART < len(self.keys):
            self.grow()

    def open(self, names: KeyNames, state: LimitState, t: int) -> None:
        """Let decision t be booked in the ledgers of its keys, new ones for those without any."""
        state.keys["slot"] = EVERYBODY
        for key in names.items():
            slot = self.slots.get(key)
            if slot is None:
                slot = self.start(key, t)
            scope = key[0]
            state.keys[SCOPE_NAMES.index(scope)] = slot, self.known[scope]

    def start(self, key: Key, t: int) -> int:
        """Return a free slot for a new key, which begins with nothing before decision t."""
        slot = heappop(self.free)
        self.slots[key] = slot
        self.keys[slot] = key
        self.known[key[0]] += 1
        self.ledgers[slot] = self.make_ledgers(1)[0]
        self.ledgers["amount"][slot] = self.list_amounts(key)
        self.ledgers["first"][slot] = self.ledgers["first_before"][slot] = t
        return slot

    def find(self, names: KeyNames, state: LimitState, look: bool) -> None:
        """Let `find_places` find the ledgers of these keys.

        look: for a key without ledgers, empty ones are found; else none
        """
        for place, scope in enumerate(SCOPE_NAMES):
            key = scope, names.get(scope, "")
            slot = self.slots.get(key, ARCHIVED)
            if look and slot == ARCHIVED:
                slot = UNKNOWN
                amounts = zip(self.limits.items(), self.list_amounts(key), strict=True)
                for (j, limit), amount in amounts:
                    if limit.scope == scope:
                        state.ledgers["amount"][len(state.place) + j] = amount
            state.keys["slot"][place] = slot

    def archive_idle(self, problem: Problem, state: LimitState) -> None:
        """Free the slots of keys without a request in the current windows and those before."""
        calendars = [problem.calendars.index(limit.calendar) for limit in self.limits.values()]
        starts = state.edges[calendars, state.windows["place"][calendars]]
        least = np.minimum(state.windows["previous"][calendars], starts)
        busy = (self.ledgers["start"] >= np.maximum(least, 1)).any(axis=1)
        for slot in np.flatnonzero(~busy).tolist():
            key = self.keys[slot]
            if key is not None:
                del self.slots[key]
                self.keys[slot] = None
                self.known[key[0]] -= 1
                heappush(self.free, slot)

    def grow(self) -> None:
        """Make twice as many slots."""
        n = len(self.keys)
        self.ledgers = np.concatenate([self.ledgers, self.make_ledgers(n)])
        self.keys.extend([None] * n)
        self.free.extend(range(n, 2 * n))  # above all others: it stays a heap

    def list_own_bounds(self, key: Key) -> dict[LimitKey, float]:
        """Return the bounds that a key has for itself."""
        return {limit.key: limit.bound for limit in self.own.get(key, ())}

    def list_amounts(self, key: Key) -> list[float]:
        """Return the own bounds of a key in units of the rows; NO_AMOUNT: that of all."""
        own = self.list_own_bounds(key)
        bounds = [own.get(limit.key) for limit in self.limits.values()]
        pairs = zip(bounds, self.units.tolist(), strict=True)
        return [NO_AMOUNT if bound is None else bound / unit for bound, unit in pairs]

    def find_limit(self, limit: Limit, names: KeyNames) -> Limit:
        """Return a limit with the bound of the key of a request, if that has its own."""
        key = limit.scope or "", names.get(limit.scope or "", "")
        return next((own for own in self.own.get(key, ()) if own.key == limit.key), limit)

    def list_limits(self, scope: str) -> dict[int, Limit]:
        """Return the limits of a scope, by their places in the ledgers of a slot."""
        limits = enumerate(self.limits.values())
        found = {k: limit for k, limit in limits if limit.scope == scope}
        if not found:
            raise TenantError(
                f"this router has no limits for each {scope}",
                remedy=f"add one with scope={scope!r}",
            )
        return found

    def set_bounds(self, key: Key, limits: Sequence[Limit]) -> None:
        """Give a key bounds of its own; without any, those of all apply again."""
        scope, name = key
        check_key_name(scope, name)
        totals = [limit for limit in self.list_limits(scope).values() if limit.is_total]
        known = {limit.key: limit for limit in totals}
        for limit in limits:
            if limit.key not in known:
                words = ", ".join(budget.words for budget in known.values())
                raise TenantError(
                    f"there is no budget of {limit.words} that a {scope} can have another bound of",
                    remedy=f"there is one of {words}" if words else f"add one with scope={scope!r}",
                )
            for field in ("zone", "when_spent"):
                given, usual = getattr(limit, field), getattr(known[limit.key], field)
                if given not in (usual, LIMIT_DEFAULTS[field]):
                    raise TenantError(
                        f"{field} of the bound of {limit.words} of {scope} {name!r}",
                        got=given,
                        expected=repr(usual),
                        remedy="leave it out: only the bound can be another one",
                    )
        if len({limit.key for limit in limits}) < len(limits):
            raise TenantError(f"{scope} {name!r} has two bounds for the same budget")
        self.forget_windows_before(key, limits)
        self.own.pop(key, None)
        if limits:
            self.own[key] = tuple(known[limit.key].at(limit.bound) for limit in limits)
        if key in self.slots:
            self.ledgers["amount"][self.slots[key]] = self.list_amounts(key)

    def forget_windows_before(self, key: Key, limits: Sequence[Limit]) -> None:
        """Let later reports change no windows that were judged by other bounds."""
        if key in self.slots:
            new = {limit.key: limit.bound for limit in limits}
            old = self.list_own_bounds(key)
            for k, limit in enumerate(self.limits.values()):
                if new.get(limit.key, limit.bound) != old.get(limit.key, limit.bound):
                    forget_before(self.ledgers[self.slots[key] : self.slots[key] + 1, k])

    def migrate(self, new: Problem, at: int, t: int) -> None:
        """Continue under other limits with what keys have spent and reserved, before decision t.

        A limit in another zone, or in longer windows, goes on from what the current window of the
        same cost has spent (`move_window`). In shorter ones keys begin with nothing: how much of it
        was spent in those is not known, so reports about earlier decisions do not count there.
        """
        was = self.limits
        units = self.units
        ledgers = self.ledgers
        self.bind(new)
        self.ledgers = self.make_ledgers(len(self.keys))
        self.ledgers["first"] = self.ledgers["first_before"] = t
        places = list(was)
        for k, limit in enumerate(self.limits.values()):
            found = find_ledger_source(list(was.values()), limit)
            if found is None:
                continue
            source = was[places[found]]
            column = ledgers[:, found].copy()
            for field in ("spent", "before", "reserved", "reserved_before"):
                column[field] *= units[found] / self.units[k]
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
        for key, own in list(self.own.items()):
            kept = tuple(known[limit.key].at(limit.bound) for limit in own if limit.key in known)
            if kept:
                self.own[key] = kept
            else:
                del self.own[key]
        for key, slot in self.slots.items():
            self.ledgers["amount"][slot] = self.list_amounts(key)

    def measure(self, key: Key, at: int) -> list[TenantWindow]:
        """Measure a key in the window of each limit of its scope at an instant."""
        scope, name = key
        check_key_name(scope, name)
        slot = self.slots.get(key)
        found = []
        own = self.list_own_bounds(key)
        for k, limit in self.list_limits(scope).items():
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
        """Return all keys in the window of limit j at this time; cheapest: cost of a panel."""
        k = list(self.limits).index(j)
        limit = self.limits[j]
        column = self.ledgers[:, k]
        unit = float(self.units[k])
        assert limit.calendar is not None
        window = find_window(limit.calendar, at)
        named = np.array([key is not None for key in self.keys], np.bool_)
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
        names = [key[1] for place in active[order] if (key := self.keys[place])]
        used_most = zip(names, spent[order].tolist(), bounds[order].tolist(), strict=True)
        top = tuple(TenantUse(*use) for use in used_most)
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
            scope=limit.scope or "",
        )

    def to_data(self) -> KeysData:
        """Return all of it."""
        ledgers = {name: self.ledgers[name].tobytes() for name in LEDGER.names or ()}
        own = [(key, [limit.to_data() for limit in limits]) for key, limits in self.own.items()]
        return KeysData(list(self.keys), ledgers, own)

    def fill_from_data(self, data: KeysData, fill: Callable[[str, Any, Any], None]) -> None:
        """Read what `to_data` has written; fill: writes one array."""
        self.keys = list(data.keys)
        self.slots = {key: slot for slot, key in enumerate(self.keys) if key is not None}
        self.known = Counter(scope for scope, _ in self.slots)
        self.free = [slot for slot, key in enumerate(self.keys) if key is None]
        self.ledgers = self.make_ledgers(len(self.keys))
        for name in LEDGER.names or ():
            array = np.ascontiguousarray(self.ledgers[name])
            fill(name, data.ledgers[name], array)
            self.ledgers[name] = array
        self.own = {key: tuple(map(Limit.from_data, limits)) for key, limits in data.own}


def continue_keys(keyed: KeyLedgers | None, problem: Problem, at: int, t: int) -> KeyLedgers | None:
    """Return the ledgers of keys under another problem, before decision t.

    None: it has no limits for each of them.
    """
    if not problem.scopes:
        return None
    if keyed is None:
        return KeyLedgers(problem)
    keyed.migrate(problem, at, t)
    return keyed


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
    """Return the place of the same limit or, if there is none, of one on the same cost in the
    longest windows that are not longer; None: there is none.
    """
    same = [limit.key == wanted.key for limit in was]
    if any(same):
        return same.index(True)
    days = [DAYS_PER_WINDOW[limit.per or ""] for limit in was]
    shorter = [
        place
        for place, limit in enumerate(was)
        if limit.key._replace(per="") == wanted.key._replace(per="")
        and days[place] <= DAYS_PER_WINDOW[wanted.per or ""]
    ]
    return max(shorter, key=days.__getitem__, default=None)


def format_tenant(name: str) -> str:
    """Return the name of a tenant for a sentence: on one line, and not too long.

    >>> format_tenant("acme"), format_tenant(" "), len(format_tenant("x" * 200))
    ('acme', "' '", 40)
    """
    shown = name if name.isprintable() and name.strip() else repr(name)
    return shown if len(shown) <= MAX_SHOWN_CHARS else f"{shown[: MAX_SHOWN_CHARS - 1]}…"


def check_key_name(scope: str, name: object) -> None:
    """Require a name that a tenant can have."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_TENANT_CHARS:
        raise TenantError(scope, got=name, expected=f"a text of 1 to {MAX_TENANT_CHARS} characters")
