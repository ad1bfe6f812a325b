"""The paper's experiments as cells: what each fixes, what they share, and what is kept of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from bylot.data import synthetic
from bylot.errors import BylotError
from bylot.experiments import LEVELS, Cell, Job, Setup, chosen, crowd, jobs, run, sweep
from bylot.experiments.grid import ENVIRONMENTS
from bylot.experiments.levels import DRAWS, problem
from bylot.experiments.lineup import PAPER, VARIANTS, settings
from bylot.experiments.outcome import Row, rolling, sampled, spending
from bylot.experiments.world import World
from bylot.kernels.compile import Floats, Ints
from bylot.kernels.summax import sum_max

CROWD = synthetic()
SETUP = Setup(CROWD, rounds=400)


def job(*cells: Cell) -> Job:
    """The one job that these cells make."""
    (one,) = jobs(cells)
    return one


def same(one: Row, other: Row) -> bool:
    """Equal to the last bit, curves included."""
    return one.keys() == other.keys() and all(
        np.array_equal(one[key], other[key])
        if isinstance(one[key], np.ndarray)
        else one[key] == other[key]
        for key in one
    )


def test_the_grids_have_as_many_cells_as_the_paper_says() -> None:
    assert len(sweep()) == 2 * 3 * 5
    assert len(crowd()) == len(set(crowd())) == 8 * 4 * 2 * 20
    assert len(crowd(variants=True)) == 13 * 4 * 2 * 20
    assert {cell.policy for cell in crowd(variants=True)} == set(PAPER) | set(VARIANTS)


def test_an_id_names_one_cell() -> None:
    cells = sweep() + crowd(variants=True)
    assert len({cell.id for cell in cells}) == len(cells)


def test_a_pattern_chooses_cells_and_one_that_matches_nothing_is_an_error() -> None:
    picked = chosen(crowd(seeds=2), ["crowd/tight/*/omd/*", "*/random/*seed=01"])
    assert len(picked) == 2 * 2 + 2 * 4
    with pytest.raises(BylotError, match="no cell matches --only 'tigt'"):
        chosen(sweep(), ["tigt"])


def test_jobs_hold_every_cell_once_and_one_world_each() -> None:
    cells = sweep(seeds=2) + crowd(seeds=2)
    made = jobs(cells)
    assert sorted(cell for one in made for cell in one.cells) == sorted(cells)
    assert len({str(one) for one in made}) == len(made) == 2 * 2 + 2 * 2


def test_the_levels_bound_workload_and_experts_as_in_table_1() -> None:
    pool = CROWD.pool(seed=0)
    mean = pool.workload.mean()
    for level, budget, cap in [("tight", 0.0, 2.0), ("medium", 0.1, 2.5), ("loose", 0.5, 5.0)]:
        bounds = problem(pool, level).bounds
        assert_allclose(bounds, [5 * mean + budget, cap], rtol=1e-15)
    assert problem(pool, "none").limits == ()
    assert problem(pool, "tight").floor == 0.002


def test_a_record_does_not_depend_on_what_else_is_in_the_job() -> None:
    policies, levels = ("greedy", "cbwk", "ts", "omd"), ("tight", "loose", "none")
    cells = [Cell("crowd", lv, "regime", p, 3, 1) for p in policies for lv in levels]
    together = run(SETUP, job(*cells))
    for cell, row in zip(cells, together, strict=True):
        (alone,) = run(SETUP, job(cell))
        assert same(row, alone), cell.id
    assert not same(together[0], together[1])  # another level is another record


def test_all_policies_meet_the_same_rounds_and_both_environments_the_same_pool() -> None:
    one, other = (World(CROWD, "regime", 3, seed=4, rounds=50) for _ in range(2))
    assert_array_equal(one.given.values, other.given.values)
    steady = World(CROWD, "stochastic", 5, seed=4, rounds=50)
    assert steady.pool.workers == one.pool.workers
    assert steady.given.shape == (5, 50)


def test_every_policy_of_the_lineup_plays_at_every_level() -> None:
    cells = [Cell("crowd", lv, "stochastic", p, 3, 0) for p in PAPER + VARIANTS for lv in LEVELS]
    for row in run(Setup(CROWD, rounds=60), job(*cells)):
        assert 0 < row["reward"] <= 3
        assert row["optimum_gap"] <= 1e-8
        assert row["regret_true"] == pytest.approx(row["curve_r1_true"][-1], abs=1e-12)
        assert (row["outside"] > 0) == (row["r2"] > 0)
        assert row["r2"] == row["curve_r2"][-1]
        assert (row["workload_bound"] is None) == (row["level"] == "none")


def test_without_limits_the_constraint_aware_are_the_unaware() -> None:
    cells = [Cell("crowd", "none", "stochastic", p, 3, 0) for p in ("cucb", "cbwk", "ts", "ts-bwk")]
    cucb, cbwk, ts, ts_bwk = (row["curve_reward"] for row in run(SETUP, job(*cells)))
    assert_array_equal(cucb, cbwk)
    assert_array_equal(ts, ts_bwk)
    assert not np.array_equal(cucb, ts)


def test_the_sweep_judges_by_the_papers_proxy_and_by_the_true_optimum() -> None:
    (row,) = run(SETUP, job(Cell("sweep", "tight", "stochastic", "omd", 5, 0)))
    assert_array_equal(row["curve_t"], np.arange(10, 401, 10))
    assert row["regret_proxy"] == pytest.approx(row["curve_r1_proxy"][-1])
    # q_T keeps the surrogate only up to what the dual asks of it, but it is not the optimum.
    assert row["curve_r1_true"][-1] > row["curve_r1_proxy"][-1]


def test_the_exact_expectation_agrees_with_the_papers_200_draws() -> None:
    world = World(CROWD, "stochastic", 3, seed=0, rounds=300)
    rng = np.random.default_rng(0)
    q = world.best("tight").found.policy
    panels = rng.choice(world.stack.size, size=(300, 200, DRAWS), p=q / q.sum())
    rounds = zip(world.given.values, panels, strict=True)
    earned = np.array([[sum_max(values, panel) for panel in drawn] for values, drawn in rounds])
    error = earned.std(axis=1, ddof=1) / np.sqrt(200)  # of each round's estimate
    total = np.sqrt((error**2).sum()) / 300
    assert abs(earned.mean() - world.expected(q).mean()) < 4 * total
    assert abs(earned.mean() - world.uniform) > 4 * total  # another policy would be noticed
    misses = earned.mean(axis=1) - world.expected(q)  # as large as the draws' own error, no larger
    assert np.sqrt((misses**2).mean()) == pytest.approx(np.sqrt((error**2).mean()), rel=0.1)


def test_the_regime_shrinks_what_the_steady_world_does_not() -> None:
    steady, regime = (World(CROWD, name, 3, seed=0, rounds=500) for name in ENVIRONMENTS)
    lost = steady.given.values.mean() - regime.given.values.mean()
    assert lost == pytest.approx(0.1 * 0.8 * steady.given.values.mean(), rel=0.25)


@given(
    arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.integers(0, 3))
)
def test_a_panel_pays_for_each_member_once(draws: Ints) -> None:
    rows = np.array([[0.5, 1.0, 2.0, 4.0], [1.0, 0.0, 0.0, 1.0]])
    wanted = [[sum(row[i] for i in set(panel)) for row in rows] for panel in draws.tolist()]
    assert_allclose(spending(draws, rows), wanted)


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 3)), st.integers(1, 50))
def test_a_rolling_mean_is_the_mean_of_the_last_rounds(rewards: Floats, window: int) -> None:
    wanted = [rewards[max(0, t - window) : t].mean() for t in range(1, len(rewards) + 1)]
    assert_allclose(rolling(rewards, window), wanted, atol=1e-12)


@given(st.integers(1, 3_000), st.sampled_from(["sweep", "crowd"]))
def test_a_curve_ends_with_the_play(rounds: int, experiment: str) -> None:
    points = sampled(rounds, experiment)
    assert points[-1] == rounds
    assert points[0] >= 1
    assert (np.diff(points) > 0).all()


def test_settings_quoted_for_raw_sums_are_converted() -> None:
    cbwk, moe, omd = (settings(name, "crowd", 3) for name in ("cbwk", "moe", "omd"))
    assert (cbwk.c, cbwk.step) == (2 / 3, 10 / 3)  # type: ignore[attr-defined]
    assert (moe.rate, moe.step) == (0.03, 4e-4 / 3)  # type: ignore[attr-defined]
    assert omd.eta_mult == 0.05 / 3  # type: ignore[attr-defined]
    assert settings("omd", "sweep", 5).eta_mult == 0.03 / 5  # type: ignore[attr-defined]
