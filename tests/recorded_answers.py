"""What ten language models answered to 600 questions: prompts, answers, scores and costs.

The file is not part of the repository: tests that need it skip if it is missing.
"""

import gzip
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

from bylot.gateway.answers import estimate_tokens

SHARED_RECORDED_FILE = (
    Path(__file__).resolve().parents[2] / "shared" / "data" / "recorded" / "answers.jsonl.gz"
)
LETTERS = "ABCDEFGHIJ"
EXTRACT = r"answer is \(?([A-J])\)?"
"""Finds the choice in an answer; 80 of 6,000 right answers say it otherwise or were cut before."""


class TokenPrice(NamedTuple):
    """Dollars per million tokens."""

    prompt: float
    answer: float


PRICES = {
    "mathstral-7B": TokenPrice(0.25, 0.25),
    "c4ai-command-r-v01": TokenPrice(0.50, 1.50),
    "Meta-Llama-3_1-8B-Instruct": TokenPrice(0.18, 0.18),
    "Phi-3-mini-4k-instruct": TokenPrice(0.13, 0.52),
    "Mixtral-8x7B-Instruct-v0.1": TokenPrice(0.60, 0.60),
    "Qwen1.5-72B-Chat": TokenPrice(0.90, 0.90),
    "DeepSeek-Coder-V2": TokenPrice(0.14, 0.28),
    "Meta-Llama-3_1-70B-Instruct": TokenPrice(0.88, 0.88),
    "gemini-1.5-flash-002": TokenPrice(0.075, 0.30),
    "gemini-1.5-pro-002": TokenPrice(1.25, 5.00),
}
"""About what providers asked in late 2024."""


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
        price, answer = PRICES[model], self.answers[model].text
        prompt_usd = estimate_tokens(len(self.prompt)) * price.prompt
        return (prompt_usd + estimate_tokens(len(answer)) * price.answer) / 1e6


@dataclass(frozen=True)
class RecordedQuestions:
    """All questions; `recorded_optima` has them as tables."""

    questions: tuple[Question, ...]

    @cached_property
    def models(self) -> tuple[str, ...]:
        return tuple(sorted({name for one in self.questions for name in one.answers}))

    @cached_property
    def by_id(self) -> dict[str, Question]:
        return {one.id: one for one in self.questions}

    def find(self, message: str) -> Question | None:
        """The question of a message: by its mark, else the longest whose text is in it."""
        marked = re.search(r"\[question ([^\]]+)\]", message)
        if marked is not None:
            return self.by_id.get(marked[1])
        inside = [one for one in self.questions if one.text in message]
        return max(inside, key=lambda one: len(one.text), default=None)


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
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    entries = [json.loads(line) for line in lines if line.strip()]
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
