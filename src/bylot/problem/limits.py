"""Limits: bounds on what the experts that are asked cost, per request or per calendar window.

A limit checks itself; which costs and experts exist is left to the problem.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args
from unicodedata import normalize

from bylot._scopes import SCOPE_NAMES, ScopeName
from bylot.errors import ProblemError
from bylot.numerics.jit import Floats
from bylot.problem.calendar import Calendar, WindowName, check_per
from bylot.problem.derived_costs import DerivedCost
from bylot.problem.instants import check_zone
from bylot.problem.limit_input import Per, Where, check_where, split_per
from bylot.problem.limit_input import float_from_real as float_from_real

if TYPE_CHECKING:
    from bylot.problem.problem import Problem

UPPER, LOWER = -1, +1
"""The sign of a limit: -1 for an upper bound, +1 for a lower one."""

MIN_POSITIVE_COST, MAX_COST = 1e-100, 1e100
"""Costs and bounds are 0 or between these, so that no product of a few of them can overflow."""

WhenSpent = Literal["cheapest", "fewer", "refuse"]
"""What to do as a budget of the calendar runs out: ask the cheapest panels, and refuse requests
when none fits any more; before that ask fewer experts, down to one; or refuse requests rather than
ask much cheaper panels than usual."""

DEFAULT_WHEN_SPENT: WhenSpent = "cheapest"
DEFAULT_ZONE = "UTC"
PER_REQUEST = "request"  # what a bound without a window is per


@dataclass(frozen=True)
class Limit:
    """A bound on the summed cost of the distinct experts asked: per request, or per window.

    Make one with `at_most` or `at_least`.

    Parameters
    ----------
    cost, bound, zone, when_spent, scope
        As of `at_most`.
    sign : int
        -1 for an upper bound, +1 for a lower one.
    per : {"hour", "day", "week", "month"}, optional
        The window of the calendar that the bound is for: of a cost, the total of the window; of a
        share, the average per request in it. Without it, the average over all requests.
    where : tuple of str
        The contexts whose requests count; all if it is empty. ``{"context": ["icu"]}`` is read too.
    per_draw : bool
        Whether the bound is per draw; a problem makes it one per request.

    Raises
    ------
    ProblemError
        If a part is invalid.

    Examples
    --------
    >>> print(Limit("usd", 2.0, UPPER))
    at_most('usd', 2.0)
    >>> print(Limit("usd", 500, UPPER, per="day"))
    at_most('usd', 500.0, per='day')
    """

    cost: str | DerivedCost
    bound: float
    sign: int
    per: WindowName | None = None
    zone: str = DEFAULT_ZONE
    when_spent: WhenSpent = DEFAULT_WHEN_SPENT
    scope: ScopeName | None = None
    where: tuple[str, ...] = ()
    per_draw: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.cost, str | DerivedCost):
            raise ProblemError(
                "cost of a limit",
                got=self.cost,
                expected="the name of a cost or a share",
                remedy="write at_most('usd', 2.0) or at_least(share('junior', ['ann']), 0.3)",
            )
        if self.sign not in (UPPER, LOWER):
            raise ProblemError(
                f"sign of the limit on {self.name!r}",
                got=self.sign,
                expected="-1 or +1",
                remedy="use at_most or at_least",
            )
        self._check_window()
        if self.per_draw and self.is_derived and not self.bound <= 1:
            raise ProblemError(
                self.side,
                got=self.bound,
                expected="a share of the draws from 0 to 1",
                remedy="write 0.04 for 4%, or per request",
            )
        object.__setattr__(self, "where", check_where(self.where, self.name))
        if self.scope is not None:
            self._check_scope()
        value = float_from_real(self.bound)
        advice = None
        if value is not None and (value == 0 or MIN_POSITIVE_COST <= value <= MAX_COST):
            object.__setattr__(self, "bound", value)
            return
        if value == math.inf:
            why = "every average keeps" if self.sign == UPPER else "no average reaches"
            advice = f"leave the limit out, as {why} it"
        elif value is not None and value > 0:
            advice = "measure the cost in another unit"
        raise ProblemError(
            f"bound {self.side} of the limit on {self.name!r}",
            got=self.bound,
            expected=f"0 or a number from {MIN_POSITIVE_COST} to {MAX_COST}",
            remedy=advice,
        )

    def _check_window(self) -> None:
        """Require a window of the calendar, and what depends on one, to fit the limit."""
        where = f"of the limit on {self.name!r}"
        if self.when_spent not in get_args(WhenSpent):
            raise ProblemError(
                f"when_spent {where}",
                got=self.when_spent,
                expected="'cheapest', 'fewer' or 'refuse'",
            )
        if self.per is None:
            for name, default in (("zone", DEFAULT_ZONE), ("when_spent", DEFAULT_WHEN_SPENT)):
                if getattr(self, name) != default:
                    raise ProblemError(
                        f"the limit on {self.name!r} has a {name}, but no window",
                        remedy="add per='day', or leave it out",
                    )
            return
        check_per(self.per)
        check_zone(self.zone)
        if self.is_derived and self.when_spent != DEFAULT_WHEN_SPENT:
            raise ProblemError(
                f"a share of requests is never spent, so when_spent {where} has no meaning",
                remedy="leave it out, or limit a cost of 1 for each member",
            )
        if self.sign == LOWER and not self.is_derived:
            raise ProblemError(
                f"the minimum of {self.name!r} per {self.per} cannot be promised: nobody knows how "
                "many requests will come",
                remedy="ask for a share of them: at_least(share('partner', ['ann']), 0.1, "
                f"per={self.per!r})",
            )

    def _check_scope(self) -> None:
        """Require a scope that there is, with a window."""
        if self.scope not in SCOPE_NAMES:
            raise ProblemError(
                f"scope of the limit on {self.name!r}",
                got=self.scope,
                expected=f"{' or '.join(map(repr, SCOPE_NAMES))}, or none for all requests",
            )
        if self.per is None:
            raise ProblemError(
                f"the limit on {self.name!r} for each {self.scope} has no window",
                remedy="add per='day', 'week' or 'month'",
            )

    @property
    def name(self) -> str:
        """The name of the cost that is limited."""
        return self.cost if isinstance(self.cost, str) else self.cost.name

    @property
    def side(self) -> str:
        """The function that makes such a limit: at_most or at_least."""
        return "at_most" if self.sign == UPPER else "at_least"

    @property
    def key(self) -> "LimitKey":
        """What a problem limits at most once."""
        where = tuple(sorted(self.where))
        return LimitKey(self.name, self.sign, self.per or "", self.scope or "", where)

    @property
    def labels(self) -> tuple[str, str, str, str, str]:
        """Cost, side, window, scope and contexts, as labels; no two limits of a problem share them.

        >>> at_most("usd", 5, per="day", where={"context": ["icu", "er"]}).labels
        ('usd', 'at_most', 'day', '', 'icu,er')
        """
        where = ",".join(name.replace("\\", "\\\\").replace(",", "\\,") for name in self.where)
        return self.name, self.side, self.per or PER_REQUEST, self.scope or "", where

    @property
    def path(self) -> str:
        """The limit as command lines name it: "usd/day", "usd/request@icu,er"."""
        where = f"@{','.join(self.where)}" if self.where else ""
        scope = f"/{self.scope}" if self.scope else ""
        return f"{self.name}/{self.per or PER_REQUEST}{scope}{where}"

    @property
    def words(self) -> str:
        """What the limit bounds: "usd per day", "usd per month for each tenant".

        >>> at_most("usd", 5, per="day", where={"context": ["icu", "er"]}).words
        'usd per day in icu, er'
        """
        window = "" if self.per is None else f" per {self.per}"
        return f"{self.name}{window}{self.counted_words}"

    @property
    def counted_words(self) -> str:
        """Which requests count, if not all together: " for each tenant", " in icu, er"."""
        scope = f" for each {self.scope}" if self.scope else ""
        return f"{scope} in {', '.join(self.where)}" if self.where else scope

    def describe_unit(self, most: int | None = None) -> str:
        """Say what the bound is for, if not for the average of all requests over a period.

        most: the most contexts that are named; of more than these, only their number is

        >>> at_most("usd", 500, per="day").describe_unit(), at_most("usd", 2).describe_unit()
        ('per day', '')
        >>> from bylot.problem import share
        >>> at_least(share("partner", ["eve"]), 0.1, per="week").describe_unit()
        'per decision in every week'
        >>> limit = at_most(
        ...     "usd", 20, per="month", scope="tenant", where={"context": ["icu", "er"]}
        ... )
        >>> limit.describe_unit(), limit.describe_unit(most=1)
        ('per month for each tenant in icu, er', 'per month for each tenant in 2 contexts')
        """
        averaged = "" if self.per is None else f"per decision in every {self.per}"
        many = most is not None and len(self.where) > most
        shown = replace(self, where=(f"{len(self.where)} contexts",)) if many else self
        return f"{f'per {self.per}' if self.is_total else averaged}{shown.counted_words}".lstrip()

    @property
    def window_settings(self) -> list[str]:
        """What else is declared for its window: the zone and, of a budget, `when_spent`."""
        return [] if self.per is None else [self.zone] + [self.when_spent] * self.is_total

    @property
    def charted_bound(self) -> float | None:
        """The bound, if it is for the average of all requests, as charts show it."""
        return None if self.is_total or self.scope or self.where else self.bound

    @property
    def some_context(self) -> str | None:
        """A context whose requests count; None if those of all do."""
        return next(iter(self.where), None)

    def counts(self, context: str | None) -> bool:
        """Whether the limit counts requests of a context, however its accents are coded."""
        return not self.where or (context is not None and normalize("NFC", context) in self.where)

    @property
    def averages_all(self) -> bool:
        """Whether the bound is for the average over all requests, at the end of periods."""
        return self.per is None and not self.where

    @property
    def calendar(self) -> Calendar | None:
        """The windows of the limit; None if it is for all requests."""
        return None if self.per is None else Calendar(self.per, self.zone)

    @property
    def is_total(self) -> bool:
        """Whether the bound is for what a window costs in all, not for an average per request."""
        return self.per is not None and not self.is_derived

    @property
    def is_derived(self) -> bool:
        """Whether the cost follows from the names of the experts, as a share does."""
        return isinstance(self.cost, DerivedCost)

    def row(self, problem: "Problem") -> Floats:
        """Return the costs that the limit adds up over the experts of a panel.

        Parameters
        ----------
        problem : Problem
            The problem with these experts and costs.

        Returns
        -------
        ndarray, shape (K,)
        """
        if isinstance(self.cost, DerivedCost):
            return self.cost.row(problem.experts)
        return problem.costs[self.cost]

    def at(self, bound: float) -> "Limit":
        """Return the same limit with another bound.

        Parameters
        ----------
        bound : float
            The new bound.

        Returns
        -------
        Limit

        Examples
        --------
        >>> print(at_most("usd", 2.0).at(3.0))
        at_most('usd', 3.0)
        """
        return replace(self, bound=bound)

    def at_draws(self, draws: int) -> "Limit":
        """Return the limit per request, with the bound per draw multiplied in decimals."""
        if not self.per_draw:
            return self
        return replace(self, bound=float(Decimal(repr(self.bound)) * draws), per_draw=False)

    def to_data(self) -> dict[str, Any]:
        """Return the limit as JSON data."""
        cost = self.cost.to_data() if isinstance(self.cost, DerivedCost) else {"cost": self.cost}
        return {**cost, self.side: self.bound, **self.window_data}

    @property
    def window_data(self) -> dict[str, Any]:
        """The fields that say when, and to what, the bound applies, where they are not defaults."""
        given = {name: getattr(self, name) for name in WINDOW_FIELDS}
        data = {name: x for name, x in given.items() if x != LIMIT_DEFAULTS[name]}
        data |= {"per": "draw"} if self.per_draw else {}
        return data | ({"where": {"context": list(self.where)}} if self.where else {})

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_data` returned."""
        kind = next((kind for key, kind in DerivedCost.kinds.items() if key in data), None)
        cost = data["cost"] if kind is None else kind.from_data(data)
        sign = UPPER if "at_most" in data else LOWER
        window = {name: data[name] for name in WINDOW_FIELDS if name in data}
        window["per"], window["per_draw"] = split_per(data.get("per"))
        return cls(cost, data["at_most" if sign == UPPER else "at_least"], sign, **window)

    def __str__(self) -> str:
        window = "".join(f", {name}={x!r}" for name, x in self.window_data.items())
        return f"{self.side}({self.name!r}, {self.bound!r}{window})"


