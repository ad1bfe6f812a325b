"""noisy-or: the rounds of the documented algorithm, limits that hold, and prices."""

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bylot import Problem, Router, at_least, at_most, best_mixture, simulate
from bylot.environments import Given, Noisy, Regime
from bylot.errors import PolicyError
from bylot.metrics import measure_worst_violation
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.philox import MODEL_STREAM, RngKey
from bylot.numerics.variates import draw_normal, next_word, open_stream, open_uniform_from_word
from bylot.policies import NoisyOr
from bylot.policies.base import decide, learn, make_reward_feedback
from bylot.policies.budget import fill_paced_bounds, open_budget
from bylot.policies.guard import guard_panel
from bylot.policies.noisy_or import NoisyOrRule
from bylot.router.core import iterate_arrays
from sample_problem import (
    SKILLS,
    make_five_expert_problem,
    make_recorded_environment,
    make_stationary_environment,
)

ALL = np.empty(0, np.bool_)
SETS = [np.array(members) for members in itertools.combinations(range(5), 2)]


def make_tight_problem(period: int | None = 50, usd: float = 1.9) -> Problem:
    """Five experts whose panels must cost between `usd` and 2 on average, so the guard acts."""
    problem = make_five_expert_problem()
    limits = [at_most("usd", 2.0), at_least("junior", 0.9), at_least("usd", usd)]
    return Problem(problem.experts, dict(problem.costs), limits, draws=2, period=period)


@jit
def fill_random_numbers(boldness: Floats, z: Floats, seed: int, t: int) -> None:
    """Random numbers for the models of one round."""
    s = open_stream(RngKey(seed, t), MODEL_STREAM)
    for n in range(boldness.size):
        bits, s = next_word(s)
        boldness[n] = open_uniform_from_word(bits)
        for k in range(z.shape[1]):
            z[n, k], s = draw_normal(s)


def search_greedily_and_swap(miss: Floats, price: Floats, m: int) -> Ints:
    """Greedy search and swaps, in plain Python."""
    K, A = miss.size, list[int]()
    for _ in range(m):
        others = [i for i in range(K) if i not in A]
        A.append(min(others, key=lambda i: miss[[*A, i]].prod() + price[i]))
    for _ in range(6):
        swaps = [
            [*A[:k], i, *A[k + 1 :]] for k, i in itertools.product(range(m), range(K)) if i not in A
        ]
        cost = [miss[B].prod() + price[B].sum() for B in (A, *swaps)]
        if min(cost) > cost[0] - 1e-12:
            break
        A = [A, *swaps][int(np.argmin(cost))]
    return np.array(A)


