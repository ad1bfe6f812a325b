"""Polytope: the policies that keep a set of linear limits, and linear programs over it.

Owns allowed sets and certificates; it does not know what is being maximised beyond its slope.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from bylot.numerics.jit import Bools, Floats


class Vertex(NamedTuple):
    """A best corner x, and the price v >= 0 of each row of A x <= b."""

    x: Floats
    prices: Floats


class LinearProgram(NamedTuple):
    """maximise c.x over low <= x <= high with A x <= b and E x = e."""

    c: Floats
    A: Floats
    b: Floats
    E: Floats
    e: Floats
    low: Floats
    high: Floats

    def corner(self) -> Vertex | None:
        """The answer of HiGHS, to its finest tolerance or else to its usual one; None without any.

        >>> one = np.ones((1, 2))
        >>> square = LinearProgram(one[0], one, one[0, :1], one[:0], one[0, :0], 0 * one[0], one[0])
        >>> square.corner().prices
        array([1.])
        """
        for tolerance in (1e-10, 1e-7):
            best = linprog(
                -self.c,
                A_ub=self.A,
                b_ub=self.b,
                A_eq=self.E,
                b_eq=self.e,
                bounds=list(zip(self.low.tolist(), self.high.tolist(), strict=True)),
                method="highs",
                options={
                    "primal_feasibility_tolerance": tolerance,
                    "dual_feasibility_tolerance": tolerance,
                },
            )
            if best.status == 0 and best.x is not None:
                return Vertex(best.x, np.maximum(-np.asarray(best.ineqlin.marginals), 0.0))
        return None


TIGHT_ROOM = 1e-12
"""Less room than this, in units of a row's largest entry, is no room."""

OUT_OF_SCALE_RATIO = 1e6
"""So many times what a row can reach: a bound there is in another world than the row."""

AMPLE_ROOM = 0.1
"""So many mean shares of room make a point inside that is as good as any."""


class Certificate(NamedTuple):
    """No allowed policy is worth more than value(q) + gap; prices v >= 0 of the rows prove it."""

    gap: float
    prices: Floats


