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
)
from bylot_paper.crowd_sources import make_synthetic_crowd


def small(workers: int = 12, tasks: int = 40, seed: int = 0) -> Crowd:
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


CROWD = small()


def test_a_crowd_forgets_the_order_in_which_it_came() -> None:
    given = [Annotation("10", "b", True), Annotation("9", "a", False), Annotation("10", "a", True)]
    one, other = assemble_crowd("one", given), assemble_crowd("other", given[::-1])
    assert one == other
    assert hash(one) == hash(other)
    assert one != assemble_crowd("one", given[:2])
    assert (one.tasks, one.workers) == (("9", "10"), ("a", "b"))
    assert (one.task.tolist(), one.worker.tolist()) == ([0, 1, 1], [0, 0, 1])
    assert one.accuracy().tolist() == [0.5, 1.0]
    assert pickle.loads(pickle.dumps(one)) == one


def test_nobody_can_change_a_crowd_or_a_pool() -> None:
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
        mine = [k for k in range(len(CROWD.worker)) if CROWD.workers[CROWD.worker[k]] == name]
        load[name] = len(mine)
        overall = np.mean([CROWD.correct[k] for k in mine])
        assert pool.accuracy[i] == overall
        for n in range(dimensions):
            group = [CROWD.correct[k] for k in mine if CROWD.task[k] % dimensions == n]
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
            mine = CROWD.worker == CROWD.workers.index(name)
            group = CROWD.correct[mine & (CROWD.task % dimensions == n)]
            wanted = (group.sum() + 10 * average) / (len(group) + 10)
            assert smooth.skills[n, i] == pytest.approx(wanted, rel=1e-14)
    assert smooth.imputed == plain.imputed
    assert_array_equal(smooth.accuracy, plain.accuracy)  # who is an expert, and what all cost,
    assert_array_equal(smooth.expert, plain.expert)  # is what it was
    assert_array_equal(smooth.workload, plain.workload)


def test_workload_is_relative_to_the_pool_and_not_to_the_crowd() -> None:
    pools = [CROWD.pool(seed, size=6, experts=2) for seed in range(10)]
    assert any("11" not in pool.workers for pool in pools)  # the busiest of all
    assert all(pool.workload.max() == 1 for pool in pools)


def test_groups_are_dealt_over_all_tasks_sorted_as_numbers() -> None:
    """Tasks 2 and 10 are the first and the second: as text it would be the other way round."""
    crowd = assemble_crowd(
        "two",
        [Annotation(task, w, task == "2") for w in "ab" for task in ("2", "10", "30", "41", "52")],
    )
    assert crowd.pool(0, size=2, dimensions=5, experts=1).skills[:, 0].tolist() == [1, 0, 0, 0, 0]


def test_a_pool_is_a_function_of_its_seed_and_not_of_the_dimensions() -> None:
    one, same, other = (CROWD.pool(s, 5, n, 2) for s, n in ((3, 3), (3, 5), (4, 3)))
    assert one.workers == same.workers
    assert one.workers != other.workers
    assert_array_equal(one.expert, same.expert)
    assert_array_equal(one.skills, CROWD.pool(3, 5, 3, 2).skills)


def test_the_draws_of_a_seed_stay_what_they_were() -> None:
    """Records name pools by their seed, so these must never change."""
    assert draw_workers(0, np.arange(20), 5).tolist() == [5, 7, 12, 15, 19]
    assert draw_workers(7, np.arange(20), 5).tolist() == [9, 11, 16, 17, 19]


def deviation(believed: float, draws: int = 4_000) -> float:
    """Largest z-score of how often each of 10 is among the 3 drawn."""
    count = sum(
        np.bincount(draw_workers(seed, np.arange(10), 3), minlength=10) for seed in range(draws)
    )
    z = (count - draws * believed) / np.sqrt(draws * believed * (1 - believed))
    return float(np.abs(z).max())


def test_everybody_is_drawn_equally_often() -> None:
    assert deviation(believed=0.3) < 5


def test_the_test_above_would_notice_a_wrong_chance() -> None:
    assert deviation(believed=0.27) > 3


def test_a_draw_is_without_replacement_and_in_order() -> None:
    for seed in range(50):
        drawn = draw_workers(seed, np.arange(10), 8)
        assert (np.diff(drawn) > 0).all()


def test_of_equally_accurate_workers_the_first_are_experts() -> None:
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


def test_a_made_up_crowd_has_the_counts_of_trec_and_says_what_it_is() -> None:
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


def test_a_description_counts_what_is_there() -> None:
    words = describe_crowd(CROWD)
    assert "crowd small" in words
    assert "synthetic" not in words
    assert CROWD.digest in words
    lines = dict(line.rsplit(maxsplit=1) for line in words.splitlines())
    assert (lines["workers"], lines["reliable"], lines["annotations"]) == ("12", "10", "102")
    nobody = assemble_crowd("few", [Annotation("1", "a", True), Annotation("2", "a", False)])
    assert "reliable" in describe_crowd(nobody)
