"""The box of the limits and the paper's surrogate: support, maximiser, slope, distance."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import ArrayLike

from bylot.errors import ProblemError
from bylot.numerics.box import dual_slope_at
from bylot.numerics.jit import Floats
from bylot.problem import Box, Problem, at_least, at_most

SEEDS = st.integers(0, 2**32 - 1)
exactly = settings(deadline=None, derandomize=True, max_examples=150)


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


def in_ball(rng: np.random.Generator, size: int) -> Floats:
    """A point of the unit ball, some of its coordinates exactly 0."""
    w: Floats = rng.normal(size=size) * rng.choice([0.0, 1.0], size, p=[0.3, 0.7])
    return w * (rng.random() / max(1.0, float(np.linalg.norm(w))))


def payoff(box: Box, u: Floats, w: Floats) -> float:
    return float(w @ u) - box.support(w)


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
    assert problem.box.support(w) == pytest.approx(expected, abs=1e-15)


@exactly
@given(SEEDS, st.integers(1, 6))
def test_the_distance_is_the_best_payoff_of_the_unit_ball(seed: int, size: int) -> None:
    """dist(u, S) = max over |w| <= 1 of w.u - h(w): no w is better, the unit normal attains it."""
    rng = np.random.default_rng(seed)
    box = random_box(rng, size)
    u = box.low + rng.normal(size=size) * 10.0 ** rng.uniform(-3, 3)
    distance, scale = box.distance(u), 1.0 + np.abs([u, box.low, box.high]).sum()
    for _ in range(20):
        assert payoff(box, u, in_ball(rng, size)) <= distance + 1e-14 * scale
    normal = u - np.clip(u, box.low, box.high)
    assert distance == pytest.approx(np.linalg.norm(normal), rel=1e-14)
    if distance > 0:
        assert payoff(box, u, normal / distance) == pytest.approx(distance, abs=1e-14 * scale)


@exactly
@given(SEEDS, st.integers(1, 6))
def test_the_maximiser_lies_in_the_box_and_attains_the_support(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    box, w = random_box(rng, size), in_ball(rng, size)
    peak = maximiser(box, w)
    assert np.all((box.low <= peak) & (peak <= box.high))
    assert w @ peak == pytest.approx(box.support(w), rel=1e-12, abs=1e-12)


@exactly
@given(SEEDS, st.integers(1, 6))
def test_the_slope_is_the_shortest_supergradient_of_the_payoff(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    box, w = random_box(rng, size), in_ball(rng, size)
    u = box.low + rng.normal(size=size) * 10.0 ** rng.uniform(-3, 3)
    slope, scale = box.slope(u, w), 1.0 + np.abs([u, box.low, box.high]).sum()
    for _ in range(20):  # the payoff is concave: it lies under each of its supergradients
        other = in_ball(rng, size)
        assert payoff(box, u, other) <= payoff(box, u, w) + slope @ (other - w) + 1e-13 * scale
        x = np.where(w == 0, rng.uniform(box.low, box.high), maximiser(box, w))
        assert np.linalg.norm(slope) <= np.linalg.norm(u - x) + 1e-13 * scale


def test_a_limit_that_is_kept_does_not_move_a_multiplier_at_rest() -> None:
    box = Box([0.0, 1.0], [2.0, 3.0])
    assert_array_equal(box.slope([0.5, 2.5], [0.0, 0.0]), [0.0, 0.0])
    assert_array_equal(box.slope([2.5, 0.5], [0.0, 0.0]), [0.5, -0.5])


def test_half_lines_have_no_nan() -> None:
    target = Box([-np.inf, 1.0], [2.0, np.inf])
    assert target.support([0.0, 0.0]) == 0.0
    assert target.support([1.0, -1.0]) == 1.0
    assert target.support([-1.0, 0.0]) == np.inf
    assert_array_equal(maximiser(target, [0.0, 0.0]), [0.0, 1.0])
    assert_array_equal(target.slope([3.0, 0.0], [0.0, 0.0]), [1.0, -1.0])
    assert target.distance([5.0, -3.0]) == 5.0
    assert target.distance([-1e9, 1e9]) == 0.0


def test_a_box_without_coordinates_is_a_point() -> None:
    box = Box([], [])
    assert (box.size, box.support([]), box.distance([])) == (0, 0.0, 0.0)
    assert maximiser(box, []).shape == box.slope([], []).shape == (0,)


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


def transfer(problem: Problem, box: Box, rng: np.random.Generator) -> tuple[float, float]:
    """dist(phi, S^ori) and M dist(varphi, S) after some rounds of random q."""
    q = rng.dirichlet(np.full(problem.size, rng.choice([0.1, 1.0])), size=int(rng.integers(1, 6)))
    phi = problem.rows @ (1 - (1 - q) ** problem.draws).mean(axis=0)
    varphi = problem.rows @ q.mean(axis=0)
    return problem.target.distance(phi), problem.draws * box.distance(varphi)


@exactly
@given(SEEDS)
def test_the_surrogate_distance_bounds_the_true_one(seed: int) -> None:
    """Distance transfer (paper, section 3.2): dist(phi, S^ori) <= M dist(varphi, S)."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    true, bound = transfer(problem, problem.box, rng)
    assert true <= bound + 1e-12


def test_the_test_above_would_notice_a_box_that_forgets_the_draws() -> None:
    rng, broken = np.random.default_rng(0), 0
    for _ in range(200):
        problem = random_problem(rng)
        wrong = Box(problem.box.low, np.where(problem.signs < 0, problem.bounds, problem.box.high))
        true, bound = transfer(problem, wrong, rng)
        broken += true > bound + 1e-12
    assert broken >= 10


@exactly
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
    box = pickle.loads(pickle.dumps(Box([0.0], [1.0])))
    with pytest.raises(ValueError, match="read-only"):
        box.low[0] = 5.0


@pytest.mark.parametrize(
    ("low", "high"), [([1.0], [0.0]), ([np.nan], [1.0]), ([[0.0]], [[1.0]]), (0.0, 1.0)]
)
def test_a_box_needs_two_ends_in_order(low: list[float], high: list[float]) -> None:
    with pytest.raises(ProblemError, match="low <= high"):
        Box(low, high)


def test_a_point_of_the_wrong_size_is_refused_before_the_kernel_reads_past_its_end() -> None:
    with pytest.raises(
        ProblemError, match=r"invalid shape of a point \(1,\): expected 2 numbers, one per limit"
    ):
        Box([0.0, 0.0], [1.0, 1.0]).support([1.0])


def test_rounding_does_not_wake_a_multiplier_at_rest() -> None:
    edge = 0.1 + 0.2  # one bit above 0.3
    assert dual_slope_at(0.0, 0.3, edge, 0.0) == 0.0
    assert dual_slope_at(0.3, 1.0, np.nextafter(0.3, 0), 0.0) == 0.0
    assert dual_slope_at(0.0, 0.3, 0.3 * (1 + 1e-11), 0.0) > 0.0  # more than rounding does
    assert dual_slope_at(0.0, 0.3, edge, 1e-9) > 0.0  # and one that is awake follows every bit
