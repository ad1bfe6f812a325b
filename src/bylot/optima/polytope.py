"""Polytopes of policies under linear limits, linear programs over them, and certificates.

Owns feasible sets and proofs of optimality; of the objective it knows only the slope.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import qr

from bylot.numerics.jit import Bools, Floats, Ints
from bylot.problem.polytope import SOLVER_TOLERANCE, attempt_linear_program

SOLVER_TOLERANCES = (SOLVER_TOLERANCE, 1e-7)  # the finest of HiGHS, then its default
TIGHT_ROOM = 1e-12  # less room, in units of a row's largest entry, counts as none
OUT_OF_SCALE_RATIO = 1e6  # of a bound to the largest entry of its row
AMPLE_ROOM = 0.1  # room of an interior point, in mean shares, that is good enough


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


class Face(NamedTuple):
    """The affine hull of a polytope and a point in its relative interior.

    `pinned` variables are at the floor and `tight` rows at their bound in every feasible policy;
    at `centre` all others have room.
    """

    centre: Floats
    pinned: Bools
    tight: Bools


class FaceRows(NamedTuple):
    """The face in y = q - floor over the variables that are not pinned, where it has an interior.

    The first rows are those not tight, at most their ends and in units of their scales; the others
    are independent equations. `inside` is the centre.
    """

    rows: Floats
    ends: Floats
    limits: int  # how many rows are not tight
    scales: Floats
    inside: Floats


@dataclass(frozen=True, eq=False)
class Polytope:
    """{q (X, K): q >= floor, every row of q sums to 1, rows @ q.ravel() <= bounds}."""

    shape: tuple[int, int]
    floor: float
    rows: Floats
    bounds: Floats
    inside: Floats | None = None  # a policy that may have room everywhere

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
        rows, bounds = np.concatenate([self.rows, rows]), np.append(self.bounds, bounds)
        known = self.__dict__.get("face")  # if it was computed
        inside = self.inside if known is None else known.centre
        return replace(self, rows=rows, bounds=bounds, inside=inside)

    def restrict(self, experts: Ints) -> "Polytope":
        """The policies of some of the experts; the others have probability 0."""
        (X, K), few = self.shape, experts.size
        rows = self.rows.reshape(-1, X, K)[:, :, experts].reshape(-1, X * few)
        return replace(self, shape=(X, few), rows=rows, inside=None)

    def contains(self, q: Floats, slack: float = 10 * TIGHT_ROOM) -> bool:
        """Whether q is feasible up to rounding, rows in units of their largest entry."""
        over = (self.rows @ q.ravel() - self.bounds) / self.scales
        off = np.abs(q.sum(axis=1) - 1.0)
        return bool(np.concatenate([self.floor - q.ravel(), over, off]).max() <= slack)

    def restore(self, q: Floats) -> Floats | None:
        """q if it is feasible, or a feasible policy near it; None if none is found.

        Floors and sums are restored first. Then q goes towards the centre of the face until the
        rows hold, which does nothing for tight ones.
        """
        if self.contains(q):
            return q
        if self.face is None or not np.isfinite(q).all():
            return None
        y, spare = np.maximum(q - self.floor, 0.0), 1.0 - self.shape[1] * self.floor
        sums = y.sum(axis=1, keepdims=True)
        if (sums <= 0.0).any():
            return None
        q = self.floor + y * (spare / sums)
        centre = self.face.centre
        over = (self.rows @ q.ravel() - self.bounds) / self.scales
        room = (self.bounds - self.rows @ centre.ravel()) / self.scales
        needed = [a / (a + max(b, 0.0)) for a, b in zip(over, room, strict=True) if a > 0.0]
        q = q + max(needed, default=0.0) * (centre - q)
        return q if self.contains(q) else None

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

    @cached_property
    def face(self) -> Face | None:
        """The face, with a centre that has all the room there is; None if nothing is feasible.

        Equal shares or a known policy, if it has ample room. If not, one linear program (Freund,
        Roundy and Todd 1985): with y = (q - floor) * size,

            maximise sum t   over   y >= t,  y_x sums to (1 - K floor) size,
                                    rows.y + t <= (bounds - rows.floor) size,  0 <= t <= 1

        for size >= 1000: as size may grow, a t that can be positive reaches 1, the others stay 0.
        """
        (X, K), m, n, most = self.shape, len(self.rows), self.rows.shape[1], 1e8
        equal, scales = np.full(self.shape, 1.0 / K), self.scales
        for q, ample in ((equal, AMPLE_ROOM), (self.inside, AMPLE_ROOM / 10)):
            if q is not None:
                room = np.append((self.bounds - self.rows @ q.ravel()) / scales, q - self.floor)
                if room.min() > ample / K:
                    return Face(q, np.zeros(n, np.bool_), np.zeros(m, np.bool_))
        rows = self.rows / scales[:, None]
        room = self.bounds / scales - self.floor * rows.sum(axis=1) + TIGHT_ROOM / 10  # rounding
        spare = np.full((X, 1), -max(0.0, 1.0 - K * self.floor))
        # Unknowns: t of the floors, the excess of y over them, t of the rows, size / most.
        c = np.concatenate([np.ones(n), np.zeros(n), np.ones(m), [0.0]])
        A = np.concatenate([rows, rows, np.eye(m), -most * room[:, None]], axis=1)
        E = np.concatenate([self.sums, self.sums, np.zeros((X, m)), most * spare], axis=1)
        low = np.concatenate([np.zeros(2 * n + m), [1e3 / most]])
        high = np.concatenate([np.ones(n), np.full(n, np.inf), np.ones(m), [1.0]])
        vertex = maximise_linear(c, A, np.zeros(m), E, np.zeros(X), low, high)
        if vertex is not None:
            t, over, t_rows, size = np.split(vertex.x, [n, 2 * n, 2 * n + m])
            pinned, tight = t < TIGHT_ROOM * most, t_rows < TIGHT_ROOM * most
            y = np.where(pinned, 0.0, (t + over) / (most * size))
            q = self._polish((self.floor + y).ravel(), pinned, tight)
            if self.contains(q):
                return Face(q, pinned, tight)
        # Less room than numbers can resolve: at most one policy.
        last = self.find_least_violation()
        if last is None or not self.contains(last[0]):
            return None
        return Face(last[0], np.ones(n, np.bool_), np.zeros(m, np.bool_))

    @cached_property
    def face_rows(self) -> FaceRows:
        """The rows of the face, which must exist and not be a single policy."""
        assert self.face is not None, "the polytope is not empty"
        centre, free, loose = self.face.centre.ravel(), ~self.face.pinned, ~self.face.tight
        inside, scales = centre[free] - self.floor, self.scales[loose]
        A = self.rows[loose][:, free] / scales[:, None]
        room = (self.bounds - self.rows @ centre)[loose] / scales
        E = self.sums[:, free]
        E = E[E.any(axis=1)]
        if not loose.all():
            E = np.concatenate([E, self.rows[~loose][:, free]])
            _, R, pivots = qr(E.T, mode="economic", pivoting=True)
            size = np.abs(np.diag(R))
            E = E[np.sort(pivots[: int((size > 1e-11 * size[0]).sum())])]  # independent rows
        rows = np.ascontiguousarray(np.concatenate([A, E]))
        ends = np.append(A @ inside + room, E @ inside)
        return FaceRows(rows, ends, len(A), scales, inside)

    def _polish(self, q: Floats, pinned: Bools, tight: Bools) -> Floats:
        """q moved by rounding errors, so that sums and tight rows hold to the last digit."""
        unit = np.append(np.ones(self.shape[0]), self.scales[tight])
        equations = np.concatenate([self.sums, self.rows[tight]]) / unit[:, None]
        wanted = np.append(np.ones(self.shape[0]), self.bounds[tight]) / unit
        q[~pinned] += np.linalg.lstsq(equations[:, ~pinned], wanted - equations @ q)[0]
        return q.reshape(self.shape)

    def find_least_violation(self) -> tuple[Floats, float] | None:
        """The policy whose largest violation is least, and that violation; None if HiGHS fails."""
        (X, K), (m, n), scale = self.shape, self.rows.shape, self.scales
        A = np.column_stack([self.rows / scale[:, None], -np.ones(m)])
        E = np.column_stack([self.sums, np.zeros(X)])
        low, high = np.append(np.full(n, self.floor), -np.inf), np.append(np.ones(n), np.inf)
        c = np.append(np.zeros(n), -1.0)
        vertex = maximise_linear(c, A, self.bounds / scale, E, np.ones(X), low, high)
        return vertex and (vertex.x[:-1].reshape(X, K), float(vertex.x[-1]))
