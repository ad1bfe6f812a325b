"""`bylot bench WHAT`: the benchmarks of the package bylot_bench."""

import argparse
import json
from importlib import import_module
from typing import Any

from bylot.cli.options import add_group, add_verb, explain_missing_extra

BENCHES = {
    "qp": "our projection against daqp, quadprog, piqp, osqp and clarabel, then a fuzz test",
    "decide": "decide + reward of a router against river and MABWiser, choosing 5 of 50 experts",
    "simulate": "the compiled loop against a NumPy loop of the same algorithm",
    "scale": "rounds per CPU-second and setup time, from 50 to 10,000 experts",
    "service": "CPU and latency of durable requests against a bare uvicorn",
    "large": "a server on a store of 1,000 routers and 10 million decisions (minutes, gigabytes)",
}


def add(verbs: Any) -> None:
    """Add `bench` with one verb per benchmark."""
    kinds = add_group(verbs, "bench", "measure speed, as ratios within one run")
    parsers = {name: add_verb(kinds, name, run, line) for name, line in BENCHES.items()}
    for name, parser in parsers.items():
        parser.set_defaults(bench=name)
        parser.add_json()
    parsers["large"].add_argument("--routers", type=int, default=1_000)
    parsers["large"].add_argument("--decisions", type=int, default=10_000_000)
    parsers["service"].add_count(
        "--soak", None, "seconds for which to keep 64 connections busy and watch the memory"
    )


def run(given: argparse.Namespace) -> int:
    """Run one benchmark and print its result."""
    with explain_missing_extra("bench"):
        module = import_module(f"bylot_bench.{given.bench}")
    options = {name: getattr(given, name, None) for name in ("soak", "routers", "decisions")}
    result = module.run(**{name: value for name, value in options.items() if value is not None})
    print(json.dumps(result) if given.json else module.render(result))
    return 0
