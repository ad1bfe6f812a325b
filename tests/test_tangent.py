"""tangent: the chance of a drawn set, unbiased gradients, rows that are safe, limits that hold."""

import itertools
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from bylot import Problem, Router, at_least, at_most, simulate
from bylot.environments import Given
from bylot.errors import OutOfReachWarning
from bylot.metrics import measure_worst_violation
from bylot.numerics.iid_sets import expected_panel_costs
from bylot.numerics.jit import Bools, Floats
from bylot.numerics.philox import RngKey
from bylot.policies import Tangent
from bylot.policies.base import Ticket, compute_distribution, decide, learn
from bylot.policies.constraint_rows import (
    ConstraintRows,
    find_slater_point,
    make_constraint_rows,
)
from bylot.policies.guard import LIMIT_TOLERANCE
from bylot.policies.iid_draws import IidState, TangentRule
from bylot.policies.iid_limits import (
    fill_tangent_rows,
    find_iid_exploration,
    project_onto_tangents,
    solve_max_entropy_draws,
)
from bylot.policies.mirror_ascent import make_gradient_state
from small import five, recorded, steady

ALL = np.empty(0, np.bool_)
SOME = np.array([True, True, False, True, False])


def moved(policy: Tangent, draws: int = 2) -> tuple[TangentRule, IidState]:
    """A rule, and a state that has learned for a while."""
    rule = policy.bind(five(draws=draws), 1_000)
    state, rng = policy.start(rule), np.random.default_rng(2)
    for t in range(300):
        learn(rule, state, decide(rule, state, 0, RngKey(9, t), ALL), float(rng.random() * 0.5))
    return rule, state


def drawn(rule: TangentRule, state: IidState, t: int, up: Bools = ALL) -> Ticket:
    """A decision that leaves no trace: not the first of a batch, and the account put back."""
    state.visits[0] = 1
    kept = [array.copy() for array in state.budget]
    ticket = decide(rule, state, 0, RngKey(3, t), up)
    for array, before in zip(state.budget, kept, strict=True):
        array[:] = before
    return ticket


def chances_of_sets(q: Floats, draws: int) -> dict[frozenset[int], float]:
    """The chance of every set, by enumeration of all tuples of draws."""
    chances: dict[frozenset[int], float] = defaultdict(float)
    for team in itertools.product(range(q.size), repeat=draws):
        chances[frozenset(team)] += float(q[list(team)].prod())
    return chances


@pytest.mark.parametrize("draws", [1, 2, 3])
@pytest.mark.parametrize("up", [ALL, SOME], ids=["all", "some"])
def test_the_chance_of_a_set_is_that_of_enumeration(up: Bools, draws: int) -> None:
    rule, state = moved(Tangent(eps=0.3), draws)
    wanted, seen = chances_of_sets(compute_distribution(rule, state, 0, up), draws), set()
    for t in range(300):
        ticket = drawn(rule, state, t, up)
        if not ticket.replaced:
            members = frozenset(ticket.draws.tolist())
            seen.add(members)
            assert ticket.propensity == pytest.approx(wanted[members], rel=1e-10)
    assert len(seen) >= min(3, len(wanted))


@pytest.mark.parametrize("up", [ALL, SOME], ids=["all", "some"])
def test_sets_come_as_often_as_their_chance_says(up: Bools) -> None:
    rule, state = moved(Tangent(eps=0.3))
    wanted = {
        a: p
        for a, p in chances_of_sets(compute_distribution(rule, state, 0, up), 2).items()
        if p > 0
    }
    count = dict.fromkeys(wanted, 0)
    for t in range(4_000):
        ticket = drawn(rule, state, t, up)
        if not ticket.replaced:
            count[frozenset(ticket.draws.tolist())] += 1
    total, came = sum(count.values()), list(count.values())
    assert total > 3_900
    assert chisquare(came, [total * p for p in wanted.values()]).pvalue > 1e-3
    mild = np.where(up if up.size else True, rule.explore, 0.0)  # what nothing was learned from
    other = chances_of_sets(mild / mild.sum(), 2)
    assert chisquare(came, [total * other[a] for a in wanted]).pvalue < 1e-6


REWARDS = np.random.default_rng(0).random(2**5)


