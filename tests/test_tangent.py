"""tangent: exact propensities, unbiased gradients, safe tangent rows, limits that hold."""

import itertools
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from bound_policies import ALL_AVAILABLE, PolicyAtWork
from bylot import Problem, Router, at_least, at_most, simulate
from bylot.environments import Given
from bylot.errors import OutOfReachWarning
from bylot.limits.guard import LIMIT_TOLERANCE
from bylot.limits.request import Ticket
from bylot.limits.rows import (
    ConstraintRows,
    find_slater_point,
    make_constraint_rows,
)
from bylot.metrics import measure_worst_violation
from bylot.numerics.iid_sets import expected_panel_costs
from bylot.numerics.jit import Bools, Floats
from bylot.numerics.philox import RngKey
from bylot.policies import Tangent
from bylot.policies.base import compute_distribution, learn
from bylot.policies.iid_limits import (
    fill_tangent_rows,
    find_iid_exploration,
    project_onto_tangents,
    solve_max_entropy_draws,
)
from bylot.policies.mirror_ascent import make_gradient_state
from sample_problem import (
    make_five_expert_problem,
    make_recorded_environment,
    make_reward_feedback,
    make_stationary_environment,
)

SOME_AVAILABLE = np.array([True, True, False, True, False])


def train_policy(policy: Tangent, draws: int = 2) -> PolicyAtWork:
    """Return a policy that has learned for a while."""
    play = PolicyAtWork(policy, make_five_expert_problem(draws=draws), 1_000)
    rng = np.random.default_rng(2)
    for t in range(300):
        play.learn(play.decide(RngKey(9, t)), float(rng.random() * 0.5))
    return play


def get_distribution(play: PolicyAtWork, available: Bools) -> Floats:
    """Return the distribution of each draw."""
    return compute_distribution(play.rule, play.state, play.see(available=available))


def draw_ticket(play: PolicyAtWork, t: int, available: Bools = ALL_AVAILABLE) -> Ticket:
    """A decision without side effects: not the first of a batch, and what was spent restored."""
    play.state.visits[0] = 1
    return play.draw(RngKey(3, t), available=available)


def enumerate_set_probabilities(q: Floats, draws: int) -> dict[frozenset[int], float]:
    """The probability of every set, by enumeration of all tuples of draws."""
    probabilities: dict[frozenset[int], float] = defaultdict(float)
    for draws_of_team in itertools.product(range(q.size), repeat=draws):
        probabilities[frozenset(draws_of_team)] += float(q[list(draws_of_team)].prod())
    return probabilities


@pytest.mark.parametrize("draws", [1, 2, 3])
@pytest.mark.parametrize("available", [ALL_AVAILABLE, SOME_AVAILABLE], ids=["all", "some"])
def test_the_propensity_of_a_set_equals_enumeration(available: Bools, draws: int) -> None:
    play = train_policy(Tangent(eps=0.3), draws)
    expected = enumerate_set_probabilities(get_distribution(play, available), draws)
    seen = set()
    for t in range(300):
        ticket = draw_ticket(play, t, available)
        if not ticket.replaced:
            members = frozenset(ticket.draws.tolist())
            seen.add(members)
            assert ticket.propensity == pytest.approx(expected[members], rel=1e-10)
    assert len(seen) >= min(3, len(expected))


@pytest.mark.parametrize("available", [ALL_AVAILABLE, SOME_AVAILABLE], ids=["all", "some"])
def test_sets_are_drawn_with_their_propensity(available: Bools) -> None:
    play = train_policy(Tangent(eps=0.3))
    expected = {
        a: p
        for a, p in enumerate_set_probabilities(get_distribution(play, available), 2).items()
        if p > 0
    }
    count = dict.fromkeys(expected, 0)
    for t in range(4_000):
        ticket = draw_ticket(play, t, available)
        if not ticket.replaced:
            count[frozenset(ticket.draws.tolist())] += 1
    total, counts = sum(count.values()), list(count.values())
    assert total > 3_900
    assert chisquare(counts, [total * p for p in expected.values()]).pvalue > 1e-3
    # a distribution that has not learned
    max_entropy = np.where(available if available.size else True, play.rule.explore, 0.0)
    other = enumerate_set_probabilities(max_entropy / max_entropy.sum(), 2)
    assert chisquare(counts, [total * other[a] for a in expected]).pvalue < 1e-6


REWARDS = np.random.default_rng(0).random(2**5)


def reward(draws_of_team: Iterable[int]) -> float:
    """Any function of the set."""
    return float(REWARDS[sum(1 << i for i in set(draws_of_team))])


