"""Costs that are learned: means from reported spend, and limits kept by caps or by a reserve."""

import copy
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import bylot
from bylot.environments import CallCosts, Noisy
from bylot.environments.call_costs import draw_call_costs
from bylot.errors import InfeasibleLimits, ProblemError, RewardError, ValuesError
from bylot.eventlog.events import BODY_DECODERS
from bylot.limits import rows as limit_rows
from bylot.limits.binding import Pace, find_promises
from bylot.limits.costs import compute_noise
from bylot.limits.guard import guard_panel
from bylot.limits.ledger import compute_allowance
from bylot.limits.pacing import fill_paced_bounds
from bylot.limits.panel_replacement import compute_panel_cost
from bylot.limits.records import (
    FallbackSchedule,
    LimitRule,
    LimitState,
    LimitTables,
    point_to_limits,
)
from bylot.limits.report import report_budget
from bylot.limits.schedule_planning import fill_schedule, find_quota
from bylot.limits.settlement import derive_schedule, settle_calls, update_schedule
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.philox import RngKey
from bylot.problem import Problem, at_least, at_most, share
from bylot.router.core import iterate_arrays
from bylot.router.decision import Decision
from limit_tables import get_limits, iterate_numbers, open_limits
from logged_aggregate import LoggedRouter

ALL = np.empty(0, np.bool_)
NO_FLOATS = np.empty(0)
USD = [1.0, 2.0, 3.0, 1.5, 0.5, 4.0]
NAMES = [f"e{i}" for i in range(6)]
UNIT = 4.0  # of the budget in the rows of limits: the largest cost


def make_pool(factor: float | None = None, period: int = 200, bound: float = 6.0) -> Problem:
    """Six experts, three asked, a budget and a minimum share; calls cost up to `factor` times."""
    limits = [at_most("usd", bound), at_least(share("new", ["e5", "e2"]), 0.3)]
    most = {} if factor is None else {"usd": factor * np.array(USD)}
    return Problem(NAMES, {"usd": USD}, limits, draws=3, period=period, max_costs=most)


def settle_usd(
    rule: LimitRule, state: LimitState, t: int, members: Ints, spend: list[float]
) -> None:
    """Report what each member cost, in US dollars."""
    costs = np.full((len(rule.rows), members.size), np.nan)
    costs[0] = np.array(spend) / UNIT
    more = np.full(len(rule.rows), np.nan)
    more[0] = costs[0].sum() - rule.A[0][members].sum()
    settle_calls(point_to_limits(rule, state), t, members, more, costs, NO_FLOATS)


def test_the_mean_of_a_member_counts_its_declared_cost_as_three_reports() -> None:
    rule, state = open_limits(make_pool())
    rng, members = np.random.default_rng(1), np.array([4, 0, 3])
    spend = rng.uniform(0.5, 4.0, size=(20, 3))
    for t, row in enumerate(spend):
        settle_usd(rule, state, t, members, row.tolist())
    declared = np.array(USD)[members]
    expected = (3 * declared + spend.sum(axis=0)) / 23
    assert_allclose(state.means[0][members] * UNIT, expected, rtol=1e-12)
    assert_allclose(state.weight[0][members], 23.0)
    assert_array_equal(state.means[0][[1, 2, 5]], rule.A[0][[1, 2, 5]])
    assert_array_equal(state.means[1], rule.A[1])  # a share is exact
    assert state.learned["reports"].tolist() == [20, 0]
    assert_allclose(state.ledgers["spent"][0] * UNIT, spend.sum() - 20 * declared.sum())


def test_a_forecast_counts_calls_without_a_report_at_their_learned_means() -> None:
    problem, members = make_pool(), np.array([4, 0, 3])
    rule, state = open_limits(problem)
    for t in range(20):  # every call costs twice what is declared
        settle_usd(rule, state, t, members, [1.0, 2.0, 3.0])
    excess = float((state.means[0] - rule.A[0])[members].sum())
    assert excess > 0.5 * rule.A[0][members].sum()
    state.clock["left"][0] = 1
    later = float(state.quota @ state.means[0]) + state.ahead[state.clock["place"][0], 0]
    for waiting, room, within_reach in ((0, 0.0, True), (9, 8.9, False), (9, 9.1, True)):
        state.waiting[:] = 0
        state.waiting[:, members] = waiting  # booked as declared, which `spent` contains
        allowance = compute_allowance(rule.period, rule.rows["bound"][0])
        state.ledgers["spent"][0] = allowance - later - room * excess - 1e-9
        report = report_budget(problem, LimitTables(rule, state))
        assert report is not None
        assert report.limits[0].promise == "reserve"
        assert report.limits[0].within_reach == within_reach


