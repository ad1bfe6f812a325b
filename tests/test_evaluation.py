"""Off-policy estimates: exact in expectation by enumeration, covered by their intervals, refused
where the log says too little.
"""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from bylot import Problem, simulate
from bylot.errors import DataError, ThinOverlap
from bylot.evaluation import (
    Entry,
    Log,
    Target,
    compare,
    draws,
    entries,
    evaluate,
    gather,
    panel,
    sets,
    uniform,
)
from bylot.evaluation.estimators import doubly_robust, normalised, surely, weighted
from bylot.evaluation.intervals import certain, skewed
from bylot.evaluation.laws import Exactly, Iid, Law
from bylot.evaluation.model import ahead
from bylot.evaluation.outcome import estimated, memberships
from bylot.evaluation.weighing import LEAST, laws_of, weigh
from bylot.kernels.compile import Floats, Ints
from bylot.kernels.summax import expected_reward
from small import five, steady
from test_evaluation_laws import ALL, by_sequences, chances, panels

TRIO = Problem(["a", "b", "c"], {"usd": [1.0, 2.0, 4.0]}, draws=2)
UNBIASED = ("draw weights", "set weights", "doubly robust")


def values_of(log: Log, target: Target) -> dict[str, float]:
    """All estimates, however little the log says."""
    laws = laws_of(log, target)
    found = estimated(log, laws, weigh(log, laws), (0.0, 1.0), 0.95)
    return {one.name: one.value for one in found}


def reward(members: tuple[int, ...], t: int) -> float:
    """A reward that depends on the set and the round, not linearly."""
    return math.sin(1 + sum(3**i for i in members) + t) ** 2


def moved(q: Floats, members: tuple[int, ...], got: float) -> Floats:
    """What a policy that learns would draw from next: more of those who were there."""
    q = q.copy()
    q[list(members)] *= 0.5 + 3 * got
    return np.asarray(q / q.sum())


def independent(q: Floats, rounds: int, t: int = 0) -> Iterator[tuple[float, list[Entry]]]:
    """Every log that a policy which learns can write with two i.i.d. draws, and its chance."""
    if t == rounds:
        yield 1.0, []
        return
    for team in itertools.product(range(3), repeat=2):
        members = tuple(sorted(set(team)))
        got, odds = reward(members, t), tuple(q[list(team)].tolist())
        one = Entry(f"d{t}", t, tuple(TRIO.experts[i] for i in team), got, odds=odds)
        for chance, rest in independent(moved(q, members, got), rounds, t + 1):
            yield math.prod(odds) * chance, [one, *rest]


def whole(q: Floats, rounds: int, t: int = 0) -> Iterator[tuple[float, list[Entry]]]:
    """The same for sets of exactly two."""
    if t == rounds:
        yield 1.0, []
        return
    law = Exactly(np.log(q), 2)
    for members in itertools.combinations(range(3), 2):
        got, chance = reward(members, t), float(np.exp(law.log_chance(np.array(members))))
        names = tuple(TRIO.experts[i] for i in members)
        one = Entry(f"d{t}", t, names, got, chance=chance)
        for more, rest in whole(moved(q, members, got), rounds, t + 1):
            yield chance * more, [one, *rest]


def truth(law: Law, rounds: int) -> float:
    """The mean over rounds of what the law earns, over all panels."""
    return sum(
        chance * reward(tuple(members.tolist()), t) / rounds
        for members, chance in chances(law, 3, 2)
        for t in range(rounds)
    )