def expected_reward(q: Floats, available: Bools, draws: int) -> float:
    """Expected reward of draws from q renormalised on the available, by enumeration."""
    p = np.where(available if available.size else True, q, 0.0)
    p = p / p.sum()
    sequences = itertools.product(range(q.size), repeat=draws)
    return sum(
        float(p[list(draws_of_team)].prod()) * reward(draws_of_team) for draws_of_team in sequences
    )


def mean_gradient(q: Floats, draw_probabilities: Floats, available: Bools, draws: int) -> Floats:
    """The exact mean gradient over all tuples, without a baseline, along the simplex."""
    policy = Tangent(batch=1)
    rule = policy.bind(make_five_expert_problem(draws=draws), 1_000)
    gradient_state, mean = make_gradient_state(1, q.size), np.zeros(q.size)
    state = policy.start(rule)._replace(gradient=gradient_state)
    for draws_of_team in itertools.product(np.flatnonzero(q).tolist(), repeat=draws):
        gradient_state.g[:], gradient_state.based[:] = 0.0, True
        panel = np.array(draws_of_team)
        ticket = Ticket(
            0,
            0,
            panel,
            draw_probabilities[panel],
            np.empty(0),
            available,
            1.0,
            True,
            0.5,
            1.0,
            False,
        )
        learn(rule, state, ticket, make_reward_feedback(reward(draws_of_team)))
        mean += q[panel].prod() * gradient_state.g[0]
    return np.where(q > 0, mean - q @ mean, mean)


@pytest.mark.parametrize("draws", [1, 2, 3])
@pytest.mark.parametrize("available", [ALL_AVAILABLE, SOME_AVAILABLE], ids=["all", "some"])
def test_the_gradient_is_unbiased(available: Bools, draws: int) -> None:
    play = train_policy(Tangent(eps=0.3), draws)
    q = get_distribution(play, available)
    slope, h = np.empty(5), 1e-6
    for i, e in enumerate(np.eye(5)):
        plus, minus = (expected_reward(q + sign * h * e, available, draws) for sign in (1, -1))
        slope[i] = (plus - minus) / (2 * h)
    assert_allclose(mean_gradient(q, q, available, draws), slope, atol=1e-8)
    if draws > 1:  # with one draw the score is 1 / q of that expert only
        wrong = q.copy()
        wrong[[0, 1]] = q[[1, 0]]
        assert np.abs(mean_gradient(q, wrong, available, draws) - slope).max() > 1e-3


# Tangent rows.


def random_distributions(size: int) -> st.SearchStrategy[Floats]:
    """Distributions, some of them with nearly all mass in one place."""
    weights = st.lists(st.floats(1e-6, 1.0), min_size=size, max_size=size)
    return st.builds(lambda w, k: np.array(w) ** k / (np.array(w) ** k).sum(), weights, st.just(3))


def tangent_at(q: Floats, p: Floats, c: Floats, M: int) -> float:
    """The bound for which p is exactly on the row that is tangent at q."""
    At, bt = np.empty((1, q.size)), np.empty(1)
    fill_tangent_rows(At, bt, c[None], np.zeros(1), q, M)
    return float(M * (At[0] @ p - bt[0]))


@given(
    q=random_distributions(5),
    p=random_distributions(5),
    c=st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5).map(np.array),
    M=st.integers(1, 6),
)
@settings(deadline=None, derandomize=True)
def test_a_distribution_on_the_tangent_row_of_an_upper_limit_keeps_the_limit(
    q: Floats, p: Floats, c: Floats, M: int
) -> None:
    assert expected_panel_costs(p, c[None], M)[0] <= tangent_at(q, p, c, M) + 1e-12
    assert expected_panel_costs(q, c[None], M)[0] == pytest.approx(
        tangent_at(q, q, c, M), abs=1e-12
    )
    # Not for a lower limit
    assert -expected_panel_costs(p, c[None], M)[0] >= tangent_at(q, p, -c, M) - 1e-12


PROBLEMS = [
    make_five_expert_problem(),
    make_five_expert_problem(draws=3),
    make_five_expert_problem(draws=4),
]


