"""Sets of exactly M experts: by enumeration, in exact arithmetic, and by their properties."""

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
    fill_inclusion,
    find_last_member,
    log_fixed_set_probability,
    restrict_logits,
)
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.philox import RngKey
from bylot.policies.distinct import add_panel_score

fuzz_settings = settings(deadline=None, derandomize=True, max_examples=150)
MIN_P_VALUE = 1e-4  # the seeds are fixed, so a correct sampler never fails


class SetDistribution(NamedTuple):
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


def make_distribution(theta: Any, M: int) -> SetDistribution:
    theta = np.array(theta, float)
    table, coins, pi = np.empty((theta.size + 1, M + 1)), np.empty(theta.size), np.empty(theta.size)
    log_z = fill_count_table(table, coins, theta, M)
    fill_inclusion(pi, table, coins, M)
    return SetDistribution(theta, M, log_z, pi, table, coins)


def list_sets(K: int, M: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(K), M))


def prefix_sums(x: list[Any], M: int) -> list[list[Any]]:
    """e_0 to e_M of the first k numbers, for every k."""
    zero, one = type(x[0])(0), type(x[0])(1)
    out = [[one] + [zero] * M]
    for v in x:
        last = out[-1]
        out.append([one] + [last[m] + v * last[m - 1] for m in range(1, M + 1)])
    return out


def compute_exactly(x: list[Any], M: int) -> tuple[Any, list[float]]:
    """e_M(x), and x_i e_{M-1}(x without i) / e_M(x), in the arithmetic of the numbers given."""
    before, after = prefix_sums(x, M), prefix_sums(x[::-1], M)[::-1]
    total, pi = before[-1][M], []
    for i, xi in enumerate(x):
        draw_other_members = sum(
            (before[i][m] * after[i + 1][M - 1 - m] for m in range(M)), type(xi)(0)
        )
        pi.append(float(xi * draw_other_members / total))
    return total, pi


