"""Polytopes of policies under linear limits, linear programs over them, and certificates.

Owns feasible sets and proofs of optimality; of the objective it knows only the slope.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import piqp
from scipy.linalg import block_diag

from bylot.numerics.jit import Floats
from bylot.problem.polytope import SOLVER_TOLERANCE, attempt_linear_program

SOLVER_TOLERANCES = (SOLVER_TOLERANCE, 1e-7)  # the finest of HiGHS, then its default
TIGHT_ROOM = 1e-12  # less room, in units of a row's largest entry, counts as none
OUT_OF_SCALE_RATIO = 1e6  # of a bound to the largest entry of its row
QP_TOLERANCE = 1e-13  # of PIQP, for the following
QP_TOLERANCES = ("eps_abs", "eps_rel", "eps_duality_gap_abs", "eps_duality_gap_rel")


class PricedPoint(NamedTuple):
    """A maximiser x over a polytope, and the multiplier v >= 0 of each row A x <= b there."""

    x: Floats
    prices: Floats


def maximise_linear(
    c: Floats, A: Floats, b: Floats, E: Floats, e: Floats, low: Floats, high: Floats
) -> PricedPoint | None:
    """Maximise c.x over low <= x <= high with A x <= b and E x = e; None if HiGHS fails.

    >>> one, none = np.ones((1, 2)), np.zeros((0, 2))
    >>> maximise_linear(one[0], one, one[0, :1], none, none[:, 0], 0 * one[0], one[0]).prices
    array([1.])
    """
    attempts = [{"tolerance": tolerance} for tolerance in SOLVER_TOLERANCES]
    best = attempt_linear_program(-c, A, b, low, high, attempts, (E, e))
    if best is None:
        return None
    return PricedPoint(best.x, np.maximum(-np.asarray(best.ineqlin.marginals), 0.0))


class Certificate(NamedTuple):
    """No feasible policy is worth more than value(q) + gap; multipliers v >= 0 prove it."""

    gap: float
    prices: Floats


@dataclass(frozen=True, eq=False)
class Polytope:
    """{q (X, K): q >= floor, every row of q sums to 1, rows @ q.ravel() <= bounds}."""

    shape: tuple[int, int]
    floor: float
    rows: Floats
    bounds: Floats

    @cached_property
    def sums(self) -> Floats:
        """The X equations of the sums, (X, X K)."""
        return np.repeat(np.eye(self.shape[0]), self.shape[1], axis=1)

    @cached_property
    def scales(self) -> Floats:
        """The largest entry of each row, 1 if it is zero, so that solver tolerances fit.

        No row of X policies exceeds X times that. A bound that is out of scale holds for all
        policies or for none, and is itself the unit: in units of a tiny row it would overflow.
        """
        most = np.abs(self.rows).max(axis=1, initial=0.0)
        far = np.abs(self.bounds) / self.shape[0]
        unit = np.where(far > OUT_OF_SCALE_RATIO * most, far, most)
        return np.where(unit > 0.0, unit, 1.0)

    def with_rows(self, rows: Floats, bounds: Floats) -> "Polytope":
        """Return the policies that keep these rows too."""
        return replace(
            self,
            rows=np.concatenate([self.rows, rows]),
            bounds=np.append(self.bounds, bounds),
        )

    def contains(self, q: Floats, slack: float = 10 * TIGHT_ROOM) -> bool:
        """Whether q is feasible up to rounding, rows in units of their largest entry."""
        over = (self.rows @ q.ravel() - self.bounds) / self.scales
        off = np.abs(q.sum(axis=1) - 1.0)
        return bool(np.concatenate([self.floor - q.ravel(), over, off]).max() <= slack)

    def restore(self, q: Floats) -> Floats | None:
        """Return q with floors and sums kept to the last digit; None if it is not feasible then."""
        over = np.maximum(q - self.floor, 0.0)
        sums = over.sum(axis=1, keepdims=True)
        spare = 1.0 - self.shape[1] * self.floor
        near = self.floor + over * np.divide(spare, sums, out=np.zeros_like(sums), where=sums > 0.0)
        return near if self.contains(near) else None

    def certify(self, q: Floats, slope: Floats, prices: Floats | None = None) -> Certificate:
        """How much better than q a feasible policy can be, for a concave F with this slope at q.

        For all feasible p, F(p) - F(q) <= slope.(p - q), and for all multipliers v >= 0

            slope.(p - q) <= v.bounds - slope.q + sum_x max {(slope - v.rows)_x . p_x},

        p_x over the floored simplex. The best v is the dual of a linear program, which is solved
        unless `prices` are given. As any v is a proof, the gap computed here from v does not
        depend on a solver's tolerances.
        """
        best = self.find_vertex(slope) if len(self.rows) and prices is None else None
        v = np.zeros(len(self.rows)) if prices is None else prices
        v = v if best is None else best.prices
        left = slope - (v @ self.rows).reshape(self.shape)
        spare = 1.0 - self.shape[1] * self.floor
        most = (self.floor * left.sum(axis=1) + spare * left.max(axis=1)).sum()
        return Certificate(max(0.0, float(most + v @ self.bounds - (slope * q).sum())), v)

    def find_vertex(self, slope: Floats) -> PricedPoint | None:
        """The feasible q with the largest slope.q, and the multiplier of each bound."""
        n, scale, unit = slope.size, self.scales, float(np.ptp(slope)) or 1.0
        c, low = (slope - slope.mean()).ravel() / unit, np.full(n, self.floor)
        A, b, ones = self.rows / scale[:, None], self.bounds / scale, np.ones(self.shape[0])
        best = maximise_linear(c, A, b, self.sums, ones, low, np.ones(n))
        return best and PricedPoint(best.x.reshape(self.shape), best.prices * unit / scale)

    def maximise_quadratic(self, B: Floats, c: Floats) -> PricedPoint | None:
        """Maximise c.p - p.B.p / 2, where B (X, K, K) has a block for each row of p; None if that
        leads to no feasible p. PIQP, a proximal method, needs no p that has room.
        """
        unit = max(float(np.ptp(c)), float(np.abs(B).max())) or 1.0
        slope = (c - c.mean(axis=1, keepdims=True)).ravel() / unit
        rows = self.rows / self.scales[:, None]
        bounds = self.bounds / self.scales
        floors = np.full(c.size, self.floor)
        solver = piqp.DenseSolver()
        for name in QP_TOLERANCES:
            setattr(solver.settings, name, QP_TOLERANCE)
        ones = np.ones(self.shape[0])
        solver.setup(block_diag(*B) / unit, -slope, self.sums, ones, rows, None, bounds, floors)
        solver.solve()
        near = self.restore(solver.result.x.reshape(self.shape))
        if near is None:
            return None
        return PricedPoint(near, np.maximum(solver.result.z_u, 0.0) * unit / self.scales)

    def find_nearest(self, q: Floats) -> Floats | None:
        """Return the policy nearest to q, None if none was found."""
        best = self.maximise_quadratic(np.tile(np.eye(self.shape[1]), (self.shape[0], 1, 1)), q)
        return None if best is None else best.x

    @cached_property
    def feasible(self) -> Floats | None:
        """A feasible policy: equal shares or the nearest to them; None if nothing is feasible."""
        near = self.find_nearest(np.full(self.shape, 1.0 / self.shape[1]))
        if near is not None:
            return near
        # Less room than numbers can resolve: at most one policy.
        last = self.find_least_violation()
        return None if last is None else self.restore(last[0])

    def find_least_violation(self) -> tuple[Floats, float] | None:
        """The policy whose largest violation is least, and that violation; None if HiGHS fails."""
        (X, K), (m, n), scale = self.shape, self.rows.shape, self.scales
        A = np.column_stack([self.rows / scale[:, None], -np.ones(m)])
        E = np.column_stack([self.sums, np.zeros(X)])
        low, high = np.append(np.full(n, self.floor), -np.inf), np.append(np.ones(n), np.inf)
        c = np.append(np.zeros(n), -1.0)
        vertex = maximise_linear(c, A, self.bounds / scale, E, np.ones(X), low, high)
        return vertex and (vertex.x[:-1].reshape(X, K), float(vertex.x[-1]))
