"""`bylot problem check|new|schema`: problem files, before anything is played."""

import argparse
import json
from typing import Any

from bylot.cli.options import add_group, add_verb


def add(verbs: Any) -> None:
    """Add `problem` and its verbs."""
    kinds = add_group(verbs, "problem", "check a problem file, or start one")
    check = add_verb(kinds, "check", run_check, "report errors, or how much room the limits leave")
    check.add_problem()
    check.add_json()
    add_verb(kinds, "new", run_new, "print a commented problem file to start from")
    add_verb(kinds, "schema", run_schema, "print the JSON Schema of problem files, for editors")


def run_check(given: argparse.Namespace) -> int:
    """Check a problem file; 1 if it is invalid or its limits conflict."""
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
    """Print the starter file of the package."""
    from bylot.problem_files.schema import starter_text

    print(starter_text(), end="")
    return 0


def run_schema(given: argparse.Namespace) -> int:
    """Print the schema file of the package."""
    from bylot.problem_files.schema import published_schema

    print(published_schema(), end="")
    return 0
