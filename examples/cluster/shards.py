"""What it costs to split traffic over several routers, each with its share of the budget.

The visits of examples/hospital are divided over 1 to 16 routers, which learn nothing from each
other. The limits are averages per request, so a router's share of the budget is its share of the
requests. Its period is its share of the 5,000 visits after which the limits have to hold.

    python examples/cluster/shards.py --seeds 20 --out out/shards
"""

import argparse
import json
import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import bylot
from bylot import problem_files
from bylot._text import format_table, print_progress
from bylot.harness import average_periods
from bylot.metrics import measure_worst_excess
from bylot.problem import Problem
from bylot.reports import BLUE, GREY, ORANGE, load_pyplot, make_figure_folder, save_figure
from bylot.scenario import Scenario, scenario_from_outcomes

HOSPITAL = Path(__file__).parent.parent / "hospital"
SHARDS = (1, 2, 4, 8, 16)
POLICIES = ("distinct", "noisy-or")
COLOURS = {"distinct": ORANGE, "noisy-or": BLUE}


class ShardedRun(NamedTuple):
    """One seed: mean reward, periods of single routers, and those that broke a limit."""

    reward: float
    periods: int
    missed: int
    replaced: float  # share of panels by the fallback schedule of the guard


def read_hospital() -> tuple[Problem, Scenario]:
    """The problem and its visits, from tables that generate.py has made up."""
    file = problem_files.read(HOSPITAL / "problem.yaml", HOSPITAL / "generated-experts.csv")
    tables = HOSPITAL / "generated-outcomes.csv", HOSPITAL / "generated-questions.csv"
    return file.problem, scenario_from_outcomes(file, *tables, dimension="specialty")


def play_shards(
    problem: Problem, scenario: Scenario, policy: str, shards: int, requests: int, seed: int
) -> ShardedRun:
    """Divide so many requests over routers with random numbers of their own."""
    period = (problem.period or requests) // shards
    part = problem.replace(period=period)
    total, periods, missed, replaced = 0.0, 0, 0, 0
    for shard in range(shards):
        trace = bylot.simulate(
            part,
            scenario.environment,
            policy,
            rounds=requests // shards,
            seed=seed * max(SHARDS) + shard,
            keep_distributions=False,
        )
        means = average_periods(trace.spend, period)
        total += float(trace.rewards.sum())
        periods += len(means)
        missed += sum(measure_worst_excess(part, one) > 0.0 for one in means)
        replaced += int(trace.record.replaced.sum())
    played = requests // shards * shards
    return ShardedRun(total / played, periods, missed, replaced / played)


def summarise_runs(runs: list[ShardedRun], one_router: list[ShardedRun]) -> dict[str, Any]:
    """Means over seeds with standard errors; the loss is relative to one router, seed by seed."""
    rewards = [run.reward for run in runs]
    losses = [1.0 - run.reward / one.reward for run, one in zip(runs, one_router, strict=True)]
    root = math.sqrt(len(runs))
    return {
        "reward": mean(rewards),
        "reward_se": stdev(rewards) / root,
        "loss": mean(losses),
        "loss_se": stdev(losses) / root,
        "periods": sum(run.periods for run in runs),
        "missed": sum(run.missed for run in runs),
        "replaced": mean(run.replaced for run in runs),
    }


def run(policies: list[str], requests: list[int], seeds: int) -> list[dict[str, Any]]:
    """A row for each policy, number of requests and number of routers."""
    problem, scenario = read_hospital()
    rows = []
    for policy in policies:
        for count in requests:
            one_router: list[ShardedRun] = []
            for shards in SHARDS:
                print_progress(f"... {policy}, {count:,} requests, routers: {shards}")
                runs = [
                    play_shards(problem, scenario, policy, shards, count, seed)
                    for seed in range(seeds)
                ]
                one_router = one_router or runs
                row = {"policy": policy, "requests": count, "routers": shards, "seeds": seeds}
                rows.append(row | summarise_runs(runs, one_router))
    return rows


def render(rows: list[dict[str, Any]]) -> str:
    """The rows as a table."""
    head = ("policy", "requests", "routers", "reward", "lost", "periods", "missed", "replaced")
    return "\n".join(format_table([head, *map(format_row, rows)]))


def format_row(row: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a row."""
    return (
        row["policy"],
        f"{row['requests']:,}",
        str(row["routers"]),
        f"{row['reward']:.4f} ± {row['reward_se']:.4f}",
        f"{100 * row['loss']:.2f} ± {100 * row['loss_se']:.2f} %",
        f"{row['periods']:,}",
        f"{row['missed']:,}",
        f"{100 * row['replaced']:.2f} %",
    )


def draw(rows: list[dict[str, Any]], folder: Path) -> None:
    """The share of the reward that is lost, by the number of routers."""
    figure, axes = load_pyplot().subplots(figsize=(6.4, 3.6), layout="constrained")
    series = list(dict.fromkeys((row["policy"], row["requests"]) for row in rows))
    for policy, requests in series:
        mine = [row for row in rows if (row["policy"], row["requests"]) == (policy, requests)]
        axes.errorbar(
            [row["routers"] for row in mine],
            [100 * row["loss"] for row in mine],
            [200 * row["loss_se"] for row in mine],
            color=COLOURS[policy],
            linestyle="-" if requests == series[0][1] else "--",
            marker="o" if policy == POLICIES[0] else "s",
            label=f"{policy}, {requests:,} requests",
            capsize=3,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(SHARDS, [str(count) for count in SHARDS])
    axes.set_xlabel("routers that share the requests")
    axes.set_ylabel("reward lost, % (± 2 standard errors)")
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.legend(frameon=False)
    save_figure(figure, make_figure_folder(folder), "shards")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--requests", type=int, action="append", help="repeatable; default: 40,000")
    parser.add_argument("--policy", choices=POLICIES, action="append")
    parser.add_argument(
        "--out", type=Path, help="folder for shards.json, shards.png and shards.svg"
    )
    given = parser.parse_args()
    rows = run(given.policy or list(POLICIES), given.requests or [40_000], given.seeds)
    print(render(rows))
    if given.out is not None:
        draw(rows, given.out)
        (given.out / "shards.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
