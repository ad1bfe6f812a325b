"""Hard projection problems, each identified by a number, and the check of a solution.

The check uses only the optimality conditions; the solvers are in `bylot.numerics`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from bylot.numerics.jit import Floats


class ProjectionCase(NamedTuple):
    """Project z onto {sum q = 1, q >= floor, A q <= b}; `title` says what makes it hard."""

    z: Floats
    floor: float
    A: Floats
    b: Floats
    title: str


class KktResidual(NamedTuple):
    """How far q and its multipliers are from the optimality (KKT) conditions, scaled.

    With t_i = sum_j lam_j (A_ji - min A_j) and S = max(1, max z - min z, max t_i over the free i),
    that is the i with q_i > floor:

    mass            |sum q - 1|
    floor           max(0, floor - min q)
    row             max(0, A_j q - b_j) / max |A_j|, the worst j
    price           max(0, -lam_j) (max A_j - min A_j) / S, the worst j
    complementary   min(lam_j (max A_j - min A_j) / S, |A_j q - b_j| / max |A_j|), the worst j
    stationary      (largest s_i - smallest free s_i) / S, where s_i = z_i - q_i - t_i

    The last is zero if and only if some tau has s_i = tau where q_i is free and s_i <= tau where
    it is not. S is the size of the numbers that cancel in s, so no floating-point solution does
    better than a few units of rounding of S. Shifting z or a row, or scaling a row, changes the
    residual only by rounding; large multipliers enter S only through free points.
    """

    mass: float
    floor: float
    row: float
    price: float
    complementary: float
    stationary: float

    @property
    def worst(self) -> float:
        """The largest of all; NaN counts as infinite."""
        return max(math.inf if math.isnan(x) else x for x in self)


def compute_kkt_residual(case: ProjectionCase, q: Floats, multipliers: Floats) -> KktResidual:
    """Residual of a solution, with sums rounded once (`math.fsum`)."""
    z, floor, A = case.z, case.floor, case.A
    t = multipliers @ (A - A.min(axis=1, keepdims=True))
    free = q > floor
    S = max(1.0, np.ptp(z), t[free].max(initial=0.0))
    s = (z - z.max()) - q - t
    largest = np.abs(A).max(axis=1)
    over = np.array([math.fsum([*(a * q), -b]) for a, b in zip(A, case.b, strict=True)])
    over /= np.where(largest > 0.0, largest, 1.0)
    price = multipliers * np.ptp(A, axis=1) / S
    return KktResidual(
        mass=abs(math.fsum([*q, -1.0])),
        floor=max(0.0, floor - q.min()),
        row=over.max(initial=0.0),
        price=(-price).max(initial=0.0),
        complementary=np.minimum(price, np.abs(over)).max(initial=0.0),
        stationary=max(0.0, s.max() - s[free].min()) / S if free.any() else 0.0,
    )


def minimise_row(case: ProjectionCase) -> float:
    """The smallest a.q on {sum q = 1, q >= floor}: floor sum a + (1 - K floor) min a."""
    a = case.A[0]
    rest = math.fsum([1.0, *(-case.floor for _ in a)])
    return math.fsum([*(case.floor * a), rest * a.min()])


def judge_halfspace(case: ProjectionCase, q: Floats, multiplier: float, feasible: bool) -> float:
    """Worst scaled KKT residual of a solution with one row; infinite if `feasible` is wrong.

    If the set is empty, the solution must be optimal for the row a.q <= min a.q instead.
    """
    if not feasible:
        edge = minimise_row(case)
        if edge <= case.b[0]:
            return math.inf
        case = case._replace(b=np.array([edge]))
    return compute_kkt_residual(case, q, np.array([multiplier])).worst


def draw_magnitude(rng: Generator) -> float:
    """Draw a scale from 1e-8 to 1e8, uniform in its logarithm."""
    return float(10.0 ** rng.uniform(-8, 8))


def draw_point(rng: Generator, K: int, floor: float) -> tuple[str, Floats]:
    """Draw a point to project and the name of its kind."""
    scale = draw_magnitude(rng)
    q = floor + (1.0 - K * floor) * rng.dirichlet(np.full(K, 10.0 ** rng.uniform(-1.0, 1.0)))
    spikes = np.where(rng.random(K) < 5.0 / K, rng.standard_normal(K), 0.0)
    kinds: dict[str, Callable[[], Any]] = {
        "normal": lambda: scale * rng.standard_normal(K),
        "tied": lambda: scale * rng.integers(0, 3, K),
        "equal": lambda: np.full(K, scale),
        "decades": lambda: rng.choice([-1.0, 1.0], K) * 10.0 ** rng.uniform(-8, 8, K),
        "far": lambda: 1e8 + rng.standard_normal(K),
        "inside": lambda: q,
        "step": lambda: q + 0.1 * spikes,
        "leap": lambda: q + scale * np.abs(spikes),
    }
    kind = str(rng.choice(list(kinds)))
    return kind, np.asarray(kinds[kind](), np.float64)


def draw_cost_row(rng: Generator, z: Floats) -> tuple[str, Floats]:
    """Draw a row of costs and the name of its kind."""
    K, scale = z.size, draw_magnitude(rng)
    kinds: dict[str, Callable[[], Any]] = {
        "uniform": lambda: rng.random(K),
        "signed": lambda: rng.standard_normal(K),
        "binary": lambda: rng.integers(0, 2, K),
        "tied": lambda: rng.integers(0, 4, K),
        "constant": lambda: np.ones(K),
        "nearly constant": lambda: 1.0 + 1e-12 * rng.standard_normal(K),
        "one": lambda: np.arange(K) == rng.integers(0, K),
        "all but one": lambda: np.arange(K) != rng.integers(0, K),
        "decades": lambda: 10.0 ** rng.uniform(-16, 0, K),
        "lifted": lambda: 1e3 + rng.random(K),
        "like z": lambda: z / (np.abs(z).max() or 1.0),
        "unlike z": lambda: -z / (np.abs(z).max() or 1.0),
    }
    kind = str(rng.choice(list(kinds)))
    return kind, scale * np.asarray(kinds[kind](), np.float64)


def draw_bound(rng: Generator, z: Floats, floor: float, a: Floats) -> tuple[str, float]:
    """Draw a bound on a.q and the name of its place in the range of a.q."""
    rest = 1.0 - z.size * floor
    low, high = floor * a.sum() + rest * a.min(), floor * a.sum() + rest * a.max()
    corner = np.full(z.size, floor)
    corner[z.argmax()] += rest
    little = 10.0 ** rng.uniform(-16, -3) * max(high - low, 1e-3 * np.abs(a).max())
    kinds = {
        "on the edge": low,
        "just inside": low + little,
        "just outside": low - little,
        "inside": low + rng.random() * (high - low),
        "at the corner": float(a @ corner),
        "at the far edge": high,
        "slack": high + abs(high) + rng.random() * (high - low),
        "out of reach": low - abs(low) - rng.random() * np.abs(a).max(),
    }
    kind = str(rng.choice(list(kinds)))
    return kind, float(kinds[kind])


def make_halfspace_case(number: int, seed: int = 0) -> ProjectionCase:
    """Make the case of one row with this number; it is the same every time.

    K is mostly small, where ties and corners are frequent, and sometimes up to 1,000; the floor is
    none, the default, half, all, all but rounding, or any share of 1/K.
    """
    rng = np.random.default_rng((seed, number))
    K = int(rng.integers(1, rng.choice([3, 12, 60, 300, 1_000], p=[0.2, 0.4, 0.25, 0.1, 0.05]) + 1))
    floor = float(rng.choice([0.0, 0.1, 0.5, 1.0, 1.0 - 1e-9, rng.random()])) / K
    kind_z, z = draw_point(rng, K, floor)
    kind_a, a = draw_cost_row(rng, z)
    kind_b, b = draw_bound(rng, z, floor, a)
    return ProjectionCase(
        z=z,
        floor=floor,
        A=a[None, :],
        b=np.array([b]),
        title=f"case {number}: K={K}, floor={floor:g}, z {kind_z}, a {kind_a}, b {kind_b}",
    )
