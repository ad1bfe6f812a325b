"""Options that describe a world of one's own, which `optimum` and `simulate` share."""

import argparse
from pathlib import Path
from typing import Any

from bylot.cli.problem import add_experts


def add_world(verb: argparse.ArgumentParser) -> None:
    """The problem file, and where its experts' answers come from."""
    verb.add_argument("file", type=Path, metavar="PROBLEM", help="a .yaml, .toml or .json file")
    add_experts(verb)
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


def read_world(given: argparse.Namespace) -> tuple[Any, Any]:
    """The problem file and the world that the options speak of."""
    from bylot import files, worlds

    consistent(given)
    file = files.read(given.file, given.experts)
    if given.skills is not None:
        return file, worlds.of_skills(file, given.skills)
    if given.outcomes is None:
        return file, worlds.made_up(file)
    about = given.questions, dimension(given), given.context
    return file, worlds.of_outcomes(file, given.outcomes, *about)


def dimension(given: argparse.Namespace) -> str | None:
    """The column that says it: the one that was named, or else the second of --questions, unless
    that file is there for its contexts.
    """
    from bylot.data.parquet import opened

    named: str | None = given.dimension
    if named is not None or given.questions is None or given.context is not None:
        return named
    return opened(given.questions).columns[1]


def consistent(given: argparse.Namespace) -> None:
    """Refuse options that say something of outcomes which are not given."""
    from bylot.errors import BylotError

    for option in ("questions", "dimension", "context"):
        if getattr(given, option) is not None and given.outcomes is None:
            raise BylotError(
                f"--{option} says what --outcomes are about; give --outcomes FILE too, or leave it"
            )
