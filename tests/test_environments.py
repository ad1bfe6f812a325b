"""Environments are pure functions of (seed, t); invalid ones are refused."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bylot.environments import Drifting, Environment, Given, Noisy, Outcomes, Regime
from bylot.errors import ValuesError
from bylot.numerics.jit import Bools, Floats
from sample_problem import SKILLS

ENVIRONMENTS: dict[str, Environment] = {
    "given": Given(np.random.default_rng(0).random((2_000, 2, 4)), np.arange(2_000) % 3),
    "noisy": Noisy(SKILLS),
    "noisy with contexts": Noisy(np.stack([SKILLS, SKILLS[::-1]])),
    "regime": Regime(SKILLS, horizon=1_000, blocks=7),  # played past its horizon, too
    "regime with contexts": Regime(np.stack([SKILLS, SKILLS[::-1]]), horizon=1_500),
    "drifting": Drifting(3, 5, period=300.0),
    "outcomes with contexts": Outcomes(
        np.random.default_rng(0).random((90, 5)), np.arange(90) % 3, contexts=np.arange(90) % 7 % 2
    ),
    "outcomes": Outcomes(np.random.default_rng(0).random((900, 5)), np.arange(900) % 3),
}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@given(cuts=st.lists(st.integers(0, 1_500), min_size=2, max_size=4, unique=True).map(sorted))
@settings(deadline=None, derandomize=True, max_examples=25)
def test_rounds_do_not_depend_on_the_requested_ranges(environment: str, cuts: list[int]) -> None:
    whole = ENVIRONMENTS[environment].rounds(cuts[0], cuts[-1], seed=4)
    parts = [ENVIRONMENTS[environment].rounds(a, b, seed=4) for a, b in itertools.pairwise(cuts)]
    assert_array_equal(np.concatenate([part.values for part in parts]), whole.values)
    assert_array_equal(np.concatenate([part.contexts for part in parts]), whole.contexts)
    assert whole.values.shape == (cuts[-1] - cuts[0], *ENVIRONMENTS[environment].shape)
    assert whole.values.flags.c_contiguous


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_an_empty_range_has_no_rounds(environment: str) -> None:
    for t in (0, 5, 256):
        assert ENVIRONMENTS[environment].rounds(t, t, seed=0).values.shape == (
            0,
            *ENVIRONMENTS[environment].shape,
        )


@pytest.mark.parametrize("environment", ["noisy", "regime", "drifting", "outcomes"])
def test_another_seed_gives_other_values(environment: str) -> None:
    one, other = (ENVIRONMENTS[environment].rounds(0, 300, seed).values for seed in (0, 1))
    assert not np.isclose(one, other).all(axis=(1, 2)).any()


def test_noise_has_the_skills_as_its_mean_and_does_not_affect_skills_of_0_and_1() -> None:
    skills = np.array([[0.0, 1.0, 0.3, 0.8]])
    values = Noisy(skills, kappa=20.0).rounds(0, 20_000, seed=1).values[:, 0]
    assert_array_equal(values[:, :2], np.broadcast_to([0.0, 1.0], (20_000, 2)))
    deviation = np.sqrt(skills[0, 2:] * (1 - skills[0, 2:]) / 21)  # of Beta(20 v, 20 (1 - v))
    assert_allclose(values[:, 2:].std(axis=0), deviation, rtol=0.05)
    assert (np.abs(values[:, 2:].mean(axis=0) - skills[0, 2:]) < 5 * deviation / 20_000**0.5).all()


def test_contexts_are_equally_frequent_and_have_their_own_skills() -> None:
    environment = Noisy(np.stack([np.zeros((1, 2)), np.ones((1, 2)), np.zeros((1, 2))]))
    values, contexts = environment.rounds(0, 9_000, seed=2)
    count = np.bincount(contexts, minlength=3)
    assert (np.abs(count - 3_000) < 5 * np.sqrt(9_000 * (1 / 3) * (2 / 3))).all()
    assert_array_equal(values[:, 0, 0], contexts == 1)


# Regimes: with certain skills and a factor of 0, the values show who is shrunk


def find_shrunk_experts(
    horizon: int, seed: int, rounds: int | None = None, blocks: int = 10
) -> Bools:
    """Which of 50 experts are shrunk in each round, (rounds, 50)."""
    environment = Regime(np.ones((2, 50)), horizon=horizon, blocks=blocks, factor=0.0)
    values = environment.rounds(0, rounds or horizon, seed).values
    assert_array_equal(values[:, 0], values[:, 1])  # an expert is shrunk in all dimensions
    shrunk: Bools = values[:, 0] == 0.0
    return shrunk


@pytest.mark.parametrize("horizon", [1_000, 1_003, 2_560, 10])
def test_five_of_fifty_experts_are_shrunk_and_change_only_between_blocks(horizon: int) -> None:
    shrunk = find_shrunk_experts(horizon, seed=3)
    assert_array_equal(shrunk.sum(axis=1), 5)
    changes = np.flatnonzero((shrunk[1:] != shrunk[:-1]).any(axis=1)) + 1
    assert_array_equal(changes, [-(-horizon * b // 10) for b in range(1, 10)])  # T/10, rounded up


def test_blocks_continue_at_the_same_length_past_the_horizon() -> None:
    shrunk = find_shrunk_experts(700, seed=3, rounds=1_400)
    blocks = shrunk[::70]
    assert_array_equal(np.repeat(blocks, 70, axis=0), shrunk)
    assert len(np.unique(blocks, axis=0)) == 20


def test_a_share_is_rounded_and_is_at_least_one() -> None:
    for size, share, count in ((50, 0.1, 5), (5, 0.1, 1), (5, 0.5, 3), (4, 1.0, 4)):
        environment = Regime(np.ones((1, size)), horizon=20, share=share)
        assert [len(environment.shrunk_experts(block, seed=0)) for block in range(3)] == [count] * 3


def shrinking_z_scores(blocks: Bools) -> tuple[float, float]:
    """Largest z-score of how often each of 50 is among the 5 shrunk, and the z-score of how many
    of a block's 5 are shrunk in the next: hypergeometric, 0.5 on average.
    """
    n = len(blocks)
    frequency = (blocks.sum(axis=0) - 0.1 * n) / np.sqrt(0.09 * n)
    repeated = (blocks[1:] & blocks[:-1]).sum(axis=1)
    variance = 5 * 0.1 * 0.9 * 45 / 49
    return np.abs(frequency).max(), abs(repeated.mean() - 0.5) / np.sqrt(variance / (n - 1))


def test_experts_are_shrunk_equally_often_and_independently_in_each_block() -> None:
    # One round a block; and the first blocks of many seeds, which are as random.
    assert max(shrinking_z_scores(find_shrunk_experts(4_000, seed=5, blocks=4_000))) < 5
    assert (
        max(
            shrinking_z_scores(
                np.array([find_shrunk_experts(10, seed)[0] for seed in range(1_000)])
            )
        )
        < 5
    )


def test_the_test_above_would_notice_unequal_frequencies_and_repeated_blocks() -> None:
    blocks = find_shrunk_experts(4_000, seed=5, blocks=4_000)
    assert shrinking_z_scores(np.sort(blocks, axis=1))[0] > 5
    assert shrinking_z_scores(np.repeat(blocks[:1_000], 2, axis=0))[1] > 5


def block_mean_z_score(environment: Regime, factor: float, seed: int = 7) -> float:
    """Largest z-score of the mean values of each block, if skills of 0.3 to 0.8 are shrunk by
    the given factor: a Beta(kappa v, kappa (1 - v)) has variance v (1 - v) / (kappa + 1).
    """
    values: Floats = environment.rounds(0, environment.horizon, seed).values
    length, worst = environment.horizon // environment.blocks, 0.0
    for block in range(environment.blocks):
        v = environment.skills[0].copy()
        v[:, environment.shrunk_experts(block, seed)] *= factor
        mean = values[block * length : (block + 1) * length].mean(axis=0)
        error = np.sqrt(v * (1 - v) / (environment.kappa + 1) / length)
        worst = max(worst, float(np.abs((mean - v) / error).max()))
    return worst


def test_noise_in_each_block_is_about_the_shrunk_means() -> None:
    environment = Regime(np.random.default_rng(0).uniform(0.3, 0.8, (3, 50)), horizon=5_000)
    # 1,500 means: beyond 5.5 once in 20,000 seeds
    assert block_mean_z_score(environment, factor=0.2) < 5.5
    assert block_mean_z_score(environment, factor=0.25) > 5.5
    assert block_mean_z_score(environment, factor=1.0) > 5.5


def test_skills_of_0_and_1_have_no_noise_unless_they_are_shrunk() -> None:
    skills = np.repeat([[0.0], [1.0]], 20, axis=1)
    environment = Regime(skills, horizon=100, share=0.25, worth=0.5)
    values = environment.rounds(0, 10, seed=1).values
    shrunk = np.isin(np.arange(20), environment.shrunk_experts(0, seed=1))
    assert_array_equal(values[:, 0], 0.0)
    assert_array_equal(values[:, 1, ~shrunk], 0.5)
    assert len(np.unique(values[:, 1, shrunk])) == 50  # noise about 0.2, not a point mass
    assert values[:, 1, shrunk].max() < 0.5


def test_given_values_are_copied() -> None:
    values = np.ones((3, 1, 2))
    environment = Given(values)
    values[:] = np.nan
    assert_array_equal(environment.rounds(0, 3, 0).values, np.ones((3, 1, 2)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Given([[0.1, 0.2]]), "rounds x dimensions x experts"),
        (lambda: Given([[[0.1, -0.2]]]), "round 0, dimension 0, expert 1"),
        (lambda: Given([[[0.1, np.nan]]]), "expected a finite number of at least 0"),
        (lambda: Given([[[0.1, 0.2]]], contexts=[0, 1]), "one number for each"),
        (lambda: Given([[[0.1, 0.2]]], contexts=[0.5]), "one number for each"),
        (lambda: Given([[[0.1, 0.2]]], contexts=[-1]), "from 0 to 999999"),
        (lambda: Given([[[0.1, 0.2]]], contexts=[2**40]), "from 0 to 999999"),
        (lambda: Given([[[0.1, 0.2]]], contexts=np.array([2**63 + 2], np.uint64)), "from 0"),
        (lambda: Given([[[0.1, 0.2]]]).rounds(0, 2, 0), "values of 1 rounds were given"),
        (lambda: Noisy([[0.1, 1.2]]), r"invalid skill 1.2: expected a number in \[0, 1\]"),
        (lambda: Noisy([[0.1, 0.2]], kappa=0.0), "invalid kappa 0.0"),
        (lambda: Noisy([[0.1, 0.2]], worth=-1.0), "invalid worth -1.0"),
        (lambda: Regime([[0.1, 0.2]], horizon=9), "invalid blocks 10: .* horizon 9"),
        (lambda: Regime([[0.1, 0.2]], horizon=9, blocks=0), "invalid blocks 0: .* at least 1"),
        (lambda: Regime([[0.1, 0.2]], horizon=2.5, blocks=1), "invalid horizon 2.5"),  # type: ignore[arg-type]
        (lambda: Regime([[0.1, 0.2]], horizon="9"), "invalid horizon '9'"),  # type: ignore[arg-type]
        (lambda: Regime([[0.1, 0.2]], horizon=90, share="half"), "invalid share 'half'"),  # type: ignore[arg-type]
        (lambda: Regime([[0.1, 0.2]], horizon=90, factor=None), "invalid factor None"),  # type: ignore[arg-type]
        (lambda: Noisy([[0.1, 0.2]], kappa="20"), "invalid kappa '20'"),  # type: ignore[arg-type]
        (lambda: Noisy([[0.1, 0.2]], kappa=True), "invalid kappa True"),
        (lambda: Noisy([["good", "bad"]]), "not an array of numbers"),
        (lambda: Noisy([[0.1, 0.2], [0.3]]), "not an array of numbers"),
        (lambda: Drifting(2, 3.5, 10.0), "invalid size 3.5"),  # type: ignore[arg-type]
        (lambda: Regime([[0.1, 0.2]], horizon=90, share=0.0), "invalid share 0.0"),
        (lambda: Regime([[0.1, 0.2]], horizon=90, factor=1.5), "invalid factor 1.5"),
        (lambda: Regime([[0.1, 1.2]], horizon=90), r"invalid skill 1.2"),
        (lambda: Drifting(0, 3, 10.0), "invalid dimensions 0: .* at least 1"),
        (lambda: Outcomes([0, 1], [0, 0]), "questions x experts"),
        (lambda: Outcomes(np.ones((0, 2)), []), "questions x experts"),
        (
            lambda: Outcomes([[0, 1], [1, -1]], [0, 0]),
            "invalid value at question 1, expert 1: -1.0",
        ),
        (lambda: Outcomes([[0, np.inf]], [0]), "expected a finite number of at least 0"),
        (lambda: Outcomes([[0, 1], [1, 1]], [0]), "each of the 2 questions"),
        (lambda: Outcomes([[0, 1]], ["heart"]), "counted from 0"),
        (
            lambda: Outcomes([[0, 1], [1, 1]], [0, 2]),
            "dimension 2 has questions, but dimension 1 has none",
        ),
        (
            lambda: Outcomes([[0, 1], [1, 1]], [-1, 0]),
            "dimension -1 has questions, but dimension 0 has none",
        ),
        (
            lambda: Outcomes([[0, 1], [1, 1]], contexts=[0, 2]),
            "context 2 has questions, but context 1 has none",
        ),
        (lambda: Outcomes([[0, 1]], chances=[0.0]), "a positive number for each of the 1 contexts"),
        (
            lambda: Outcomes([[0, 1]], chances=[1, 1]),
            "a positive number for each of the 1 contexts",
        ),
        (lambda: Outcomes([[0, 1]], np.array([2**64 - 1], np.uint64)), "dimension 0 has none"),
        (lambda: Outcomes([[0, 1]], [0], worth=0.0), "invalid worth 0.0"),
        (lambda: Outcomes([[0, 1]], [0], worth=np.nan), "invalid worth nan"),
    ],
)
def test_invalid_environments_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValuesError, match=words):
        make()
