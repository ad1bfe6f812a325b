"""A panel of 39 language models and 816 health questions, for tests on real outcomes.

The files are not part of the repository: tests that need them skip where they are not.
"""

import os
from pathlib import Path

import pytest

from bylot.environments import Outcomes
from bylot.outcome_tables.outcomes import OutcomeTable, read_outcomes
from bylot.problem import Problem
from bylot_paper.scenarios import read_hospital

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data" / "hospital"


def folder() -> Path:
    """Where the files are, or a reason to skip."""
    for place in (Path(os.environ.get("BYLOT_HOSPITAL", BESIDE)), BESIDE):
        if (place / "outcomes.csv").is_file():
            return place
    pytest.skip(f"no hospital files: neither in $BYLOT_HOSPITAL nor in {BESIDE}")


def outcomes() -> OutcomeTable:
    """Which model answered which question right."""
    return read_outcomes(folder() / "outcomes.csv", folder() / "questions.csv")


def world() -> Outcomes:
    """A visit asks one question of each of the 8 specialties; rewards lie in [0, 1]."""
    read = outcomes()
    return Outcomes(read.table, read.dimension)


def hospital() -> Problem:
    """The limits of the study: a budget, a cap on large models, a share for each of 12 labs."""
    return read_hospital(folder()).problem
