"""Off-policy estimates are unbiased, by enumeration of all possible logs; and their variances."""

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
from logged_decisions import TRIO, compute_reward
from sample_problem import make_five_expert_problem, make_stationary_environment
from test_distributions import ALL_AVAILABLE, list_panel_probabilities, sum_over_sequences

UNBIASED = ("draw weights", "set weights", "doubly robust")


def estimate_all(log: DecisionLog, target: EvaluationTarget) -> dict[str, float]:
    """All estimates, without a check of the overlap."""
    distributions = list_target_distributions(log, target)
    found = compute_estimates(
        log, distributions, weight_rounds(log, distributions), (0.0, 1.0), 0.95
    )
    return {one.name: one.value for one in found}


def update_distribution(q: Floats, members: tuple[int, ...], earned: float) -> Floats:
    """The next distribution of a learning policy: more weight on the members of the panel."""
    q = q.copy()
    q[list(members)] *= 0.5 + 3 * earned
    return np.asarray(q / q.sum())


def list_iid_logs(q: Floats, rounds: int, t: int = 0) -> Iterator[tuple[float, list[LogEntry]]]:
    """Every log of a learning policy with two i.i.d. draws, and its probability."""
    if t == rounds:
        yield 1.0, []
        return
    for draws in itertools.product(range(3), repeat=2):
        members = tuple(sorted(set(draws)))
        earned, q_drawn = compute_reward(members, t), tuple(q[list(draws)].tolist())
        one = LogEntry(
            f"d{t}", t, tuple(TRIO.experts[i] for i in draws), earned, draw_probabilities=q_drawn
        )
        for probability, rest in list_iid_logs(
            update_distribution(q, members, earned), rounds, t + 1
        ):
            yield math.prod(q_drawn) * probability, [one, *rest]


def list_set_logs(q: Floats, rounds: int, t: int = 0) -> Iterator[tuple[float, list[LogEntry]]]:
    """Every log of a learning policy with sets of exactly two, and its probability."""
    if t == rounds:
        yield 1.0, []
        return
    distribution = FixedSizeSets(np.log(q), 2)
    for members in itertools.combinations(range(3), 2):
        earned, probability = (
            compute_reward(members, t),
            float(np.exp(distribution.log_probability(np.array(members)))),
        )
        names = tuple(TRIO.experts[i] for i in members)
        one = LogEntry(f"d{t}", t, names, earned, propensity=probability)
        for rest_probability, rest in list_set_logs(
            update_distribution(q, members, earned), rounds, t + 1
        ):
            yield probability * rest_probability, [one, *rest]


def compute_exact_reward(distribution: PanelDistribution, rounds: int) -> float:
    """The expected reward of a distribution, by enumeration."""
    return sum(
        probability * compute_reward(tuple(members.tolist()), t) / rounds
        for members, probability in list_panel_probabilities(distribution, 3, 2)
        for t in range(rounds)
    )


@pytest.mark.parametrize(
    ("logs", "target"),
    [
        (list_iid_logs, make_iid_target(TRIO, {"a": 5, "b": 1, "c": 2})),
        (list_iid_logs, make_fixed_size_target(TRIO, {"a": 5, "b": 1, "c": 2})),
        (list_set_logs, make_fixed_size_target(TRIO, {"a": 5, "b": 1, "c": 2})),
        (list_set_logs, make_uniform_target(TRIO)),
    ],
    ids=["draws from draws", "sets from draws", "sets from sets", "uniform from sets"],
)
def test_estimates_from_logs_of_learning_policies_are_unbiased(
    logs: Callable[[Floats, int], Iterator[tuple[float, list[LogEntry]]]], target: EvaluationTarget
) -> None:
    mean: dict[str, float] = {}
    for probability, entries in logs(np.array([0.2, 0.3, 0.5]), 3):
        for name, value in estimate_all(log_from_entries(TRIO, entries), target).items():
            mean[name] = mean.get(name, 0.0) + probability * value
    exact = compute_exact_reward(target.distribution(None, ALL_AVAILABLE), 3)
    for name in UNBIASED:
        if name in mean:
            assert mean[name] == pytest.approx(exact, abs=1e-9), name
    assert ("draw weights" in mean) == (logs is list_iid_logs and target.name == "draws")
    assert not abs(mean["self-normalised"] - exact) < 1e-3  # which is biased


