"""Late and missing rewards: the compiled loop delivers them as a caller of a router would."""

import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from bylot import Router, simulate, simulation
from bylot.environments import Given, RewardDelay
from bylot.environments.delays import MAX_LAG_ROUNDS, NEVER_DUE
from bylot.errors import ValuesError
from bylot.numerics.jit import Ints
from bylot.numerics.sum_max import sum_max
from bylot.policies import POLICIES
from bylot.trace import Trace
from sample_problem import (
    make_five_expert_problem,
    make_recorded_environment,
    make_stationary_environment,
)
from traces import traces_are_equal

DELAY = RewardDelay(lag=7, lost=0.2)


def play_router_with_delays(
    policy: str, environment: Given, due: Ints, seed: int
) -> list[list[str]]:
    """The panels of a router that gets each reward after the decision of the round it is due."""
    router = Router(make_five_expert_problem(), policy, seed=seed)
    position = {name: i for i, name in enumerate(make_five_expert_problem().experts)}
    panels, rewards = [], []
    for t, values in enumerate(environment.values):
        decision = router.decide()
        panels.append(list(decision.draws))
        drawn = np.array([position[name] for name in decision.draws])
        rewards.append((decision.id, float(sum_max(values, drawn))))
        for arrived in np.flatnonzero(due == t):
            router.reward(*rewards[arrived])
    return panels


def list_panel_names(trace: Trace) -> list[list[str]]:
    """The panels of a trace."""
    return [[make_five_expert_problem().experts[i] for i in row] for row in trace.draws]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_router_with_late_rewards_draws_the_same_panels(policy: str) -> None:
    environment = make_recorded_environment(150)
    trace = simulate(
        make_five_expert_problem(), environment, policy, rounds=150, seed=4, late=DELAY
    )
    assert list_panel_names(trace) == play_router_with_delays(
        policy, environment, DELAY.due(150, 4), seed=4
    )


def test_the_test_above_would_notice_another_order() -> None:
    environment, due = make_recorded_environment(150), DELAY.due(150, 4)
    trace = simulate(make_five_expert_problem(), environment, "ts", rounds=150, seed=4, late=DELAY)
    sooner = np.where(due < NEVER_DUE, np.maximum(due - 1, np.arange(150)), due)
    assert list_panel_names(trace) != play_router_with_delays("ts", environment, sooner, seed=4)


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_open_decisions_are_kept_between_chunks(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    expected = simulate(
        make_five_expert_problem(), make_stationary_environment(), rounds=200, late=DELAY
    )
    monkeypatch.setattr(simulation, "CHUNK_ROUNDS", chunk)
    assert traces_are_equal(
        simulate(make_five_expert_problem(), make_stationary_environment(), rounds=200, late=DELAY),
        expected,
    )


def test_a_lag_of_0_changes_nothing_and_a_lag_of_1_does() -> None:
    plain = simulate(make_five_expert_problem(), make_stationary_environment(), rounds=300)
    assert traces_are_equal(
        plain,
        simulate(
            make_five_expert_problem(),
            make_stationary_environment(),
            rounds=300,
            late=RewardDelay(0, 0.0),
        ),
    )
    assert not traces_are_equal(
        plain,
        simulate(
            make_five_expert_problem(),
            make_stationary_environment(),
            rounds=300,
            late=RewardDelay(1, 0.0),
        ),
    )


def test_nothing_is_learned_from_missing_rewards() -> None:
    lost = simulate(
        make_five_expert_problem(),
        make_stationary_environment(),
        "greedy",
        rounds=400,
        late=RewardDelay(lost=1.0),
    )
    without_rewards = simulate(
        make_five_expert_problem(), Given(np.zeros((400, 1, 5))), "greedy", rounds=400
    )
    # Missing rewards have the effect of rewards of 0
    assert_array_equal(lost.draws, without_rewards.draws)
    assert lost.rewards.mean() > 0.1  # but the trace has the rewards


def lost_share_z_score(late: RewardDelay, probability: float, rounds: int = 20_000) -> float:
    """How many standard deviations the share of lost rewards is from a probability."""
    lost = float((late.due(rounds, seed=0) == NEVER_DUE).mean())
    return abs(lost - probability) / math.sqrt(probability * (1 - probability) / rounds)


def test_the_share_of_lost_rewards_is_as_given() -> None:
    assert lost_share_z_score(RewardDelay(lost=0.1), probability=0.1) < 5
    assert lost_share_z_score(RewardDelay(lost=0.1), probability=0.12) > 5


def test_lags_are_uniform_and_depend_on_seed_and_round_only() -> None:
    late = RewardDelay(lag=3)
    lags = late.due(20_000, seed=1) - np.arange(20_000)
    assert set(lags.tolist()) == {0, 1, 2, 3}
    assert np.abs(np.bincount(lags) - 5_000).max() < 5 * math.sqrt(20_000 * 3 / 16)
    assert_array_equal(late.due(700, seed=1), late.due(20_000, seed=1)[:700])
    assert (late.due(700, seed=2) != late.due(700, seed=1)).any()


@pytest.mark.parametrize(
    ("lag", "lost", "words"),
    [
        (-1, 0.0, "invalid lag -1: expected an integer of at least 0"),
        (2.5, 0.0, "invalid lag 2.5"),
        (True, 0.0, "invalid lag True"),
        (np.True_, 0.0, "invalid lag (np.)?True"),
        ("7", 0.0, "invalid lag '7'"),
        (np.arange(3), 0.0, "invalid lag array"),
        (None, 0.0, "invalid lag None"),
        (10**19, 0.0, f"invalid lag {10**19}: .*; use lost=1 for"),
        (MAX_LAG_ROUNDS, 0.0, "less than 9007199254740992; use lost=1"),
        (0, 1.5, "invalid lost 1.5"),
        (0, "x", "invalid lost 'x'"),
        (0, None, "invalid lost None"),
        (0, True, "invalid lost True"),
        (0, math.nan, "invalid lost nan"),
        (0, np.float32("nan"), "invalid lost "),
        (0, 0.5j, "invalid lost 0.5j"),
    ],
)
def test_invalid_delays_are_refused(lag: Any, lost: Any, words: str) -> None:
    with pytest.raises(ValuesError, match=words):
        RewardDelay(lag, lost)


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8])
def test_whole_numbers_of_any_kind_are_the_same_lag(kind: Any) -> None:
    late = RewardDelay(kind(5), kind(1))
    assert late == RewardDelay(5, 1.0)
    assert (type(late.lag), type(late.lost)) == (int, float)


@given(st.integers(0, MAX_LAG_ROUNDS - 1), st.floats(0.0, 1.0), st.integers(0, 2**32))
def test_every_reward_is_due_within_the_lag(lag: int, lost: float, seed: int) -> None:
    delays = RewardDelay(lag, lost).due(40, seed) - np.arange(40)
    arrives = delays < NEVER_DUE - 40
    assert ((delays[arrives] >= 0) & (delays[arrives] <= lag)).all()
    assert arrives.all() or lost > 0.0
    assert not arrives.any() or lost < 1.0


@given(
    st.one_of(st.integers(), st.floats(), st.text(), st.booleans(), st.none(), st.binary()),
    st.one_of(
        st.integers(), st.floats(), st.text(), st.booleans(), st.none(), st.complex_numbers()
    ),
)
def test_any_values_give_a_delay_or_a_values_error(lag: Any, lost: Any) -> None:
    with suppress(ValuesError):
        assert (RewardDelay(lag, lost).due(3, seed=0) >= np.arange(3)).all()