@pytest.mark.parametrize(
    ("logs", "target"),
    [
        (independent, draws(TRIO, {"a": 5, "b": 1, "c": 2})),
        (independent, sets(TRIO, {"a": 5, "b": 1, "c": 2})),
        (whole, sets(TRIO, {"a": 5, "b": 1, "c": 2})),
        (whole, uniform(TRIO)),
    ],
    ids=["draws from draws", "sets from draws", "sets from sets", "uniform from sets"],
)
def test_estimates_from_logs_that_learn_are_exact_in_expectation(
    logs: Callable[[Floats, int], Iterator[tuple[float, list[Entry]]]], target: Target
) -> None:
    mean: dict[str, float] = {}
    for chance, written in logs(np.array([0.2, 0.3, 0.5]), 3):
        for name, value in values_of(gather(TRIO, written), target).items():
            mean[name] = mean.get(name, 0.0) + chance * value
    exact = truth(target.law(None, ALL), 3)
    for name in UNBIASED:
        if name in mean:
            assert mean[name] == pytest.approx(exact, abs=1e-9), name
    assert ("draw weights" in mean) == (logs is independent and target.name == "draws")
    assert not abs(mean["self-normalised"] - exact) < 1e-3  # which claims no such thing


def test_a_model_of_later_rounds_would_be_biased() -> None:
    target = draws(TRIO, {"a": 5, "b": 1, "c": 2})
    law, bias = target.law(None, ALL), -truth(target.law(None, ALL), 2)
    for chance, written in independent(np.array([0.2, 0.3, 0.5]), 2):
        log = gather(TRIO, written)
        sample = weigh(log, [law])
        first, second = memberships(log, sample.rounds).toarray()
        slope = sample.rewards[1] * second / 2  # of the second round, used for the first
        terms = law.included @ slope + sample.weights[0] * (sample.rewards[0] - first @ slope)
        bias += chance * (terms + sample.weights[1] * sample.rewards[1]) / 2
    assert abs(bias) > 1e-3


shares = st.lists(st.floats(0.05, 1.0), min_size=2, max_size=6)


def moments(chance: list[float], terms: list[float]) -> tuple[float, float]:
    """Mean and variance."""
    p, x = np.array(chance), np.array(terms)
    return float(p @ x), float(p @ (x - p @ x) ** 2)


@given(raw=shares, data=st.data(), M=st.integers(1, 3))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_weights_of_sets_have_the_same_mean_and_no_larger_variance_than_those_of_draws(
    raw: list[float], data: st.DataObject, M: int
) -> None:
    other = data.draw(st.lists(st.floats(0.0, 1.0), min_size=len(raw), max_size=len(raw)))
    q = np.array(raw) / sum(raw)
    p = (np.array(other) + 1e-3) / sum(np.array(other) + 1e-3)
    ours, theirs = Iid(p, M), Iid(q, M)
    by_draws: tuple[list[float], list[float]] = ([], [])
    by_sets: tuple[list[float], list[float]] = ([], [])
    for team in itertools.product(range(q.size), repeat=M):
        a, members = np.array(team), tuple(sorted(set(team)))
        by_draws[0].append(float(q[a].prod()))
        by_draws[1].append(float(p[a].prod() / q[a].prod()) * reward(members, 0))
    for members, chance in by_sequences(q, M).items():
        a = np.array(members)
        by_sets[0].append(chance)
        by_sets[1].append(math.exp(ours.log_chance(a) - theirs.log_chance(a)) * reward(members, 0))
    mean, variance = moments(*by_draws)
    assert moments(*by_sets)[0] == pytest.approx(mean, abs=1e-9)
    assert moments(*by_sets)[1] <= variance * (1 + 1e-9) + 1e-12


@given(raw=shares, M=st.integers(1, 3), seed=st.integers(0, 99), as_one=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=60)
def test_whatever_the_model_the_doubly_robust_terms_have_the_right_mean(
    raw: list[float], M: int, seed: int, as_one: bool
) -> None:
    K, rng = len(raw), np.random.default_rng(seed)
    q, p, slope = np.array(raw) / sum(raw), rng.dirichlet(np.ones(K)), rng.normal(size=K)
    theirs: Law = Exactly(np.log(q), min(M, K)) if as_one else Iid(q, M)
    ours: Law = Exactly(np.log(p), min(M, K)) if as_one else Iid(p, M)
    value = right = 0.0
    for a, chance in chances(theirs, K, M):
        if chance > 0:
            got, weight = reward(tuple(a.tolist()), 0), math.exp(ours.log_chance(a)) / chance
            told, expected = np.array([slope[a].sum()]), np.array([ours.included @ slope])
            one = doubly_robust(np.array([weight]), np.array([got]), told, expected, 0.95)
            value, right = value + chance * one.value, right + chance * weight * got
    assert value == pytest.approx(right, abs=1e-9)


