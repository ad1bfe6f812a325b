"""Options that describe a world of one's own, which `optimum` and `simulate` share."""

import argparse
from pathlib import Path
from typing import Any

from bylot.cli.problem import add_experts_option


def add_scenario_options(verb: argparse.ArgumentParser) -> None:
    """The problem file, and where its experts' answers come from."""
    verb.add_argument("file", type=Path, metavar="PROBLEM", help="a .yaml, .toml or .json file")
    add_experts_option(verb)
    world = verb.add_mutually_exclusive_group()
    world.add_argument(
        "--outcomes",
        type=Path,
        metavar="FILE",
        help="a line for each question, a column for each expert: how well it was answered, from 0 "
        "to 1, blank if it was not; CSV, or Parquet (*.parquet)",
    )
    world.add_argument(
        "--skills",
        type=Path,
        metavar="FILE",
        help="a line for each dimension, a column for each expert: mean values, from 0 to 1, the "
        "same in every context of the problem file. With neither, skills are made up, and "
        "everything says so",
    )
    verb.add_argument(
        "--questions",
        type=Path,
        metavar="FILE",
        help="with --outcomes: the file that says of each question what it is about "
        "(default: the file of the outcomes itself)",
    )
    verb.add_argument(
        "--dimension",
        metavar="COLUMN",
        help="the column that says the dimension of a question; a request asks one question of "
        "each (default: the second column of --questions; without that file, a request is one "
        "question)",
    )
    verb.add_argument(
        "--context",
        metavar="COLUMN",
        help="the column that says the context of a question; a request asks questions of its own "
        "context only (default: all are alike, whatever contexts the problem file names)",
    )


def read_scenario(given: argparse.Namespace) -> tuple[Any, Any]:
    """The problem file and the world that the options speak of."""
    from bylot import problem_files, scenario

    check_outcome_options(given)
    file = problem_files.read(given.file, given.experts)
    if given.skills is not None:
        return file, scenario.scenario_from_skills(file, given.skills)
    if given.outcomes is None:
        return file, scenario.synthetic_scenario(file)
    about = given.questions, find_dimension_column(given), given.context
    return file, scenario.scenario_from_outcomes(file, given.outcomes, *about)


def find_dimension_column(given: argparse.Namespace) -> str | None:
    """The column that says it: the one that was named, or else the second of --questions, unless
    that file is there for its contexts.
    """
    from bylot.outcome_tables.sheets import open_sheet

    named: str | None = given.dimension
    if named is not None or given.questions is None or given.context is not None:
        return named
    return open_sheet(given.questions).columns[1]


def check_outcome_options(given: argparse.Namespace) -> None:
    """Refuse options that say something of outcomes which are not given."""
    from bylot.errors import BylotError

    for option in ("questions", "dimension", "context"):
        if getattr(given, option) is not None and given.outcomes is None:
            raise BylotError(
                f"--{option} says what --outcomes are about; give --outcomes FILE too, or leave it"
            )
