"""The noisy-or posterior: the formulas in plain NumPy, and alarms after a change."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.philox import RngKey
from bylot.numerics.variates import open_stream
from bylot.policies.noisy_or_posterior import (
    Posterior,
    compute_drift_threshold,
    estimate_noise,
    fill_cholesky_root,
    make_prior,
    sample_posterior,
    update_posterior,
)

K, M = 8, 3


class ReferencePosterior(NamedTuple):
    """A posterior, with P itself."""

    beta: Floats
    P: Floats
    squares: float
    missed: float
    e: Floats
    t: int


def covariance(belief: Posterior, x: int = 0) -> Floats:
    """P = T'T."""
    return np.asarray(belief.root[x].T @ belief.root[x])


def update_reference(
    belief: ReferencePosterior, members: Ints, reward: float
) -> ReferencePosterior:
    """Update with one observation by the documented formulas."""
    beta, P, squares, missed, e, t = belief
    phi = np.clip(squares / missed, 0.001, 1)
    one = np.isin(np.arange(K), members).astype(float)
    y, mu = 1 - reward, np.exp(min(beta @ one, 0))
    certain = mu < 0.003 and y < 0.003
    mu = max(mu, 0.003)
    Px = P @ one
    den = mu * (one @ Px) + phi
    step = 0.0 if certain else (y - mu) / den
    step /= max(1.0, np.abs(Px[members] * step).max())
    z = 0.0 if certain else np.clip((y - mu) / np.sqrt(mu * den), -3, 3)
    beta, P = np.clip(beta + Px * step, -8, 0.3), P - mu / den * np.outer(Px, Px)
    rate = max(min(0.01, 0.05 * mu / phi), 1 / (t + 10))
    squares, missed = (
        squares + rate * ((y - mu) ** 2 - squares),
        missed + rate * (mu - missed),
    )
    skew = (1 - 2 * min(mu, 0.9)) / (1 - min(mu, 0.9)) * np.sqrt(phi / min(mu, 0.9))
    f = min(0.05, 0.25 / max(skew**2, 1e-9))
    e = np.where(one > 0, e + f * (z - e), e)
    excess = np.maximum(np.sign(e) * skew, 0) * np.sqrt(8 * f) / 3 * (4**2 - 1) / 6
    fired = np.abs(e) > np.sqrt(f / 2) * (4 + excess)
    if fired.any():
        S = np.sqrt(np.clip(1 / np.diag(P), 1, np.where(fired, np.inf, 2)))
        P, e = P * np.outer(S, S), np.where(fired, 0.0, e)
    return ReferencePosterior(beta, P, squares, missed, e, t + 1)


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


@jit
def fill_draws(out: Floats, beta: Floats, root: Floats) -> None:
    """Draws at half the scale, one after the other."""
    s = open_stream(RngKey(0, 0), 0)
    for n in range(out.shape[0]):
        b, s = sample_posterior(beta, root, 0.5, s)
        out[n] = b


def find_alarms(rounds: list[tuple[Ints, float]]) -> list[int]:
    """The rounds in which the variance of an expert increased."""
    belief, fired = make_prior(1, K, M), []
    for t, (members, reward) in enumerate(rounds):
        before = np.trace(covariance(belief))
        update_posterior(belief, 0, members, reward)
        if np.trace(covariance(belief)) > before + 1e-9:
            fired.append(t)
    return fired


@pytest.mark.parametrize("switch", [None, 400])
def test_an_update_follows_the_formulas(switch: int | None) -> None:
    belief = make_prior(1, K, M)
    reference = ReferencePosterior(
        belief.beta[0].copy(), covariance(belief), 0.12, 0.4, np.zeros(K), 0
    )
    for members, reward in make_rewards_of_random_sets(1, 800, switch):
        update_posterior(belief, 0, members, reward)
        reference = update_reference(reference, members, reward)
        assert_allclose(belief.beta[0], reference.beta, atol=1e-8)
        assert_allclose(covariance(belief), reference.P, atol=1e-9)
        assert belief.squares[0] == pytest.approx(reference.squares, rel=1e-8)
        assert belief.missed[0] == pytest.approx(reference.missed, rel=1e-8)
        assert_allclose(belief.drift[0], reference.e, atol=1e-8)
    assert belief.is_valid(None)


