"""The demo: a stored router learns whom to ask in a made-up pool, and a report says the result.

The language models, their prices and their scores are invented; router, limits and log are real.
"""

import time
from contextlib import closing
from itertools import combinations
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

import numpy as np

from bylot._atomic_write import save_file
from bylot._text import format_number, format_percent, format_table, join_words, print_progress
from bylot.environments import Noisy
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import (
    CreateRouter,
    DeleteRouter,
    GetRouter,
    MakeDecision,
    RecordReward,
)
from bylot.eventlog.events import now_us
from bylot.eventlog.repository import RouterRepository, make_owner_name
from bylot.harness import rolling_mean, sample_rounds
from bylot.numerics.jit import Floats
from bylot.optima import optimum
from bylot.parallel import show_progress
from bylot.problem_files import ProblemFile, read
from bylot.problem_files.schema import packaged_text
from bylot.reports import (
    BLUE,
    GREY,
    ORANGE,
    Banner,
    Block,
    Bullets,
    Figure,
    Heading,
    Paragraph,
    TableBlock,
    make_panels,
    save_figure,
    write_pages,
)
from bylot.router.config import RouterConfig, problem_to_data
from bylot.router.status import RouterStatus
from bylot.store import open_store

DEMO_ROUTER = "demo"
SKILLS = {
    "code": (0.85, 0.84, 0.20, 0.20, 0.45, 0.30),
    "law": (0.82, 0.15, 0.84, 0.25, 0.40, 0.30),
    "medicine": (0.84, 0.15, 0.25, 0.82, 0.40, 0.30),
}
"""The mean score of each model of `problem_files/demo.yaml` for each kind of request."""

DEMO_ENVIRONMENT = Noisy(np.array([*SKILLS.values()])[:, None], kappa=4.0)
BATCH_REQUESTS = 20
LATE_PART = 5  # the last fifth of the requests shows what was learned
CURVE_WINDOW = 200
MADE_UP = "The models, their prices and their scores are made up; router, limits and log are real."


class DemoRun(NamedTuple):
    """What came of T requests to a pool of K models under d limits."""

    file: ProblemFile
    rewards: Floats  # (T,)
    cents: Floats  # (T,)
    shares: Floats  # (X, K) of the late requests of each kind, whose panel had each model
    best: float  # mean reward of the best panels under the limits
    random: float  # mean reward of random panels
    status: RouterStatus
    missed: list[int]  # (d,) periods that ended outside each limit
    compile_s: float  # of CPU

    @property
    def periods(self) -> int:
        """The number of whole periods, at the end of which limits hold."""
        return len(self.rewards) // (self.file.problem.period or 1)


