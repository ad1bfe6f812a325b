"""Distributions over panels and targets made of them, compared with enumeration."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from bylot import Router, iid_optimum, optimum
from bylot.distributions import FixedSizeSets, IidSets, MixedSets, PanelDistribution
from bylot.errors import TargetError
from bylot.evaluate import (
    make_fixed_size_target,
    make_iid_target,
    make_optimum_target,
    make_panel_target,
    make_router_target,
    make_uniform_target,
)
from bylot.numerics.jit import Bools, Floats, Ints
from sample_problem import make_five_expert_problem, make_recorded_environment

ALL_AVAILABLE = np.empty(0, np.bool_)
weights = st.lists(st.sampled_from([0.0, 1e-6, 0.1, 0.5, 1.0, 3.0]), min_size=2, max_size=6)


def list_panels(K: int, most: int) -> list[Ints]:
    """Every set of one to `most` experts."""
    return [
        np.array(members)
        for size in range(1, min(K, most) + 1)
        for members in itertools.combinations(range(K), size)
    ]


def list_panel_probabilities(
    distribution: PanelDistribution, K: int, most: int
) -> list[tuple[Ints, float]]:
    """Every panel and its probability."""
    return [
        (members, float(np.exp(distribution.log_probability(members))))
        for members in list_panels(K, most)
    ]


def sum_over_sequences(q: Floats, M: int) -> dict[tuple[int, ...], float]:
    """The probability of every set, summed over all K^M sequences of draws."""
    total: dict[tuple[int, ...], float] = {}
    for draws in itertools.product(range(q.size), repeat=M):
        members = tuple(sorted(set(draws)))
        total[members] = total.get(members, 0.0) + float(q[list(draws)].prod())
    return total


def make_distributions(raw: list[float], M: int) -> list[PanelDistribution]:
    """One distribution of each kind with these weights."""
    w = np.array(raw)
    positive = int(np.count_nonzero(w))
    with np.errstate(divide="ignore"):
        one = FixedSizeSets(np.log(w / w.max()), min(M, positive))
    other = FixedSizeSets(np.where(w > 0, 0.0, -np.inf), min(M, positive))
    return [
        IidSets(w / w.sum(), M),
        one,
        MixedSets([one, other], np.array([0.7, 0.3])),
        FixedSizeSets(np.where(w > 0, 0.0, -np.inf), positive),  # the same panel in every round
    ]


def assert_equals_enumeration(
    distribution: PanelDistribution, K: int, M: int, group: Bools
) -> None:
    """Assert that probabilities sum to 1 and that inclusion and counts are those of enumeration."""
    inside, counts = np.zeros(K), np.zeros(distribution.group_counts(group).shape)
    for members, probability in list_panel_probabilities(distribution, K, max(M, K)):
        inside[members] += probability
        if probability > 0:
            j = int(group[members].sum())
            counts[j, members.size - j] += probability
    assert_allclose(counts.sum(), 1.0, atol=1e-9)
    assert_allclose(distribution.inclusion, inside, atol=1e-9)
    assert_allclose(distribution.group_counts(group), counts, atol=1e-9)


@given(raw=weights.filter(any), M=st.integers(1, 3), group=st.lists(st.booleans(), min_size=6))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_inclusion_and_counts_of_every_distribution_equal_enumeration(
    raw: list[float], M: int, group: list[bool]
) -> None:
    for distribution in make_distributions(raw, M):
        assert_equals_enumeration(distribution, len(raw), M, np.array(group[: len(raw)]))


def test_the_probability_of_a_set_is_that_of_all_its_sequences() -> None:
    q = np.array([0.1, 0.2, 0.0, 0.3, 0.4])
    for members, probability in sum_over_sequences(q, 3).items():
        assert_allclose(
            np.exp(IidSets(q, 3).log_probability(np.array(members))), probability, atol=1e-12
        )
    assert_allclose(
        np.exp(IidSets(q, 3).log_draw_probability(np.array([0, 4, 4]))), 0.1 * 0.4 * 0.4
    )
    assert IidSets(q, 3).log_draw_probability(np.array([2, 0, 0])) == -np.inf


def test_the_test_above_would_notice_draws_without_replacement() -> None:
    q = np.array([0.1, 0.2, 0.3, 0.4])
    differences = [
        abs(np.exp(FixedSizeSets(np.log(q), 3).log_probability(np.array(members))) - probability)
        for members, probability in sum_over_sequences(q, 3).items()
    ]
    assert max(differences) > 0.01


@pytest.mark.parametrize("policy", ["omd", "tangent", "strict", "distinct", "random"])
def test_a_router_draws_its_next_panel_from_its_target_distribution(policy: str) -> None:
    router = Router(make_five_expert_problem(), policy, seed=4)
    rng = np.random.default_rng(0)
    router.reward(router.decide().id, 0.5)
    for available in [None] * 45 + [
        ["ann", "cat", "dan"]
    ] * 8:  # over updates, which change the distribution
        available_mask = (
            ALL_AVAILABLE if available is None else router.core.mask_available(available)
        )
        expected = make_router_target(router.problem, router).distribution(None, available_mask)
        decision = router.decide(available=available)
        if not decision.replaced:
            index = [router.problem.experts.index(name) for name in decision.subset]
            probability = decision.propensity
            assert probability is not None
            if decision.draw_probabilities:  # of one order, or of two
                exact = float(len(index) * np.prod(decision.draw_probabilities))
                assert_allclose(probability, exact, rtol=1e-9)
            assert_allclose(
                np.exp(expected.log_probability(np.array(index))), probability, rtol=1e-9
            )
        router.reward(decision.id, float(rng.random()))


def test_unavailable_experts_are_never_drawn() -> None:
    problem = make_five_expert_problem()
    available_mask = np.array([True, True, False, True, False])
    shares = {"ann": 1, "bob": 1, "cat": 2}
    assert_allclose(
        make_iid_target(problem, shares).distribution(None, available_mask).inclusion,
        [0.75, 0.75, 0, 0, 0],
    )
    assert_allclose(
        make_uniform_target(problem).distribution(None, available_mask).inclusion,
        [2 / 3, 2 / 3, 0, 2 / 3, 0],
    )
    assert_allclose(
        make_panel_target(problem, ["ann", "eve"]).distribution(None, available_mask).inclusion,
        [1, 0, 0, 0, 0],
    )
    only_ann = np.array([True, False, False, False, False])
    assert_allclose(
        make_fixed_size_target(problem, shares).distribution(None, only_ann).inclusion,
        [1, 0, 0, 0, 0],
    )


def test_a_target_can_differ_by_context() -> None:
    problem = make_five_expert_problem()
    target = make_iid_target(problem, {"chest": {"ann": 1}, "head": {"bob": 1}})
    assert_allclose(target.distribution("head", ALL_AVAILABLE).inclusion, [0, 1, 0, 0, 0])
    with pytest.raises(TargetError, match="has no weights for context 'skin'"):
        target.distribution("skin", ALL_AVAILABLE)


def test_an_optimum_is_a_target_with_its_contexts() -> None:
    problem, environment = make_five_expert_problem(), make_recorded_environment(200, contexts=2)
    found = iid_optimum(
        problem, environment.values, contexts=environment.index, floor=True, each_context=True
    )
    distribution = make_optimum_target(problem, found).distribution("1", ALL_AVAILABLE)
    assert isinstance(distribution, IidSets)
    assert_allclose(distribution.q, found.policy[1])
    alone = make_optimum_target(problem, iid_optimum(problem, environment.values, floor=True))
    assert alone.distribution("anything", ALL_AVAILABLE).inclusion.shape == (5,)
    with pytest.raises(TargetError, match=r"give what bylot.iid_optimum returned"):
        make_optimum_target(problem, optimum(problem, environment.values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: make_iid_target(p, {"anne": 1}), "did you mean 'ann'"),
        (lambda p: make_iid_target(p, {"ann": -1}), "invalid weight .* expected a number >= 0"),
        (lambda p: make_iid_target(p, {"ann": True}), "invalid weight .* expected a number >= 0"),
        (lambda p: make_iid_target(p, {"ann": 0}), "no expert has a weight"),
        (lambda p: make_iid_target(p, {}), "no expert has a weight"),
        (
            lambda p: make_iid_target(p, {"ann": 1, "head": {"bob": 1}}),
            "mixes weights by name with weights by context",
        ),
        (
            lambda p: make_fixed_size_target(p, {"ann": 1}),
            "1 experts have a weight, but 2 different",
        ),
        (lambda p: make_panel_target(p, []), "names no expert"),
        (lambda p: make_panel_target(p, ["bo"]), "unknown expert 'bo'"),
        (
            lambda p: make_iid_target(p, {"ann": 1}).distribution(None, np.arange(5) > 2),
            "none of its experts is available",
        ),
        (
            lambda p: make_fixed_size_target(p, {"ann": 1, "bob": 1}).distribution(
                None, np.arange(5) > 2
            ),
            "none of its experts is available",
        ),
        (
            lambda p: make_panel_target(p, ["ann"]).distribution(None, np.arange(5) > 2),
            "none of its experts is available",
        ),
    ],
)
def test_an_invalid_target_is_refused(make: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(TargetError, match=words):
        make(make_five_expert_problem())


def test_a_router_without_a_distribution_or_with_other_experts_is_refused() -> None:
    problem = make_five_expert_problem()
    router = Router(problem, "greedy")
    with pytest.raises(TargetError, match="never saw"):
        make_router_target(problem, router).distribution("head", ALL_AVAILABLE)
    router.decide()
    with pytest.raises(TargetError, match="does not draw from a known distribution"):
        make_router_target(problem, router).distribution(None, ALL_AVAILABLE)
    other = type(problem)(problem.experts[::-1], {}, draws=2)
    with pytest.raises(TargetError, match="other experts than the problem"):
        make_router_target(other, router)