def reward(team: Iterable[int]) -> float:
    """Any function of the set."""
    return float(REWARDS[sum(1 << i for i in set(team))])


def expected_reward(q: Floats, up: Bools, draws: int) -> float:
    """Of draws from q renormalised on those up, by enumeration."""
    p = np.where(up if up.size else True, q, 0.0)
    p = p / p.sum()
    teams = itertools.product(range(q.size), repeat=draws)
    return sum(float(p[list(team)].prod()) * reward(team) for team in teams)


def mean_gradient(q: Floats, odds: Floats, up: Bools, draws: int) -> Floats:
    """The exact mean over all tuples of what is learned, with no baseline, along the simplex."""
    policy = Tangent(batch=1)
    rule = policy.bind(five(draws=draws), 1_000)
    bare, mean = make_gradient_state(1, q.size), np.zeros(q.size)
    state = policy.start(rule)._replace(gradient=bare)
    for team in itertools.product(np.flatnonzero(q).tolist(), repeat=draws):
        bare.g[:], bare.based[:] = 0.0, True
        panel = np.array(team)
        ticket = Ticket(0, 0, panel, odds[panel], np.empty(0), up, 1.0, True, 0.5, 1.0, False)
        learn(rule, state, ticket, reward(team))
        mean += q[panel].prod() * bare.g[0]
    return np.where(q > 0, mean - q @ mean, mean)


@pytest.mark.parametrize("draws", [1, 2, 3])
@pytest.mark.parametrize("up", [ALL, SOME], ids=["all", "some"])
def test_the_gradient_is_unbiased(up: Bools, draws: int) -> None:
    rule, state = moved(Tangent(eps=0.3), draws)
    q = compute_distribution(rule, state, 0, up)
    slope, h = np.empty(5), 1e-6
    for i, e in enumerate(np.eye(5)):
        there, back = (expected_reward(q + sign * h * e, up, draws) for sign in (1, -1))
        slope[i] = (there - back) / (2 * h)
    assert_allclose(mean_gradient(q, q, up, draws), slope, atol=1e-8)
    if draws > 1:  # of one draw the score is 1 / q, whatever is done to the others
        wrong = q.copy()
        wrong[[0, 1]] = q[[1, 0]]
        assert np.abs(mean_gradient(q, wrong, up, draws) - slope).max() > 1e-3


# Tangent rows.


def simplex(size: int) -> st.SearchStrategy[Floats]:
    """Distributions, some of them with nearly all mass in one place."""
    weights = st.lists(st.floats(1e-6, 1.0), min_size=size, max_size=size)
    return st.builds(lambda w, k: np.array(w) ** k / (np.array(w) ** k).sum(), weights, st.just(3))


def tangent_at(q: Floats, p: Floats, c: Floats, M: int) -> float:
    """The bound for which p is exactly on the row that is tangent at q."""
    At, bt = np.empty((1, q.size)), np.empty(1)
    fill_tangent_rows(At, bt, c[None], np.zeros(1), q, M)
    return float(M * (At[0] @ p - bt[0]))


@given(
    q=simplex(5),
    p=simplex(5),
    c=st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5).map(np.array),
    M=st.integers(1, 6),
)
@settings(deadline=None, derandomize=True)
def test_a_law_on_the_tangent_row_of_an_upper_limit_keeps_the_limit(
    q: Floats, p: Floats, c: Floats, M: int
) -> None:
    assert expected_panel_costs(p, c[None], M)[0] <= tangent_at(q, p, c, M) + 1e-12
    assert expected_panel_costs(q, c[None], M)[0] == pytest.approx(
        tangent_at(q, q, c, M), abs=1e-12
    )
    assert (
        -expected_panel_costs(p, c[None], M)[0] >= tangent_at(q, p, -c, M) - 1e-12
    )  # a lower one: not


POOLS = [five(), five(draws=3), five(draws=4)]