def test_an_update_does_not_change_other_contexts() -> None:
    belief = make_prior(3, K, M)
    for members, reward in make_rewards_of_random_sets(2, 50):
        update_posterior(belief, 1, members, reward)
    for field, fresh in zip(belief, make_prior(1, K, M), strict=True):
        assert_allclose(field[0], fresh[0])
        assert_allclose(field[2], fresh[0])
        assert not np.allclose(field[1], fresh[0])


@pytest.mark.parametrize("switch", [None, 25_000])
def test_the_covariance_stays_valid_over_long_runs(switch: int | None) -> None:
    belief = make_prior(1, K, M)
    for n, (members, reward) in enumerate(make_rewards_of_random_sets(3, 50_000, switch)):
        update_posterior(belief, 0, members, reward)
        if n % 5_000 == 0:
            P = covariance(belief)
            assert_allclose(P, P.T, rtol=0, atol=0)
            assert np.linalg.eigvalsh(P).min() > 1e-9
            assert np.diag(P).max() <= 1 + 1e-9
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
        update_posterior(belief, 0, members, reward)
    misses = 1.25 - np.random.default_rng(4).uniform(0.3, 0.95, K)
    assert_allclose(np.exp(belief.beta[0]), misses, atol=0.12)
    assert np.abs(np.exp(belief.beta[0]) - (1.25 - misses)).max() > 0.3  # not the old values


def test_draws_have_the_mean_and_covariance_of_the_posterior() -> None:
    belief = make_prior(1, K, M)
    for members, reward in make_rewards_of_random_sets(5, 40):
        update_posterior(belief, 0, members, reward)
    n, b = 20_000, np.empty((20_000, K))
    fill_draws(b, belief.beta[0], belief.root[0])
    P = 0.25 * covariance(belief)
    assert np.abs((b.mean(axis=0) - belief.beta[0]) / np.sqrt(np.diag(P) / n)).max() < 5
    spread = np.sqrt((np.outer(np.diag(P), np.diag(P)) + P**2) / n)  # of a sample's covariances
    assert np.abs((np.cov(b.T) - P) / spread).max() < 5
    assert np.abs((np.cov(b.T) - 1.2 * P) / spread).max() > 5  # a wrong scale would be noticed


def test_the_root_is_a_cholesky_root() -> None:
    matrix = np.random.default_rng(0).normal(size=(K, K))
    P, root = matrix @ matrix.T, np.empty((K, K))
    fill_cholesky_root(root, P.copy())
    assert_allclose(root.T @ root, P, atol=1e-12)
    assert_allclose(root, np.triu(root))


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
        update_posterior(belief, 0, only_expert, float(rng.random() > before))
    assert np.exp(belief.beta[0, 0]) == pytest.approx(before, abs=0.05)
    for _ in range(100):
        update_posterior(belief, 0, only_expert, float(rng.random() > after))
    assert np.exp(belief.beta[0, 0]) == pytest.approx(after, abs=0.15)


@pytest.mark.parametrize(("fade", "skew"), [(0.05, 0.1), (0.05, 1.5), (0.028, 3.0)])
def test_the_drift_threshold_is_rarely_exceeded_and_half_of_it_often(
    fade: float, skew: float
) -> None:
    rng, e, above, half = np.random.default_rng(0), np.zeros(2_000), 0, 0
    for t in range(3_000):
        e += fade * (skew * rng.poisson(1 / skew**2, e.size) - 1 / skew - e)
        above += int((e > compute_drift_threshold(fade, skew)).sum()) if t > 500 else 0
        half += int((e > compute_drift_threshold(fade, skew) / 2).sum()) if t > 500 else 0
    assert above <= 500  # of 5,000,000: a normal number is that far away 160 times
    assert half > 50_000


def test_noise_is_near_1_for_pass_fail_rewards_and_small_for_constant_ones() -> None:
    noisy, quiet, estimates = make_prior(1, K, M), make_prior(1, K, M), []
    for members, reward in make_pass_fail_rewards(0, 4_000):
        update_posterior(noisy, 0, members, reward)
        update_posterior(quiet, 0, members, 0.9)
        estimates.append(estimate_noise(noisy, 0))
    assert 0.7 < np.mean(estimates[1_000:]) <= 1
    assert estimate_noise(quiet, 0) < 0.01