def test_a_model_of_later_rounds_would_be_biased() -> None:
    target = make_iid_target(TRIO, {"a": 5, "b": 1, "c": 2})
    distribution, bias = (
        target.distribution(None, ALL_AVAILABLE),
        -compute_exact_reward(target.distribution(None, ALL_AVAILABLE), 2),
    )
    for probability, entries in list_iid_logs(np.array([0.2, 0.3, 0.5]), 2):
        log = log_from_entries(TRIO, entries)
        sample = weight_rounds(log, [distribution])
        first, second = build_membership_matrix(log, sample.rounds).toarray()
        slope = sample.rewards[1] * second / 2  # of the second round, used for the first
        terms = distribution.inclusion @ slope + sample.weights[0] * (
            sample.rewards[0] - first @ slope
        )
        bias += probability * (terms + sample.weights[1] * sample.rewards[1]) / 2
    assert abs(bias) > 1e-3


shares = st.lists(st.floats(0.05, 1.0), min_size=2, max_size=6)


def moments(probability: list[float], terms: list[float]) -> tuple[float, float]:
    """Mean and variance."""
    p, x = np.array(probability), np.array(terms)
    return float(p @ x), float(p @ (x - p @ x) ** 2)


@given(raw=shares, data=st.data(), M=st.integers(1, 3))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_set_weights_have_the_mean_and_at_most_the_variance_of_draw_weights(
    raw: list[float], data: st.DataObject, M: int
) -> None:
    other = data.draw(st.lists(st.floats(0.0, 1.0), min_size=len(raw), max_size=len(raw)))
    q = np.array(raw) / sum(raw)
    p = (np.array(other) + 1e-3) / sum(np.array(other) + 1e-3)
    target, logging = IidSets(p, M), IidSets(q, M)
    by_draws: tuple[list[float], list[float]] = ([], [])
    by_sets: tuple[list[float], list[float]] = ([], [])
    for draws in itertools.product(range(q.size), repeat=M):
        a, members = np.array(draws), tuple(sorted(set(draws)))
        by_draws[0].append(float(q[a].prod()))
        by_draws[1].append(float(p[a].prod() / q[a].prod()) * compute_reward(members, 0))
    for members, probability in sum_over_sequences(q, M).items():
        a = np.array(members)
        by_sets[0].append(probability)
        by_sets[1].append(
            math.exp(target.log_probability(a) - logging.log_probability(a))
            * compute_reward(members, 0)
        )
    mean, variance = moments(*by_draws)
    assert moments(*by_sets)[0] == pytest.approx(mean, abs=1e-9)
    assert moments(*by_sets)[1] <= variance * (1 + 1e-9) + 1e-12


@given(raw=shares, M=st.integers(1, 3), seed=st.integers(0, 99), as_one=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=60)
def test_doubly_robust_estimates_are_unbiased_for_any_model(
    raw: list[float], M: int, seed: int, as_one: bool
) -> None:
    K, rng = len(raw), np.random.default_rng(seed)
    q, p, slope = np.array(raw) / sum(raw), rng.dirichlet(np.ones(K)), rng.normal(size=K)
    logging: PanelDistribution = FixedSizeSets(np.log(q), min(M, K)) if as_one else IidSets(q, M)
    target: PanelDistribution = FixedSizeSets(np.log(p), min(M, K)) if as_one else IidSets(p, M)
    value = exact = 0.0
    for a, probability in list_panel_probabilities(logging, K, M):
        if probability > 0:
            earned, weight = (
                compute_reward(tuple(a.tolist()), 0),
                math.exp(target.log_probability(a)) / probability,
            )
            predicted, expected = np.array([slope[a].sum()]), np.array([target.inclusion @ slope])
            one = estimate_doubly_robust(
                np.array([weight]), np.array([earned]), predicted, expected, 0.95
            )
            value, exact = value + probability * one.value, exact + probability * weight * earned
    assert value == pytest.approx(exact, abs=1e-9)


def test_set_weights_and_a_model_reduce_the_error() -> None:
    log = log_from_entries(
        make_five_expert_problem(draws=3),
        entries_from_trace(
            simulate(
                make_five_expert_problem(draws=3),
                make_stationary_environment(),
                "omd",
                rounds=2_000,
            )
        ),
    )
    found = evaluate_target(
        log,
        make_iid_target(
            make_five_expert_problem(draws=3), {"ann": 1, "bob": 2, "cat": 4, "dan": 2, "eve": 4}
        ),
    )
    errors = {one.name: one.error for one in found.estimates}
    assert errors["set weights"] < errors["draw weights"]
    assert errors["doubly robust"] < 0.5 * errors["set weights"]
