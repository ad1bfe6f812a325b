"""A first look: our policy and the paper's on a built-in pool, against optima they cannot see."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bylot._text import format_table, print_progress
from bylot.numerics.inclusion import expected_panel_costs
from bylot.numerics.jit import Floats
from bylot.numerics.sum_max import expected_rewards_by_round
from bylot.optima import ValueStack, optimum
from bylot.problem import Problem
from bylot.reports.demo_figure import draw_demo
from bylot.reports.style import load_pyplot, make_figure_folder
from bylot.sample_problems import make_crowd_environment, make_crowd_problem
from bylot.simulation import simulate


def run(rounds: int, seed: int, out: Path) -> None:
    """Play, print a table, write a figure."""
    load_pyplot()
    folder = make_figure_folder(out)
    problem = make_crowd_problem(seed=seed)
    environment = make_crowd_environment(problem, seed=seed)
    M = problem.draws
    print(f"{problem.size} made-up workers, {M} asked for each request, {rounds:,} requests")
    print_progress(
        "... playing two policies (the first time, their code is compiled: a minute or so)"
    )
    ours, papers = (
        simulate(problem, environment, name, rounds=rounds, seed=seed, horizon=rounds)
        for name in ("distinct", "omd")
    )
    stack = ValueStack(environment.rounds(0, rounds, seed).values)
    uniform = np.full(problem.size, 1 / problem.size)
    flat = float(expected_rewards_by_round(uniform, stack.values, stack.order, M).mean())
    print_progress("... computing optima in hindsight")
    best, true = optimum(problem, stack), optimum(problem, stack, exact=True)
    bounds = [
        f"{one.name} {'<=' if one.sign < 0 else '>='} {one.bound:.3g}" for one in problem.limits
    ]
    lines = [
        DemoRow("distinct, the default", ours.rewards.mean(), ours.mean_spend()[-1]),
        DemoRow("omd, the paper's policy", papers.rewards.mean(), papers.mean_spend()[-1]),
        DemoRow("equal shares", flat, compute_limit_costs(problem, uniform)),
        DemoRow(
            "best draws, paper's surrogate", best.value, compute_limit_costs(problem, best.policy)
        ),
        DemoRow("best draws, exact limits", true.value, compute_limit_costs(problem, true.policy)),
    ]
    print(
        "\n".join(format_table([("", "reward", *bounds), *(one.cells(problem) for one in lines)]))
    )
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
    for path in draw_demo(plays, levels, title, folder):
        print(f"figure: {path}")


def compute_limit_costs(problem: Problem, q: Floats) -> Floats:
    """What q costs per request, in expectation, under each limit."""
    return expected_panel_costs(q, np.array(problem.rows), problem.draws)


class DemoRow(NamedTuple):
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