def compute_in_decimals(theta: Floats, M: int) -> tuple[float, Floats]:
    """log Z and pi with 60 digits and any exponent."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 60, 10**9, -(10**9)
        total, pi = compute_exactly([Decimal(float(t)).exp() for t in theta], M)
        return float(total.ln()), np.array(pi)


@pytest.mark.parametrize("K", range(1, 9))
@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 300.0])
def test_sets_of_small_pools_have_the_enumerated_probability(K: int, scale: float) -> None:
    theta = scale * np.random.default_rng(K).uniform(-1, 1, K)
    for M in range(1, K + 1):
        found, all_sets = make_distribution(theta, M), list_sets(K, M)
        logs = np.array([theta[list(a)].sum() for a in all_sets])
        top = logs.max()
        log_z = top + math.log(np.exp(logs - top).sum())
        assert_allclose(found.log_z, log_z, rtol=1e-14, atol=1e-13)
        assert_allclose([found.log(a) for a in all_sets], logs - log_z, rtol=1e-12, atol=1e-12)
        pi = np.zeros(K)
        for a, log in zip(all_sets, logs, strict=True):
            pi[list(a)] += math.exp(log - log_z)
        assert_allclose(found.pi, pi, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize(("K", "M"), [(12, 5), (30, 3), (40, 20), (60, 10), (25, 24)])
def test_rational_arithmetic_agrees(K: int, M: int) -> None:
    weights = [Fraction(int(n), 997) for n in np.random.default_rng(K).integers(1, 10**6, K)]
    found = make_distribution(np.log(np.array(weights, float)), M)
    total, pi = compute_exactly(weights, M)
    assert_allclose(found.pi, pi, rtol=1e-12)
    log = math.log(total.numerator) - math.log(total.denominator)
    assert_allclose(found.log_z, log, rtol=1e-13)


def make_hard_logits(kind: str, K: int) -> Floats:
    """Logits that are hard to sum over, by name."""
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


HARD_POOLS = [
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


@pytest.mark.parametrize("kind", HARD_POOLS)
@pytest.mark.parametrize(("K", "M"), [(60, 5), (200, 50), (40, 39)])
def test_hard_pools_are_computed_accurately(kind: str, K: int, M: int) -> None:
    theta = make_hard_logits(kind, K)
    found, (log_z, pi) = make_distribution(theta, M), compute_in_decimals(theta, M)
    assert_allclose(found.log_z, log_z, rtol=1e-14, atol=1e-12)
    assert_allclose(found.pi, pi, rtol=1e-11, atol=1e-290)
    assert found.pi.min() > 0.0 or kind == "far apart"  # beyond the range of numbers
    assert found.pi.max() <= 1.0
    assert found.pi.sum() == pytest.approx(M, rel=1e-13)


def test_sums_of_plain_products_would_fail_the_test_above() -> None:
    theta = make_hard_logits("low, then high", 200)
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
def test_ten_thousand_experts_and_fifty_members(kind: str) -> None:
    theta = make_hard_logits(kind, 10_000)
    found, (log_z, pi) = make_distribution(theta, 50), compute_in_decimals(theta, 50)
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
def test_the_last_member_follows_the_prefix_sums(kind: str) -> None:
    K, m = 1_000, 4
    theta = make_hard_logits(kind, K)
    found = make_distribution(theta, m)
    assert found.table[K, 0] > MIN_DIVISOR
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 60, 10**9, -(10**9)
        sums = prefix_sums([Decimal(float(t)).exp() for t in theta], m)
        below = np.array([float(row[m] / sums[-1][m]) for row in sums])
    for u in np.random.default_rng(0).random(500):
        j = find_last_member(found.table, K, m, u)
        assert below[j] - 1e-12 <= u <= below[j + 1] + 1e-12


def test_one_member_is_softmax_all_members_are_certain_and_equal_logits_share() -> None:
    theta = np.random.default_rng(1).normal(0, 3, 9)
    assert_allclose(make_distribution(theta, 1).pi, np.exp(theta) / np.exp(theta).sum(), rtol=1e-14)
    assert make_distribution(theta, 1).log_z == pytest.approx(
        math.log(np.exp(theta).sum()), rel=1e-14
    )
    assert_array_equal(make_distribution(theta, 9).pi, 1.0)
    assert make_distribution(theta, 9).log_z == pytest.approx(theta.sum(), rel=1e-13)
    assert_array_equal(make_distribution(theta, 9).draw(0), range(9))
    assert_allclose(make_distribution(np.full(9, 2.5), 4).pi, 4 / 9, rtol=1e-14)
    assert make_distribution(np.full(9, 2.5), 4).log_z == pytest.approx(
        math.log(math.comb(9, 4)) + 10
    )
    alone = make_distribution([-50.0], 1)
    assert (alone.pi[0], alone.log_z, alone.draw(0)[0]) == (1.0, -50.0, 0)


pools = st.lists(st.floats(-30, 30), min_size=2, max_size=12)


@fuzz_settings
@given(raw=pools, data=st.data())
def test_inclusion_probabilities_have_their_properties(
    raw: list[float], data: st.DataObject
) -> None:
    theta, K = np.array(raw), len(raw)
    M = data.draw(st.integers(1, K - 1))
    pi = make_distribution(theta, M).pi
    assert ((pi > 0) & (pi <= 1)).all()
    assert pi.sum() == pytest.approx(M, rel=1e-13)
    order = np.argsort(theta)
    assert (np.diff(pi[order]) >= -1e-14).all()
    permutation = np.array(data.draw(st.permutations(range(K))))
    assert_allclose(make_distribution(theta[permutation], M).pi, pi[permutation], rtol=1e-12)
    shift = data.draw(st.floats(-1000, 1000))
    assert_allclose(make_distribution(theta + shift, M).pi, pi, rtol=1e-10)
    assert make_distribution(theta + shift, M).log_z == pytest.approx(
        make_distribution(theta, M).log_z + M * shift, abs=1e-9
    )
    # The complement: the experts that are left out
    assert_allclose(make_distribution(-theta, K - M).pi, 1.0 - pi, rtol=1e-9, atol=1e-15)
    one = data.draw(st.integers(0, K - 1))
    raised = make_distribution(theta + np.eye(K)[one], M).pi
    assert raised[one] >= pi[one]
    draw_other_members = np.arange(K) != one
    assert (raised[draw_other_members] <= pi[draw_other_members] + 1e-15).all()


THETA = np.array([1.5, -0.5, 0.0, 2.5, -1.0, 0.7])


def chi_square_p_value(
    draw: Callable[[int], Ints], distribution: SetDistribution, n: int = 40_000
) -> float:
    """p-value of n draws of sets, by chi-square against a distribution."""
    count = dict.fromkeys(list_sets(distribution.theta.size, distribution.M), 0)
    for t in range(n):
        count[tuple(draw(t))] += 1
    expected = np.array([n * math.exp(distribution.log(a)) for a in count])
    assert expected.min() > 5
    return float(stats.chisquare(list(count.values()), expected, sum_check=False).pvalue)


@pytest.mark.parametrize("M", range(1, 6))
def test_sets_are_drawn_with_their_probability(M: int) -> None:
    assert (
        chi_square_p_value(make_distribution(THETA, M).draw, make_distribution(THETA, M))
        > MIN_P_VALUE
    )


@pytest.mark.parametrize("M", range(1, 6))
def test_the_test_above_would_notice_a_theta_off_by_a_tenth(M: int) -> None:
    assert (
        chi_square_p_value(
            make_distribution(THETA, M).draw, make_distribution(THETA + 0.1 * np.eye(6)[2], M)
        )
        < MIN_P_VALUE
    )


@pytest.mark.parametrize("M", range(1, 6))
def test_a_certain_member_does_not_change_the_draws_of_the_others(M: int) -> None:
    with_certain = make_distribution(np.append(900.0, THETA), M + 1)
    # Members are then drawn one coin at a time
    assert with_certain.table[1:, 0].max() <= MIN_DIVISOR

    def draw_other_members(t: int) -> Ints:
        members = with_certain.draw(t)
        assert members[0] == 0
        return members[1:] - 1

    assert chi_square_p_value(draw_other_members, make_distribution(THETA, M)) > MIN_P_VALUE
    assert (
        chi_square_p_value(draw_other_members, make_distribution(THETA + 0.1 * np.eye(6)[2], M))
        < MIN_P_VALUE
    )


@pytest.mark.parametrize("kind", HARD_POOLS)
def test_every_draw_is_of_different_experts_in_order(kind: str) -> None:
    found = make_distribution(make_hard_logits(kind, 60), 7)
    for t in range(2_000):
        members = found.draw(t)
        assert members.shape == (7,)
        assert (np.diff(members) > 0).all()
        assert members[0] >= 0
        assert members[-1] < 60


def test_draws_from_large_pools_follow_the_inclusion_probabilities() -> None:
    found, n, count = make_distribution(make_hard_logits("policy", 400), 30), 5_000, np.zeros(400)
    for t in range(n):
        count[found.draw(t)] += 1
    frequent = n * found.pi * (1 - found.pi) > 25
    z = (count - n * found.pi)[frequent] / np.sqrt(n * found.pi * (1 - found.pi))[frequent]
    assert frequent.sum() > 50
    assert np.abs(z).max() < 5


def test_the_same_round_draws_the_same_set_and_another_stream_another() -> None:
    found = make_distribution(np.zeros(50), 5)
    assert_array_equal(found.draw(4), found.draw(4))
    other = draw_set(found.table, found.coins, 5, RngKey(7, 4), 8)
    assert (found.draw(4) != other).any()


@pytest.mark.parametrize("M", [1, 2, 3])
def test_unavailable_experts_do_not_change_the_distribution_of_the_others(M: int) -> None:
    available = np.array([True, False, True, True, False, True])
    part, total = (
        make_distribution(THETA[available], M),
        make_distribution(restrict_logits(THETA, available), M),
    )
    assert total.log_z == pytest.approx(part.log_z, rel=1e-14)
    assert_allclose(total.pi[available], part.pi, rtol=1e-14)
    assert_array_equal(total.pi[~available], 0.0)
    names = np.flatnonzero(available)
    for a in list_sets(4, M):
        assert total.log(names[list(a)]) == pytest.approx(part.log(a), abs=1e-14)
    assert all(available[total.draw(t)].all() for t in range(500))


def test_if_fewer_are_available_than_members_all_are_drawn() -> None:
    available = np.array([False, True, False, False, True, False])
    found = make_distribution(restrict_logits(THETA, available), min(4, int(available.sum())))
    assert_array_equal(found.pi, available)
    assert_array_equal(found.draw(0), [1, 4])
    assert found.log([1, 4]) == pytest.approx(0.0, abs=1e-15)


def test_an_empty_mask_means_all_are_available() -> None:
    assert_array_equal(restrict_logits(THETA, np.empty(0, np.bool_)), THETA)


def test_a_table_can_have_more_columns_than_needed() -> None:
    table, coins, pi = np.full((7, 6), np.nan), np.empty(6), np.empty(6)
    log_z = fill_count_table(table, coins, THETA, 2)
    fill_inclusion(pi, table, coins, 2)
    assert log_z == make_distribution(THETA, 2).log_z
    assert_array_equal(pi, make_distribution(THETA, 2).pi)
    assert_array_equal(
        draw_set(table, coins, 2, RngKey(7, 1), 3), make_distribution(THETA, 2).draw(1)
    )


def test_the_score_is_the_gradient_of_the_log_probability_and_has_mean_zero() -> None:
    found, mean, h = make_distribution(THETA, 3), np.zeros(6), 1e-5
    for a in list_sets(6, 3):
        scores = np.zeros((1, 6))
        add_panel_score(scores, 0, np.array(a), found.pi, 1.0)
        score = scores[0]
        steps = h * np.eye(6)
        slope = [
            (make_distribution(THETA + s, 3).log(a) - make_distribution(THETA - s, 3).log(a))
            / (2 * h)
            for s in steps
        ]
        assert_allclose(score, slope, atol=1e-9)
        mean += math.exp(found.log(a)) * score
    assert_allclose(mean, 0.0, atol=1e-14)


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_the_score_agrees_with_difference_quotients_of_sixty_digits(scale: float) -> None:
    theta, M, h = scale * THETA, 3, Decimal("1e-20")

    def log(members: tuple[int, ...], changed: int, by: Decimal) -> Decimal:
        exact = [Decimal(float(t)) for t in theta]
        exact[changed] += by
        total: Decimal = prefix_sums([t.exp() for t in exact], M)[-1][M]
        return sum(exact[i] for i in members) - total.ln()

    found = make_distribution(theta, M)
    with localcontext() as context:
        context.prec = 60
        for a in list_sets(6, M):
            score = -found.pi
            score[list(a)] += 1.0
            slope = [float((log(a, i, h) - log(a, i, -h)) / (2 * h)) for i in range(6)]
            assert_allclose(score, slope, rtol=1e-12, atol=1e-15)
