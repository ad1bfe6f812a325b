"""The box of the limits and the paper's surrogate: support, maximiser, slope, distance."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import ArrayLike

from bylot.numerics.box import box_support, dual_slope_at
from bylot.numerics.jit import Floats
from bylot.problem import Box, Problem, at_least, at_most
from sample_problem import distance_to_box

SEEDS = st.integers(0, 2**32 - 1)
fuzz_settings = settings(deadline=None, derandomize=True, max_examples=150)


def make_box(low: ArrayLike, high: ArrayLike) -> Box:
    return Box(np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64))


def support(box: Box, w: ArrayLike) -> float:
    return box_support(box.low, box.high, np.asarray(w, dtype=np.float64))


def find_slope(box: Box, u: ArrayLike, w: ArrayLike) -> Floats:
    """The shortest of u - x over all maximisers x of w.x: what a dual step at w follows."""
    ends = zip(box.low, box.high, np.asarray(u), np.asarray(w), strict=True)
    return np.array([dual_slope_at(*one) for one in ends])


def maximiser(box: Box, w: ArrayLike) -> Floats:
    """A point of the box where w.x is largest; where w_j = 0, the one nearest 0."""
    sign = np.sign(w)
    inner = np.clip(0.0, box.low, box.high)
    return np.where(sign > 0, box.high, np.where(sign < 0, box.low, inner))


def random_box(rng: np.random.Generator, size: int) -> Box:
    """Some coordinates are points, some straddle 0, scales differ by a million."""
    scale = 10.0 ** rng.uniform(-3, 3, size)
    low = rng.normal(size=size) * scale
    return Box(low, low + rng.choice([0.0, 1.0], size) * rng.random(size) * scale)


def draw_ball_point(rng: np.random.Generator, size: int) -> Floats:
    """A point of the unit ball, some of its coordinates exactly 0."""
    w: Floats = rng.normal(size=size) * rng.choice([0.0, 1.0], size, p=[0.3, 0.7])
    return w * (rng.random() / max(1.0, float(np.linalg.norm(w))))


def dual_payoff(box: Box, u: Floats, w: Floats) -> float:
    return float(w @ u) - support(box, w)


# The paper's table (section 4): M = 2, at most 3 becomes [0, 1.5]; at least 0.4, largest cost 5.
@pytest.mark.parametrize(
    ("w", "expected"),
    [
        ([+2.0, 0.0], 1.5 * 2.0),
        ([-2.0, 0.0], 0.0),
        ([0.0, +2.0], 5.0 * 2.0),
        ([0.0, -2.0], 0.4 * -2.0),
        ([0.0, 0.0], 0.0),
        ([1.0, -1.0], 1.5 - 0.4),
    ],
)
def test_the_support_is_the_papers_case_table(w: list[float], expected: float) -> None:
    problem = Problem(
        ["ann", "bob"],
        {"usd": [1.0, 2.0], "hours": [0.0, 5.0]},
        [at_most("usd", 3.0), at_least("hours", 0.4)],
        draws=2,
    )
    assert_array_equal(problem.box.low, [0.0, 0.4])
    assert_array_equal(problem.box.high, [1.5, 5.0])
    assert support(problem.box, w) == pytest.approx(expected, abs=1e-15)


@fuzz_settings
@given(SEEDS, st.integers(1, 6))
def test_the_distance_is_the_best_payoff_of_the_unit_ball(seed: int, size: int) -> None:
    """dist(u, S) = max over |w| <= 1 of w.u - h(w): no w is better, the unit normal attains it."""
    rng = np.random.default_rng(seed)
    box = random_box(rng, size)
    u = box.low + rng.normal(size=size) * 10.0 ** rng.uniform(-3, 3)
    distance, scale = distance_to_box(box, u), 1.0 + np.abs([u, box.low, box.high]).sum()
    for _ in range(20):
        assert dual_payoff(box, u, draw_ball_point(rng, size)) <= distance + 1e-14 * scale
    normal = u - np.clip(u, box.low, box.high)
    assert distance == pytest.approx(np.linalg.norm(normal), rel=1e-14)
    if distance > 0:
        assert dual_payoff(box, u, normal / distance) == pytest.approx(distance, abs=1e-14 * scale)


@fuzz_settings
@given(SEEDS, st.integers(1, 6))
def test_the_maximiser_lies_in_the_box_and_attains_the_support(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    box, w = random_box(rng, size), draw_ball_point(rng, size)
    peak = maximiser(box, w)
    assert np.all((box.low <= peak) & (peak <= box.high))
    assert w @ peak == pytest.approx(support(box, w), rel=1e-12, abs=1e-12)


@fuzz_settings
@given(SEEDS, st.integers(1, 6))
def test_the_slope_is_the_shortest_supergradient_of_the_payoff(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    box, w = random_box(rng, size), draw_ball_point(rng, size)
    u = box.low + rng.normal(size=size) * 10.0 ** rng.uniform(-3, 3)
    slope, scale = find_slope(box, u, w), 1.0 + np.abs([u, box.low, box.high]).sum()
    for _ in range(20):  # the payoff is concave: it lies under each of its supergradients
        other = draw_ball_point(rng, size)
        assert (
            dual_payoff(box, u, other)
            <= dual_payoff(box, u, w) + slope @ (other - w) + 1e-13 * scale
        )
        x = np.where(w == 0, rng.uniform(box.low, box.high), maximiser(box, w))
        assert np.linalg.norm(slope) <= np.linalg.norm(u - x) + 1e-13 * scale


def test_a_kept_limit_does_not_move_a_multiplier_of_0() -> None:
    box = make_box([0.0, 1.0], [2.0, 3.0])
    assert_array_equal(find_slope(box, [0.5, 2.5], [0.0, 0.0]), [0.0, 0.0])
    assert_array_equal(find_slope(box, [2.5, 0.5], [0.0, 0.0]), [0.5, -0.5])


def test_half_lines_have_no_nan() -> None:
    target = make_box([-np.inf, 1.0], [2.0, np.inf])
    assert support(target, [0.0, 0.0]) == 0.0
    assert support(target, [1.0, -1.0]) == 1.0
    assert support(target, [-1.0, 0.0]) == np.inf
    assert_array_equal(maximiser(target, [0.0, 0.0]), [0.0, 1.0])
    assert_array_equal(find_slope(target, [3.0, 0.0], [0.0, 0.0]), [1.0, -1.0])
    assert distance_to_box(target, [5.0, -3.0]) == 5.0
    assert distance_to_box(target, [-1e9, 1e9]) == 0.0


def test_a_box_without_coordinates_is_a_point() -> None:
    box = make_box([], [])
    assert (box.low.size, support(box, []), distance_to_box(box, [])) == (0, 0.0, 0.0)
    assert maximiser(box, []).shape == find_slope(box, [], []).shape == (0,)


def random_problem(rng: np.random.Generator) -> Problem:
    """Limits on both sides that some policy keeps: they leave room around a policy's averages."""
    size, draws = int(rng.integers(2, 7)), int(rng.integers(1, 6))
    costs = {name: rng.random(size) * rng.integers(0, 2, size) for name in "abc"}
    p = 1 - (1 - rng.dirichlet(np.ones(size))) ** draws
    mean = {name: float(p @ cost) for name, cost in costs.items()}
    limits = [
        at_most("a", mean["a"] * rng.uniform(1, 1.2)),
        at_least("b", mean["b"] * rng.uniform(0.8, 1)),
        at_most("c", mean["c"]),
        at_least("c", mean["c"] * rng.random()),
    ]
    return Problem([f"e{i}" for i in range(size)], costs, limits, draws=draws)


