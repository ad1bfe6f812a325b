"""C2MAB-V: a relaxed linear program over confidence bounds, rounded to a panel.

After "Cost-Effective Online Multi-LLM Selection with Versatile Reward Models" (Dai, Li, Liu, Yu and
Lui, arXiv 2405.16587), a baseline that sees the score of each member and has a long-term budget.
Its reward model here is the one in which any good answer is enough (AWC):

    max sum_i z_i g_i,  g_i = -log(1 - u_i),  over 0 <= z_i <= 1, sum_i z_i = M, C z within limits,

as 1 - prod_{i in A} (1 - u_i) grows with the sum of g over A; u_i = min(1, mu_i + alpha rho_i) with
rho_i = sqrt(log(2 pi^2 K t^3 / (3 delta)) / (2 n_i)). A solution for one budget is a mixture of two
panels, which differ in one member; the rounding plays one of the two, so that E[z] is kept.

What was assumed, as the description leaves it open or the contract here differs from it: costs are
the declared ones, so they need no confidence bounds; delta = 0.1 and alpha = 0.3; the statistics
are those of the context; several limits are priced one after the other, from the prices of the
round before, so that only one limit is met exactly in expectation.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.limits.records import LimitRule
from bylot.limits.request import Proposal, View
from bylot.numerics.dispatch import step
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import COIN_STREAM, RngKey, RngStream, draw_uniform
from bylot.numerics.sampling import add_panel_cost
from bylot.numerics.scratch_arrays import scratch_floats
from bylot.numerics.set_selection import choose_top_m
from bylot.policies import base
from bylot.policies.base import FeedbackKind, learn, propose
from bylot.problem import Problem
from bylot_paper.policies import baselines
from bylot_paper.policies.baselines import KnapsackLimits, Multipliers

DELTA = 0.1
MAX_BOUND = 1.0 - 1e-6  # of u_i: a finite gain
MAX_PRICE = 1e6  # per largest cost of a limit; a panel at this price is the cheapest there is
BISECTIONS = 45


class C2mabRule(NamedTuple):
    draws: int  # M
    alpha: float  # weight of the confidence radius
    evidence: int  # what it learns from: see `baselines.fill_evidence`
    limits: KnapsackLimits


class C2mabState(NamedTuple):
    """A row per context, and the shared prices."""

    visits: Ints  # (X,)
    drawn: Ints  # (X, K) rounds in which i was a member
    credited: Ints  # (X, K) those of them whose score came
    total: Floats  # (X, K) and the sum of these
    multipliers: Multipliers  # lam: the prices of the last round


@jit
def fill_gains(gains: Floats, rule: C2mabRule, state: C2mabState, x: int) -> None:
    """g_i = -log(1 - u_i) at the t-th visit; u_i is 1 before the first score."""
    size = gains.size
    log_term = np.log(2.0 * np.pi**2 * size * float(state.visits[x]) ** 3 / (3.0 * DELTA))
    for i in range(size):
        bound = MAX_BOUND
        n = state.credited[x, i]
        if n > 0:
            radius = np.sqrt(log_term / (2.0 * n))
            bound = min(MAX_BOUND, state.total[x, i] / n + rule.alpha * radius)
        gains[i] = -np.log1p(-bound)


@jit
def choose_at_price(
    net: Floats, limits: KnapsackLimits, j: int, price: float, draws: int, available: Bools
) -> Ints:
    """Choose the M largest of net_i + price sign_j c_ji."""
    scores = scratch_floats(net.size)
    for i in range(net.size):
        scores[i] = net[i] + price * limits.signs[j] * limits.rows[j, i]
    return choose_top_m(scores, draws, available)


@jit
def measure_excess(limits: KnapsackLimits, j: int, draws: Ints) -> float:
    """Return how far the cost of a panel is outside limit j; it is negative inside."""
    cost = scratch_floats(1)
    cost[0] = 0.0
    add_panel_cost(cost, limits.rows[j : j + 1], draws)
    return float(limits.signs[j] * (limits.bounds[j] - cost[0]))


@jit
def solve_relaxation(
    gains: Floats, limits: KnapsackLimits, lam: Floats, draws: int, available: Bools, coin: float
) -> Ints:
    """Return the panel of the relaxed program, rounded by a uniform number, and update prices."""
    panel = choose_top_m(gains, draws, available)
    net = gains.copy()
    for j in range(lam.size):
        for i in range(net.size):
            net[i] += lam[j] * limits.signs[j] * limits.rows[j, i]
    for j in range(lam.size):
        for i in range(net.size):  # all prices but that of j
            net[i] -= lam[j] * limits.signs[j] * limits.rows[j, i]
        low = 0.0
        high = MAX_PRICE
        outer = choose_at_price(net, limits, j, low, draws, available)
        panel = outer
        if measure_excess(limits, j, outer) > 0.0:
            inner = choose_at_price(net, limits, j, high, draws, available)
            for _ in range(BISECTIONS):
                price = 0.5 * (low + high)
                tried = choose_at_price(net, limits, j, price, draws, available)
                if measure_excess(limits, j, tried) > 0.0:
                    low = price
                    outer = tried
                else:
                    high = price
                    inner = tried
            over = measure_excess(limits, j, outer)
            under = measure_excess(limits, j, inner)
            panel = outer if under <= 0.0 and coin * (over - under) < -under else inner
        else:
            high = 0.0
        lam[j] = high
        for i in range(net.size):
            net[i] += lam[j] * limits.signs[j] * limits.rows[j, i]
    return panel


@step(propose, C2mabRule)
def propose_c2mab(rule: C2mabRule, state: C2mabState, view: View, rng: RngKey) -> Proposal:
    """Solve the relaxed program at the confidence bounds of now."""
    x = view.context
    available = view.available
    state.visits[x] += 1
    gains = scratch_floats(state.drawn.shape[1])
    fill_gains(gains, rule, state, x)
    coin = draw_uniform(rng, COIN_STREAM)
    draws = solve_relaxation(gains, rule.limits, state.multipliers.lam, rule.draws, available, coin)
    return base.propose_members(draws)


step(base.note_played, C2mabRule)(baselines.note_panel)


step(learn, C2mabRule)(baselines.learn_totals)
base.register_pull_steps(C2mabRule)


@dataclass(frozen=True)
class C2mabV(baselines.BaselinePolicy):
    """C2MAB-V for the reward model in which any good answer is enough, with known costs.

    alpha: weight of the confidence radius of rewards
    """

    alpha: float = 0.3

    name = "c2mab-v"
    label = "C2MAB-V"
    summary = "solves a relaxed program over confidence bounds of members, with a long-term budget"
    streams = (RngStream.COIN,)
    feedback: ClassVar[tuple[FeedbackKind, ...]] = ("panel", "members", "winner")

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> C2mabRule:
        return C2mabRule(
            draws=problem.draws,
            alpha=float(self.alpha),
            evidence=baselines.EVIDENCE[feedback],
            limits=baselines.make_knapsack(problem, 1.0, False, "average"),
        )

    def start(self, rule: C2mabRule, contexts: int = 1) -> C2mabState:
        shape = contexts, rule.limits.rows.shape[1]
        return C2mabState(
            visits=np.zeros(contexts, np.int64),
            drawn=np.zeros(shape, np.int64),
            credited=np.zeros(shape, np.int64),
            total=np.zeros(shape),
            multipliers=baselines.make_multipliers(rule.limits),
        )

    def is_valid_state(self, rule: C2mabRule, state: C2mabState) -> bool:
        return super().is_valid_state(rule, state) and baselines.has_valid_totals(
            state.drawn, state.credited, state.total
        )
