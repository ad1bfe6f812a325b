"""Capacity for contexts: as declared, or as the policy allows, and checked at creation."""

from functools import partial
from pathlib import Path

import pytest

from bylot import Problem, Router
from bylot.errors import DecisionError, PolicyError
from bylot.eventlog.audit import audit_router
from bylot.policies import noisy_or
from sample_problem import make_five_expert_problem
from stored_router import StoredRouter

SIX_CONTEXTS = noisy_or.count_posterior_bytes(6, 5)  # bytes, with five experts


def test_a_context_beyond_the_capacity_is_refused_and_the_others_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(noisy_or, "MAX_POSTERIOR_BYTES", SIX_CONTEXTS)
    router = Router(make_five_expert_problem(), "noisy-or")
    assert router.status().max_contexts == 6
    for n in range(6):  # not twice four, which would not fit
        router.decide(f"context {n}")
    with pytest.raises(DecisionError, match="number 7, and this router has capacity for 6; use co"):
        router.decide("context 6")
    assert router.decide("context 3").t == 6


def test_more_contexts_than_fit_cannot_be_declared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(noisy_or, "MAX_POSTERIOR_BYTES", SIX_CONTEXTS)
    assert Router(make_five_expert_problem(), "noisy-or", max_contexts=6).status().max_contexts == 6
    with pytest.raises(
        PolicyError, match="room for what noisy-or remembers of 6 contexts; declare"
    ):
        Router(make_five_expert_problem(), "noisy-or", max_contexts=7)
    assert Router(make_five_expert_problem(), "distinct", max_contexts=7).status().max_contexts == 7
    create_stored_router = partial(
        StoredRouter.create,
        f"sqlite:///{tmp_path}/bylot.db",
        "all",
        make_five_expert_problem(),
        "noisy-or",
    )
    with pytest.raises(PolicyError, match="declare at most 6"):
        create_stored_router(max_contexts=7)
    with create_stored_router(max_contexts=6) as router:
        assert router.status().max_contexts == 6


def test_the_default_capacity_of_a_stored_router_is_what_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(noisy_or, "MAX_POSTERIOR_BYTES", SIX_CONTEXTS)
    address = f"sqlite:///{tmp_path}/bylot.db"
    for policy, most in (("noisy-or", 4), ("distinct", 1_000)):
        with StoredRouter.create(address, policy, make_five_expert_problem(), policy) as router:
            assert router.status().max_contexts == most
            router.decide("chest pain")
            assert audit_router(router.handler.store, policy).fault is None


def test_a_larger_pool_is_refused_if_the_contexts_in_use_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Eight contexts of five experts, six of six
    monkeypatch.setattr(noisy_or, "MAX_POSTERIOR_BYTES", noisy_or.count_posterior_bytes(8, 5))
    old = make_five_expert_problem()
    larger = Problem(
        [*old.experts, "zoe"],
        {name: [*row, 0.0] for name, row in old.costs.items()},
        old.limits,
        draws=old.draws,
        floor=old.floor,
    )
    for used in (6, 7):
        router = Router(old, "noisy-or", seed=3)
        for n in range(3 * used):
            router.reward(router.decide(f"context {n % used}").id, 0.5)
        assert len(router.core.state.visits) == 8
        if used == 6:
            router.change(larger)
            assert (router.status().max_contexts, len(router.core.state.visits)) == (6, 6)
            assert {router.decide(f"context {n}").t for n in range(6)} == set(range(18, 24))
        else:
            with pytest.raises(
                PolicyError, match="for 6 contexts, and the router has 7; add fewer"
            ):
                router.change(larger)
            assert router.problem == old
