"""A what-if run: try the policies, run all jobs, write the report."""

import time
import warnings
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from bylot._text import format_percent, format_table, print_progress
from bylot.errors import BylotWarning, PolicyError
from bylot.harness import play_cell, summarize_play
from bylot.parallel import ThreadEngine, show_progress
from bylot.reports import load_pyplot, make_figure_folder, write_data, write_pages
from bylot.scenario import describe_call_costs
from bylot.trace import Trace
from bylot.whatif.figures import draw_whatif
from bylot.whatif.plan import REFERENCES, WhatifJob, WhatifPlan, compute_reference
from bylot.whatif.report import (
    build_whatif_report,
    describe_partial_period,
    describe_traffic,
    whatif_title,
)
from bylot.whatif.results import WhatifResults, results_data
from bylot.whatif.summary import make_advice, summarize_results

WARMUP_ROUNDS = 20  # enough to compile all that a longer run needs


class WhatifOutput(NamedTuple):
    """The results of a run, as objects and as data, and the files that were written."""

    results: WhatifResults
    data: dict[str, Any]
    paths: list[Path]


def run(plan: WhatifPlan, out: Path, workers: int) -> WhatifOutput:
    """Run all jobs and write the report; after Ctrl-C a report on the finished jobs."""
    load_pyplot()  # fails now, if at all, and not after the work
    folder = make_figure_folder(out / "figures")
    results = compute_results(plan, workers)
    advice = make_advice(results)
    sentences = summarize_results(results, advice)
    data = results_data(results, sentences, advice)
    written = write_data(out, {"whatif.json": data})  # also if a figure fails
    print_progress("... figures and report")
    figures = draw_whatif(results, folder)
    blocks = build_whatif_report(results, sentences, figures)
    pages = write_pages(blocks, whatif_title(results), out)
    return WhatifOutput(results, data, [*pages, *written, *chain(*figures.values())])


def compute_results(plan: WhatifPlan, workers: int) -> WhatifResults:
    """The results of all jobs, which do not depend on the number of workers."""
    results: dict[WhatifJob, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BylotWarning)  # the trial runs have collected them
        refused, warned = try_policies(plan)
        jobs = plan.jobs(refused, [*REFERENCES])
        start = time.monotonic()
        print_progress(f"... {len(jobs):,} jobs: runs of {plan.rounds:,} requests, and references")
        try:
            with show_progress(len(jobs), unit="job", alike=False) as advance:
                for done in ThreadEngine(workers).run(jobs, partial(run_whatif_job, plan)):
                    results[done.job] = done.result
                    advance(1)
        except KeyboardInterrupt:
            print_progress(f"stopped after {len(results):,} of {len(jobs):,} jobs")
            return WhatifResults(plan, refused, warned, results, stopped=True)
    print_progress(f"... computed in {time.monotonic() - start:.1f} s")
    return WhatifResults(plan, refused, warned, results)


def try_policies(plan: WhatifPlan) -> tuple[dict[str, str], dict[str, str]]:
    """Run each policy for a few rounds, to compile it and to collect refusals and warnings."""
    refused: dict[str, str] = {}
    warned: dict[str, str] = {}
    for n, spec in enumerate(plan.policies, 1):
        print_progress(f"... preparing {spec}, {n} of {len(plan.policies)}")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            played = play_job(plan, WhatifJob(spec, plan.seeds[0]), WARMUP_ROUNDS)
        if isinstance(played, PolicyError):
            refused[spec] = played.explain(plan.file.format_limit)
        for one in caught:
            if isinstance(one.message, BylotWarning):
                warned.setdefault(spec, one.message.explain(plan.file.format_limit))
    return refused, warned


def play_job(plan: WhatifPlan, job: WhatifJob, rounds: int) -> Trace | PolicyError:
    """Play so many rounds of a run, at most all; return the error of a policy that refuses."""
    problem = plan.problem_at(job.level)
    assert problem is not None, "infeasible levels have no jobs"
    assert job.seed is not None
    if plan.has_windows:  # references know the traffic, policies what is declared
        problem = problem.replace(traffic=plan.declared_traffic)
    times = plan.arrivals[job.seed]
    return play_cell(
        problem,
        plan.environments[job.seed],
        job.name,
        rounds=min(rounds, plan.rounds),
        seed=job.seed,
        times=None if times is None else times[:rounds],
        horizon=plan.horizon,
        feedback=plan.feedback,
        calls=plan.calls,
        context_names=plan.scenario.contexts or None,
    )


def run_whatif_job(plan: WhatifPlan, job: WhatifJob) -> Any:
    """The summary of a run, why its policy refuses, or a reference."""
    if job.seed is None:
        problem = plan.problem_at(job.level)
        assert problem is not None, "infeasible levels have no jobs"
        return compute_reference(plan, problem, job)
    played = play_job(plan, job, plan.rounds)
    if isinstance(played, PolicyError):
        return played.explain(plan.file.format_limit)
    times = plan.arrivals[job.seed]
    return summarize_play(played, plan.period, plan.window, plan.file.rewards, times)


def render(output: WhatifOutput) -> str:
    """The text for people: the summary, a table, what was simulated, the paths of the report."""
    results, plan = output.results, output.results.plan
    units = plan.judged_units.replace("runs", "periods")
    head = ["policy", "allowed", "reward", "±", "last tenth", f"{units} within limits"]
    head += ["refused"] * plan.has_windows
    rows = []
    for one in results.ranked:
        reward, deviation, late, _, periods = one.cells
        more = [format_percent(one.refused)] * plan.has_windows
        rows.append([one.policy, one.allowed, reward, deviation, late, periods, *more])
    about = [plan.scenario.description]
    if plan.traffic is not None:
        about.append(describe_traffic(plan))
    lines = [*output.data["summary"], "", *(format_table([head, *rows]) if rows else ())]
    lines = [*about, "", *lines] if plan.scenario.synthetic else [*lines, "", *about]
    lines = [*plan.describe_tenants(), *lines]
    if plan.rounds != plan.complete:
        lines.append(describe_partial_period(plan))
    lines += [f"{one} here" for one in plan.auto_choices()]
    if plan.feedback != "panel":
        lines.append(plan.describe_feedback())
    if plan.calls is not None:
        lines.append(describe_call_costs(plan.calls))
    if rows:  # otherwise the summary says it
        lines += [f"{spec} did not run: {why}" for spec, why in results.refused.items()]
    pages = (str(path) for path in output.paths if path.suffix in (".html", ".md", ".json"))
    return "\n".join([*lines, "", *pages])
