"""Contexts of distinct learn from one another; no lock-in under caps or after abrupt changes."""

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

from bound_policies import PolicyAtWork
from bylot import Problem, Router, at_most, share, simulate
from bylot.environments import Given
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.kl_projection import kl_project
from bylot.numerics.philox import RngKey
from bylot.policies import Distinct
from bylot.policies.distinct import find_available_distributions
from sample_problem import make_five_expert_problem

SETS = [np.array(members) for members in itertools.combinations(range(5), 2)]


def train_policy(contexts: int, rows: int) -> PolicyAtWork:
    """Return a policy with room for so many contexts that has learned in some of them, each with a
    best expert.
    """
    play = PolicyAtWork(Distinct(eps=0.3), make_five_expert_problem(), 2_000, contexts=rows)
    for t in range(600):
        x = t % contexts
        ticket = play.decide(RngKey(9, t), x)
        play.learn(ticket, 0.2 + 0.6 * (x + 1 in ticket.draws))
    return play


def test_panels_of_a_pooled_context_are_drawn_with_their_propensity() -> None:
    play = train_policy(contexts=3, rows=3)
    rule, state = play.rule, play.state
    assert np.abs(state.delta[1]).max() > 0.1
    state.visits[1], state.shared.decisions[0], state.moved[1] = 1, 1, 0
    learned, explore, _ = find_available_distributions(rule, state, play.see(1))
    expected = np.zeros(len(SETS))
    for part, theta in ((1 - rule.eps, learned.theta), (rule.eps, explore.theta)):
        weights = np.array([np.exp(theta[members].sum()) for members in SETS])
        expected += part * weights / weights.sum()
    count, pairs = np.zeros(len(SETS)), {tuple(one): n for n, one in enumerate(SETS)}
    for t in range(3_000):
        state.visits[1], state.shared.decisions[0] = 1, 1
        ticket = play.draw(RngKey(3, t), 1)
        if not ticket.replaced:
            n = pairs[tuple(sorted(ticket.draws.tolist()))]
            count[n] += 1
            assert ticket.propensity == pytest.approx(expected[n], rel=1e-10)
    assert count.sum() > 2_500
    assert chisquare(count, count.sum() * expected).pvalue > 1e-3


def test_a_new_context_starts_from_what_all_others_know() -> None:
    play = train_policy(contexts=2, rows=3)
    state = play.state
    assert np.abs(state.shared.theta[0] - play.rule.explore.theta).max() > 0.5
    play.decide(RngKey(9, 600), 2)
    np.testing.assert_array_equal(state.theta[2], state.shared.theta[0])


def test_one_context_has_no_logits_of_its_own() -> None:
    play = train_policy(contexts=1, rows=2)
    rule, state = play.rule, play.state
    assert not state.delta.any()
    A, b, m = play.limits.rule.A, play.limits.state.bounds, rule.members
    theta, pi, lam = state.shared.theta[0].copy(), np.empty(5), np.empty(b.size)
    kl_project(theta, pi, lam, theta, A, b, m, rule.eps, rule.explore.pi)
    np.testing.assert_allclose(state.pi[0], pi, atol=1e-8)


def make_labelled_rounds(rounds: int, seed: int) -> tuple[Problem, Floats, Ints]:
    """Twelve experts who pass a request or not, under a budget, and labels that mean nothing."""
    rng = np.random.default_rng(seed)
    skills = np.linspace(0.2, 0.8, 12)
    problem = Problem([f"e{i}" for i in range(12)], {"usd": skills}, [at_most("usd", 1.3)], draws=2)
    values = (rng.random((rounds, 1, 12)) < skills).astype(float)
    return problem, values, rng.integers(0, 8, rounds)


def test_labels_that_mean_nothing_cost_little() -> None:
    """A distribution per label loses 0.02 here."""
    loss = []
    for seed in range(8):
        problem, values, labels = make_labelled_rounds(4_000, seed)
        plays = [
            simulate(problem, Given(values, x), "distinct", rounds=4_000, seed=seed, horizon=4_000)
            for x in (None, labels)
        ]
        loss.append(plays[0].rewards.mean() - plays[1].rewards.mean())
    assert np.mean(loss) < 0.01


