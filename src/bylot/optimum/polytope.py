"""Polytope: the policies that keep a set of linear limits, and linear programs over it.

Owns allowed sets and certificates; it does not know what is being maximised beyond its slope.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, kron

from bylot.kernels.compile import Bools, Floats

TIGHT = 1e-12
"""Less room than this, in units of a row's largest entry, is no room."""


class Certificate(NamedTuple):
    """No allowed policy has a value above value(q) + gap; the prices v >= 0, one a row, prove it."""

    gap: float
    prices: Floats


class Face(NamedTuple):
    """The part of the polytope's boundary it all lies in: what never moves, and a point inside.

    `pinned` variables are at the floor and `tight` rows at their bound in every allowed policy;
    at `centre` all others have room.
    """

    centre: Floats
    pinned: Bools
    tight: Bools


class Polytope(NamedTuple):
    """{q (X, K): q >= floor, every row of q sums to 1, rows @ q.ravel() <= bounds}."""

    shape: tuple[int, int]
    floor: float
    rows: Floats
    bounds: Floats

    @property
    def simplices(self) -> csr_array:
        """The X equations of the sums, (X, X K)."""
        X, K = self.shape
        return csr_array(kron(eye_array(X), np.ones((1, K))))

    @property
    def scales(self) -> Floats:
        """The largest entry of each row, 1 where there is none: a solver's tolerance fits then."""
        most = np.abs(self.rows).max(axis=1, initial=0.0)
        return np.where(most > 0.0, most, 1.0)

    def with_rows(self, rows: Floats, bounds: Floats) -> "Polytope":
        """The same with more rows."""
        return self._replace(
            rows=np.concatenate([self.rows, rows]), bounds=np.concatenate([self.bounds, bounds])
        )

    def excess(self, q: Floats) -> float:
        """By how much q breaks what it breaks most, rows in units of their largest entry."""
        over = np.append(
            self.floor - q.ravel(), (self.rows @ q.ravel() - self.bounds) / self.scales
        )
        return max(float(over.max()), float(np.abs(q.sum(axis=1) - 1.0).max()))

    def certify(self, q: Floats, slope: Floats) -> Certificate:
        """How much any allowed policy can be better than q, for a concave F with this slope at q.

        For all allowed p, F(p) - F(q) <= slope.(p - q), and for all prices v >= 0

            slope.(p - q) <= v.bounds - slope.q + sum_x max {(slope - v.rows)_x . p_x},

        p_x over the floored simplex. The best v is the dual of a linear program; as any v is a
        proof, the gap is evaluated from v here and owes nothing to the solver's tolerances.
        """
        v = self._prices(slope.ravel())
        left = slope - (v @ self.rows).reshape(self.shape)
        spare = 1.0 - self.shape[1] * self.floor
        most = (self.floor * left.sum(axis=1) + spare * left.max(axis=1)).sum()
        return Certificate(max(0.0, float(most + v @ self.bounds - (slope * q).sum())), v)

    def _prices(self, slope: Floats) -> Floats:
        if not len(self.rows):
            return np.zeros(0)
        scale, size = self.scales, max(float(np.ptp(slope)), 1e-300)
        best = linprog(
            -(slope - slope.mean()) / size,
            A_ub=self.rows / scale[:, None],
            b_ub=self.bounds / scale,
            A_eq=self.simplices,
            b_eq=np.ones(self.shape[0]),
            bounds=(self.floor, None),
            method="highs",
        )
        if best.status != 0:
            return np.zeros(len(self.rows))
        return np.maximum(-best.ineqlin.marginals, 0.0) * size / scale

    def face(self) -> Face | None:
        """A point with all the room there is, and where there is none; None if nothing is allowed.

        One linear program (Freund, Roundy and Todd 1985): with y = (q - floor) * size,

            maximise sum t   over   y >= t,  y_x sums to (1 - K floor) size,
                                    rows.y + t <= (bounds - rows.floor) size,  0 <= t <= 1 <= size

        as size may grow, every t that can be positive reaches 1, and the others stay at 0.
        """
        X, K = self.shape
        n, m, scale = X * K, len(self.rows), self.scales
        rows = self.rows / scale[:, None]
        room = self.bounds / scale - self.floor * rows.sum(axis=1)
        spare = max(0.0, 1.0 - K * self.floor)
        sums = self.simplices
        # Unknowns: t of the floors, what y exceeds it by, t of the rows, size.
        best = linprog(
            np.concatenate([-np.ones(n), np.zeros(n), -np.ones(m), [0.0]]),
            A_ub=csr_array(hstack([rows, rows, eye_array(m), -room[:, None]])) if m else None,
            b_ub=np.zeros(m) if m else None,
            A_eq=csr_array(hstack([sums, sums, csr_array((X, m)), np.full((X, 1), -spare)])),
            b_eq=np.zeros(X),
            bounds=[(0, 1)] * n + [(0, None)] * n + [(0, 1)] * m + [(1, 1e6)],
            method="highs",
        )
        if best.status != 0:
            return None
        t, size = best.x, best.x[-1]
        pinned, tight = t[:n] < TIGHT * 1e6, t[2 * n : -1] < TIGHT * 1e6
        y = np.where(pinned, 0.0, (t[:n] + t[n : 2 * n]) / size)
        return self._settled(Face(self.floor + y.reshape(self.shape), pinned, tight))

    def _settled(self, face: Face) -> Face | None:
        """Its point moved by rounding errors only, until sums and tight rows hold to the last digit."""
        equations = np.concatenate([self.simplices.toarray(), self.rows[face.tight]])
        wanted = np.concatenate([np.ones(self.shape[0]), self.bounds[face.tight]])
        q, free = face.centre.ravel().copy(), ~face.pinned
        unit = np.append(np.ones(self.shape[0]), self.scales[face.tight])
        off = (wanted - equations @ q) / unit
        if free.any():
            q[free] += np.linalg.lstsq(equations[:, free] / unit[:, None], off)[0]
        settled = face._replace(centre=q.reshape(self.shape))
        return settled if self.excess(settled.centre) <= 10 * TIGHT else None
