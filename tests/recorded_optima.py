"""Recorded questions as tables, and what panels of three could earn on them under a budget."""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bylot.environments import Outcomes
from bylot.numerics.jit import Floats
from bylot.optima import BestSet, ValueStack, best_set, optimum
from bylot.problem import Problem, at_most
from recorded_answers import RecordedQuestions, read_recorded_questions

DRAWS = 3


class References(NamedTuple):
    """What can be earned per request; dollars are averages over the questions."""

    panel: BestSet  # the best fixed panel without a budget
    panel_usd: float
    budget_usd: float
    mixture: float  # by the best mixture of panels within the budget, whatever the category
    uniform: float  # by three independent uniform draws, which ignore the budget


class RecordedTable(RecordedQuestions):
    """All questions; tables have a row per question and a column per model."""

    @cached_property
    def scores(self) -> Floats:
        """What an exact scorer with EXTRACT gives."""
        return np.array([[one.score(model) for model in self.models] for one in self.questions])

    @cached_property
    def correct(self) -> Floats:
        """What the data set says."""
        models = self.models
        rows = [[float(one.answers[model].correct) for model in models] for one in self.questions]
        return np.array(rows)

    @cached_property
    def costs(self) -> Floats:
        """Dollars of calls."""
        return np.array([[one.cost(model) for model in self.models] for one in self.questions])

    def make_environment(self) -> Outcomes:
        """Requests are questions drawn uniformly; the context is the category."""
        labels = sorted({one.category for one in self.questions})
        contexts = [labels.index(one.category) for one in self.questions]
        return Outcomes(self.scores, contexts=contexts)

    def make_problem(self, budget_usd: float | None = None) -> Problem:
        """3 of 10 models a request; a call costs its mean over the questions."""
        limits = [] if budget_usd is None else [at_most("usd", budget_usd)]
        costs = {"usd": self.costs.mean(axis=0)}
        return Problem(self.models, costs, limits, draws=DRAWS)

    def find_references(self, budget_share: float = 0.5) -> References:
        """What can be earned if the budget is this share of what the best fixed panel costs."""
        values, weights, _ = self.make_environment().expected()
        stack, K = ValueStack(values, weights=weights), len(self.models)
        panel = best_set(self.make_problem(), stack)
        panel_usd = float(self.costs.mean(axis=0)[self.columns(panel.members)].sum())
        problem = self.make_problem(budget_share * panel_usd)
        return References(
            panel=panel,
            panel_usd=panel_usd,
            budget_usd=budget_share * panel_usd,
            mixture=optimum(problem, stack).value,
            uniform=float(stack.value(np.full(K, 1 / K), DRAWS)),
        )

    def find_mixture_by_category(self, budget_usd: float) -> float:
        """What the best mixture in each category earns under one budget for all."""
        values, weights, contexts = self.make_environment().expected()
        problem, stack = self.make_problem(budget_usd), ValueStack(values, weights=weights)
        return optimum(problem, stack, contexts=contexts).value

    def columns(self, members: Iterable[str]) -> list[int]:
        """The columns of models."""
        return [self.models.index(model) for model in members]

    def expect_score(self, members: Iterable[str], category: str | None = None) -> float:
        """The mean of the best score of a panel, over all questions or those of a category.

        A play is judged by it with less noise than by the scores of the questions it met.
        """
        best = self.scores[:, self.columns(members)].max(axis=1)
        rows = [category in (None, one.category) for one in self.questions]
        return float(best[rows].mean())


def read_recorded_table(path: Path) -> RecordedTable:
    """All questions of a file with the answers of every model."""
    return RecordedTable(read_recorded_questions(path).questions)
