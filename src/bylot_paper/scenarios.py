"""The scenarios of the experiments: problems, rounds, and the values that optima are computed on.

`CrowdScenario` is a pool of the crowd under the levels of section 6, with raw rewards; the others,
in which all policies are compared, have rewards in [0, 1], so that losses are comparable. All
policies and levels of a scenario see the same rounds, so that they differ only in what they do.

In a `QuestionScenario` a request is one question or instance of a table of real outcomes, drawn
with replacement; the reward is the best outcome of the panel. The tables are the user's: a panel of
language models and health questions, recorded answers of language models, and portfolios of
algorithms (ASlib).
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from bylot.environments import NO_DELAY, Given, Noisy, Outcomes, Regime, RewardDelay
from bylot.environments.base import make_block_generator
from bylot.environments.outcomes import draw_block_uniforms
from bylot.environments.synthetic import make_crowd_environment, make_crowd_problem
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.sum_max import expected_rewards
from bylot.optima import IidOptimum, ValueStack, iid_optimum, optimum
from bylot.outcome_tables.aslib import RUNS_FILE, find_aslib_folders, read_aslib
from bylot.outcome_tables.outcomes import (
    OutcomeTable,
    read_experts,
    read_outcomes,
    read_recorded_answers,
)
from bylot.problem import Problem, at_least, at_most, share
from bylot.trace import running_mean
from bylot_paper.crowd import Crowd, WorkerPool

PAPER_DRAWS = 5  # M, in all of section 6
OPTIMUM_STARTS = 2  # of the search under exact costs; 8 found the same optimum in every scenario


class LimitLevel(NamedTuple):
    """How tight the limits are.

    margin, share: the budget is share * M * mean(workload) + margin
    cap: bound on the number of experts per panel
    smoothing: annotations by an average worker that are added to each skill
    """

    margin: float
    cap: float
    share: float = 1.0
    smoothing: int = 0


PAPER_LEVELS: dict[str, LimitLevel | None] = {
    "tight": LimitLevel(margin=0.0, cap=2.0),
    "medium": LimitLevel(margin=0.1, cap=2.5),
    "loose": LimitLevel(margin=0.5, cap=5.0),
    "none": None,  # no limits at all
}
"""Table 1 of the paper. A quarter of the skills is exactly 1, so the optimum is close to N."""

ALL_LEVELS: dict[str, LimitLevel | None] = {
    **PAPER_LEVELS,
    # a harder level that separates policies better: no skill is exactly 1, and limits are tighter
    "stress": LimitLevel(margin=0.0, cap=1.0, share=0.8, smoothing=10),
}


def find_level_smoothing(level: str) -> int:
    """Smoothing of the skills at a level; 0 for a scenario's own limits."""
    known = ALL_LEVELS.get(level)
    return known.smoothing if known else 0


def make_level_problem(pool: WorkerPool, name: str) -> Problem:
    level = ALL_LEVELS[name]
    limits = []
    if level is not None:
        budget = level.share * PAPER_DRAWS * float(pool.workload.mean()) + level.margin
        limits = [at_most("workload", budget), at_most("expert", level.cap)]
    return Problem(
        experts=pool.workers,
        costs={"workload": pool.workload, "expert": pool.expert},
        limits=limits,
        draws=PAPER_DRAWS,
    )