def test_with_three_draws_the_variance_is_smaller_in_fact() -> None:
    log = gather(five(draws=3), entries(simulate(five(draws=3), steady(), "omd", rounds=2_000)))
    found = evaluate(log, draws(five(draws=3), {"ann": 1, "bob": 2, "cat": 4, "dan": 2, "eve": 4}))
    errors = {one.name: one.error for one in found.estimates}
    assert errors["set weights"] < errors["draw weights"]
    assert errors["doubly robust"] < 0.5 * errors["set weights"]


class Game:
    """Sets of three draws from q; a reward of 0 or 1 with a chance that depends on the set."""

    def __init__(self, q: list[float], p: list[float]) -> None:
        self.sets = panels(4, 3)
        self.inside = np.array([np.bincount(a, minlength=4) for a in self.sets], np.float64)
        log, target = Iid(np.array(q), 3), Iid(np.array(p), 3)
        self.log = np.array([math.exp(log.log_chance(a)) for a in self.sets])
        self.log /= self.log.sum()
        self.target = np.array([math.exp(target.log_chance(a)) for a in self.sets])
        self.chances = target.included[None, :]
        self.worth = np.array([reward(tuple(a.tolist()), 0) for a in self.sets])
        self.truth = float(self.target @ self.worth)

    def played(self, rounds: int, seed: int) -> tuple[Ints, Floats]:
        """The sets drawn, and what they earned."""
        rng = np.random.default_rng(seed)
        drawn = rng.choice(len(self.sets), rounds, p=self.log)
        return drawn, (rng.random(rounds) < self.worth[drawn]).astype(np.float64)

    def covered(self, rounds: int, seed: int, believed: Floats) -> dict[str, bool]:
        """Does each interval hold the truth?"""
        drawn, r = self.played(rounds, seed)
        w, zero = (self.target / believed)[drawn], np.zeros(rounds, np.int64)
        rows = csr_array(self.inside[drawn])
        told, expected = ahead(rows, self.chances, zero, zero, r, 0.5)
        found = (
            weighted(w, r, 0.95),
            normalised(w, r, 0.95),
            doubly_robust(w, r, told, expected, 0.95),
            surely(w, r, 0.0, 1.0, 0.95),
        )
        return {f.name: f.interval.low <= self.truth <= f.interval.high for f in found}

    def coverage(self, rounds: int, plays: int, believed: Floats) -> dict[str, float]:
        """How often each interval holds the truth."""
        each = [self.covered(rounds, seed, believed) for seed in range(plays)]
        return {name: float(np.mean([one[name] for one in each])) for name in each[0]}


NEAR = Game([0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25])
FAR = Game([0.90, 0.06, 0.03, 0.01], [0.05, 0.05, 0.3, 0.6])
PLAYS = 400
SPARE = 4 * math.sqrt(0.95 * 0.05 / PLAYS)  # four standard errors of a share of 95 %


def test_intervals_cover_at_their_level() -> None:
    coverage = NEAR.coverage(600, PLAYS, NEAR.log)
    for name, share in coverage.items():
        assert share >= 0.95 - SPARE, name
        assert share <= 0.95 + SPARE or name == "certain", name


def test_with_wrong_odds_they_do_not() -> None:
    wrong = np.roll(NEAR.log, 1)
    coverage = NEAR.coverage(600, 60, wrong)
    assert max(share for name, share in coverage.items() if name != "certain") < 0.6


def test_few_rounds_and_heavy_weights_break_the_normal_intervals_but_not_the_certain_one() -> None:
    coverage = FAR.coverage(60, PLAYS, FAR.log)
    assert coverage["certain"] >= 0.95 - SPARE
    assert coverage["set weights"] < 0.8


