"""Classes of requests: inference against enumeration, counts against plain Python, and learning."""

import itertools
import math
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bylot import Problem, Router, simulate
from bylot.environments import Given
from bylot.numerics.jit import Floats, Ints
from bylot.policies import NoisyOr
from bylot.policies import request_classes as rc
from bylot.policies.base import FeedbackKind
from bylot.policies.request_evidence import (
    SCORED,
    UNKNOWN_SCORE,
    UNKNOWN_WINNER,
    RequestEvidence,
    infer_classes,
)
from bylot.router.core import iterate_arrays

UNKNOWN = np.full(3, UNKNOWN_SCORE)
KINDS: tuple[FeedbackKind, ...] = ("panel", "members", "winner")


def enumerate_outcomes(pi: Floats, p: Floats, evidence: RequestEvidence) -> tuple[Floats, Floats]:
    """The share of classes and the expected misses, over all demands, classes, outcomes of members
    and choices among tied winners.
    """
    (Z, n), r = p.shape, 1 - evidence.miss
    scores = np.where(evidence.missed == UNKNOWN_SCORE, np.nan, 1 - evidence.missed)
    ends = sorted({0.0, 1.0, *(scores[~np.isnan(scores)] if evidence.winner == SCORED else [r])})
    share, missed = np.zeros(Z), np.zeros((n, Z))
    for low, high in itertools.pairwise(ends):
        found, counted = np.zeros(Z), np.zeros((n, Z))
        for z, hits in itertools.product(range(Z), itertools.product((0, 1), repeat=n)):
            chance = pi[z] * np.prod(np.where(hits, 1 - p[z], p[z]))
            if evidence.winner == SCORED:
                chance *= all(h == (low < s) for h, s in zip(hits, scores, strict=True) if s == s)
            elif low >= r:
                chance *= not any(hits)
            elif evidence.winner == UNKNOWN_WINNER:
                chance *= any(hits)
            else:
                chance *= hits[evidence.winner] / max(sum(hits), 1)
            found[z] += chance
            counted[:, z] += chance * (1 - np.array(hits))
        share += (high - low) * found / found.sum()
        missed += (high - low) * counted / found.sum()
    return share, missed


@pytest.mark.parametrize(
    "evidence",
    [
        RequestEvidence(np.array([0.0, 1.0, 1.0]), 0.0, SCORED),
        RequestEvidence(np.array([0.0, 1.0, UNKNOWN_SCORE]), 0.0, SCORED),
        RequestEvidence(np.array([0.3, 0.8, 0.3]), 0.3, SCORED),
        RequestEvidence(UNKNOWN, 0.0, 1),
        RequestEvidence(UNKNOWN, 0.4, 2),
        RequestEvidence(UNKNOWN, 1.0, UNKNOWN_WINNER),
        RequestEvidence(UNKNOWN, 0.0, UNKNOWN_WINNER),
        RequestEvidence(UNKNOWN, 0.25, UNKNOWN_WINNER),
    ],
    ids=["scores", "one-missing", "graded", "winner", "graded-winner", "nobody", "any", "some"],
)
def test_classes_and_misses_are_those_of_all_possible_outcomes(evidence: RequestEvidence) -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        pi, p = rng.dirichlet(np.ones(4)), rng.uniform(0.05, 0.95, (4, 3))
        found = infer_classes(pi, p, evidence)
        share, missed = enumerate_outcomes(pi, p, evidence)
        assert_allclose(found.share, share, atol=1e-12)
        assert_allclose(found.counted[found.known], missed[found.known], atol=1e-12)
        inferred = evidence.winner != SCORED
        assert_array_equal(found.known, (evidence.missed != UNKNOWN_SCORE) | inferred)
        assert not found.counted[~found.known].any()


def test_losers_are_not_read_as_failures() -> None:
    """That another member won says little about one that is almost always right."""
    pi, p = np.ones(1), np.array([[0.05, 0.1, 0.9]])
    found = infer_classes(pi, p, RequestEvidence(UNKNOWN, 0.0, 0))
    assert found.counted[0, 0] == 0.0
    assert p[0, 1] < found.counted[1, 0] < 0.2
    assert_array_equal(
        infer_classes(pi, p, RequestEvidence(UNKNOWN, 1.0, UNKNOWN_WINNER)).counted, 1.0
    )


