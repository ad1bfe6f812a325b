"""`bylot problem check|new|schema`: problem files, before anything is played."""

import argparse
import json
from pathlib import Path
from typing import Any


def add(verbs: Any) -> None:
    """The verb and what it can do."""
    problem = verbs.add_parser("problem", help="look over a problem file; begin one")
    kinds = problem.add_subparsers(title="what to do", metavar="WHAT", required=True)

    check = kinds.add_parser("check", help="tell what is wrong, or what its limits leave room for")
    check.add_argument("file", type=Path, metavar="PROBLEM", help="a .yaml, .toml or .json file")
    add_experts_option(check)
    check.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    check.set_defaults(run=run_check)

    new = kinds.add_parser("new", help="print a problem with comments, to start from")
    new.set_defaults(run=run_new)

    schema = kinds.add_parser("schema", help="print the JSON Schema of problem files, for editors")
    schema.set_defaults(run=run_schema)


def add_experts_option(verb: argparse.ArgumentParser) -> None:
    """The option that says where the experts are."""
    verb.add_argument(
        "--experts",
        type=Path,
        metavar="CSV",
        help="file of experts to take instead of the one that the problem file names",
    )


def run_check(given: argparse.Namespace) -> int:
    """Read, look over, print; 1 if the file is broken or its limits cannot be kept."""
    from bylot.errors import ProblemError
    from bylot.problem_files import read
    from bylot.problem_files.check import check_problem
    from bylot.problem_files.check_report import check_data, failure_data, render_check

    try:
        file = read(given.file, given.experts)
    except ProblemError as error:
        if not given.json:
            raise
        print(json.dumps(failure_data(str(given.file), error)))
        return 1
    found = check_problem(file)
    print(json.dumps(check_data(found)) if given.json else render_check(found))
    return 0


def run_new(given: argparse.Namespace) -> int:
    """Print what comes with the package."""
    from bylot.problem_files.schema import starter_text

    print(starter_text(), end="")
    return 0


def run_schema(given: argparse.Namespace) -> int:
    """Print what comes with the package."""
    from bylot.problem_files.schema import published_schema

    print(published_schema(), end="")
    return 0
