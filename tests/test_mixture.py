"""The best mixture of sets, compared with a linear program over all sets, and its prices."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linprog

import bylot
import hospital
from bylot.errors import InfeasibleLimits, ProblemError, ValuesError
from bylot.numerics.jit import Floats
from bylot.optima import (
    Optimum,
    ValueStack,
    best_set,
    check_shadow_prices,
    iid_optimum,
    optimum,
    set_search,
)
from bylot.optima.mixtures import list_systematic_sets
from bylot.optima.set_search import ListedSets, SetSearch, SetValues
from bylot.problem import Limit, Problem, at_least, at_most

few_examples = settings(deadline=None, derandomize=True, max_examples=60)


def make_problem(
    K: int, draws: int, limits: list[Limit], seed: int = 0, min_draws: int | None = None
) -> Problem:
    """K experts with a price, a load and a group."""
    rng = np.random.default_rng(seed)
    costs = {"usd": rng.random(K), "load": rng.random(K), "junior": np.arange(K) % 3 == 0}
    names = [f"expert {i}" for i in range(K)]
    return Problem(names, costs, limits, draws=draws, min_draws=min_draws)


def make_values(K: int, seed: int = 1, T: int = 6, N: int = 2) -> Floats:
    """Values with ties and zeros among them."""
    return np.round(np.random.default_rng(seed).random((T, N, K)) ** 3, 1)


def set_rewards(values: Floats, members: tuple[int, ...]) -> Floats:
    """(T,), sum_k max_{i in A} V[t, k, i]."""
    total: Floats = values[:, :, list(members)].max(axis=2).sum(axis=1)
    return total


def solve_by_enumeration(
    problem: Problem, values: Floats, contexts: Floats, fewer: bool = False
) -> float | None:
    """The value of one linear program over all sets in all contexts; None if it has no solution."""
    fewest, most = problem.min_members, min(problem.draws, problem.size)
    if fewer and problem.min_draws is None:
        fewest = 1
    sets = [
        members
        for size in range(fewest, most + 1)
        for members in itertools.combinations(range(problem.size), size)
    ]
    labels, share = np.unique(contexts), 1 / len(values)
    worth = [
        set_rewards(values[contexts == x], one).sum() / len(values) for x in labels for one in sets
    ]
    costs = np.array([problem.rows[:, list(one)].sum(axis=1) for one in sets]).T
    shares = [(contexts == x).sum() * share for x in labels]
    A = np.hstack([part * costs for part in shares]) * -problem.signs[:, None]
    E = np.kron(np.eye(len(labels)), np.ones(len(sets)))
    best = linprog(
        -np.array(worth),
        A_ub=A,
        b_ub=-problem.signs * problem.bounds,
        A_eq=E,
        b_eq=np.ones(len(labels)),
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return None if best.x is None else float(best.x @ worth)


def recompute(
    problem: Problem, best: Optimum, values: Floats, contexts: Floats
) -> tuple[float, Floats]:
    """Value and costs of a mixture, from its panels alone."""
    position = {name: i for i, name in enumerate(problem.experts)}
    value, cost = 0.0, np.zeros(len(problem.limits))
    for x, table in zip(np.unique(contexts), best.panels, strict=True):
        own, share = values[contexts == x], (contexts == x).mean()
        assert sum(probability for _, probability in table) == pytest.approx(1.0, abs=1e-12)
        for panel, probability in table:
            members = tuple(position[name] for name in panel)
            value += probability * set_rewards(own, members).sum() / len(values)
            cost += share * probability * problem.rows[:, list(members)].sum(axis=1)
    return value, cost


bounds = st.floats(0.05, 3.0).map(lambda bound: round(bound, 2))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to 8 experts under up to four limits that some policy can keep."""
    sides = ((at_most, "usd"), (at_most, "load"), (at_least, "junior"), (at_least, "load"))
    limits = [side(cost, draw(bounds)) for side, cost in sides if draw(st.booleans())]
    size, draws, seed = draw(st.integers(2, 8)), draw(st.integers(1, 4)), draw(st.integers(0, 99))
    min_draws = draw(st.none() | st.integers(1, draws))
    try:
        return make_problem(size, draws, limits, seed, min_draws)
    except ProblemError:
        return make_problem(size, draws, [], seed)


@pytest.mark.parametrize("listed", [set_search.MAX_LISTED_SETS, 0])
@pytest.mark.parametrize("fewer", [False, True])
@few_examples
@given(problem=problems(), seed=st.integers(0, 99), several=st.booleans())
def test_no_mixture_of_all_sets_is_better(
    listed: int, fewer: bool, problem: Problem, seed: int, several: bool
) -> None:
    values = make_values(problem.size, seed)
    contexts = np.array([0, 1, 1, 0, 1, 1]) * several
    true = solve_by_enumeration(problem, values, contexts, fewer)
    options: Any = {"contexts": contexts, "fewer": fewer}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_search, "MAX_LISTED_SETS", listed)
        if true is None:
            with pytest.raises(InfeasibleLimits, match="no mixture of panels"):
                optimum(problem, values, **options)
            return
        best = optimum(problem, values, **options)
    assert_allclose(best.value, true, atol=1e-9)
    assert best.gap <= 2e-9 * set_rewards(values, tuple(range(problem.size))).mean()
    value, cost = recompute(problem, best, values, contexts)
    assert_allclose(value, best.value, atol=1e-12)
    assert (problem.signs * (cost - problem.bounds) >= -1e-8).all()
    share = np.array([(contexts == x).mean() for x in np.unique(contexts)])
    assert_allclose(problem.rows @ (share @ best.inclusion), cost, atol=1e-12)