def kept(problem: Problem, seed: int, length: float) -> Floats:
    """Excess over each one-sided limit, in parts of it, after a step of random logits."""
    rows, M, rng = make_constraint_rows(problem), problem.draws, np.random.default_rng(seed)
    _, mild = find_iid_exploration(rows, M, find_slater_point(problem, fewer=True).margin)
    theta, q, prices = np.log(mild), mild.copy(), np.zeros(rows.b.size)
    for _ in range(3):  # so that some limits bind
        theta += length * rng.uniform(-1, 1, theta.size)
        project_onto_tangents(theta, q, prices, rows.A, rows.b, M, 0.02, mild)
    excess: Floats = (expected_panel_costs(q, rows.A, M) - rows.b) / np.abs(rows.b)
    return excess


@pytest.mark.parametrize("problem", POOLS, ids=lambda problem: f"{problem.draws} draws")
def test_a_step_ends_inside_upper_limits_and_nearly_inside_lower_ones(problem: Problem) -> None:
    upper, bound = problem.signs < 0, 0.0
    for seed in range(40):
        excess = kept(problem, seed, 1.0)
        assert excess[upper].max() <= LIMIT_TOLERANCE
        bound = max(bound, float(excess[upper].max()))
        assert excess[~upper].max() <= 0.02
    assert bound > -1e-6  # the limit did bind


@pytest.mark.parametrize("M", [2, 3, 4])
def test_what_a_lower_limit_is_missed_by_is_of_fourth_order_in_the_step(M: int) -> None:
    c, q = np.array([1.0, 0.6, 0.0, 0.2]), np.array([0.25, 0.3, 0.35, 0.1])
    A, none = -c[None], np.zeros(4)
    b = expected_panel_costs(q, A, M)  # q is on it
    missed = []
    for length in (1.0, 0.5, 0.25):
        worst_excess = 0.0
        for seed in range(30):
            step = length * np.random.default_rng(seed).uniform(-1, 1, 4)
            p = q.copy()
            project_onto_tangents(np.log(q) + step, p, np.zeros(1), A, b, M, 0.0, none)
            worst_excess = max(worst_excess, float((expected_panel_costs(p, A, M) - b)[0]))
        missed.append(worst_excess)
    # The first tangent is off by the square of the step, and so are the places of the two; the
    # second is off by the square of their distance.
    assert missed[0] > 1e-4
    assert missed[1] <= missed[0] / 12
    assert missed[2] <= missed[1] / 12


def played(pace: float | None, seed: int = 0) -> tuple[Floats, Problem]:
    """The exact expected costs (T, d) of every q of a run."""
    problem = five()
    trace = simulate(problem, steady(), Tangent(pace=pace), rounds=3_000, seed=seed, horizon=3_000)
    rows = np.array(problem.rows)
    return np.array([expected_panel_costs(q, rows, 2) for q in trace.record.distributions]), problem


@pytest.mark.parametrize("seed", range(3))
def test_at_pace_one_every_round_is_inside_the_upper_limits_in_expectation(seed: int) -> None:
    costs, problem = played(1, seed)
    upper = problem.signs < 0
    excess = costs - problem.bounds
    assert excess[:, upper].max() <= 1e-8
    assert excess[:, upper].max() > -0.05  # they bind
    assert (-excess[:, ~upper]).max() <= 1e-3


def test_at_the_usual_pace_some_rounds_are_outside() -> None:
    costs, problem = played(1.25)
    assert (costs - problem.bounds)[:, problem.signs < 0].max() > 0.01


# Limits that hold.


@pytest.mark.parametrize("seed", range(4))
def test_limits_are_kept_exactly_at_the_horizon_and_more_is_earned_than_by_omd(seed: int) -> None:
    problem, world = five(), steady()
    ours = simulate(problem, world, "tangent", rounds=3_000, seed=seed, horizon=3_000)
    papers = simulate(problem, world, "omd", rounds=3_000, seed=seed, horizon=3_000)
    assert measure_worst_violation(ours) == 0.0
    assert ours.rewards.mean() > papers.rewards.mean()


