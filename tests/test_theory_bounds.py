"""The bounds of the theorems: their minimisers, and that simulations stay below them."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from bylot import theory
from bylot.numerics.box import clip_to_unit_ball, dual_slope_at
from bylot.numerics.jit import Floats
from bylot.numerics.sum_max import sum_max
from bylot.problem import Box, Problem, at_least, at_most
from sample_problem import distance_to_box


def project_onto_unit_ball(w: Floats) -> Floats:
    """The nearest point of the unit ball, in a new array."""
    nearest = w.copy()
    clip_to_unit_ball(nearest)
    return nearest


def find_minimiser(f: Callable[[float], float], around: float) -> float:
    """The minimiser of f, found numerically."""
    found = minimize_scalar(
        lambda log: f(float(np.exp(log))),
        bounds=(np.log(around) - 5, np.log(around) + 5),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return float(np.exp(found.x))


def test_eta_star_minimises_theorem_1_and_gives_its_bound() -> None:
    eta = theory.eta_star(500, 7, 3, 0.02)
    best = find_minimiser(lambda eta: theory.theorem_1(500, 7, 3, 0.02, eta), around=eta)
    assert_allclose(best, eta, rtol=1e-6)
    stated = 2 * np.sqrt(2 * 500 * 7 * 3 * (1 / 0.02 + 3 - 1)) / 500
    assert_allclose(theory.theorem_1(500, 7, 3, 0.02), stated, rtol=1e-14)


def test_tight_eta_minimises_the_tight_bound_which_is_half_of_the_stated_one() -> None:
    eta = theory.eta_star(500, 7, 3, 0.02, tight=True)
    best = find_minimiser(
        lambda eta: theory.theorem_1(500, 7, 3, 0.02, eta, tight=True), around=eta
    )
    assert_allclose(best, eta, rtol=1e-6)
    assert_allclose(2 * eta, theory.eta_star(500, 7, 3, 0.02), rtol=1e-14)
    half = theory.theorem_1(500, 7, 3, 0.02) / 2
    assert_allclose(theory.theorem_1(500, 7, 3, 0.02, tight=True), half, rtol=1e-14)


def test_the_rates_of_the_corollary_minimise_it() -> None:
    visits, rate = [5, 100, 395], theory.context_rate(7, 3, 0.02)
    best = find_minimiser(lambda a: theory.corollary_by_visits(visits, 7, 3, 0.02, a), around=rate)
    assert_allclose(best, rate, rtol=1e-6)
    best = find_minimiser(
        lambda a: theory.corollary_by_visits(visits, 7, 3, 0.02, a, tight=True), around=rate
    )
    assert_allclose(best, rate / 2, rtol=1e-6)


@settings(deadline=None, derandomize=True)
@given(
    st.integers(1, 10**6),
    st.integers(2, 100),
    st.integers(1, 10),
    st.floats(0.1, 10),
    st.lists(st.integers(1, 1000), min_size=1, max_size=9),
)
def test_tight_bounds_are_below_stated_ones_and_all_fall_with_time(
    T: int, K: int, M: int, factor: float, visits: list[int]
) -> None:
    floor = 1 / (10 * K)
    eta = factor * theory.eta_star(T, K, M, floor)
    assert theory.theorem_1(T, K, M, floor, eta, tight=True) < theory.theorem_1(T, K, M, floor, eta)
    assert theory.theorem_1(2 * T, K, M, floor) < theory.theorem_1(T, K, M, floor)
    assert theory.sampling_error(T, M, [1.0, factor], tight=True) < theory.sampling_error(
        T, M, [1.0, factor]
    )
    assert theory.sampling_error(2 * T, M, [factor]) < theory.sampling_error(T, M, [factor])
    by_visits = theory.corollary_by_visits(visits, K, M, floor)
    stated = theory.corollary(sum(visits), K, M, floor, len(visits))
    assert by_visits <= stated * (1 + 1e-12)
    assert theory.corollary_by_visits(visits, K, M, floor, tight=True) < by_visits


def test_equal_visits_give_the_corollary_as_stated() -> None:
    by_visits = theory.corollary_by_visits([25] * 4, 7, 3, 0.02)
    assert_allclose(by_visits, theory.corollary(100, 7, 3, 0.02, contexts=4), rtol=1e-14)


def test_equal_cbar_gives_the_form_of_the_paper() -> None:
    T, M, d, cbar = 300, 4, 5, 2.5
    L = np.sqrt(2) + 1 / (np.sqrt(2) * np.log(2 * d))
    paper = M * cbar * L * np.sqrt(d * np.log(2 * d) / T)
    assert_allclose(theory.sampling_error(T, M, np.full(d, cbar)), paper, rtol=1e-14)
    # The last line of the proof of the sampling lemma
    steps = np.sqrt(2 * d * M**2 * cbar**2 * np.log(2 * d) / T) + np.sqrt(
        d * M**2 * cbar**2 / (2 * T * np.log(2 * d))
    )
    assert_allclose(paper, steps, rtol=1e-14)


def test_without_limits_the_bounds_are_0() -> None:
    assert theory.theorem_2(100, 3, [], regret=0.0) == 0.0
    assert theory.slope_bound(Problem(["a", "b"], {}, draws=2)) == 0.0


# The dual player against adversaries. Its regret is max_w sum_t f_t(w) - sum_t f_t(w_t), and the
# first term is T times the distance of the mean of the u_t from the box.

T, D = 400, 3
LOW, HIGH = np.array([0.0, 0.2, 0.5]), np.array([0.3, 0.2, 1.0])
STEEP = float(np.linalg.norm(np.maximum(1.0 - LOW, HIGH - 0.0)))


def compute_dual_regret(step: float, adversary: Callable[[int, Floats], Floats]) -> float:
    """Regret of projected ascent from w = 0 with this step size."""
    w, total = np.zeros(D), np.zeros(D)
    earned = 0.0
    for t in range(1, T + 1):
        u = adversary(t, w)
        earned += float(w @ u - np.maximum(HIGH * w, LOW * w).sum())
        total += u
        g = np.array([dual_slope_at(*one) for one in zip(LOW, HIGH, u, w, strict=True)])
        w = project_onto_unit_ball(w + step * g)
    return T * distance_to_box(Box(LOW, HIGH), total / T) - earned


def constant(t: int, w: Floats) -> Floats:
    return np.array([1.0, 1.0, 0.0])


def alternating(t: int, w: Floats) -> Floats:
    return np.array([t % 2, 1 - t % 2, t % 3 == 0], dtype=np.float64)


def adaptive_adversary(t: int, w: Floats) -> Floats:
    """Costs 0 where w is positive: the adversary stops what the player has learned to penalise."""
    return (w <= 0).astype(np.float64)


def switching(t: int, w: Floats) -> Floats:
    """The second half is the opposite of the first."""
    return np.array([1.0, 1.0, 0.0]) if t <= T // 2 else np.array([0.0, 0.0, 1.0])


@pytest.mark.parametrize("adversary", [constant, alternating, adaptive_adversary, switching])
@pytest.mark.parametrize("size", [0.01, 0.1, 1.0, 2.0])
def test_the_dual_players_regret_stays_below_its_bound(
    adversary: Callable[[int, Floats], Floats], size: float
) -> None:
    regret = compute_dual_regret(size, adversary)
    assert regret <= theory.fixed_step_regret(size, STEEP, T)


def test_a_player_that_never_moves_breaks_the_bound() -> None:
    assert compute_dual_regret(0.0, constant) > theory.fixed_step_regret(0.05, STEEP, T)


def test_the_slope_bound_covers_every_policy_and_every_point_of_the_box() -> None:
    problem = Problem(
        ["a", "b", "c"],
        {"usd": [1.0, 2.0, 4.0], "care": [0.0, 1.0, 0.5]},
        [at_most("usd", 3.0), at_least("care", 0.3)],
        draws=2,
    )
    rng, most = np.random.default_rng(0), theory.slope_bound(problem)
    for _ in range(500):
        u = problem.rows @ rng.dirichlet(np.full(3, 0.2))
        x = rng.uniform(problem.box.low, problem.box.high)
        assert np.linalg.norm(u - x) <= most
    corner = np.array([4.0 - 0.0, max(1.0 - 0.3, 1.0 - 0.0)])
    assert_allclose(most, np.linalg.norm(corner), rtol=1e-14)


def simulate_mean_cost(
    q: Floats, rows: Floats, rounds: int, M: int, rng: np.random.Generator
) -> Floats:
    """Mean cost of the distinct experts over some rounds."""
    draws = rng.choice(q.size, size=(rounds, M), p=q)
    members = (draws[:, :, None] == np.arange(q.size)).any(axis=1)
    mean: Floats = (members @ rows.T).mean(axis=0)
    return mean


def test_the_sampling_error_stays_below_both_bounds() -> None:
    rng, q, M, rounds = np.random.default_rng(1), np.array([0.4, 0.3, 0.2, 0.1]), 2, 50
    rows = np.array([[1.0, 0.0, 1.0, 0.0], [3.0, 1.0, 0.0, 2.0]])
    expected = rows @ (1 - (1 - q) ** M)
    errors = [
        np.linalg.norm(simulate_mean_cost(q, rows, rounds, M, rng) - expected) for _ in range(400)
    ]
    assert np.mean(errors) < theory.sampling_error(rounds, M, rows.max(axis=1), tight=True)
    assert np.mean(errors) < theory.sampling_error(rounds, M, rows.max(axis=1))
    # and the bound is not vacuous: it would fail for a hundred times as many rounds
    assert np.mean(errors) > theory.sampling_error(100 * rounds, M, rows.max(axis=1), tight=True)


def test_the_second_moment_bounds_the_gradient_estimate_for_every_panel_reward() -> None:
    rng, K, M, floor = np.random.default_rng(2), 4, 3, 0.05
    values, q = rng.random((1, K)), floor + (1 - K * floor) * rng.dirichlet(np.ones(K))
    mean = 0.0
    for draws_tuple in np.ndindex(*(K,) * M):
        draws = np.array(draws_tuple)
        g = sum_max(values, draws) * np.bincount(draws, minlength=K) / q
        mean += q[draws].prod() * (g @ g)
    assert mean <= theory.second_moment(K, M, floor)
