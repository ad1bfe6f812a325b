"""`bylot evaluate LOG`: what another policy would have earned and cost, from a log with odds."""

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from bylot.cli.numbers import parse_amount, parse_natural, parse_share
from bylot.cli.server import add_address_options, connect_client


def add(verbs: Any) -> None:
    """The verb and its options."""
    verb = verbs.add_parser(
        "evaluate",
        help="from a log with its odds: what another policy would have earned and cost",
        description="Estimate from a log of decisions with their odds (docs/log.md) what a policy "
        "that was not played would have earned, and compute exactly what it would have cost. "
        "Where the log says too little of it, nothing is told, and why.",
    )
    verb.add_argument(
        "log",
        type=Path,
        nargs="?",
        metavar="LOG",
        help="JSON Lines, or Parquet (*.parquet); or give --router",
    )
    source = verb.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--problem-from",
        type=Path,
        metavar="FILE",
        help="a saved router, or a problem file (.yaml, .toml, .json): experts, costs, limits, "
        "draws and range of rewards",
    )
    source.add_argument(
        "--router",
        metavar="NAME",
        help="a served router: all that, and the log too if none is given",
    )
    add_address_options(verb)
    verb.add_argument(
        "--target",
        action="append",
        metavar="TARGET",
        help="what would have been played; may be repeated. uniform: any DRAWS different experts; "
        "now: the law that the saved router has now; router:FILE: that of another; set:ANN,BOB: "
        "these every time; draws:WEIGHTS: independent draws; sets:WEIGHTS: different experts, a "
        "set as likely as the product of its weights; WEIGHTS is ANN=2,BOB=1 or a JSON file, by "
        "name or by context and name (default: uniform, and now if there is a saved router that "
        "draws from a law)",
    )
    verb.add_argument(
        "--since",
        type=parse_natural,
        metavar="T",
        help="only decisions from this number on (default: all)",
    )
    verb.add_argument(
        "--gone",
        metavar="EXPERTS",
        type=lambda text: [name.strip() for name in text.split(",")],
        default=[],
        help="experts that LOG names and that have left the pool since, with commas: no target "
        "asks them. A served router's own log is known to have them",
    )
    verb.add_argument(
        "--apprentice",
        action="store_true",
        help="the log is of an existing system and has no odds: tell how the targets agree with "
        "its panels and what they would cost, and nothing of rewards",
    )
    verb.add_argument(
        "--rewards",
        type=float,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="the range of rewards (default: that of --problem-from)",
    )
    verb.add_argument(
        "--level", type=parse_share, default=0.95, help="of the intervals, in (0, 1) (default 0.95)"
    )
    verb.add_argument(
        "--least",
        type=parse_amount,
        default=100.0,
        metavar="ROUNDS",
        help="refuse targets of which the log is worth fewer rounds than this (default 100)",
    )
    verb.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    verb.set_defaults(run=run)


class EvaluationCase(NamedTuple):
    """What is to be evaluated."""

    log: Any
    targets: list[Any]
    rewards: tuple[float, float]


def case_from_files(given: argparse.Namespace) -> EvaluationCase:
    """The log of a pool that is in a file, as a saved router or as a problem."""
    from bylot.errors import BylotError, OutOfReachWarning, SurrogateWarning
    from bylot.evaluate import can_be_target, read_log
    from bylot.evaluate.targets import parse_target

    if given.log is None:
        raise BylotError("no LOG is given; only a served router (--router) has one of its own")
    with warnings.catch_warnings():  # of a router's policy, which nobody is going to play here
        warnings.simplefilter("ignore", SurrogateWarning)
        warnings.simplefilter("ignore", OutOfReachWarning)
        problem, rewards, router = read_pool_file(given.problem_from)
        mine = router is not None and can_be_target(router.policy)
        usual = ("uniform", "now") if mine else ("uniform",)
        targets = [
            parse_target(spec, problem, router, given.gone) for spec in given.target or usual
        ]
    return EvaluationCase(read_log(given.log, problem, given.gone), targets, rewards)


def case_from_server(given: argparse.Namespace) -> EvaluationCase:
    """The log of a router behind a server, or another one of the same pool."""
    from bylot.evaluate import find_unknown_experts, log_from_entries, read_log
    from bylot.evaluate.targets import parse_target

    with connect_client(given) as client:
        from bylot.client.decision_log import read_entries

        terms = client.router(given.router).terms()
        if given.log is None:
            made = read_entries(client, given.router)
            log = log_from_entries(terms.problem, made, find_unknown_experts(terms.problem, made))
        else:
            log = read_log(given.log, terms.problem, given.gone)
    specs = given.target or ("uniform",)
    targets = [parse_target(spec, terms.problem, gone=log.gone) for spec in specs]
    return EvaluationCase(log, targets, terms.rewards)


def run(given: argparse.Namespace) -> int:
    """Read, evaluate every target, print; 1 if any was refused."""
    from bylot.errors import InsufficientOverlap
    from bylot.evaluate import evaluate_target, measure_agreement, report
    from bylot.evaluate.result import EvaluationRefusal, describe_refusal

    log, wanted, declared = (
        case_from_files(given) if given.router is None else case_from_server(given)
    )
    if given.since is not None:
        log = log.since(given.since)
    found: list[Any] = []
    refused: list[EvaluationRefusal] = []
    for one in wanted:
        if given.apprentice:
            found.append(measure_agreement(log, one))
            continue
        try:
            settings = {"level": given.level, "least": given.least}
            rewards = tuple(given.rewards or declared)
            found.append(evaluate_target(log, one, rewards=rewards, **settings))
        except InsufficientOverlap as error:
            refused.append(describe_refusal(log, one, error))
    if given.json:
        print(json.dumps(report.evaluations_to_data(log, found, refused)))
    elif given.apprentice:
        print("\n".join(report.render_agreements(log, found)))
    else:
        print("\n".join(report.render_evaluations(log, found, refused)))
    for no in refused:
        print(f"bylot: {no.target}: {no.why}", file=sys.stderr)
    return 1 if refused else 0


def read_pool_file(path: Path) -> tuple[Any, tuple[float, float], Any]:
    """The problem, the range of rewards, and the router; None if it is from a problem file."""
    from bylot import problem_files
    from bylot.router.router import Router

    if is_problem_file(path):
        file = problem_files.read(path)
        return file.problem, file.rewards, None
    router = Router.load(path)
    return router.problem, router.rewards, router


def is_problem_file(path: Path) -> bool:
    """Is it a problem file? One in JSON names experts, a saved router has its form."""
    if path.suffix.lower() != ".json":
        return path.suffix.lower() in (".yaml", ".yml", ".toml")
    try:
        return "experts" in json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError, TypeError):  # which the router will explain
        return False
