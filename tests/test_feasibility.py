"""Feasibility of limits, checked against all mixtures of sets in rational arithmetic.

The package solves a linear program over inclusion probabilities in floating point. The oracle here
asks whether a mixture of sets of at most M experts keeps the limits, by the simplex method in
exact fractions: another formulation, another solver, no tolerance.
"""

import itertools
import pickle
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bylot.errors import InfeasibleLimits, ProblemError
from bylot.numerics.jit import Floats
from bylot.problem import Limit, Problem, at_least, at_most, share
from bylot.problem.feasibility import (
    find_conflict,
    find_group_conflict,
    find_irreducible_conflict,
    find_smallest_conflict,
    make_panels_polytope,
    reachable_polytope,
)
from bylot.problem.limits import MAX_COST, MIN_POSITIVE_COST
from bylot.problem.polytope import LimitPolytope

SEEDS = st.integers(0, 2**32 - 1)
ROOM = Fraction(1, 10**8)
"""Limits that stay in conflict when every bound gives way by this much must be refused."""


def apply_remedy(remedy: Iterable[Limit], limits: Iterable[Limit]) -> list[Limit]:
    """The limits with the changed ones replaced."""
    new = {limit.key: limit for limit in remedy}
    return [new.get(limit.key, limit) for limit in limits]


class ProblemSetting:
    """The parts of a problem, before feasibility is checked."""

    def __init__(
        self,
        costs: dict[str, Any],
        limits: Sequence[Limit],
        draws: int,
        min_draws: int | None = None,
    ) -> None:
        self.costs = {name: np.asarray(row, dtype=float) for name, row in costs.items()}
        self.limits, self.draws, self.min_draws = list(limits), draws, min_draws
        self.experts = [f"e{i}" for i in range(len(next(iter(self.costs.values()))))]

    def problem(
        self,
        limits: Iterable[Limit] | None = None,
        draws: int | None = None,
        min_draws: int | None = None,
    ) -> Problem:
        chosen = self.limits if limits is None else limits
        most, fewest = draws or self.draws, min_draws or self.min_draws
        return Problem(self.experts, self.costs, chosen, draws=most, min_draws=fewest)

    def find_refusal(self) -> InfeasibleLimits | None:
        try:
            self.problem()
        except InfeasibleLimits as find_refusal:
            return find_refusal
        return None

    def is_feasible_exactly(self, limits: Iterable[Limit], room: Fraction = Fraction(0)) -> bool:
        """Whether a mixture of sets keeps these limits, loosened by `room`, in exact arithmetic."""
        size, most = len(self.experts), min(self.draws, len(self.experts))
        sizes = range(min(self.min_draws or 1, size), most + 1)
        sets = [s for m in sizes for s in itertools.combinations(range(size), m)]
        rows, rhs, slacks = [[Fraction(1)] * len(sets)], [Fraction(1)], [0]
        for limit in limits:
            cost = [Fraction(float(c)) for c in self.costs[limit.name]]
            rows.append([sum((cost[i] for i in s), Fraction(0)) for s in sets])
            rhs.append(Fraction(limit.bound) * (1 - limit.sign * room))
            slacks.append(-limit.sign)
        return has_solution(rows, rhs, slacks)


def has_solution(rows: list[list[Fraction]], rhs: list[Fraction], slacks: Sequence[int]) -> bool:
    """Whether rows x + slacks s = rhs has a solution x, s >= 0: phase one with Bland's rule."""
    width = len(rows[0]) + len(rows)
    table = []
    for i, (row, b, slack) in enumerate(zip(rows, rhs, slacks, strict=True)):
        line = [*row, *(Fraction(slack * (i == k)) for k in range(len(rows))), b]
        table.append(line if b >= 0 else [-v for v in line])
    price = [sum(column, Fraction(0)) for column in zip(*table, strict=True)]
    basis = [-1] * len(rows)
    while any(p > 0 for p in price[:width]):
        enter = next(k for k in range(width) if price[k] > 0)
        candidates = [i for i, line in enumerate(table) if line[enter] > 0]
        leave = min(candidates, key=lambda i: (table[i][width] / table[i][enter], basis[i]))
        pivot = [v / table[leave][enter] for v in table[leave]]
        table = [eliminate_column(line, pivot, enter) for line in table]
        table[leave], basis[leave] = pivot, enter
        price = eliminate_column(price, pivot, enter)
    return price[width] == 0