class CrowdScenario:
    """The rounds of one seed, with everything that depends on nothing else.

    smoothing: of the skills; only levels with the same smoothing are played
    exact: compare with the optimum under the exact costs h_j(q) = sum_i c_ij (1 - (1 - q_i)^M),
           without the floor, which only the paper's policy has; or under the paper's surrogate
    """

    late = NO_DELAY

    def __init__(
        self,
        crowd: Crowd,
        environment: str,
        dimensions: int,
        seed: int,
        rounds: int,
        smoothing: int = 0,
        exact: bool = False,
    ) -> None:
        self.pool = crowd.pool(seed, dimensions=dimensions, smoothing=smoothing)
        self.rounds, self.dimensions = rounds, dimensions
        self.smoothing, self.exact, self.max_reward = smoothing, exact, float(dimensions)
        source: Noisy | Regime = Noisy(self.pool.skills)
        if environment == "regime":
            source = Regime(self.pool.skills, horizon=rounds)
        self.given = Given(source.rounds(0, rounds, seed).values)
        self.optima: dict[str, tuple[IidOptimum, Floats]] = {}

    @cached_property
    def stack(self) -> ValueStack:
        return ValueStack(self.given.values)

    @cached_property
    def problems(self) -> dict[str, Problem]:
        """The problem at each level that is played on these skills."""
        return {
            level: make_level_problem(self.pool, level)
            for level in ALL_LEVELS
            if find_level_smoothing(level) == self.smoothing
        }

    def find_optimum(self, level: str) -> tuple[IidOptimum, Floats]:
        """The constrained optimum in hindsight, and the running mean of its expected rewards."""
        if level not in self.optima:
            problem, order = self.problems[level], list(PAPER_LEVELS)
            if self.exact:
                found = iid_optimum(problem, self.stack, exact=True, starts=OPTIMUM_STARTS)
            else:  # searched from that of the next looser level
                looser = order[order.index(level) + 1 :][:1]
                start = self.find_optimum(looser[0])[0].policy if looser else None
                found = iid_optimum(problem, self.stack, start=start, floor=True)
            self.optima[level] = found, running_mean(self.expected(found.policy))
        return self.optima[level]

    def expected(self, q: Floats) -> Floats:
        return expected_rewards(q[None], self.stack.values, self.stack.order, PAPER_DRAWS)

    @cached_property
    def uniform(self) -> float:
        """Mean expected reward of the uniform distribution."""
        size = self.stack.size
        return float(self.expected(np.full(size, 1 / size)).mean())


HOSPITAL_FILES = ("outcomes.csv", "questions.csv", "experts.csv")
LARGE_MODEL_PARAMS_B = 70  # billions of parameters; a model of unknown size counts as large
MAX_OPTIMUM_VALUES = 1_500_000  # optima of longer runs are computed on every n-th round
SMALL_CROWD_SIZE, LARGE_CROWD_SIZE = 50, 300
RESHUFFLE_BLOCKS = 5
LATE = RewardDelay(lag=200, lost=0.1)  # rewards arrive late or never
SPECIALTY_COUNT, SPECIALTIES_PER_EXPERT = 12, 2
SCENARIO_STREAM = 3  # random stream of the scenarios below


class HospitalPanel(NamedTuple):
    """A real panel of language models: who answered which health question, at what price."""

    problem: Problem
    visits: Outcomes
    digest: str


def read_hospital(folder: Path) -> HospitalPanel:
    """Read the panel. A visit asks one question of each specialty to 3 models, under a budget of
    0.375 of the most expensive call, at most 1.158 large models, and at least 0.12 models of each
    lab.
    """
    outcomes, questions, experts = (folder / name for name in HOSPITAL_FILES)
    read = read_outcomes(outcomes, questions)
    known = read_experts(experts, read.experts)
    usd, names, labs = known["cost_usd_per_call"], np.array(read.experts), known["group"]
    large = np.nan_to_num(known["params_b"], nan=np.inf) >= LARGE_MODEL_PARAMS_B
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
    return HospitalPanel(
        problem,
        Outcomes(read.table, read.dimension),
        digest_files(folder / name for name in HOSPITAL_FILES),
    )