LIMIT_DEFAULTS = {field.name: field.default for field in fields(Limit)}
WINDOW_FIELDS = ("per", "zone", "when_spent", "scope", "where")


class LimitKey(NamedTuple):
    """What a problem limits at most once: a cost, on one side, in one kind of window, in one scope,
    for one group of requests.
    """

    name: str
    sign: int
    per: str = ""
    scope: str = ""
    where: tuple[str, ...] = ()


def list_contexts(limits: Iterable[Limit]) -> list[str]:
    """List the contexts that limits are on, each of them once."""
    return list(dict.fromkeys(name for limit in limits for name in limit.where))


def check_limit_list(given: object) -> tuple[Limit, ...]:
    """Limits as a tuple; a single one that is in no list is an error."""
    limits = tuple(given) if isinstance(given, Iterable) else (None,)
    if all(isinstance(one, Limit) for one in limits):
        return limits
    raise ProblemError(
        "limits",
        got=given,
        expected="a list of limits such as at_most(...)",
        remedy="put it in a list: [at_most(...)]" if isinstance(given, Limit) else None,
    )


def at_most(
    cost: str | DerivedCost,
    bound: float,
    *,
    per: Per | None = None,
    zone: str = DEFAULT_ZONE,
    when_spent: WhenSpent = DEFAULT_WHEN_SPENT,
    scope: ScopeName | None = None,
    where: Where = None,
) -> Limit:
    """Keep a cost at or below a bound: on average per request, or in every window of the calendar.

    Parameters
    ----------
    cost : str or Share
        The name of a cost of the problem, or a share.
    bound : float
        The largest average allowed, or with `per` the largest total: finite, 0 or more.
    per : {"request", "draw", "hour", "day", "week", "month"}, optional
        By default "request"; "draw" is that divided by the draws of the problem. With a window,
        the bound of a cost is for the total of each window; of a share it is for the average per
        request in it.
    zone : str
        The time zone of that calendar, such as 'Europe/Berlin'.
    when_spent : {"cheapest", "fewer", "refuse"}
        What happens as a total runs out. 'cheapest': panels get cheaper, and requests are refused
        when not even the cheapest fits; 'fewer': before that they get smaller, down to one member;
        'refuse': panels get little cheaper than usual, and requests are refused sooner.
    scope : {"tenant"}, optional
        With it, each tenant has this bound by itself: give `tenant` with every request.
    where : mapping, optional
        Which requests count: ``{"context": ["icu"]}``; by default all.

    Returns
    -------
    Limit

    Raises
    ------
    ProblemError
        If the bound is negative or not finite, or there is no such window or zone.

    Examples
    --------
    >>> print(at_most("usd", 2))
    at_most('usd', 2.0)
    >>> print(at_most("usd", 500, per="day", zone="Europe/Berlin"))
    at_most('usd', 500.0, per='day', zone='Europe/Berlin')
    >>> print(at_most("usd", 20, per="month", scope="tenant"))
    at_most('usd', 20.0, per='month', scope='tenant')
    >>> print(at_most("usd", 3, where={"context": ["icu"]}))
    at_most('usd', 3.0, where={'context': ['icu']})
    """
    window, per_draw = split_per(per)
    contexts = check_where(where, str(cost))
    return Limit(cost, bound, UPPER, window, zone, when_spent, scope, contexts, per_draw)


def at_least(
    cost: str | DerivedCost,
    bound: float,
    *,
    per: Per | None = None,
    zone: str = DEFAULT_ZONE,
    scope: ScopeName | None = None,
    where: Where = None,
) -> Limit:
    """Keep the average of a cost per request at or above a bound, also in windows of the calendar.

    Parameters
    ----------
    cost, bound
        As of `at_most`, but the bound is the smallest average allowed.
    per, zone
        As of `at_most`; a window for a share only, as a total depends on how many requests come.
    scope, where
        As of `at_most`.

    Returns
    -------
    Limit

    Raises
    ------
    ProblemError
        As of `at_most`.

    Examples
    --------
    >>> from bylot.problem import share
    >>> print(at_least(share("junior", ["ann", "bob"]), 0.3))
    at_least('junior', 0.3)
    >>> print(at_least(share("partner", ["eve"]), 0.1, per="week"))
    at_least('partner', 0.1, per='week')
    """
    window, per_draw = split_per(per)
    contexts = check_where(where, str(cost))
    return Limit(cost, bound, LOWER, window, zone, DEFAULT_WHEN_SPENT, scope, contexts, per_draw)
