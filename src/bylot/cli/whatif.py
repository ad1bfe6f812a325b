"""`bylot demo`, `problem`, `simulate` and `optimum`: check and play a problem before going live."""

import argparse
import csv
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bylot._windows import WINDOW_WORDS
from bylot.cli.options import (
    FEEDBACK_HELP,
    FEEDBACK_KINDS,
    add_group,
    add_scenario_options,
    add_verb,
    apply_traffic,
    parse_amount,
    print_result,
    read_scenario,
    require_windows,
)
from bylot.errors import BylotError, PolicyError, ProblemError

if TYPE_CHECKING:
    from bylot.environments import Traffic
    from bylot.problem_files import ProblemFile
    from bylot.scenario import Scenario

USUAL_POLICIES = ["distinct", "noisy-or", "tangent", "omd", "ts-bwk"]


def add(verbs: Any) -> None:
    text = "route requests to a made-up pool: what is learned, earned, spent and kept"
    demo = add_verb(verbs, "demo", run_demo, text)
    demo.add_count("--rounds", 5_000, "requests")
    demo.add_seed()
    text = "folder for the report, its picture, the store, and a problem file to start from"
    demo.add_path("--out", text, "out/demo")
    kinds = add_group(verbs, "problem", "check a problem file, or start one")
    check = add_verb(kinds, "check", run_check, "report errors, or how much room the limits leave")
    check.add_problem()
    check.add_traffic()
    check.add_flag("--details", "also print costs, groups, and the range of each limit")
    check.add_json()
    for name, packaged, text in (
        ("new", "starter.yaml", "print a commented problem file to start from"),
        ("schema", "problem.schema.json", "print the JSON Schema of problem files, for editors"),
    ):
        add_verb(kinds, name, print_packaged, text).set_defaults(packaged=packaged)
    add_simulate(verbs)
    add_optimum(verbs)


def add_simulate(verbs: Any) -> None:
    verb = add_verb(
        verbs,
        "simulate",
        run_simulate,
        "play policies on a problem file: rewards, limits, shadow prices",
        "Play policies on the experts of a problem file, with values from a table of outcomes or "
        "skills, and write a report: reward against the best possible, limits over time, the price "
        "of each limit, who is asked. (`simulate` plays; `evaluate` estimates from a log of real "
        "decisions.)",
    )
    add_scenario_options(verb)
    verb.add_policies("policies to play", USUAL_POLICIES)
    verb.add_count("--seeds", 5, "runs of each policy")
    verb.add_count(
        "--rounds",
        None,
        "requests per run; policies know this horizon unless the file sets a period (default: "
        f"10000; with limits per {WINDOW_WORDS} enough for several of these)",
    )
    verb.add_option(
        "--traffic",
        "SHAPE:SETTINGS",
        f"when requests arrive, which limits per {WINDOW_WORDS} need: flat, daily, "
        "weekend, bursts or dead-days, and settings, e.g. "
        "daily:per_day=2000,start=2026-03-01,zone=Europe/Berlin",
    )
    verb.add_choice("--feedback", FEEDBACK_KINDS, FEEDBACK_HELP)
    verb.add_option(
        "--call-costs",
        "SETTINGS",
        "what calls really cost, e.g. noise=0.5,usd=1.3,usd:EXPERT=2,report=panel: NAME=FACTOR "
        "times the declared cost on average, of all experts or of one; noise, the standard "
        "deviation of a call relative to its mean, or tail, the exponent of a Pareto "
        "distribution; report, what is reported: members, panel or nothing "
        "(default: calls cost what is declared)",
    )
    verb.add_option(
        "--sweep",
        "NAME=FROM:TO:COUNT",
        "also vary the bound of one limit, e.g. usd=0.5:3:10, in the unit of the file; use "
        "NAME.at_most or NAME.at_least if the cost is limited on both sides",
    )
    rate = verb.add_mutually_exclusive_group()
    rate.add_argument(
        "--per-day",
        type=parse_amount,
        metavar="REQUESTS",
        help="requests per day, for totals per day (default: those of --traffic, or totals per "
        "1,000 requests)",
    )
    rate.add_argument(
        "--time",
        metavar="COLUMN",
        help="column with the time of a question, in the same table as --dimension: counts the "
        "requests per day",
    )
    verb.add_count("--jobs", os.cpu_count() or 1, "CPU cores (default: all)")
    verb.add_path("--out", "folder for results", "out/whatif")
    verb.add_json()


def add_optimum(verbs: Any) -> None:
    verb = add_verb(
        verbs,
        "optimum",
        run_optimum,
        "the best that panels of different experts can earn under the limits",
        "Compute the best that panels of different experts can earn under the limits of a problem "
        "file, as bylot.optimum does: reward, certificate, spend, and the price of each limit. "
        "--details adds independent draws under the limits and under the paper's surrogate of "
        "them (bylot.iid_optimum), and the best fixed panel.",
    )
    add_scenario_options(verb)
    verb.add_traffic()
    verb.add_flag(
        "--each-context",
        "every context keeps the limits by itself, as in the paper (default: all together)",
    )
    verb.add_flag(
        "--floor",
        "draw every expert with at least the problem's floor, as the paper's policies do; "
        "does not apply to panels",
    )
    verb.add_count("--rounds", 10_000, "requests to sample if there is no table of outcomes")
    verb.add_count(
        "--starts", 8, "starting points of the search under exact costs, which has local optima"
    )
    verb.add_seed()
    verb.add_path("--csv", "also write the distributions into this file")
    verb.add_flag("--details", "also print all optima, costs, prices, and who is asked")
    verb.add_json()