def digest_files(files: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


class ComparisonScenario(NamedTuple):
    """Problems by level on the same rounds, and the values that their optima are computed on.

    contexts: of these values, if the optima may depend on the block of rounds
    """

    problems: dict[str, Problem]
    given: Given
    stack: ValueStack
    contexts: Ints | None = None
    late: RewardDelay = NO_DELAY
    max_reward: float = 1.0


def make_comparison_scenario(
    problems: dict[str, Problem], values: Floats, contexts: Ints | None = None
) -> ComparisonScenario:
    """Make a scenario whose optima are computed on its own rounds."""
    step = -(-values.size // MAX_OPTIMUM_VALUES)
    return ComparisonScenario(
        problems,
        Given(values),
        ValueStack(values[::step]),
        None if contexts is None else contexts[::step],
    )


def make_hospital_scenario(panel: HospitalPanel, rounds: int, seed: int) -> ComparisonScenario:
    """Visits to the hospital; the optima are those of its expected visits."""
    values, weights, _ = panel.visits.expected()
    return ComparisonScenario(
        {"own": panel.problem},
        Given(panel.visits.rounds(0, rounds, seed).values),
        ValueStack(values, weights=weights),
    )


def make_sample_crowd(size: int, rounds: int, seed: int) -> ComparisonScenario:
    """Return the made-up crowd of workers."""
    problem = make_crowd_problem(size=size, seed=seed)
    environment = make_crowd_environment(problem, seed=seed)
    return make_comparison_scenario({"own": problem}, environment.rounds(0, rounds, seed).values)


def make_reshuffled_crowd(rounds: int, seed: int) -> ComparisonScenario:
    """The same, but in each further block half of the experts, drawn again, exchange their skills.
    The optima know the blocks and have one budget for all.
    """
    problem = make_crowd_problem(size=SMALL_CROWD_SIZE, seed=seed)
    steady = make_crowd_environment(problem, seed=seed)
    rng, skills = make_block_generator(seed, 0, SCENARIO_STREAM), steady.skills[0].copy()
    block = np.arange(rounds) * RESHUFFLE_BLOCKS // rounds
    parts = []
    for number in range(RESHUFFLE_BLOCKS):
        if number:
            half = rng.permutation(SMALL_CROWD_SIZE)[: SMALL_CROWD_SIZE // 2]
            skills[:, half] = skills[:, rng.permutation(half)]
        start, stop = np.searchsorted(block, (number, number + 1)).tolist()
        parts.append(Noisy(skills, worth=steady.worth).rounds(start, stop, seed).values)
    return make_comparison_scenario({"own": problem}, np.concatenate(parts), block)


def make_specialists(rounds: int, seed: int) -> ComparisonScenario:
    """40 experts, each good at 2 of 12 topics and bad at the others, 4 asked: how two of them
    complement each other depends on the pair, which no model of single experts can express.
    """
    size = 40
    rng = make_block_generator(seed, 0, SCENARIO_STREAM)
    skills = rng.uniform(0.0, 0.1, (SPECIALTY_COUNT, size))
    for i in range(size):
        good = rng.permutation(SPECIALTY_COUNT)[:SPECIALTIES_PER_EXPERT]
        skills[good, i] = rng.uniform(0.6, 0.95, SPECIALTIES_PER_EXPERT)
    usd = skills.sum(axis=0) * rng.uniform(0.5, 1.5, size)
    values = Noisy(skills, worth=1 / SPECIALTY_COUNT).rounds(0, rounds, seed).values
    return make_comparison_scenario({"own": make_budget_problem("specialist", usd, 4)}, values)


def make_pass_fail(rounds: int, seed: int) -> ComparisonScenario:
    """20 experts who pass a request with a probability of their own, 3 asked: the reward is 1 if
    one of them passes, else 0. Most panels succeed, so the best one is hard to tell from others
    and a learner may settle on one of those.
    """
    size = 20
    rng = make_block_generator(seed, 0, SCENARIO_STREAM)
    skills = rng.uniform(0.1, 0.85, size)
    problem = make_budget_problem("expert", skills * rng.uniform(0.5, 1.5, size), 3)
    passed = draw_block_uniforms(0, rounds, size, seed) < skills
    return make_comparison_scenario({"own": problem}, passed[:, None, :].astype(np.float64))


def make_budget_problem(kind: str, usd: Floats, draws: int) -> Problem:
    """A budget of 0.7 of what M average experts cost, and at most 0.4 of the dearest quarter."""
    names, usd = [f"{kind}-{i:02d}" for i in range(usd.size)], usd / usd.max()
    dear = [names[i] for i in np.argsort(usd)[-usd.size // 4 :]]
    limits = [at_most("usd", float(0.7 * draws * usd.mean())), at_most(share("dear", dear), 0.4)]
    return Problem(names, {"usd": usd}, limits, draws=draws)


BUILT_IN_SCENARIOS: dict[str, tuple[int, Callable[[int, int], ComparisonScenario]]] = {
    "crowd": (3, partial(make_sample_crowd, SMALL_CROWD_SIZE)),
    "specialists": (SPECIALTY_COUNT, make_specialists),
    "pass-fail": (1, make_pass_fail),
    "re-dealt": (3, make_reshuffled_crowd),
    "late": (3, lambda T, seed: make_sample_crowd(SMALL_CROWD_SIZE, T, seed)._replace(late=LATE)),
    "K=300": (3, partial(make_sample_crowd, LARGE_CROWD_SIZE)),
}
"""Scenarios that need no data: dimensions, and the function that makes one from rounds and seed."""

SHARED_POOLS = dict.fromkeys(("crowd", "re-dealt", "late"), "crowd")
"""Scenarios that have the same pool, and many of the same rounds, under the same seed."""


PANEL_DRAWS = 3
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
        # Per question: the cheapest panel plus 35 % of the way to the best one.
        [at_most("usd", 0.0047653)],
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
