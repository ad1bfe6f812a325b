"""The noisy-or posterior: the formulas in plain NumPy, exact integrals, alarms after a change."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bylot.numerics.covariance_root import (
    add_root_samples,
    compute_variances,
    fill_cholesky_root,
    fill_root_product,
    raise_variance,
    reduce_root,
    scale_root,
)
from bylot.numerics.jit import Floats, Ints
from bylot.policies.noisy_or_posterior import (
    Posterior,
    compute_drift_threshold,
    estimate_noise,
    grow_covariance,
    make_prior,
    sample_posterior,
    update_posterior,
)
from noisy_or_reference import ReferenceBelief

K, M = 8, 3


def covariance(belief: Posterior) -> Floats:
    """P = T'T."""
    return np.asarray(belief.root.T @ belief.root)


def observe(belief: Posterior, members: Ints, reward: float, x: int = 0) -> None:
    """Update by the reward of a set."""
    update_posterior(belief, x, members, members, np.ones(members.size), 0.0, reward)


def open_contexts(count: int, size: int = K, members: int = M) -> Posterior:
    """A prior for so many contexts, all of which were visited."""
    belief = make_prior(count, size, members)
    belief.deviations.contexts[0] = count
    return belief


def make_rewards_of_random_sets(
    seed: int, rounds: int, switch: int | None = None
) -> list[tuple[Ints, float]]:
    """Random sets, and the share of eight questions they answer; skills reverse at the switch."""
    rng = np.random.default_rng(seed)
    misses, rewards = rng.uniform(0.3, 0.95, K), []
    for t in range(rounds):
        if t == switch:
            misses = 1.25 - misses
        members = rng.permutation(K)[:M]
        rewards.append((members, float((rng.random(8) > misses[members].prod()).mean())))
    return rewards


def find_alarms(rounds: list[tuple[Ints, float]]) -> list[int]:
    """The rounds in which the variance of an expert increased."""
    belief, fired = make_prior(1, K, M), []
    for t, (members, reward) in enumerate(rounds):
        before = np.trace(covariance(belief))
        observe(belief, members, reward)
        if np.trace(covariance(belief)) > before + 1e-9:
            fired.append(t)
    return fired


@pytest.mark.parametrize(("switch", "contexts"), [(None, 1), (400, 1), (400, 3)])
def test_an_update_follows_the_formulas(switch: int | None, contexts: int) -> None:
    belief, reference = open_contexts(contexts), ReferenceBelief(K, M, contexts)
    reference.used = set(range(contexts))
    for t, (members, reward) in enumerate(make_rewards_of_random_sets(1, 800, switch)):
        x = t * t % contexts
        observe(belief, members, reward, x)
        reference.learn(x, members, reward)
        found, deviations = belief, belief.deviations
        assert_allclose(found.beta, reference.beta, atol=1e-9)
        assert_allclose(covariance(found), reference.P, atol=1e-9)
        assert_allclose(found.noise, reference.noise, rtol=1e-9)
        assert_allclose(found.drift, reference.e, atol=1e-9)
        assert_allclose(deviations.moment, reference.moment, atol=1e-9)
        assert_allclose(deviations.info, reference.info, atol=1e-8)
        assert_allclose(deviations.offset, reference.a, atol=1e-9)
        assert_allclose(deviations.offset_variance, reference.V, atol=1e-9)
        assert_allclose(deviations.spread, reference.tau2, atol=1e-9)
    assert belief.is_valid(None)
    assert (reference.alarms > 0) == (switch is not None)
    assert contexts == 1 or reference.tau2 != 0.02


def test_an_update_is_near_the_exact_posterior_of_a_poisson_count() -> None:
    """y / phi ~ Poisson(mu / phi), whose posterior is integrated on a grid of b_1, b_2 and d."""
    phi, sd, spread = 0.3, math.sqrt(0.5), math.sqrt(0.02)
    grid = np.linspace(-4, 4, 161)
    b, c, d = np.meshgrid(grid * sd, grid * sd, grid * spread, indexing="ij")
    prior = np.exp(-0.5 * ((b / sd) ** 2 + (c / sd) ** 2 + (d / spread) ** 2))
    start = math.log(0.4) / 2
    rate = np.exp(2 * start + b + c + d) / phi
    for n in (0, 1, 2, 3):
        belief = open_contexts(2, 2, 2)
        belief.deviations.offset_variance[:] = 1e-12
        belief.deviations.info[:, 1] = 1e12  # the second expert deviates in no context
        observe(belief, np.array([0, 1]), 1 - n * phi)
        weights = prior * rate**n * np.exp(-rate)
        weights /= weights.sum()
        means = [float((weights * one).sum()) for one in (b, c, d)]
        assert_allclose(belief.beta - start, means[:2], atol=0.12)
        found = belief.deviations.moment[0, 0] / (belief.deviations.info[0, 0] + 50)
        assert found == pytest.approx(means[2], abs=0.01)
        assert np.sign(found) == np.sign(means[2]) == np.sign(n - 1.4)
        exact = [
            float((weights * (one - mean) ** 2).sum())
            for one, mean in zip((b, c), means[:2], strict=True)
        ]
        assert_allclose(np.diag(covariance(belief)), exact, atol=0.1)
        assert max(exact) < 0.5


