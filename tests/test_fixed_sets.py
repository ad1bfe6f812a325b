"""The best fixed set, compared with enumeration; it reports when no set keeps the limits."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import hospital
from bylot.errors import ProblemError, ValuesError
from bylot.numerics.jit import Floats
from bylot.optima import BestSet, ValueStack, best_set, iid_optimum, set_search
from bylot.optima.set_search import SetSearch, SetValues, find_feasible_set
from bylot.problem import Limit, Problem, at_least, at_most


def make_search(problem: Problem, values: Floats) -> SetSearch:
    """The search for the best fixed set under all limits."""
    sets = SetValues.of(ValueStack(values), problem, fewer=True)
    return SetSearch.of(sets, problem)


few_examples = settings(deadline=None, derandomize=True, max_examples=150)


def make_problem(
    K: int, draws: int, limits: list[Limit], seed: int = 0, min_draws: int | None = None
) -> Problem:
    """K experts with a price, a load and a group."""
    rng = np.random.default_rng(seed)
    costs = {"usd": rng.random(K), "load": rng.random(K), "junior": np.arange(K) % 3 == 0}
    names = [f"expert {i}" for i in range(K)]
    return Problem(names, costs, limits, draws=draws, min_draws=min_draws)


def make_values(K: int, seed: int = 1, T: int = 5, N: int = 2) -> Floats:
    """Values with ties and zeros among them."""
    return np.round(np.random.default_rng(seed).random((T, N, K)) ** 3, 1)


def set_reward(values: Floats, members: tuple[int, ...]) -> float:
    """mean_t sum_k max_{i in A} V[t, k, i]."""
    return float(values[:, :, list(members)].max(axis=2).sum(axis=1).mean())


def best_value_by_enumeration(problem: Problem, values: Floats, sides: tuple[int, ...]) -> float:
    """The value of the best set that keeps the limits on these sides; -1 if there is none."""
    best, on = -1.0, np.isin(problem.signs, sides)
    fewest = problem.min_members if problem.min_draws else 1
    for size in range(fewest, problem.draws + 1):
        for members in itertools.combinations(range(problem.size), size):
            room = problem.signs * (problem.rows[:, list(members)].sum(axis=1) - problem.bounds)
            if (room[on] >= -1e-9).all():
                best = max(best, set_reward(values, members))
    return best


def member_positions(problem: Problem, best: BestSet) -> tuple[int, ...]:
    return tuple(problem.experts.index(name) for name in best.members)


bounds = st.floats(0.05, 3.0).map(lambda bound: round(bound, 2))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to 8 experts under up to four limits that some policy can keep."""
    limits = [
        side(cost, draw(bounds))
        for side, cost in (
            (at_most, "usd"),
            (at_most, "load"),
            (at_least, "junior"),
            (at_least, "load"),
        )
        if draw(st.booleans())
    ]
    size, draws, seed = draw(st.integers(2, 8)), draw(st.integers(1, 4)), draw(st.integers(0, 99))
    min_draws = draw(st.none() | st.integers(1, draws))
    try:
        return make_problem(size, draws, limits, seed, min_draws)
    except ProblemError:
        return make_problem(size, draws, [], seed)


@few_examples
@given(problem=problems(), seed=st.integers(0, 99))
def test_no_set_within_the_limits_is_better(problem: Problem, seed: int) -> None:
    values = make_values(problem.size, seed)
    best, all_limits = (
        best_set(problem, values),
        best_value_by_enumeration(problem, values, (-1, 1)),
    )
    assert best.proved
    assert best.feasible == (all_limits >= 0)
    assert len(best.members) <= problem.draws
    expected = (
        all_limits if best.feasible else max(best_value_by_enumeration(problem, values, (-1,)), 0.0)
    )
    assert_allclose(best.value, expected, atol=1e-12)
    if best.members:
        assert_allclose(best.value, set_reward(values, member_positions(problem, best)), atol=1e-12)
    assert_allclose(best.cost, problem.rows[:, list(member_positions(problem, best))].sum(axis=1))


@few_examples
@given(problem=problems(), seed=st.integers(0, 99))
def test_swaps_are_never_worse_than_greedy_search(problem: Problem, seed: int) -> None:
    search = make_search(problem, make_values(problem.size, seed))
    for start in ((), find_feasible_set(search) or ()):
        greedy = search.greedy(start)
        assert len(set(greedy)) == len(greedy) <= problem.draws
        assert search.merit(search.improve(greedy)) >= search.merit(greedy)


def test_swaps_find_what_greedy_search_misses() -> None:
    """Greedy search takes the all-rounder first, who adds nothing to the two specialists."""
    values = np.array([[[0.6, 1.0, 0.0], [0.6, 0.0, 1.0]]])
    problem = Problem(["all-rounder", "heart", "skin"], {}, [], draws=2)
    search = make_search(problem, values)
    assert search.value(search.greedy(())) == pytest.approx(1.6)
    assert search.improve(search.greedy(())) == (1, 2)


def test_without_time_for_a_proof_the_set_is_marked_as_not_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, values = make_problem(8, 3, [at_most("usd", 1.2)]), make_values(8)
    best = best_set(problem, values)
    monkeypatch.setattr(set_search, "MAX_BRANCHING_WORK", 0)
    quick = best_set(problem, values)
    assert (best.proved, quick.proved) == (True, False)
    assert 0.9 * best.value < quick.value <= best.value


def test_without_limits_no_policy_earns_more_than_the_best_set() -> None:
    problem, values = make_problem(9, 3, []), make_values(9)
    best = best_set(problem, values)
    assert best.feasible
    assert best.value >= iid_optimum(problem, values, floor=False).ceiling - 1e-9


def test_shares_of_more_groups_than_there_are_draws_exclude_every_fixed_set() -> None:
    names = ["a", "b", "c"]
    costs = {name: np.eye(3)[i] for i, name in enumerate(names)}
    problem = Problem(names, costs, [at_least(name, 0.3) for name in names], draws=2)
    best = best_set(problem, [[0.2, 0.9, 0.8], [0.7, 0.0, 0.0]])
    assert (best.members, best.feasible, best.proved) == (("a", "b"), False, True)
    # A policy that varies its panels can keep the limits
    iid_optimum(problem, [[0.2, 0.9, 0.8], [0.7, 0.0, 0.0]], floor=True)


def test_if_no_set_keeps_the_upper_limits_the_set_is_empty() -> None:
    costs = {"x": [2.0, 0.0], "y": [0.0, 2.0]}
    problem = Problem(["a", "b"], costs, [at_most("x", 1.0), at_most("y", 1.0)], draws=1)
    best = best_set(problem, [[1.0, 1.0]])
    assert (best.members, best.value, best.feasible) == ((), 0.0, False)
    assert list(best.cost) == [0.0, 0.0]


def test_a_problem_with_zero_values_has_a_set() -> None:
    best = best_set(make_problem(4, 2, [at_most("usd", 1.0)]), np.zeros((2, 2, 4)))
    assert best.members
    assert best.feasible


def test_values_for_another_number_of_experts_are_refused() -> None:
    with pytest.raises(ValuesError, match="for 3 experts, the problem has 4"):
        best_set(make_problem(4, 2, []), make_values(3))


def test_the_hospital_example_has_no_feasible_fixed_set() -> None:
    values, weights, _ = hospital.make_environment().expected()
    best = best_set(hospital.make_problem(), ValueStack(values, weights=weights))
    assert (best.feasible, best.proved) == (False, True)
    assert best.value > 0.7778  # more than any feasible mixture: it skips nine labs
