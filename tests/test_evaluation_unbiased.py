"""Off-policy estimates: exact in expectation over all logs that can be, and how they vary."""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bylot import simulate
from bylot.distributions import FixedSizeSets, IidSets, PanelDistribution
from bylot.evaluate import (
    DecisionLog,
    EvaluationTarget,
    LogEntry,
    entries_from_trace,
    evaluate_target,
    log_from_entries,
    make_fixed_size_target,
    make_iid_target,
    make_uniform_target,
)
from bylot.evaluate.estimators import estimate_doubly_robust
from bylot.evaluate.importance_weights import list_target_distributions, weight_rounds
from bylot.evaluate.result import build_membership_matrix, compute_estimates
from bylot.numerics.jit import Floats
from small import five, steady
from test_evaluation_laws import ALL, by_sequences, chances
from trio import TRIO, reward

UNBIASED = ("draw weights", "set weights", "doubly robust")


def values_of(log: DecisionLog, target: EvaluationTarget) -> dict[str, float]:
    """All estimates, however little the log says."""
    laws = list_target_distributions(log, target)
    found = compute_estimates(log, laws, weight_rounds(log, laws), (0.0, 1.0), 0.95)
    return {one.name: one.value for one in found}


def moved(q: Floats, members: tuple[int, ...], got: float) -> Floats:
    """What a policy that learns would draw from next: more of those who were there."""
    q = q.copy()
    q[list(members)] *= 0.5 + 3 * got
    return np.asarray(q / q.sum())


def independent(q: Floats, rounds: int, t: int = 0) -> Iterator[tuple[float, list[LogEntry]]]:
    """Every log that a policy which learns can write with two i.i.d. draws, and its chance."""
    if t == rounds:
        yield 1.0, []
        return
    for team in itertools.product(range(3), repeat=2):
        members = tuple(sorted(set(team)))
        got, odds = reward(members, t), tuple(q[list(team)].tolist())
        one = LogEntry(
            f"d{t}", t, tuple(TRIO.experts[i] for i in team), got, draw_probabilities=odds
        )
        for chance, rest in independent(moved(q, members, got), rounds, t + 1):
            yield math.prod(odds) * chance, [one, *rest]


def whole(q: Floats, rounds: int, t: int = 0) -> Iterator[tuple[float, list[LogEntry]]]:
    """The same for sets of exactly two."""
    if t == rounds:
        yield 1.0, []
        return
    law = FixedSizeSets(np.log(q), 2)
    for members in itertools.combinations(range(3), 2):
        got, chance = reward(members, t), float(np.exp(law.log_probability(np.array(members))))
        names = tuple(TRIO.experts[i] for i in members)
        one = LogEntry(f"d{t}", t, names, got, propensity=chance)
        for more, rest in whole(moved(q, members, got), rounds, t + 1):
            yield chance * more, [one, *rest]


def truth(law: PanelDistribution, rounds: int) -> float:
    """The mean over rounds of what the law earns, over all panels."""
    return sum(
        chance * reward(tuple(members.tolist()), t) / rounds
        for members, chance in chances(law, 3, 2)
        for t in range(rounds)
    )


@pytest.mark.parametrize(
    ("logs", "target"),
    [
        (independent, make_iid_target(TRIO, {"a": 5, "b": 1, "c": 2})),
        (independent, make_fixed_size_target(TRIO, {"a": 5, "b": 1, "c": 2})),
        (whole, make_fixed_size_target(TRIO, {"a": 5, "b": 1, "c": 2})),
        (whole, make_uniform_target(TRIO)),
    ],
    ids=["draws from draws", "sets from draws", "sets from sets", "uniform from sets"],
)
def test_estimates_from_logs_that_learn_are_exact_in_expectation(
    logs: Callable[[Floats, int], Iterator[tuple[float, list[LogEntry]]]], target: EvaluationTarget
) -> None:
    mean: dict[str, float] = {}
    for chance, written in logs(np.array([0.2, 0.3, 0.5]), 3):
        for name, value in values_of(log_from_entries(TRIO, written), target).items():
            mean[name] = mean.get(name, 0.0) + chance * value
    exact = truth(target.law(None, ALL), 3)
    for name in UNBIASED:
        if name in mean:
            assert mean[name] == pytest.approx(exact, abs=1e-9), name
    assert ("draw weights" in mean) == (logs is independent and target.name == "draws")
    assert not abs(mean["self-normalised"] - exact) < 1e-3  # which claims no such thing


