"""noisy-or: the rounds of the documented algorithm, limits that hold, and prices."""

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bound_policies import ALL_AVAILABLE, PolicyAtWork
from bylot import Problem, Router, at_least, at_most, optimum, simulate
from bylot.environments import Given, Noisy, Regime
from bylot.errors import PolicyError
from bylot.limits.binding import start_limits
from bylot.limits.guard import guard_panel
from bylot.limits.pacing import fill_paced_bounds
from bylot.limits.records import LimitRule, point_to_limits
from bylot.metrics import measure_worst_violation
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.philox import MODEL_STREAM, RngKey
from bylot.numerics.variates import draw_normal, next_word, open_stream, open_uniform_from_word
from bylot.policies import NoisyOr
from bylot.policies.noisy_or import MAX_POSTERIOR_BYTES, count_posterior_bytes
from bylot.policies.noisy_or_prices import NoisyOrRule
from bylot.router.core import iterate_arrays
from noisy_or_reference import ReferenceModel
from sample_problem import (
    SKILLS,
    make_five_expert_problem,
    make_recorded_environment,
    make_stationary_environment,
)

SETS = [np.array(members) for members in itertools.combinations(range(5), 2)]


def make_tight_problem(period: int | None = 50, usd: float = 1.9) -> Problem:
    """Five experts whose panels must cost between `usd` and 2 on average, so the guard acts."""
    problem = make_five_expert_problem()
    limits = [at_most("usd", 2.0), at_least("junior", 0.9), at_least("usd", usd)]
    return Problem(problem.experts, dict(problem.costs), limits, draws=2, period=period)


def make_large_problem() -> Problem:
    """24 experts under a budget."""
    usd = np.linspace(0.2, 1.8, 24)
    return Problem([f"e{i}" for i in range(24)], {"usd": usd}, [at_most("usd", 1.7)], draws=2)


def make_pass_fail_environment(rounds: int, contexts: int) -> Given:
    """Values of 0 or 1 of 24 experts, so rewards are as noisy as they can be."""
    rng = np.random.default_rng(4)
    values = rng.random((rounds, 1, 24)) < np.linspace(0.1, 0.7, 24)
    return Given(values.astype(float), rng.integers(0, contexts, rounds))


@jit
def fill_random_numbers(words: Floats, z: Floats, contexts: int, pooled: bool, t: int) -> None:
    """Random numbers for the models of one round: of rehearsals, in other contexts if these are
    `pooled`, and of the panel.
    """
    s, numbers = open_stream(RngKey(5, t), MODEL_STREAM), z.shape[1] if pooled else z.shape[1] // 2
    for n in range(contexts):
        bits, s = next_word(s)
        words[n, 0] = open_uniform_from_word(bits)
    for n in range(z.shape[0]):
        bits, s = next_word(s)
        words[n, 1] = open_uniform_from_word(bits)
        for k in range(numbers):
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
    """Reference implementation of noisy-or in plain NumPy."""

    def __init__(self, rule: NoisyOrRule, limits: LimitRule, contexts: int) -> None:
        K, d = rule.A.shape[1], rule.units.size
        self.rule, self.recent, self.K = rule, list[int](), K
        self.belief = ReferenceModel(K, rule.most, contexts)
        self.lam, self.G2, self.width = np.zeros(d), np.full(d, 0.01), 1.0
        self.account = start_limits(limits, 1)
        self.limits = point_to_limits(limits, self.account)
        self.moved = False

    def sample(self, x: int, boldness: float, z: Floats) -> Ints:
        scale = 1.5 if boldness < 0.03 else 0.5
        if self.K > 16:
            scale *= 1 - min(2 * self.belief.phi, 1) * (1 - (16 / self.K) ** 0.25)
        miss = self.belief.sample(x, scale, z[: self.K], z[self.K :])
        return search_greedily_and_swap(miss, self.lam @ self.rule.A, self.rule.most)

    def dual(self, A: Ints) -> None:
        g = self.rule.A[:, A].sum(axis=1) - self.account.bounds * self.rule.units
        self.G2 += np.minimum(g**2, 30**2)
        self.lam = np.clip(self.lam + 0.2 * np.clip(g / np.sqrt(self.G2), -1, 1), 0, 5)
        self.moved = True

    def decide(self, x: int, t: int) -> Ints:
        count = (10 if self.moved else 200) if t % 10 == 0 else 0
        self.belief.used.add(x)
        self.recent = [*self.recent, x]
        pooled = self.belief.pooled
        words, z = np.empty((count + 1, 2)), np.empty((count + 1, 2 * self.K))
        fill_random_numbers(words, z, count if pooled else 0, pooled, t)
        if count:
            fill_paced_bounds(self.limits)
        ring = {n % 64: y for n, y in enumerate(self.recent)}
        for n in range(count):
            y = ring[int(words[n, 0] * len(ring))] if pooled else x
            self.dual(self.sample(y, words[n, 1], z[n]))
        A = self.sample(x, words[-1, 1], z[-1])
        admitted = guard_panel(self.limits, A, ALL_AVAILABLE)
        if not admitted.replaced:
            self.dual(A)
        return np.asarray(admitted.members)

    def learn(self, x: int, A: Ints, reward: float) -> None:
        was = self.belief.width
        self.belief.learn(x, A, reward)
        if self.belief.width != was:
            self.lam = np.minimum(self.lam * was / self.belief.width, 5)
            self.G2[:], self.moved = 0.01, False


