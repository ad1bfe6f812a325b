"""What ten language models answered to 600 questions: prompts, scores, costs and optima.

The file is not part of the repository: tests that need it skip if it is missing.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from bylot.environments import Outcomes
from bylot.gateway.answers import estimate_tokens
from bylot.numerics.jit import Floats
from bylot.optima import BestSet, ValueStack, best_mixture, best_set
from bylot.outcome_tables.recorded import read_json_lines
from bylot.problem import Problem, at_most

SHARED_RECORDED_FILE = (
    Path(__file__).resolve().parents[2] / "shared" / "data" / "recorded" / "answers.jsonl.gz"
)
DRAWS = 3
LETTERS = "ABCDEFGHIJ"
EXTRACT = r"answer is \(?([A-J])\)?"
"""Finds the choice in an answer; 80 of 6,000 right answers say it otherwise or were cut before."""
PRICES = {
    "mathstral-7B": 0.30,
    "c4ai-command-r-v01": 0.45,
    "Meta-Llama-3_1-8B-Instruct": 0.35,
    "Phi-3-mini-4k-instruct": 0.30,
    "Mixtral-8x7B-Instruct-v0.1": 0.60,
    "Qwen1.5-72B-Chat": 0.90,
    "DeepSeek-Coder-V2": 0.80,
    "Meta-Llama-3_1-70B-Instruct": 1.20,
    "gemini-1.5-flash-002": 1.50,
    "gemini-1.5-pro-002": 3.00,
}
"""Dollars per million tokens, of prompts and answers alike: made up, higher where more is right."""


class RecordedAnswer(NamedTuple):
    """What a model answered; correct: as the data set says, which knows the whole text."""

    text: str
    choice: str | None
    correct: bool


class Question(NamedTuple):
    """A multiple-choice question; answer: the letter of the right option."""

    id: str
    category: str
    text: str
    options: tuple[str, ...]
    answer: str
    answers: Mapping[str, RecordedAnswer]

    @property
    def prompt(self) -> str:
        """The message of a user that asks it; a replay finds the question by its mark."""
        options = [
            f"({letter}) {text}" for letter, text in zip(LETTERS, self.options, strict=False)
        ]
        return "\n".join(
            [
                f"[question {self.id}] {self.text}",
                *options,
                "Think step by step and finish with: The answer is (X).",
            ]
        )

    def score(self, model: str) -> float:
        """1 if the choice that EXTRACT finds in the text of a model is right."""
        found = re.search(EXTRACT, self.answers[model].text)
        return float(found is not None and found[1] == self.answer)

    def cost(self, model: str) -> float:
        """Dollars of a call, a token being four characters."""
        tokens = estimate_tokens(self.prompt) + estimate_tokens(self.answers[model].text)
        return tokens * PRICES[model] / 1e6


class References(NamedTuple):
    """What can be earned per request; dollars are averages over the questions."""

    panel: BestSet  # the best fixed panel without a budget
    panel_usd: float
    budget_usd: float
    mixture: float  # by the best mixture of panels within the budget, whatever the category
    uniform: float  # by three independent uniform draws, which ignore the budget


@dataclass(frozen=True)
class RecordedQuestions:
    """All questions; tables have a row per question and a column per model."""

    questions: tuple[Question, ...]

    @cached_property
    def models(self) -> tuple[str, ...]:
        return tuple(sorted({name for one in self.questions for name in one.answers}))

    @cached_property
    def by_id(self) -> dict[str, Question]:
        return {one.id: one for one in self.questions}

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

    def find(self, message: str) -> Question | None:
        """The question of a message: by its mark, else the longest whose text is in it."""
        marked = re.search(r"\[question ([^\]]+)\]", message)
        if marked is not None:
            return self.by_id.get(marked[1])
        inside = [one for one in self.questions if one.text in message]
        return max(inside, key=lambda one: len(one.text), default=None)

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
            mixture=best_mixture(problem, stack).value,
            uniform=float(stack.value(np.full(K, 1 / K), DRAWS)),
        )

    def find_mixture_by_category(self, budget_usd: float) -> float:
        """What the best mixture in each category earns under one budget for all."""
        values, weights, contexts = self.make_environment().expected()
        problem, stack = self.make_problem(budget_usd), ValueStack(values, weights=weights)
        return best_mixture(problem, stack, contexts=contexts, aggregate=True).value

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


def find_recorded_file() -> Path:
    """The file of answers; skips the test if there is none."""
    for path in (
        Path(os.environ.get("BYLOT_RECORDED", SHARED_RECORDED_FILE)),
        SHARED_RECORDED_FILE,
    ):
        if path.is_file():
            return path
    pytest.skip(f"no recorded answers: neither $BYLOT_RECORDED nor {SHARED_RECORDED_FILE}")


def read_recorded_questions(path: Path) -> RecordedQuestions:
    """All questions of a file with the answers of every model."""
    entries = [json.loads(line) for line in read_json_lines(path) if line.strip()]
    return RecordedQuestions(
        tuple(
            Question(
                id=str(entry["id"]),
                category=entry["category"],
                text=entry["question"],
                options=tuple(entry["options"]),
                answer=entry["answer"],
                answers={
                    model: RecordedAnswer(one["text"], one["choice"], bool(one["correct"]))
                    for model, one in entry["answers"].items()
                },
            )
            for entry in entries
        )
    )
