"""Crowds and the pools drawn from them, checked against plain loops over small crowds."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bylot.errors import DataError
from bylot_paper.crowd import (
    Annotation,
    Crowd,
    assemble_crowd,
    describe_crowd,
    draw_workers,
    flag_most_accurate,
    make_synthetic_crowd,
)


def make_small_crowd(workers: int = 12, tasks: int = 40, seed: int = 0) -> Crowd:
    """A crowd in which worker i answers 3 + i tasks; so not all are reliable."""
    rng = np.random.default_rng(seed)
    return assemble_crowd(
        "small",
        [
            Annotation(str(task), str(i), bool(rng.random() < 0.7))
            for i in range(workers)
            for task in rng.choice(tasks, 3 + i, replace=False)
        ],
    )


CROWD = make_small_crowd()


def test_a_crowd_does_not_depend_on_the_order_of_its_annotations() -> None:
    given = [Annotation("10", "b", True), Annotation("9", "a", False), Annotation("10", "a", True)]
    one, other = assemble_crowd("one", given), assemble_crowd("other", given[::-1])
    assert one == other
    assert hash(one) == hash(other)
    assert one != assemble_crowd("one", given[:2])
    assert (one.tasks, one.workers) == (("9", "10"), ("a", "b"))
    assert (one.task.tolist(), one.worker.tolist()) == ([0, 1, 1], [0, 0, 1])
    assert one.accuracy().tolist() == [0.5, 1.0]
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_crowd_and_a_pool_are_read_only() -> None:
    pool = CROWD.pool(0, size=5, experts=2)
    for array in (
        CROWD.task,
        CROWD.correct,
        pool.skills,
        pool.workload,
        pool.expert,
        pool.accuracy,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_reliable_workers_have_enough_annotations() -> None:
    assert [CROWD.workers[i] for i in CROWD.reliable()] == [str(i) for i in range(2, 12)]
    assert [CROWD.workers[i] for i in CROWD.reliable(least=13)] == ["10", "11"]
    assert CROWD.counts == (12, 38, sum(range(3, 15)), 10)


@pytest.mark.parametrize("dimensions", [1, 3, 5, 60])
@pytest.mark.parametrize("seed", range(4))
def test_skills_and_costs_are_those_of_the_paper(dimensions: int, seed: int) -> None:
    pool = CROWD.pool(seed, size=6, dimensions=dimensions, experts=2)
    imputed, load = 0, {}
    for i, name in enumerate(pool.workers):
        own = [k for k in range(len(CROWD.worker)) if CROWD.workers[CROWD.worker[k]] == name]
        load[name] = len(own)
        overall = np.mean([CROWD.correct[k] for k in own])
        assert pool.accuracy[i] == overall
        for n in range(dimensions):
            group = [CROWD.correct[k] for k in own if CROWD.task[k] % dimensions == n]
            imputed += not group
            assert pool.skills[n, i] == (np.mean(group) if group else overall)
    assert pool.skills.shape == (dimensions, 6)
    assert pool.imputed == imputed
    assert_array_equal(pool.workload, [load[name] / max(load.values()) for name in pool.workers])
    assert pool.expert.sum() == 2
    assert pool.accuracy[pool.expert == 1].min() >= pool.accuracy[pool.expert == 0].max()


@pytest.mark.parametrize("dimensions", [1, 3, 60])
def test_smoothing_adds_annotations_of_an_average_worker(dimensions: int) -> None:
    plain, smooth = (CROWD.pool(1, 6, dimensions, 2, smoothing) for smoothing in (0, 10))
    for n in range(dimensions):
        average = plain.skills[n].mean()
        for i, name in enumerate(plain.workers):
            own = CROWD.worker == CROWD.workers.index(name)
            group = CROWD.correct[own & (CROWD.task % dimensions == n)]
            expected = (group.sum() + 10 * average) / (len(group) + 10)
            assert smooth.skills[n, i] == pytest.approx(expected, rel=1e-14)
    assert smooth.imputed == plain.imputed
    assert_array_equal(smooth.accuracy, plain.accuracy)  # experts and costs
    assert_array_equal(smooth.expert, plain.expert)  # do not change
    assert_array_equal(smooth.workload, plain.workload)


def test_workload_is_relative_to_the_pool_and_not_to_the_crowd() -> None:
    pools = [CROWD.pool(seed, size=6, experts=2) for seed in range(10)]
    assert any("11" not in pool.workers for pool in pools)  # the busiest of all
    assert all(pool.workload.max() == 1 for pool in pools)


def test_tasks_are_sorted_as_numbers_before_they_are_grouped() -> None:
    """Tasks 2 and 10 are the first and the second: as text it would be the other way round."""
    crowd = assemble_crowd(
        "two",
        [Annotation(task, w, task == "2") for w in "ab" for task in ("2", "10", "30", "41", "52")],
    )
    assert crowd.pool(0, size=2, dimensions=5, experts=1).skills[:, 0].tolist() == [1, 0, 0, 0, 0]


def test_the_workers_of_a_pool_depend_on_the_seed_and_not_on_the_dimensions() -> None:
    one, same, other = (CROWD.pool(s, 5, n, 2) for s, n in ((3, 3), (3, 5), (4, 3)))
    assert one.workers == same.workers
    assert one.workers != other.workers
    assert_array_equal(one.expert, same.expert)
    assert_array_equal(one.skills, CROWD.pool(3, 5, 3, 2).skills)


def test_the_draws_of_a_seed_never_change() -> None:
    """Records name pools by their seed, so these must never change."""
    assert draw_workers(0, np.arange(20), 5).tolist() == [5, 7, 12, 15, 19]
    assert draw_workers(7, np.arange(20), 5).tolist() == [9, 11, 16, 17, 19]


def deviation(probability: float, draws: int = 4_000) -> float:
    """Largest z-score of how often each of 10 is among the 3 drawn."""
    counts = sum(
        np.bincount(draw_workers(seed, np.arange(10), 3), minlength=10) for seed in range(draws)
    )
    z = (counts - draws * probability) / np.sqrt(draws * probability * (1 - probability))
    return float(np.abs(z).max())


def test_all_workers_are_drawn_equally_often() -> None:
    assert deviation(probability=0.3) < 5


def test_the_test_above_would_notice_a_wrong_probability() -> None:
    assert deviation(probability=0.27) > 3


def test_a_draw_is_without_replacement_and_in_order() -> None:
    for seed in range(50):
        drawn = draw_workers(seed, np.arange(10), 8)
        assert (np.diff(drawn) > 0).all()


def test_ties_in_accuracy_are_broken_by_the_order_of_workers() -> None:
    accuracy = np.array([0.5, 1.0, 0.5, 1.0, 1.0])
    assert flag_most_accurate(accuracy, 2).tolist() == [0, 1, 0, 1, 0]
    assert flag_most_accurate(accuracy, 4).tolist() == [1, 1, 0, 1, 1]
    assert flag_most_accurate(accuracy, 0).tolist() == [0] * 5
    many = np.tile([0.5, 1.0], 50)  # long enough for an unstable sort to show
    assert np.flatnonzero(flag_most_accurate(many, 20)).tolist() == list(range(1, 41, 2))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"size": 11}, "only 10 workers with at least 5 annotations"),
        ({"size": 0}, "size of a pool 0: expected"),
        ({"size": 5, "dimensions": 0}, "dimensions 0: expected"),
        ({"size": 5, "experts": 6}, "experts 6: expected"),
        ({"smoothing": -1}, "smoothing -1: expected"),
        ({"seed": -1}, "seed of a pool -1: expected"),
        ({"seed": 1 << 64}, "from 0 to"),
    ],
)
def test_a_pool_that_cannot_be_drawn_is_refused(settings: dict[str, int], words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        CROWD.pool(**({"seed": 0, "size": 5, "experts": 2} | settings))
    assert len(str(caught.value).splitlines()) == 1


def test_a_synthetic_crowd_has_the_counts_of_trec_and_is_marked_as_synthetic() -> None:
    for seed in range(3):
        crowd = make_synthetic_crowd(seed)
        assert crowd.synthetic
        assert crowd.counts[:2] == (677, 2275)
        assert crowd.counts.reliable == 270
        assert 12_500 < crowd.counts.annotations < 13_700
        pairs = set(zip(crowd.task.tolist(), crowd.worker.tolist(), strict=True))
        assert len(pairs) == crowd.counts.annotations
        assert "synthetic: made up" in describe_crowd(crowd)
    assert make_synthetic_crowd() == make_synthetic_crowd(0)
    assert make_synthetic_crowd() != make_synthetic_crowd(1)


def test_the_description_of_a_crowd_has_its_counts() -> None:
    text = describe_crowd(CROWD)
    assert "crowd small" in text
    assert "synthetic" not in text
    assert CROWD.digest in text
    lines = dict(line.rsplit(maxsplit=1) for line in text.splitlines())
    assert (lines["workers"], lines["reliable"], lines["annotations"]) == ("12", "10", "102")
    none_reliable = assemble_crowd("few", [Annotation("1", "a", True), Annotation("2", "a", False)])
    assert "reliable" in describe_crowd(none_reliable)