def compute_distances(problem: Problem, box: Box, rng: np.random.Generator) -> tuple[float, float]:
    """dist(phi, S^ori) and M dist(varphi, S) after some rounds of random q."""
    q = rng.dirichlet(np.full(problem.size, rng.choice([0.1, 1.0])), size=int(rng.integers(1, 6)))
    phi = problem.rows @ (1 - (1 - q) ** problem.draws).mean(axis=0)
    varphi = problem.rows @ q.mean(axis=0)
    return distance_to_box(problem.target, phi), problem.draws * distance_to_box(box, varphi)


@fuzz_settings
@given(SEEDS)
def test_the_surrogate_distance_bounds_the_true_one(seed: int) -> None:
    """Distance transfer (paper, section 3.2): dist(phi, S^ori) <= M dist(varphi, S)."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    true, bound = compute_distances(problem, problem.box, rng)
    assert true <= bound + 1e-12


def test_the_test_above_would_notice_a_box_that_ignores_the_draws() -> None:
    rng, broken = np.random.default_rng(0), 0
    for _ in range(200):
        problem = random_problem(rng)
        wrong = Box(problem.box.low, np.where(problem.signs < 0, problem.bounds, problem.box.high))
        true, bound = compute_distances(problem, wrong, rng)
        broken += true > bound + 1e-12
    assert broken >= 10


@fuzz_settings
@given(SEEDS, st.sampled_from([1e-6, 1e-3, 1000.0, 1e6]))
def test_a_change_of_unit_changes_the_box_by_that_unit_and_no_other_coordinate(
    seed: int, unit: float
) -> None:
    before = random_problem(np.random.default_rng(seed))
    costs = {**before.costs, "c": before.costs["c"] * unit}
    limits = [one.at(one.bound * unit) if one.name == "c" else one for one in before.limits]
    after = Problem(before.experts, costs, limits, draws=before.draws)
    units = [1.0, 1.0, unit, unit]
    assert_allclose(after.box.low, before.box.low * units, rtol=1e-15)
    assert_allclose(after.box.high, before.box.high * units, rtol=1e-15)


def test_a_box_is_read_only_also_after_pickling() -> None:
    problem = Problem(["ann", "bob"], {"usd": [1.0, 2.0]}, [at_most("usd", 2.0)], draws=1)
    again = pickle.loads(pickle.dumps(problem))
    for end in (*again.box, *again.target):
        with pytest.raises(ValueError, match="read-only"):
            end[0] = 5.0


def test_rounding_does_not_move_a_multiplier_of_0() -> None:
    edge = 0.1 + 0.2  # one bit above 0.3
    assert dual_slope_at(0.0, 0.3, edge, 0.0) == 0.0
    assert dual_slope_at(0.3, 1.0, np.nextafter(0.3, 0), 0.0) == 0.0
    assert dual_slope_at(0.0, 0.3, 0.3 * (1 + 1e-11), 0.0) > 0.0  # more than rounding
    assert dual_slope_at(0.0, 0.3, edge, 1e-9) > 0.0  # and a positive one follows every bit
