"""Laws of panels and targets made of them, against sums over all panels."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from bylot import Router, optimum
from bylot.distributions import ConstantSet, FixedSizeSets, IidSets, MixedSets, PanelDistribution
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
from small import five, recorded

ALL = np.empty(0, np.bool_)
weights = st.lists(st.sampled_from([0.0, 1e-6, 0.1, 0.5, 1.0, 3.0]), min_size=2, max_size=6)


def panels(K: int, most: int) -> list[Ints]:
    """Every set of one to `most` experts."""
    return [
        np.array(members)
        for size in range(1, min(K, most) + 1)
        for members in itertools.combinations(range(K), size)
    ]


def chances(law: PanelDistribution, K: int, most: int) -> list[tuple[Ints, float]]:
    """Every panel and its chance."""
    return [(members, float(np.exp(law.log_probability(members)))) for members in panels(K, most)]


def by_sequences(q: Floats, M: int) -> dict[tuple[int, ...], float]:
    """The chance of every set, added up over all K^M sequences of draws."""
    total: dict[tuple[int, ...], float] = {}
    for team in itertools.product(range(q.size), repeat=M):
        members = tuple(sorted(set(team)))
        total[members] = total.get(members, 0.0) + float(q[list(team)].prod())
    return total


def laws(raw: list[float], M: int) -> list[PanelDistribution]:
    """One law of each kind on these weights."""
    w = np.array(raw)
    can = int(np.count_nonzero(w))
    with np.errstate(divide="ignore"):
        one = FixedSizeSets(np.log(w / w.max()), min(M, can))
    other = FixedSizeSets(np.where(w > 0, 0.0, -np.inf), min(M, can))
    return [
        IidSets(w / w.sum(), M),
        one,
        MixedSets([one, other], np.array([0.7, 0.3])),
        ConstantSet(w > 0),
    ]


def check(law: PanelDistribution, K: int, M: int, group: Bools) -> None:
    """Chances add up to one; chances to be a member and counts are those of enumeration."""
    inside, counts = np.zeros(K), np.zeros(law.group_counts(group).shape)
    for members, chance in chances(law, K, max(M, K)):
        inside[members] += chance
        if chance > 0:
            j = int(group[members].sum())
            counts[j, members.size - j] += chance
    assert_allclose(counts.sum(), 1.0, atol=1e-9)
    assert_allclose(law.inclusion, inside, atol=1e-9)
    assert_allclose(law.group_counts(group), counts, atol=1e-9)


@given(raw=weights.filter(any), M=st.integers(1, 3), group=st.lists(st.booleans(), min_size=6))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_members_and_counts_of_every_law_are_those_of_enumeration(
    raw: list[float], M: int, group: list[bool]
) -> None:
    for law in laws(raw, M):
        check(law, len(raw), M, np.array(group[: len(raw)]))


def test_a_set_is_as_likely_as_all_sequences_that_make_it() -> None:
    q = np.array([0.1, 0.2, 0.0, 0.3, 0.4])
    for members, chance in by_sequences(q, 3).items():
        assert_allclose(
            np.exp(IidSets(q, 3).log_probability(np.array(members))), chance, atol=1e-12
        )
    assert_allclose(
        np.exp(IidSets(q, 3).log_draw_probability(np.array([0, 4, 4]))), 0.1 * 0.4 * 0.4
    )
    assert IidSets(q, 3).log_draw_probability(np.array([2, 0, 0])) == -np.inf


def test_the_test_above_would_notice_draws_without_replacement() -> None:
    q = np.array([0.1, 0.2, 0.3, 0.4])
    apart = [
        abs(np.exp(FixedSizeSets(np.log(q), 3).log_probability(np.array(members))) - chance)
        for members, chance in by_sequences(q, 3).items()
    ]
    assert max(apart) > 0.01


@pytest.mark.parametrize("policy", ["omd", "tangent", "strict", "distinct", "random"])
def test_the_law_of_a_router_is_the_one_its_next_panel_is_drawn_from(policy: str) -> None:
    router = Router(five(), policy, seed=4)
    rng = np.random.default_rng(0)
    router.reward(router.decide().id, 0.5)
    for available in [None] * 45 + [["ann", "cat", "dan"]] * 8:  # over steps, which move the law
        up = ALL if available is None else router.up(available)
        told = make_router_target(router.problem, router).law(None, up)
        decision = router.decide(available=available)
        if not decision.replaced:
            index = [router.problem.experts.index(name) for name in decision.subset]
            chance = decision.propensity
            assert chance is not None
            if decision.draw_probabilities:  # of one order, or of two
                exact = float(len(index) * np.prod(decision.draw_probabilities))
                assert_allclose(chance, exact, rtol=1e-9)
            assert_allclose(np.exp(told.log_probability(np.array(index))), chance, rtol=1e-9)
        router.reward(decision.id, float(rng.random()))


def test_whoever_is_down_has_no_chance_and_the_others_share_it() -> None:
    problem = five()
    up = np.array([True, True, False, True, False])
    shares = {"ann": 1, "bob": 1, "cat": 2}
    assert_allclose(make_iid_target(problem, shares).law(None, up).inclusion, [0.75, 0.75, 0, 0, 0])
    assert_allclose(
        make_uniform_target(problem).law(None, up).inclusion, [2 / 3, 2 / 3, 0, 2 / 3, 0]
    )
    assert_allclose(
        make_panel_target(problem, ["ann", "eve"]).law(None, up).inclusion, [1, 0, 0, 0, 0]
    )
    few = np.array([True, False, False, False, False])
    assert_allclose(
        make_fixed_size_target(problem, shares).law(None, few).inclusion, [1, 0, 0, 0, 0]
    )


def test_a_target_may_differ_by_context() -> None:
    problem = five()
    target = make_iid_target(problem, {"chest": {"ann": 1}, "head": {"bob": 1}})
    assert_allclose(target.law("head", ALL).inclusion, [0, 1, 0, 0, 0])
    with pytest.raises(TargetError, match="says nothing of context 'skin'"):
        target.law("skin", ALL)


def test_the_optimum_is_a_target_with_the_contexts_it_was_found_for() -> None:
    problem, world = five(), recorded(200, contexts=2)
    found = optimum(problem, world.values, contexts=world.index)
    law = make_optimum_target(problem, found).law("1", ALL)
    assert isinstance(law, IidSets)
    assert_allclose(law.q, found.policy[1])
    alone = make_optimum_target(problem, optimum(problem, world.values))
    assert alone.law("anything", ALL).inclusion.shape == (5,)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: make_iid_target(p, {"anne": 1}), "did you mean 'ann'"),
        (lambda p: make_iid_target(p, {"ann": -1}), "is no number of 0 or more"),
        (lambda p: make_iid_target(p, {"ann": True}), "is no number of 0 or more"),
        (lambda p: make_iid_target(p, {"ann": 0}), "nobody has a weight"),
        (lambda p: make_iid_target(p, {}), "nobody has a weight"),
        (lambda p: make_iid_target(p, {"ann": 1, "head": {"bob": 1}}), "some weights are numbers"),
        (
            lambda p: make_fixed_size_target(p, {"ann": 1}),
            "1 experts have a weight, but 2 different",
        ),
        (lambda p: make_panel_target(p, []), "no expert is named"),
        (lambda p: make_panel_target(p, ["bo"]), "there is no expert 'bo'"),
        (
            lambda p: make_iid_target(p, {"ann": 1}).law(None, np.arange(5) > 2),
            "nobody it could ask",
        ),
        (
            lambda p: make_fixed_size_target(p, {"ann": 1, "bob": 1}).law(None, np.arange(5) > 2),
            "nobody it could",
        ),
        (
            lambda p: make_panel_target(p, ["ann"]).law(None, np.arange(5) > 2),
            "nobody it could ask",
        ),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(make: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(TargetError, match=words):
        make(five())


def test_a_router_without_a_law_or_of_other_experts_is_no_target() -> None:
    problem = five()
    router = Router(problem, "greedy")
    with pytest.raises(TargetError, match="never saw"):
        make_router_target(problem, router).law("head", ALL)
    router.decide()
    with pytest.raises(TargetError, match="does not draw from a law"):
        make_router_target(problem, router).law(None, ALL)
    other = type(problem)(problem.experts[::-1], {}, draws=2)
    with pytest.raises(TargetError, match="other experts than the problem"):
        make_router_target(other, router)
