"""`bylot evaluate LOG`: off-policy evaluation from a log with propensities."""

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bylot.cli.options import (
    add_verb,
    connect_client,
    parse_amount,
    parse_fraction,
    parse_names,
    parse_natural,
    print_result,
)
from bylot.errors import BylotError, BylotWarning, InsufficientOverlap

if TYPE_CHECKING:
    from bylot.evaluate import DecisionLog, EvaluationTarget


def add(verbs: Any) -> None:
    verb = add_verb(
        verbs,
        "evaluate",
        run,
        "estimate from a log what another policy would have earned and cost",
        "Estimate from a log of decisions with propensities (docs/log.md) what a policy that was "
        "not played would have earned, and compute exactly what it would have cost. A target is "
        "refused, with the reason, if the log contains too little information about it.",
    )
    verb.add_argument(
        "log", type=Path, nargs="?", metavar="LOG", help="JSON Lines or Parquet; or use --router"
    )
    source = verb.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--problem-from",
        type=Path,
        metavar="FILE",
        help="saved router or problem file (.yaml, .toml, .json): experts, costs, limits, draws "
        "and reward range",
    )
    verb.add_path("--experts", "CSV file of experts, instead of the problem file's")
    source.add_argument(
        "--router", metavar="NAME", help="served router: the same, and its log if LOG is missing"
    )
    verb.add_server()
    verb.add_argument(
        "--target",
        action="append",
        metavar="TARGET",
        help="policy to evaluate; repeatable. uniform: any DRAWS different experts; now: the "
        "present distribution of the saved router, judged by what it earned lately if it was "
        "learned from LOG; router:FILE: that of another one; "
        "set:ANN,BOB: always these; draws:WEIGHTS: independent draws; sets:WEIGHTS: different "
        "experts, a set being as likely as the product of its weights. WEIGHTS is ANN=2,BOB=1 or a "
        "JSON file, by name or by context and name (default: uniform, and now if there is a saved "
        "router that draws from a distribution)",
    )
    verb.add_option("--since", "T", "skip decisions before this number", parse_natural)
    verb.add_argument(
        "--gone",
        metavar="EXPERTS",
        type=parse_names,
        default=[],
        help="experts in LOG that have left the pool since, comma-separated: no target asks them. "
        "Known for a served router's own log",
    )
    verb.add_flag(
        "--apprentice",
        "the log comes from an existing system without propensities: report how targets agree "
        "with its panels and what they would cost, but nothing about rewards",
    )
    verb.add_flag(
        "--details", "also print the other estimates, and how well the log covers targets"
    )
    verb.add_range("reward range (default: that of --problem-from)")
    verb.add_argument(
        "--level", type=parse_fraction, default=0.95, help="level of confidence intervals"
    )
    verb.add_argument(
        "--least",
        type=parse_amount,
        default=100.0,
        metavar="ROUNDS",
        help="refuse targets with a smaller effective sample size",
    )


EvaluationCase = tuple["DecisionLog", list["EvaluationTarget"], tuple[float, float]]
"""A log, the policies to evaluate on it, and the range of rewards."""


def case_from_files(given: argparse.Namespace) -> EvaluationCase:
    """Read the log and the problem or saved router from files."""
    from bylot import problem_files
    from bylot.evaluate import read_log
    from bylot.evaluate.targets import can_be_target, parse_target
    from bylot.router.router import Router

    if given.log is None:
        raise BylotError("no LOG given", remedy="give a file, or --router")
    with warnings.catch_warnings():  # about the policy of the router, which is not played here
        warnings.simplefilter("ignore", BylotWarning)
        specs, router = given.target or ["uniform"], None
        if is_problem_file(given.problem_from):
            file = problem_files.read(given.problem_from, given.experts)
            problem, rewards = file.problem, file.rewards
        else:
            router = Router.load(given.problem_from)
            problem, rewards = router.problem, router.rewards
            if can_be_target(router.policy):
                specs = given.target or ["uniform", "now"]
        targets = [parse_target(spec, problem, router, given.gone) for spec in specs]
    return read_log(given.log, problem, given.gone), targets, rewards


def case_from_server(given: argparse.Namespace) -> EvaluationCase:
    """Read the problem of a served router, and its log unless another one is given."""
    from bylot.evaluate.log import find_unknown_experts, log_from_entries, read_log
    from bylot.evaluate.targets import parse_target
    from bylot.router.config import problem_from_data

    with connect_client(given) as client:
        from bylot.client.decision_log import read_entries

        config = client.router(given.router).config()
        problem = problem_from_data(config.problem)
        if given.log is None:
            entries = read_entries(client, given.router)
            log = log_from_entries(problem, entries, find_unknown_experts(problem, entries))
        else:
            log = read_log(given.log, problem, given.gone)
    targets = [parse_target(spec, problem, gone=log.gone) for spec in given.target or ("uniform",)]
    return log, targets, config.rewards


def run(given: argparse.Namespace) -> int:
    """Evaluate every target; 1 if any is refused."""
    from bylot.evaluate import evaluate_target, measure_agreement, report
    from bylot.evaluate.result import EvaluationRefusal, describe_refusal

    read_case = case_from_files if given.router is None else case_from_server
    log, targets, rewards = read_case(given)
    log = log if given.since is None else log.since(given.since)
    found: list[Any] = []
    refused: list[EvaluationRefusal] = []
    settings: dict[str, Any] = {
        "rewards": tuple(given.rewards or rewards),
        "level": given.level,
        "least": given.least,
    }
    for target in targets:
        if given.apprentice:
            found.append(measure_agreement(log, target))
            continue
        try:
            found.append(evaluate_target(log, target, **settings))
        except InsufficientOverlap as error:
            refused.append(describe_refusal(log, target, error))
    if given.apprentice:
        lines = report.render_agreements(log, found)
    else:
        lines = report.render_evaluations(log, found, refused, given.details)
    print_result(given, report.evaluations_to_data(log, found, refused), "\n".join(lines))
    for refusal in refused:
        print(f"bylot: {refusal.target}: {refusal.reason}", file=sys.stderr)
    return 1 if refused else 0


def is_problem_file(path: Path) -> bool:
    """Distinguish a problem file from a saved router: in JSON, only the former has `experts`."""
    if path.suffix.lower() != ".json":
        return path.suffix.lower() in (".yaml", ".yml", ".toml")
    try:
        return "experts" in json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError, TypeError):  # Router.load explains it
        return False
