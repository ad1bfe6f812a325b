"""Arena: where all policies are compared, with what its optima are computed on.

Rewards lie in [0, 1] in all of them, so that what is lost in one can be set beside another.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bylot import sample_problems
from bylot.environments import NO_DELAY, Given, Noisy, Outcomes, RewardDelay
from bylot.environments.base import make_block_generator
from bylot.environments.outcomes import draw_block_uniforms
from bylot.numerics.jit import Floats, Ints
from bylot.optima import ValueStack
from bylot.outcome_tables.outcomes import read_experts, read_outcomes
from bylot.problem import Problem, at_least, at_most, share
from bylot_paper.crowd_scenario import CrowdScenario
from bylot_paper.crowd_sources import make_synthetic_crowd

HOSPITAL_FILES = ("outcomes.csv", "questions.csv", "experts.csv")
LARGE_MODEL_PARAMS_B = 70  # billions of parameters; a model of unknown size counts as large


class HospitalPanel(NamedTuple):
    """The limits, the visits, and what tells these files from others."""

    problem: Problem
    visits: Outcomes
    digest: str


def read_hospital(folder: Path) -> HospitalPanel:
    """3 models a visit, which asks one question of each specialty: at most 0.375 of the dearest
    call, at most 1.158 large models, and at least 0.12 models of each lab.
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
    content = b"".join((folder / name).read_bytes() for name in HOSPITAL_FILES)
    digest = hashlib.sha256(content).hexdigest()
    return HospitalPanel(problem, Outcomes(read.table, read.dimension), digest)


MAX_OPTIMUM_VALUES = 1_500_000
"""That optima are computed on: all rounds of the paper's size, every so many-th of larger ones."""

LATE_REWARDS = RewardDelay(lag=200, lost=0.1)
RESHUFFLE_BLOCKS = 5
"""Blocks of a play between which half of the experts are dealt the skills of others."""

SCENARIO_STREAM = 3  # the stream of chance that says whose
SPECIALTY_COUNT, SPECIALTIES_PER_EXPERT = 12, 2
SMALL_CROWD_SIZE, LARGE_CROWD_SIZE = 50, 300


class ComparisonScenario(NamedTuple):
    """Problems by level on the same rounds, and what their optima are computed on.

    contexts: of the rounds that optima are computed on, where they may know of changes
    """

    problems: dict[str, Problem]
    given: Given
    stack: ValueStack
    contexts: Ints | None = None
    late: RewardDelay = NO_DELAY


def scenario_from_crowd(world: CrowdScenario) -> ComparisonScenario:
    """A pool of a crowd, at the levels that are played on such skills."""
    return make_comparison_scenario(world.problems, world.given.values / world.dimensions)