def compute_excess_after_step(problem: Problem, seed: int, length: float) -> Floats:
    """Excess over each one-sided limit, in parts of it, after a step of random logits."""
    rows, M, rng = make_constraint_rows(problem), problem.draws, np.random.default_rng(seed)
    _, max_entropy = find_iid_exploration(rows, M, find_slater_point(problem, fewest=1).margin)
    theta, q, prices = np.log(max_entropy), max_entropy.copy(), np.zeros(rows.b.size)
    for _ in range(3):  # so that some limits bind
        theta += length * rng.uniform(-1, 1, theta.size)
        project_onto_tangents(theta, q, prices, rows, M, 0.02, max_entropy)
    excess: Floats = (expected_panel_costs(q, rows.A, M) - rows.b) / np.abs(rows.b)
    return excess


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: f"{problem.draws} draws")
def test_a_step_ends_inside_upper_limits_and_nearly_inside_lower_ones(problem: Problem) -> None:
    upper, bound = problem.signs < 0, 0.0
    for seed in range(40):
        excess = compute_excess_after_step(problem, seed, 1.0)
        assert excess[upper].max() <= LIMIT_TOLERANCE
        bound = max(bound, float(excess[upper].max()))
        assert excess[~upper].max() <= 0.02
    assert bound > -1e-6  # the limit did bind


@pytest.mark.parametrize("M", [2, 3, 4])
def test_the_violation_of_a_lower_limit_is_of_fourth_order_in_the_step(M: int) -> None:
    c, q = np.array([1.0, 0.6, 0.0, 0.2]), np.array([0.25, 0.3, 0.35, 0.1])
    A, none = -c[None], np.zeros(4)
    rows = ConstraintRows(A, expected_panel_costs(q, A, M))  # q is on it
    violations = []
    for length in (1.0, 0.5, 0.25):
        worst_excess = 0.0
        for seed in range(30):
            step = length * np.random.default_rng(seed).uniform(-1, 1, 4)
            p = q.copy()
            project_onto_tangents(np.log(q) + step, p, np.zeros(1), rows, M, 0.0, none)
            worst_excess = max(worst_excess, float((expected_panel_costs(p, A, M) - rows.b)[0]))
        violations.append(worst_excess)
    # The first tangent is off by the square of the step, and so are the two points; the
    # second is off by the square of their distance.
    assert violations[0] > 1e-4
    assert violations[1] <= violations[0] / 12
    assert violations[2] <= violations[1] / 12


def simulate_expected_costs(pace: float | None, seed: int = 0) -> tuple[Floats, Problem]:
    """The exact expected costs (T, d) of every q of a run."""
    problem = make_five_expert_problem()
    trace = simulate(
        problem,
        make_stationary_environment(),
        Tangent(pace=pace),
        rounds=3_000,
        seed=seed,
        horizon=3_000,
    )
    rows = np.array(problem.rows)
    return np.array([expected_panel_costs(q, rows, 2) for q in trace.record.distributions]), problem


@pytest.mark.parametrize("seed", range(3))
def test_at_pace_one_every_round_keeps_the_upper_limits_in_expectation(seed: int) -> None:
    costs, problem = simulate_expected_costs(1, seed)
    upper = problem.signs < 0
    excess = costs - problem.bounds
    assert excess[:, upper].max() <= 1e-8
    assert excess[:, upper].max() > -0.05  # they bind
    assert (-excess[:, ~upper]).max() <= 1e-3


def test_at_the_default_pace_some_rounds_exceed_the_limits() -> None:
    costs, problem = simulate_expected_costs(1.25)
    assert (costs - problem.bounds)[:, problem.signs < 0].max() > 0.01


# Limits that hold.


@pytest.mark.parametrize("seed", range(4))
def test_limits_hold_at_the_horizon_and_rewards_exceed_those_of_omd(seed: int) -> None:
    problem, environment = make_five_expert_problem(), make_stationary_environment()
    tangent = simulate(problem, environment, "tangent", rounds=3_000, seed=seed, horizon=3_000)
    omd = simulate(problem, environment, "omd", rounds=3_000, seed=seed, horizon=3_000)
    assert measure_worst_violation(tangent) == 0.0
    assert tangent.rewards.mean() > omd.rewards.mean()