def draw_evidence(rng: np.random.Generator, n: int) -> RequestEvidence:
    """A report of scores, some missing or graded, or of a winner, or of neither."""
    kind = rng.integers(0, 4)
    scores = rng.integers(0, 2, n) if kind < 2 else rng.random(n).round(1)
    miss = 1.0 - scores.max()
    if kind in (0, 2):
        missed = np.where(rng.random(n) < 0.2, UNKNOWN_SCORE, 1.0 - scores)
        return RequestEvidence(missed, miss, SCORED)
    winner = int(scores.argmax()) if rng.random() < 0.8 and miss < 1 else UNKNOWN_WINNER
    return RequestEvidence(np.full(n, UNKNOWN_SCORE), miss, winner)


class ReferenceClasses:
    """The documented counts in numpy; `infer_classes` was checked above."""

    def __init__(self, X: int, K: int) -> None:
        self.level = np.linspace(-1, 1, 4)
        self.misses, self.hits = np.zeros((K, 4)), np.zeros((K, 4))
        self.requests, self.offset, self.v = (
            np.zeros((X, 4)),
            np.zeros((X, K)),
            np.full((X, K), 0.1),
        )
        self.reports: list[Any] = []
        self.last = 0

    def odds(self) -> Floats:
        overall = (self.misses.sum(1) + 1) / (self.hits.sum(1) + 1)
        prior = 1 / (1 + 1 / (overall[:, None] * np.exp(self.level)))
        return np.asarray((self.misses + 2 * prior) / (self.hits + 2 * (1 - prior)))

    def assign(self, number: int) -> tuple[Any, Floats]:
        x, members, evidence, was = self.reports[number]
        everywhere = self.requests.sum(0) + 1
        pi = self.requests[x] + 10 * everywhere / everywhere.sum()
        odds = self.odds()[members].T * np.exp(self.offset[x, members])
        p = odds / (1 + odds)
        now = infer_classes(pi / pi.sum(), p, evidence)
        if was is not None:
            self.count(x, members, was, -1)
        self.count(x, members, now, 1)
        self.reports[number] = (x, members, evidence, now)
        return now, p

    def count(self, x: int, members: Ints, found: Any, sign: int) -> None:
        self.requests[x] += sign * found.share
        self.misses[members] += sign * found.counted
        known = found.known[:, None] * found.share
        self.hits[members] += sign * (known - found.counted)

    def learn(self, x: int, members: Ints, evidence: RequestEvidence) -> None:
        if evidence.winner == SCORED and (evidence.missed == UNKNOWN_SCORE).all():
            return
        self.reports.append((x, members, evidence, None))
        now, p = self.assign(len(self.reports) - 1)
        for j, i in enumerate(members):
            if now.known[j]:
                v, f = self.v[x, i], max(now.information[j], 0.01)
                self.offset[x, i] += v * (now.counted[j] - now.share * p[:, j]).sum() / (1 + f * v)
                self.v[x, i] = v - f / (1 + f * v) * v * v
        for _ in range(min(3, len(self.reports))):
            self.last = (self.last + 1) % len(self.reports)
            self.assign(self.last)


def test_counts_are_those_of_the_formulas_in_plain_python() -> None:
    rng, K, X = np.random.default_rng(3), 6, 2
    classes, reference = rc.make_request_classes(X, K, 3, True), ReferenceClasses(X, K)
    for t in range(200):
        n = 3 if t % 5 else 2
        members, x = rng.permutation(K)[:n], int(rng.integers(0, X))
        evidence = draw_evidence(rng, n)
        rc.learn_request(classes, x, members, evidence, True)
        reference.learn(x, members, evidence)
    assert len(reference.reports) == classes.recent.counts[0] < rc.RECENT_REQUESTS
    for name in ("misses", "hits", "requests", "offset"):
        assert_allclose(getattr(classes, name), getattr(reference, name), atol=1e-9)
    assert_allclose(classes.odds, reference.odds(), rtol=1e-9)
    assert_allclose(classes.offset_variance, reference.v, rtol=1e-9)
    assert_allclose(classes.total, reference.requests.sum(0), atol=1e-9)
    assert classes.total.sum() == pytest.approx(len(reference.reports))


