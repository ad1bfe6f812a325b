"""`bylot bench WHAT`."""

import argparse
import json
from importlib import import_module
from typing import Any

BENCHES = {
    "qp": "our projection against daqp, quadprog, piqp, osqp and clarabel; then the fuzz",
    "decide": "a router's decide + reward against river and MABWiser choosing 5 of 50",
    "simulate": "the compiled loop against a plain NumPy loop of the same algorithm",
    "scale": "rounds per CPU-second and the time to prepare, from 50 to 10,000 experts",
}


def add(verbs: Any) -> None:
    """The verb, one choice for each bench."""
    measure = verbs.add_parser("bench", help="measure speed, as ratios within one run")
    kinds = measure.add_subparsers(title="what to measure", metavar="WHAT", required=True)
    for name, line in BENCHES.items():
        kind = kinds.add_parser(name, help=line, description=line)
        kind.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
        kind.set_defaults(run=run, what=name)


def run(given: argparse.Namespace) -> int:
    """Measure and print."""
    module = import_module(f"bylot.bench.{given.what}")
    result = module.run()
    print(json.dumps(result) if given.json else module.render(result))
    return 0