@pytest.mark.parametrize("period", [50, 250, 1_000])
def test_without_a_horizon_limits_hold_in_every_period(period: int) -> None:
    problem_without_period = make_five_expert_problem()
    problem = Problem(
        problem_without_period.experts,
        dict(problem_without_period.costs),
        problem_without_period.limits,
        draws=2,
        period=period,
    )
    for seed in range(3):
        trace = simulate(
            problem,
            make_stationary_environment(),
            "tangent",
            rounds=5_000,
            seed=seed,
            keep_distributions=False,
        )
        for spend in np.split(trace.spend, 5_000 // period):
            assert (problem.signs * (spend.mean(axis=0) - problem.bounds) >= -1e-12).all()
    gradient_state = simulate(
        problem,
        make_stationary_environment(),
        Tangent(guard=False),
        rounds=5_000,
        keep_distributions=False,
    )
    means = np.array(
        [part.mean(axis=0) for part in np.split(gradient_state.spend, 5_000 // period)]
    )
    if period == 50:  # without the guard it would be noticed
        assert (problem.signs * (means - problem.bounds) < 0).any()


def test_contexts_learn_separately_and_share_one_budget() -> None:
    values = np.full((4_000, 1, 5), 0.05)
    contexts = np.arange(4_000) % 2
    values[contexts == 0, 0, 0] = 0.9  # ann, who is expensive
    values[contexts == 1, 0, 3] = 0.9  # dan
    trace = simulate(
        make_five_expert_problem(), Given(values, contexts), "tangent", rounds=4_000, horizon=4_000
    )
    first, second = trace.record.distributions[-2:]
    assert first[0] > 0.4 > second[0]
    assert second[3] > 0.4 > first[3]
    assert measure_worst_violation(trace) == 0.0
    expensive, cheap = (trace.spend[contexts == x, 0].mean() for x in (0, 1))
    assert expensive > 3.0 > cheap  # one context exceeds the bound that both keep together


def test_a_new_context_starts_from_the_maximum_entropy_distribution() -> None:
    router = Router(make_five_expert_problem(), "tangent", seed=2)
    for n, values in enumerate(make_recorded_environment(200).values):
        decision = router.decide("old")
        router.reward(decision.id, float(values[:, n % 5].sum()))
    router.decide("new")
    state, limits = router.core.state, router.core.book.tables
    assert np.abs(state.theta[0] - state.theta[1]).max() > 0.1
    assert limits is not None
    assert limits.state.clock["left"][0] == limits.rule.period - 201


# The margin of draws.


def simplex_grid(size: int, parts: int) -> Floats:
    """All distributions in steps of 1 / parts."""
    tuples = itertools.product(range(parts + 1), repeat=size - 1)
    heads = np.array([t for t in tuples if sum(t) <= parts], float)
    return np.column_stack([heads, parts - heads.sum(axis=1)]) / parts


def compute_room(q: Floats, rows: ConstraintRows, M: int) -> Floats:
    """How far all limits could be tightened for each distribution, in parts of the bounds."""
    h = (1 - (1 - q) ** M) @ rows.A.T
    return np.asarray(((rows.b - h) / np.abs(rows.b)).min(axis=1).clip(max=1.0))


TINY_PROBLEMS = {
    "a budget": Problem(["a", "b"], {"usd": [1.0, 3.0]}, [at_most("usd", 2.5)], draws=2),
    "a budget and a share": Problem(
        ["a", "b"],
        {"usd": [1.0, 3.0], "b": [0, 1]},
        [at_most("usd", 3.2), at_least("b", 0.3)],
        draws=3,
    ),
    "two shares": Problem(
        ["a", "b", "c"],
        {"ab": [1, 1, 0], "c": [0, 0, 1]},
        [at_least("ab", 0.9), at_least("c", 0.5)],
        draws=2,
    ),
}


@pytest.mark.parametrize("name", TINY_PROBLEMS)
def test_the_margin_of_draws_is_attained_and_no_distribution_of_a_grid_has_more(name: str) -> None:
    problem = TINY_PROBLEMS[name]
    rows, M = make_constraint_rows(problem), problem.draws
    margin, _ = find_iid_exploration(rows, M, find_slater_point(problem, fewest=1).margin)
    q, excess = solve_max_entropy_draws(rows, M, margin)
    assert excess <= LIMIT_TOLERANCE
    assert compute_room(q[None], rows, M)[0] >= margin - 1e-6
    best = compute_room(simplex_grid(problem.size, 200), rows, M).max()
    assert best <= margin + 1e-6
    assert best >= margin - 0.02  # the grid is fine enough to notice a margin that is too large


def test_the_margin_of_draws_can_be_a_local_maximum_only() -> None:
    problem = Problem(
        ["a", "b", "c"],
        {"usd": [1.0, 2.0, 4.0], "bc": [0, 1, 1]},
        [at_most("usd", 3.0), at_least("bc", 0.6), at_least("usd", 1.5)],
        draws=3,
    )
    rows = make_constraint_rows(problem)
    margin, _ = find_iid_exploration(rows, 3, find_slater_point(problem, fewest=1).margin)
    assert solve_max_entropy_draws(rows, 3, margin)[1] <= LIMIT_TOLERANCE
    assert 0.1 < margin < compute_room(np.array([[0.0, 1.0, 0.0]]), rows, 3)[0]  # b alone


def test_lower_limits_that_independent_draws_cannot_keep_give_a_warning() -> None:
    group = {"g": [1, 1, 1, 1, 0, 0]}
    problem = Problem(list("abcdef"), group, [at_least("g", 2.5)], draws=3)
    with pytest.warns(OutOfReachWarning, match="use 'distinct': it asks different experts"):
        Tangent().bind(problem)