def test_a_request_that_is_assigned_again_is_counted_once() -> None:
    rng, classes = np.random.default_rng(0), rc.make_request_classes(1, 5, 3, True)
    reports = rc.RECENT_REQUESTS + 100  # the ring begins again
    for _ in range(reports):
        evidence = RequestEvidence(rng.integers(0, 2, 3).astype(float), 0.0, SCORED)
        rc.learn_request(classes, 0, rng.permutation(5)[:3], evidence, False)
    assert classes.misses.sum() + classes.hits.sum() == pytest.approx(
        3 * (rc.RECENT_REQUESTS + 100)
    )
    assert classes.requests.sum() == pytest.approx(reports)


def test_a_missing_score_is_not_a_miss() -> None:
    missing, failed = (rc.make_request_classes(1, 3, 2, True) for _ in range(2))
    members = np.array([0, 1])
    for _ in range(50):
        rc.learn_request(
            missing, 0, members, RequestEvidence(np.array([0.0, UNKNOWN_SCORE]), 0.0, SCORED), False
        )
        rc.learn_request(
            failed, 0, members, RequestEvidence(np.array([0.0, 1.0]), 0.0, SCORED), False
        )
    fresh = rc.make_request_classes(1, 3, 2, True)
    assert_array_equal(missing.odds[1], fresh.odds[1])
    assert (failed.odds[1] > 5 * fresh.odds[1]).all()
    assert missing.misses[0].sum() == failed.misses[0].sum() == 0
    rc.learn_request(
        fresh, 0, members, RequestEvidence(np.full(2, UNKNOWN_SCORE), 1.0, SCORED), False
    )
    assert fresh.recent.counts[0] == 0  # no score at all: not even a request


def test_an_expert_whose_scores_change_is_counted_anew() -> None:
    def play(after: float) -> float:
        rng, classes = np.random.default_rng(1), rc.make_request_classes(1, 4, 2, True)
        for t in range(1_300):
            members = np.array([0, 1 + t % 3])
            p = np.array([0.1 if t < 1_000 else after, 0.4])
            missed = (rng.random(2) < p).astype(float)
            rc.learn_request(classes, 0, members, RequestEvidence(missed, 0.0, SCORED), False)
        return float(classes.misses[0].sum() / (classes.misses[0] + classes.hits[0]).sum())

    assert play(0.8) > 0.6  # all 1,300 rounds together: 0.26
    assert play(0.1) == pytest.approx(0.1, abs=0.03)  # and no alarm without a change


def test_faded_requests_are_assigned_again_with_what_is_left_of_them() -> None:
    rng, classes = np.random.default_rng(1), rc.make_request_classes(1, 4, 2, True)
    for t in range(1, 601):
        evidence = RequestEvidence((rng.random(2) < 0.4).astype(float), 0.0, SCORED)
        rc.learn_request(classes, 0, np.array([t % 2, 2 + t % 2]), evidence, False)
        if t % 10 == 0:
            rc.fade_counts(classes, 0.5)
    left = 10 * sum(0.5**n for n in range(1, 61))
    assert classes.requests.sum() == pytest.approx(left)
    assert classes.misses.sum() + classes.hits.sum() == pytest.approx(2 * left)
    assert classes.is_valid(None)


def test_the_value_of_a_panel_need_not_be_that_of_its_best_member() -> None:
    classes, rng = rc.make_request_classes(1, 3, 2, True), np.random.default_rng(0)
    for log_miss in rng.uniform(-3, -0.5, 4_000):
        missed = 0.6 * math.exp(0.7 * log_miss)
        rc.learn_link(classes, log_miss, float(rng.random() < missed), 0.6)
    for log_miss in (-2.5, -1.0):
        found = math.exp(rc.compute_linked_miss(classes, log_miss))
        assert found == pytest.approx(0.6 * math.exp(0.7 * log_miss), abs=0.03)


POOL = Problem(["a", "b", "c", "d", "e", "f"], draws=2)