def test_a_model_of_later_rounds_would_be_biased() -> None:
    target = make_iid_target(TRIO, {"a": 5, "b": 1, "c": 2})
    law, bias = target.law(None, ALL), -truth(target.law(None, ALL), 2)
    for chance, written in independent(np.array([0.2, 0.3, 0.5]), 2):
        log = log_from_entries(TRIO, written)
        sample = weight_rounds(log, [law])
        first, second = build_membership_matrix(log, sample.rounds).toarray()
        slope = sample.rewards[1] * second / 2  # of the second round, used for the first
        terms = law.inclusion @ slope + sample.weights[0] * (sample.rewards[0] - first @ slope)
        bias += chance * (terms + sample.weights[1] * sample.rewards[1]) / 2
    assert abs(bias) > 1e-3


shares = st.lists(st.floats(0.05, 1.0), min_size=2, max_size=6)


def moments(chance: list[float], terms: list[float]) -> tuple[float, float]:
    """Mean and variance."""
    p, x = np.array(chance), np.array(terms)
    return float(p @ x), float(p @ (x - p @ x) ** 2)


@given(raw=shares, data=st.data(), M=st.integers(1, 3))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_weights_of_sets_have_the_same_mean_and_no_larger_variance_than_those_of_draws(
    raw: list[float], data: st.DataObject, M: int
) -> None:
    other = data.draw(st.lists(st.floats(0.0, 1.0), min_size=len(raw), max_size=len(raw)))
    q = np.array(raw) / sum(raw)
    p = (np.array(other) + 1e-3) / sum(np.array(other) + 1e-3)
    ours, theirs = IidSets(p, M), IidSets(q, M)
    by_draws: tuple[list[float], list[float]] = ([], [])
    by_sets: tuple[list[float], list[float]] = ([], [])
    for team in itertools.product(range(q.size), repeat=M):
        a, members = np.array(team), tuple(sorted(set(team)))
        by_draws[0].append(float(q[a].prod()))
        by_draws[1].append(float(p[a].prod() / q[a].prod()) * reward(members, 0))
    for members, chance in by_sequences(q, M).items():
        a = np.array(members)
        by_sets[0].append(chance)
        by_sets[1].append(
            math.exp(ours.log_probability(a) - theirs.log_probability(a)) * reward(members, 0)
        )
    mean, variance = moments(*by_draws)
    assert moments(*by_sets)[0] == pytest.approx(mean, abs=1e-9)
    assert moments(*by_sets)[1] <= variance * (1 + 1e-9) + 1e-12


@given(raw=shares, M=st.integers(1, 3), seed=st.integers(0, 99), as_one=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=60)
def test_whatever_the_model_the_doubly_robust_terms_have_the_right_mean(
    raw: list[float], M: int, seed: int, as_one: bool
) -> None:
    K, rng = len(raw), np.random.default_rng(seed)
    q, p, slope = np.array(raw) / sum(raw), rng.dirichlet(np.ones(K)), rng.normal(size=K)
    theirs: PanelDistribution = FixedSizeSets(np.log(q), min(M, K)) if as_one else IidSets(q, M)
    ours: PanelDistribution = FixedSizeSets(np.log(p), min(M, K)) if as_one else IidSets(p, M)
    value = right = 0.0
    for a, chance in chances(theirs, K, M):
        if chance > 0:
            got, weight = reward(tuple(a.tolist()), 0), math.exp(ours.log_probability(a)) / chance
            told, expected = np.array([slope[a].sum()]), np.array([ours.inclusion @ slope])
            one = estimate_doubly_robust(np.array([weight]), np.array([got]), told, expected, 0.95)
            value, right = value + chance * one.value, right + chance * weight * got
    assert value == pytest.approx(right, abs=1e-9)


def test_with_three_draws_the_variance_is_smaller_in_fact() -> None:
    log = log_from_entries(
        five(draws=3), entries_from_trace(simulate(five(draws=3), steady(), "omd", rounds=2_000))
    )
    found = evaluate_target(
        log, make_iid_target(five(draws=3), {"ann": 1, "bob": 2, "cat": 4, "dan": 2, "eve": 4})
    )
    errors = {one.name: one.error for one in found.estimates}
    assert errors["set weights"] < errors["draw weights"]
    assert errors["doubly robust"] < 0.5 * errors["set weights"]