@pytest.mark.parametrize(
    ("problem", "contexts", "worth"),
    [
        (make_five_expert_problem(), 1, 1.0),
        (make_tight_problem(), 3, 1.0),
        (make_tight_problem(), 3, 0.1),
    ],
)
def test_rounds_equal_those_of_the_reference_implementation(
    problem: Problem, contexts: int, worth: float
) -> None:
    environment = make_recorded_environment(500, contexts)
    replaced = compare_with_reference(problem, environment, worth)
    assert replaced > 0 or problem == make_five_expert_problem()  # the guard replaced panels


@pytest.mark.parametrize("contexts", [1, 3])
def test_in_a_large_pool_with_noisy_rewards_rounds_equal_those_of_the_reference(
    contexts: int,
) -> None:
    compare_with_reference(make_large_problem(), make_pass_fail_environment(300, contexts), 1.0)


def compare_with_reference(problem: Problem, environment: Given, worth: float) -> int:
    """Play both and compare everything; returns how many panels the guard replaced."""
    play = PolicyAtWork(NoisyOr(), problem, contexts=environment.contexts)
    reference = ReferenceNoisyOr(play.rule, play.limits.rule, environment.contexts)
    replaced = 0
    for t, (values, x) in enumerate(
        zip(environment.values, environment.index.tolist(), strict=True)
    ):
        ticket = play.decide(RngKey(5, t), x)
        A = reference.decide(x, t)
        assert_array_equal(np.sort(ticket.draws), np.sort(A))
        assert_allclose(play.limits.state.ledgers["spent"], reference.account.ledgers["spent"])
        reward = worth * float(values[:, A].max(axis=1).sum())
        play.learn(ticket, reward)
        reference.learn(x, A, reward)
        replaced += ticket.replaced
    belief, expected = play.state.belief, reference.belief
    assert_allclose(belief.beta, expected.beta, atol=1e-9)
    assert_allclose(belief.root.T @ belief.root, expected.P, atol=1e-9)
    assert_allclose(belief.deviations.moment, expected.moment, atol=1e-9)
    assert_allclose(belief.deviations.spread, expected.tau2, atol=1e-9)
    assert_allclose(belief.scale.interval, [expected.low, expected.width], atol=1e-9)
    assert_allclose(play.state.dual_prices.price, reference.lam, atol=1e-9)
    assert (expected.width < 1) == (worth < 1)
    return replaced


