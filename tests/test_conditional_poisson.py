"""The law of exactly M experts: by enumeration, in rational and decimal arithmetic, by its laws."""

import itertools
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from bylot.numerics.conditional_poisson import (
    MIN_DIVISOR,
    draw_set,
    fill_count_table,
    fill_fixed_set_score,
    fill_inclusion,
    find_last_member,
    log_fixed_set_probability,
    restrict_logits,
)
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.philox import RngKey

LAWS = settings(deadline=None, derandomize=True, max_examples=150)
UNLIKELY = 1e-4  # a p-value below it would be noticed; the seeds are fixed, so it happens never


class Law(NamedTuple):
    theta: Floats
    M: int
    log_z: float
    pi: Floats
    table: Floats
    coins: Floats

    def draw(self, t: int) -> Ints:
        return draw_set(self.table, self.coins, self.M, RngKey(7, t), 3)

    def log(self, members: Any) -> float:
        return log_fixed_set_probability(np.array(members, np.int64), self.theta, self.log_z)


def law(theta: Any, M: int) -> Law:
    theta = np.array(theta, float)
    table, coins, pi = np.empty((theta.size + 1, M + 1)), np.empty(theta.size), np.empty(theta.size)
    log_z = fill_count_table(table, coins, theta, M)
    fill_inclusion(pi, table, coins, M)
    return Law(theta, M, log_z, pi, table, coins)


def sets(K: int, M: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(K), M))


def prefixes(x: list[Any], M: int) -> list[list[Any]]:
    """e_0 to e_M of the first k numbers, for every k."""
    nought, one = type(x[0])(0), type(x[0])(1)
    out = [[one] + [nought] * M]
    for v in x:
        last = out[-1]
        out.append([one] + [last[m] + v * last[m - 1] for m in range(1, M + 1)])
    return out


def exactly(x: list[Any], M: int) -> tuple[Any, list[float]]:
    """e_M(x), and x_i e_{M-1}(x without i) / e_M(x), in the arithmetic of the numbers given."""
    before, after = prefixes(x, M), prefixes(x[::-1], M)[::-1]
    whole, pi = before[-1][M], []
    for i, xi in enumerate(x):
        others = sum((before[i][m] * after[i + 1][M - 1 - m] for m in range(M)), type(xi)(0))
        pi.append(float(xi * others / whole))
    return whole, pi