class ReferenceNoisyOr:
    """Reference implementation of noisy-or in plain NumPy, with P itself."""

    def __init__(self, rule: NoisyOrRule, contexts: int) -> None:
        K, m, d = rule.A.shape[1], rule.explorer.members, rule.units.size
        self.rule, self.visits = rule, [0] * contexts
        self.beta = [np.full(K, np.log(0.4) / m) for _ in range(contexts)]
        self.T = [np.eye(K) for _ in range(contexts)]
        self.squares, self.missed, self.seen = [0.12] * contexts, [0.4] * contexts, [0] * contexts
        self.e = [np.zeros(K) for _ in range(contexts)]
        self.lam, self.G2 = np.zeros(d), np.full(d, 0.01)
        self.account, self.bounds = open_budget(rule.guard), rule.guard.b.copy()

    def phi(self, x: int) -> float:
        return float(np.clip(self.squares[x] / self.missed[x], 0.001, 1))

    def sample(self, x: int, boldness: float, z: Floats) -> Ints:
        scale = 1.5 if boldness < 0.03 else np.clip(np.sqrt(self.phi(x)), 0.5, 1)
        b = np.clip(self.beta[x] + scale * self.T[x].T @ z, -8, 0.5)
        return search_greedily_and_swap(
            np.exp(b), self.lam @ self.rule.A, self.rule.explorer.members
        )

    def dual(self, A: Ints) -> None:
        g = self.rule.A[:, A].sum(axis=1) - self.bounds * self.rule.units
        self.G2 += np.minimum(g**2, 30**2)
        self.lam = np.clip(self.lam + 0.2 * np.clip(g / np.sqrt(self.G2), -1, 1), 0, 5)

    def decide(self, x: int, seed: int, t: int) -> Ints:
        due, K = self.visits[x] % 10 == 0, self.rule.A.shape[1]
        rehearsal_count = (20 if sum(self.visits) else 200) if due else 0
        boldness, z = np.empty(rehearsal_count + 1), np.empty((rehearsal_count + 1, K))
        fill_random_numbers(boldness, z, seed, t)
        if due:
            fill_paced_bounds(self.bounds, self.rule.guard, self.account, self.rule.explorer.pace)
        for n in range(rehearsal_count):
            self.dual(self.sample(x, boldness[n], z[n]))
        self.visits[x] += 1
        A = self.sample(x, boldness[-1], z[-1])
        admitted = guard_panel(self.rule.guard, self.account, A, ALL)
        if not admitted.replaced:
            self.dual(A)
        return np.asarray(admitted.members)

    def learn(self, x: int, A: Ints, reward: float) -> None:
        beta, P, phi = self.beta[x], self.T[x].T @ self.T[x], self.phi(x)
        y, mu = 1 - reward, max(np.exp(min(beta[A].sum(), 0)), 0.003)
        Px = P[:, A].sum(axis=1)
        v = Px[A].sum()
        den = mu * v + phi
        step = (y - mu) / den
        step /= max(1.0, np.abs(Px[A] * step).max())
        self.beta[x] = np.clip(beta + Px * step, -8, 0.3)
        w = self.T[x][:, A].sum(axis=1)
        self.T[x] = self.T[x] - (1 - np.sqrt(phi / den)) / v * np.outer(w, Px)
        rate = max(min(0.01, 0.05 * mu / phi), 1 / (self.seen[x] + 10))
        self.squares[x] += rate * ((y - mu) ** 2 - self.squares[x])
        self.missed[x] += rate * (mu - self.missed[x])
        self.seen[x] += 1
        z = np.clip((y - mu) / np.sqrt(mu * den), -3, 3)
        skew = (1 - 2 * min(mu, 0.9)) / (1 - min(mu, 0.9)) * np.sqrt(phi / min(mu, 0.9))
        self.e[x][A] += min(0.05, 0.25 / skew**2) * (z - self.e[x][A])
        assert np.abs(self.e[x]).max() < 0.5  # alarms are tested elsewhere


@pytest.mark.parametrize(
    ("problem", "contexts"), [(make_five_expert_problem(), 1), (make_tight_problem(), 3)]
)
def test_rounds_equal_those_of_the_reference_implementation(
    problem: Problem, contexts: int
) -> None:
    rule, environment = NoisyOr().bind(problem), make_recorded_environment(400, contexts)
    state, reference, replaced = (
        NoisyOr().start(rule, contexts),
        ReferenceNoisyOr(rule, contexts),
        0,
    )
    for t, (values, x) in enumerate(
        zip(environment.values, environment.index.tolist(), strict=True)
    ):
        ticket = decide(rule, state, x, RngKey(5, t), ALL)
        A = reference.decide(x, 5, t)
        assert_array_equal(np.sort(ticket.draws), np.sort(A))
        reward = float(values[:, A].max(axis=1).sum())
        learn(rule, state, ticket, make_reward_feedback(reward))
        reference.learn(x, A, reward)
        replaced += ticket.replaced
    assert_allclose(state.belief.beta, reference.beta, atol=1e-8)
    assert_allclose(state.dual_prices.price, reference.lam, atol=1e-8)
    assert_allclose(state.budget.spent, reference.account.spent)
    assert replaced > 0 or problem == make_five_expert_problem()  # the guard replaced panels