def eliminate_column(line: list[Fraction], pivot: list[Fraction], column: int) -> list[Fraction]:
    factor = line[column]
    return line if factor == 0 else [a - factor * b for a, b in zip(line, pivot, strict=True)]


def make_random_setting(
    rng: np.random.Generator, spread: float, sized: bool = False
) -> ProblemSetting:
    """Costs over 10^(2 spread) in one row, units over 12 decades, bounds often at the edge."""
    size, draws = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    costs, limits = {}, []
    for name in "abcd"[: rng.integers(1, 5)]:
        cost = 10.0 ** (rng.uniform(-spread, spread, size) + rng.integers(-6, 7))
        if rng.random() < 0.5:
            cost = np.where(rng.random(size) < 0.5, cost.max(), 0.0)
        costs[name] = cost
        low, high = draw_random_bounds(rng, cost, min(draws, size))
        sides = [at_most(name, high), at_least(name, low)]
        limits += [sides[:1], sides[1:], sides][rng.integers(3)]
    min_draws = int(rng.integers(1, draws + 1)) if sized else None
    return ProblemSetting(costs, limits, draws, min_draws)


def draw_random_bounds(rng: np.random.Generator, cost: Floats, most: int) -> Floats:
    ordered = np.sort(cost)
    ends = [ordered[0], ordered[-1], ordered[:most].sum(), ordered[-most:].sum()]
    inside = rng.uniform(ends[0], ends[-1], 2) * rng.choice([1.0, 0.01, 1.1])
    return np.sort(rng.choice(ends, 2) if rng.random() < 0.4 else inside)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(SEEDS, st.sampled_from([0.0, 0.5, 3.0]), st.booleans())
def test_feasibility_agrees_with_all_mixtures_of_sets(
    seed: int, spread: float, sized: bool
) -> None:
    setting = make_random_setting(np.random.default_rng(seed), spread, sized)
    if setting.find_refusal() is None:
        assert setting.is_feasible_exactly(setting.limits, room=ROOM)
    else:
        assert not setting.is_feasible_exactly(setting.limits)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(SEEDS, st.sampled_from([0.5, 3.0]), st.booleans())
def test_an_error_has_a_smallest_conflict_and_remedies_that_work(
    seed: int, spread: float, sized: bool
) -> None:
    setting = make_random_setting(np.random.default_rng(seed), spread, sized)
    find_refusal = setting.find_refusal()
    if find_refusal is None:
        return
    assert find_refusal.smallest
    assert not setting.is_feasible_exactly(find_refusal.limits)
    for fewer in itertools.combinations(setting.limits, len(find_refusal.limits) - 1):
        assert setting.is_feasible_exactly(fewer, room=ROOM)
    assert find_refusal.remedies
    for remedy in find_refusal.remedies:
        setting.problem(apply_remedy(remedy, setting.limits))
    if find_refusal.draws is not None:
        setting.problem(draws=find_refusal.draws)
        with pytest.raises(InfeasibleLimits):
            setting.problem(draws=find_refusal.draws - 1)
    if find_refusal.min_draws is not None:
        setting.problem(min_draws=find_refusal.min_draws)
        with pytest.raises(InfeasibleLimits):
            setting.problem(min_draws=find_refusal.min_draws + 1)


def test_the_random_settings_cover_both_verdicts_and_several_conflict_sizes() -> None:
    rng = np.random.default_rng(0)
    refusals = [make_random_setting(rng, 0.5).find_refusal() for _ in range(300)]
    sizes = [len(find_refusal.limits) for find_refusal in refusals if find_refusal]
    assert 30 < len(sizes) < 270
    assert set(sizes) >= {1, 2, 3}
    assert {len(find_refusal.remedies[0]) for find_refusal in refusals if find_refusal} >= {1, 2}
    sized = [make_random_setting(rng, 0.5, sized=True).find_refusal() for _ in range(100)]
    assert {refusal.min_draws for refusal in sized if refusal} >= {None, 1, 2}


