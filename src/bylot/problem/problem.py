"""Problem: the experts, their costs, the limits and the draws per request.

Input is checked here, once; keeping the limits is left to the policies.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple, Never

import numpy as np
from numpy.typing import ArrayLike

from bylot._scopes import SCOPE_NAMES, ScopeName
from bylot.errors import NOT_GIVEN
from bylot.numerics.jit import Floats, Ints
from bylot.problem import feasibility, validation, window_bounds
from bylot.problem.calendar import Calendar
from bylot.problem.limits import Limit

NON_LIMITING_FIELDS = {"floor", "period", "max_costs", "traffic"}
"""Fields on which the feasibility of the limits does not depend."""


class Box(NamedTuple):
    """S = prod_j [low_j, high_j], one coordinate per limit; ends may be infinite.

    The paper's surrogate set (section 3.2) has, with M draws and cbar_j the largest cost,

        limit j        S_j              h_j(w_j), w_j >= 0      h_j(w_j), w_j < 0
        at most u_j    [0, u_j / M]     (u_j / M) w_j           0
        at least l_j   [l_j, cbar_j]    cbar_j w_j              l_j w_j

    and the support function of S is h(w) = sum_j h_j(w_j).
    """

    low: Floats
    high: Floats


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Problem:
    """A pool of K experts, their costs, limits on long-run averages, and M draws per request.

    A problem is immutable and hashable; `replace` makes a variant.

    Parameters
    ----------
    experts : iterable of str
        The names of at least two experts.
    costs : mapping of str to array_like, optional
        For each cost, one number of 0 or more for each expert: what asking that expert costs.
    limits : iterable of Limit, optional
        Bounds on the average, per request, of the summed cost of the *distinct* experts asked.
    draws : int
        M, the number of draws per request, and so the largest size of a panel.
    min_draws : int, optional
        The smallest size of a panel. If given, `noisy-or` asks fewer than M experts where one more
        is not worth its price. If not, policies that ask different experts always ask M, and those
        that draw with replacement may draw one twice.
    floor : float, optional
        gamma, the least probability that a policy of the paper gives any expert; 1/(10 K) if not
        given.
    period : int, optional
        The number of requests after which the limits are to hold each time, for policies that
        guarantee that and know no horizon.
    max_costs : mapping of str to array_like, optional
        For some of the costs, the most that one call of each expert can cost, if calls differ. The
        declared cost is then the mean. With it, upper limits can be kept whatever calls cost.
    traffic : float, optional
        The expected number of requests per day, for limits per hour, day, week or month. A router
        learns it from its requests.
    groups : mapping of str to iterable of str, optional
        The members of groups, for limits that name one: ``at_least(share("junior"), 0.3)``. The
        limits keep the members, the problem not the groups.

    Raises
    ------
    ProblemError
        If a part is invalid.
    InfeasibleLimits
        If no policy can keep the limits together. The error names the limits in conflict and the
        nearest bounds that can be kept.

    Examples
    --------
    >>> from bylot.problem import at_least, at_most, share
    >>> problem = Problem(
    ...     experts=["ann", "bob", "eve"],
    ...     costs={"usd": [1.0, 2.0, 4.0]},
    ...     limits=[at_most("usd", 3.0), at_least(share("junior", ["ann", "bob"]), 0.5)],
    ...     draws=2,
    ... )
    >>> problem.rows
    array([[1., 2., 4.],
           [1., 1., 0.]])
    """

    experts: tuple[str, ...]
    costs: Mapping[str, Floats]
    limits: tuple[Limit, ...]
    draws: int
    min_draws: int | None
    floor: float
    period: int | None
    max_costs: Mapping[str, Floats]
    traffic: float | None

    def __init__(
        self,
        experts: Iterable[str] = NOT_GIVEN,
        costs: Mapping[str, ArrayLike] = MappingProxyType({}),
        limits: Iterable[Limit] = (),
        *,
        draws: int = NOT_GIVEN,
        min_draws: int | None = None,
        floor: float | None = None,
        period: int | None = None,
        max_costs: Mapping[str, ArrayLike] = MappingProxyType({}),
        traffic: float | None = None,
        groups: Mapping[str, Iterable[str]] = MappingProxyType({}),
        **unknown: Never,
    ) -> None:
        validation.check_fields(unknown, experts=experts, draws=draws)
        parts = self._check_parts(
            experts, costs, limits, draws, floor, period, min_draws, max_costs, traffic, groups
        )
        vars(self).update(parts)  # the class is frozen
        feasibility.require_feasible(self)

    @classmethod
    def known(cls, **parts: Any) -> "Problem":
        """Make a problem that was made before, without the slow check of its limits."""
        problem = cls.__new__(cls)
        vars(problem).update(cls._check_parts(**parts))
        return problem

    @staticmethod
    def _check_parts(
        experts: Any,
        costs: Any,
        limits: Any,
        draws: Any,
        floor: Any,
        period: Any,
        min_draws: Any = None,
        max_costs: Any = MappingProxyType({}),
        traffic: Any = None,
        groups: Any = MappingProxyType({}),
    ) -> dict[str, Any]:
        names, most = validation.check_experts(experts), validation.check_draws(draws)
        bounds = validation.check_limits(limits, most, groups)
        rows = validation.add_derived_costs(names, validation.check_costs(names, costs), bounds)
        return {
            "experts": names,
            "costs": MappingProxyType(rows),
            "limits": bounds,
            "draws": most,
            "min_draws": validation.check_min_draws(min_draws, most),
            "floor": validation.check_floor(floor, len(names)),
            "period": validation.check_period(period),
            "max_costs": MappingProxyType(validation.check_max_costs(names, max_costs, rows)),
            "traffic": validation.check_traffic(traffic),
        }

    def replace(self, **changes: Any) -> "Problem":
        """Return a copy with some fields changed.

        Parameters
        ----------
        **changes
            New values of fields, as the constructor takes and checks them.

        Returns
        -------
        Problem

        Raises
        ------
        ProblemError
            If a change is invalid, or no policy can keep the limits together.

        Examples
        --------
        >>> from bylot.problem import at_most
        >>> problem = Problem(["ann", "bob"], {"usd": [1.0, 2.0]}, draws=1, period=100)
        >>> problem.replace(limits=[at_most("usd", 1.5)]).period
        100
        """
        parts = {field.name: getattr(self, field.name) for field in fields(self)} | changes
        return (Problem.known if changes.keys() <= NON_LIMITING_FIELDS else Problem)(**parts)

    @property
    def size(self) -> int:
        """The number of experts K."""
        return len(self.experts)

    @property
    def min_members(self) -> int:
        """The fewest members of a panel of different experts: `min_draws`, else M; at most K."""
        return min(self.min_draws or self.draws, self.size)

    @property
    def smallest_panel(self) -> int:
        """The fewest members of a panel: one, if a budget allows that as it runs out."""
        return 1 if any(limit.when_spent == "fewer" for limit in self.limits) else self.min_members

    @cached_property
    def rows(self) -> Floats:
        """The (d, K) costs under limit: row j is the cost of limit j."""
        rows = [limit.row(self) for limit in self.limits]
        return validation.lock_array(np.array(rows, dtype=np.float64).reshape(-1, self.size))

    @cached_property
    def bounds(self) -> Floats:
        """The (d,) bounds per request, in the order of the limits.

        That of a budget of the calendar is its part at the expected traffic (`window_bounds`).
        """
        return validation.lock_array(window_bounds.compute_request_bounds(self))

    @cached_property
    def calendars(self) -> tuple[Calendar, ...]:
        """The different windows of the calendar that limits are for."""
        return tuple(dict.fromkeys(limit.calendar for limit in self.limits if limit.calendar))

    @cached_property
    def scopes(self) -> tuple[ScopeName, ...]:
        """What limits apply to separately, if any do: every request then names a key of each."""
        used = {limit.scope for limit in self.limits}
        return tuple(scope for scope in SCOPE_NAMES if scope in used)

    @cached_property
    def has_groups(self) -> bool:
        """Whether any limit counts the requests of some contexts only."""
        return any(limit.where for limit in self.limits)

    @cached_property
    def needs_labels(self) -> bool:
        """Whether it depends on the labels of a request which limits count it."""
        return bool(self.scopes) or self.has_groups

    @cached_property
    def needs_guard(self) -> bool:
        """Whether only a guard can keep the limits: of windows, of each key or of contexts."""
        return bool(self.calendars) or self.needs_labels

    def at_traffic(self, traffic: float) -> "Problem":
        """Return the problem at so many requests per day, which matter to windows only.

        Parameters
        ----------
        traffic : float
            The expected requests per day.

        Returns
        -------
        Problem
            This one, if no limit has windows of the calendar.
        """
        return self.replace(traffic=traffic) if self.calendars else self

    @cached_property
    def signs(self) -> Ints:
        """The (d,) sides: -1 for an upper bound, +1 for a lower one."""
        return validation.lock_array(
            np.array([limit.sign for limit in self.limits], dtype=np.int64)
        )

    @cached_property
    def peaks(self) -> Floats:
        """The (d,) largest costs under each limit; 1 where no expert has a cost."""
        peak: Floats = self.rows.max(axis=1, initial=0.0)
        return np.where(peak > 0, peak, 1.0)

    @cached_property
    def box(self) -> Box:
        """The paper's surrogate S: if sum_i q_i c_i lies in S, draws from q keep the limits.

        At most u: [0, u / M], as a set of M draws costs at most the sum of its draws. At least l:
        [l, cbar], as it costs at least the mean of its draws; cbar is the largest cost of that row,
        so that the unit of one cost does not affect the others (l itself, if l is above it).
        """
        upper = self.signs < 0
        ceiling = np.maximum(self.rows.max(axis=1, initial=0.0), self.bounds)
        return Box(
            low=validation.lock_array(np.where(upper, 0, self.bounds)),
            high=validation.lock_array(np.where(upper, self.bounds / self.draws, ceiling)),
        )

    @cached_property
    def target(self) -> Box:
        """The limits themselves, S^ori: at most u is (-inf, u], at least l is [l, inf)."""
        upper = self.signs < 0
        return Box(
            low=validation.lock_array(np.where(upper, -np.inf, self.bounds)),
            high=validation.lock_array(np.where(upper, self.bounds, np.inf)),
        )

    @cached_property
    def surrogate_conflict(self) -> feasibility.Conflict | None:
        """The limits whose surrogates no q can keep together, None if there are none.

        The surrogate is stricter than the limits: three minimum shares of 0.5 ask for 1.5 experts
        per request, which 2 draws can give, but a distribution q sums to 1.
        """
        return feasibility.find_group_conflict(
            feasibility.surrogate_polytope(self), self.limits, max_programs=0
        )

    @cached_property
    def full_conflict(self) -> feasibility.Conflict | None:
        """The limits that panels of min(M, K) different experts cannot keep together, or None.

        Draws with replacement may ask fewer experts, and so stay under a budget.
        """
        return feasibility.find_group_conflict(
            feasibility.full_panels_polytope(self), self.limits, max_programs=0
        )

    def range_of(self, limit: Limit) -> tuple[float, float]:
        """Compute the smallest and the largest average that the cost of a limit can have.

        Parameters
        ----------
        limit : Limit
            A limit on a cost of this problem; its own bound does not count, all others do.

        Returns
        -------
        tuple of float
            The two averages per request, whatever the policy.

        Raises
        ------
        ProblemError
            If the problem has no such cost.

        Examples
        --------
        >>> from bylot.problem import at_least, at_most
        >>> budget, quota = at_most("usd", 3.0), at_least("junior", 0.5)
        >>> costs = {"usd": [1.0, 2.0, 4.0], "junior": [1, 0, 0]}
        >>> Problem(["ann", "bob", "eve"], costs, [budget, quota], draws=2).range_of(budget)
        (1.0, 5.5)
        """
        validation.check_cost_is_known(limit, self.costs)
        polytope = feasibility.reachable_polytope(self)
        found = feasibility.find_average_range(self, polytope, limit)
        if found is None:
            raise polytope.solver_error()
        return found

    @cached_property
    def _content(self) -> tuple[object, ...]:
        costs, most = (
            frozenset((name, row.tobytes()) for name, row in rows.items())
            for rows in (self.costs, self.max_costs)
        )
        numbers = self.draws, self.min_draws, self.floor, self.period, self.traffic
        return self.experts, costs, most, self.limits, *numbers

    def __eq__(self, other: object) -> bool:
        return self._content == other._content if isinstance(other, Problem) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content)

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickling builds a new problem: a pickled array forgets that it is read-only.
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        rows = {name: dict(parts[name]) for name in ("costs", "max_costs")}
        return partial(Problem.known, **{**parts, **rows}), ()

    def __repr__(self) -> str:
        limits = ", ".join(map(str, self.limits))
        period = "" if self.period is None else f", period={self.period}"
        fewest = "" if self.min_draws is None else f", min_draws={self.min_draws}"
        traffic = "" if self.traffic is None else f", traffic={self.traffic:g}"
        return (
            f"Problem({self.size} experts, costs {list(self.costs)}, limits [{limits}], "
            f"draws={self.draws}{fewest}, floor={self.floor!r}{period}{traffic})"
        )
