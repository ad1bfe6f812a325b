"""Evaluating what a router learned from the very log that is to judge it."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bylot import Problem, Router
from bylot.errors import InsufficientOverlap
from bylot.evaluate import (
    DecisionLog,
    Evaluation,
    LogEntry,
    entry_from_decision,
    evaluate_target,
    log_from_entries,
    make_router_target,
    make_uniform_target,
)
from bylot.evaluate.entries import parse_entry
from bylot.evaluate.importance_weights import has_learned_from
from sample_problem import SKILLS, make_five_expert_problem
from test_distributions import ALL_AVAILABLE, list_panel_probabilities

COINS = Problem([f"e{i}" for i in range(12)], {}, draws=3)
COIN_MEAN = 0.5  # of every panel, so of every distribution


def play(
    router: Router, rounds: int, seed: int, pay: Callable[[list[int], np.random.Generator], float]
) -> list[LogEntry]:
    """Let a router decide, pay it, and log it."""
    rng, entries = np.random.default_rng(seed), []
    for _ in range(rounds):
        decision = router.decide()
        reward = pay([router.problem.experts.index(name) for name in decision.subset], rng)
        router.reward(decision.id, reward)
        entries.append(entry_from_decision(decision, reward, router.policy))
    return entries


def toss(members: list[int], rng: np.random.Generator) -> float:
    """A coin, whoever is asked."""
    return float(rng.random() < COIN_MEAN)


def answer(members: list[int], rng: np.random.Generator) -> float:
    """Whether the panel solves a request of a random dimension."""
    return float(rng.random() < SKILLS[rng.integers(len(SKILLS)), members].max())


@cache
def play_coins(seed: int, rounds: int = 600) -> tuple[Router, DecisionLog]:
    router = Router(COINS, "distinct", seed=seed)
    return router, log_from_entries(COINS, play(router, rounds, seed, toss))


def covers(found: Evaluation, value: float) -> bool:
    low, high = found.main_estimate.interval
    return low <= value <= high


def test_luck_is_not_taken_for_skill() -> None:
    """All panels earn the same, and the router has followed those that were lucky."""
    honest, naive = [], []
    for seed in range(16):
        router, log = play_coins(seed)
        target = make_router_target(COINS, router)
        honest.append(evaluate_target(log, target))
        naive.append(evaluate_target(log, replace(target, router=None)))
    bias = np.mean([one.main_estimate.value for one in honest]) - COIN_MEAN
    error = 0.5 / np.sqrt(16 * 120)  # of the mean of as many coins
    assert abs(bias) < 3 * error
    assert sum(covers(one, COIN_MEAN) for one in honest) >= 13  # P(fewer) < 0.01 at 95 %
    # weighted for the target, as any other target is, the same logs claim a gain that is not there
    assert np.mean([one.main_estimate.value for one in naive]) - COIN_MEAN > 3 * error
    assert sum(covers(one, COIN_MEAN) for one in naive) <= 12
    for one in honest:
        assert one.main_estimate.name == "as played"
        assert one.counts.used == 120
        assert one.notes[0].startswith("now was learned from this log, ")
        assert "--target router:FILE" in one.notes[0]


def test_later_rounds_alone_are_used_if_they_say_enough() -> None:
    router, log = play_coins(0)
    router, saved = copy.copy(router), router
    later = play(router, 400, 99, toss)
    whole = log_from_entries(COINS, [*log.entries, *later])
    found = evaluate_target(whole, make_router_target(COINS, saved))
    assert found.counts.rounds == 400
    assert found.main_estimate.name == "doubly robust"
    assert "only the 400 rounds after decision 599 are used" in found.notes[0]
    alone = evaluate_target(
        log_from_entries(COINS, later), replace(make_router_target(COINS, saved), router=None)
    )
    assert found.estimates == alone.estimates


def test_the_log_of_another_router_is_weighted_as_for_any_target() -> None:
    (_, log), (other, _) = play_coins(0), play_coins(1)
    target = make_router_target(COINS, other)
    assert not has_learned_from(other, log)
    found = evaluate_target(log, target, least=1)
    assert found.estimates == evaluate_target(log, replace(target, router=None), least=1).estimates


def test_scores_of_members_and_winners_change_no_estimate() -> None:
    """Estimates are of rewards of panels."""
    router, log = play_coins(0)
    told = [
        one._replace(members={one.subset[0]: 0.25}, winner=one.subset[-1]) for one in log.entries
    ]
    lines = [parse_entry(json.loads(one.to_json())) for one in told]
    assert lines == told
    for target in (make_uniform_target(COINS), make_router_target(COINS, router)):
        found = [evaluate_target(one, target) for one in (log, log_from_entries(COINS, lines))]
        assert found[0] == found[1]


def test_rewards_that_came_after_the_router_was_saved_are_no_contradiction() -> None:
    router = Router(COINS, "distinct", seed=5)
    entries = play(router, 30, 5, toss)
    late = router.decide()
    log = log_from_entries(COINS, [*entries, entry_from_decision(late, 1.0, router.policy)])
    assert has_learned_from(router, log)
    assert has_learned_from(router, log.since(20))
    assert not has_learned_from(
        router, log_from_entries(COINS, [one._replace(reward=1.0) for one in log.entries])
    )


def test_too_few_rounds_of_nearly_this_distribution_are_refused_with_a_remedy() -> None:
    router = Router(COINS, "distinct", seed=6)
    log = log_from_entries(COINS, play(router, 300, 6, toss))
    with pytest.raises(InsufficientOverlap) as caught:
        evaluate_target(log, make_router_target(COINS, router))
    assert "only 60 rounds were played with a distribution close to it" in caught.value.what
    assert "at least 1000 more requests" in str(caught.value.remedy)
    with pytest.raises(InsufficientOverlap, match="only 0 rounds"):  # nothing of the last fifth
        evaluate_target(
            log_from_entries(COINS, log.entries[:200]), make_router_target(COINS, router)
        )


def test_a_distribution_that_has_not_moved_is_judged_by_all_rounds_since() -> None:
    """No reward came in the last 500 decisions, but later, from another system."""
    router = Router(COINS, "distinct:guard=false", seed=7)
    entries = play(router, 100, 7, toss)
    rng = np.random.default_rng(7)
    for _ in range(500):
        decision = router.decide()
        entries.append(entry_from_decision(decision, toss([], rng), router.policy))
    found = evaluate_target(log_from_entries(COINS, entries), make_router_target(COINS, router))
    assert 400 < found.counts.used <= 600


def test_panels_that_the_guard_replaced_lately_are_left_out_and_noted() -> None:
    router, log = play_coins(0)
    entries = [one._replace(replaced=one.t in (550, 580)) for one in log.entries]
    found = evaluate_target(log_from_entries(COINS, entries), make_router_target(COINS, router))
    assert (found.counts.used, found.counts.replaced) == (118, 2)
    assert any("the guard replaced 2 panels" in note for note in found.notes)


def test_a_period_does_not_start_with_the_tight_bounds_at_the_end_of_the_last_one() -> None:
    problem, spent = make_five_expert_problem().replace(period=1_000), []
    for seed in range(5):
        router = Router(problem, "distinct", seed=seed)
        play(router, 1_000, 1_000 + seed, answer)
        first = make_router_target(problem, router).distribution(None, ALL_AVAILABLE)
        spent.append(float(first.inclusion @ problem.costs["usd"]))
    reserves = 1_000 * (3.0 - np.array(spent))  # of pacing: what a panel in use costs at most
    assert reserves.min() > 5.0 - 1e-3
    assert reserves.max() < 7.0, "by how much any two panels can differ"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "rounds"),
    [("distinct", 5_000), ("tangent", 5_200), ("omd", 5_000)],  # a period has 5,000: docs/log.md
)
def test_intervals_cover_what_was_learned_from_their_log(policy: str, rounds: int) -> None:
    problem, biases, covered, runs = make_five_expert_problem(), [], [], 240
    for seed in range(runs):
        router = Router(problem, policy, seed=seed)
        log = log_from_entries(problem, play(router, rounds, 1_000 + seed, answer))
        target = make_router_target(problem, router)
        distribution = target.distribution(None, ALL_AVAILABLE)
        value = sum(
            p * float(SKILLS[:, members].max(axis=1).mean())
            for members, p in list_panel_probabilities(distribution, 5, problem.draws)
        )
        found = evaluate_target(log, target)
        biases.append(found.main_estimate.value - value)
        covered.append([one.interval.low <= value <= one.interval.high for one in found.estimates])
    assert abs(np.mean(biases)) < 0.002 + 2 * np.std(biases) / np.sqrt(runs)
    deviation = np.sqrt(0.95 * 0.05 / runs)  # of the share that intervals of 95 % cover
    assert np.mean(covered, axis=0)[0] > 0.95 - 3 * deviation
