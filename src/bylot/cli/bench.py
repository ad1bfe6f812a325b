"""`bylot bench WHAT`."""

import argparse
import json
from importlib import import_module
from typing import Any

from bylot.cli.numbers import parse_positive

BENCHES = {
    "qp": "our projection against daqp, quadprog, piqp, osqp and clarabel; then the fuzz",
    "decide": "a router's decide + reward against river and MABWiser choosing 5 of 50",
    "simulate": "the compiled loop against a plain NumPy loop of the same algorithm",
    "scale": "rounds per CPU-second and the time to prepare, from 50 to 10,000 experts",
    "service": "what a durable request costs, next to a bare uvicorn that says hello",
    "large": "a server on a store of 1,000 routers and 10 million decisions (minutes, gigabytes)",
}


def add(verbs: Any) -> None:
    """The verb, one choice for each bench."""
    measure = verbs.add_parser("bench", help="measure speed, as ratios within one run")
    kinds = measure.add_subparsers(title="what to measure", metavar="WHAT", required=True)
    for name, line in BENCHES.items():
        kind = kinds.add_parser(name, help=line, description=line)
        kind.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
        kind.set_defaults(run=run, what=name)
        if name == "large":
            for option, many in (("--routers", 1_000), ("--decisions", 10_000_000)):
                kind.add_argument(option, type=int, default=many, help=f"default {many:,}")
        if name == "service":
            kind.add_argument(
                "--soak",
                type=parse_positive,
                metavar="SECONDS",
                help="also keep 64 connections busy for so long, and watch the memory",
            )


def run(given: argparse.Namespace) -> int:
    """Measure and print."""
    module = import_module(f"bylot_bench.{given.what}")
    asked = {name: getattr(given, name, None) for name in ("soak", "routers", "decisions")}
    result = module.run(**{name: value for name, value in asked.items() if value is not None})
    print(json.dumps(result) if given.json else module.render(result))
    return 0
