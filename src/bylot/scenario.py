"""Worlds of a problem file: a table of outcomes, a table of skills, or one that is made up.

Owns what goes with a problem so that it can be played; how it is played is left to others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bylot.environments import Environment, Noisy, Outcomes
from bylot.numerics.jit import Floats, Ints
from bylot.optima import ValueStack
from bylot.outcome_tables.outcomes import OutcomeTable, read_outcomes, read_skills
from bylot.outcome_tables.text_lines import data_error, quote_field
from bylot.problem_files import ProblemFile

MAX_OPTIMUM_ROUNDS = 10_000  # rounds of a noisy world on which optima are computed,
MAX_OPTIMUM_VALUES = 500_000  # and values in them
SYNTHETIC_DIMENSIONS = 3  # of a made-up world
SYNTHETIC_SEED = 0  # of a made-up world: the same skills for every seed that is played


class OptimumInput(NamedTuple):
    """What optima are computed on: values, and the context of each round if there are several."""

    stack: ValueStack
    contexts: Ints | None

    def context_shares(self) -> Floats:
        """(X,), the frequency of each context: the weight of its rounds."""
        if self.contexts is None:
            return np.ones(1)
        shares: Floats = np.bincount(self.contexts, self.stack.weights) / self.stack.weights.sum()
        return shares


@dataclass(frozen=True)
class Scenario:
    """An environment, whose rewards lie in [0, 1], and what is to be said of it.

    story:     what a request is and what it earns, in a sentence
    contexts:  names of the contexts that are told apart, in the order of their numbers; maybe none
    questions: rows of the table that requests are drawn from; 0 if there is none
    blanks:    answers that are missing in it, which count as worth nothing
    unused:    columns that belong to no expert of the problem
    """

    environment: Environment
    story: str
    made_up: bool = False
    dimensions: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    questions: int = 0
    blanks: int = 0
    unused: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Values of a round."""
        N, K = self.environment.shape
        return N * K

    @property
    def cells(self) -> int:
        """Answers that the table could hold."""
        return self.questions * self.environment.shape[1]

    def ground(self, rounds: int, seeds: Sequence[int]) -> OptimumInput:
        """What to compute optima on: the expected request of a table of outcomes; of a noisy world
        the first rounds of every seed, as many of each, no more than MOST in all, nor more than
        hold VALUES.
        """
        if isinstance(self.environment, Outcomes):
            values, weights, contexts = self.environment.expected()
            return OptimumInput(
                ValueStack(values, weights=weights), contexts if self.contexts else None
            )
        most = min(MAX_OPTIMUM_ROUNDS, MAX_OPTIMUM_VALUES // self.size)
        few = min(rounds, max(1, most // len(seeds)))
        parts = [self.environment.rounds(0, few, seed).values for seed in seeds]
        return OptimumInput(ValueStack(np.concatenate(parts)), None)


def scenario_from_outcomes(
    file: ProblemFile,
    outcomes: str | PathLike[str],
    questions: str | PathLike[str] | None = None,
    dimension: str | None = None,
    context: str | None = None,
) -> Scenario:
    """Questions of a table, and the best answer of the panel to each.

    dimension: the column that says it; a request asks one question of each. If it is not given, a
               request is one question of the whole table
    context:   the column that says it; a request asks questions of its context only. Contexts come
               as often as the problem file says or, if it names none, as they have questions
    """
    where = Path(outcomes)
    read = read_outcomes(
        outcomes, questions, dimension, context=context, experts=file.problem.experts
    )
    told = where if questions is None else Path(questions)
    chances = context_weights(file, read, told) if read.contexts and file.contexts else None
    return Scenario(
        environment=Outcomes(read.table, read.dimension, contexts=read.context, chances=chances),
        story=describe_request(where.name, read, dimension, context)
        + ("" if context else describe_merged_contexts(file)),
        dimensions=read.dimensions,
        contexts=read.contexts,
        questions=len(read.questions),
        blanks=int(read.blanks.sum()),
        unused=read.unused,
    )


def describe_request(
    name: str, read: OutcomeTable, dimension: str | None, context: str | None
) -> str:
    """What a request is and what it earns."""
    source = f"the {len(read.questions):,} questions of {name}"
    own = f" that belong to its {context} ({len(read.contexts)})" if context else ""
    if dimension is None:
        return f"A request is one of {source}{own}; it earns the best answer of its panel."
    return (
        f"A request asks one question of each {dimension} ({len(read.dimensions)}), drawn from "
        f"{source}{own}; it earns the mean over these of the best answer of its panel."
    )


def describe_merged_contexts(file: ProblemFile) -> str:
    """A sentence for contexts of a problem file that a world does not tell apart; or nothing."""
    if not file.contexts:
        return ""
    return (
        f" The {len(file.contexts)} contexts of {file.path.name} are not told apart: all requests "
        "are alike; --outcomes with --context COLUMN tells them apart."
    )


def context_weights(file: ProblemFile, read: OutcomeTable, told: Path) -> list[float]:
    """How often each context of a table comes, by the problem file, which names the same."""
    for n, name in enumerate(read.contexts):
        if name not in file.contexts:
            question = read.questions[int(np.argmax(read.context == n))]
            what = f"question {quote_field(question)} is of context {quote_field(name)}"
            remedy = f"add it to contexts in {file.path}, or leave them all out there"
            raise data_error(told, what, remedy)
    for name in file.contexts:
        if name not in read.contexts:
            what = f"there is no question of context {quote_field(name)}, which {file.path} names"
            raise data_error(told, what, "add some, or take it out there")
    return [file.contexts[name] for name in read.contexts]


def scenario_from_skills(file: ProblemFile, skills: str | PathLike[str]) -> Scenario:
    """Noise around the mean values of a file."""
    read = read_skills(skills, file.problem.experts)
    N = len(read.dimensions)
    return Scenario(
        environment=Noisy(read.table, worth=1 / N),
        story=f"What an expert is worth to a request varies around the mean values of "
        f"{Path(skills).name}, in each of its {N} dimensions; a request earns the mean over these "
        f"of the best value of its panel.{describe_merged_contexts(file)}",
        dimensions=read.dimensions,
        unused=read.unused,
    )


def synthetic_scenario(file: ProblemFile) -> Scenario:
    """Skills that nobody measured: the dearer an expert, the better on average, and chance.

    level = 0.25 + 0.4 (rank among the costs, from 0 to 1) + 0.15 normal, within [0, 1]
    """
    problem, rng = file.problem, np.random.default_rng(SYNTHETIC_SEED)
    dear: Floats = sum(
        (problem.costs[name] / problem.costs[name].max(initial=1e-300) for name in file.units),
        start=np.zeros(problem.size),
    )
    rank = dear.argsort().argsort() / max(1, problem.size - 1)
    level = 0.25 + 0.4 * rank + 0.15 * rng.standard_normal((SYNTHETIC_DIMENSIONS, problem.size))
    return Scenario(
        environment=Noisy(level.clip(0.0, 1.0), worth=1 / SYNTHETIC_DIMENSIONS),
        story="MADE-UP WORLD: no outcomes and no skills were given, so the skills of the experts "
        "are drawn by chance, the dearer the better. It shows what limits and policies do, and "
        f"says nothing of how good your experts are; give --outcomes or --skills for that."
        f"{describe_merged_contexts(file)}",
        made_up=True,
        dimensions=tuple(f"dimension {n + 1}" for n in range(SYNTHETIC_DIMENSIONS)),
    )
