"""C2MAB-V: its relaxed program against a linear-program solver, its budget, and what it learns."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from bylot import Problem, at_most, simulate
from bylot.environments import Outcomes
from bylot_paper.policies.baselines import make_knapsack
from bylot_paper.policies.c2mab_v import C2mabState, C2mabV, fill_gains, solve_relaxation

EVERYONE = np.empty(0, np.bool_)
COSTS = np.array([5.0, 4.0, 1.0, 3.0, 0.5, 2.0])
POOL = Problem(list("abcdef"), {"usd": COSTS}, [at_most("usd", 6.0)], draws=3)


def round_relaxation(gains: Any, problem: Problem, coins: int = 20_000) -> tuple[Any, set[Any]]:
    """How often each expert is a member, over evenly spaced coins; and the panels."""
    limits, lam = make_knapsack(problem, 1.0, False, "average"), np.zeros(len(problem.limits))
    shares, panels = np.zeros(problem.size), set()
    for coin in (np.arange(coins) + 0.5) / coins:
        panel = solve_relaxation(gains, limits, lam, problem.draws, EVERYONE, coin)
        shares[panel] += 1 / coins
        panels.add(frozenset(panel.tolist()))
    return shares, panels


@pytest.mark.parametrize("seed", range(6))
def test_the_rounding_keeps_the_solution_of_the_relaxed_program(seed: int) -> None:
    gains = np.random.default_rng(seed).uniform(0.05, 3.0, 6)
    shares, panels = round_relaxation(gains, POOL, 2_000)
    best = linprog(
        -gains, A_ub=[COSTS], b_ub=[6.0], A_eq=[np.ones(6)], b_eq=[3.0], bounds=[(0, 1)] * 6
    )
    assert_allclose(shares, np.asarray(best.x), atol=1e-3)
    assert len(panels) <= 2
    assert COSTS @ shares <= 6.0 + 5e-3


def test_a_budget_that_does_not_bind_changes_nothing_and_one_out_of_reach_gives_the_cheapest() -> (
    None
):
    gains = np.array([3.0, 2.9, 0.1, 2.8, 0.2, 0.3])
    loose = POOL.replace(limits=[at_most("usd", 12.5)])
    assert round_relaxation(gains, loose, 50)[1] == {frozenset({0, 1, 3})}
    limits, lam = make_knapsack(POOL, 1.0, False, "average"), np.zeros(1)
    scarce = limits._replace(bounds=np.array([0.1]))
    assert set(solve_relaxation(gains, scarce, lam, 3, EVERYONE, 0.5).tolist()) == {2, 4, 5}


def test_gains_are_of_upper_confidence_bounds() -> None:
    policy = C2mabV(alpha=0.3)
    rule = policy.bind(POOL, None, "members")
    state: C2mabState = policy.start(rule)
    state.visits[0] = 50
    state.credited[0, :3], state.total[0, :3] = [400, 40, 0], [200.0, 20.0, 0.0]
    gains = np.empty(6)
    fill_gains(gains, rule, state, 0)
    radius = np.sqrt(np.log(2 * np.pi**2 * 6 * 50**3 / 0.3) / (2 * np.array([400, 40])))
    assert_allclose(gains[:2], -np.log(1 - (0.5 + 0.3 * radius)))
    assert_allclose(gains[2:], -np.log(1e-6))


def test_with_member_scores_it_learns_much_faster_and_spends_about_the_budget() -> None:
    rng = np.random.default_rng(0)
    skills = np.linspace(0.03, 0.45, 12)
    table = (rng.random((500, 12)) < skills).astype(float)
    usd = np.round(skills * rng.uniform(0.7, 1.3, 12), 3)
    problem = Problem([f"e{i}" for i in range(12)], {"usd": usd}, [at_most("usd", 0.9)], draws=3)
    run: Any = {"rounds": 2_000, "keep_distributions": False}
    found = {
        feedback: [
            simulate(problem, Outcomes(table), "c2mab-v", seed=s, feedback=feedback, **run)
            for s in range(5)
        ]
        for feedback in ("panel", "members", "winner")
    }
    mean = {name: np.mean([one.rewards.mean() for one in runs]) for name, runs in found.items()}
    assert mean["members"] > mean["panel"] + 0.02
    assert mean["winner"] > mean["panel"]
    assert all(one.spend.mean() < 1.02 * 0.9 for one in found["members"])
