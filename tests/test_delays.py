"""Rewards that come late or never: the loop tells them as a caller of a router would."""

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
from bylot.simulation import Trace
from small import five, recorded, steady
from traces import same

SOME = RewardDelay(lag=7, lost=0.2)


def by_hand(policy: str, world: Given, due: Ints, seed: int) -> list[list[str]]:
    """The panels of a router that is told each reward after the decision of the round it is due."""
    router = Router(five(), policy, seed=seed)
    place = {name: i for i, name in enumerate(five().experts)}
    panels, owed = [], []
    for t, values in enumerate(world.values):
        decision = router.decide()
        panels.append(list(decision.draws))
        drawn = np.array([place[name] for name in decision.draws])
        owed.append((decision.id, float(sum_max(values, drawn))))
        for then in np.flatnonzero(due == t):
            router.reward(*owed[then])
    return panels


def named(trace: Trace) -> list[list[str]]:
    """The panels of a trace."""
    return [[five().experts[i] for i in row] for row in trace.draws]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_router_that_is_told_late_draws_the_same_panels(policy: str) -> None:
    world = recorded(150)
    trace = simulate(five(), world, policy, rounds=150, seed=4, late=SOME)
    assert named(trace) == by_hand(policy, world, SOME.due(150, 4), seed=4)


def test_the_test_above_would_notice_another_order() -> None:
    world, due = recorded(150), SOME.due(150, 4)
    trace = simulate(five(), world, "ts", rounds=150, seed=4, late=SOME)
    sooner = np.where(due < NEVER_DUE, np.maximum(due - 1, np.arange(150)), due)
    assert named(trace) != by_hand("ts", world, sooner, seed=4)


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_tickets_wait_from_one_chunk_to_the_next(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    whole = simulate(five(), steady(), rounds=200, late=SOME)
    monkeypatch.setattr(simulation, "CHUNK_ROUNDS", chunk)
    assert same(simulate(five(), steady(), rounds=200, late=SOME), whole)


def test_prompt_is_the_same_as_no_lag_and_a_lag_is_not() -> None:
    plain = simulate(five(), steady(), rounds=300)
    assert same(plain, simulate(five(), steady(), rounds=300, late=RewardDelay(0, 0.0)))
    assert not same(plain, simulate(five(), steady(), rounds=300, late=RewardDelay(1, 0.0)))


def test_nothing_is_learned_from_what_never_comes() -> None:
    lost = simulate(five(), steady(), "greedy", rounds=400, late=RewardDelay(lost=1.0))
    random = simulate(five(), Given(np.zeros((400, 1, 5))), "greedy", rounds=400)
    assert_array_equal(lost.draws, random.draws)  # nothing heard is as good as nothing earned
    assert lost.rewards.mean() > 0.1  # but it was earned, and the trace says so


def share_lost(late: RewardDelay, believed: float, rounds: int = 20_000) -> float:
    """How many standard deviations the share of lost rewards is from what is believed."""
    lost = float((late.due(rounds, seed=0) == NEVER_DUE).mean())
    return abs(lost - believed) / math.sqrt(believed * (1 - believed) / rounds)


def test_as_many_are_lost_as_was_said() -> None:
    assert share_lost(RewardDelay(lost=0.1), believed=0.1) < 5
    assert share_lost(RewardDelay(lost=0.1), believed=0.12) > 5


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
def test_what_cannot_be_is_refused(lag: Any, lost: Any, words: str) -> None:
    with pytest.raises(ValuesError, match=words):
        RewardDelay(lag, lost)


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8])
def test_whole_numbers_of_any_kind_are_the_same_lag(kind: Any) -> None:
    late = RewardDelay(kind(5), kind(1))
    assert late == RewardDelay(5, 1.0)
    assert (type(late.lag), type(late.lost)) == (int, float)


@given(st.integers(0, MAX_LAG_ROUNDS - 1), st.floats(0.0, 1.0), st.integers(0, 2**32))
def test_no_reward_is_due_before_its_round_or_later_than_was_said(
    lag: int, lost: float, seed: int
) -> None:
    wait = RewardDelay(lag, lost).due(40, seed) - np.arange(40)
    heard = wait < NEVER_DUE - 40
    assert ((wait[heard] >= 0) & (wait[heard] <= lag)).all()
    assert heard.all() or lost > 0.0
    assert not heard.any() or lost < 1.0


@given(
    st.one_of(st.integers(), st.floats(), st.text(), st.booleans(), st.none(), st.binary()),
    st.one_of(
        st.integers(), st.floats(), st.text(), st.booleans(), st.none(), st.complex_numbers()
    ),
)
def test_anything_is_a_delay_that_can_be_played_or_an_error_of_ours(lag: Any, lost: Any) -> None:
    with suppress(ValuesError):
        assert (RewardDelay(lag, lost).due(3, seed=0) >= np.arange(3)).all()
