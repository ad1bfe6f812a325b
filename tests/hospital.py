"""A panel of 39 language models and 816 health questions, for tests on real outcomes.

The files are not part of the repository: tests that need them skip if they are missing.
"""

import os
from pathlib import Path

import pytest

from bylot.environments import Outcomes
from bylot.outcome_tables.outcomes import OutcomeTable, read_outcomes
from bylot.problem import Problem
from bylot_paper.scenarios import read_hospital

SHARED_HOSPITAL_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "hospital"


def find_folder() -> Path:
    """The folder of the files; skips the test if there is none."""
    for folder in (
        Path(os.environ.get("BYLOT_HOSPITAL", SHARED_HOSPITAL_FOLDER)),
        SHARED_HOSPITAL_FOLDER,
    ):
        if (folder / "outcomes.csv").is_file():
            return folder
    pytest.skip(f"no hospital files: neither in $BYLOT_HOSPITAL nor in {SHARED_HOSPITAL_FOLDER}")


def read_outcome_table() -> OutcomeTable:
    """Which model answered which question right."""
    return read_outcomes(find_folder() / "outcomes.csv", find_folder() / "questions.csv")


def make_environment() -> Outcomes:
    """A visit asks one question of each of the 8 specialties; rewards lie in [0, 1]."""
    read = read_outcome_table()
    return Outcomes(read.table, read.dimension)


def make_problem() -> Problem:
    """The limits of the study: a budget, a cap on large models, a share for each of 12 labs."""
    return read_hospital(find_folder()).problem