def test_a_context_learns_its_deviation_and_leaves_those_of_others() -> None:
    belief, rng = open_contexts(3), np.random.default_rng(0)
    for _ in range(3_000):
        x, members = int(rng.integers(2)), rng.permutation(K)[:M]
        miss = np.full(K, 0.7)
        miss[0] = (0.3, 0.9)[x]
        observe(belief, members, float((rng.random(8) > miss[members].prod()).mean()), x)
    deviations = belief.deviations
    d = deviations.moment / (deviations.info + 1 / deviations.spread[0])
    assert d[0, 0] < -0.2 < 0.2 < d[1, 0]
    assert np.abs(d[:2, 1:]).max() < 0.15
    assert_allclose(d[2], 0.0)
    assert deviations.spread[0] > 0.02  # contexts differ more than the prior says


def test_the_spread_of_contexts_without_differences_shrinks() -> None:
    belief, rng = open_contexts(4), np.random.default_rng(0)
    for _ in range(6_000):
        x, members = int(rng.integers(4)), rng.permutation(K)[:M]
        observe(belief, members, float((rng.random(8) > 0.7**M).mean()), x)
    assert belief.deviations.spread[0] < 0.005


@pytest.mark.parametrize("switch", [None, 25_000])
def test_the_covariance_stays_valid_over_long_runs(switch: int | None) -> None:
    belief = make_prior(1, K, M)
    for n, (members, reward) in enumerate(make_rewards_of_random_sets(3, 50_000, switch)):
        observe(belief, members, reward)
        if n % 5_000 == 0:
            P = covariance(belief)
            assert_allclose(P, P.T, rtol=0, atol=0)
            assert np.linalg.eigvalsh(P).min() > 1e-9
            assert np.diag(P).max() <= 1 / M + 1e-9
    assert belief.is_valid(None)


def test_an_alarm_follows_a_switch_and_is_rare_otherwise() -> None:
    steady = [find_alarms(make_rewards_of_random_sets(seed, 3_000)) for seed in range(5)]
    switched = [
        find_alarms(make_rewards_of_random_sets(seed, 3_000, switch=2_000)) for seed in range(5)
    ]
    assert sum(map(len, steady)) <= 2  # in 15,000 rounds
    assert all(any(2_000 <= t < 2_150 for t in fired) for fired in switched)


def test_the_posterior_learns_the_new_values_after_a_switch() -> None:
    belief, rewards = make_prior(1, K, M), make_rewards_of_random_sets(4, 6_000, switch=3_000)
    for members, reward in rewards:
        observe(belief, members, reward)
    misses = 1.25 - np.random.default_rng(4).uniform(0.3, 0.95, K)
    assert_allclose(np.exp(belief.beta), misses, atol=0.12)
    assert np.abs(np.exp(belief.beta) - (1.25 - misses)).max() > 0.3  # not the old values


def test_samples_have_the_mean_and_covariance_of_the_posterior() -> None:
    belief, n, rng = open_contexts(2), 20_000, np.random.default_rng(0)
    for members, reward in make_rewards_of_random_sets(5, 40):
        observe(belief, members, reward, 1)
    x, scales = np.ones(n, np.int64), np.full(n, 0.5)
    b = sample_posterior(belief, x, M, scales, rng.normal(size=(n, K)), rng.normal(size=(n, K)))
    deviations = belief.deviations
    D = 1 / (deviations.info[1] + 1 / deviations.spread[0])
    mean = belief.beta + deviations.moment[1] * D + deviations.offset[1] / M
    P = 0.25 * (covariance(belief) + 0.25 * np.diag(D))
    assert np.abs((b.mean(axis=0) - mean) / np.sqrt(np.diag(P) / n)).max() < 5
    spread = np.sqrt((np.outer(np.diag(P), np.diag(P)) + P**2) / n)  # of a sample's covariances
    assert np.abs((np.cov(b.T) - P) / spread).max() < 5
    assert np.abs((np.cov(b.T) - 1.2 * P) / spread).max() > 5  # a wrong scale would be noticed


