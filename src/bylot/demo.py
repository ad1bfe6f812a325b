"""`bylot demo`: the default policy and the paper's on a made-up pool, against the optima."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bylot._text import format_table, print_progress
from bylot.environments.synthetic import make_crowd_environment, make_crowd_problem
from bylot.numerics.iid_sets import expected_panel_costs
from bylot.numerics.jit import Floats
from bylot.numerics.sum_max import expected_rewards
from bylot.optima import ValueStack, optimum
from bylot.problem import Problem
from bylot.reports import style
from bylot.router.verdict import judge_average
from bylot.simulation import Trace, running_mean, simulate


def run(rounds: int, seed: int, out: Path) -> None:
    """Play two policies, print a table, draw a figure."""
    style.load_pyplot()  # fail now if it is not installed
    folder = style.make_figure_folder(out)
    problem = make_crowd_problem(seed=seed)
    environment = make_crowd_environment(problem, seed=seed)
    K, M = problem.size, problem.draws
    print(f"{K} made-up workers, {M} asked for each request, {rounds:,} requests")
    print_progress("... playing two policies")
    plays = {
        name: simulate(problem, environment, name, rounds=rounds, seed=seed, horizon=rounds)
        for name in ("distinct", "omd")
    }
    stack, flat = ValueStack(environment.rounds(0, rounds, seed).values), np.full(K, 1 / K)
    uniform = float(expected_rewards(flat[None], stack.values, stack.order, M).mean())
    print_progress("... computing optima in hindsight")
    surrogate, exact = optimum(problem, stack), optimum(problem, stack, exact=True)
    limits = [f"{x.name} {'<=' if x.sign < 0 else '>='} {x.bound:.3g}" for x in problem.limits]
    rows = [("", "reward", *limits)]
    labels = {"distinct": "distinct, the default", "omd": "omd, the paper's policy"}
    for name, play in plays.items():
        spend = play.mean_spend()[-1]
        rows.append(format_demo_row(problem, labels[name], play.rewards.mean(), spend))
    for name, reward, q in (
        ("uniform draws", uniform, flat),
        ("best draws, paper's surrogate", surrogate.value, surrogate.policy),
        ("best draws, exact limits", exact.value, exact.policy),
    ):
        costs = expected_panel_costs(q, np.array(problem.rows), M)
        rows.append(format_demo_row(problem, name, reward, costs))
    print("\n".join(format_table(rows)))
    print(
        "Rewards and limits are averages per request. The best draws are independent draws from "
        "the\nbest fixed distribution in hindsight; a policy that asks different experts can beat "
        "them."
    )
    levels = {
        "uniform draws (outside)": uniform,
        "best draws, surrogate": surrogate.value,
        "best draws, exact": exact.value,
    }
    title = f"A made-up crowd: {K} workers, {M} draws, {len(problem.limits)} limits"
    for path in draw_demo(plays, levels, title, folder):
        print(f"figure: {path}")


def format_demo_row(problem: Problem, name: str, reward: float, costs: Floats) -> tuple[str, ...]:
    """A row of the table, with a verdict on each limit."""
    verdicts = [
        f"{cost:.3f} {judge_average(limit, cost).name}"
        for limit, cost in zip(problem.limits, costs.tolist(), strict=True)
    ]
    return name, f"{reward:.4f}", *verdicts


def draw_demo(
    plays: Mapping[str, Trace], levels: Mapping[str, float], title: str, folder: Path
) -> list[Path]:
    """Draw the rewards over time against some levels, and the limits of the first policy."""
    plt = style.load_pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    figure.suptitle(title)
    for (name, trace), colour in zip(plays.items(), (style.BLUE, style.ORANGE), strict=False):
        t = np.arange(1, len(trace.rewards) + 1)
        window = max(1, len(t) // 50)
        smooth = np.convolve(trace.rewards, np.full(window, 1 / window), mode="valid")
        left.plot(t[window - 1 :], smooth, color=colour, linewidth=1.6, label=name)
    for name, level in levels.items():
        left.axhline(level, color=style.GREY, linewidth=1, linestyle="--")
        left.annotate(
            f"{name}\n{level:.3f}",
            (1.0, level),
            xytext=(4, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=style.GREY,
        )  # beside the axes
    left.set(xlabel="request", ylabel=f"reward (mean of {window})", title="rewards")
    left.margins(y=0.1)
    put_legend_below(left)
    first, trace = next(iter(plays.items()))
    draw_limit_slack(right, trace, f"limits of {first}")
    return style.save_figure(figure, folder, "demo")


def draw_limit_slack(axes: Any, trace: Trace, title: str) -> None:
    """Draw the slack of each limit's running average relative to its bound; outside below 0."""
    t = np.arange(1, len(trace.rewards) + 1)
    slack = trace.problem.signs * (running_mean(trace.spend) - trace.problem.bounds)
    for j, limit in enumerate(trace.problem.limits):
        colour, line = style.LIMIT_STYLES[j % len(style.LIMIT_STYLES)]
        label = f"{limit.name} {'≤' if limit.sign < 0 else '≥'} {limit.bound:.3g}"
        axes.plot(t, slack[:, j] / limit.bound, color=colour, linestyle=line, label=label)
    axes.set(xlabel="request", ylabel="slack / bound", xscale="log", xlim=(1, t[-1]))
    axes.set(title=title, ylim=(-1.0, None))
    axes.axhspan(-1.0, 0.0, color="#f3d9d0", zorder=0)
    axes.axhline(0.0, color="black", linewidth=1)
    corner = {"xycoords": "axes fraction", "ha": "right", "fontsize": 9}
    axes.annotate("outside its bound", (0.98, 0.03), color=style.ORANGE, **corner)
    put_legend_below(axes)


def put_legend_below(axes: Any) -> None:
    """Put the legend below the axes, where it covers no curve."""
    axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)
