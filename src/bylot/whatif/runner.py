"""A what-if run from setup to report, and what is left of one that is stopped."""

import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bylot._text import announce_if_slow, format_table, print_progress
from bylot.errors import BylotWarning, PolicyError
from bylot.harness import PlaySummary, play_cell, run_jobs, summarize_play
from bylot.parallel import ThreadEngine
from bylot.problem import Problem
from bylot.reports.pages import write_pages
from bylot.reports.style import load_pyplot, make_figure_folder
from bylot.simulation import Trace
from bylot.whatif.figures import draw_whatif
from bylot.whatif.plan import RunJob, WhatifJob, WhatifPlan
from bylot.whatif.references import REFERENCES, compute_reference
from bylot.whatif.report import build_whatif_report, describe_partial_period, whatif_title
from bylot.whatif.results import TrialRuns, WhatifResults, results_data
from bylot.whatif.summary import summarize_results

WARMUP_ROUNDS = 20  # enough to compile all that a longer play needs


class WhatifOutput(NamedTuple):
    """What a run found, as objects and as plain data, and the files it wrote."""

    found: WhatifResults
    data: dict[str, Any]
    paths: list[Path]


def run(setup: WhatifPlan, out: Path, workers: int) -> WhatifOutput:
    """Play, measure, write; Ctrl-C leaves a report on what was finished."""
    load_pyplot()  # before the work whose figures would fail
    place = make_figure_folder(out / "figures")
    found = compute_results(setup, workers)
    sentences = summarize_results(found)
    numbers = results_data(found, sentences)
    print_progress("... figures and report")
    figures = draw_whatif(found, place)
    blocks = build_whatif_report(found, sentences, figures)
    pages = write_pages(blocks, whatif_title(found), out, {"whatif.json": numbers})
    return WhatifOutput(
        found, numbers, [*pages, *(path for pair in figures.values() for path in pair)]
    )


def compute_results(setup: WhatifPlan, workers: int) -> WhatifResults:
    """The results of all jobs, the same for any number of workers; of some, if it is stopped."""
    results: dict[WhatifJob, Any] = {}
    with warnings.catch_warnings():
        # Of every play: `try_policies` has heard each once, and the report repeats it.
        warnings.simplefilter("ignore", BylotWarning)
        said = try_policies(setup)
        jobs = setup.jobs(said.refused, [*REFERENCES])
        start = time.monotonic()
        print_progress(
            f"... {len(jobs):,} jobs: plays of {setup.rounds:,} requests, and yardsticks"
        )
        try:
            for done in run_jobs(ThreadEngine(workers), jobs, partial(run_whatif_job, setup)):
                results[done.job] = done.result
        except KeyboardInterrupt:
            print_progress(f"stopped after {len(results):,} of {len(jobs):,} jobs")
            return WhatifResults(setup, said, results, stopped=True)
    print_progress(f"... computed in {time.monotonic() - start:.1f} s")
    return WhatifResults(setup, said, results)


def try_policies(setup: WhatifPlan) -> TrialRuns:
    """Let every policy play a few rounds: compiles it, and hears what it has to say."""
    said, count = TrialRuns({}, {}), len(setup.policies)
    for n, policy in enumerate(setup.policies, 1):
        print_progress(f"... {policy} is made ready, {n} of {count}")
        wait = announce_if_slow(
            "    it is compiled, which takes half a minute or more, once per machine"
        )
        with wait, warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            played = play_policy(
                setup, setup.problem, policy, min(WARMUP_ROUNDS, setup.rounds), setup.seeds[0]
            )
        if isinstance(played, PolicyError):
            said.refused[policy] = played.explain(setup.file.format_limit)
        mine = [one.message for one in heard if isinstance(one.message, BylotWarning)]
        if mine:
            said.warned[policy] = mine[0].explain(setup.file.format_limit)
    return said


def run_cell(setup: WhatifPlan, job: RunJob) -> PlaySummary | str:
    """A play, or why its policy would not play."""
    problem = setup.at(job.level)
    assert problem is not None, "levels that cannot be kept are not played"
    played = play_policy(setup, problem, job.policy, setup.rounds, job.seed)
    if isinstance(played, PolicyError):
        return played.explain(setup.file.format_limit)
    return summarize_play(played, setup.period, setup.window, setup.file.rewards)


def play_policy(
    setup: WhatifPlan, problem: Problem, policy: str, rounds: int, seed: int
) -> Trace | PolicyError:
    """As many rounds as are wanted, with the end that all plays are told of."""
    return play_cell(
        problem, setup.met[seed], policy, rounds=rounds, seed=seed, horizon=setup.horizon
    )


def run_whatif_job(setup: WhatifPlan, job: WhatifJob) -> Any:
    """One job."""
    return run_cell(setup, job) if isinstance(job, RunJob) else compute_reference(setup, job)


def render(made: WhatifOutput) -> str:
    """For people: the sentences, a table, and where the report is."""
    found = made.found
    head = ("policy", "reward", "±", "last tenth", "seeds inside", "periods inside")
    rows = [(name, *one.earned, *one.inside) for name, one in found.standings.items()]
    refused = [f"{name} was not played: {why}" for name, why in found.tried.refused.items()]
    took = [f"{one} here" for one in found.setup.took()]
    story = [found.setup.world.story, *took, ""]
    if found.setup.rounds != found.setup.due:
        story.insert(1, describe_partial_period(found.setup))
    pages = [str(path) for path in made.paths if path.suffix in (".html", ".md", ".json")]
    lines = [*made.data["summary"], "", *format_table([head, *rows]), *refused, "", *pages]
    return "\n".join([*story, *lines])
