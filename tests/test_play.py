"""Playing a router round by round gives the trace of the compiled loop."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bylot import Router, play, simulate
from bylot.environments import Given
from bylot.errors import ValuesError
from bylot.policies import POLICIES
from sample_problem import make_five_expert_problem, make_recorded_environment
from traces import traces_are_equal


@pytest.mark.parametrize("policy", POLICIES)
def test_a_router_and_the_compiled_loop_give_the_same_trace(policy: str) -> None:
    environment = make_recorded_environment(120)
    trace = play(Router(make_five_expert_problem(), policy, seed=9, horizon=120), environment, 120)
    assert traces_are_equal(
        trace,
        simulate(make_five_expert_problem(), environment, policy, rounds=120, seed=9, horizon=120),
    )
    assert not traces_are_equal(
        trace,
        simulate(make_five_expert_problem(), environment, policy, rounds=120, seed=8, horizon=120),
    )


def test_contexts_are_named_by_their_numbers() -> None:
    environment = make_recorded_environment(200, contexts=4)
    numbers = list(dict.fromkeys(environment.index.tolist()))
    environment = Given(environment.values, [numbers.index(x) for x in environment.index])
    router = Router(make_five_expert_problem(), "omd", seed=2)
    trace = play(router, environment, 200)
    assert traces_are_equal(
        trace, simulate(make_five_expert_problem(), environment, "omd", rounds=200, seed=2)
    )
    assert list(router.core.contexts) == ["0", "1", "2", "3"]


def test_a_run_can_continue_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bylot.simulation.CHUNK_ROUNDS", 16)
    environment, router = (
        make_recorded_environment(100),
        Router(make_five_expert_problem(), "omd", seed=1),
    )
    halves = [play(router, environment, 50), play(router, environment, 50, start=50)]
    expected = simulate(make_five_expert_problem(), environment, "omd", rounds=100, seed=1)
    assert_array_equal(np.concatenate([half.draws for half in halves]), expected.draws)
    assert_array_equal(np.concatenate([half.rewards for half in halves]), expected.rewards)


def test_an_environment_of_another_size_is_refused() -> None:
    router = Router(make_five_expert_problem(), "omd")
    with pytest.raises(ValuesError, match="has 3 experts and the problem 5"):
        play(router, Given(np.ones((4, 1, 3))), 4)
    with pytest.raises(ValuesError, match="no environment"):
        play(router, np.ones((4, 1, 5)), 4)  # type: ignore[arg-type]
    assert router.t == 0