def test_the_test_above_would_notice_a_missing_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, values = make_problem(6, 2, [at_most("usd", 0.8)]), make_values(6)
    true = solve_by_enumeration(problem, values, np.zeros(6))
    assert true is not None
    likeliest = optimum(problem, values).panels[0][0][0]
    positions = [problem.experts.index(name) for name in likeliest]
    list_all_sets = ListedSets.of

    def list_all_sets_but_one(sets: SetValues) -> ListedSets:
        everything = list_all_sets(sets)
        keep = (everything.members != positions).any(axis=1)
        return ListedSets(everything.members[keep], everything.f[keep])

    monkeypatch.setattr(ListedSets, "of", list_all_sets_but_one)
    monkeypatch.setattr(
        bylot.optima.mixtures, "list_systematic_sets", lambda p: [(0, 5), (2, 5), (0, 2)]
    )
    assert optimum(problem, values).value < true - 1e-4


@few_examples
@given(problem=problems(), seed=st.integers(0, 99), fewer=st.booleans(), limit=st.integers(0, 9))
def test_the_bound_of_a_search_holds_at_any_cut_off(
    problem: Problem, seed: int, fewer: bool, limit: int
) -> None:
    sets = SetValues.of(ValueStack(make_values(problem.size, seed)), problem, fewer)
    charges = np.random.default_rng(seed).normal(0.0, 0.3, problem.size)
    best = ListedSets.of(sets).prove(charges).ceiling
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_search, "MAX_EXPANDED_SETS", limit)
        cut_off = SetSearch.of(sets).prove(charges)
    assert cut_off.ceiling >= best - 1e-12
    found = cut_off.f[0] - np.append(charges, 0.0)[cut_off.members[0]].sum()
    assert found <= best + 1e-12
    assert_allclose(SetSearch.of(sets).prove(charges).ceiling, best, atol=1e-12)


@few_examples
@given(
    p=st.lists(st.integers(0, 20), min_size=2, max_size=9).filter(any),
    whole=st.booleans(),
)
def test_systematic_sets_can_be_mixed_to_any_inclusion_probabilities(
    p: list[int], whole: bool
) -> None:
    inclusion = np.array(p) / 20
    if whole and inclusion.sum() > 1:
        inclusion *= np.floor(inclusion.sum()) / inclusion.sum()
    sets = list_systematic_sets(inclusion)
    low, high = np.floor(inclusion.sum() - 1e-6), np.ceil(inclusion.sum() - 1e-6)
    assert all(low <= len(one) <= high for one in sets)
    inside = np.array([[float(i in one) for one in sets] for i in range(len(p))])
    A = np.vstack([inside, np.ones(len(sets))])
    mixed = linprog(np.zeros(len(sets)), A_eq=A, b_eq=np.append(inclusion, 1.0))
    assert mixed.status == 0


def test_one_budget_for_all_contexts_earns_more_than_limits_for_each() -> None:
    problem, values = make_problem(7, 2, [at_most("usd", 0.25)]), make_values(7)
    contexts = np.array([0, 0, 0, 1, 1, 1])
    each = optimum(problem, values, contexts=contexts, each_context=True)
    alone = [optimum(problem, values[contexts == x]).value for x in (0, 1)]
    assert each.value == pytest.approx(np.mean(alone), abs=1e-9)
    assert (problem.rows @ each.inclusion.T <= 0.25 + 1e-9).all()
    together = optimum(problem, values, contexts=contexts)
    assert together.value > each.value + 1e-4
    assert list(together.contexts) == [0, 1]  # type: ignore[arg-type]


def test_without_limits_the_best_mixture_is_the_best_set() -> None:
    problem, values = make_problem(8, 3, []), make_values(8)
    best, fixed = optimum(problem, values), best_set(problem, values)
    assert best.value == pytest.approx(fixed.value, abs=1e-12)
    assert best.gap <= 1e-9


@pytest.mark.parametrize("bound", [0.6, 1.0, 1.4])
def test_smaller_panels_earn_at_least_as_much_as_full_panels_and_iid_draws(
    bound: float,
) -> None:
    problem, values = (
        make_problem(7, 3, [at_most("usd", bound), at_least("junior", 0.3)]),
        make_values(7),
    )
    fewer = optimum(problem, values, fewer=True)
    assert fewer.value >= optimum(problem, values).value - 1e-9
    assert fewer.ceiling >= iid_optimum(problem, values, floor=False, exact=True).value - 1e-9


