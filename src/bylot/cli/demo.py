"""`bylot demo`."""

import argparse
from pathlib import Path
from typing import Any

from bylot.cli.numbers import parse_natural, parse_positive


def add(verbs: Any) -> None:
    """The verb and its options."""
    tour = verbs.add_parser("demo", help="play a built-in pool: table and figure")
    tour.add_argument(
        "--rounds", type=parse_positive, default=20_000, help="requests (default 20000)"
    )
    tour.add_argument(
        "--seed", type=parse_natural, default=0, help="seed of everything (default 0)"
    )
    tour.add_argument(
        "--out",
        type=Path,
        default=Path("out/tour"),
        help="folder for the figure (default out/tour)",
    )
    tour.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Play, print, draw."""
    from bylot import demo

    demo.run(given.rounds, given.seed, given.out)
    return 0