def test_the_root_is_a_cholesky_root() -> None:
    matrix = np.random.default_rng(0).normal(size=(K, K))
    P, root = matrix @ matrix.T, np.empty((K, K))
    fill_cholesky_root(root, P.copy())
    assert_allclose(root.T @ root, P, atol=1e-12)
    assert_allclose(root, np.triu(root))
    assert_allclose(compute_variances(root), np.diag(P))


@pytest.mark.parametrize("size", [1, 4, 7, 21, 34])
def test_operations_on_a_root_equal_those_on_the_covariance(size: int) -> None:
    rng = np.random.default_rng(size)
    matrix, root, w, Px = (
        rng.normal(size=(size, size)),
        np.empty((size, size)),
        *np.empty((2, size)),
    )
    P = matrix @ matrix.T + np.eye(size)
    fill_cholesky_root(root, P.copy())
    places = rng.permutation(size)[: min(size, 3)]
    values, x = rng.normal(size=places.size), np.zeros(size)
    x[places] = values
    v = fill_root_product(w, root, places, values)
    assert v == pytest.approx(x @ P @ x)
    z, samples = rng.normal(size=(3, size)), np.ones((3, size))
    add_root_samples(samples, root, z)
    assert_allclose(samples, 1 + z @ root, atol=1e-12)
    f = 0.9 / v
    reduce_root(Px, root, w, f, 1 - f * v)
    assert_allclose(Px, P @ x, atol=1e-11)
    P = P - f * np.outer(P @ x, P @ x)
    assert_allclose(root.T @ root, P, atol=1e-11)
    assert_allclose(root, np.triu(root))
    assert (np.diag(root) > 0).all()
    factors = rng.uniform(1, 2, size)
    scale_root(root, factors)
    P = P * np.outer(factors, factors)
    assert_allclose(root.T @ root, P, atol=1e-11)
    place = size // 2
    raise_variance(root, place, 0.0)
    raise_variance(root, place, P[place, place] + 3.0)
    P[place, place] += 3.0
    assert_allclose(root.T @ root, P, atol=1e-11)
    assert_allclose(root, np.triu(root))


@pytest.mark.parametrize("size", [3, 8, 37, 130, 301])
def test_many_updates_of_a_root_have_the_covariance_and_products_of_the_formulas(size: int) -> None:
    """P -= f P x x'P in NumPy. An update rounds a number of s at most twice per row, by
    |s_i| sqrt(f) <= sqrt(P_ii) each time, and a number of T thrice. T_k takes sin_k of the error
    of s, and by Cauchy and Schwarz sum_k |sin_k T_ki| <= sqrt(P_ii): an update changes P by less
    than 4 (K + 8) u max P, for unit roundoff u, and the formulas in NumPy are as exact.
    """
    rng, updates, roundoff = np.random.default_rng(size), 150, 2.0**-53
    variances = rng.uniform(0.1, 0.3, size)
    root, P = np.diag(np.sqrt(variances)), np.diag(variances)
    w, Px, x = *np.empty((2, size)), np.zeros(size)
    for n in range(1, updates + 1):
        places = rng.permutation(size)[: min(size, 5)]
        x[:] = np.isin(np.arange(size), places)
        v = fill_root_product(w, root, places, np.ones(places.size))
        noise = rng.uniform(0.05, 1)
        f = 1 / (v + noise)
        reduce_root(Px, root, w, f, noise * f)
        error = n * 8 * (size + 8) * roundoff * variances.max()
        assert_allclose(Px, P @ x, rtol=0, atol=places.size * error)
        P = P - f * np.outer(P @ x, P @ x)
        assert_allclose(root.T @ root, P, rtol=0, atol=error)
    assert np.abs(np.triu(P, 1)).max() > 0.05 * np.diag(P).max()  # the numbers are correlated now
    assert (np.tril(root, -1) == 0).all()


@pytest.mark.parametrize("size", [3, 8, 37, 301, 520])
def test_samples_have_the_same_bits_alone_and_with_others(size: int) -> None:
    rng = np.random.default_rng(size)
    root, z = np.triu(rng.normal(size=(size, size))), rng.normal(size=(13, size))
    together, alone = np.ones((2, 13, size))
    add_root_samples(together, root, z)
    for n in range(13):
        add_root_samples(alone[n : n + 1], root, z[n : n + 1])
    assert_array_equal(together, alone)
    least = np.abs(z) @ np.abs(root)  # of the sum of sizes, which bounds its rounding
    assert (np.abs(together - 1 - z @ root) <= 2 * (size + 2) * 2.0**-53 * (least + 1)).all()