def make_comparison_scenario(
    problems: dict[str, Problem],
    values: Floats,
    contexts: Ints | None = None,
    late: RewardDelay = NO_DELAY,
) -> ComparisonScenario:
    """Rounds whose optima are computed on themselves."""
    step = -(-values.size // MAX_OPTIMUM_VALUES)
    few = None if contexts is None else contexts[::step]
    return ComparisonScenario(problems, Given(values), ValueStack(values[::step]), few, late)


def make_hospital_scenario(ward: HospitalPanel, rounds: int, seed: int) -> ComparisonScenario:
    """Visits; the optima are those of the expected visit."""
    values, weights, _ = ward.visits.expected()
    visits = ward.visits.rounds(0, rounds, seed).values
    return ComparisonScenario(
        {"own": ward.problem}, Given(visits), ValueStack(values, weights=weights)
    )


def make_small_crowd(rounds: int, seed: int) -> ComparisonScenario:
    """The made-up workers of `bylot demo`."""
    return make_sample_crowd(SMALL_CROWD_SIZE, rounds, seed)


def make_late_crowd(rounds: int, seed: int) -> ComparisonScenario:
    """The same, who are heard of late or never."""
    return make_sample_crowd(SMALL_CROWD_SIZE, rounds, seed)._replace(late=LATE_REWARDS)


def make_large_crowd(rounds: int, seed: int) -> ComparisonScenario:
    """The same, many more of them."""
    return make_sample_crowd(LARGE_CROWD_SIZE, rounds, seed)


def make_sample_crowd(size: int, rounds: int, seed: int) -> ComparisonScenario:
    """A built-in pool of some size."""
    problem = sample_problems.make_crowd_problem(size=size, seed=seed)
    return make_comparison_scenario(
        {"own": problem},
        sample_problems.make_crowd_environment(problem, seed=seed).rounds(0, rounds, seed).values,
    )


def make_reshuffled_crowd(rounds: int, seed: int) -> ComparisonScenario:
    """The same small pool, but in each further block half of the experts, drawn afresh, have their
    skills dealt out anew among them. The optima know the blocks, under one budget for all.
    """
    problem = sample_problems.make_crowd_problem(size=SMALL_CROWD_SIZE, seed=seed)
    steady = sample_problems.make_crowd_environment(problem, seed=seed)
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
    """40 experts, each good at 2 of 12 things and bad at the others, 4 asked: whether two of them
    add up depends on which two they are, which no model of single experts can say.
    """
    size, draws, rng = 40, 4, make_block_generator(seed, 0, SCENARIO_STREAM)
    skills = rng.uniform(0.0, 0.1, (SPECIALTY_COUNT, size))
    for i in range(size):
        good = rng.permutation(SPECIALTY_COUNT)[:SPECIALTIES_PER_EXPERT]
        skills[good, i] = rng.uniform(0.6, 0.95, SPECIALTIES_PER_EXPERT)
    problem = make_budget_problem(
        "specialist", skills.sum(axis=0) * rng.uniform(0.5, 1.5, size), draws
    )
    values = Noisy(skills, worth=1 / SPECIALTY_COUNT).rounds(0, rounds, seed).values
    return make_comparison_scenario({"own": problem}, values)


def make_pass_fail(rounds: int, seed: int) -> ComparisonScenario:
    """20 experts who pass a request or fail it, each by a chance of its own, 3 asked: the reward is
    1 if one of them passes and else 0. Most panels succeed, so that what is seen of one that is
    not the best looks much like what is seen of the best, and a learner may stay with it.
    """
    size, draws, rng = 20, 3, make_block_generator(seed, 0, SCENARIO_STREAM)
    skills = rng.uniform(0.1, 0.85, size)
    problem = make_budget_problem("expert", skills * rng.uniform(0.5, 1.5, size), draws)
    passed = draw_block_uniforms(0, rounds, size, seed) < skills
    return make_comparison_scenario({"own": problem}, passed[:, None, :].astype(np.float64))


def make_budget_problem(kind: str, usd: Floats, draws: int) -> Problem:
    """A budget of 0.7 of what M average experts cost, and at most 0.4 of the dearest quarter."""
    names, usd = [f"{kind}-{i:02d}" for i in range(usd.size)], usd / usd.max()
    dear = share("dear", [names[i] for i in np.argsort(usd)[-usd.size // 4 :]])
    limits = [at_most("usd", float(0.7 * draws * usd.mean())), at_most(dear, 0.4)]
    return Problem(names, {"usd": usd}, limits, draws=draws)


def make_synthetic_scenario(smoothing: int, rounds: int, seed: int) -> ComparisonScenario:
    """A pool of the made-up crowd that stands in for TREC's."""
    return scenario_from_crowd(
        CrowdScenario(make_synthetic_crowd(), "stochastic", 3, seed, rounds, smoothing)
    )


BUILT_IN_SCENARIOS: dict[str, tuple[int, Callable[[int, int], ComparisonScenario]]] = {
    "crowd": (3, make_small_crowd),
    "specialists": (SPECIALTY_COUNT, make_specialists),
    "pass-fail": (1, make_pass_fail),
    "re-dealt": (3, make_reshuffled_crowd),
    "late": (3, make_late_crowd),
    "K=300": (3, make_large_crowd),
}
"""The dimensions of worlds that need no data, and how they are made of rounds and seed."""

SHARED_POOLS = dict.fromkeys(("crowd", "re-dealt", "late"), "crowd")
"""Worlds whose pools, and many of whose rounds, are the same under the same seed."""
