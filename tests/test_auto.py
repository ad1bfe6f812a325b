"""auto: the problem determines the policy, in routers, simulations and stored routers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bylot import Router, policies, simulate
from bylot.environments import Given
from bylot.errors import PolicyError, SmallerPanelsWarning
from bylot.policies import Auto, Distinct, NoisyOr, Policy, Tangent, noisy_or, registry
from bylot.problem import Problem, at_most
from bylot.router.edits import change_problem
from sample_problem import make_five_expert_problem
from stored_router import StoredRouter

TIGHT = Problem(["ann", "bob", "cat"], {"usd": [1.0, 2.0, 4.0]}, [at_most("usd", 2.5)], draws=2)
THREE = Problem(list("abcd"), {"usd": [1.0, 1.0, 1.0, 2.0]}, [at_most("usd", 2.5)], draws=3)


def make_problem_of_size(size: int) -> Problem:
    """A problem with this number of experts, without limits."""
    return Problem([f"e{n}" for n in range(size)], {}, draws=2)


@pytest.mark.parametrize(
    ("requested", "problem", "expected"),
    [
        (Auto(), make_five_expert_problem(), Distinct()),
        (Auto(), TIGHT, Tangent()),
        (Auto(propensities=False), TIGHT, Tangent()),
        (Auto(), TIGHT.replace(min_draws=1), Tangent()),
        (Auto(propensities=False), TIGHT.replace(min_draws=1), NoisyOr()),
        (Auto(), THREE.replace(min_draws=2), NoisyOr()),  # no other policy can run
        (Auto(), make_five_expert_problem().replace(min_draws=1), Distinct()),
        (Auto(propensities=False), make_five_expert_problem(), NoisyOr()),
        (Auto(propensities=False), make_problem_of_size(registry.MAX_NOISY_OR_EXPERTS), NoisyOr()),
        (
            Auto(propensities=False),
            make_problem_of_size(registry.MAX_NOISY_OR_EXPERTS + 1),
            Distinct(),
        ),
        (
            Auto(propensities=False, contexts=100_000),
            make_problem_of_size(registry.MAX_NOISY_OR_EXPERTS),
            Distinct(),
        ),
    ],
)
def test_the_problem_determines_the_policy(
    requested: Auto, problem: Problem, expected: Policy
) -> None:
    assert policies.resolve_policy(requested, problem) == expected


def test_auto_selects_noisy_or_only_if_its_posterior_fits() -> None:
    problem = make_problem_of_size(registry.MAX_NOISY_OR_EXPERTS)
    most = NoisyOr().max_contexts(problem.size)
    assert noisy_or.count_posterior_bytes(most + 1, problem.size) > noisy_or.MAX_POSTERIOR_BYTES
    expected = Auto(propensities=False, contexts=most).resolve(problem)
    assert isinstance(expected, NoisyOr)
    assert Auto(propensities=False, contexts=most + 1).resolve(problem) == Distinct()


def test_auto_uses_the_declared_contexts_unless_its_own_are_given(tmp_path: Path) -> None:
    problem = make_problem_of_size(registry.MAX_NOISY_OR_EXPERTS)
    requested = Auto(propensities=False)
    assert Router(problem, requested).policy == NoisyOr()
    assert Router(problem, requested, max_contexts=100_000).policy == Distinct()
    assert registry.fill_auto_contexts(replace(requested, contexts=3), 100_000) == replace(
        requested, contexts=3
    )
    address = f"sqlite:///{tmp_path}/b.db"
    spec = "auto:propensities=false"
    with StoredRouter.create(address, "many", problem, spec, max_contexts=100_000) as router:
        assert router.policy == Distinct()


def test_a_named_policy_is_not_replaced() -> None:
    assert policies.resolve_policy("omd", TIGHT) == policies.POLICIES["omd"]
    with pytest.raises(PolicyError, match="cannot keep"):
        Router(TIGHT, "distinct")


def test_routers_and_simulations_use_auto_by_default() -> None:
    values = Given(np.full((3, 1, 3), 0.5))
    with pytest.warns(SmallerPanelsWarning, match="panels of 2 different experts cannot keep"):
        assert Router(TIGHT).policy == Tangent()
    Router(TIGHT, "tangent")  # by name, and so without a warning
    Router(TIGHT.replace(min_draws=1))  # declared
    assert simulate(TIGHT, values, rounds=3).policy == Tangent()
    assert Router(make_five_expert_problem(), Auto(propensities=False)).policy == NoisyOr()


def test_a_stored_router_has_the_policy_that_was_chosen(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/b.db"
    with StoredRouter.create(address, "triage", TIGHT) as router:
        decision = router.decide()
        router.reward(decision.id, 0.5)
    with StoredRouter(address, "triage") as router:
        assert router.policy == Tangent()


def test_settings_are_written_and_read_back() -> None:
    requested = Auto(propensities=False, contexts=7)
    assert policies.policy_from_data(policies.policy_to_data(requested)) == requested
    with pytest.raises(PolicyError, match="upgrade"):
        policies.policy_from_data({**policies.policy_to_data(requested), "more": 1})


@pytest.mark.parametrize("wrong", [{"contexts": 0}, {"contexts": 1.5}, {"propensities": "yes"}])
def test_invalid_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(PolicyError):
        replace(Auto(), **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["tangent", "strict", "omd"])
def test_policies_that_draw_with_replacement_refuse_a_minimum_of_members(policy: str) -> None:
    problem = make_five_expert_problem().replace(min_draws=2)
    expected = (
        f"{policy} draws with replacement, so that a panel may have one member only; "
        "use 'noisy-or', which asks from min_draws=2 to 2 different experts, or leave min_draws out"
    )
    with pytest.raises(PolicyError) as refusal:
        Router(problem, policy)
    assert str(refusal.value) == expected
    router = Router(problem.replace(min_draws=1), policy)
    with pytest.raises(PolicyError, match="one member only; loosen the limits or change"):
        change_problem(router.core, problem)


def test_distinct_asks_full_panels_or_names_the_policy_to_take() -> None:
    problem = make_five_expert_problem()
    assert len(Router(problem.replace(min_draws=1), "distinct").decide().subset) == 2
    with pytest.raises(
        PolicyError,
        match=r"2 different experts every time.* use 'noisy-or', which may ask 1, or fewer draws",
    ):
        Router(TIGHT.replace(min_draws=1), "distinct")