LOPSIDED = [
    (Game([0.7, 0.15, 0.1, 0.05], [0.2, 0.2, 0.3, 0.3]), 2_400),
    (Game([0.8, 0.1, 0.06, 0.04], [0.3, 0.3, 0.2, 0.2]), 1_800),
    (Game([0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]), 900),
    (Game([0.9, 0.05, 0.03, 0.02], [0.6, 0.2, 0.1, 0.1]), 750),
]
"""Rounds that are worth about 100: at the threshold below which nothing is told."""


def test_intervals_of_lopsided_weights_cover_at_their_level_where_symmetric_ones_do_not() -> None:
    skew, plain = [], []
    for game, rounds in LOPSIDED:
        for seed in range(250):
            drawn, r = game.played(rounds, seed)
            w = (game.target / game.log)[drawn]
            if w.sum() ** 2 >= LEAST * (w @ w):
                one = weighted(w, r, 0.95)
                skew.append(one.interval.low <= game.truth <= one.interval.high)
                plain.append(abs(one.value - game.truth) <= 1.96 * one.error)
    assert len(skew) > 500
    assert np.mean(skew) >= 0.93
    assert np.mean(plain) < 0.93


def test_an_interval_around_terms_that_are_all_alike_is_their_value() -> None:
    assert skewed(np.full(5, 0.25), 0.95) == (0.25, 0.25)
    assert skewed(np.ones(1), 0.95) == (-math.inf, math.inf)


@given(terms=st.lists(st.floats(0, 1e6), min_size=2, max_size=30))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_any_terms_have_an_interval_with_their_mean_inside(terms: list[float]) -> None:
    x = np.array(terms)
    low, high = skewed(x, 0.95)
    assert low <= x.mean() + 1e-6
    assert high >= x.mean() - 1e-6


def test_the_certain_interval_closes_in_as_rounds_grow() -> None:
    widths = []
    for rounds in (500, 50_000):
        drawn, r = NEAR.played(rounds, 1)
        low, high = certain((NEAR.target / NEAR.log)[drawn], r, 0.0, 1.0, 0.95)
        widths.append(high - low)
    assert widths[1] < 0.15 * widths[0]


def exact(law: Law, problem: Problem, rounds: int, seed: int) -> float:
    """What a law earns in a steady world, by all panels."""
    values = steady().rounds(0, rounds, seed).values
    return sum(
        chance * float(values[:, :, members].max(axis=2).sum(axis=1).mean())
        for members, chance in chances(law, problem.size, problem.draws)
    )


WEIGHTS = {"ann": 0.02, "bob": 0.38, "cat": 0.4, "dan": 0.1, "eve": 0.1}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["distinct", "tangent", "omd"])
def test_a_play_tells_what_another_law_would_have_earned_in_it(policy: str, seed: int) -> None:
    problem, rounds = five(), 4_000
    log = gather(problem, entries(simulate(problem, steady(), policy, rounds=rounds, seed=seed)))
    targets: list[Target] = [sets(problem, WEIGHTS)]
    if policy != "distinct":
        targets.append(draws(problem, WEIGHTS))
    for target in targets:
        law, found = target.law(None, ALL), evaluate(log, target)
        value = exact(law, problem, rounds, seed)
        if isinstance(law, Iid):
            values = steady().rounds(0, rounds, seed).values
            assert value == pytest.approx(expected_reward(law.q, values, 2), abs=1e-9)
        for one in found.estimates:
            assert abs(one.value - value) < 4 * one.error, one.name
        low, high = found.estimates[-1].interval
        assert low <= value <= high
        usd = sum(p * problem.costs["usd"][a].sum() for a, p in chances(law, 5, 2))
        assert found.costs["usd"] == pytest.approx(usd, abs=1e-9)