def run_demo(given: argparse.Namespace) -> None:
    from bylot import demo
    from bylot.reports import load_pyplot, make_figure_folder

    load_pyplot()  # raises before the work if it is missing
    folder = make_figure_folder(given.out)
    print(demo.report_demo(demo.run_demo(folder, given.rounds, given.seed), folder))


def run_check(given: argparse.Namespace) -> int:
    """Check a problem file; 1 if it is invalid, its limits conflict, or no policy keeps them."""
    from bylot.problem_files import read
    from bylot.problem_files.check import check_problem, failure_data
    from bylot.problem_files.check_report import render_check

    try:
        file = apply_traffic(read(given.file, given.experts), given.traffic)
        found = check_problem(file)
    except ProblemError as error:
        if not given.json:
            raise
        print_result(given, failure_data(str(given.file), error), "")
        return 1
    print_result(given, found, render_check(file, found, given.details))
    return 0 if any(one["applies"] for one in found["policies"].values()) else 1


def print_packaged(given: argparse.Namespace) -> None:
    from bylot.problem_files.schema import packaged_text

    print(packaged_text(given.packaged), end="")


def run_simulate(given: argparse.Namespace) -> int:
    """Play and report; 130 if interrupted, 1 if nothing could be played."""
    from bylot.outcome_tables.outcomes import count_questions_per_day
    from bylot.scenario import call_costs_from_text
    from bylot.whatif import runner
    from bylot.whatif.plan import WhatifPlan, choose_rounds, parse_sweep

    file, scenario = read_scenario(given)
    check_contexts(file, scenario)
    traffic, declared = parse_traffic(file, given.traffic), file.problem.traffic
    file = file if traffic is None else file.at_traffic(traffic.per_day).as_one_tenant()
    unused, per_day = scenario.unused, given.per_day
    if given.time is not None:
        unused = tuple(column for column in unused if column != given.time)
        rate = count_questions_per_day(given.questions or given.outcomes, given.time)
        per_day = rate * scenario.requests / scenario.questions
    if per_day is None and traffic is not None:
        per_day = traffic.per_day
    plan = WhatifPlan(
        file=file,
        scenario=replace(scenario, unused=unused),
        policies=check_policies(given.policy or choose_policies(file)),
        seeds=range(given.seeds),
        rounds=given.rounds or choose_rounds(file.problem, traffic),
        sweep=None if given.sweep is None else parse_sweep(file, given.sweep),
        per_day=per_day,
        feedback=given.feedback,
        calls=None if given.call_costs is None else call_costs_from_text(file, given.call_costs),
        traffic=traffic,
        declared_traffic=declared,
    )
    result = runner.run(plan, given.out, given.jobs)
    print_result(given, result.data, runner.render(result))
    if result.results.stopped:
        return 130
    return 0 if result.results.policies else 1


def parse_traffic(file: "ProblemFile", text: str | None) -> "Traffic | None":
    """The traffic of --traffic, which limits of the calendar need, and no others."""
    from bylot.environments.traffic import traffic_from_text

    if text is not None:
        require_windows(file, "leave it out; give requests per day with --per-day")
        try:
            return traffic_from_text(text)
        except BylotError as error:
            raise BylotError(f"--traffic: {error}") from None
    if file.window is not None:
        per, zone = file.window
        example = f"per_day={file.problem.traffic or 2_000:g},start=2026-03-01,zone={zone}"
        raise BylotError(
            f"the limits per {per} of {file.path} need to know when requests arrive",
            remedy=f"add --traffic daily:{example}",
        )
    return None


def choose_policies(file: "ProblemFile") -> list[str]:
    """The policies that are played by default: those that can keep all kinds of limits."""
    from bylot.policies.catalog import list_policies

    able = list_policies(lambda policy: policy.guard or not file.problem.needs_guard)
    return [name for name in USUAL_POLICIES if name in able]


def check_contexts(file: "ProblemFile", scenario: "Scenario") -> None:
    """Require the contexts of questions if limits are on some of them."""
    from bylot.problem.validation import suggest_counted_context

    for written in file.limits:
        remedy = suggest_counted_context(written.limit, scenario.contexts)
        if remedy and not scenario.contexts:
            raise BylotError(
                f'"{written.words}" needs to know the context of each request',
                remedy="give a table with --outcomes, and its column of contexts with --context",
            )
        if remedy:
            raise BylotError(f'"{written.words}" counts no context of the table', remedy=remedy)


def check_policies(policies: list[str]) -> list[str]:
    """The policies of --policy, if all of them exist and differ."""
    from bylot.policies import find_policy

    for n, policy in enumerate(policies):
        try:
            find_policy(policy)
        except PolicyError as error:
            raise PolicyError(f"--policy: {error}") from None
        if policy in policies[:n]:
            raise PolicyError(f"--policy: {policy!r} is listed twice")
    return policies


def run_optimum(given: argparse.Namespace) -> None:
    """Compute and print the optima."""
    from bylot import optimum_report

    file, scenario = read_scenario(given)
    names = ("rounds", "each_context", "floor", "starts", "seed")
    report = optimum_report.compute_optimum_report(
        apply_traffic(file, given.traffic),
        scenario,
        **{name: getattr(given, name) for name in names},
    )
    if given.csv is not None:
        try:
            with given.csv.open("w", encoding="utf-8", newline="") as table:
                rows = optimum_report.list_optimum_rows(report)
                csv.writer(table, lineterminator="\n").writerows(rows)
        except OSError as error:
            raise BylotError(
                f"cannot write {given.csv}: {error.strerror}", remedy="give an existing folder"
            ) from None
    print_result(
        given,
        optimum_report.optimum_to_data(report),
        optimum_report.render_optimum(report, given.details),
    )
