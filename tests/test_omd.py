"""OMD-Approachability, step by step against a reference implementation in NumPy.

The reference follows the paper: it solves the quadratic program (8) with quadprog, keeps a
dictionary of iterates, and shares nothing with the compiled policy but the uniforms.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import quadprog
from numpy.testing import assert_allclose, assert_array_equal

from bound_policies import PolicyAtWork
from bylot import Problem, at_most, simulate
from bylot.errors import PolicyError
from bylot.numerics.box import box_support
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.philox import DRAW_STREAM, RngKey, draw_uniforms
from bylot.policies import Omd, policy_from_data
from sample_problem import make_five_expert_problem, make_recorded_environment

SETTINGS = {
    "algorithm 1": (Omd.plain(), 1, 400),
    "algorithm 1, quick dual": (Omd.plain(0.5), 1, 400),
    "quick steps": (Omd(eta=2.0, batch=1, baseline=False), 1, 400),
    "batched": (Omd(eta=2.0), 1, 400),
    "batched, sum": (Omd(eta=20.0, batch_gradient="sum"), 1, 400),
    "batched, frozen dual": (Omd(eta=2.0, freeze_dual_in_batch=True), 1, 400),
    "algorithm 2": (replace(Omd.plain(), eta_mult=0.05), 4, None),
    "algorithm 2, batched": (Omd(eta_mult=0.05, batch=5), 3, None),
}


def box_slope(u: Floats, w: Floats, low: Floats, high: Floats) -> Floats:
    """u minus the maximiser of w.x over the box; at w_j = 0 the one nearest to u."""
    x = np.where(w > 0, high, low)
    return u - np.where(w == 0, np.clip(u, low, high), x)


def solve_mirror_step(
    q: Floats, g: Floats, eta: float, a: Floats, b: float, floor: float
) -> Floats:
    """max p.g - eta/2 |p - q|^2 over sum p = 1, p >= floor, a.p <= b."""
    K = q.size
    rows = np.vstack([np.ones(K), np.eye(K), -a]).T
    sides = np.concatenate([[1.0], np.full(K, floor), [-b]])
    answer: Floats = quadprog.solve_qp(eta * np.eye(K), eta * q + g, rows, sides, 1)[0]
    return answer


def play_reference_omd(
    problem: Problem, policy: Omd, environment: Any, horizon: int | None
) -> tuple[Ints, Floats]:
    """Draws and final policies of the algorithm as printed, with its ambiguities resolved."""
    K, M, peak = problem.size, problem.draws, problem.rows.max(axis=1)
    C, low, high = problem.rows / peak[:, None], problem.box.low / peak, problem.box.high / peak
    G = np.sqrt(K * M * (1 / problem.floor + M - 1))
    q: dict[int, Floats] = {}
    g: dict[int, Floats] = {}
    seen: dict[int, list[float]] = {}
    visits: dict[int, int] = {}
    charged: list[Floats] = []
    w: Floats = np.zeros(len(C))
    draws = np.empty((len(environment.values), M), np.int64)
    for t, (V, x) in enumerate(zip(environment.values, environment.index.tolist(), strict=True)):
        n = visits[x] = visits.get(x, 0) + 1
        due = (n - 1) % policy.batch == 0
        if charged and (due or not policy.freeze_dual_in_batch):
            s = box_slope(np.mean(charged, axis=0), w, low, high)
            w = w + policy.dual * s
            w, charged = w / max(1.0, float(np.linalg.norm(w))), []
        if due:
            eta = policy.eta or policy.eta_mult * G * (
                np.sqrt(2 * horizon) if horizon else 2 * np.sqrt(n)
            )
            support = sum(max(wj * lo, wj * hi) for wj, lo, hi in zip(w, low, high, strict=True))
            old = q.get(x, np.full(K, 1 / K))
            q[x] = solve_mirror_step(old, g.get(x, np.zeros(K)), eta, w @ C, support, problem.floor)
            g[x] = np.zeros(K)
        charged.append(C @ q[x])
        edges = np.cumsum(q[x])
        draws[t] = np.searchsorted(
            edges / edges[-1], draw_uniforms(RngKey(5, t), DRAW_STREAM, M), side="right"
        )
        r = V[:, draws[t]].max(axis=1).sum()
        earlier = seen.setdefault(x, [])
        centred_reward = r - (np.mean(earlier) if earlier else r) if policy.baseline else r
        earlier.append(r)
        for i in draws[t]:
            g[x][i] += (
                centred_reward / q[x][i] / (policy.batch if policy.batch_gradient == "mean" else 1)
            )
    return draws, np.array([q[x] for x in sorted(q)])


@pytest.mark.parametrize("case", SETTINGS)
def test_the_compiled_policy_plays_the_paper_s_algorithm(case: str) -> None:
    policy, contexts, horizon = SETTINGS[case]
    problem, environment = make_five_expert_problem(), make_recorded_environment(400, contexts)
    draws, last = play_reference_omd(problem, policy, environment, horizon)
    trace = simulate(problem, environment, policy, rounds=400, seed=5, horizon=horizon)
    assert_array_equal(trace.draws, draws)
    final = [trace.record.distributions[trace.record.contexts == x][-1] for x in range(contexts)]
    assert_allclose(final, last, atol=1e-10)


def test_the_test_above_would_notice_another_eta() -> None:
    problem, environment = make_five_expert_problem(), make_recorded_environment(400)
    draws, _ = play_reference_omd(problem, Omd(eta=2.0), environment, 400)
    trace = simulate(problem, environment, Omd(eta=2.1), rounds=400, seed=5, horizon=400)
    assert (trace.draws != draws).any()


@pytest.mark.parametrize("factor", [1024.0, 1.0 / 4096.0])
def test_the_unit_of_a_cost_changes_no_decision(factor: float) -> None:
    cents = Problem(
        make_five_expert_problem().experts,
        {
            **make_five_expert_problem().costs,
            "usd": factor * make_five_expert_problem().costs["usd"],
        },
        [
            replace(limit, bound=limit.bound * (factor if limit.name == "usd" else 1.0))
            for limit in make_five_expert_problem().limits
        ],
        draws=2,
    )
    traces = [
        simulate(p, make_recorded_environment(), Omd(eta=2.0), rounds=400)
        for p in (make_five_expert_problem(), cents)
    ]
    assert_array_equal(traces[0].draws, traces[1].draws)


def compute_worst_excess(policy: Omd) -> float:
    """Largest f_t(w_t) = w_t.(C q_t) - h_S(w_t) over a play: at most 0 is the lemma's key step."""
    play = PolicyAtWork(policy, make_five_expert_problem())
    rule, state = play.rule, play.state
    environment, excess = make_recorded_environment(400), []
    for t, V in enumerate(environment.values):
        ticket = play.decide(RngKey(5, t))
        play.learn(ticket, float(V[:, ticket.draws].max(axis=1).sum()))
        w = state.dual.w
        excess.append(w @ rule.rows @ state.q[0] - box_support(rule.low, rule.high, w))
    return float(max(excess))