def fixed(q: list[float], rounds: int, *, told: bool = True) -> list[Entry]:
    """Rounds of two draws from a fixed q."""
    rng, odds = np.random.default_rng(0), np.array(q)
    written = []
    for t in range(rounds):
        team = rng.choice(3, 2, p=odds)
        names, members = tuple(TRIO.experts[i] for i in team), tuple(sorted(set(team.tolist())))
        mine = tuple(odds[team].tolist()) if told else ()
        names = names if told else tuple(dict.fromkeys(names))
        written.append(Entry(f"d{t}", t, names, reward(members, 0), odds=mine))
    return written


def test_mass_on_those_without_odds_is_refused_and_told_exactly() -> None:
    log = gather(TRIO, fixed([0.5, 0.5, 0.0], 400))
    with pytest.raises(ThinOverlap, match=r"43\.8% of the target's panels"):  # 1 - 0.75^2
        evaluate(log, draws(TRIO, {"a": 3, "b": 3, "c": 2}))
    assert evaluate(log, draws(TRIO, {"a": 1, "b": 2})).unseen == 0.0
    known = [one._replace(never=("c",)) for one in fixed([0.5, 0.5, 0.0], 400)]
    seen = Entry("x", 999, ("c", "c"), 1.0, odds=(0.01, 0.01))  # c had a chance once
    with pytest.raises(ThinOverlap, match="of the target's panels"):
        evaluate(gather(TRIO, [*known, seen]), draws(TRIO, {"a": 3, "b": 3, "c": 2}))


def test_sizes_that_sets_of_exactly_so_many_never_have_are_refused() -> None:
    law, rng = Exactly(np.zeros(3), 2), np.random.default_rng(1)
    pairs = list(itertools.combinations("abc", 2))
    written = [Entry(f"d{t}", t, pairs[rng.integers(3)], 0.5, chance=1 / 3) for t in range(300)]
    assert math.exp(law.log_chance(np.array([0, 1]))) == pytest.approx(1 / 3)
    with pytest.raises(ThinOverlap, match=r"33\.3% of the target's panels"):  # 3 (1/3)^2
        evaluate(gather(TRIO, written), draws(TRIO, {"a": 1, "b": 1, "c": 1}))
    assert evaluate(gather(TRIO, written), uniform(TRIO)).effective == pytest.approx(300)


def test_thin_overlap_is_refused_and_what_would_help_is_said() -> None:
    log = gather(TRIO, fixed([0.9, 0.07, 0.03], 400))
    with pytest.raises(ThinOverlap, match=r"400 rounds are worth only .*log more rounds"):
        evaluate(log, panel(TRIO, ["b", "c"]))
    near = evaluate(log, draws(TRIO, {"a": 8, "b": 1, "c": 1}))
    assert 100 < near.effective <= 400
    with pytest.raises(ThinOverlap, match="fewer than 399 are no ground"):
        evaluate(log, draws(TRIO, {"a": 8, "b": 1, "c": 1}), least=399)


def test_weights_that_do_not_average_one_are_refused() -> None:
    wrong = [
        one._replace(odds=tuple(0.5 * odds for odds in one.odds))
        for one in fixed([0.4, 0.3, 0.3], 400)
    ]
    with pytest.raises(ThinOverlap, match="weights average 4, 3 away from where they should be"):
        evaluate(gather(TRIO, wrong), draws(TRIO, {"a": 4, "b": 3, "c": 3}))


def test_rounds_that_cannot_be_used_are_counted_and_change_nothing() -> None:
    good = fixed([0.4, 0.3, 0.3], 400)
    bad = [
        Entry("r", 1_000, ("a", "b"), 1.0, replaced=True),
        Entry("u", 1_001, ("a", "b"), 1.0),
        Entry("m", 1_002, ("a", "b"), None, odds=(0.4, 0.3)),
    ]
    target = draws(TRIO, {"a": 3, "b": 3, "c": 4})
    one, other = evaluate(gather(TRIO, good), target), evaluate(gather(TRIO, good + bad), target)
    assert one.estimates == other.estimates
    assert other.counted == (403, 400, 1, 1, 1)
    assert any("guard replaced 1 panels" in note for note in other.notes)
    assert any("1 rounds without a reward" in note for note in other.notes)
    with pytest.raises(ThinOverlap, match="none of 3 rounds can be used"):
        evaluate(gather(TRIO, bad), target)


