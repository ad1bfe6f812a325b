"""Scenarios of a problem file: environments from tables of outcomes or skills, or synthetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bylot._text import format_percent, join_words
from bylot.environments import CallCosts, Environment, Noisy, Outcomes
from bylot.errors import BylotError, ValuesError
from bylot.numerics.jit import Floats, Ints
from bylot.optima import ValueStack
from bylot.outcome_tables.aslib import RUNS_FILE, read_aslib
from bylot.outcome_tables.outcomes import OutcomeTable, match_columns, read_outcomes, read_skills
from bylot.outcome_tables.sheets import data_error, quote_field
from bylot.problem.validation import suggest_known_name
from bylot.problem_files import ProblemFile

MAX_OPTIMUM_ROUNDS = 10_000  # sampled rounds on which optima of a noisy environment are computed
MAX_OPTIMUM_VALUES = 500_000  # values in these rounds
SYNTHETIC_DIMENSIONS = 3
SYNTHETIC_SEED = 0  # the same skills, whatever the seeds of the runs


class OptimumInput(NamedTuple):
    """What optima are computed on: values, and the context of each round if there are several."""

    stack: ValueStack
    contexts: Ints | None

    def context_shares(self) -> Floats:
        """(X,), the frequency of each context: the weight of its rounds."""
        if self.contexts is None:
            return np.ones(1)
        return np.asarray(np.bincount(self.contexts, self.stack.weights) / self.stack.weights.sum())


@dataclass(frozen=True)
class Scenario:
    """An environment with rewards in [0, 1], and its description."""

    environment: Environment
    description: str  # what a request is and how it is rewarded
    synthetic: bool = False  # whether the skills are invented
    dimensions: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()  # names of those that are distinguished, by number
    questions: int = 0  # lines of the table of outcomes; 0 if there is none
    blanks: int = 0  # missing answers in the table; they count as 0
    unused: tuple[str, ...] = ()  # columns of the table that belong to no expert of the problem
    solves: bool = False  # whether a request is rewarded by 1 if it is solved, and by 0 if not

    @property
    def size(self) -> int:
        N, K = self.environment.shape
        return N * K

    @property
    def cells(self) -> int:
        """Number of answers that the table could hold."""
        return self.questions * self.environment.shape[1]

    @property
    def requests(self) -> float:
        """Number of requests for which the questions of the table are enough."""
        return self.questions / max(1, len(self.dimensions))

    @property
    def reward_noun(self) -> str:
        return "solved requests" if self.solves else "reward"

    def optimum_input(self, rounds: int, seeds: Sequence[int]) -> OptimumInput:
        """The expected request of a table of outcomes, or as many sampled rounds of each seed."""
        if isinstance(self.environment, Outcomes):
            values, weights, contexts = self.environment.expected()
            stack = ValueStack(values, weights=weights)
            return OptimumInput(stack, contexts if self.contexts else None)
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
    """A scenario whose requests are questions of a table, rewarded by the panel's best answers.

    dimension: the column of the dimension of a question; a request asks one question of each.
               Without it a request is one question of the table
    context:   the column of the context of a question; a request asks questions of its context.
               Contexts are as frequent as the problem file says, or as they are in the table
    """
    table = read_outcomes(
        outcomes, questions, dimension, context=context, experts=file.problem.experts
    )
    is_weighted = table.contexts and file.contexts
    chances = context_weights(file, table, Path(questions or outcomes)) if is_weighted else None
    note = "" if context else describe_merged_contexts(file)
    return Scenario(
        environment=Outcomes(table.table, table.dimension, contexts=table.context, chances=chances),
        description=describe_request(Path(outcomes).name, table, dimension, context) + note,
        dimensions=table.dimensions,
        contexts=table.contexts,
        questions=len(table.questions),
        blanks=int(table.blanks.sum()),
        unused=table.unused,
        solves=dimension is None
        and file.rewards == (0.0, 1.0)
        and bool(np.isin(np.nan_to_num(table.table), (0.0, 1.0)).all()),
    )


def scenario_from_aslib(file: ProblemFile, folder: str | PathLike[str]) -> Scenario:
    """A scenario of the algorithm selection library: a request is an instance to be solved."""
    found = read_aslib(folder)
    read = found.outcomes
    places, unused = match_columns(Path(folder) / RUNS_FILE, read.experts, file.problem.experts)
    table = read.table[:, places]
    limit = f" within {found.cutoff:g} seconds" if np.isfinite(found.cutoff) else ""
    return Scenario(
        environment=Outcomes(table),
        description=f"A request is one of the {len(read.questions):,} instances of {found.name}; "
        f"its reward is 1 if a member of the panel solves it{limit}, else 0."
        f"{describe_merged_contexts(file)}",
        questions=len(read.questions),
        blanks=int(np.isnan(table).sum()),
        unused=unused,
        solves=file.rewards == (0.0, 1.0),
    )


def describe_request(
    name: str, table: OutcomeTable, dimension: str | None, context: str | None
) -> str:
    source = f"the {len(table.questions):,} questions of {name}"
    own = f" of its {context} ({len(table.contexts)} in all)" if context else ""
    if dimension is None:
        return f"A request is one of {source}{own}; its reward is the panel's best answer."
    return (
        f"A request asks one question of each {dimension} ({len(table.dimensions)}), drawn from "
        f"{source}{own}; its reward is the mean over these of the panel's best answer."
    )


def describe_merged_contexts(file: ProblemFile) -> str:
    """A sentence about contexts of the problem file that the scenario ignores; empty if none."""
    if not file.contexts:
        return ""
    return (
        f" The {len(file.contexts)} contexts of {file.path.name} are not distinguished; use "
        "--outcomes with --context COLUMN to distinguish them."
    )


def context_weights(file: ProblemFile, table: OutcomeTable, path: Path) -> list[float]:
    """The frequency of each context of a table by the problem file, which must name the same."""
    for n, name in enumerate(table.contexts):
        if name not in file.contexts:
            question = table.questions[int(np.argmax(table.context == n))]
            raise data_error(
                path,
                f"question {quote_field(question)} has the context {quote_field(name)}",
                f"add it to contexts in {file.path}, or remove all contexts there",
            )
    for name in file.contexts:
        if name not in table.contexts:
            raise data_error(
                path,
                f"no question of context {quote_field(name)}, which {file.path} names",
                "add some, or remove the context there",
            )
    return [file.contexts[name] for name in table.contexts]


def scenario_from_skills(file: ProblemFile, skills: str | PathLike[str]) -> Scenario:
    """A scenario whose values vary around the mean values of a file."""
    table = read_skills(skills, file.problem.experts)
    N = len(table.dimensions)
    return Scenario(
        environment=Noisy(table.table, worth=1 / N),
        description=f"The value of an expert for a request varies around the mean values of "
        f"{Path(skills).name} in each of its {N} dimensions; the reward of a request is the mean "
        f"over these of the panel's best value.{describe_merged_contexts(file)}",
        dimensions=table.dimensions,
        unused=table.unused,
    )


def synthetic_scenario(file: ProblemFile) -> Scenario:
    """A scenario with invented skills: random, and better on average the more an expert costs.

    level = 0.25 + 0.4 (rank among the costs, from 0 to 1) + 0.15 normal, within [0, 1]
    """
    problem, rng = file.problem, np.random.default_rng(SYNTHETIC_SEED)
    cost: Floats = sum(
        (problem.costs[name] / problem.costs[name].max(initial=1e-300) for name in file.units),
        start=np.zeros(problem.size),
    )
    rank = cost.argsort().argsort() / max(1, problem.size - 1)
    noise = rng.standard_normal((SYNTHETIC_DIMENSIONS, problem.size))
    level = (0.25 + 0.4 * rank + 0.15 * noise).clip(0.0, 1.0)
    return Scenario(
        environment=Noisy(level, worth=1 / SYNTHETIC_DIMENSIONS),
        description="SYNTHETIC SCENARIO: without --outcomes or --skills, the skills of the experts "
        "are random numbers that increase with their costs. The results show how limits and "
        f"policies work, not how good your experts are.{describe_merged_contexts(file)}",
        synthetic=True,
        dimensions=tuple(f"dimension {n + 1}" for n in range(SYNTHETIC_DIMENSIONS)),
    )


def call_costs_from_text(file: ProblemFile, text: str) -> CallCosts:
    """Parse what calls cost: `noise=0.5,usd=1.3,report=panel`; NAME=FACTOR is for the mean cost of
    all calls, and NAME:EXPERT=FACTOR for those of one expert, in units of the declared cost.
    """
    problem, means, settings = file.problem, dict[str, Floats](), dict[str, Any]()
    for part in text.split(","):
        key, equal, given = (one.strip() for one in part.rpartition("="))
        name, _, expert = key.partition(":")
        if not equal:
            raise BylotError(
                "--call-costs",
                got=part,
                expected="NAME=VALUE, such as noise=0.5, usd=1.3 or usd:EXPERT=1.3, "
                "comma-separated",
            )
        if expert and expert not in problem.experts:
            raise BylotError(
                f"--call-costs: there is no expert {expert!r}",
                remedy=suggest_known_name(expert, problem.experts, "experts", can_add=False),
            )
        if key == "report":
            settings[key] = given
            continue
        try:
            value = float(given)
        except ValueError:
            raise BylotError(f"--call-costs: {key}", got=given, expected="a number") from None
        if key in ("noise", "tail"):
            settings[key] = value
        elif name not in file.units:
            raise BylotError(
                f"--call-costs: there is no {name!r}",
                remedy=suggest_known_name(
                    name,
                    [*file.units, "noise", "tail", "report"],
                    "costs and settings",
                    can_add=False,
                ),
            )
        elif not 0.0 <= value < np.inf:
            raise BylotError(f"--call-costs: {key}", got=given, expected="a factor of 0 or more")
        else:
            means.setdefault(name, problem.costs[name].copy())
            chosen = problem.experts.index(expert) if expert else slice(None)
            means[name][chosen] = value * problem.costs[name][chosen]
    try:
        return CallCosts(means, **settings)
    except ValuesError as error:
        raise BylotError(f"--call-costs: {error}") from None


def describe_call_costs(calls: CallCosts) -> str:
    """What calls cost, in a sentence."""
    parts = [
        f"Calls cost other amounts of {join_words(calls.means, 'and')} than declared"
        if calls.means
        else "Calls cost what is declared on average"
    ]
    if calls.tail is not None:
        parts.append(f"with Pareto tails of exponent {calls.tail:g}")
    elif calls.noise > 0.0:
        parts.append(f"with a standard deviation of {format_percent(calls.noise)} of the mean")
    told = {
        "members": "and what calls of each member cost is reported",
        "panel": "and what calls of each panel cost is reported",
        "nothing": "which policies are not told",
    }
    return f"{', '.join(parts)}, {told[calls.report]}."
