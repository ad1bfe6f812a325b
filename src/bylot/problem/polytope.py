"""LimitPolytope: the long-run averages that policies can reach, and linear programs over them.

Which limits conflict, and what to do about it, is left to `feasibility`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bylot.errors import ProblemError
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.result_cache import recall_result
from bylot.problem.limits import UPPER

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

BOUND_TOLERANCE = 1e-9
"""Limits count as feasible if they are when each bound is relaxed by this fraction of itself."""

SOLVER_TOLERANCE = BOUND_TOLERANCE / 10  # the finest of HiGHS
MAX_COST_RATIO = 1e6
"""A lower bound below the largest cost / MAX_COST_RATIO is relaxed in units of that instead: a
solver in floating point cannot be trusted with larger ratios between the numbers of one row."""


@dataclass(frozen=True, eq=False)
class LimitPolytope:
    """{p : least <= p_i <= 1, fewest <= sum_i p_i <= most}, and d limits on rows @ p.

    With least 0, whole fewest and most m = min(M, K), this is exactly what policies can reach, p_i
    being how often expert i is asked. In each request one asks some set of fewest to m experts; its
    averages are mixtures of the 0/1 vectors of such sets, so they lie in the polytope. Conversely
    the vertices *are* those 0/1 vectors: the constraints are single variables and one sum, an
    interval matrix, which is totally unimodular, and all right-hand sides are whole. Hence each p
    is a mixture of sets, and the policy that draws its set from that mixture has the averages p.

    With least gamma and fewest = most = 1 it is the floored simplex of the paper's q.
    """

    least: float
    fewest: float
    most: float
    rows: Floats
    bounds: Floats
    signs: Ints

    @property
    def size(self) -> int:
        """The number of experts K."""
        return int(self.rows.shape[1])

    @property
    def every(self) -> list[int]:
        """The indices of all limits."""
        return list(range(self.bounds.size))

    @property
    def units(self) -> Floats:
        """The unit of a change of each bound: the bound or, where it is 0, the largest cost.

        >>> rows = np.array([[1.0, 2.0], [0.0, 3.0]])
        >>> LimitPolytope(0.0, 1.0, 2.0, rows, np.array([0.5, 0.0]), np.array([-1, -1])).units
        array([0.5, 3. ])
        """
        units = np.where(self.bounds > 0, self.bounds, self.rows.max(axis=1, initial=0.0))
        return np.where(units > 0, units, 1.0)

    def excess(self, p: Floats) -> Floats:
        """By how many units p is outside each limit, 0 if inside."""
        outside = np.maximum(self.signs * (self.bounds - self.rows @ p), 0.0)
        return np.asarray(outside / self.units)

    def with_bounds(self, changes: dict[int, float]) -> "LimitPolytope":
        """Return the polytope with other bounds for some limits."""
        bounds = self.bounds.copy()
        bounds[list(changes)] = list(changes.values())
        return replace(self, bounds=bounds)

    def select(self, places: list[int]) -> "LimitPolytope":
        """Return the polytope with these limits only, in this order."""
        return replace(
            self, rows=self.rows[places], bounds=self.bounds[places], signs=self.signs[places]
        )

    def find_point(self, active: Iterable[int]) -> Floats | None:
        """Find a point that keeps these limits, None if there is none."""
        t, program, solution = self._relax(sorted(active))
        return program.ceiling * solution.x[:-1] if t <= BOUND_TOLERANCE else None

    def find_culprits(self) -> list[int]:
        """Find limits that cannot be kept together (Farkas); they need not be few."""
        t, _, solution = self._relax(self.every)
        active = np.abs(solution.ineqlin.marginals[:-2]) > BOUND_TOLERANCE
        return np.flatnonzero(active).tolist() if t > BOUND_TOLERANCE else []

    def is_feasible(self, active: Iterable[int]) -> bool:
        """Whether some point keeps these limits.

        >>> rows, bounds, signs = np.array([[1.0, 2.0]]), np.array([0.9]), np.array([-1])
        >>> cheap = LimitPolytope(0.0, 1.0, 2.0, rows, bounds, signs)
        >>> cheap.is_feasible([0]), cheap.with_bounds({0: 1.0}).is_feasible([0])
        (False, True)
        """
        return self.find_point(active) is not None

    def can_keep_all(self) -> bool:
        """Whether some point keeps all limits, solved once for this version on this machine."""
        given = (self.least, self.fewest, self.most, self.rows, self.bounds, self.signs)
        kept = recall_result(
            "can_keep_all", given, lambda: np.array([float(self.is_feasible(self.every))])
        )
        return kept is not None and bool(kept[0])

    def find_extreme(self, cost: Floats, sign: int, active: Iterable[int]) -> float | None:
        """Find the largest (sign +1) or smallest (-1) cost.p under these limits."""
        p = self.find_extreme_point(cost, sign, active)
        return None if p is None else float(cost @ p)

    def find_extreme_point(self, cost: Floats, sign: int, active: Iterable[int]) -> Floats | None:
        """Find the p with the largest (sign +1) or smallest (-1) cost.p under these limits."""
        program = self._program(sorted(active))
        slope = -sign * cost * program.ceiling
        slope /= np.abs(slope).max() or 1.0
        for t in (0.0, BOUND_TOLERANCE):  # the second for limits that leave a single point
            b = program.b + t * program.give
            solution = solve_linear_program(slope, program.a, b, program.start, np.ones(self.size))
            if solution is not None:
                return np.asarray(program.ceiling * solution.x)
        return None

    def find_nearest(self, kept: Iterable[int] = ()) -> Floats | None:
        """Find a point that keeps these limits and breaks the others by the fewest units in all."""
        largest = np.maximum(self.rows.max(axis=1, initial=0.0), self.bounds)
        scale = np.where(largest > 0, largest, 1.0)
        weight = scale / np.maximum(self.units, scale / MAX_COST_RATIO)
        side = -self.signs / scale
        ones = np.ones((1, self.size))
        a = np.vstack([self.rows * side[:, None], ones / self.most, -ones])
        give = np.vstack([-np.eye(scale.size), np.zeros((2, scale.size))])
        most = np.full(scale.size, np.inf)
        most[list(kept)] = 0.0
        solution = solve_linear_program(
            np.append(np.zeros(self.size), weight / weight.max()),
            np.hstack([a, give]),
            np.concatenate([self.bounds * side, [1.0, -self.fewest]]),
            np.append(np.full(self.size, self.least), np.zeros(scale.size)),
            np.append(np.ones(self.size), most),
        )
        return None if solution is None else solution.x[: self.size]

    def _relax(self, active: list[int]) -> tuple[float, "PolytopeProgram", "OptimizeResult"]:
        """Find the least fraction t >= 0 by which the bounds must be relaxed: over p and t with

        c_j.p <= (1 + t) u_j,   c_j.p >= (1 - t) l_j,   sum p >= (1 - t) fewest
        """
        program = self._program(active)
        solution = solve_linear_program(
            np.append(np.zeros(self.size), 1.0),
            np.column_stack([program.a, -program.give]),
            program.b,
            np.append(program.start, 0.0),
            np.append(np.ones(self.size), np.inf),
        )
        if solution is None:  # impossible in exact arithmetic: every p keeps relaxed limits
            raise self.solver_error()
        return float(solution.x[-1]), program, solution

    def solver_error(self) -> ProblemError:
        """Make the error for numbers that exceed the accuracy of the solver."""
        numbers = np.append(self.rows, self.bounds)
        small, large = numbers[numbers > 0].min(initial=np.inf), numbers.max(initial=0.0)
        return ProblemError(
            "the solver cannot decide whether the limits are feasible: their costs and bounds "
            f"range from {small:g} to {large:g}",
            remedy="measure each cost in a unit that brings its numbers near 1, and write 0 for "
            "negligible ones",
        )

    def _program(self, active: list[int]) -> "PolytopeProgram":
        # The most that upper limits leave to each expert, as c_ij p_i <= c_j.p <= u_j. Measuring
        # p_i by this keeps an expert that costs a million times the budget from drowning the
        # others in rounding.
        ceiling = np.ones(self.size)
        for j in active:
            if self.signs[j] == UPPER:
                paid = self.rows[j] > 0
                ceiling[paid] = np.minimum(ceiling[paid], self.bounds[j] / self.rows[j, paid])
        ceiling = np.maximum(ceiling, self.least)
        costs, bounds = self.rows[active] * ceiling, self.bounds[active]
        units = np.maximum(bounds, costs.max(axis=1, initial=0.0) / MAX_COST_RATIO)
        side = -self.signs[active] / np.where(units > 0, units, 1.0)
        return PolytopeProgram(
            a=np.vstack([costs * side[:, None], ceiling / self.most, -ceiling]),
            b=np.concatenate([bounds * side, [1.0, -self.fewest]]),
            give=np.concatenate([np.ones(bounds.size), [0.0, 1.0]]),
            start=self.least / np.where(ceiling > 0, ceiling, 1.0),
            ceiling=ceiling,
        )


class PolytopeProgram(NamedTuple):
    """The polytope as a x <= b (+ t give), start <= x <= 1, where p = ceiling x."""

    a: Floats
    b: Floats
    give: Floats
    start: Floats
    ceiling: Floats


def solve_linear_program(
    cost: Floats, a: Floats, b: Floats, low: Floats, high: Floats
) -> "OptimizeResult | None":
    """Minimise cost.x over a x <= b, low <= x <= high; None if there is no such x."""
    program = (cost, a, b, low, high)
    return solve_frozen_program(*(np.asarray(one, dtype=float).tobytes() for one in program))


@lru_cache(maxsize=256)
def solve_frozen_program(*program: bytes) -> "OptimizeResult | None":
    """Solve a linear program of five arrays; the programs of one problem come again and again."""
    cost, flat, b, low, high = (np.frombuffer(one) for one in program)
    # without presolve if the first attempt gives up, which is rare
    attempts = [{"presolve": presolve, "tolerance": SOLVER_TOLERANCE} for presolve in (True, False)]
    found = attempt_linear_program(cost, flat.reshape(b.size, cost.size), b, low, high, attempts)
    if found is not None:
        found.x.flags.writeable = False  # callers share it
    return found


def attempt_linear_program(
    cost: Floats,
    a: Floats,
    b: Floats,
    low: Floats,
    high: Floats,
    attempts: Iterable[Mapping[str, Any]],
    equations: tuple[Floats, Floats] | tuple[None, None] = (None, None),
) -> "OptimizeResult | None":
    """Minimise cost.x over a x <= b, low <= x <= high and the equations E x = e, by HiGHS.

    attempts: `tolerance` and options of each, until one succeeds; None if none does.
    """
    from scipy.optimize import linprog  # it takes longer to load than all else a router needs

    bounds = list(zip(low.tolist(), high.tolist(), strict=True))
    for attempt in attempts:
        options: Any = {name: value for name, value in attempt.items() if name != "tolerance"}
        for kind in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            options[kind] = attempt["tolerance"]
        E, e = equations
        found = linprog(cost, a, b, E, e, bounds, method="highs-ds", options=options)
        if found.status == 0 and found.x is not None:
            return found
    return None
