"""`bylot reproduce`, `plot`, `report`: the paper's experiments and what is made of them."""

import argparse
import os
from pathlib import Path
from typing import Any

from bylot.cli.data import add_source, crowd
from bylot.cli.numbers import positive

OUT = Path("out/paper")


def add(verbs: Any) -> None:
    """The verbs and their options."""
    verb = verbs.add_parser(
        "reproduce",
        help="play the paper's experiments: records, figures, a verdict on every claim",
        description="Play section 6 of the paper: `sweep` (Figure 1) and `crowd` (Figures 2 and "
        "3). What is finished is kept: the same command goes on where it was stopped.",
    )
    verb.add_argument("what", nargs="?", choices=["sweep", "crowd", "all"], default="all")
    add_source(verb)
    verb.add_argument("--seeds", type=positive, help="seeds (default: the paper's, 5 and 20)")
    verb.add_argument("--rounds", type=positive, default=10_000, help="rounds (default 10000)")
    verb.add_argument(
        "--variants", action="store_true", help="also the other readings of five policies"
    )
    verb.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="cells, as '*/tight/*/omd/*'"
    )
    cores = os.cpu_count() or 1
    verb.add_argument("--jobs", type=positive, default=cores, help=f"at once (default {cores})")
    verb.add_argument("--engine", choices=["threads", "ray"], default="threads")
    verb.add_argument("--address", help="of a running Ray cluster (default: one made here)")
    verb.add_argument("--out", type=Path, default=OUT, help=f"folder (default {OUT})")
    verb.add_argument("--fresh", action="store_true", help="forget what the folder holds")
    verb.set_defaults(run=run)

    for name, line, action in [
        ("plot", "make the figures anew from a folder's records", plot),
        ("report", "make figures, report, claims and summary anew from a folder's records", report),
    ]:
        again = verbs.add_parser(name, help=line, description=line)
        again.add_argument("folder", type=Path, nargs="?", default=OUT, help=f"(default {OUT})")
        again.set_defaults(run=action)


def run(given: argparse.Namespace) -> int:
    """Find the data, then hand over."""
    from bylot.errors import BylotError
    from bylot.reproduce import EXPERIMENTS, Wish, engine, reproduce

    if given.address is not None and given.engine != "ray":
        raise BylotError("--address is of a Ray cluster; add --engine ray")
    wish = Wish(
        experiments=EXPERIMENTS if given.what == "all" else (given.what,),
        seeds=given.seeds,
        rounds=given.rounds,
        only=tuple(given.only),
        variants=given.variants,
    )
    where = engine(given.engine, given.jobs, given.address)
    return reproduce(wish, crowd(given), where, given.out, fresh=given.fresh)


def plot(given: argparse.Namespace) -> int:
    """Figures only."""
    from bylot import records
    from bylot.report import figures

    for path in figures(records.read(given.folder), given.folder):
        print(path)
    return 0


def report(given: argparse.Namespace) -> int:
    """Everything that is made from records."""
    from bylot import records
    from bylot.report import write

    for path in write(records.read(given.folder), given.folder).paths:
        print(path)
    return 0
