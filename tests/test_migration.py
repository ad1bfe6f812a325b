"""A problem that changes while a router runs: learning continues, and the new limits hold."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bylot import Problem, Receipt, Router, at_least, at_most
from bylot.errors import InfeasibleLimits, PolicyError, ProblemError
from bylot.limits.binding import is_possible, start_limits
from bylot.limits.records import LimitTables
from bylot.limits.request import View
from bylot.numerics.jit import Floats
from bylot.policies import POLICIES, compiled_handle
from bylot.policies.base import compute_distribution
from bylot.router.core import iterate_arrays
from limit_tables import get_limits, iterate_numbers
from sample_problem import make_five_expert_problem

GUARDED = ["distinct", "tangent", "noisy-or"]


def change_problem(**parts: Any) -> Problem:
    """Five experts with some parts changed."""
    old = make_five_expert_problem()
    same_parts = {
        name: getattr(old, name) for name in ("experts", "costs", "limits", "draws", "floor")
    }
    return Problem(**{**same_parts, **parts})


def make_tighter_problem() -> Problem:
    """A lower upper bound."""
    return change_problem(limits=[at_most("usd", 2.0), *make_five_expert_problem().limits[1:]])


def make_problem_with_newcomer() -> Problem:
    """Without dan, with zoe, in another order, under other limits and with another cost."""
    return Problem(
        ["eve", "zoe", "ann", "cat", "bob"],
        {"ms": [1, 2, 1, 2, 1], "usd": [0.5, 2.0, 4.0, 1.0, 3.0], "junior": [1, 1, 0, 1, 0]},
        [at_least("junior", 0.4), at_most("ms", 2.9), at_most("usd", 3.5)],
        draws=2,
    )


def make_single_draw_problem() -> Problem:
    """Three experts and one draw."""
    return Problem(["cat", "dan", "eve"], {"usd": [1.0, 1.0, 0.5]}, [at_most("usd", 1)], draws=1)


def make_unlimited_problem() -> Problem:
    """Without limits."""
    return change_problem(limits=[])


CHANGES: list[Callable[[], Problem]] = [
    make_tighter_problem,
    make_problem_with_newcomer,
    make_single_draw_problem,
    make_unlimited_problem,
]


def make_trained_router(policy: str, rounds: int = 137, horizon: int | None = None) -> Router:
    """A router trained in three contexts, in which ann is the best."""
    router = Router(make_five_expert_problem(), policy, seed=3, horizon=horizon)
    play_router(router, rounds)
    return router


def play_router(router: Router, rounds: int) -> float:
    """Play rounds with immediate rewards and return the mean cost in usd."""
    spent = 0.0
    for n in range(rounds):
        decision = router.decide("xyz"[n % 3])
        router.reward(decision.id, 0.1 + 0.6 * ("ann" in decision.subset))
        spent += decision.spend["usd"]
    return spent / rounds


def compute_distributions(router: Router) -> Floats:
    """The distributions of the three contexts."""
    core = router.core
    available = core.mask_available(None)
    views = [View(core.book.pointer, x, available, False, False) for x in range(3)]
    return np.array([compute_distribution(core.rule, core.state, view) for view in views])


def assert_migrated_limits(router: Router) -> None:
    """Require a state of limits, if there is any, that fits the problem."""
    tables = router.core.book.tables
    assert is_possible(tables)
    if tables is None:
        return
    new = LimitTables(tables.rule, start_limits(tables.rule, len(router.core.state.visits)))
    for migrated, fresh in zip(iterate_numbers(tables), iterate_numbers(new), strict=True):
        assert (migrated.shape, migrated.dtype) == (fresh.shape, fresh.dtype)
        assert np.isfinite(migrated).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("horizon", [None, 400])
def test_every_policy_continues_after_every_change(
    policy: str, change: Callable[[], Problem], horizon: int | None
) -> None:
    router, problem = make_trained_router(policy, horizon=horizon), change()
    router.change(problem)
    new_state = router.policy.start(router.core.rule, len(router.core.state.visits))
    for migrated, fresh in zip(
        iterate_arrays(router.core.state), iterate_arrays(new_state), strict=True
    ):
        assert (migrated.shape, migrated.dtype) == (fresh.shape, fresh.dtype)
        assert np.isfinite(migrated).all()
    assert_migrated_limits(router)
    assert router.policy.is_valid_state(router.core.rule, router.core.state)
    assert_allclose(compute_distributions(router).sum(axis=1), 1.0)
    for n in range(60):
        decision = router.decide("wxyz"[n % 4], problem.experts[:2] if n % 9 == 5 else None)
        assert router.reward(decision.id, 0.5) is Receipt.LEARNED
    assert router.policy.is_valid_state(router.core.rule, router.core.state)
    assert is_possible(router.core.book.tables)
    assert router.status().decisions == 197


@pytest.mark.parametrize("policy", POLICIES)
def test_an_equivalent_problem_does_not_change_the_distributions(policy: str) -> None:
    router = make_trained_router(policy)
    before, state = compute_distributions(router), router.core.state
    router.change(change_problem())
    assert router.core.state is state
    router.change(
        change_problem(
            floor=make_five_expert_problem().floor * 0.999,
            costs={**make_five_expert_problem().costs, "ms": np.ones(5)},
        )
    )
    assert router.core.state is not state
    assert_array_equal(compute_distributions(router), before)
    router.change(make_problem_with_newcomer())
    # The policy `random` never learns
    assert policy == "random" or not np.array_equal(compute_distributions(router), before)


@pytest.mark.parametrize("policy", GUARDED)
def test_new_limits_hold_from_the_change_on(policy: str) -> None:
    router = Router(change_problem(period=200), policy, seed=1)
    before = play_router(router, 250)
    assert before > 2.2
    router.change(change_problem(limits=make_tighter_problem().limits, period=200))
    period = router.status().period
    assert period is not None
    assert period.played <= 50, "or fewer, if the rest is too short for the guard"
    assert play_router(router, 200 - period.played) <= 2.0
    assert play_router(router, 200) <= 2.0
    router.change(change_problem(period=200))
    assert play_router(router, 200) > 2.2, "and loosened limits are used"


@pytest.mark.parametrize("policy", ["distinct", "tangent", "strict", "omd"])
def test_the_next_decision_is_made_under_the_new_limits(policy: str) -> None:
    router = make_trained_router(policy)  # in the middle of a batch
    router.change(make_tighter_problem())
    before = compute_distributions(router)
    router.decide("y")
    moved = np.abs(compute_distributions(router) - before).max(axis=1) > 0
    assert moved.tolist() == [False, True, False]


@pytest.mark.parametrize("policy", POLICIES)
def test_experts_that_stay_keep_their_learned_state(policy: str) -> None:
    router = make_trained_router(policy, 600)
    old, new = router.problem.experts, make_problem_with_newcomer().experts
    fields = [
        name for name in router.core.state._fields if name in ("theta", "drawn", "alpha", "total")
    ]
    before = {name: getattr(router.core.state, name).copy() for name in fields}
    router.change(make_problem_with_newcomer())
    for name in fields:
        before_change, after_change = before[name][:3], getattr(router.core.state, name)[:3]
        if before_change.ndim == 2:
            kept = [one for one in new if one in old]
            a, b = (
                before_change[:, [old.index(one) for one in kept]],
                after_change[:, [new.index(one) for one in kept]],
            )
            if name == "theta":  # logits are defined up to a constant and have a floor
                a, b = a - a.max(axis=1, keepdims=True), b - b.max(axis=1, keepdims=True)
                a, b = np.maximum(a, -10.0), np.maximum(b, -10.0)
            assert_allclose(b, a, atol=1e-12)


@pytest.mark.parametrize("policy", ["ts", "greedy", "cbwk"])
def test_a_new_expert_starts_without_history_and_is_soon_asked(policy: str) -> None:
    router = make_trained_router(policy)
    router.change(make_problem_with_newcomer())
    assert (router.core.state.drawn[:3, 1] == 0).all()
    panels = [router.decide("x").subset for _ in range(40)]
    assert any("zoe" in panel for panel in panels)


@pytest.mark.parametrize("policy", ["distinct", "cbwk", "omd"])
def test_prices_are_kept_in_the_units_of_the_limits(policy: str) -> None:
    router = make_trained_router(policy, 2_000)
    before = {(one.cost, one.side): one.price for one in router.status().limits}
    # Another expert, ten times as expensive, changes the unit of the rows.
    expensive = (
        [*make_five_expert_problem().costs["usd"], 40.0],
        [*make_five_expert_problem().costs["junior"], 0],
    )
    costs = dict(zip(("usd", "junior"), expensive, strict=True))
    router.change(
        change_problem(
            experts=[*make_five_expert_problem().experts, "zoe"], costs=costs, floor=None
        )
    )
    after = {(one.cost, one.side): one.price for one in router.status().limits}
    assert after == pytest.approx(before, rel=1e-9, nan_ok=True)
    assert any((price or 0.0) > 0 for price in before.values())


@pytest.mark.parametrize("policy", GUARDED)
def test_counts_of_the_guard_are_kept_except_for_a_changed_bound(policy: str) -> None:
    router = make_trained_router(policy)
    before = get_limits(router.core).state
    before.clock["replaced"] = 7
    before.learned["missed"] = [1, 2, 3]
    router.change(make_tighter_problem())
    after = get_limits(router.core).state
    assert after.clock["replaced"][0] == 7
    assert after.learned["missed"].tolist() == [0, 2, 3]


def make_overspent_router(policy: str, extra_usd: float) -> Router:
    """A router whose panels were more expensive than expected, half-way through a period."""
    router = Router(change_problem(period=400), policy, seed=1)
    play_router(router, 200)
    router.core.settle(None, {"usd": extra_usd})
    return router


@pytest.mark.parametrize("policy", GUARDED)
def test_a_change_of_costs_keeps_the_current_period(policy: str) -> None:
    router = make_overspent_router(policy, 60.0)
    before = router.status()
    router.change(
        change_problem(costs={**make_five_expert_problem().costs, "ms": np.ones(5)}, period=400)
    )
    after = router.status()
    assert after.period == before.period
    for before_change, after_change in zip(before.limits, after.limits, strict=True):
        assert before_change.current is not None
        assert after_change.current is not None
        assert after_change.current.mean == pytest.approx(before_change.current.mean, rel=1e-12)
        assert after_change.current.within_reach


@pytest.mark.parametrize("policy", GUARDED)
@pytest.mark.parametrize("bound", [3.0, 2.5])
def test_overspending_before_a_change_is_compensated_after_it(policy: str, bound: float) -> None:
    router = make_overspent_router(policy, 0.0)
    # 100 above the bound in total
    router.core.settle(None, {"usd": 100.0 - router.core.totals.spent[0] + 3.0 * 200})
    limits = [at_most("usd", bound), *make_five_expert_problem().limits[1:]]
    router.change(
        change_problem(limits=limits, period=400, floor=make_five_expert_problem().floor * 0.999)
    )
    status = router.status()
    assert status.period is not None
    left = 400 - status.period.played
    assert all(one.current and one.current.within_reach for one in status.limits)
    assert play_router(router, left) * left <= bound * left - 100.0 + 1e-6
    assert router.status().limits[0].current.missed == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", GUARDED)
def test_overspending_that_cannot_be_compensated_counts_as_a_missed_period(policy: str) -> None:
    router = make_overspent_router(policy, 1e5)
    router.change(make_tighter_problem())
    assert get_limits(router.core).state.learned["missed"].tolist() == [1, 0, 0]
    assert all(one.current and one.current.within_reach for one in router.status().limits)


def list_numbers(router: Router) -> list[Any]:
    """All arrays of the states of policy and limits."""
    return [*iterate_arrays(router.core.state), *iterate_numbers(router.core.book.tables)]


def test_infeasible_limits_are_refused_and_change_nothing() -> None:
    router = make_trained_router("distinct")
    before = [leaf.copy() for leaf in list_numbers(router)]
    with pytest.raises(InfeasibleLimits):
        router.change(change_problem(limits=[at_most("usd", 0.1)]))
    only = "which cannot keep .*; loosen the limits or change the experts, or create a new router"
    with pytest.raises(PolicyError, match=f"asks 2 different experts every time, {only}"):
        router.change(change_problem(limits=[at_most("usd", 1.2)]))
    with pytest.raises(ProblemError, match=r"wanted a bylot\.Problem"):
        router.change("usd")  # type: ignore[arg-type]
    assert router.problem == make_five_expert_problem()
    for before_change, after_change in zip(before, list_numbers(router), strict=True):
        assert_array_equal(before_change, after_change)


def test_the_error_for_a_period_that_is_too_short_has_a_remedy_for_a_running_router() -> None:
    parts: Any = {
        "experts": ["ann", "bob"],
        "costs": {"a": [1, 0], "b": [0, 1]},
        "limits": [at_least("a", 0.3), at_least("b", 0.3)],
        "draws": 1,
    }
    router = Router(Problem(**parts))
    with pytest.raises(PolicyError, match="or create a new router: use at least 3 as the"):
        router.change(Problem(**parts, period=2))


def test_rewards_of_decisions_before_a_change_of_the_pool_are_noted() -> None:
    router = make_trained_router("distinct")
    one, two = router.decide(), router.decide()
    router.reward(one.id, 0.5)
    router.change(make_tighter_problem())
    assert router.reward(two.id, 0.5) is Receipt.LEARNED
    three = router.decide()
    router.change(make_problem_with_newcomer())
    rewards = int(router.core.totals.rewards[0])
    assert router.reward(three.id, 0.5) is Receipt.NOTED
    assert router.core.totals.rewards[0] == rewards, "nothing is learned"
    assert router.reward(one.id, 0.5) is Receipt.DUPLICATE


def test_a_changed_router_can_be_saved(tmp_path: object) -> None:
    router = make_trained_router("distinct")
    router.change(make_problem_with_newcomer())
    router.decide("x")
    router.save(f"{tmp_path}/router.bylot")
    loaded = Router.load(f"{tmp_path}/router.bylot")
    assert str(loaded.status()) == str(router.status())
    assert loaded.decide("x") == router.decide("x")
    assert loaded.status().mean_cost["ms"] >= 2.0, "which counts only decisions since the change"


def test_a_second_router_of_a_kind_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    Router(make_five_expert_problem(), "distinct")
    monkeypatch.setattr(compiled_handle, "HANDLE_FUNCTIONS", {})  # none is left to be compiled
    Router(make_problem_with_newcomer(), "distinct")
    monkeypatch.setattr(compiled_handle, "find_entries_of_type", compiled_handle.Entries)
    with pytest.raises(AttributeError, match="draw_and_book"):
        Router(make_problem_with_newcomer(), "distinct")