@pytest.mark.parametrize("seed", [1, 7])
def test_the_belief_does_not_diverge_if_skills_change_again_and_again(seed: int) -> None:
    rng, size, members = np.random.default_rng(seed), 12, 5
    belief, miss, errors = make_prior(1, size, members), rng.uniform(0.4, 0.95, size), []
    for t in range(4_000):
        if t % 800 == 0:
            miss = rng.permutation(miss)
        panel = np.append([0, 1, 2], 3 + rng.permutation(size - 3)[:2])
        missed = miss[panel].prod()
        observe(belief, panel, 1 - float(np.clip(missed + rng.normal(0, 0.02), 0, 1)))
        if t % 800 > 600:
            low, width = belief.scale.interval
            errors.append(abs(1 - low - width * (1 - np.exp(belief.beta[panel].sum())) - missed))
    assert np.mean(errors) < 0.01  # 0.05 and more with a cap of 0.3 on beta


def test_growing_variances_stop_at_the_prior() -> None:
    belief = make_prior(1, K, M)
    for members, reward in make_rewards_of_random_sets(1, 300):
        observe(belief, members, reward)
    before = np.diag(covariance(belief)).copy()
    grow_covariance(belief, 1.5)
    assert_allclose(np.diag(covariance(belief)), np.minimum(1.5 * before, 1 / M))
    for _ in range(20):
        grow_covariance(belief, 1.5)
    assert_allclose(np.diag(covariance(belief)), 1 / M)


def make_pass_fail_rewards(
    seed: int, rounds: int, switch: int | None = None
) -> list[tuple[Ints, float]]:
    """Two good members and one other pass or fail; after the switch the good ones are bad."""
    rng = np.random.default_rng(seed)
    misses, rewards = np.append([0.2, 0.3], rng.uniform(0.4, 0.9, K - 2)), []
    for t in range(rounds):
        if t == switch:
            misses[:2] = 0.8
        members = np.array([0, 1, rng.integers(2, K)])
        rewards.append((members, float(rng.random() > misses[members].prod())))
    return rewards


def test_a_few_random_failures_in_a_row_rarely_raise_an_alarm() -> None:
    assert sum(len(find_alarms(make_pass_fail_rewards(seed, 10_000))) for seed in range(5)) <= 2
    rounds, e, above = make_pass_fail_rewards(0, 10_000), 0.0, 0
    mu = 1 - np.mean([reward for _, reward in rounds])
    for _, reward in rounds:
        e += 0.05 * ((1 - reward - mu) / np.sqrt(mu * (1 - mu)) - e)
        above += e > 4 * np.sqrt(0.05 / 2)
    assert above > 20  # would hardly happen if surprises were normal


def test_an_expert_that_begins_to_fail_raises_an_alarm() -> None:
    for seed in range(5):
        fired = find_alarms(make_pass_fail_rewards(seed, 6_000, switch=3_000))
        assert any(3_000 <= t < 3_100 for t in fired)


@pytest.mark.parametrize(("before", "after"), [(0.5, 1.0), (0.5, 0.0), (0.3, 0.0), (0.3, 0.7)])
def test_a_changed_probability_is_learned_within_a_hundred_rounds(
    before: float, after: float
) -> None:
    belief, rng, only_expert = make_prior(1, 1, 1), np.random.default_rng(0), np.zeros(1, np.int64)
    for _ in range(3_000):
        observe(belief, only_expert, float(rng.random() > before))
    assert np.exp(belief.beta[0]) == pytest.approx(before, abs=0.05)
    for _ in range(100):
        observe(belief, only_expert, float(rng.random() > after))
    assert np.exp(belief.beta[0]) == pytest.approx(after, abs=0.15)


@pytest.mark.parametrize(("fade", "skew"), [(0.05, 0.1), (0.05, 1.5), (0.028, 3.0)])
def test_the_drift_threshold_is_rarely_exceeded_and_half_of_it_often(
    fade: float, skew: float
) -> None:
    rng, e, above, half = np.random.default_rng(0), np.zeros(2_000), 0, 0
    for t in range(3_000):
        e += fade * (skew * rng.poisson(1 / skew**2, e.size) - 1 / skew - e)
        above += int((e > compute_drift_threshold(fade, skew, 4.0)).sum()) if t > 500 else 0
        half += int((e > compute_drift_threshold(fade, skew, 4.0) / 2).sum()) if t > 500 else 0
    assert above <= 500  # of 5,000,000: a normal number is that far away 160 times
    assert half > 50_000


def test_noise_is_near_1_for_pass_fail_rewards_and_small_for_constant_ones() -> None:
    noisy, quiet, estimates = make_prior(1, K, M), make_prior(1, K, M), []
    for members, reward in make_pass_fail_rewards(0, 4_000):
        observe(noisy, members, reward)
        observe(quiet, members, 0.9)
        estimates.append(estimate_noise(noisy))
    assert 0.7 < np.mean(estimates[1_000:]) <= 1
    assert estimate_noise(quiet) < 0.01
