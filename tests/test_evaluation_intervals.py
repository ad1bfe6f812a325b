"""Confidence intervals cover at their level, also near the threshold of effective rounds."""

import math

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from bylot.distributions import IidSets
from bylot.evaluate.estimators import (
    ConfidenceInterval,
    RewardEstimate,
    estimate_by_weights,
    estimate_doubly_robust,
    estimate_finite_sample,
    estimate_self_normalised,
    make_skewness_corrected_interval,
    predict_from_earlier_rounds,
)
from bylot.evaluate.importance_weights import MIN_EFFECTIVE_ROUNDS
from bylot.numerics.jit import Floats, Ints
from logged_decisions import compute_reward
from test_distributions import list_panels


class SetGame:
    """Sets of three draws from q; a reward of 0 or 1 whose probability depends on the set."""

    def __init__(self, q: list[float], p: list[float]) -> None:
        self.sets = list_panels(4, 3)
        self.inside = np.array([np.bincount(a, minlength=4) for a in self.sets], np.float64)
        log, target = IidSets(np.array(q), 3), IidSets(np.array(p), 3)
        self.log = np.array([math.exp(log.log_probability(a)) for a in self.sets])
        self.log /= self.log.sum()
        self.target = np.array([math.exp(target.log_probability(a)) for a in self.sets])
        self.inclusion = target.inclusion[None, :]
        self.worth = np.array([compute_reward(tuple(a.tolist()), 0) for a in self.sets])
        self.truth = float(self.target @ self.worth)

    def play(self, rounds: int, seed: int) -> tuple[Ints, Floats]:
        """The sets drawn, and their rewards."""
        rng = np.random.default_rng(seed)
        drawn = rng.choice(len(self.sets), rounds, p=self.log)
        return drawn, (rng.random(rounds) < self.worth[drawn]).astype(np.float64)

    def check_coverage(self, rounds: int, seed: int, propensities: Floats) -> dict[str, bool]:
        """Whether each interval contains the true value."""
        drawn, r = self.play(rounds, seed)
        w, zero = (self.target / propensities)[drawn], np.zeros(rounds, np.int64)
        rows = csr_array(self.inside[drawn])
        predicted, expected = predict_from_earlier_rounds(rows, self.inclusion, zero, zero, r, 0.5)
        found = (
            estimate_by_weights(w, r, 0.95),
            estimate_self_normalised(w, r, 0.95),
            estimate_doubly_robust(w, r, predicted, expected, 0.95),
            estimate_finite_sample(w, r, 0.0, 1.0, 0.95),
        )
        return {f.name: f.interval.low <= self.truth <= f.interval.high for f in found}

    def coverage(self, rounds: int, plays: int, propensities: Floats) -> dict[str, float]:
        """The share of plays in which each interval contains the true value."""
        covered = [self.check_coverage(rounds, seed, propensities) for seed in range(plays)]
        return {name: float(np.mean([one[name] for one in covered])) for name in covered[0]}


NEAR = SetGame([0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25])

FAR = SetGame([0.90, 0.06, 0.03, 0.01], [0.05, 0.05, 0.3, 0.6])

PLAYS = 400

MARGIN = 4 * math.sqrt(0.95 * 0.05 / PLAYS)  # four standard errors of a share of 95 %


def test_intervals_cover_at_their_level() -> None:
    coverage = NEAR.coverage(600, PLAYS, NEAR.log)
    for name, share in coverage.items():
        assert share >= 0.95 - MARGIN, name
        assert share <= 0.95 + MARGIN or name == "finite-sample", name


def test_with_wrong_propensities_intervals_do_not_cover() -> None:
    wrong = np.roll(NEAR.log, 1)
    coverage = NEAR.coverage(600, 60, wrong)
    assert max(share for name, share in coverage.items() if name != "finite-sample") < 0.6


def test_few_rounds_and_heavy_weights_break_all_intervals_but_the_finite_sample_one() -> None:
    coverage = FAR.coverage(60, PLAYS, FAR.log)
    assert coverage["finite-sample"] >= 0.95 - MARGIN
    assert coverage["set weights"] < 0.8


