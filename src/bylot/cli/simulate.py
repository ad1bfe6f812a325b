"""`bylot simulate PROBLEM`: what policies would earn in a world of your own, before going live."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from bylot.cli.numbers import parse_positive
from bylot.cli.policy import POLICY_HELP, split_policies
from bylot.cli.world import add_scenario_options, read_scenario

WHATIF_FOLDER = Path("out/whatif")
DEFAULT_POLICIES = "distinct,tangent,omd,ts-bwk"


def add(verbs: Any) -> None:
    """The verb and its options."""
    verb = verbs.add_parser(
        "simulate",
        help="play policies on a problem file: what they earn, if limits hold, what each costs",
        description="Play policies on the pool of a problem file, in a world made from a table of "
        "outcomes or of skills, and write a report: reward against the best that could be had, "
        "limits over time, the price of each limit, who is asked. (`bylot simulate` plays; "
        "`bylot evaluate` judges what a log of real decisions says.)",
    )
    add_scenario_options(verb)
    verb.add_argument(
        "--policies",
        metavar="NAMES",
        default=DEFAULT_POLICIES,
        help=f"which to play, with commas (default {DEFAULT_POLICIES}): {POLICY_HELP}",
    )
    verb.add_argument(
        "--seeds",
        type=parse_positive,
        default=5,
        metavar="COUNT",
        help="how many plays of each (default 5)",
    )
    verb.add_argument(
        "--rounds",
        type=parse_positive,
        default=10_000,
        help="requests of a play; policies are told of this end unless the file has a period "
        "(default 10000)",
    )
    verb.add_argument(
        "--sweep",
        metavar="NAME=FROM:TO:COUNT",
        help="also play with other bounds on one limit, such as usd=0.5:3:10, in the unit of the "
        "file; NAME.at_most or NAME.at_least where both sides are limited",
    )
    cores = os.cpu_count() or 1
    verb.add_argument(
        "--jobs",
        type=parse_positive,
        default=cores,
        help=f"how many cores to use (default {cores})",
    )
    verb.add_argument(
        "--out",
        type=Path,
        default=WHATIF_FOLDER,
        help=f"folder for results (default {WHATIF_FOLDER})",
    )
    verb.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    verb.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Read, play, write, print; 130 if it was stopped on the way, 1 if nothing was played."""
    from bylot.whatif import WhatifPlan, parse_sweep, render
    from bylot.whatif import run as simulated

    file, world = read_scenario(given)
    setup = WhatifPlan(
        file=file,
        world=world,
        policies=parse_policies(given.policies),
        seeds=range(given.seeds),
        rounds=given.rounds,
        sweep=None if given.sweep is None else parse_sweep(file, given.sweep),
    )
    made = simulated(setup, given.out, given.jobs)
    print(json.dumps(made.data) if given.json else render(made))
    if made.found.stopped:
        return 130
    return 0 if made.found.standings else 1


def parse_policies(text: str) -> list[str]:
    """Policies in words, each once, and each one that there is."""
    from bylot.errors import PolicyError
    from bylot.policies import find_policy

    found = split_policies(text)
    for n, one in enumerate(found):
        try:
            find_policy(one)
        except PolicyError as error:
            raise PolicyError(f"--policies: {error}") from None
        if one in found[:n]:
            raise PolicyError(f"--policies names {one!r} twice; name each once")
    return found
