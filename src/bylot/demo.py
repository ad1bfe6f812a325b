"""A first look: our policy and the paper's on a built-in pool, against optima they cannot see."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bylot import plots
from bylot.kernels.compile import Floats
from bylot.kernels.inclusion import expected_costs
from bylot.kernels.summax import expected_rewards
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
    print(f"{problem.size} made-up workers, {M} asked for each request, {rounds:,} requests")
    say("... playing two policies (the first time, their code is compiled: a minute or so)")
    ours, papers = (
        simulate(problem, environment, name, rounds=rounds, seed=seed, horizon=rounds)
        for name in ("distinct", "omd")
    )
    stack = Stack(environment.rounds(0, rounds, seed).values)
    uniform = np.full(problem.size, 1 / problem.size)
    flat = float(expected_rewards(uniform, stack.values, stack.order, M).mean())
    say("... computing optima in hindsight")
    best, true = optimum(problem, stack), optimum(problem, stack, exact=True)
    bounds = [
        f"{one.name} {'<=' if one.sign < 0 else '>='} {one.bound:.3g}" for one in problem.limits
    ]
    lines = [
        Line("distinct, the default", ours.rewards.mean(), ours.mean_spend()[-1]),
        Line("omd, the paper's policy", papers.rewards.mean(), papers.mean_spend()[-1]),
        Line("equal shares", flat, cost(problem, uniform)),
        Line("best draws, paper's surrogate", best.value, cost(problem, best.policy)),
        Line("best draws, exact limits", true.value, cost(problem, true.policy)),
    ]
    print("\n".join(table([("", "reward", *bounds), *(one.cells(problem) for one in lines)])))
    print(
        "Rewards and limits are averages per request. The best draws come from the best fixed law\n"
        "in hindsight, with replacement; a policy that asks different experts can beat them."
    )
    levels = {
        "equal shares (outside)": flat,
        "best draws, surrogate": best.value,
        "best draws, exact": true.value,
    }
    title = f"A made-up crowd: {problem.size} workers, {M} draws, {len(problem.limits)} limits"
    plays = {"distinct": ours, "omd": papers}
    for path in plots.learning_and_limits(plays, levels, title, folder):
        print(f"figure: {path}")


def cost(problem: Problem, q: Floats) -> Floats:
    """What q costs per request, in expectation, under each limit."""
    return expected_costs(q, np.array(problem.rows), problem.draws)


class Line(NamedTuple):
    """A row of the table: what a way to play earns, and what it costs under each limit."""

    name: str
    reward: float
    costs: Floats

    def cells(self, problem: Problem) -> tuple[str, ...]:
        """The row as text, with a verdict on each limit."""
        slack = problem.signs * (self.costs - problem.bounds)
        verdicts = [
            f"{spent:.3f} {'kept' if left >= -1e-9 else 'outside'}"
            for spent, left in zip(self.costs, slack, strict=True)
        ]
        return self.name, f"{self.reward:.4f}", *verdicts