def test_doubly_robust_intervals_cover_although_few_rounds_tell_about_the_target() -> None:
    rng, logs, n, panels = np.random.default_rng(0), 1_200, 800, 21
    law = np.append(0.99, np.full(panels - 1, 0.01 / (panels - 1)))  # of a router that has learned
    covered, skewed, effective = [], [], []
    for _ in range(logs):
        worth, drawn = rng.uniform(0.2, 0.9, panels), rng.choice(panels, n, p=law)
        w, r = 1.0 / panels / law[drawn], worth[drawn]
        predicted, expected, half = np.full(n, 0.5), np.full(n, 0.5), n // 2
        counts = (np.bincount(drawn[:half], one, panels) for one in (r[:half], np.ones(half)))
        model = np.divide(*(some + prior for some, prior in zip(counts, (0.5, 1.0), strict=True)))
        predicted[half:], expected[half:] = model[drawn[half:]], model.mean()
        found = estimate_doubly_robust(w, r, predicted, expected, 0.95).interval
        other = make_skewness_corrected_interval(expected + w * (r - predicted), 0.95)
        covered.append(found.low <= worth.mean() <= found.high)
        skewed.append(other.low <= worth.mean() <= other.high)
        effective.append(w.sum() ** 2 / (w @ w))
    margin = 3 * math.sqrt(0.95 * 0.05 / logs)
    assert 5 < np.median(effective) < 20
    assert np.mean(covered) >= 0.95 - margin
    assert np.mean(skewed) < 0.95 - margin  # the interval of many rounds would not do


SKEWED = [
    (SetGame([0.7, 0.15, 0.1, 0.05], [0.2, 0.2, 0.3, 0.3]), 2_400),
    (SetGame([0.8, 0.1, 0.06, 0.04], [0.3, 0.3, 0.2, 0.2]), 1_800),
    (SetGame([0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]), 900),
    (SetGame([0.9, 0.05, 0.03, 0.02], [0.6, 0.2, 0.1, 0.1]), 750),
]
"""About 100 effective rounds: the threshold below which targets are refused."""


def test_skewness_corrected_intervals_cover_where_symmetric_ones_do_not() -> None:
    skew, plain = [], []
    for game, rounds in SKEWED:
        for seed in range(250):
            drawn, r = game.play(rounds, seed)
            w = (game.target / game.log)[drawn]
            if w.sum() ** 2 >= MIN_EFFECTIVE_ROUNDS * (w @ w):
                one = estimate_by_weights(w, r, 0.95)
                skew.append(one.interval.low <= game.truth <= one.interval.high)
                plain.append(abs(one.value - game.truth) <= 1.96 * one.error)
    assert len(skew) > 500
    assert np.mean(skew) >= 0.93
    assert np.mean(plain) < 0.93


def test_the_interval_of_equal_terms_is_their_value() -> None:
    assert make_skewness_corrected_interval(np.full(5, 0.25), 0.95) == (0.25, 0.25)
    assert make_skewness_corrected_interval(np.ones(1), 0.95) == (-math.inf, math.inf)


@given(terms=st.lists(st.floats(0, 1e6), min_size=2, max_size=30))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_the_interval_of_any_terms_contains_their_mean(terms: list[float]) -> None:
    x = np.array(terms)
    low, high = make_skewness_corrected_interval(x, 0.95)
    assert low <= x.mean() + 1e-6
    assert high >= x.mean() - 1e-6


@given(
    rounds=st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1, 2)), min_size=1, max_size=20),
    level=st.sampled_from([0.5, 0.95, 0.9999]),
)
@settings(deadline=None, derandomize=True, max_examples=150)
@example(rounds=[(0.0, 1.0)], level=0.95)  # no weight: no self-normalised value
@example(rounds=[(9.0, 2.0)] * 20, level=0.95)  # all above the range
def test_clipped_estimates_lie_in_their_interval_and_in_the_range_of_rewards(
    rounds: list[tuple[float, float]], level: float
) -> None:
    w, r = np.array(rounds).T
    for one in (
        estimate_by_weights(w, r, level),
        estimate_self_normalised(w, r, level),
        estimate_doubly_robust(w, r, np.full(r.size, 0.5), np.full(r.size, 0.7), level),
        estimate_finite_sample(w, r, -1.0, 2.0, level),
    ):
        _, value, _, (low, high) = one.clip(-1.0, 2.0)
        assert -1.0 <= low <= value <= high <= 2.0


def test_an_interval_outside_the_range_of_rewards_is_the_whole_range() -> None:
    for low, high in ((1.2, 1.4), (0.8, 0.6), (math.nan, math.nan), (-math.inf, math.inf)):
        one = RewardEstimate("", 1.3, 0.1, ConfidenceInterval(low, high)).clip(0.0, 1.0)
        assert (one.value, *one.interval) == (1.0, 0.0, 1.0)
    kept = RewardEstimate("", 0.4, 0.1, ConfidenceInterval(0.3, 0.5))
    assert kept.clip(0.0, 1.0) == kept


def test_the_finite_sample_interval_shrinks_with_more_rounds() -> None:
    widths = []
    for rounds in (500, 50_000):
        drawn, r = NEAR.play(rounds, 1)
        weights = (NEAR.target / NEAR.log)[drawn]
        low, high = estimate_finite_sample(weights, r, 0.0, 1.0, 0.95).interval
        widths.append(high - low)
    assert widths[1] < 0.15 * widths[0]