@pytest.mark.parametrize("together", [True, False])
def test_the_noise_is_that_of_panels_whose_calls_may_vary_together(together: bool) -> None:
    """Long requests are expensive for all members: three equal calls vary as one of three times."""
    rule, state = open_limits(make_pool())
    rng, members, declared = np.random.default_rng(3), np.array([0, 1, 2]), np.array(USD)[:3]
    for t in range(4_000):
        factors = rng.choice([0.5, 1.5], size=1 if together else 3)
        settle_usd(rule, state, t, members, (declared * factors).tolist())
    squares = float((declared**2).sum())
    variance = 0.25 * (declared.sum() ** 2 if together else squares) / squares
    assert_allclose(compute_noise(point_to_limits(rule, state), 0), variance, rtol=0.1)


def learn_totals_in_numpy(panels: Ints, totals: Floats) -> Floats:
    """The formula of `learn_cost` for sums, from its text."""
    m, w = np.array(USD) / UNIT, np.full(6, 3.0)
    for members, total in zip(panels, totals, strict=True):
        s2 = np.maximum(m[members], np.array(USD)[members] / UNIT) ** 2
        gain = s2 / w[members] / (s2 * (1 + 1 / w[members])).sum()
        m[members] += gain * (total - m[members].sum())
        w[members] = 1 / (1 / w[members] - gain / w[members])
        m[members] = np.maximum(m[members], 0.1 * np.array(USD)[members] / UNIT)
    return m


def test_sums_of_panels_teach_the_cost_of_each_member() -> None:
    rule, state = open_limits(make_pool())
    rng = np.random.default_rng(2)
    true = np.array(USD) * 2.0 ** rng.uniform(-1, 1, 6)
    panels = np.array([rng.permutation(6)[:3] for _ in range(800)])
    totals = np.array([true[members].sum() for members in panels]) / UNIT
    for t, members in enumerate(panels):
        more = np.array([totals[t] - rule.A[0][members].sum(), np.nan])
        settle_calls(
            point_to_limits(rule, state), t, members, more, np.full((2, 3), np.nan), NO_FLOATS
        )
    assert_allclose(state.means[0], learn_totals_in_numpy(panels, totals), rtol=1e-9)
    assert_allclose(state.means[0] * UNIT, true, rtol=0.2)
    assert not np.allclose(np.array(USD), true, rtol=0.3)  # the declared costs are not near


