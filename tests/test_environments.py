"""Environments are pure in (seed, t), and what cannot be played is refused."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bylot.environments import Drifting, Environment, Given, Noisy
from bylot.errors import ValuesError
from small import SKILLS

WORLDS: dict[str, Environment] = {
    "given": Given(np.random.default_rng(0).random((2_000, 2, 4)), np.arange(2_000) % 3),
    "noisy": Noisy(SKILLS),
    "noisy with contexts": Noisy(np.stack([SKILLS, SKILLS[::-1]])),
    "drifting": Drifting(3, 5, period=300.0),
}


@pytest.mark.parametrize("world", WORLDS)
@given(cuts=st.lists(st.integers(0, 1_500), min_size=2, max_size=4, unique=True).map(sorted))
@settings(deadline=None, derandomize=True, max_examples=25)
def test_rounds_do_not_depend_on_how_they_are_asked_for(world: str, cuts: list[int]) -> None:
    whole = WORLDS[world].rounds(cuts[0], cuts[-1], seed=4)
    parts = [WORLDS[world].rounds(a, b, seed=4) for a, b in itertools.pairwise(cuts)]
    assert_array_equal(np.concatenate([part.values for part in parts]), whole.values)
    assert_array_equal(np.concatenate([part.contexts for part in parts]), whole.contexts)
    assert whole.values.shape == (cuts[-1] - cuts[0], *WORLDS[world].shape)
    assert whole.values.flags.c_contiguous


@pytest.mark.parametrize("world", ["noisy", "drifting"])
def test_another_seed_is_another_world(world: str) -> None:
    one, other = (WORLDS[world].rounds(0, 300, seed).values for seed in (0, 1))
    assert not np.isclose(one, other).all(axis=(1, 2)).any()


def test_noise_has_the_skills_as_its_mean_and_spares_the_certain() -> None:
    skills = np.array([[0.0, 1.0, 0.3, 0.8]])
    values = Noisy(skills, kappa=20.0).rounds(0, 20_000, seed=1).values[:, 0]
    assert_array_equal(values[:, :2], np.broadcast_to([0.0, 1.0], (20_000, 2)))
    deviation = np.sqrt(skills[0, 2:] * (1 - skills[0, 2:]) / 21)  # of Beta(20 v, 20 (1 - v))
    assert_allclose(values[:, 2:].std(axis=0), deviation, rtol=0.05)
    assert (np.abs(values[:, 2:].mean(axis=0) - skills[0, 2:]) < 5 * deviation / 20_000**0.5).all()


def test_contexts_come_equally_often_and_with_their_own_skills() -> None:
    world = Noisy(np.stack([np.zeros((1, 2)), np.ones((1, 2)), np.zeros((1, 2))]))
    values, contexts = world.rounds(0, 9_000, seed=2)
    count = np.bincount(contexts, minlength=3)
    assert (np.abs(count - 3_000) < 5 * np.sqrt(9_000 * (1 / 3) * (2 / 3))).all()
    assert_array_equal(values[:, 0, 0], contexts == 1)


def test_given_values_are_copied() -> None:
    values = np.ones((3, 1, 2))
    world = Given(values)
    values[:] = np.nan
    assert_array_equal(world.rounds(0, 3, 0).values, np.ones((3, 1, 2)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Given([[0.1, 0.2]]), "rounds x dimensions x experts"),
        (lambda: Given([[[0.1, -0.2]]]), "round 0, dimension 0, expert 1"),
        (lambda: Given([[[0.1, np.nan]]]), "must be finite"),
        (lambda: Given([[[0.1, 0.2]]], contexts=[0, 1]), "one number for each"),
        (lambda: Given([[[0.1, 0.2]]], contexts=[0.5]), "one number for each"),
        (lambda: Given([[[0.1, 0.2]]], contexts=[-1]), "counted from 0"),
        (lambda: Given([[[0.1, 0.2]]], contexts=[2**40]), "counted from 0"),
        (lambda: Given([[[0.1, 0.2]]], contexts=np.array([2**63 + 2], np.uint64)), "from 0"),
        (lambda: Given([[[0.1, 0.2]]]).rounds(0, 2, 0), "values of 1 rounds were given"),
        (lambda: Noisy([[0.1, 1.2]]), r"skills must lie in \[0, 1\]"),
        (lambda: Noisy([[0.1, 0.2]], kappa=0.0), "kappa=0.0"),
        (lambda: Noisy([[0.1, 0.2]], worth=-1.0), "worth=-1.0"),
        (lambda: Drifting(0, 3, 10.0), "dimensions=0"),
    ],
)
def test_worlds_that_make_no_sense_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValuesError, match=words):
        make()