@pytest.mark.parametrize("seed", range(4))
def test_limits_hold_at_the_horizon_and_rewards_are_near_the_best_mixture(seed: int) -> None:
    environment = Given(make_stationary_environment().rounds(0, 3_000, seed).values)
    best = optimum(make_five_expert_problem(), environment.values).value
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


def test_contexts_share_a_belief_prices_and_the_budget_and_add_deviations() -> None:
    router = Router(make_five_expert_problem(), "noisy-or", seed=3)
    for context in ("a", "b") * 40:
        decision = router.decide(context)
        if context == "a":
            router.reward(decision.id, 0.8 if "ann" in decision.subset else 0.1)
    belief = router.core.state.belief
    fresh = NoisyOr().start(router.core.rule, 2).belief
    assert (belief.beta != fresh.beta).all()
    assert (belief.deviations.moment[0] != 0).all()
    assert_array_equal(belief.deviations.moment[1:], 0.0)
    assert router.core.state.dual_prices.price.shape == (3,)
    assert router.core.book.tables is not None
    assert router.core.book.tables.state.clock["left"][0] == 5_000 - 80


def test_one_context_adds_no_deviations() -> None:
    router = Router(make_five_expert_problem(), "noisy-or", seed=3)
    for _ in range(30):
        router.reward(router.decide("only").id, 0.8)
    deviations = router.core.state.belief.deviations
    assert_array_equal(deviations.moment, 0.0)
    assert_array_equal(deviations.offset, 0.0)


def test_a_context_that_was_never_seen_starts_from_what_all_others_know() -> None:
    problem = Problem(list("abcdefgh"), {}, draws=2)
    router, worth = (
        Router(problem, "noisy-or", seed=0),
        dict(zip("abcdefgh", range(8), strict=True)),
    )
    for t in range(400):
        decision = router.decide(f"x{t % 3}")
        router.reward(decision.id, max(worth[name] for name in decision.subset) / 8)
    first = [router.decide(f"new {n}").subset for n in range(30)]
    assert np.mean(["h" in subset for subset in first]) > 0.9  # by chance: 0.25


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
    # y at least a fifth of the time; the pace allows a quarter
    assert trace.rewards[1_000:].mean() > 0.31
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
    assert optimum(problem, environment.values).value - trace.rewards.mean() < 0.01


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
    assert optimum(problem, environment.values).value - trace.rewards.mean() < 0.02


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
    huge = Problem([f"e{i}" for i in range(12_000)], {}, draws=3)
    with pytest.raises(PolicyError, match=r"12,000 experts and 1 contexts take 1.07 GiB.*distinct"):
        Router(huge, "noisy-or")
    most = NoisyOr().max_contexts(50)
    assert count_posterior_bytes(most, 50) <= MAX_POSTERIOR_BYTES
    assert count_posterior_bytes(most + 1, 50) > MAX_POSTERIOR_BYTES


def test_a_thousand_contexts_of_fifty_experts_take_less_than_50_megabytes() -> None:
    rule = NoisyOr().bind(Problem([f"e{i}" for i in range(50)], {}, draws=5))
    state = NoisyOr().start(rule, 1_000)
    assert sum(array.nbytes for array in iterate_arrays(state)) < 50e6
    assert count_posterior_bytes(1_000, 50) < 2e6


@pytest.mark.parametrize(
    "wrong",
    [
        {"explore": -0.1},
        {"explore": 1.1},
        {"explore": True},
        {"pace": 3},
        {"guard": 1},
        {"forget": 1},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        NoisyOr(**wrong)


def test_a_budget_that_full_panels_cannot_keep_is_refused() -> None:
    problem = Problem(["a", "b"], {"usd": [1.0, 1.0]}, [at_most("usd", 1.5)], draws=2)
    with pytest.raises(PolicyError, match="noisy-or asks 2 different experts every time"):
        NoisyOr().bind(problem)
