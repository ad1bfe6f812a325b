"""What random panels would earn by the model of `noisy-or`: the reference of its reward chart."""

import itertools

import numpy as np
import pytest
from msgspec import structs

from bylot import Problem, Router, at_most, play
from bylot.environments import Environment, Noisy, Outcomes
from bylot.evaluate.result import ReferenceLevel
from bylot.numerics.jit import Floats
from bylot.policies.panel_model import (
    MIN_PREDICTED_REWARDS,
    REFERENCE_PANELS,
    PanelModel,
    draw_reference_panels,
)
from bylot.policies.request_classes import predict_log_misses
from bylot.policies.validation import FeedbackKind
from bylot.server.dashboard.router_view import MODEL_LEVEL, add_model_level
from bylot.server.dashboard.source import RecentLog

SIZE, DRAWS, ROUNDS = 12, 3, 4_000
EVERY = np.array([*itertools.combinations(range(SIZE), DRAWS)])


def make_problem() -> Problem:
    costs = {"usd": np.random.default_rng(0).uniform(0.5, 2.0, SIZE)}
    names = [f"e{i}" for i in range(SIZE)]
    return Problem(names, costs, [at_most("usd", 3.3)], draws=DRAWS)


def make_environments() -> dict[str, Environment]:
    """Answers of 0 or 1 that fail independently, and scores with noise in three dimensions."""
    rng = np.random.default_rng(5)
    answers = rng.random((2_000, SIZE)) < rng.uniform(0.1, 0.7, SIZE)
    skills = rng.uniform(0.1, 0.9, (3, SIZE))
    return {
        "pass or fail": Outcomes(answers.astype(np.float64)),
        "scores": Noisy(skills, worth=1 / 3),
    }


def compute_truth(environment: Environment) -> float:
    """The mean reward of all panels, in many rounds."""
    values = environment.rounds(0, 20_000, seed=99).values
    return float(np.mean([values[:, :, panel].max(axis=2).sum(axis=1).mean() for panel in EVERY]))


def compute_spread(model: PanelModel) -> float:
    """The standard deviation of what random panels earn under samples of all beliefs."""
    rng, belief, classes = np.random.default_rng(1), model.belief, model.requests
    earned = []
    for _ in range(200):
        b: Floats = np.minimum(belief.beta + rng.standard_normal(SIZE) @ belief.root, 0.0)
        log_miss = b[EVERY].sum(axis=1)
        if classes.misses.size:
            noise = np.exp(classes.spread * rng.standard_normal(classes.spread.shape))
            sample = classes._replace(odds=classes.odds * noise)
            log_miss = log_miss + predict_log_misses(sample, 0, EVERY)
        earned.append(belief.scale.interval[1] * (1.0 - np.minimum(np.exp(log_miss), 1.0).mean()))
    return float(np.std(earned))


@pytest.mark.parametrize("feedback", ["panel", "members", "winner"])
@pytest.mark.parametrize("kind", ["pass or fail", "scores"])
def test_the_estimate_agrees_with_the_true_value_of_random_panels(
    kind: str, feedback: FeedbackKind
) -> None:
    environment = make_environments()[kind]
    router = Router(make_problem(), "noisy-or", seed=5, feedback=feedback)
    earned = play(router, environment, ROUNDS).rewards[-1_000:].mean()
    found = router.status().random_panels
    truth = compute_truth(environment)
    tolerance = 3 * compute_spread(router.core.state.model)
    assert found is not None
    assert abs(found - truth) < tolerance
    assert earned > found + 0.02  # and the test would notice what the learned panels earn
    assert tolerance < 0.2


def test_the_estimate_is_in_the_range_of_rewards() -> None:
    environment = make_environments()["pass or fail"]
    plain = Router(make_problem(), "noisy-or", seed=1)
    wide = Router(make_problem(), "noisy-or", seed=1, rewards=(-5.0, 5.0))
    rounds = environment.rounds(0, 500, seed=0)
    for t in range(500):
        for router, (low, span) in ((plain, (0.0, 1.0)), (wide, (-5.0, 10.0))):
            decision = router.decide()
            members = [router.problem.experts.index(name) for name in decision.subset]
            router.reward(decision.id, low + span * float(rounds.values[t, 0, members].max()))
    small, large = plain.status().random_panels, wide.status().random_panels
    assert small is not None
    assert large == pytest.approx(-5.0 + 10.0 * small)


def test_contexts_count_by_their_visits() -> None:
    """All answers are right in one context and wrong in the other, which is as frequent."""
    router = Router(make_problem(), "noisy-or", seed=1)
    for n in range(600):
        decision = router.decide(context=["good", "bad"][n % 2])
        router.reward(decision.id, float(n % 2 == 0))
    found = router.status().random_panels
    assert found is not None
    assert 0.35 < found < 0.65


def test_there_is_no_estimate_before_rewards_and_for_policies_without_a_model() -> None:
    environment = make_environments()["pass or fail"]
    model, other = (Router(make_problem(), name, seed=1) for name in ("noisy-or", "distinct"))
    assert model.status().random_panels is None
    play(model, environment, MIN_PREDICTED_REWARDS - 1)
    assert model.status().random_panels is None
    play(model, environment, 1, start=MIN_PREDICTED_REWARDS - 1)
    assert model.status().random_panels is not None
    play(other, environment, 200)
    assert other.status().random_panels is None


@pytest.mark.parametrize(("size", "draws"), [(12, 3), (5, 5), (7, 2), (1_000, 6)])
def test_every_expert_occurs_about_equally_often_in_the_panels(size: int, draws: int) -> None:
    panels = draw_reference_panels(size, draws)
    assert len(panels) >= REFERENCE_PANELS
    assert all(len(set(panel)) == draws for panel in panels.tolist())
    counts = np.bincount(panels.ravel(), minlength=size)
    shuffles = len(panels) // (size // draws)
    assert counts.max() <= shuffles
    assert counts.sum() == shuffles * (size - size % draws)  # few are left out of a shuffle


def test_the_chart_shows_it_only_where_the_log_has_no_estimate() -> None:
    router = Router(make_problem(), "noisy-or", seed=1)
    play(router, make_environments()["pass or fail"], 200)
    status = router.status()
    none = RecentLog(200, [ReferenceLevel(name="random panels", reason="no propensities")], [])
    (level,) = add_model_level(none, status).levels
    assert level == ReferenceLevel(name=MODEL_LEVEL, value=status.random_panels)
    known = RecentLog(200, [ReferenceLevel(name="random panels", value=0.5, low=0.4, high=0.6)], [])
    assert add_model_level(known, status) is known
    assert add_model_level(none, structs.replace(status, random_panels=None)) is none