def test_every_context_keeps_the_bounds_in_force() -> None:
    """One of two contexts alone wants the expensive expert, in every panel."""
    costs = np.array([4.0, 1.0, 1.0, 1.0])
    problem = Problem(list("abcd"), {"usd": costs}, [at_most("usd", 3.0)], draws=2)
    contexts = np.arange(4_000) % 2
    values = np.full((4_000, 1, 4), 0.3)
    values[contexts == 0, 0, 0] = 0.9
    values[contexts == 1, 0, 1] = 0.9
    trace = simulate(
        problem, Given(values, contexts), "distinct", rounds=4_000, seed=1, horizon=4_000
    )
    expected = 2 * trace.record.distributions @ costs
    assert expected.max() <= 1.25 * 3.0 + 1e-6
    assert trace.spend.mean() <= 3.0 + 1e-12
    assert trace.record.replaced.mean() < 0.05


def make_capped_pool(rounds: int, seed: int) -> tuple[Problem, Floats]:
    """At most one of six experts a panel, three of them good; the others miss nearly always."""
    skills = np.zeros(30)
    skills[:6] = [0.9, 0.8, 0.8, 0.1, 0.1, 0.1]
    names = [f"e{i}" for i in range(30)]
    problem = Problem(names, {}, [at_most(share("good", names[:6]), 1.0)], draws=2)
    values = np.random.default_rng(9_000 + seed).random((rounds, 1, 30)) < skills
    return problem, values.astype(float)


@pytest.mark.parametrize(
    ("policy", "first"), [("distinct", 0), ("distinct", 100), ("distinct", 200), ("tangent", 0)]
)
def test_no_run_stays_with_the_second_best_under_a_cap(policy: str, first: int) -> None:
    """Without exchanges of logits, four or five of the first twenty runs do; without trials, two of
    the second and two of the third twenty.
    """
    stayed = 0
    for seed in range(first, first + 20):
        problem, values = make_capped_pool(10_000, seed)
        trace = simulate(
            problem,
            Given(values),
            policy,
            rounds=10_000,
            seed=seed,
            horizon=10_000,
            keep_distributions=False,
        )
        stayed += (trace.draws[-1_000:] == 0).any(axis=1).mean() < 0.5
    assert stayed == 0


@pytest.mark.parametrize("policy", ["distinct", "tangent"])
def test_after_a_change_of_all_skills_learning_starts_anew(policy: str) -> None:
    """The loss in the last tenth is at most 1.3 times that of a policy that starts there."""
    loss: list[float] = []
    restarted: list[float] = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        skills = rng.uniform(0.0, 0.7, 30)
        problem = Problem(
            [f"e{i}" for i in range(30)], {"usd": skills}, [at_most("usd", 1.8)], draws=3
        )
        noise = rng.normal(0.0, 0.05, (8_000, 1, 30))
        means = np.where(np.arange(8_000)[:, None] < 4_000, skills, skills[rng.permutation(30)])
        values = np.clip(means[:, None] + noise, 0.0, 1.0)
        best = values[-800:, 0, np.argsort(means[-1])[-3:]].max(axis=1).mean()
        for out, part in ((loss, values), (restarted, values[4_000:])):
            T = len(part)
            trace = simulate(problem, Given(part), policy, rounds=T, seed=seed, horizon=T)
            out.append(best - trace.rewards[-800:].mean())
    assert np.mean(loss) < 1.3 * np.mean(restarted)


def test_a_router_and_a_simulation_pool_contexts_alike() -> None:
    rng = np.random.default_rng(0)
    values, contexts = rng.random((120, 1, 5)), np.arange(120) % 3
    problem = make_five_expert_problem()
    trace = simulate(problem, Given(values, contexts), "distinct", rounds=120, seed=4)
    router = Router(problem, "distinct", seed=4)
    for t in range(120):
        decision = router.decide(f"context {contexts[t]}")
        drawn = [problem.experts[i] for i in trace.draws[t]]
        assert sorted(decision.subset) == sorted(drawn)
        router.reward(decision.id, float(trace.rewards[t]))
