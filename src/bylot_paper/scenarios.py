"""The scenarios in which all policies are compared, and the values their optima are computed on.

Rewards lie in [0, 1] in all of them, so that losses are comparable.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bylot.environments import NO_DELAY, Given, Noisy, Outcomes, RewardDelay
from bylot.environments.base import make_block_generator
from bylot.environments.outcomes import draw_block_uniforms
from bylot.environments.synthetic import make_crowd_environment, make_crowd_problem
from bylot.numerics.jit import Floats, Ints
from bylot.optima import ValueStack
from bylot.outcome_tables.outcomes import read_experts, read_outcomes
from bylot.problem import Problem, at_least, at_most, share
from bylot_paper.crowd_scenario import CrowdScenario
from bylot_paper.crowd_sources import make_synthetic_crowd

HOSPITAL_FILES = ("outcomes.csv", "questions.csv", "experts.csv")
LARGE_MODEL_PARAMS_B = 70  # billions of parameters; a model of unknown size counts as large
MAX_OPTIMUM_VALUES = 1_500_000  # optima of longer runs are computed on every n-th round
SMALL_CROWD_SIZE, LARGE_CROWD_SIZE = 50, 300
RESHUFFLE_BLOCKS = 5
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
    content = b"".join((folder / name).read_bytes() for name in HOSPITAL_FILES)
    digest = hashlib.sha256(content).hexdigest()
    return HospitalPanel(problem, Outcomes(read.table, read.dimension), digest)


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
    few = None if contexts is None else contexts[::step]
    return ComparisonScenario(problems, Given(values), ValueStack(values[::step]), few)


def scenario_from_crowd(crowd: CrowdScenario) -> ComparisonScenario:
    """A pool of a crowd, at the levels that are played on its skills."""
    return make_comparison_scenario(crowd.problems, crowd.given.values / crowd.dimensions)


def make_synthetic_scenario(smoothing: int, rounds: int, seed: int) -> ComparisonScenario:
    """A pool of the synthetic crowd that replaces TREC's."""
    crowd = make_synthetic_crowd()
    return scenario_from_crowd(CrowdScenario(crowd, "stochastic", 3, seed, rounds, smoothing))


def make_hospital_scenario(panel: HospitalPanel, rounds: int, seed: int) -> ComparisonScenario:
    """Visits; the optima are those of the expected visit."""
    values, weights, _ = panel.visits.expected()
    visits = panel.visits.rounds(0, rounds, seed).values
    return ComparisonScenario(
        {"own": panel.problem}, Given(visits), ValueStack(values, weights=weights)
    )


def make_sample_crowd(size: int, rounds: int, seed: int) -> ComparisonScenario:
    """The made-up workers of `bylot demo`."""
    problem = make_crowd_problem(size=size, seed=seed)
    environment = make_crowd_environment(problem, seed=seed)
    return make_comparison_scenario({"own": problem}, environment.rounds(0, rounds, seed).values)


def make_late_crowd(rounds: int, seed: int) -> ComparisonScenario:
    """The same, with rewards that arrive late or never."""
    crowd = make_sample_crowd(SMALL_CROWD_SIZE, rounds, seed)
    return crowd._replace(late=RewardDelay(lag=200, lost=0.1))


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
    size, draws, rng = 40, 4, make_block_generator(seed, 0, SCENARIO_STREAM)
    skills = rng.uniform(0.0, 0.1, (SPECIALTY_COUNT, size))
    for i in range(size):
        good = rng.permutation(SPECIALTY_COUNT)[:SPECIALTIES_PER_EXPERT]
        skills[good, i] = rng.uniform(0.6, 0.95, SPECIALTIES_PER_EXPERT)
    usd = skills.sum(axis=0) * rng.uniform(0.5, 1.5, size)
    values = Noisy(skills, worth=1 / SPECIALTY_COUNT).rounds(0, rounds, seed).values
    return make_comparison_scenario({"own": make_budget_problem("specialist", usd, draws)}, values)


def make_pass_fail(rounds: int, seed: int) -> ComparisonScenario:
    """20 experts who pass a request with a probability of their own, 3 asked: the reward is 1 if
    one of them passes, else 0. Most panels succeed, so the best one is hard to tell from others
    and a learner may settle on one of those.
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


BUILT_IN_SCENARIOS: dict[str, tuple[int, Callable[[int, int], ComparisonScenario]]] = {
    "crowd": (3, partial(make_sample_crowd, SMALL_CROWD_SIZE)),
    "specialists": (SPECIALTY_COUNT, make_specialists),
    "pass-fail": (1, make_pass_fail),
    "re-dealt": (3, make_reshuffled_crowd),
    "late": (3, make_late_crowd),
    "K=300": (3, partial(make_sample_crowd, LARGE_CROWD_SIZE)),
}
"""Scenarios that need no data: dimensions, and the function that makes one from rounds and seed."""

SHARED_POOLS = dict.fromkeys(("crowd", "re-dealt", "late"), "crowd")
"""Scenarios that have the same pool, and many of the same rounds, under the same seed."""