def test_a_reward_outside_the_declared_range_is_refused() -> None:
    log = gather(TRIO, [*fixed([0.4, 0.3, 0.3], 400), Entry("x", 999, ("a",), 7.0)])
    with pytest.raises(DataError, match="decision x has a reward of 7, outside"):
        evaluate(log, uniform(TRIO))
    target = draws(TRIO, {"a": 4, "b": 3, "c": 3})
    wide = evaluate(log, target, rewards=(0.0, 10.0)).estimates[-1].interval
    narrow = evaluate(gather(TRIO, log.entries[:-1]), target).estimates[-1].interval
    assert wide.high - wide.low > narrow.high - narrow.low


def test_each_context_and_outage_is_judged_by_its_own_law() -> None:
    problem = Problem(["a", "b", "c"], {"usd": [1.0, 2.0, 4.0]}, draws=1)
    rng, written = np.random.default_rng(2), []
    for t in range(2_400):
        up, context = ("a", "b") if t % 3 == 0 else ("a", "b", "c"), "xy"[t % 2]
        name = up[rng.integers(len(up))]
        got = 1.0 if (name == "a") == (context == "x") else 0.0
        odds = (1 / len(up),)
        written.append(Entry(f"d{t}", t, (name,), got, context, odds, available=up))
    target = draws(problem, {"x": {"a": 1}, "y": {"b": 1, "c": 1}})
    found = evaluate(gather(problem, written), target)
    assert found.costs["usd"] == pytest.approx(0.5 * 1 + 0.5 * (1 / 3 * 2 + 2 / 3 * 3))
    for one in found.estimates:
        assert abs(one.value - 1.0) <= 4 * one.error + 1e-9  # a is right in x, the others in y
    assert found.estimates[-2].error < 0.5 * found.estimates[0].error  # the model sees contexts


def test_a_log_of_outages_that_does_not_say_who_was_up_is_refused() -> None:
    rng, told = np.random.default_rng(3), []
    for t in range(2_000):
        up = ("a", "b") if t % 2 else ("a", "b", "c")
        name, odds = up[rng.integers(len(up))], (1 / len(up),)
        told.append(Entry(f"d{t}", t, (name,), 0.5, odds=odds, available=up))
    problem = Problem(["a", "b", "c"], {"usd": [1.0, 2.0, 4.0]}, draws=1)
    target = draws(problem, {"a": 1, "b": 1, "c": 2})
    assert evaluate(gather(problem, told), target).passed == pytest.approx(1.0, abs=0.1)
    with pytest.raises(ThinOverlap, match="where 1 is right"):
        evaluate(gather(problem, [one._replace(available=None) for one in told]), target)


def test_agreement_with_an_existing_system_is_that_of_enumeration() -> None:
    chosen = fixed([0.6, 0.3, 0.1], 30, told=False)
    target = draws(TRIO, {"a": 2, "b": 1})
    found = compare(gather(TRIO, chosen), target)
    law, same, overlap, jaccard = target.law(None, ALL), [], [], []
    for one in chosen:
        mine = {TRIO.experts.index(name) for name in one.draws}
        theirs = [(set(a.tolist()), chance) for a, chance in chances(law, 3, 2)]
        same.append(sum(p for b, p in theirs if b == mine))
        overlap.append(sum(p * len(b & mine) / len(mine) for b, p in theirs))
        jaccard.append(sum(p * len(b & mine) / len(b | mine) for b, p in theirs))
    assert_allclose(
        [found.same, found.overlap, found.jaccard], np.mean([same, overlap, jaccard], axis=1)
    )
    assert found.never == sum("c" in one.draws for one in chosen) > 0
    assert found.median == pytest.approx(np.median(same))
    assert found.costs["usd"] == pytest.approx(8 / 9 * 1 + 5 / 9 * 2)