def find_late(rounds: int) -> slice:
    """Return the last fifth of the requests."""
    return slice(-max(1, rounds // LATE_PART), None)


def write_demo_problem(folder: Path) -> ProblemFile:
    """Write the problem file of the demo into a folder, and read it."""
    save_file(folder / "problem.yaml", packaged_text("demo.yaml").encode())
    return read(folder / "problem.yaml")


def run_demo(folder: Path, rounds: int, seed: int) -> DemoRun:
    """Route requests with a router in a store of the folder, instead of that of an earlier demo."""
    file = write_demo_problem(folder)
    problem = file.problem
    kinds = [*SKILLS]
    values, contexts = DEMO_ENVIRONMENT.rounds(0, rounds, seed)
    asked = np.zeros((rounds, problem.size), np.bool_)
    rewards = np.zeros(rounds)
    config = RouterConfig(
        problem=problem_to_data(problem),
        policy={"name": "auto"},
        seed=seed,
        max_contexts=len(SKILLS),
    )
    store = open_store(f"sqlite:///{folder / 'bylot.db'}")

    def route(batch: slice) -> None:
        """Ask for the panels of some requests, and report their rewards."""
        made = handler.perform_all(
            [MakeDecision(DEMO_ROUTER, kinds[number]) for number in contexts[batch]], now_us()
        )
        asked[batch] = [[name in panel.subset for name in problem.experts] for panel in made]
        rewards[batch] = np.where(asked[batch], values[batch, 0], 0.0).max(axis=1)
        handler.perform_all(
            [
                RecordReward(decision.id, reward)
                for decision, reward in zip(made, rewards[batch].tolist(), strict=True)
            ],
            now_us(),
        )

    with closing(CommandHandler(RouterRepository(store, make_owner_name()))) as handler:
        print_progress(
            f"... routing {rounds:,} requests; the first run of a version on a machine compiles "
            "for about half a minute"
        )
        start_s = time.process_time()
        if store.find(DEMO_ROUTER) is not None:
            handler.perform_all([DeleteRouter(DEMO_ROUTER)], now_us())
        handler.perform_all([CreateRouter(DEMO_ROUTER, config)], now_us())
        route(slice(0, BATCH_REQUESTS))
        compile_s = time.process_time() - start_s
        with show_progress(rounds, BATCH_REQUESTS, "request") as advance:
            for start in range(BATCH_REQUESTS, rounds, BATCH_REQUESTS):
                route(slice(start, start + BATCH_REQUESTS))
                advance(BATCH_REQUESTS)
        status = handler.perform_all([GetRouter(DEMO_ROUTER)], now_us())[0].status
    late = find_late(rounds)
    of_kind = np.equal(contexts[late], np.arange(len(kinds))[:, None]).astype(np.float64)
    panels = combinations(range(problem.size), problem.draws)
    return DemoRun(
        file=file,
        rewards=rewards,
        cents=asked @ problem.costs["cents"],
        shares=of_kind @ asked[late] / np.maximum(1, of_kind.sum(axis=1, keepdims=True)),
        best=optimum(problem, values, contexts=contexts).value,
        random=float(np.mean([values[:, 0, panel].max(axis=1) for panel in panels])),
        status=status,
        missed=[limit.current.missed if limit.current else 0 for limit in status.limits],
        compile_s=compile_s,
    )


def summarize_demo(run: DemoRun) -> str:
    """Say in one sentence what was learned, earned, spent and kept."""
    top = np.argsort(-run.shares, axis=1)[:, : run.file.problem.draws]
    asked = zip(SKILLS, np.array(run.file.problem.experts)[top], strict=True)
    learned = "; ".join(f"{kind}: {join_words(two, 'and')}" for kind, two in asked)
    late_reward = float(run.rewards[find_late(len(run.rewards))].mean())
    budget = run.status.limits[0]
    kept = (
        f"kept {run.missed.count(0)} of {len(run.missed)} limits at the end of each of its "
        f"{run.periods} periods"
        if run.periods
        else f"has not ended a period of {run.file.problem.period:,} requests yet"
    )
    return (
        f"In {len(run.rewards):,} requests the router learned whom to ask ({learned}), earned "
        f"{late_reward:.3f} per request in the last fifth "
        f"(random panels: {run.random:.3f}, the best panels under the limits: {run.best:.3f}), "
        f"spent {budget.mean:.3g} of at most {budget.bound:g} cents per request, and {kept}."
    )


def draw_demo_figure(run: DemoRun, folder: Path) -> list[Path]:
    """Draw what was earned, spent and learned."""
    figure, ((earned, spent, learned),) = make_panels(1, 3, (13, 4), "A router learns whom to ask")
    t = sample_rounds(len(run.rewards))
    earned.plot(t, rolling_mean(run.rewards, CURVE_WINDOW, t), color=BLUE, label="the router")
    earned.axhline(run.best, color=ORANGE, linestyle="--", label="the best under the limits")
    earned.axhline(run.random, color=GREY, linestyle=":", label="random panels")
    bound = run.file.problem.limits[0].bound
    spent.plot(t, rolling_mean(run.cents, CURVE_WINDOW, t), color=BLUE, label="the router")
    spent.axhline(bound, color=ORANGE, linestyle="--", label="limit, at the end of a period")
    spent.set(title="spent: cents per request", ylim=(0, 1.5 * bound))
    earned.set(title="earned: reward per request")
    for axes in (earned, spent):
        axes.set_xlabel(f"requests (mean of the last {CURVE_WINDOW})")
        axes.legend(fontsize=9, loc="center right")
    learned.imshow(run.shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    learned.set_xticks(range(run.file.problem.size), run.file.problem.experts)
    learned.set_yticks(range(len(SKILLS)), SKILLS)
    learned.set_title("learned: whom to ask (share of the last fifth)")
    for (x, i), part in np.ndenumerate(run.shares):
        colour = "white" if part > 0.5 else "black"
        learned.text(i, x, format_percent(part), ha="center", va="center", color=colour)
    return save_figure(figure, folder, "demo")


def report_demo(run: DemoRun, folder: Path) -> str:
    """Write the picture and the report, and return the text for the terminal."""
    sentence = summarize_demo(run)
    png, svg = draw_demo_figure(run, folder)
    asked = "How often each model was asked, in the last fifth of the requests"
    kinds = zip(SKILLS, run.shares, strict=True)
    learned = [
        ["kind", *run.file.problem.experts],
        *([kind, *map(format_percent, row)] for kind, row in kinds),
    ]
    kept = zip(run.file.limits, run.status.limits, run.missed, strict=True)
    limits = [
        ["limit", "average", "held in periods"],
        *(
            [written.words, format_number(limit.mean), f"{run.periods - missed} of {run.periods}"]
            for written, limit, missed in kept
        ),
    ]
    steps = {
        f"bylot replay {DEMO_ROUTER} --store sqlite:///{folder / 'bylot.db'}": "check the log",
        f"bylot problem check {folder / 'problem.yaml'}": "change a limit: does it still fit?",
        "make serve": "see the dashboard of such a router, with live traffic",
        "README.md": "route your own requests, in ten lines or over HTTP",
    }
    report: list[Block] = [
        Paragraph(sentence, lead=True),
        Banner(MADE_UP),
        Figure(png, svg, sentence, "What was earned and spent over time, and what was learned."),
        TableBlock(asked, learned[0], learned[1:]),
        TableBlock("Limits, on averages per request", limits[0], limits[1:]),
        Heading("Try next"),
        Bullets([f"{command}: {purpose}" for command, purpose in steps.items()]),
    ]
    page = write_pages(report, "bylot demo", folder)[1]
    work_s = time.process_time() - run.compile_s
    lines = [
        "",
        *wrap(sentence, 100),
        "",
        f"{asked}:",
        *format_table(learned),
        "",
        *format_table(limits),
        "",
        f"{MADE_UP} It took {work_s:.0f} s of CPU, and {run.compile_s:.0f} s",
        f"for the first {BATCH_REQUESTS} requests, as a new version compiles.",
        f"The report: {page}",
        "",
        "Try next:",
        *(f"  {line}" for line in format_table([("", ""), *steps.items()])[1:]),
    ]
    return "\n".join(lines)
