"""Quadratic programs on a box: compared with all faces, and by their optimality conditions."""

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from bylot.numerics.box import solve_box_qp
from bylot.numerics.jit import Floats


class Program(NamedTuple):
    H: Floats
    g: Floats
    low: Floats
    high: Floats

    def value(self, x: Floats) -> float:
        return float(self.g @ x + x @ self.H @ x / 2)

    def optimality_error(self, x: Floats) -> float:
        """The largest |x - clip(x - slope)| in parts of the slope's terms; inf outside the box."""
        if (x < self.low).any() or (x > self.high).any():
            return math.inf
        slope, size = self.g + self.H @ x, 1.0 + np.abs(self.H) @ np.abs(x)
        return float((np.abs(x - np.clip(x - slope, self.low, self.high)) / size).max())


def make_program(number: int, d: int, rank: int) -> Program:
    """Zero in the box, often on its edge; of low rank but for a ridge if rank < d."""
    rng = np.random.default_rng(number)
    W = rng.standard_normal((d, rank))
    low, high = -rng.choice([0.0, 0.3, 200.0], d), rng.choice([0.0, 0.3, 200.0], d)
    return Program(W @ W.T + 1e-9 * np.eye(d), rng.standard_normal(d), low, high)


def solve(p: Program) -> Floats:
    x = np.empty(p.g.size)
    solve_box_qp(x, *p)
    return x


def minimum_over_all_faces(p: Program) -> float:
    """Every variable low, high or free: the least value of those inside the box."""
    best, d = math.inf, p.g.size
    for sides_of_variables in itertools.product((-1, 0, 1), repeat=d):
        sides = np.array(sides_of_variables)
        x, free = np.where(sides < 0, p.low, p.high), sides == 0
        if free.any():
            fixed_slope = p.g + p.H[:, ~free] @ x[~free]
            x[free] = np.linalg.solve(p.H[np.ix_(free, free)], -fixed_slope[free])
        x = np.where((x < p.low) & (x > p.low - 1e-9), p.low, x)
        if (x >= p.low).all() and (x <= p.high).all():
            best = min(best, p.value(x))
    return best


def test_no_face_of_the_box_is_lower() -> None:
    for number in range(300):
        p = make_program(number, d=1 + number % 4, rank=4)
        best = minimum_over_all_faces(p)
        assert_allclose(p.value(solve(p)), best, rtol=1e-9, atol=1e-12)


def test_larger_programs_satisfy_the_optimality_conditions() -> None:
    for number in range(600):
        p = make_program(number, d=5 + number % 16, rank=(3, 8, 40)[number % 3])
        assert p.optimality_error(solve(p)) < 1e-9, number


def test_the_test_above_would_notice_a_step_of_a_millionth() -> None:
    p = make_program(11, d=6, rank=40)
    x = solve(p)
    inner = (x > p.low + 1e-3) & (x < p.high - 1e-3)
    assert inner.any()
    assert p.optimality_error(x + 1e-6 * inner) > 1e-9


def test_a_box_of_one_point_and_a_program_without_variables() -> None:
    assert_array_equal(solve(Program(np.eye(2), np.ones(2), np.zeros(2), np.zeros(2))), 0.0)
    none = np.empty(0)
    assert solve(Program(np.empty((0, 0)), none, none, none)).size == 0


def test_a_direction_without_curvature_ends_at_the_boundary() -> None:
    H = np.ones((2, 2)) + 1e-14 * np.eye(2)  # x_0 - x_1 is free of cost
    x = solve(Program(H, np.array([-1.0, 0.0]), np.full(2, -5.0), np.full(2, 5.0)))
    assert_allclose(x, [5.0, -5.0], atol=1e-6)
