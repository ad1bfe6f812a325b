"""auto: the problem says which policy, and everybody who takes a policy takes it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bylot import Router, policies, simulate
from bylot.environments import Given
from bylot.errors import PolicyError
from bylot.eventlog.stored_router import StoredRouter
from bylot.policies import Auto, Distinct, NoisyOr, Policy, Tangent, noisy_or, registry
from bylot.problem import Problem, at_most
from small import five

TIGHT = Problem(["ann", "bob", "cat"], {"usd": [1.0, 2.0, 4.0]}, [at_most("usd", 2.5)], draws=2)


def sized(size: int) -> Problem:
    """A pool of so many, without limits."""
    return Problem([f"e{n}" for n in range(size)], {}, draws=2)


@pytest.mark.parametrize(
    ("asked", "problem", "taken"),
    [
        (Auto(), five(), Distinct()),
        (Auto(), TIGHT, Tangent()),
        (Auto(propensities=False), TIGHT, Tangent()),
        (Auto(propensities=False), five(), NoisyOr()),
        (Auto(propensities=False), sized(registry.MAX_NOISY_OR_EXPERTS), NoisyOr()),
        (Auto(propensities=False), sized(registry.MAX_NOISY_OR_EXPERTS + 1), Distinct()),
        (
            Auto(propensities=False, contexts=10_000),
            sized(registry.MAX_NOISY_OR_EXPERTS),
            Distinct(),
        ),
    ],
)
def test_the_problem_says_which(asked: Auto, problem: Problem, taken: Policy) -> None:
    assert policies.resolve_policy(asked, problem) == taken


def test_what_panel_is_given_it_can_bear() -> None:
    problem = sized(registry.MAX_NOISY_OR_EXPERTS)
    most = noisy_or.MAX_POSTERIOR_BYTES // (8 * problem.size**2)
    taken = Auto(propensities=False, contexts=most).resolve(problem)
    assert isinstance(taken, NoisyOr)
    taken.start(taken.bind(problem), most)
    assert Auto(propensities=False, contexts=most + 1).resolve(problem) == Distinct()


def test_contexts_that_were_declared_count_unless_others_are_told(tmp_path: Path) -> None:
    problem = sized(registry.MAX_NOISY_OR_EXPERTS)
    asked = Auto(propensities=False)
    assert Router(problem, asked).policy == NoisyOr()
    assert Router(problem, asked, max_contexts=4_000).policy == Distinct()
    assert registry.fill_auto_contexts(replace(asked, contexts=3), 4_000) == replace(
        asked, contexts=3
    )
    address = f"sqlite:///{tmp_path}/b.db"
    words = "auto:propensities=false"
    with StoredRouter.create(address, "many", problem, words, max_contexts=4_000) as router:
        assert router.policy == Distinct()


def test_a_policy_that_is_named_is_not_chosen() -> None:
    assert policies.resolve_policy("omd", TIGHT) == policies.POLICIES["omd"]
    with pytest.raises(PolicyError, match="cannot keep"):
        Router(TIGHT, "distinct")


def test_routers_and_simulations_are_left_to_the_problem_unless_told() -> None:
    values = Given(np.full((3, 1, 3), 0.5))
    assert Router(TIGHT).policy == Tangent()
    assert simulate(TIGHT, values, rounds=3).policy == Tangent()
    assert Router(five(), Auto(propensities=False)).policy == NoisyOr()


def test_a_stored_router_has_the_policy_that_was_chosen(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/b.db"
    with StoredRouter.create(place, "triage", TIGHT) as router:
        made = router.decide()
        router.reward(made.id, 0.5)
    with StoredRouter.open(place, "triage") as router:
        assert router.policy == Tangent()


def test_settings_are_written_and_read_back() -> None:
    asked = Auto(propensities=False, contexts=7)
    assert policies.policy_from_data(policies.policy_to_data(asked)) == asked
    with pytest.raises(PolicyError, match="upgrade"):
        policies.policy_from_data({**policies.policy_to_data(asked), "more": 1})


@pytest.mark.parametrize("wrong", [{"contexts": 0}, {"contexts": 1.5}, {"propensities": "yes"}])
def test_settings_that_are_none_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(PolicyError):
        replace(Auto(), **wrong)  # type: ignore[arg-type]
