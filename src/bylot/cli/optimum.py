"""`bylot optimum PROBLEM`: the best that a fixed law could earn in a world of your own."""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from bylot.cli.numbers import parse_natural, parse_positive
from bylot.cli.world import add_scenario_options, read_scenario


def add(verbs: Any) -> None:
    """The verb and its options."""
    verb = verbs.add_parser(
        "optimum",
        help="the best fixed law for a problem file: reward, proof, prices of limits, who is asked",
        description="Compute the best laws for the pool of a problem file: of panels of different "
        "experts, and of independent draws under its limits and under the paper's stand-in for "
        "them, each with a certificate; what they spend under each limit, what each bound is "
        "worth, and the best fixed set beside them.",
    )
    add_scenario_options(verb)
    verb.add_argument(
        "--each-context",
        action="store_true",
        help="every context keeps the limits by itself, as in the paper (default: all together)",
    )
    verb.add_argument(
        "--floor",
        action="store_true",
        help="nobody is drawn with less than the problem's floor, as by the paper's policies; "
        "panels have none",
    )
    verb.add_argument(
        "--rounds",
        type=parse_positive,
        default=10_000,
        help="requests to draw where there are no outcomes (default 10000)",
    )
    verb.add_argument(
        "--starts",
        type=parse_positive,
        default=8,
        help="of the search under the limits themselves, which has local optima (default 8)",
    )
    verb.add_argument(
        "--seed", type=parse_natural, default=0, help="seed of all chance (default 0)"
    )
    verb.add_argument("--csv", type=Path, metavar="FILE", help="write the laws into this file too")
    verb.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    verb.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Read, find, print; 1 if there is no law at all."""
    from bylot.optimum_report import (
        compute_optimum_report,
        list_optimum_rows,
        optimum_to_data,
        render_optimum,
    )

    file, world = read_scenario(given)
    found = compute_optimum_report(
        file,
        world,
        rounds=given.rounds,
        each=given.each_context,
        floor=given.floor,
        starts=given.starts,
        seed=given.seed,
    )
    if given.csv is not None:
        write_csv(given.csv, list(list_optimum_rows(found)))
    print(json.dumps(optimum_to_data(found)) if given.json else render_optimum(found))
    return 0 if found.laws else 1


def write_csv(path: Path, lines: list[Any]) -> None:
    """A CSV file."""
    from bylot.errors import BylotError

    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
    except OSError as error:
        raise BylotError(
            f"{path} cannot be written ({error.strerror}); give a file in a folder that exists"
        ) from None