@st.composite
def random_rows(draw: st.DrawFn) -> tuple[Problem, int]:
    """A pool under a budget and a minimum, and the fewest members of a panel."""
    K = draw(st.integers(3, 7))
    M = draw(st.integers(1, K - 1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    costs = {"usd": rng.random(K) + 0.1, "group": (rng.random(K) < 0.5).astype(float)}
    costs["group"][0] = 1.0
    p = np.minimum(rng.dirichlet(np.ones(K)) * M, 1.0)
    p *= M / p.sum()
    limits = [at_most("usd", float(costs["usd"] @ p) * 1.3)]
    limits.append(at_least("group", 0.5 * min(float(costs["group"] @ p), 1.0)))
    fewest = draw(st.integers(1, M))
    names = [f"e{i}" for i in range(K)]
    try:
        return Problem(names, costs, limits, draws=M, min_draws=fewest), fewest
    except InfeasibleLimits:
        reject()


@given(random_rows())
@settings(max_examples=40, deadline=None)
def test_the_compiled_margin_is_nearly_that_of_the_linear_program(
    made: tuple[Problem, int],
) -> None:
    problem, fewest = made
    A, b = limit_rows.make_constraint_rows(problem)
    margin, quota = find_quota(np.ascontiguousarray(A), b, fewest, problem.draws)
    # Whole sizes only, of which the program's best is one up to the tolerance of the bisection.
    best = max(
        limit_rows.find_slater_point(problem.replace(draws=m, min_draws=None)).margin
        for m in range(fewest, problem.draws + 1)
        if is_full_panel_feasible(problem, m)
    )
    assert best - 2.0**-6 - 1e-6 <= margin <= best + 1e-6
    assert (A @ quota <= b - margin * np.abs(b) + 1e-8).all()
    assert ((quota >= 0) & (quota <= 1)).all()
    assert abs(quota.sum() - round(quota.sum())) < 1e-9


def is_full_panel_feasible(problem: Problem, m: int) -> bool:
    """Can panels of exactly m members keep the limits?"""
    try:
        return problem.replace(draws=m, min_draws=None).full_conflict is None
    except ProblemError:
        return False


@given(random_rows())
@settings(max_examples=20, deadline=None)
def test_no_part_of_a_computed_schedule_costs_more_than_stated(made: tuple[Problem, int]) -> None:
    problem, fewest = made
    A, b = limit_rows.make_constraint_rows(problem)
    _, quota = find_quota(np.ascontiguousarray(A), b, fewest, problem.draws)
    cycle, d, K = 60, b.size, problem.size
    schedule = FallbackSchedule(
        np.zeros((cycle, problem.draws), np.int64), np.zeros(d), np.zeros((cycle, d)), np.zeros(K)
    )
    fill_schedule(schedule, quota, A)
    costs = np.array([compute_panel_cost(A, members) for members in schedule.sets])
    assert_allclose(schedule.mean, costs.mean(axis=0), atol=1e-12)
    assert_allclose(A @ schedule.quota, schedule.mean, atol=1e-12)
    assert_allclose(schedule.quota, quota, atol=1 / cycle)
    walk = np.cumsum(np.concatenate([costs, costs]) - schedule.mean, axis=0)
    for s in range(cycle):
        start = walk[s - 1] if s else np.zeros(d)
        highest = np.maximum((walk[s : s + cycle] - start).max(axis=0), 0.0)
        assert_allclose(schedule.ahead[s], highest, atol=1e-9)


def play_adversary(
    rule: LimitRule, state: LimitState, most: Floats, seed: int, reported: float, dearest: bool
) -> Floats:
    """The real cost of three periods if an adversary draws panels and sets the cost of each call up
    to its largest, always or at times; a share of the reports comes late, of members or sums, the
    others never.
    """
    rng, waiting, spent = np.random.default_rng(seed), [], []
    for t in range(3 * rule.period):
        if t % rule.period == 0:
            spent.append(0.0)
        dear = rng.random() < 0.7
        order = np.argsort(-most[0] if dear else rng.random(most.shape[1]), kind="stable")
        drawn = order[: rule.most].astype(np.int64)
        members = guard_panel(point_to_limits(rule, state), drawn, ALL).members
        kind = 0 if dearest else rng.integers(3)
        calls = most[0][members] * (1.0 if kind == 0 else rng.random(members.size) * (kind == 1))
        spent[-1] += float(calls.sum())
        if rng.random() < reported:
            waiting.append((t + int(rng.integers(0, 40)), t, members, calls))
        for due in [one for one in waiting if one[0] <= t]:
            waiting.remove(due)
            _, then, those, costs = due
            more = np.full(len(rule.rows), np.nan)
            more[0] = costs.sum() - rule.A[0][those].sum()
            known = np.full((len(rule.rows), those.size), np.nan)
            if rng.random() < 0.5:
                known[0] = costs
            settle_calls(point_to_limits(rule, state), then, those, more, known, NO_FLOATS)
    return np.array(spent)


@given(
    st.integers(0, 2**32),
    st.floats(1.0, 1.5),
    st.integers(60, 120),
    st.sampled_from([0.0, 0.8, 1.0]),
    st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_a_certain_limit_holds_whatever_calls_cost(
    seed: int, factor: float, period: int, reported: float, dearest: bool
) -> None:
    rule, state = open_limits(make_pool(factor, period))
    assert rule.rows["certain"].tolist() == [True, False]
    spent = play_adversary(rule, state, rule.worst, seed, reported, dearest)
    assert (spent <= period * rule.rows["bound"][0] * (1 + 1e-9)).all()
    assert state.learned["missed"].tolist() == [0, 0]


def test_without_caps_the_same_adversary_breaks_the_limit() -> None:
    certain, _ = open_limits(make_pool(1.5, 100))
    rule, state = open_limits(make_pool(None, 100))
    spent = play_adversary(rule, state, certain.worst, seed=3, reported=0.0, dearest=True)
    assert (spent > 100 * rule.rows["bound"][0]).any()


def test_caps_that_do_not_fit_the_budget_give_no_certain_promise() -> None:
    assert find_promises(make_pool(1.5), 3) == ["certain", "certain"]
    assert find_promises(make_pool(2.5), 3) == ["declared", "certain"]
    assert find_promises(make_pool(None), 3) == ["declared", "certain"]


def test_of_two_budgets_one_can_be_certain() -> None:
    costs = {"usd": [1.0, 2.0, 3.0], "ms": [3.0, 2.0, 1.0]}
    limits = [at_most("usd", 4.0), at_most("ms", 5.0), at_least("usd", 2.0)]
    most = {"usd": [1.2, 2.4, 3.6], "ms": [9.0, 8.0, 7.0]}
    problem = Problem(["a", "b", "c"], costs, limits, draws=2, max_costs=most)
    assert find_promises(problem, 2) == ["certain", "declared", "declared"]


def play_router(calls: CallCosts, rounds: int) -> tuple[bylot.Router, bylot.Trace]:
    """A router that was driven through the calls of a simulation, and told what they cost."""
    router = bylot.Router(make_pool(bound=8.0), "distinct", seed=4)
    return router, bylot.play(router, make_world(), rounds, calls=calls)


def make_world() -> Noisy:
    """Values of which the dear experts have the best."""
    return Noisy([[0.2, 0.5, 0.7, 0.3, 0.1, 0.9]])


WRONG = CallCosts(means={"usd": np.array(USD) * [1.9, 1.5, 1.8, 0.6, 1.7, 1.6]}, noise=0.5)


@pytest.mark.parametrize("report", ["members", "panel"])
def test_a_simulation_and_a_router_settle_alike(report: str) -> None:
    calls = CallCosts(WRONG.means, WRONG.noise, report=report)  # type: ignore[arg-type]
    world, options = (make_pool(bound=8.0), make_world(), "distinct"), {"rounds": 450, "seed": 4}
    trace = bylot.simulate(*world, **options, calls=calls)  # type: ignore[arg-type]
    router, other = play_router(calls, 450)
    assert_array_equal(trace.draws, other.draws)
    assert_array_equal(trace.record.propensities, other.record.propensities)
    assert_allclose(trace.spend, other.spend, rtol=1e-12)
    assert get_limits(router.core).state.clock["plans"][0] > 0  # a schedule was computed


def test_spend_that_is_reported_keeps_the_budget_and_spend_that_is_not_breaks_it() -> None:
    problem = make_pool(bound=8.0)
    open_play = bylot.simulate(problem, make_world(), "distinct", rounds=1_000, seed=1, calls=WRONG)
    silent = CallCosts(WRONG.means, WRONG.noise, report="nothing")
    blind = bylot.simulate(problem, make_world(), "distinct", rounds=1_000, seed=1, calls=silent)
    means = [one.spend[:, 0].reshape(-1, 200).mean(axis=1) for one in (open_play, blind)]
    assert (means[0] <= 8.0).all()
    assert (means[1] > 8.0).any()
    shares = open_play.spend[:, 1].reshape(-1, 200).mean(axis=1)
    assert (shares >= 0.3).all()


def test_a_saved_router_continues_with_what_it_learned(tmp_path: Path) -> None:
    router, _ = play_router(WRONG, 250)
    router.save(tmp_path / "router.bylot")
    loaded = bylot.Router.load(tmp_path / "router.bylot")
    pairs = zip(*(iterate_arrays(one.core.state) for one in (router, loaded)), strict=True)
    for was, now in pairs:
        assert_array_equal(was, now)
    tables = (iterate_numbers(get_limits(each.core)) for each in (router, loaded))
    for was, now in zip(*tables, strict=True):
        assert_array_equal(was, now)
    for _ in range(60):
        one, other = router.decide(), loaded.decide()
        assert (one.draws, one.propensity, one.replaced) == (
            other.draws,
            other.propensity,
            other.replaced,
        )
        for each in (router, loaded):
            each.core.settle(None, {"usd": 0.7}, t=one.t)


def test_a_log_with_reported_costs_replays_to_the_same_state() -> None:
    """With costs of members and of panels, late ones, cancelled decisions and a snapshot."""
    logged, rng = LoggedRouter(make_pool(bound=8.0, period=40)), np.random.default_rng(5)
    made: list[int] = []
    for t in range(90):
        made.append(logged.decide())
        if t % 9 == 8:
            logged.append(logged.aggregate.cancel(0, made.pop()))
        elif t % 7 != 6:
            of = made.pop(0 if t % 2 else -1)
            panel = dict.fromkeys(logged.aggregate.read(of).known.panel)
            costs = {name: float(rng.uniform(0.5, 7.0)) for name in panel}
            spend = {"usd": costs if t % 3 else sum(costs.values())}
            logged.reward(of, float(rng.random()), spend=spend)
        if t == 50:
            logged.reopen()
    state = get_limits(logged.aggregate.core).state
    assert state.clock["plans"][0] > 0
    waiting = [logged.aggregate.read(of).known for of in made]
    inside = [one for one in waiting if one.ticket.t >= state.clock["first"][0]]
    counts = [sum(name in one.panel for one in inside) for name in NAMES]
    assert state.waiting[0].tolist() == counts
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()


def test_the_schedule_follows_from_what_is_saved() -> None:
    rule, state = open_limits(make_pool())
    for t in range(30):
        settle_usd(rule, state, t, np.array([0, 3, 4]), [2.2, 1.6, 0.4])
    assert state.clock["plans"][0] > 0
    other = copy.deepcopy(state)
    derived = (other.sets, other.mean, other.ahead, other.quota)
    for array in derived:
        array[...] = 0
    other.clock["cycle"] = 0
    other.clock["width"] = 0
    derive_schedule(point_to_limits(rule, other))
    kept = (state.sets, state.mean, state.ahead, state.quota)
    for was, now in zip(kept, derived, strict=True):
        assert_array_equal(was, now)
    assert_array_equal(state.clock, other.clock)


def test_the_schedule_follows_the_learned_costs() -> None:
    """Expert e4 turns out to be the dearest: the schedule no longer asks it."""
    rule, state = open_limits(make_pool())
    assert rule.schedule.quota[4] > 0.5
    for t in range(200):
        settle_usd(rule, state, t, np.array([4, 0, 1]), [9.0, 1.0, 2.0])
    update_schedule(point_to_limits(rule, state))
    assert state.quota[4] < 0.1
    assert state.quota @ state.means[0] < rule.rows["bound"][0]
    assert state.quota[[2, 5]].sum() >= 0.3


def test_a_schedule_that_would_endanger_a_share_is_not_used() -> None:
    rule, state = open_limits(make_pool())
    # Of 200 rounds; the share was not kept by so little that only now is it lost.
    state.clock["left"][0] = 5
    state.ledgers["spent"][1] = 200 * rule.rows["bound"][1] - 5 * rule.schedule.mean[1] + 1.0
    for t in range(30):
        settle_usd(rule, state, t, np.array([0, 3, 4]), [2.2, 1.6, 0.4])
    assert state.clock["plans"][0] == 0
    assert state.clock["next_plan"][0] > 30  # it is tried again later


def open_dear_limits() -> tuple[LimitRule, LimitState, Floats]:
    """Limits: a budget and a cap on two experts, and what calls really cost: the other experts
    are so dear that panels inside the cap cannot keep the budget.
    """
    cap = at_most(share("cheap", ["e0", "e1"]), 0.8)
    limits = [at_most("usd", 2.4), cap]
    problem = Problem(NAMES[:5], {"usd": [1.0] * 5}, limits, draws=2, period=100)
    return *open_limits(problem), np.array([0.5, 0.5, 6.0, 6.0, 6.0])


def settle_rows(rule: LimitRule, state: LimitState, t: int, members: Ints, spend: Floats) -> None:
    """Report what each member cost under the first row, in its units."""
    more, costs = np.full(len(rule.rows), np.nan), np.full((len(rule.rows), members.size), np.nan)
    more[0], costs[0] = spend.sum() - rule.A[0][members].sum(), spend
    settle_calls(point_to_limits(rule, state), t, members, more, costs, NO_FLOATS)


def test_no_certain_limit_is_given_up_for_one_kept_by_a_reserve() -> None:
    rule, state, real = open_dear_limits()
    for t in range(3 * rule.period):
        drawn = np.array([0, 1] if t % 2 else [2, 3])
        members = guard_panel(point_to_limits(rule, state), drawn, ALL).members
        settle_rows(rule, state, t, members, real[members] * rule.A[0][members])
    assert state.learned["missed"][0] == 3  # no panels could keep it
    assert state.learned["missed"][1] == 0


def test_a_schedule_must_keep_certain_limits_in_later_periods_too() -> None:
    rule, state, real = open_dear_limits()
    # Nothing was spent under the cap so far: any schedule keeps it until then.
    state.clock["left"][0] = 10
    for t in range(60):
        members = np.array([t % 2, 2 + t % 3])
        settle_rows(rule, state, t, members, real[members] * rule.A[0][members])
    most = compute_allowance(rule.period, rule.rows["bound"][1])
    if state.clock["plans"][0] > 0:
        assert rule.period * state.mean[1] + state.ahead[:, 1].max() <= most


def test_a_late_report_is_booked_in_the_period_of_its_decision() -> None:
    rule, state = open_limits(make_pool(period=50))
    panels = [
        guard_panel(point_to_limits(rule, state), np.array([0, 3, 4]), ALL).members
        for _ in range(120)
    ]
    before, spent = state.ledgers["before"].copy(), state.ledgers["spent"].copy()
    assert state.clock[["rounds", "first", "first_before"]].tolist() == [(120, 100, 50)]
    settle_usd(rule, state, 70, panels[70], [60.0, 60.0, 60.0])  # in the period before
    assert_allclose(state.ledgers["before"][0], before[0] + (180.0 - 3.0) / UNIT)
    assert_array_equal(state.ledgers["spent"], spent)
    settle_usd(rule, state, 71, panels[71], [60.0, 60.0, 60.0])
    assert state.learned["missed"].tolist() == [1, 0]
    more = np.array([-2 * 177.0 / UNIT, np.nan])
    settle_calls(
        point_to_limits(rule, state), 72, panels[72], more, np.full((2, 3), np.nan), NO_FLOATS
    )
    assert state.learned["missed"].tolist() == [0, 0]  # judged again
    settle_usd(rule, state, 10, panels[10], [900.0, 900.0, 900.0])  # too old to be judged
    assert state.learned["missed"].tolist() == [0, 0]
    assert_array_equal(state.ledgers["spent"], spent)
    settle_usd(rule, state, 110, panels[110], [2.0, 2.0, 2.0])
    assert_allclose(state.ledgers["spent"][0], spent[0] + 3.0 / UNIT)


def test_calls_without_a_report_count_at_their_largest_cost() -> None:
    rule, state = open_limits(make_pool(1.5))
    for _ in range(3):
        guard_panel(point_to_limits(rule, state), np.array([0, 3, 4]), ALL)
    assert state.waiting[0].tolist() == [3, 0, 0, 3, 3, 0]
    settle_usd(rule, state, 1, np.array([0, 3, 4]), [1.0, 1.5, 0.5])
    assert state.waiting[0].tolist() == [2, 0, 0, 2, 2, 0]


def test_pacing_counts_what_was_spent() -> None:
    rule, state = open_limits(make_pool(), Pace(1.25, 1))
    limits = point_to_limits(rule._replace(margin=0.5), state)
    members = guard_panel(limits, np.array([0, 3, 4]), ALL).members
    settle_usd(rule, state, 0, members, [1.0, 1.5, 0.5])
    fill_paced_bounds(limits)
    bounds = state.bounds.copy()
    members = guard_panel(limits, np.array([0, 3, 4]), ALL).members
    settle_usd(rule, state, 1, members, [40.0, 40.0, 40.0])
    fill_paced_bounds(limits)
    assert state.bounds[0] < bounds[0]


@pytest.mark.parametrize("edit", ["loosen", "cap a group"])
def test_an_edit_counts_calls_without_a_report_at_their_largest_cost(edit: str) -> None:
    usd, largest = [0.4, 0.5, 0.6, 0.7], np.array([1.3, 1.4, 1.8, 2.4])
    cap = [at_most(share("two", ["e0", "e1"]), 0.7)] if edit == "cap a group" else []
    before, after = (
        Problem(
            NAMES[:4],
            {"usd": usd},
            [at_most("usd", bound), *more],
            draws=1,
            period=40,
            max_costs={"usd": largest},
        )
        for bound, more in ((1.65, []), (1.8 if edit == "loosen" else 1.65, cap))
    )
    router, made = bylot.Router(before, "distinct", seed=3), list[Decision]()
    while len(made) < 30 or get_limits(router.core).state.clock["left"][0] < 40:
        if len(made) == 30:
            router.change(after)
        made.append(router.decide())
    for one in made:
        calls = {name: float(largest[NAMES.index(name)]) for name in one.subset}
        router.reward(one.id, 0.5, spend={"usd": calls})
    limits = get_limits(router.core)
    assert limits.rule.rows["certain"][0]
    assert limits.state.learned["missed"][0] == 0


def test_a_changed_problem_keeps_learned_costs_unless_they_are_declared_anew() -> None:
    router, _ = play_router(WRONG, 120)
    means = get_limits(router.core).state.means[0] * UNIT
    costs = [*USD, 2.5]
    costs[1] = 2.2
    limits = [at_most("usd", 9.0), at_least(share("new", ["e5", "e2"]), 0.3)]
    router.change(Problem([*NAMES, "e6"], {"usd": costs}, limits, draws=3, period=200))
    learned = get_limits(router.core).state
    assert_allclose(learned.means[0][[0, 2, 3, 4, 5]] * UNIT, means[[0, 2, 3, 4, 5]])
    assert_allclose(learned.means[0][[1, 6]] * UNIT, [2.2, 2.5])
    assert learned.clock["plans"][0] > 0


def test_the_status_names_the_promise_of_each_limit() -> None:
    router = bylot.Router(make_pool(), "distinct")
    for promise in ("declared", "reserve"):
        current = [one.current for one in router.status().limits]
        assert [one and one.promise for one in current] == [promise, "certain"]
        ticket = router.core.decide(None, ALL).ticket
        router.core.settle(ticket, {"usd": 0.5})
    assert "usd <= kept by a reserve of 3 standard errors" in str(router.status())
    certain = bylot.Router(make_pool(1.5), "distinct").status().limits[0].current
    assert certain is not None
    assert certain.promise == "certain"


def test_a_status_does_not_call_a_limit_kept_that_will_be_missed() -> None:
    router = bylot.Router(make_pool(), "distinct")
    for _ in range(60):  # no panel costs as little as the budget allows
        decision = router.decide()
        router.reward(decision.id, 0.5, spend={"usd": 40.0})
    limit = router.status().limits[0]
    assert limit.current is not None
    assert (limit.verdict, limit.current.promise) == ("will be missed", "reserve")
    assert "kept by a reserve" not in str(router.status())


def test_a_policy_without_a_guard_books_spend_and_learns_no_costs() -> None:
    router = bylot.Router(make_pool(), "random")
    decision = router.core.decide(None, ALL)
    router.core.settle(decision.ticket, {"usd": 0.5})
    assert_allclose(router.core.totals.spent[0], decision.spend["usd"] + 0.5)


def test_invalid_largest_costs_are_refused() -> None:
    pool = {"experts": ["a", "b"], "costs": {"usd": [1.0, 2.0]}, "draws": 1}
    with pytest.raises(ProblemError, match=r"of expert 'b' 1.5: expected at least its cost 2.0"):
        Problem(**pool, max_costs={"usd": [1.0, 1.5]})  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="max_costs has the unknown cost 'ms'"):
        Problem(**pool, max_costs={"ms": [1.0, 1.5]})  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="max_costs"):
        Problem(**pool, max_costs=[1.0])  # type: ignore[arg-type]


def test_largest_costs_are_part_of_a_problem() -> None:
    one, other = make_pool(1.5), make_pool(1.5)
    assert (one, hash(one)) == (other, hash(other))
    assert one != make_pool(1.6)
    assert copy.deepcopy(one) == one
    assert bylot.Router(one, "random").problem.max_costs["usd"].tolist() == [1.5 * x for x in USD]


def test_calls_have_the_mean_that_was_asked_for() -> None:
    problem = make_pool()
    for calls in (CallCosts(noise=0.8), CallCosts(tail=3.0)):
        table = calls.bind(problem)
        drawn = [draw_call_costs(table, np.array([0, 5, 2]), RngKey(1, t))[0] for t in range(4_000)]
        spread = np.std(drawn, axis=0) / math.sqrt(len(drawn))
        assert (np.abs(np.mean(drawn, axis=0) - np.array(USD)[[0, 5, 2]]) < 4 * spread).all()
        assert (spread > 0).all()
    capped = CallCosts(tail=1.5).bind(make_pool(1.2))
    many = [draw_call_costs(capped, np.array([5, 5, 0]), RngKey(1, t))[0] for t in range(300)]
    assert np.max(many) == pytest.approx(1.2 * 4.0)
    assert (np.array(many)[:, 1] == 0).all()  # an expert is asked once


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_no_call_costs_more_than_its_largest_cost_with_or_without_noise(noise: float) -> None:
    table = CallCosts(means={"usd": 3.0 * np.array(USD)}, noise=noise).bind(make_pool(1.2))
    drawn = draw_call_costs(table, np.array([0, 5, 2]), RngKey(1, 0))[0]
    assert drawn.tolist() == pytest.approx([1.2 * USD[i] for i in (0, 5, 2)])


@pytest.mark.parametrize(
    "wrong", [{"noise": -1.0}, {"tail": 1.0}, {"report": "all"}, {"noise": 0.1, "tail": 2.0}]
)
def test_impossible_costs_of_calls_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValuesError):
        CallCosts(**wrong)  # type: ignore[arg-type]