def test_the_minimum_of_a_problem_is_that_of_its_best_mixture() -> None:
    """Two specialists for 3, three others for 1: the fewer must be asked, the more specialists."""
    values = np.array([[[1.0, 0.0, 0.1, 0.1, 0.1], [0.0, 1.0, 0.1, 0.1, 0.1]]])
    costs, limits = {"usd": [3.0, 3.0, 1.0, 1.0, 1.0]}, [at_most("usd", 3.2)]
    plain = Problem(list("abcde"), costs, limits, draws=3)
    best = [optimum(plain.replace(min_draws=fewest), values) for fewest in (1, 2, 3)]
    for fewest, one in zip((1, 2, 3), best, strict=True):
        assert min(len(panel) for panel, _ in one.panels[0]) == fewest
        assert one.sizes == (fewest, 3)
    assert best[0].value > best[1].value + 0.1 > best[2].value + 0.2
    assert best[0].value == pytest.approx(optimum(plain, values, fewer=True).value)
    assert best[2].value == pytest.approx(optimum(plain, values).value)


def test_prices_agree_with_difference_quotients() -> None:
    limits = [at_most("usd", 0.9), at_least("junior", 1.3), at_most("junior", 3.0)]
    problem, values = make_problem(8, 3, limits), make_values(8)
    several: Any = {"contexts": np.arange(6) % 2}
    none: Any = {}
    for options in (none, several):
        best = optimum(problem, values, **options)
        prices = check_shadow_prices(problem, values, best, **options)
        assert [price.verdict for price in prices] == ["agrees"] * 3
        assert prices[0].price > 1e-2
        assert prices[1].price < -1e-2
        assert abs(prices[2].price) < 1e-9
        step = 1e-4
        moved = [limits[0].at(0.9 + step), *limits[1:]]
        more = optimum(make_problem(8, 3, moved), values, **options)
        assert (more.value - best.value) / step == pytest.approx(prices[0].price, rel=1e-4)


def test_a_wrong_price_is_detected() -> None:
    problem, values = make_problem(8, 3, [at_most("usd", 0.9)]), make_values(8)
    best = optimum(problem, values)
    wrong = replace(best, prices=best.prices * 1.03)
    assert check_shadow_prices(problem, values, wrong)[0].verdict == "differs"


def test_a_kink_reports_both_one_sided_prices() -> None:
    """Up to 1 a unit buys 1 of b, beyond it only 0.2: by c instead of b."""
    problem = Problem(["a", "b", "c"], {"usd": [0.0, 1.0, 2.0]}, [at_most("usd", 1.0)], draws=1)
    values = np.array([[0.0, 1.0, 1.2]])
    (usd,) = check_shadow_prices(problem, values, optimum(problem, values))
    assert usd.verdict == "kink"
    assert_allclose([usd.below or 0.0, usd.above or 0.0], [1.0, 0.2], rtol=1e-6)


def test_the_error_for_infeasible_full_panels_names_the_limits() -> None:
    problem = make_problem(4, 3, [at_most("usd", 0.3)])
    with pytest.raises(InfeasibleLimits, match=r"panels of 3 different.*usd.*use fewer=True"):
        optimum(problem, make_values(4), fewer=False)
    smaller = optimum(problem, make_values(4), fewer=True)
    assert smaller.value > 0.0
    by_default = optimum(problem, make_values(4))
    assert by_default.value == smaller.value
    assert by_default.question == "the best mixture of panels of 1 to 3 experts under the limits"


def test_the_policy_of_an_optimum_is_its_table_of_panels() -> None:
    problem = make_problem(4, 2, [at_most("usd", 0.9)])
    alone = optimum(problem, make_values(4))
    assert alone.policy == alone.panels[0]
    assert sum(probability for _, probability in alone.panels[0]) == pytest.approx(1.0)
    several = optimum(problem, make_values(4), contexts=[0, 1, 0, 1, 0, 1], each_context=True)
    assert several.policy == several.panels
    assert len(several.policy) == 2
    assert several.question.endswith("under the limits, kept in each context")


def test_a_bound_with_a_single_feasible_panel_is_solved() -> None:
    problem = Problem(["a", "b", "c"], {"usd": [0.1, 0.7, 0.9]}, [at_most("usd", 0.8)], draws=2)
    best = optimum(problem, [[0.2, 0.3, 0.9]])
    assert best.panels == (((("a", "b"), 1.0),),)


def test_with_more_draws_than_experts_all_experts_are_in_the_panel() -> None:
    best = optimum(make_problem(3, 5, []), make_values(3))
    assert list(best.inclusion) == [1.0, 1.0, 1.0]


def test_values_for_another_number_of_experts_are_refused() -> None:
    with pytest.raises(ValuesError, match="for 3 experts, the problem has 4"):
        optimum(make_problem(4, 2, []), make_values(3))


def test_the_hospital_example_has_a_certified_best_mixture() -> None:
    values, weights, _ = hospital.make_environment().expected()
    problem, stack = hospital.make_problem(), ValueStack(values, weights=weights)
    best = optimum(problem, stack)
    assert best.value == pytest.approx(0.810858, abs=1e-6)
    assert best.gap <= 1e-9
    verdicts = {price.verdict for price in check_shadow_prices(problem, stack, best)}
    assert verdicts <= {"agrees", "kink"}