@pytest.mark.parametrize("seed", range(4))
def test_limits_hold_at_the_horizon_and_rewards_are_near_the_best_mixture(seed: int) -> None:
    environment = Given(make_stationary_environment().rounds(0, 3_000, seed).values)
    best = best_mixture(make_five_expert_problem(), environment.values).value
    noisy_or = simulate(
        make_five_expert_problem(), environment, "noisy-or", rounds=3_000, seed=seed, horizon=3_000
    )
    distinct = simulate(
        make_five_expert_problem(), environment, "distinct", rounds=3_000, seed=seed, horizon=3_000
    )
    assert measure_worst_violation(noisy_or) == 0.0
    assert noisy_or.rewards.mean() > max(best - 0.012, distinct.rewards.mean())
    assert all(len(set(draws)) == 2 for draws in noisy_or.draws.tolist())


@pytest.mark.parametrize("explore", [0.0, 0.3])
@pytest.mark.parametrize("period", [50, 250, 1_000])
def test_without_a_horizon_limits_hold_in_every_period(period: int, explore: float) -> None:
    problem = make_tight_problem(period)
    environment = Regime(SKILLS, worth=1 / 3, horizon=10_000)
    trace = simulate(
        problem,
        environment,
        NoisyOr(explore=explore),
        rounds=10_000,
        seed=1,
        keep_distributions=False,
    )
    for spend in np.split(trace.spend, 10_000 // period):
        assert (problem.signs * (spend.mean(axis=0) - problem.bounds) >= -1e-12).all()


def test_without_the_guard_some_periods_break_a_limit() -> None:
    problem = make_tight_problem()
    trace = simulate(
        problem,
        make_stationary_environment(),
        NoisyOr(guard=False),
        rounds=10_000,
        seed=1,
        keep_distributions=False,
    )
    means = trace.spend.reshape(200, 50, -1).mean(axis=1)
    assert (problem.signs * (means - problem.bounds) < -1e-9).any()


def test_a_late_reward_is_credited_to_its_own_set() -> None:
    prompt, late = (Router(make_five_expert_problem(), "noisy-or", seed=2) for _ in range(2))
    first, same = prompt.decide(), late.decide()
    assert first == same
    prompt.reward(first.id, 0.9)
    before = late.core.state.belief.beta.copy()
    for _ in range(25):  # not disturbed by decisions in between
        late.decide()
    late.reward(same.id, 0.9)
    for one, other in zip(
        iterate_arrays(late.core.state.belief),
        iterate_arrays(prompt.core.state.belief),
        strict=True,
    ):
        assert_array_equal(one, other)
    assert (late.core.state.belief.beta != before).any()


def test_a_replaced_panel_updates_the_posterior_but_no_price() -> None:
    router, seen = Router(make_tight_problem(), "noisy-or", seed=1), 0
    for _ in range(300):
        moves, rewards = (
            int(router.core.state.dual_prices.moves[0]),
            int(router.core.state.belief.rewards[0]),
        )
        due = router.core.state.visits[0] % 10 == 0
        decision = router.decide()
        router.reward(decision.id, 0.5)
        assert router.core.state.belief.rewards[0] == rewards + 1
        if not due:
            assert router.core.state.dual_prices.moves[0] == moves + (not decision.replaced)
        seen += decision.replaced
    assert seen > 0


def test_contexts_share_prices_and_the_budget_but_not_the_posterior() -> None:
    router = Router(make_five_expert_problem(), "noisy-or", seed=3)
    for context in ("a", "b") * 40:
        decision = router.decide(context)
        if context == "a":
            router.reward(decision.id, 0.8)
    fresh = NoisyOr().start(router.core.rule).belief
    assert (router.core.state.belief.beta[0] != fresh.beta[0]).any()
    assert_array_equal(router.core.state.belief.beta[1], fresh.beta[0])
    assert router.core.state.dual_prices.price.shape == (3,)
    assert router.core.state.budget.left[0] == 5_000 - 80


def test_a_budget_shared_by_contexts_is_spent_where_it_earns_most() -> None:
    costs, limits = {"usd": [1.0, 0.0]}, [at_most("usd", 0.5)]
    pair = Problem(["good", "free"], costs, limits, draws=1)
    worth = np.array([[[0.9, 0.1]], [[0.5, 0.45]]])  # the choice matters in the first context only
    contexts = np.arange(4_000) % 2
    environment = Given(worth[contexts], contexts)
    trace = simulate(
        pair, environment, "noisy-or", rounds=4_000, seed=0, horizon=4_000, keep_distributions=False
    )
    good = trace.draws[2_000:, 0] == 0
    assert good[0::2].mean() > 0.9
    assert good[1::2].mean() < 0.1
    assert measure_worst_violation(trace) == 0.0


def test_prices_do_not_depend_on_the_unit_of_the_costs() -> None:
    prices = np.array([100.0, 0.001, 0.002])
    problem = Problem(["human", "x", "y"], {"usd": prices}, [at_most("usd", 0.0015)], draws=1)
    values = np.tile(np.array([[0.9, 0.2, 0.8]]), (3_000, 1, 1))
    trace = simulate(problem, Given(values), "noisy-or", rounds=3_000, seed=0, horizon=3_000)
    assert measure_worst_violation(trace) == 0.0
    assert trace.record.replaced.mean() < 0.01
    # y a quarter of the time, as much as the pace allows
    assert trace.rewards[1_000:].mean() > 0.34
    dollars = make_five_expert_problem()
    cents = Problem(
        dollars.experts,
        {**dollars.costs, "usd": 100 * dollars.costs["usd"]},
        [
            at_most("usd", 300.0),
            dollars.limits[1],
            at_least("usd", 80.0),
        ],
        draws=2,
    )
    one, other = (
        simulate(p, make_stationary_environment(), "noisy-or", rounds=500, seed=0)
        for p in (dollars, cents)
    )
    assert_array_equal(one.draws, other.draws)


@pytest.mark.parametrize("base", [0.0, 30.0, 1_000.0])
def test_a_cost_common_to_all_experts_does_not_change_prices(base: float) -> None:
    extra, names = np.linspace(0, 1, 10), [f"e{i}" for i in range(10)]
    limits = [at_most("usd", 2 * base + 0.7)]
    problem = Problem(names, {"usd": base + extra}, limits, draws=2)
    environment = Given(Noisy((0.9 * extra**0.3)[None]).rounds(0, 3_000, 0).values)
    trace = simulate(
        problem,
        environment,
        "noisy-or",
        rounds=3_000,
        seed=0,
        horizon=3_000,
        keep_distributions=False,
    )
    assert measure_worst_violation(trace) == 0.0
    assert trace.record.replaced.mean() < 0.01
    assert best_mixture(problem, environment.values).value - trace.rewards.mean() < 0.01


@pytest.mark.parametrize("seed", range(6))
def test_an_expert_that_failed_by_bad_luck_is_tried_again(seed: int) -> None:
    skills, names = np.array([0.8, 0.85, 0.6, 0.5, 0.45, 0.6, 0.3, 0.1]), list("abcdefgh")
    passes = np.random.default_rng(1_000 + seed).random((10_000, 1, 8)) < skills
    environment = Given(passes.astype(float))
    trace = simulate(Problem(names, {}, draws=3), environment, "noisy-or", rounds=10_000, seed=seed)
    late = 1 - (1 - skills[trace.draws[-1_000:]]).prod(axis=1)
    assert late.mean() > 0.98  # the best three pass in 0.988, and without the second in 0.968


BINDING_LIMITS = {
    "a budget near the cheapest panel": ([1.0, 2.0, 4.0], at_most("usd", 3.5), 2),
    "one draw": ([1.0, 2.0, 4.0], at_most("usd", 1.75), 1),
    "one expensive expert of many": ([1.0] * 9 + [10.0], at_most("usd", 3.5), 3),
    "a small cap on the best": ([0.0] * 5 + [1.0], at_most("usd", 0.1), 2),
    "a high minimum of the worst": ([1.0] + [0.0] * 5, at_least("usd", 0.9), 2),
}


@pytest.mark.parametrize("case", BINDING_LIMITS)
def test_a_binding_limit_is_spent_evenly_without_the_guard(case: str) -> None:
    costs, limit, draws = BINDING_LIMITS[case]
    names = [f"e{i}" for i in range(len(costs))]
    problem = Problem(names, {"usd": costs}, [limit], draws=draws)
    environment = Given(Noisy(np.linspace(0.1, 0.9, len(costs))[None]).rounds(0, 3_000, 0).values)
    trace = simulate(
        problem,
        environment,
        "noisy-or",
        rounds=3_000,
        seed=0,
        horizon=3_000,
        keep_distributions=False,
    )
    assert measure_worst_violation(trace) == 0.0
    assert trace.record.replaced.sum() < 10
    thirds = trace.spend[:, 0].reshape(3, 1_000).mean(axis=1)
    assert_allclose(thirds, limit.bound, rtol=0.04)
    assert best_mixture(problem, environment.values).value - trace.rewards.mean() < 0.02


def test_prices_do_not_move_while_available_experts_cannot_keep_the_limit() -> None:
    names, costs = ["ann", "bob", "eve", "dan"], [1.0, 2.0, 4.0, 4.0]
    problem = Problem(names, {"usd": costs}, [at_most("usd", 4.0)], draws=2, period=1_000)
    router, worth = (
        Router(problem, "noisy-or", seed=0),
        dict(zip(names, (0.2, 0.4, 0.8, 0.7), strict=True)),
    )

    def play(rounds: int, available: list[str] | None = None) -> float:
        decisions = [router.decide(available=available) for _ in range(rounds)]
        for one in decisions:
            router.reward(one.id, max(worth[name] for name in one.subset))
        return float(np.mean([one.spend["usd"] for one in decisions]))

    play(300)
    price = router.core.state.dual_prices.price.copy()
    play(400, ["eve", "dan"])
    assert_array_equal(router.core.state.dual_prices.price, price)
    play(300)  # the overspending is compensated
    assert play(100) > 3.0  # and a new period starts normally


def test_prices_adapt_to_a_tightened_limit() -> None:
    names, costs = ["a", "b", "c", "d"], {"usd": [1.0, 1.06, 1.5, 1.0]}

    def make_problem_under(bound: float) -> Problem:
        return Problem(names, costs, [at_most("usd", bound)], draws=1, period=1_000)

    router, worth = (
        Router(make_problem_under(10.0), "noisy-or", seed=0),
        dict(zip(names, (0.05, 0.6, 0.9, 0), strict=True)),
    )
    decisions = []
    for t in range(6_000):
        if t == 3_000:
            router.change(make_problem_under(1.06))
        decisions.append(router.decide())
        router.reward(decisions[-1].id, worth[decisions[-1].subset[0]])
    assert sum(one.replaced for one in decisions[3_000:]) < 30


def test_a_limit_that_leaves_one_panel_has_no_price() -> None:
    costs = {"usd": [0.1, 0.4, 0.5]}
    for bound, known in ((0.5, False), (0.6, True)):
        router = Router(
            Problem(["a", "b", "c"], costs, [at_most("usd", bound)], draws=2), "noisy-or"
        )
        router.reward(router.decide().id, 0.5)
        assert (router.status().limits[0].price is not None) == known


def test_a_posterior_that_does_not_fit_into_memory_is_refused() -> None:
    many = Problem([f"e{i}" for i in range(1_000)], {}, draws=3)
    rule = NoisyOr().bind(many)
    NoisyOr().start(rule, 2)
    with pytest.raises(PolicyError, match=r"1,000 experts in 200 contexts take 1.49 GiB.*distinct"):
        NoisyOr().start(rule, 200)
    huge = Problem([f"e{i}" for i in range(12_000)], {}, draws=3)
    with pytest.raises(PolicyError, match="in 1 contexts take"):
        Router(huge, "noisy-or")


@pytest.mark.parametrize(
    "wrong", [{"explore": -0.1}, {"explore": 1.1}, {"explore": True}, {"pace": 3}, {"guard": 1}]
)
def test_invalid_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        NoisyOr(**wrong)


def test_a_budget_that_full_panels_cannot_keep_is_refused() -> None:
    problem = Problem(["a", "b"], {"usd": [1.0, 1.0]}, [at_most("usd", 1.5)], draws=2)
    with pytest.raises(PolicyError, match="noisy-or asks 2 different experts every time"):
        NoisyOr().bind(problem)
