"""One seed gives one trace: in chunks, on threads, and after any other run."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bylot import simulate, simulation
from bylot.environments import Noisy, Rounds
from bylot.errors import BylotError, ValuesError
from bylot.policies import POLICIES
from bylot.trace import Trace
from bylot_bench.simulate import run
from sample_problem import (
    make_five_expert_problem,
    make_recorded_environment,
    make_stationary_environment,
)


def assert_traces_equal(one: Trace, other: Trace) -> None:
    """The traces are equal to the last bit, in every field."""
    for first, second in zip(one.record, other.record, strict=True):
        assert_array_equal(first, second)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_trace_on_any_number_of_threads(policy: str) -> None:
    def play(seed: int) -> Trace:
        return simulate(
            make_five_expert_problem(),
            make_stationary_environment(),
            policy,
            rounds=1_000,
            seed=seed,
        )

    alone = [play(seed) for seed in range(8)]
    for threads in (1, 2, 5):
        with ThreadPoolExecutor(threads) as pool:
            for one, other in zip(alone, pool.map(play, range(8)), strict=True):
                assert_traces_equal(one, other)


def test_another_seed_gives_another_trace() -> None:
    one, other = (
        simulate(
            make_five_expert_problem(), make_stationary_environment(), rounds=200, seed=seed
        ).draws
        for seed in (0, 1)
    )
    assert (one != other).any()


def test_the_length_of_the_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = simulate(make_five_expert_problem(), make_stationary_environment(), rounds=700)
    monkeypatch.setattr(simulation, "CHUNK_ROUNDS", 97)
    assert_traces_equal(
        simulate(make_five_expert_problem(), make_stationary_environment(), rounds=700), expected
    )


def test_the_trace_adds_up() -> None:
    environment = make_recorded_environment(300)
    trace = simulate(make_five_expert_problem(), environment, "omd", rounds=300)
    for t in (0, 17, 299):
        panel = np.unique(trace.draws[t])
        assert_allclose(trace.rewards[t], environment.values[t][:, panel].max(axis=1).sum())
        assert_allclose(trace.spend[t], make_five_expert_problem().rows[:, panel].sum(axis=1))
    assert_allclose(
        trace.record.draw_probabilities[5], trace.record.distributions[5][trace.draws[5]]
    )
    short = simulate(
        make_five_expert_problem(), environment, "omd", rounds=300, keep_distributions=False
    )
    assert short.record.distributions.shape == (0, 5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rounds": 0}, "rounds=0"),
        ({"rounds": 1.5}, "rounds=1.5"),
        ({"rounds": 301}, "300 rounds were given"),
        ({"rounds": 9, "seed": -1}, "seed=-1"),
        ({"rounds": 9, "policy": "odm"}, "no policy 'odm'"),
        ({"rounds": 9, "rewards": (0.0, 0.1)}, "declare rewards"),
    ],
)
def test_invalid_arguments_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BylotError, match=words):
        simulate(make_five_expert_problem(), make_recorded_environment(300), **settings)


def test_values_in_place_of_an_environment_are_refused_with_a_hint() -> None:
    with pytest.raises(ValuesError, match=r"wrap values in bylot\.environments\.Given"):
        simulate(make_five_expert_problem(), make_recorded_environment(300).values, rounds=3)  # type: ignore[arg-type]


class BrokenEnvironment(Noisy):
    """An environment whose rounds do not match its declaration."""

    def __init__(self, answer: Rounds) -> None:
        super().__init__(np.full((2, 5), 0.1))
        self.answer = answer

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        """The given rounds."""
        return self.answer


@pytest.mark.parametrize(
    ("values", "contexts", "words"),
    [
        (np.zeros((3, 2, 2)), np.zeros(3, int), "had declared"),
        (np.zeros((3, 2, 5)), np.array([0, 10**7, 0]), "contexts from 0 to 10000000"),
        (np.zeros((3, 2, 5)), np.array([0, -1, 0]), "contexts from -1"),
        (np.full((3, 2, 5), np.nan), np.zeros(3, int), "rewards from nan"),
    ],
)
def test_rounds_that_do_not_match_the_environment_are_refused(
    values: Any, contexts: Any, words: str
) -> None:
    with pytest.raises(ValuesError, match=words):
        simulate(make_five_expert_problem(), BrokenEnvironment(Rounds(values, contexts)), rounds=3)


def test_a_reward_above_the_range_by_rounding_is_not_an_error() -> None:
    # Nine ninths are above 1
    simulate(make_five_expert_problem(), Noisy(np.ones((9, 5)), worth=1 / 9), rounds=3)


def test_an_environment_of_another_size_is_refused() -> None:
    with pytest.raises(ValuesError, match="2 experts and the problem 5"):
        simulate(make_five_expert_problem(), Noisy([[0.5, 0.5]]), rounds=3)


def test_the_compiled_loop_and_the_numpy_loop_of_the_benchmark_agree() -> None:
    assert run(rounds=1_500, numpy_rounds=1_500, turns=1)["same_trace"]