def test_the_oracle_finds_infeasible_limits() -> None:
    """The region without `at least one expert` would call a budget of 0 feasible."""
    setting = ProblemSetting({"usd": [1.0, 2.0]}, [at_most("usd", 0.5)], draws=2)
    assert not setting.is_feasible_exactly(setting.limits)
    without_minimum_panel = LimitPolytope(
        0.0, 0.0, 2.0, np.array([[1.0, 2.0]]), np.array([0.5]), np.array([-1])
    )
    assert without_minimum_panel.is_feasible([0])


def parse_printed_remedies(message: str, limits: Sequence[Limit]) -> list[tuple[Limit, ...]]:
    """Parse the remedies after `use` in a message."""
    proposal = re.split(r"; use ", message)[1]
    known = {(limit.side, limit.name): limit for limit in limits}
    found = re.findall(r"(at_most|at_least)\('(\w+)', ([^)]*)\)", proposal)
    return [(known[side, name].at(float(bound)),) for side, name, bound in found]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_printed_remedies_work(seed: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    usd, skill = rng.random(6) * unit, rng.random(6)
    limits = [at_most("usd", usd.min() * 1.01), at_least("skill", skill.max() * 1.5)]
    setting = ProblemSetting({"usd": usd, "skill": skill}, limits, draws=3)
    find_refusal = setting.find_refusal()
    assert find_refusal is not None
    printed = parse_printed_remedies(str(find_refusal), limits)
    assert set(printed) == set(find_refusal.remedies)
    assert len(printed) >= 1
    for remedy in printed:
        setting.problem(apply_remedy(remedy, limits))


def test_a_bound_tighter_than_the_remedy_does_not_work() -> None:
    limits = [at_most("usd", 1.0), at_least("skill", 1.0)]
    setting = ProblemSetting({"usd": [1.0, 2.0, 3.0], "skill": [0.0, 0.3, 1.0]}, limits, draws=2)
    find_refusal = setting.find_refusal()
    assert find_refusal is not None
    assert [str(change) for (change,) in find_refusal.remedies] == [
        "at_least('skill', 0.0)",
        "at_most('usd', 3.0)",
    ]
    for nearer in [(at_least("skill", 1e-6),), (at_most("usd", 3.0 * (1 - 1e-6)),)]:
        with pytest.raises(InfeasibleLimits):
            setting.problem(apply_remedy(nearer, limits))


def test_the_message_has_conflict_and_remedies() -> None:
    limits = [at_most("usd", 1.5), at_least(share("senior", ["e2"]), 0.5), at_most("hours", 9.0)]
    setting = ProblemSetting({"usd": [1.0, 2.0, 4.0], "hours": [1.0, 1.0, 1.0]}, limits, draws=2)
    with pytest.raises(InfeasibleLimits) as find_refusal:
        setting.problem()
    assert str(find_refusal.value) == (
        "no policy that asks 1 to 2 of 3 experts per request can keep at_most('usd', 1.5) and "
        "at_least('senior', 0.5) together (the smallest conflict among 3 limits); "
        "use at_most('usd', 2.5) or at_least('senior', 0.166666)"
    )
    assert find_refusal.value.limits == (limits[0], limits[1])


def test_a_single_infeasible_limit_has_one_remedy_or_more_draws() -> None:
    setting = ProblemSetting({"junior": [1, 1, 1, 0]}, [at_least("junior", 2.5)], draws=2)
    find_refusal = setting.find_refusal()
    assert find_refusal is not None
    assert str(find_refusal) == (
        "no policy that asks 1 to 2 of 4 experts per request can keep at_least('junior', 2.5); "
        "use at_least('junior', 2.0), or draw more experts per request: draws=3"
    )


def test_smaller_panels_may_be_the_remedy() -> None:
    budget, experts, costs = (
        at_most("usd", 5.0),
        ["a", "b", "c", "d"],
        {"usd": [2.0, 2.0, 2.0, 4.0]},
    )
    problem = Problem(experts, costs, [budget], draws=3)  # `tangent` may draw an expert twice
    panels = make_panels_polytope(problem, problem.min_members)
    assert problem.full_conflict == find_group_conflict(panels, problem.limits, 0) is not None
    with pytest.raises(InfeasibleLimits) as refusal:
        Problem(experts, costs, [budget], draws=3, min_draws=3)
    assert str(refusal.value) == (
        "no policy that asks 3 of 4 experts per request can keep at_most('usd', 5.0); "
        "use at_most('usd', 6.0), or allow smaller panels: min_draws=2"
    )
    assert "smaller panels: min_draws=2" in str(refusal.value.for_running_router())
    smaller = Problem(experts, costs, [budget], draws=3, min_draws=2)
    panels = make_panels_polytope(smaller, smaller.min_members)
    assert find_group_conflict(panels, smaller.limits) is None
    assert smaller.full_conflict is not None
    assert smaller.range_of(budget) == (4.0, 8.0)


def test_two_separate_conflicts_need_a_joint_change() -> None:
    limits = [at_most("a", 0.5), at_most("b", 0.25), at_most("c", 9.0)]
    setting = ProblemSetting({"a": [1.0, 1.0], "b": [1.0, 1.0], "c": [1.0, 1.0]}, limits, draws=1)
    find_refusal = setting.find_refusal()
    assert find_refusal is not None
    assert len(find_refusal.limits) == 1
    assert find_refusal.remedies == ((at_most("a", 1.0), at_most("b", 1.0)),)
    assert str(find_refusal).endswith(
        "; use at_most('a', 1.0) and at_most('b', 1.0) together, as no single change is enough"
    )
    setting.problem(apply_remedy(find_refusal.remedies[0], limits))


def test_the_joint_change_is_the_least_in_sum_of_relative_changes() -> None:
    """If the first expert is asked, a rises by 1/2 and b by 3; if the second, by 2 and 1."""
    limits = [at_most("a", 0.5), at_most("b", 0.25)]
    setting = ProblemSetting({"a": [0.75, 1.5], "b": [1.0, 0.5]}, limits, draws=1)
    find_refusal = setting.find_refusal()
    assert find_refusal is not None
    assert find_refusal.remedies == ((at_most("a", 1.5), at_most("b", 0.5)),)


def make_minimum_shares(bound: float, groups: int) -> list[Limit]:
    """A minimum share for each of the groups; group g has the experts g, g + groups, ..."""
    names = [f"e{i}" for i in range(3 * groups)]
    return [at_least(share(f"lab{g}", names[g::groups]), bound) for g in range(groups)]


def test_twelve_minimum_shares_above_all_draws_conflict_together() -> None:
    budget = at_most("usd", 1.0)
    setting = ProblemSetting(
        {"usd": np.full(36, 0.3)}, [budget, *make_minimum_shares(0.26, 12)], draws=3
    )
    find_refusal = setting.find_refusal()
    assert find_refusal is not None
    assert set(find_refusal.limits) == set(setting.limits) - {budget}
    assert find_refusal.smallest
    assert "or one of 6 more in .remedies" in str(find_refusal)
    assert len(find_refusal.remedies) == 12
    assert find_refusal.draws == 4
    setting.problem(apply_remedy(find_refusal.remedies[-1], setting.limits))


def test_feasible_limits_can_have_an_empty_surrogate() -> None:
    """Each of 12 groups in 15% of the requests: 1.8 experts of 3, but q has only a mass of 1."""
    setting = ProblemSetting(
        {"usd": np.full(36, 0.3)}, [at_most("usd", 1.0), *make_minimum_shares(0.15, 12)], draws=3
    )
    conflict = setting.problem().surrogate_conflict
    assert conflict is not None
    assert len(conflict.limits) == 7  # 7 * 0.15 > 1
    assert all(limit.sign == +1 for limit in conflict.limits)
    assert setting.problem(make_minimum_shares(0.08, 12)).surrogate_conflict is None


def test_the_floor_counts_in_the_surrogate() -> None:
    costs, limits = {"usd": [0.0, 4.0]}, [at_most("usd", 1.0)]
    kept = Problem(["ann", "eve"], costs, limits, draws=2, floor=0.125)
    broken = Problem(["ann", "eve"], costs, limits, draws=2, floor=0.126)
    assert kept.surrogate_conflict is None
    assert broken.surrogate_conflict is not None
    assert str(broken.surrogate_conflict) == "at_most('usd', 1.0)"


@settings(deadline=None, derandomize=True, max_examples=40)
@given(SEEDS)
def test_the_surrogate_is_empty_only_if_no_q_of_a_grid_is_in_the_box(seed: int) -> None:
    setting = make_random_setting(np.random.default_rng(seed), 0.5)
    if setting.find_refusal() is None:
        problem = setting.problem()
        if problem.surrogate_conflict is not None:
            steps = itertools.product(range(5), repeat=problem.size)
            free_mass = 1 - problem.size * problem.floor
            grid = [problem.floor + free_mass * np.array(s) / 4 for s in steps if sum(s) == 4]
            low, high = problem.box
            means = [problem.rows @ q for q in grid]
            assert not any(np.all((low <= mean) & (mean <= high)) for mean in means)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(SEEDS, st.sampled_from([1e-6, 1e-3, 1e3, 1e6]))
def test_a_change_of_unit_does_not_change_the_verdict(seed: int, unit: float) -> None:
    before = make_random_setting(np.random.default_rng(seed), 0.5)
    costs = {name: cost * (unit if name in "ac" else 1.0) for name, cost in before.costs.items()}
    limits = [one.at(one.bound * (unit if one.name in "ac" else 1.0)) for one in before.limits]
    first, second = (
        before.find_refusal(),
        ProblemSetting(costs, limits, before.draws, before.min_draws).find_refusal(),
    )
    assert (first is None) == (second is None)
    if first and second:
        assert len(first.limits) == len(second.limits)


def test_a_very_expensive_expert_does_not_affect_the_tolerance() -> None:
    """A tolerance relative to the largest cost would accept a budget a thousandth too small."""
    limits = [at_most("usd", 0.999e-4), at_least("skill", 1.0)]
    setting = ProblemSetting(
        {"usd": [1e-4, 2e-4, 100.0], "skill": [1.0, 0.5, 1.0]}, limits, draws=1
    )
    find_refusal = setting.find_refusal()
    assert find_refusal is not None
    setting.problem([at_most("usd", 1e-4), at_least("skill", 1.0)])


def test_bounds_at_the_edge_are_feasible() -> None:
    costs = {"usd": [0.1, 0.2, 0.3]}
    ProblemSetting(costs, [at_most("usd", 0.1)], draws=2).problem()
    ProblemSetting(costs, [at_least("usd", 0.2 + 0.3)], draws=2).problem()
    ProblemSetting(costs, [at_most("usd", 0.3), at_least("usd", 0.3)], draws=1).problem()
    ProblemSetting({"usd": [0.0, 1.0]}, [at_most("usd", 0.0)], draws=2).problem()
    ProblemSetting(
        {"usd": [0.0, 0.0]}, [at_least("usd", 0.0), at_most("usd", 0.0)], draws=2
    ).problem()


@settings(deadline=None, derandomize=True, max_examples=40)
@given(SEEDS)
def test_the_range_of_a_limit_ends_where_the_bounds_stop_working(seed: int) -> None:
    setting = make_random_setting(np.random.default_rng(seed), 0.5)
    if setting.find_refusal() is not None:
        return
    limit, *others = setting.limits
    low, high = setting.problem().range_of(limit)
    assert low <= high
    for end, side, out in [(low, at_most, 1 - 1e-6), (high, at_least, 1 + 1e-6)]:
        assert setting.is_feasible_exactly([*others, side(limit.name, end)], room=ROOM)
        assert end == 0 or not setting.is_feasible_exactly([*others, side(limit.name, end * out)])


def test_the_range_of_a_limit_that_is_not_in_the_problem() -> None:
    problem = ProblemSetting({"usd": [1.0, 2.0, 4.0]}, [at_most("usd", 3.0)], draws=2).problem()
    assert problem.range_of(at_least("usd", 0.0)) == pytest.approx((1.0, 3.0), rel=1e-12)
    assert problem.range_of(at_most("usd", 0.0)) == pytest.approx((1.0, 6.0), rel=1e-12)
    with pytest.raises(ProblemError, match=r"at_most\('uds', 1.0\) is on an unknown cost; did you"):
        problem.range_of(at_most("uds", 1.0))


def make_infeasible_region() -> tuple[LimitPolytope, list[Limit]]:
    """Any 4 of 6 minimum shares of 0.3 exceed one draw; so does a share of 1.2 alone."""
    limits = [*make_minimum_shares(0.3, 6), at_most("usd", 1.0)]
    rows = np.vstack([np.tile(np.eye(6), 3), np.ones(18)])
    bounds, signs = np.array([one.bound for one in limits]), np.array([one.sign for one in limits])
    return LimitPolytope(0.0, 1.0, 1.0, rows, bounds, signs), limits


def test_with_few_programs_the_conflict_is_irreducible_but_maybe_not_smallest() -> None:
    region, limits = make_infeasible_region()
    conflict = find_conflict(region, limits, max_programs=4)
    assert conflict is not None
    assert not conflict.smallest
    positions = [limits.index(limit) for limit in conflict.limits]
    assert not region.is_feasible(positions)
    for j in positions:
        assert region.is_feasible([i for i in positions if i != j])


def test_a_known_conflict_that_is_not_the_smallest_is_replaced() -> None:
    region, _ = make_infeasible_region()
    changed = region.with_bounds({0: 1.2})
    assert find_smallest_conflict(
        changed, find_irreducible_conflict(region), max_programs=1_000
    ) == (
        [0],
        True,
    )


def test_the_error_says_that_a_conflict_is_only_irreducible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = ProblemSetting({"usd": np.ones(18)}, make_minimum_shares(0.3, 6), draws=1)
    monkeypatch.setattr(find_conflict, "__defaults__", (0,))
    with pytest.raises(
        InfeasibleLimits, match="an irreducible conflict among 6 limits"
    ) as find_refusal:
        setting.problem()
    assert not find_refusal.value.smallest


def test_the_refusal_survives_pickling() -> None:
    find_refusal = ProblemSetting(
        {"usd": [1.0, 2.0]}, [at_most("usd", 0.5)], draws=1
    ).find_refusal()
    assert find_refusal is not None
    other = pickle.loads(pickle.dumps(find_refusal))
    assert str(other) == str(find_refusal)
    assert (other.limits, other.remedies) == (find_refusal.limits, find_refusal.remedies)


def test_every_point_of_the_region_is_a_mixture_of_sets() -> None:
    """The corners that linear programs in random directions find are 0/1 vectors of 1 to M ones."""
    rng = np.random.default_rng(1)
    problem = ProblemSetting({"usd": np.ones(5)}, [at_least("usd", 0.0)], draws=3).problem()
    region = reachable_polytope(problem)
    for _ in range(30):
        direction = rng.normal(size=5)
        best = max(
            sum(direction[list(s)]) for m in (1, 2, 3) for s in itertools.combinations(range(5), m)
        )
        assert region.find_extreme(direction, +1, []) == pytest.approx(best, rel=1e-12)


def test_if_the_solver_fails_the_error_has_the_range_of_numbers_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bylot.numerics.result_cache.RESULTS_FOLDER", None)
    monkeypatch.setattr("bylot.problem.polytope.solve_linear_program", lambda *_: None)
    with pytest.raises(
        ProblemError, match=r"from 0\.001 to 5000; measure each cost"
    ) as find_refusal:
        Problem(["a", "b"], {"usd": [0.001, 0.0]}, [at_most("usd", 5_000)], draws=1)
    assert not isinstance(find_refusal.value, InfeasibleLimits)


NAMES = ("usd", "gpu")
sizes = st.one_of(
    st.sampled_from([0.0, MIN_POSITIVE_COST, MAX_COST, 1.0]),
    st.floats(-99.0, 99.0).map(lambda power: 10**power),
)


@given(data=st.data(), K=st.integers(2, 5), draws=st.integers(1, 4))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_numbers_of_any_size_give_a_problem_or_an_error(
    data: st.DataObject, K: int, draws: int
) -> None:
    costs = {name: data.draw(st.lists(sizes, min_size=K, max_size=K)) for name in NAMES}
    sides = data.draw(st.lists(st.tuples(st.sampled_from([at_most, at_least]), sizes), max_size=4))
    limits = {
        limit.key: limit for i, (make, b) in enumerate(sides) for limit in [make(NAMES[i % 2], b)]
    }
    try:
        problem = Problem([f"e{i}" for i in range(K)], costs, limits.values(), draws=draws)
    except ProblemError:
        return
    for limit in problem.limits:
        low, high = problem.range_of(limit)
        assert 0.0 <= low <= high * (1 + 1e-6)
    assert problem.surrogate_conflict is None or problem.limits
