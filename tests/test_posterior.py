"""What is believed of sets: the formulas in plain NumPy, and alarms where something has changed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Floats, Ints, compiled
from bylot.kernels.stream import opened
from bylot.policies import posterior
from bylot.policies.posterior import Posterior, drawn_belief, fill_root, observe, prior

K, M = 8, 3
SIGMA = np.sqrt(0.05)


def covariance(belief: Posterior, x: int = 0) -> Floats:
    """P = T'T."""
    return np.asarray(belief.root[x].T @ belief.root[x])


def reading(
    belief: tuple[Floats, Floats, float, Floats, int], members: Ints, reward: float
) -> tuple[Floats, Floats, float, Floats, int]:
    """One observation as the algorithm is written down, with P itself."""
    beta, P, phi, e, t = belief
    one = np.isin(np.arange(K), members).astype(float)
    y, mu = 1 - reward, np.exp(min(beta @ one, 0))
    sat = mu < 0.003
    mu = max(mu, 0.003)
    Px = P @ one
    den = mu * (one @ Px) + phi
    step = 0.0 if sat and y < mu else (y - mu) / den
    step /= max(1.0, np.abs(Px[members] * step).max())
    z = np.clip((y - mu) / np.sqrt(mu * den), -3, 3)
    beta, P = np.clip(beta + Px * step, -8, 0.3), P - mu / den * np.outer(Px, Px)
    square = min((y - mu) ** 2 / mu, 10 * phi + 0.1)
    phi = float(np.clip(phi + max(0.01, 1 / (t + 10)) * (square - phi), 0.001, 1))
    e = np.where(one > 0, e + 0.1 * (z - e), e)
    fired = np.abs(e) > 4.5 * SIGMA
    if fired.any():
        P[fired, fired] = np.maximum(P[fired, fired], 0.25)
        S = np.sqrt(np.clip(0.25 / np.diag(P), 1, 2))
        P, e = P * np.outer(S, S), np.where(fired, 0.0, e)
    return beta, P, phi, e, t + 1


def world(seed: int, rounds: int, switch: int | None = None) -> list[tuple[Ints, float]]:
    """Random sets, and how many of eight questions they answer; turned round at the switch."""
    rng = np.random.default_rng(seed)
    misses, told = rng.uniform(0.3, 0.95, K), []
    for t in range(rounds):
        if t == switch:
            misses = 1.25 - misses
        members = rng.permutation(K)[:M]
        told.append((members, float((rng.random(8) > misses[members].prod()).mean())))
    return told


@compiled
def fill_draws(out: Floats, beta: Floats, root: Floats) -> None:
    """Draws at half the scale, one after the other."""
    s = opened(Chance(0, 0), 0)
    for n in range(out.shape[0]):
        b, s = drawn_belief(beta, root, 0.5, s)
        out[n] = b


def alarms(rounds: list[tuple[Ints, float]]) -> list[int]:
    """The rounds in which the belief about somebody was loosened."""
    belief, fired = prior(1, K, M), []
    for t, (members, reward) in enumerate(rounds):
        before = np.trace(covariance(belief))
        observe(belief, 0, members, reward)
        if np.trace(covariance(belief)) > before + 1e-9:
            fired.append(t)
    return fired


@pytest.mark.parametrize("switch", [None, 400])
def test_an_observation_does_what_the_formulas_say(switch: int | None) -> None:
    belief = prior(1, K, M)
    plain = (belief.beta[0].copy(), covariance(belief), 0.1, np.zeros(K), 0)
    for members, reward in world(1, 800, switch):
        observe(belief, 0, members, reward)
        plain = reading(plain, members, reward)
        assert_allclose(belief.beta[0], plain[0], atol=1e-8)
        assert_allclose(covariance(belief), plain[1], atol=1e-9)
        assert belief.noise[0] == pytest.approx(plain[2], rel=1e-8)
        assert_allclose(belief.drift[0], plain[3], atol=1e-8)
    assert posterior.sound(belief)


def test_other_contexts_are_left_alone() -> None:
    belief = prior(3, K, M)
    for members, reward in world(2, 50):
        observe(belief, 1, members, reward)
    for field, fresh in zip(belief, prior(1, K, M), strict=True):
        assert_allclose(field[0], fresh[0])
        assert_allclose(field[2], fresh[0])
        assert not np.allclose(field[1], fresh[0])


@pytest.mark.parametrize("switch", [None, 25_000])
def test_a_covariance_stays_one_over_long_runs(switch: int | None) -> None:
    belief = prior(1, K, M)
    for n, (members, reward) in enumerate(world(3, 50_000, switch)):
        observe(belief, 0, members, reward)
        if n % 5_000 == 0:
            P = covariance(belief)
            assert_allclose(P, P.T, rtol=0, atol=0)
            assert np.linalg.eigvalsh(P).min() > 1e-9
            assert np.diag(P).max() <= 0.25 + 1e-9
    assert posterior.sound(belief)


def test_an_alarm_comes_soon_after_a_switch_and_only_then() -> None:
    steady = [alarms(world(seed, 3_000)) for seed in range(5)]
    switched = [alarms(world(seed, 3_000, switch=2_000)) for seed in range(5)]
    assert sum(map(len, steady)) == 0
    assert all(fired and 2_000 <= fired[0] < 2_150 for fired in switched)


def test_what_was_believed_of_the_changed_is_learned_anew() -> None:
    belief, told = prior(1, K, M), world(4, 6_000, switch=3_000)
    for members, reward in told:
        observe(belief, 0, members, reward)
    misses = 1.25 - np.random.default_rng(4).uniform(0.3, 0.95, K)
    assert_allclose(np.exp(belief.beta[0]), misses, atol=0.12)
    assert np.abs(np.exp(belief.beta[0]) - (1.25 - misses)).max() > 0.3  # not the old world's


def test_draws_have_the_mean_and_the_spread_that_are_believed() -> None:
    belief = prior(1, K, M)
    for members, reward in world(5, 40):
        observe(belief, 0, members, reward)
    n, b = 20_000, np.empty((20_000, K))
    fill_draws(b, belief.beta[0], belief.root[0])
    P = 0.25 * covariance(belief)
    assert np.abs((b.mean(axis=0) - belief.beta[0]) / np.sqrt(np.diag(P) / n)).max() < 5
    spread = np.sqrt((np.outer(np.diag(P), np.diag(P)) + P**2) / n)  # of a sample's covariances
    assert np.abs((np.cov(b.T) - P) / spread).max() < 5
    assert np.abs((np.cov(b.T) - 1.2 * P) / spread).max() > 5  # a wrong scale would be noticed


def test_a_root_is_one() -> None:
    some = np.random.default_rng(0).normal(size=(K, K))
    P, root = some @ some.T, np.empty((K, K))
    fill_root(root, P.copy())
    assert_allclose(root.T @ root, P, atol=1e-12)
    assert_allclose(root, np.triu(root))