class Face(NamedTuple):
    """What never moves within the polytope, and a point inside of all that does.

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
    def sums(self) -> Floats:
        """The X equations of the sums, (X, X K)."""
        X, K = self.shape
        return np.repeat(np.eye(X), K, axis=1)

    @property
    def scales(self) -> Floats:
        """The largest entry of each row, 1 where there is none: a solver's tolerance fits then.

        No row of X policies exceeds X times that. A bound that is FAR beyond is kept by all or by
        none, and is itself the unit: in that of a vanishing row it would overflow.
        """
        most = np.abs(self.rows).max(axis=1, initial=0.0)
        far = np.abs(self.bounds) / self.shape[0]
        unit = np.where(far > OUT_OF_SCALE_RATIO * most, far, most)
        return np.where(unit > 0.0, unit, 1.0)

    def with_rows(self, rows: Floats, bounds: Floats) -> "Polytope":
        """The same with more rows."""
        return self._replace(
            rows=np.concatenate([self.rows, rows]), bounds=np.concatenate([self.bounds, bounds])
        )

    def excess(self, q: Floats) -> float:
        """By how much q breaks what it breaks most, rows in units of their largest entry."""
        over = (self.rows @ q.ravel() - self.bounds) / self.scales
        off = np.abs(q.sum(axis=1) - 1.0)
        return float(np.concatenate([self.floor - q.ravel(), over, off]).max())

    def certify(self, q: Floats, slope: Floats, prices: Floats | None = None) -> Certificate:
        """How much any allowed policy can be better than q, for a concave F with this slope at q.

        For all allowed p, F(p) - F(q) <= slope.(p - q), and for all prices v >= 0

            slope.(p - q) <= v.bounds - slope.q + sum_x max {(slope - v.rows)_x . p_x},

        p_x over the floored simplex. The best v is the dual of a linear program, unless prices are
        given that will do; as any v is a proof, the gap is evaluated from v here and owes nothing
        to a solver's tolerances.
        """
        best = self.corner(slope) if len(self.rows) and prices is None else None
        v = np.zeros(len(self.rows)) if prices is None else prices
        v = v if best is None else best.prices
        left = slope - (v @ self.rows).reshape(self.shape)
        spare = 1.0 - self.shape[1] * self.floor
        most = (self.floor * left.sum(axis=1) + spare * left.max(axis=1)).sum()
        return Certificate(max(0.0, float(most + v @ self.bounds - (slope * q).sum())), v)

    def corner(self, slope: Floats) -> Vertex | None:
        """The allowed q with the largest slope.q, and what each bound is worth to it."""
        n, scale, unit = slope.size, self.scales, float(np.ptp(slope)) or 1.0
        best = LinearProgram(
            (slope - slope.mean()).ravel() / unit,
            self.rows / scale[:, None],
            self.bounds / scale,
            self.sums,
            np.ones(self.shape[0]),
            np.full(n, self.floor),
            np.ones(n),
        ).corner()
        return best and Vertex(best.x.reshape(self.shape), best.prices * unit / scale)

    def face(self) -> Face | None:
        """A point with all the room there is, and where there is none; None if nothing is allowed.

        Equal shares, if they have plenty of room. If not, one linear program (Freund, Roundy and
        Todd 1985): with y = (q - floor) * size,

            maximise sum t   over   y >= t,  y_x sums to (1 - K floor) size,
                                    rows.y + t <= (bounds - rows.floor) size,  0 <= t <= 1

        for size >= 1000: as it may grow, a t that can be positive reaches 1, the others stay at 0.
        """
        (X, K), m, n, most = self.shape, len(self.rows), self.rows.shape[1], 1e8
        equal = np.full(self.shape, 1.0 / K)
        room = np.append(
            (self.bounds - self.rows @ equal.ravel()) / self.scales, 1 / K - self.floor
        )
        if room.min() > AMPLE_ROOM / K:
            return Face(equal, np.zeros(n, np.bool_), np.zeros(m, np.bool_))
        rows = self.rows / self.scales[:, None]
        room = (
            self.bounds / self.scales - self.floor * rows.sum(axis=1) + TIGHT_ROOM / 10
        )  # rounding
        spare = np.full((X, 1), -max(0.0, 1.0 - K * self.floor))
        # Unknowns: t of the floors, by what y exceeds them, t of the rows, size / most.
        corner = LinearProgram(
            np.concatenate([np.ones(n), np.zeros(n), np.ones(m), [0.0]]),
            np.concatenate([rows, rows, np.eye(m), -most * room[:, None]], axis=1),
            np.zeros(m),
            np.concatenate([self.sums, self.sums, np.zeros((X, m)), most * spare], axis=1),
            np.zeros(X),
            np.concatenate([np.zeros(2 * n + m), [1e3 / most]]),
            np.concatenate([np.ones(n), np.full(n, np.inf), np.ones(m), [1.0]]),
        ).corner()
        if corner is None:
            return self._last()
        t, over, t_rows, size = np.split(corner.x, [n, 2 * n, 2 * n + m])
        pinned, tight = t < TIGHT_ROOM * most, t_rows < TIGHT_ROOM * most
        y = np.where(pinned, 0.0, (t + over) / (most * size))
        face = self._settled(Face(self.floor + y.reshape(self.shape), pinned, tight))
        return face if self.excess(face.centre) <= 10 * TIGHT_ROOM else self._last()

    def _settled(self, face: Face) -> Face:
        """Its point moved by rounding errors: sums and tight rows hold to the last digit."""
        unit = np.append(np.ones(self.shape[0]), self.scales[face.tight])
        equations = np.concatenate([self.sums, self.rows[face.tight]]) / unit[:, None]
        wanted = np.append(np.ones(self.shape[0]), self.bounds[face.tight]) / unit
        q, free = face.centre.ravel().copy(), ~face.pinned
        q[free] += np.linalg.lstsq(equations[:, free], wanted - equations @ q)[0]
        return face._replace(centre=q.reshape(self.shape))

    def _last(self) -> Face | None:
        """Where there is less room than numbers can tell from none: one policy, if any."""
        last = self.least_broken()
        if last is None:
            return None
        q, _ = last
        nowhere = np.ones(q.size, dtype=np.bool_), np.zeros(len(self.rows), dtype=np.bool_)
        return Face(q, *nowhere) if self.excess(q) <= 10 * TIGHT_ROOM else None

    def least_broken(self) -> tuple[Floats, float] | None:
        """The policy that breaks the worst row least, and by how many units: a linear program.

        It has an answer, as a large enough excess allows everything; None if numbers fall short.
        """
        (X, K), (m, n), scale = self.shape, self.rows.shape, self.scales
        corner = LinearProgram(
            np.append(np.zeros(n), -1.0),
            np.column_stack([self.rows / scale[:, None], -np.ones(m)]),
            self.bounds / scale,
            np.column_stack([self.sums, np.zeros(X)]),
            np.ones(X),
            np.append(np.full(n, self.floor), -np.inf),
            np.append(np.ones(n), np.inf),
        ).corner()
        if corner is None:
            return None
        return corner.x[:-1].reshape(X, K), float(corner.x[-1])