def test_costs_that_are_reported_after_the_reward_are_learned_too() -> None:
    router = LoggedRouter(make_pool(1.5), seed=1)
    at_once = LoggedRouter(make_pool(1.5), seed=1)
    for _ in range(20):
        of = router.decide()
        assert router.reward(of, 0.5, key="judge") == "learned"
        assert router.reward(of, 0.5, key="bill", spend={"usd": 4.0}) == "noted"
        at_once.reward(at_once.decide(), 0.5, spend={"usd": 4.0})
    later, known = (get_limits(each.aggregate.core).state for each in (router, at_once))
    assert later.learned["reports"].tolist() == [20, 0]
    assert later.waiting[0].tolist() == [0] * 6
    assert_array_equal(later.means, known.means)
    assert router.replay_log().fingerprint() == router.aggregate.fingerprint()


def test_a_call_may_cost_what_is_declared_as_its_largest_cost() -> None:
    pool = Problem(["a", "b"], {"usd": [0.001, 0.001]}, draws=1, max_costs={"usd": [5.0, 5.0]})
    router = bylot.Router(pool, "distinct")
    router.reward(router.decide().id, 0.5, spend={"usd": 5.0})
    with pytest.raises(RewardError, match="spend on 'usd'"):
        router.reward(router.decide().id, 0.5, spend={"usd": 5.1})


def test_a_report_of_one_cost_frees_no_reserve_for_another() -> None:
    """A verifier reports the time of a call, and the bill comes later, at the largest cost."""
    names, largest = ["a", "b", "c"], np.array([1.3, 1.5, 2.4])
    problem = Problem(
        names,
        {"usd": [0.4, 0.5, 0.6], "ms": [1.0, 1.0, 1.0]},
        [at_most("usd", 1.65), at_most("ms", 1.5)],
        draws=1,
        period=40,
        max_costs={"usd": largest},
    )
    router, made = LoggedRouter(problem, "distinct", seed=1), []
    for _ in range(40):
        made.append(router.decide())
        router.reward(made[-1], 0.9, spend={"ms": 1.0}, key="time")
    for seq in made:
        (name,) = set(BODY_DECODERS["decided"](router.log[seq].body).draws)
        router.reward(seq, 0.9, spend={"usd": float(largest[names.index(name)])}, key="bill")
    usd = router.aggregate.status().limits[0]
    assert usd.current is not None
    assert (usd.current.promise, usd.current.missed) == ("certain", 0)
    assert usd.mean <= 1.65
