"""The command line: parse, call, print; everything else is imported when a verb needs it."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bylot.errors import BylotError
from bylot.version import __version__

BENCHES = {
    "qp": "our projection against daqp, quadprog, piqp, osqp and clarabel; then the fuzz",
    "decide": "a router's decide + reward against river and MABWiser choosing 5 of 50",
    "simulate": "the compiled loop against a plain NumPy loop of the same algorithm",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; 0 if it went well, 1 for an error that we can explain, 2 for bad usage."""
    given = parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except BylotError as error:
        print(f"bylot: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bylot: stopped", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    """All verbs and their options."""
    top = argparse.ArgumentParser(
        prog="bylot",
        description="Draw a panel of experts for every request, learn from one reward per panel, "
        "and keep long-run limits on both sides.",
    )
    top.add_argument("--version", action="version", version=f"bylot {__version__}")
    verbs = top.add_subparsers(title="verbs", metavar="VERB", required=True)

    tour = verbs.add_parser("demo", help="play a built-in pool: table and figure")
    tour.add_argument("--rounds", type=positive, default=20_000, help="requests (default 20000)")
    tour.add_argument("--seed", type=natural, default=0, help="seed of everything (default 0)")
    tour.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo"),
        help="folder for the figure (default out/demo)",
    )
    tour.set_defaults(run=demo)

    measure = verbs.add_parser("bench", help="measure speed, as ratios within one run")
    kinds = measure.add_subparsers(title="what to measure", metavar="WHAT", required=True)
    for name, line in BENCHES.items():
        kind = kinds.add_parser(name, help=line, description=line)
        kind.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
        kind.set_defaults(run=bench, what=name)
    return top


def natural(text: str) -> int:
    """A whole number, at least 0."""
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def positive(text: str) -> int:
    """A whole number, at least 1."""
    value = natural(text)
    if value == 0:
        raise ValueError
    return value


def demo(given: argparse.Namespace) -> int:
    """`bylot demo`."""
    from bylot import demo as tour

    tour.run(given.rounds, given.seed, given.out)
    return 0


def bench(given: argparse.Namespace) -> int:
    """`bylot bench WHAT`."""
    from importlib import import_module

    module = import_module(f"bylot.bench.{given.what}")
    result = module.run()
    print(json.dumps(result) if given.json else module.render(result))
    return 0
