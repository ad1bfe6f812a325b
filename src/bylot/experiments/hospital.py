"""A real panel of language models: who answered which health question, at what price, under a
budget, a cap on large models, and a minimum share for every lab.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bylot.data import read_experts, read_outcomes
from bylot.environments import Outcomes
from bylot.problem import Problem, at_least, at_most, share

FILES = ("outcomes.csv", "questions.csv", "experts.csv")
LARGE = 70  # billions of parameters; a model of unknown size counts as large


class Hospital(NamedTuple):
    """The limits, the visits, and what tells these files from others."""

    problem: Problem
    visits: Outcomes
    digest: str


def read_hospital(folder: Path) -> Hospital:
    """3 models a visit, which asks one question of each specialty: at most 0.375 of the dearest
    call, at most 1.158 large models, and at least 0.12 models of each lab.
    """
    outcomes, questions, experts = (folder / name for name in FILES)
    read = read_outcomes(outcomes, questions)
    known = read_experts(experts, read.experts)
    usd, names, labs = known["cost_usd_per_call"], np.array(read.experts), known["group"]
    large = np.nan_to_num(known["params_b"], nan=np.inf) >= LARGE
    problem = Problem(
        experts=read.experts,
        costs={"cost": usd / usd.max()},
        limits=[
            at_most("cost", 0.375),
            at_most(share("large", names[large].tolist()), 1.158),
            *(at_least(share(lab, names[labs == lab].tolist()), 0.12) for lab in sorted(set(labs))),
        ],
        draws=3,
    )
    content = b"".join((folder / name).read_bytes() for name in FILES)
    digest = hashlib.sha256(content).hexdigest()
    return Hospital(problem, Outcomes(read.table, read.dimension), digest)