MANY = Problem([f"expert-{i}" for i in range(24)], draws=3)


def draw_specialists(rounds: int, seed: int) -> Floats:
    """Values of 24 experts: each is right in most requests of one of three classes, in few of the
    others; those of the first class are better, so the best three alone are of one class.
    """
    rng = np.random.default_rng(seed)
    skill = np.full((3, 24), 0.1)
    for z, right in enumerate((0.9, 0.8, 0.7)):
        skill[z, 8 * z : 8 * z + 8] = right - 0.06 * np.arange(8)
    return (rng.random((rounds, 24)) < skill[rng.integers(0, 3, rounds)]).astype(float)[:, None, :]


def play_specialists(feedback: FeedbackKind, seed: int) -> float:
    """The mean reward of rounds 200 to 800."""
    given = Given(draw_specialists(800, seed))
    trace = simulate(MANY, given, "noisy-or", rounds=800, seed=seed, feedback=feedback)
    return float(trace.rewards[200:].mean())


def test_scores_of_members_show_who_complements_whom() -> None:
    values = np.concatenate([draw_specialists(1_000, seed) for seed in range(4)])[:, 0]
    best = values[:, [0, 8, 16]].max(axis=1).mean()
    alone = values.mean(axis=0).argsort()[-3:]
    assert best > values[:, alone].max(axis=1).mean() + 0.2  # the best three alone mislead
    earned = {kind: np.mean([play_specialists(kind, seed) for seed in range(6)]) for kind in KINDS}
    assert earned["panel"] < 0.68 < 0.71 < earned["members"]  # control: one score is not enough
    assert earned["winner"] > 0.71


def test_all_kinds_of_feedback_share_what_is_compiled() -> None:
    rules = [NoisyOr().bind(POOL, feedback=kind) for kind in KINDS]
    states = [NoisyOr().start(rule, 2) for rule in rules]
    assert len({numba.typeof(rule) for rule in rules}) == 1
    assert len({numba.typeof(state) for state in states}) == 1


def report(router: Router, rng: np.random.Generator) -> None:
    """One decision and what is reported about it."""
    decision = router.decide(context=str(rng.integers(0, 2)))
    scores = {name: float(rng.random() < 0.5) for name in decision.subset}
    best = max(scores, key=lambda name: scores[name])
    if router.feedback == "members":
        some = {name: score for name, score in scores.items() if rng.random() < 0.8}
        router.reward(decision.id, scores[best], members=some)
    elif router.feedback == "winner":
        router.reward(decision.id, scores[best], winner=best if scores[best] else None)
    else:
        router.reward(decision.id, scores[best])


@pytest.mark.parametrize("feedback", KINDS)
def test_a_saved_router_continues_bit_for_bit(feedback: FeedbackKind, tmp_path: Path) -> None:
    router = Router(POOL, "noisy-or", seed=2, feedback=feedback)
    rng = np.random.default_rng(4)
    for _ in range(60):
        report(router, rng)
    router.save(tmp_path / "router.bylot")
    again = Router.load(tmp_path / "router.bylot")
    for one in (router, again):
        rng = np.random.default_rng(5)
        for _ in range(30):
            report(one, rng)
    for was, now in zip(
        iterate_arrays(router.core.state), iterate_arrays(again.core.state), strict=True
    ):
        assert_array_equal(was, now)


def test_counts_of_experts_follow_them_into_another_pool() -> None:
    router = Router(POOL, "noisy-or", seed=2, feedback="members")
    rng = np.random.default_rng(4)
    for _ in range(100):
        decision = router.decide()
        scores = {name: float(rng.random() < 0.5) for name in decision.subset}
        router.reward(decision.id, members=scores)
    before = router.core.state.model.requests
    router.change(Problem(["c", "new", "a"], draws=2))
    after = router.core.state.model.requests
    assert_array_equal(after.misses[[0, 2]], before.misses[[2, 0]])
    assert_array_equal(after.odds[1], rc.make_request_classes(1, 3, 2, True).odds[1])
    assert_array_equal(after.total, before.total)
    assert after.recent.counts[0] == 0
    report(router, rng)
