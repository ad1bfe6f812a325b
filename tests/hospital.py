"""A panel of 39 language models and 816 health questions, for tests on real outcomes.

The files are not part of the repository: tests that need them skip where they are not.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from bylot.data import OutcomeTable, read_experts, read_outcomes
from bylot.environments import Outcomes
from bylot.problem import Problem, at_least, at_most, share

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
    """3 models a visit: at most 0.375 of the dearest call, at most 1.158 large models, and at least
    0.12 models of each of the 12 labs. A model of unknown size counts as large.
    """
    models = outcomes().experts
    known = read_experts(folder() / "experts.csv", models)
    usd, names = known["cost_usd_per_call"], np.array(models)
    large = np.nan_to_num(known["params_b"], nan=100.0) >= 70
    labs = known["group"]
    return Problem(
        experts=models,
        costs={"cost": usd / usd.max()},
        limits=[
            at_most("cost", 0.375),
            at_most(share("large", names[large].tolist()), 1.158),
            *(at_least(share(lab, names[labs == lab].tolist()), 0.12) for lab in sorted(set(labs))),
        ],
        draws=3,
    )
