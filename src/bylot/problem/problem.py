"""Problem: who can be asked, what it costs, what was promised; all input is checked here, once.

How the promises are kept is left to the policies.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bylot.numerics.jit import Floats, Ints
from bylot.problem import feasibility, validation
from bylot.problem.box import Box
from bylot.problem.feasibility import Conflict
from bylot.problem.limits import Limit


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Problem:
    """A pool of K experts, their costs, the limits on long-run averages, and M draws a request.

    A limit speaks of the average, per request, of the summed cost of the *distinct* experts
    consulted. The floor (gamma) is the least probability a policy of the paper gives any expert.
    The period is the number of requests at whose end limits are to hold each time, for policies
    that can promise that, where no horizon is known; None leaves it to them.
    What does not make sense raises ProblemError at once; limits that no policy whatever can keep
    together raise InfeasibleLimits, which names them and the nearest bounds that can be kept.

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
    >>> problem.box.high
    array([1.5, 1. ])
    """

    experts: tuple[str, ...]
    costs: Mapping[str, Floats]
    limits: tuple[Limit, ...]
    draws: int
    floor: float
    period: int | None

    def __init__(
        self,
        experts: Iterable[str],
        costs: Mapping[str, ArrayLike],
        limits: Iterable[Limit] = (),
        *,
        draws: int,
        floor: float | None = None,
        period: int | None = None,
    ) -> None:
        self._read(experts, costs, limits, draws, floor, period)
        feasibility.require_feasible(self)

    @classmethod
    def known(
        cls,
        experts: Iterable[str],
        costs: Mapping[str, ArrayLike],
        limits: Iterable[Limit],
        *,
        draws: int,
        floor: float | None,
        period: int | None,
    ) -> "Problem":
        """A problem that was made before, from its fields: whether its limits can be kept, which
        takes longer than all else, is not asked again.
        """
        problem = cls.__new__(cls)
        problem._read(experts, costs, limits, draws, floor, period)
        return problem

    def _read(
        self,
        experts: Iterable[str],
        costs: Mapping[str, ArrayLike],
        limits: Iterable[Limit],
        draws: int,
        floor: float | None,
        period: int | None,
    ) -> None:
        names = validation.check_experts(experts)
        promises = validation.check_limits(limits)
        rows = validation.add_share_costs(names, validation.check_costs(names, costs), promises)
        validation.check_limit_consistency(promises, rows)
        self._set("experts", names)
        self._set("costs", MappingProxyType(rows))
        self._set("limits", promises)
        self._set("draws", validation.check_draws(draws))
        self._set("floor", validation.check_floor(floor, len(names)))
        self._set("period", validation.check_period(period))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def size(self) -> int:
        """The number of experts K."""
        return len(self.experts)

    @cached_property
    def rows(self) -> Floats:
        """The (d, K) costs under limit: row j is the cost of limit j."""
        rows = [self.costs[limit.name] for limit in self.limits]
        return validation.lock_array(np.array(rows, dtype=np.float64).reshape(-1, self.size))

    @cached_property
    def bounds(self) -> Floats:
        """The (d,) bounds, in the order of the limits."""
        return validation.lock_array(
            np.array([limit.bound for limit in self.limits], dtype=np.float64)
        )

    @cached_property
    def signs(self) -> Ints:
        """The (d,) sides: -1 for an upper bound, +1 for a lower one."""
        return validation.lock_array(
            np.array([limit.sign for limit in self.limits], dtype=np.int64)
        )

    @cached_property
    def peaks(self) -> Floats:
        """The (d,) largest costs under each limit; 1 where nobody costs anything."""
        peak: Floats = self.rows.max(axis=1, initial=0.0)
        return np.where(peak > 0, peak, 1.0)

    @cached_property
    def box(self) -> Box:
        """The paper's surrogate S: if sum_i q_i c_i lies in S, draws from q keep the limits.

        At most u: [0, u / M], as a set of M draws costs at most the sum of its draws. At least l:
        [l, cbar], as it costs at least the mean of its draws; cbar is the largest cost of that row,
        so that the unit of one cost does not touch the others (l itself, if l is above it).
        """
        upper = self.signs < 0
        ceiling = np.maximum(self.rows.max(axis=1, initial=0.0), self.bounds)
        return Box(
            np.where(upper, 0.0, self.bounds), np.where(upper, self.bounds / self.draws, ceiling)
        )

    @cached_property
    def target(self) -> Box:
        """The limits themselves, S^ori: at most u is (-inf, u], at least l is [l, inf)."""
        upper = self.signs < 0
        return Box(np.where(upper, -np.inf, self.bounds), np.where(upper, self.bounds, np.inf))

    @cached_property
    def surrogate_conflict(self) -> Conflict | None:
        """The limits whose surrogates cannot be kept together by any q, None if they all can.

        The surrogate is stricter than the limits: three minimum shares of 0.5 ask for 1.5 experts
        per request, which 2 draws can give, but a distribution q sums to 1.
        """
        return feasibility.find_surrogate_conflict(self)

    @cached_property
    def full_conflict(self) -> Conflict | None:
        """The limits that cannot be kept together by asking min(M, K) different experts each time,
        None if they all can. Draws with replacement may ask fewer, and so stay under a budget.
        """
        return feasibility.find_full_conflict(self)

    def range_of(self, limit: Limit) -> tuple[float, float]:
        """The smallest and largest average the cost of a limit can have, the other limits kept."""
        return feasibility.find_reachable_range(self, limit)

    @cached_property
    def _content(self) -> tuple[object, ...]:
        costs = frozenset((name, row.tobytes()) for name, row in self.costs.items())
        return self.experts, costs, self.limits, self.draws, self.floor, self.period

    def __eq__(self, other: object) -> bool:
        return self._content == other._content if isinstance(other, Problem) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content)

    def __reduce__(self) -> tuple[Any, ...]:
        # Built anew when unpickled: a pickled array forgets that it is read-only.
        fields = self.experts, dict(self.costs), self.limits, self.draws, self.floor, self.period
        return _rebuild_problem, fields

    def __repr__(self) -> str:
        limits = ", ".join(map(str, self.limits))
        return (
            f"Problem({self.size} experts, costs {list(self.costs)}, limits [{limits}], "
            f"draws={self.draws}, floor={self.floor!r}"
            f"{'' if self.period is None else f', period={self.period}'})"
        )


def _rebuild_problem(
    experts: tuple[str, ...],
    costs: dict[str, Floats],
    limits: tuple[Limit, ...],
    draws: int,
    floor: float,
    period: int | None,
) -> Problem:
    return Problem.known(experts, costs, limits, draws=draws, floor=floor, period=period)