def in_decimals(theta: Floats, M: int) -> tuple[float, Floats]:
    """log Z and pi with 60 digits and any exponent."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 60, 10**9, -(10**9)
        whole, pi = exactly([Decimal(float(t)).exp() for t in theta], M)
        return float(whole.ln()), np.array(pi)


@pytest.mark.parametrize("K", range(1, 9))
@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 300.0])
def test_all_sets_of_small_pools_have_their_probability(K: int, scale: float) -> None:
    theta = scale * np.random.default_rng(K).uniform(-1, 1, K)
    for M in range(1, K + 1):
        found, every = law(theta, M), sets(K, M)
        logs = np.array([theta[list(a)].sum() for a in every])
        top = logs.max()
        log_z = top + math.log(np.exp(logs - top).sum())
        assert_allclose(found.log_z, log_z, rtol=1e-14, atol=1e-13)
        assert_allclose([found.log(a) for a in every], logs - log_z, rtol=1e-12, atol=1e-12)
        pi = np.zeros(K)
        for a, log in zip(every, logs, strict=True):
            pi[list(a)] += math.exp(log - log_z)
        assert_allclose(found.pi, pi, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize(("K", "M"), [(12, 5), (30, 3), (40, 20), (60, 10), (25, 24)])
def test_rational_arithmetic_agrees(K: int, M: int) -> None:
    weights = [Fraction(int(n), 997) for n in np.random.default_rng(K).integers(1, 10**6, K)]
    found = law(np.log(np.array(weights, float)), M)
    whole, pi = exactly(weights, M)
    assert_allclose(found.pi, pi, rtol=1e-12)
    log = math.log(whole.numerator) - math.log(whole.denominator)
    assert_allclose(found.log_z, log, rtol=1e-13)


def pool(kind: str, K: int) -> Floats:
    """Theta that are hard to sum over, known by a word."""
    rng = np.random.default_rng(K)
    kinds = {
        "equal": np.zeros(K),
        "policy": rng.uniform(-10, 8, K),
        "wide": rng.uniform(-300, 300, K),
        "rising": np.linspace(-300, 300, K),
        "falling": np.linspace(300, -300, K),
        "low, then high": np.repeat([-300.0, 300.0], [K // 2, K - K // 2]),
        "high, then low": np.repeat([300.0, -300.0], [K // 2, K - K // 2]),
        "few giants": np.where(np.arange(K) % (K // 3) == 1, 300.0, -300.0),
        "far off": 1e4 + rng.standard_normal(K),
        "far apart": 1e5 * rng.standard_normal(K),
        "fifty above": np.where(rng.permutation(K) < 50, 40.0, -40.0),
        "fifty-one tied": np.where(rng.permutation(K) < 51, 300.0, -300.0),
        "at both ends": np.where(rng.random(K) < 0.005, 8.0, -10.0),
    }
    return kinds[kind]


EVERY = [
    "equal",
    "policy",
    "wide",
    "rising",
    "falling",
    "low, then high",
    "high, then low",
    "few giants",
    "far off",
    "far apart",
    "fifty above",
    "fifty-one tied",
    "at both ends",
]


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize(("K", "M"), [(60, 5), (200, 50), (40, 39)])
def test_hard_pools_keep_their_digits(kind: str, K: int, M: int) -> None:
    theta = pool(kind, K)
    found, (log_z, pi) = law(theta, M), in_decimals(theta, M)
    assert_allclose(found.log_z, log_z, rtol=1e-14, atol=1e-12)
    assert_allclose(found.pi, pi, rtol=1e-11, atol=1e-290)
    assert found.pi.min() > 0.0 or kind == "far apart"  # by more than any number can tell
    assert found.pi.max() <= 1.0
    assert found.pi.sum() == pytest.approx(M, rel=1e-13)


def test_sums_of_plain_products_would_fail_the_test_above() -> None:
    theta = pool("low, then high", 200)
    e = np.zeros(51)
    e[0] = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        for x in np.exp(theta):
            e[1:] += x * e[:-1]
    assert not np.isfinite(e[50])


@pytest.mark.parametrize(
    "kind",
    ["equal", "policy", "wide", "rising", "far apart", "fifty above", "fifty-one tied"],
)
def test_ten_thousand_experts_and_fifty_places(kind: str) -> None:
    theta = pool(kind, 10_000)
    found, (log_z, pi) = law(theta, 50), in_decimals(theta, 50)
    assert_allclose(found.log_z, log_z, rtol=1e-13)
    assert_allclose(found.pi, pi, rtol=1e-10, atol=1e-290)
    assert found.pi.sum() == pytest.approx(50, rel=1e-12)
    members = found.draw(0)
    assert (np.diff(members) > 0).all()
    log = math.fsum(theta[members]) - log_z
    assert found.log(members) == pytest.approx(log, rel=1e-12, abs=1e-13 * abs(log_z))


@pytest.mark.parametrize(
    "kind", ["equal", "policy", "far off", "fifty above", "fifty-one tied", "at both ends"]
)
def test_the_last_member_is_below_j_with_the_share_of_e_m_that_the_first_j_have(kind: str) -> None:
    K, m = 1_000, 4
    theta = pool(kind, K)
    found = law(theta, m)
    assert found.table[K, 0] > MIN_DIVISOR
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 60, 10**9, -(10**9)
        sums = prefixes([Decimal(float(t)).exp() for t in theta], m)
        below = np.array([float(row[m] / sums[-1][m]) for row in sums])
    for u in np.random.default_rng(0).random(500):
        j = find_last_member(found.table, K, m, u)
        assert below[j] - 1e-12 <= u <= below[j + 1] + 1e-12


def test_one_of_them_is_softmax_all_of_them_is_certain_and_equals_share() -> None:
    theta = np.random.default_rng(1).normal(0, 3, 9)
    assert_allclose(law(theta, 1).pi, np.exp(theta) / np.exp(theta).sum(), rtol=1e-14)
    assert law(theta, 1).log_z == pytest.approx(math.log(np.exp(theta).sum()), rel=1e-14)
    assert_array_equal(law(theta, 9).pi, 1.0)
    assert law(theta, 9).log_z == pytest.approx(theta.sum(), rel=1e-13)
    assert_array_equal(law(theta, 9).draw(0), range(9))
    assert_allclose(law(np.full(9, 2.5), 4).pi, 4 / 9, rtol=1e-14)
    assert law(np.full(9, 2.5), 4).log_z == pytest.approx(math.log(math.comb(9, 4)) + 10)
    alone = law([-50.0], 1)
    assert (alone.pi[0], alone.log_z, alone.draw(0)[0]) == (1.0, -50.0, 0)


pools = st.lists(st.floats(-30, 30), min_size=2, max_size=12)


@LAWS
@given(raw=pools, data=st.data())
def test_the_chances_obey_their_laws(raw: list[float], data: st.DataObject) -> None:
    theta, K = np.array(raw), len(raw)
    M = data.draw(st.integers(1, K - 1))
    pi = law(theta, M).pi
    assert ((pi > 0) & (pi <= 1)).all()
    assert pi.sum() == pytest.approx(M, rel=1e-13)
    order = np.argsort(theta)
    assert (np.diff(pi[order]) >= -1e-14).all()
    turn = np.array(data.draw(st.permutations(range(K))))
    assert_allclose(law(theta[turn], M).pi, pi[turn], rtol=1e-12)
    shift = data.draw(st.floats(-1000, 1000))
    assert_allclose(law(theta + shift, M).pi, pi, rtol=1e-10)
    assert law(theta + shift, M).log_z == pytest.approx(law(theta, M).log_z + M * shift, abs=1e-9)
    assert_allclose(law(-theta, K - M).pi, 1.0 - pi, rtol=1e-9, atol=1e-15)  # those left out
    one = data.draw(st.integers(0, K - 1))
    raised = law(theta + np.eye(K)[one], M).pi
    assert raised[one] >= pi[one]
    others = np.arange(K) != one
    assert (raised[others] <= pi[others] + 1e-15).all()


THETA = np.array([1.5, -0.5, 0.0, 2.5, -1.0, 0.7])


def surprise(draw: Callable[[int], Ints], believed: Law, n: int = 40_000) -> float:
    """p-value of n draws of sets, by chi-square against those believed."""
    count = dict.fromkeys(sets(believed.theta.size, believed.M), 0)
    for t in range(n):
        count[tuple(draw(t))] += 1
    expected = np.array([n * math.exp(believed.log(a)) for a in count])
    assert expected.min() > 5
    return float(stats.chisquare(list(count.values()), expected, sum_check=False).pvalue)


@pytest.mark.parametrize("M", range(1, 6))
def test_sets_are_drawn_with_their_probability(M: int) -> None:
    assert surprise(law(THETA, M).draw, law(THETA, M)) > UNLIKELY


@pytest.mark.parametrize("M", range(1, 6))
def test_the_test_above_would_notice_a_theta_off_by_a_tenth(M: int) -> None:
    assert surprise(law(THETA, M).draw, law(THETA + 0.1 * np.eye(6)[2], M)) < UNLIKELY


@pytest.mark.parametrize("M", range(1, 6))
def test_beside_one_who_is_sure_they_are_drawn_with_the_same_probability(M: int) -> None:
    sure = law(np.append(900.0, THETA), M + 1)
    assert sure.table[1:, 0].max() <= MIN_DIVISOR  # coin by coin, then

    def others(t: int) -> Ints:
        members = sure.draw(t)
        assert members[0] == 0
        return members[1:] - 1

    assert surprise(others, law(THETA, M)) > UNLIKELY
    assert surprise(others, law(THETA + 0.1 * np.eye(6)[2], M)) < UNLIKELY


@pytest.mark.parametrize("kind", EVERY)
def test_every_draw_is_of_different_experts_in_order(kind: str) -> None:
    found = law(pool(kind, 60), 7)
    for t in range(2_000):
        members = found.draw(t)
        assert members.shape == (7,)
        assert (np.diff(members) > 0).all()
        assert members[0] >= 0
        assert members[-1] < 60


def test_large_pools_are_drawn_as_often_as_said() -> None:
    found, n, count = law(pool("policy", 400), 30), 5_000, np.zeros(400)
    for t in range(n):
        count[found.draw(t)] += 1
    some = n * found.pi * (1 - found.pi) > 25
    z = (count - n * found.pi)[some] / np.sqrt(n * found.pi * (1 - found.pi))[some]
    assert some.sum() > 50
    assert np.abs(z).max() < 5


def test_the_same_round_draws_the_same_set_and_another_stream_another() -> None:
    found = law(np.zeros(50), 5)
    assert_array_equal(found.draw(4), found.draw(4))
    other = draw_set(found.table, found.coins, 5, RngKey(7, 4), 8)
    assert (found.draw(4) != other).any()


@pytest.mark.parametrize("M", [1, 2, 3])
def test_experts_that_are_down_leave_the_law_of_the_others(M: int) -> None:
    up = np.array([True, False, True, True, False, True])
    part, whole = law(THETA[up], M), law(restrict_logits(THETA, up), M)
    assert whole.log_z == pytest.approx(part.log_z, rel=1e-14)
    assert_allclose(whole.pi[up], part.pi, rtol=1e-14)
    assert_array_equal(whole.pi[~up], 0.0)
    names = np.flatnonzero(up)
    for a in sets(4, M):
        assert whole.log(names[list(a)]) == pytest.approx(part.log(a), abs=1e-14)
    assert all(up[whole.draw(t)].all() for t in range(500))


def test_fewer_up_than_places_are_all_taken() -> None:
    up = np.array([False, True, False, False, True, False])
    found = law(restrict_logits(THETA, up), min(4, int(up.sum())))
    assert_array_equal(found.pi, up)
    assert_array_equal(found.draw(0), [1, 4])
    assert found.log([1, 4]) == pytest.approx(0.0, abs=1e-15)


def test_an_empty_mask_stands_for_all() -> None:
    assert_array_equal(restrict_logits(THETA, np.empty(0, np.bool_)), THETA)


def test_a_table_with_more_columns_than_needed_serves() -> None:
    table, coins, pi = np.full((7, 6), np.nan), np.empty(6), np.empty(6)
    log_z = fill_count_table(table, coins, THETA, 2)
    fill_inclusion(pi, table, coins, 2)
    assert log_z == law(THETA, 2).log_z
    assert_array_equal(pi, law(THETA, 2).pi)
    assert_array_equal(draw_set(table, coins, 2, RngKey(7, 1), 3), law(THETA, 2).draw(1))


def test_the_score_is_the_gradient_of_the_log_probability_and_has_mean_zero() -> None:
    found, score, mean, h = law(THETA, 3), np.empty(6), np.zeros(6), 1e-5
    for a in sets(6, 3):
        fill_fixed_set_score(score, np.array(a), found.pi)
        steps = h * np.eye(6)
        slope = [(law(THETA + s, 3).log(a) - law(THETA - s, 3).log(a)) / (2 * h) for s in steps]
        assert_allclose(score, slope, atol=1e-9)
        mean += math.exp(found.log(a)) * score
    assert_allclose(mean, 0.0, atol=1e-14)


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_the_score_agrees_with_differences_of_sixty_digits(scale: float) -> None:
    theta, M, h = scale * THETA, 3, Decimal("1e-20")

    def log(members: tuple[int, ...], moved: int, by: Decimal) -> Decimal:
        exact = [Decimal(float(t)) for t in theta]
        exact[moved] += by
        whole: Decimal = prefixes([t.exp() for t in exact], M)[-1][M]
        return sum(exact[i] for i in members) - whole.ln()

    found, score = law(theta, M), np.empty(6)
    with localcontext() as context:
        context.prec = 60
        for a in sets(6, M):
            fill_fixed_set_score(score, np.array(a), found.pi)
            slope = [float((log(a, i, h) - log(a, i, -h)) / (2 * h)) for i in range(6)]
            assert_allclose(score, slope, rtol=1e-12, atol=1e-15)
