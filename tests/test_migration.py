"""A problem that changes while a router runs: what was learned goes on, limits hold from there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bylot import Problem, Receipt, Router, at_least, at_most
from bylot.errors import InfeasibleLimits, PolicyError, ProblemError
from bylot.numerics.jit import Floats
from bylot.policies import POLICIES
from bylot.policies.base import compute_distribution
from bylot.router import core
from bylot.router.core import iterate_arrays
from small import five

GUARDED = ["distinct", "tangent", "noisy-or"]


def other(**parts: Any) -> Problem:
    """Five experts with some parts changed."""
    old = five()
    same = {name: getattr(old, name) for name in ("experts", "costs", "limits", "draws", "floor")}
    return Problem(**{**same, **parts})


def tighter() -> Problem:
    """A lower upper bound."""
    return other(limits=[at_most("usd", 2.0), *five().limits[1:]])


def newcomer() -> Problem:
    """Dan left, Zoe came, in another order, under other limits and with another cost."""
    return Problem(
        ["eve", "zoe", "ann", "cat", "bob"],
        {"ms": [1, 2, 1, 2, 1], "usd": [0.5, 2.0, 4.0, 1.0, 3.0], "junior": [1, 1, 0, 1, 0]},
        [at_least("junior", 0.4), at_most("ms", 2.9), at_most("usd", 3.5)],
        draws=2,
    )


def single() -> Problem:
    """Only three are left, asked one at a time."""
    return Problem(["cat", "dan", "eve"], {"usd": [1.0, 1.0, 0.5]}, [at_most("usd", 1)], draws=1)


def unlimited() -> Problem:
    """No limits any more."""
    return other(limits=[])


CHANGES: list[Callable[[], Problem]] = [tighter, newcomer, single, unlimited]


def trained(policy: str, rounds: int = 137, horizon: int | None = None) -> Router:
    """A router that has seen three contexts, and that ann is worth most."""
    made = Router(five(), policy, seed=3, horizon=horizon)
    play(made, rounds)
    return made


def play(made: Router, rounds: int) -> float:
    """Rounds with prompt rewards; the mean cost in usd."""
    spent = 0.0
    for n in range(rounds):
        decision = made.decide("xyz"[n % 3])
        made.reward(decision.id, 0.1 + 0.6 * ("ann" in decision.subset))
        spent += decision.spend["usd"]
    return spent / rounds


def laws(made: Router) -> Floats:
    """Of the three contexts."""
    return np.array(
        [
            compute_distribution(made.core.rule, made.core.state, x, made.core.mask_available(None))
            for x in range(3)
        ]
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("horizon", [None, 400])
def test_every_policy_goes_on_after_every_change(
    policy: str, change: Callable[[], Problem], horizon: int | None
) -> None:
    made, problem = trained(policy, horizon=horizon), change()
    made.change(problem)
    blank = made.policy.start(made.core.rule, len(made.core.state.visits))
    for ours, fresh in zip(iterate_arrays(made.core.state), iterate_arrays(blank), strict=True):
        assert (ours.shape, ours.dtype) == (fresh.shape, fresh.dtype)
        assert np.isfinite(ours).all()
    assert made.policy.is_valid_state(made.core.rule, made.core.state)
    assert_allclose(laws(made).sum(axis=1), 1.0)
    for n in range(60):
        decision = made.decide("wxyz"[n % 4], problem.experts[:2] if n % 9 == 5 else None)
        assert made.reward(decision.id, 0.5) is Receipt.LEARNED
    assert made.policy.is_valid_state(made.core.rule, made.core.state)
    assert made.status().decisions == 197


@pytest.mark.parametrize("policy", POLICIES)
def test_a_change_of_nothing_changes_no_law(policy: str) -> None:
    made = trained(policy)
    before, state = laws(made), made.core.state
    made.change(other())
    assert made.core.state is state
    made.change(other(floor=five().floor * 0.999, costs={**five().costs, "ms": np.ones(5)}))
    assert made.core.state is not state
    assert_array_equal(laws(made), before)
    made.change(newcomer())
    assert policy == "random" or not np.array_equal(laws(made), before)  # that one never learns


@pytest.mark.parametrize("policy", GUARDED)
def test_limits_are_kept_from_the_change_on(policy: str) -> None:
    made = Router(other(period=200), policy, seed=1)
    before = play(made, 250)
    assert before > 2.2
    made.change(other(limits=tighter().limits, period=200))
    period = made.status().period
    assert period is not None
    assert period.played <= 50, "or fewer, where the rest would be too short for a promise"
    assert play(made, 200 - period.played) <= 2.0
    assert play(made, 200) <= 2.0
    made.change(other(period=200))
    assert play(made, 200) > 2.2, "and loosened limits are made use of"


@pytest.mark.parametrize("policy", ["distinct", "tangent", "strict", "omd"])
def test_the_next_decision_is_made_under_the_new_limits(policy: str) -> None:
    made = trained(policy)  # in the middle of a batch
    made.change(tighter())
    before = laws(made)
    made.decide("y")
    moved = np.abs(laws(made) - before).max(axis=1) > 0
    assert moved.tolist() == [False, True, False]


@pytest.mark.parametrize("policy", POLICIES)
def test_who_stays_keeps_what_was_learned_by_name(policy: str) -> None:
    made = trained(policy, 600)
    old, new = made.problem.experts, newcomer().experts
    fields = [
        name for name in made.core.state._fields if name in ("theta", "drawn", "alpha", "total")
    ]
    before = {name: getattr(made.core.state, name).copy() for name in fields}
    made.change(newcomer())
    for name in fields:
        was, now = before[name][:3], getattr(made.core.state, name)[:3]
        if was.ndim == 2:
            kept = [one for one in new if one in old]
            a, b = (
                was[:, [old.index(one) for one in kept]],
                now[:, [new.index(one) for one in kept]],
            )
            if name == "theta":  # logits are up to a constant, and not below where a step begins
                a, b = a - a.max(axis=1, keepdims=True), b - b.max(axis=1, keepdims=True)
                a, b = np.maximum(a, -10.0), np.maximum(b, -10.0)
            assert_allclose(b, a, atol=1e-12)


@pytest.mark.parametrize("policy", ["ts", "greedy", "cbwk"])
def test_a_newcomer_begins_as_in_a_new_problem_and_is_soon_asked(policy: str) -> None:
    made = trained(policy)
    made.change(newcomer())
    assert (made.core.state.drawn[:3, 1] == 0).all()
    panels = [made.decide("x").subset for _ in range(40)]
    assert any("zoe" in panel for panel in panels)


@pytest.mark.parametrize("policy", ["distinct", "cbwk", "omd"])
def test_prices_are_kept_in_the_units_of_the_limits(policy: str) -> None:
    made = trained(policy, 2_000)
    before = {(one.cost, one.side): one.price for one in made.status().limits}
    # Another expert, ten times as dear, makes another unit of the rows.
    dear = [*five().costs["usd"], 40.0], [*five().costs["junior"], 0]
    costs = dict(zip(("usd", "junior"), dear, strict=True))
    made.change(other(experts=[*five().experts, "zoe"], costs=costs, floor=None))
    after = {(one.cost, one.side): one.price for one in made.status().limits}
    assert after == pytest.approx(before, rel=1e-9, nan_ok=True)
    assert any((price or 0.0) > 0 for price in before.values())


@pytest.mark.parametrize("policy", GUARDED)
def test_counts_of_the_guard_go_on_but_not_those_of_a_limit_with_another_bound(policy: str) -> None:
    made = trained(policy)
    made.core.state.budget.replaced[:] = 7
    made.core.state.budget.missed[:] = [1, 2, 3]
    made.change(tighter())
    assert made.core.state.budget.replaced[0] == 7
    assert made.core.state.budget.missed.tolist() == [0, 2, 3]


def overspent(policy: str, more: float) -> Router:
    """A router whose panels were dearer in fact, half way through a period."""
    made = Router(other(period=400), policy, seed=1)
    play(made, 200)
    made.core.settle({"usd": more})
    return made


@pytest.mark.parametrize("policy", GUARDED)
def test_a_change_of_the_pool_leaves_the_period_as_it_was(policy: str) -> None:
    made = overspent(policy, 60.0)
    before = made.status()
    made.change(other(costs={**five().costs, "ms": np.ones(5)}, period=400))
    after = made.status()
    assert after.period == before.period
    for was, now in zip(before.limits, after.limits, strict=True):
        assert was.current is not None
        assert now.current is not None
        assert now.current.mean == pytest.approx(was.current.mean, rel=1e-12)
        assert now.current.within_reach


@pytest.mark.parametrize("policy", GUARDED)
@pytest.mark.parametrize("bound", [3.0, 2.5])
def test_what_was_overspent_is_made_up_for_after_a_change(policy: str, bound: float) -> None:
    made = overspent(policy, 0.0)
    made.core.settle(
        {"usd": 100.0 - made.core.totals.spent[0] + 3.0 * 200}
    )  # in all 100 beyond the bound
    limits = [at_most("usd", bound), *five().limits[1:]]
    made.change(other(limits=limits, period=400, floor=five().floor * 0.999))
    status = made.status()
    assert status.period is not None
    left = 400 - status.period.played
    assert all(one.current and one.current.within_reach for one in status.limits)
    assert play(made, left) * left <= bound * left - 100.0 + 1e-6
    assert made.status().limits[0].current.missed == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", GUARDED)
def test_what_no_period_can_make_up_for_counts_as_a_period_that_missed(policy: str) -> None:
    made = overspent(policy, 1e5)
    made.change(tighter())
    assert made.core.state.budget.missed.tolist() == [1, 0, 0]
    assert all(one.current and one.current.within_reach for one in made.status().limits)


def test_limits_that_cannot_be_kept_are_refused_and_change_nothing() -> None:
    made = trained("distinct")
    before = [leaf.copy() for leaf in iterate_arrays(made.core.state)]
    with pytest.raises(InfeasibleLimits):
        made.change(other(limits=[at_most("usd", 0.1)]))
    only = "which cannot keep .*; loosen the limits or change the experts, or create a new router"
    with pytest.raises(PolicyError, match=f"asks 2 different experts every time, {only}"):
        made.change(other(limits=[at_most("usd", 1.2)]))
    with pytest.raises(ProblemError, match=r"wanted a bylot\.Problem"):
        made.change("usd")  # type: ignore[arg-type]
    assert made.problem == five()
    for was, now in zip(before, iterate_arrays(made.core.state), strict=True):
        assert_array_equal(was, now)


def test_a_change_to_a_period_that_is_too_short_says_what_can_be_done_while_it_runs() -> None:
    parts: Any = {
        "experts": ["ann", "bob"],
        "costs": {"a": [1, 0], "b": [0, 1]},
        "limits": [at_least("a", 0.3), at_least("b", 0.3)],
        "draws": 1,
    }
    made = Router(Problem(**parts))
    with pytest.raises(PolicyError, match="or create a new router: use at least 3 as the"):
        made.change(Problem(**parts, period=2))


def test_decisions_from_before_a_change_of_the_pool_are_let_go() -> None:
    made = trained("distinct")
    one, two = made.decide(), made.decide()
    made.reward(one.id, 0.5)
    made.change(tighter())
    assert made.reward(two.id, 0.5) is Receipt.LEARNED
    three = made.decide()
    made.change(newcomer())
    assert made.reward(three.id, 0.5) is Receipt.LATE
    assert made.reward(one.id, 0.5) is Receipt.DUPLICATE


def test_a_changed_router_can_be_saved(tmp_path: object) -> None:
    made = trained("distinct")
    made.change(newcomer())
    made.decide("x")
    made.save(f"{tmp_path}/router.json")
    again = Router.load(f"{tmp_path}/router.json")
    assert str(again.status()) == str(made.status())
    assert again.decide("x") == made.decide("x")
    assert again.status().mean_cost["ms"] >= 2.0, "which only the decisions since count for"


def test_a_second_router_of_a_kind_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    Router(five(), "distinct")

    def patience(line: str) -> None:
        raise AssertionError(line)

    monkeypatch.setattr(core, "announce_if_slow", patience)
    Router(newcomer(), "distinct")
    monkeypatch.setattr(core, "COMPILED_HANDLE_TYPES", set())
    with pytest.raises(AssertionError, match="compiling"):
        Router(newcomer(), "distinct")
