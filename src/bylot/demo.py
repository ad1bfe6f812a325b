"""A first look: the paper's policy on a built-in pool, against the optimum it cannot see."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bylot import plots
from bylot.kernels.compile import Floats
from bylot.kernels.inclusion import expected_costs
from bylot.kernels.summax import expected_rewards, per_round
from bylot.optima import Stack, optimum
from bylot.pools import crowd, skills
from bylot.problem import Problem
from bylot.simulation import simulate
from bylot.text import say, table


def run(rounds: int, seed: int, out: Path) -> None:
    """Play, print a table, write a figure."""
    plots.drawing()
    folder = plots.folder_for(out)
    problem = crowd(seed=seed)
    environment = skills(problem, seed=seed)
    M = problem.draws
    print(f"{problem.size} made-up workers, {M} drawn for each request, {rounds:,} requests")
    say("... playing the paper's policy (the first time, its code is compiled: half a minute)")
    trace = simulate(problem, environment, "omd", rounds=rounds, seed=seed, horizon=rounds)
    stack = Stack(environment.rounds(0, rounds, seed).values)
    earned = per_round(trace.record.law, stack.values, stack.order, M)
    uniform = np.full(problem.size, 1 / problem.size)
    flat = float(expected_rewards(uniform, stack.values, stack.order, M).mean())
    say("... computing the optimum in hindsight")
    best, true = optimum(problem, stack), optimum(problem, stack, exact=True)
    bounds = [
        f"{one.name} {'<=' if one.sign < 0 else '>='} {one.bound:.3g}" for one in problem.limits
    ]
    head = ("", "reward", "regret", *bounds)
    lines = [
        Line("omd, the paper's policy", earned.mean(), trace.mean_spend()[-1]),
        Line("equal shares", flat, cost(problem, uniform)),
        Line("optimum, paper's surrogate", best.value, cost(problem, best.policy)),
        Line("optimum, exact limits", true.value, cost(problem, true.policy)),
    ]
    print("\n".join(table([head, *(one.cells(problem, best.value) for one in lines)])))
    print("Limits are averages per request; regret is against the optimum under the surrogate.")
    levels = {
        "equal shares (outside)": flat,
        "optimum, surrogate": best.value,
        "optimum, exact": true.value,
    }
    title = f"A made-up crowd: {problem.size} workers, {M} draws, {len(problem.limits)} limits"
    for path in plots.learning_and_limits(trace, earned, levels, title, folder):
        print(f"figure: {path}")


def cost(problem: Problem, q: Floats) -> Floats:
    """What q costs per request, in expectation, under each limit."""
    return expected_costs(q, np.array(problem.rows), problem.draws)


class Line(NamedTuple):
    """A row of the table: what a way to play earns, and what it costs under each limit."""

    name: str
    reward: float
    costs: Floats

    def cells(self, problem: Problem, best: float) -> tuple[str, ...]:
        """The row as text, with a verdict on each limit."""
        slack = problem.signs * (self.costs - problem.bounds)
        verdicts = [
            f"{spent:.3f} {'kept' if left >= -1e-9 else 'outside'}"
            for spent, left in zip(self.costs, slack, strict=True)
        ]
        return self.name, f"{self.reward:.4f}", f"{best - self.reward:+.4f}", *verdicts
