"""Other skills of all experts while rewards stay: evidence of it, and what is believed then."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bound_policies import make_ticket
from bylot import Problem, at_least, share, simulate
from bylot.environments import Given
from bylot.numerics.jit import Floats
from bylot.policies.change_detection import CHANGE_EVIDENCE, add_evidence
from bylot.policies.noisy_or_posterior import make_prior
from bylot.policies.panel_model import PANEL, learn_panel, make_panel_model
from bylot.policies.recent_belief import MAX_RECENT_EXPERTS, make_recent_belief
from noisy_or_reference import ReferenceModel
from sample_problem import make_reward_feedback

K, M = 8, 3


def make_pool(seed: int, rounds: int) -> tuple[Problem, Floats, Floats]:
    """Four groups of five, each asked in 45 % of the rounds at least; two experts a panel.

    At half-time the best of two groups lose as much as those of the others gain, so rewards stay
    on average, and another one of each group becomes better than all.
    """
    names = [f"e{i}" for i in range(20)]
    groups = [share(f"g{j}", names[5 * j : 5 * j + 5]) for j in range(4)]
    before, after = np.full(20, 0.2), np.full(20, 0.2)
    before[::5], after[::5], after[2::5] = [0.6, 0.5, 0.5, 0.6], [0.5, 0.6, 0.6, 0.5], 0.8
    skills = np.where(np.arange(rounds)[:, None, None] < rounds // 2, before, after)
    values = (np.random.default_rng(seed).random((rounds, 8, 20)) < skills) / 8
    return Problem(names, {}, [at_least(group, 0.45) for group in groups], draws=2), values, after


@pytest.mark.parametrize("policy", ["noisy-or", "distinct"])
def test_a_change_that_keeps_the_mean_reward_is_noticed(policy: str) -> None:
    lost = []
    for seed in range(3):
        problem, values, skills = make_pool(seed, 6_000)
        found = []
        for part in (values, values[3_000:]):
            trace = simulate(
                problem, Given(part), policy, rounds=len(part), seed=seed, horizon=len(part)
            )
            found.append((1 - (1 - skills[trace.draws[-600:]]).prod(axis=1)).mean())
        lost.append(found[1] - found[0])
    assert np.mean(lost) < 0.04  # against a restarted policy; without bets 0.10 and 0.14


@pytest.mark.parametrize(("expected", "recent"), [(0.3, 0.4), (0.3, 0.01), (0.05, 0.9), (1.0, 0.5)])
def test_a_bet_wins_nothing_on_average_if_the_expected_miss_is_right(
    expected: float, recent: float
) -> None:
    misses = np.array([0.0, expected, 1.0])
    for middle in (0.0, 0.4, 1.0):  # distributions with this mean
        chances = [(1 - middle) * (1 - expected), middle, (1 - middle) * expected]
        found = []
        for miss in misses:
            evidence = np.array([3.0])
            add_evidence(evidence, expected, recent, 0.02, miss)
            found.append(evidence[0])
        assert min(found) >= (1 + 3) / 2 or expected == 1.0
        assert np.dot(chances, found) == pytest.approx(1 + 3)


def test_false_alarms_are_as_rare_as_derived() -> None:
    """At most n / 10^6 of runs of n: here 1 in 10 on average, of 40 runs with skewed misses."""
    rng, alarms = np.random.default_rng(0), 0
    misses = (rng.random((40, 2_500)) < 0.2).astype(float)
    for row in misses:
        evidence, alarm, mean = np.zeros(1), False, 0.2
        for miss in row:  # the recent forecast is a mean of the last 50 misses or so
            alarm |= add_evidence(evidence, 0.2, mean, 0.16, miss)
            mean += 0.02 * (miss - mean)
        alarms += alarm
    assert alarms <= 1


def test_bets_win_if_the_recent_belief_is_right() -> None:
    rng, evidence, n = np.random.default_rng(0), np.zeros(1), 0
    while evidence[0] < CHANGE_EVIDENCE:
        add_evidence(evidence, 0.2, 0.3, 0.21, float(rng.random() < 0.3))
        n += 1
    assert n < 2_000  # log(10^6) over the divergence 0.026 is 540


@pytest.mark.parametrize("contexts", [1, 3])
def test_the_recent_belief_follows_the_formulas(contexts: int) -> None:
    model, reference = make_panel_model(PANEL, contexts, K, M), ReferenceModel(K, M, contexts)
    belief, recent, rng = model.belief, model.recent, np.random.default_rng(3)
    belief.deviations.contexts[0], reference.used = contexts, set(range(contexts))
    miss = rng.uniform(0.4, 0.95, K)
    for t in range(1_600):
        if t == 800:
            miss = np.roll(miss, 3)
        members, x = rng.permutation(K - 2)[:M], t % contexts
        reward = float((rng.random(20) > miss[members].prod()).mean())
        ticket = make_ticket(members, t, x)
        learn_panel(model, PANEL, ticket, make_reward_feedback(reward))
        reference.learn(x, members, reward)
        assert_allclose(recent.beta, reference.recent_beta, atol=1e-9)
        assert_allclose(recent.root.T @ recent.root, reference.recent_P, atol=1e-9)
        assert_allclose(recent.evidence, reference.evidence, rtol=1e-6)
        assert_allclose(belief.beta, reference.beta, atol=1e-9)
        assert_allclose(belief.root.T @ belief.root, reference.P, atol=1e-9)
    assert model.is_valid(None)
    assert reference.adopted > 0


def test_large_pools_and_pools_with_scores_have_no_recent_belief() -> None:
    assert make_recent_belief(make_prior(1, MAX_RECENT_EXPERTS, M), used=True).beta.size == 256
    assert make_recent_belief(make_prior(1, MAX_RECENT_EXPERTS + 1, M), used=True).beta.size == 0
    assert make_recent_belief(make_prior(1, K, M), used=False).is_valid(None)
