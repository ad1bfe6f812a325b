"""Scenarios in which a request is one question or instance of a table of real outcomes.

Requests are drawn with replacement; the reward is the best outcome of the panel. The tables are the
user's: a panel of language models and health questions, recorded answers of language models, and
portfolios of algorithms (ASlib).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from bylot.environments import Given, Outcomes
from bylot.environments.base import make_block_generator
from bylot.optima import ValueStack, optimum
from bylot.outcome_tables.aslib import RUNS_FILE, find_aslib_folders, read_aslib
from bylot.outcome_tables.outcomes import (
    OutcomeTable,
    read_experts,
    read_outcomes,
    read_recorded_answers,
)
from bylot.problem import Problem, at_most
from bylot_paper.scenarios import HOSPITAL_FILES, digest_files

PANEL_DRAWS = 3
HOSPITAL_BUDGET_USD = 0.0047653
"""Per question: the cheapest panel plus 35 % of the way to the best one."""
LABEL_STREAM = 4  # random stream of random contexts
HOSPITAL_SCENARIO, RECORDED_SCENARIO = "hospital-questions", "recorded"
IGNORED, RANDOM = "-no-contexts", "-random-contexts"  # after the name of a scenario


class QuestionReferences(NamedTuple):
    """What can be earned within the limits on average."""

    fixed: float  # by the best mixture of panels, whatever the context
    gap: float  # a certified bound on how much better any such mixture could be
    by_context: float  # by the best mixture in each context, under one budget
    uniform: float  # by M independent uniform draws


@dataclass(frozen=True, eq=False)
class QuestionScenario:
    """A problem, a table of outcomes, and which contexts policies see."""

    problem: Problem
    environment: Outcomes
    digest: str  # of the files
    contexts: Literal["own", "ignored", "random"] = "own"

    def draw_rounds(self, rounds: int, seed: int) -> Given:
        """The requests of a seed, the same ones whatever contexts policies see."""
        values, contexts = self.environment.rounds(0, rounds, seed)
        if self.contexts == "ignored":
            return Given(values)
        if self.contexts == "random":
            contexts = make_block_generator(seed, 0, LABEL_STREAM).integers(
                0, self.environment.contexts, rounds
            )
        return Given(values, contexts)

    @cached_property
    def references(self) -> QuestionReferences:
        values, weights, contexts = self.environment.expected()
        stack = ValueStack(values, weights=weights)
        fixed = optimum(self.problem, stack)
        equal = np.full(self.problem.size, 1 / self.problem.size)
        return QuestionReferences(
            fixed=fixed.value,
            gap=fixed.gap,
            by_context=optimum(self.problem, stack, contexts=contexts).value,
            uniform=float(stack.value(equal, PANEL_DRAWS)),
        )


def read_question_scenarios(
    hospital: Path | None, recorded: Path | None, aslib: Path | None
) -> dict[str, QuestionScenario]:
    """The scenarios whose files are given, by name."""
    found: dict[str, QuestionScenario] = {}
    if hospital is not None:
        known = found[HOSPITAL_SCENARIO] = read_hospital_questions(hospital)
        found[f"{HOSPITAL_SCENARIO}{IGNORED}"] = replace(known, contexts="ignored")
        found[f"{HOSPITAL_SCENARIO}{RANDOM}"] = replace(known, contexts="random")
    if recorded is not None:
        known = make_unlimited_scenario(read_recorded_answers(recorded), recorded)
        found[RECORDED_SCENARIO] = known
        found[f"{RECORDED_SCENARIO}{IGNORED}"] = replace(known, contexts="ignored")
    for folder in [] if aslib is None else find_aslib_folders(aslib):
        portfolio = read_aslib(folder)
        found[portfolio.name] = make_unlimited_scenario(portfolio.outcomes, folder / RUNS_FILE)
    return found


def read_hospital_questions(folder: Path) -> QuestionScenario:
    """One health question a request, 3 of 39 language models under a budget; 8 specialties."""
    files = [folder / name for name in HOSPITAL_FILES]
    read = read_outcomes(files[0], files[1], None, context="specialty")
    problem = Problem(
        read.experts,
        {"usd": read_experts(files[2], read.experts)["cost_usd_per_call"]},
        [at_most("usd", HOSPITAL_BUDGET_USD)],
        draws=PANEL_DRAWS,
    )
    return QuestionScenario(
        problem, Outcomes(read.table, contexts=read.context), digest_files(files)
    )


def make_unlimited_scenario(read: OutcomeTable, file: Path) -> QuestionScenario:
    """3 experts of a table a request, without limits."""
    return QuestionScenario(
        Problem(read.experts, draws=PANEL_DRAWS),
        Outcomes(read.table, contexts=read.context),
        digest_files([file]),
    )