@pytest.mark.parametrize("period", [50, 250, 1_000])
def test_without_a_horizon_limits_hold_in_every_period(period: int) -> None:
    small = five()
    problem = Problem(small.experts, dict(small.costs), small.limits, draws=2, period=period)
    for seed in range(3):
        trace = simulate(
            problem, steady(), "tangent", rounds=5_000, seed=seed, keep_distributions=False
        )
        for spend in np.split(trace.spend, 5_000 // period):
            assert (problem.signs * (spend.mean(axis=0) - problem.bounds) >= -1e-12).all()
    bare = simulate(problem, steady(), Tangent(guard=False), rounds=5_000, keep_distributions=False)
    means = np.array([part.mean(axis=0) for part in np.split(bare.spend, 5_000 // period)])
    if period == 50:  # without the guard it would be noticed
        assert (problem.signs * (means - problem.bounds) < 0).any()


def test_contexts_learn_apart_and_share_one_account() -> None:
    values = np.full((4_000, 1, 5), 0.05)
    contexts = np.arange(4_000) % 2
    values[contexts == 0, 0, 0] = 0.9  # ann, the dear one
    values[contexts == 1, 0, 3] = 0.9  # dan
    trace = simulate(five(), Given(values, contexts), "tangent", rounds=4_000, horizon=4_000)
    first, second = trace.record.distributions[-2:]
    assert first[0] > 0.4 > second[0]
    assert second[3] > 0.4 > first[3]
    assert measure_worst_violation(trace) == 0.0
    dear, cheap = (trace.spend[contexts == x, 0].mean() for x in (0, 1))
    assert dear > 3.0 > cheap  # one is over what both together keep


def test_a_new_context_starts_from_the_mildest_law() -> None:
    router = Router(five(), "tangent", seed=2)
    for n, values in enumerate(recorded(200).values):
        decision = router.decide("old")
        router.reward(decision.id, float(values[:, n % 5].sum()))
    router.decide("new")
    rule, state = router.core.rule, router.core.state
    assert np.abs(state.theta[0] - state.theta[1]).max() > 0.1
    assert state.budget.left[0] == rule.guard.period - 201


# The margin of draws.


def grid(size: int, parts: int) -> Floats:
    """All distributions in steps of 1 / parts."""
    tuples = itertools.product(range(parts + 1), repeat=size - 1)
    heads = np.array([t for t in tuples if sum(t) <= parts], float)
    return np.column_stack([heads, parts - heads.sum(axis=1)]) / parts


def room_of(q: Floats, rows: ConstraintRows, M: int) -> Floats:
    """How far every limit could be tightened for each law, in parts of itself, at most wholly."""
    h = (1 - (1 - q) ** M) @ rows.A.T
    return np.asarray(((rows.b - h) / np.abs(rows.b)).min(axis=1).clip(max=1.0))


TINY = {
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


@pytest.mark.parametrize("name", TINY)
def test_the_margin_of_draws_is_attained_and_no_law_of_a_grid_has_more(name: str) -> None:
    problem = TINY[name]
    rows, M = make_constraint_rows(problem), problem.draws
    margin, _ = find_iid_exploration(rows, M, find_slater_point(problem, fewer=True).margin)
    q, excess = solve_max_entropy_draws(rows, M, margin)
    assert excess <= LIMIT_TOLERANCE
    assert room_of(q[None], rows, M)[0] >= margin - 1e-6
    best = room_of(grid(problem.size, 200), rows, M).max()
    assert best <= margin + 1e-6
    assert best >= margin - 0.02  # the grid is fine enough to notice a margin that is too large


def test_the_margin_of_draws_may_be_less_than_there_is_as_its_search_is_local() -> None:
    problem = Problem(
        ["a", "b", "c"],
        {"usd": [1.0, 2.0, 4.0], "bc": [0, 1, 1]},
        [at_most("usd", 3.0), at_least("bc", 0.6), at_least("usd", 1.5)],
        draws=3,
    )
    rows = make_constraint_rows(problem)
    margin, _ = find_iid_exploration(rows, 3, find_slater_point(problem, fewer=True).margin)
    assert solve_max_entropy_draws(rows, 3, margin)[1] <= LIMIT_TOLERANCE
    assert 0.1 < margin < room_of(np.array([[0.0, 1.0, 0.0]]), rows, 3)[0]  # b alone


def test_minima_that_independent_draws_cannot_keep_are_warned_of() -> None:
    group = {"g": [1, 1, 1, 1, 0, 0]}
    problem = Problem(list("abcdef"), group, [at_least("g", 2.5)], draws=3)
    with pytest.warns(OutOfReachWarning, match="use 'distinct': it asks different experts"):
        Tangent().bind(problem)