def test_a_frozen_dual_keeps_the_lemma_s_inequality_in_every_round() -> None:
    assert compute_worst_excess(Omd(eta=2.0, freeze_dual_in_batch=True)) < 1e-14
    assert compute_worst_excess(Omd(eta=2.0, batch=1)) < 1e-14


def test_the_per_round_dual_of_the_experiments_violates_the_inequality() -> None:
    assert compute_worst_excess(Omd(eta=2.0)) > 1e-3


def test_without_limits_omd_runs_without_a_dual() -> None:
    unlimited = Problem(make_five_expert_problem().experts, {}, draws=2)
    trace = simulate(unlimited, make_recorded_environment(), "omd", rounds=400)
    assert trace.spend.shape == (400, 0)
    assert trace.record.feasible.all()


def test_an_empty_surrogate_marks_decisions_and_does_not_raise() -> None:
    limits = [at_most("usd", 3.0), *make_five_expert_problem().limits[1:]]
    tight = Problem(
        make_five_expert_problem().experts,
        dict(make_five_expert_problem().costs),
        limits,
        draws=2,
        floor=0.2,
    )
    with pytest.warns(UserWarning, match="surrogate"):
        trace = simulate(tight, make_recorded_environment(), Omd(eta=2.0), rounds=400)
    assert not trace.record.feasible.all()
    assert_allclose(trace.record.distributions.sum(axis=1), 1.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"eta": 0.0}, "setting eta 0.0: expected a positive number"),
        ({"eta": float("nan")}, "setting eta nan: expected a positive number"),
        ({"eta_mult": -1.0}, "setting eta_mult -1.0: expected a positive number"),
        ({"batch": 0}, "setting batch 0: expected a whole number"),
        ({"batch": 2.5}, "setting batch 2.5: expected a whole number"),
        ({"batch_gradient": "median"}, "setting batch_gradient 'median': expected 'mean' or 'sum'"),
        ({"dual": -0.1}, "setting dual -0.1: expected a positive number"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        Omd(**settings)


def test_the_dual_s_step_is_read_as_0_1_0_wrote_it() -> None:
    stored = {"name": "omd", "batch": 5, "dual": {"kind": "fixed", "step": 0.02}}
    assert policy_from_data(stored) == Omd(batch=5, dual=0.02)
    with pytest.raises(PolicyError, match=r"setting dual .*anytime.*: expected a positive number"):
        policy_from_data({**stored, "dual": {"kind": "anytime", "step": 1.0}})
