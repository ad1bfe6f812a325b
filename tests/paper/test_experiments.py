"""The paper's experiments as cells: their grids, shared scenarios and records."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from bylot.errors import BylotError
from bylot.harness import rolling_mean, sample_rounds
from bylot.metrics import measure_worst_excess
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.sampling import compute_panel_costs
from bylot.numerics.sum_max import sum_max
from bylot.policies import POLICY_CLASSES, Distinct
from bylot_paper.crowd import make_synthetic_crowd
from bylot_paper.grid import (
    ABLATED_PARTS,
    BEYOND_POLICIES,
    COMPARED_POLICIES,
    CROWD_ENVIRONMENTS,
    FEEDBACK_POLICIES,
    GRIDS,
    GUARDED_POLICIES,
    PAPER_POLICIES,
    VARIANT_POLICIES,
    Cell,
    ScenarioJob,
    group_cells_by_scenario,
    list_cells,
    make_experiment_policy,
    select_cells,
)
from bylot_paper.records import RECORD_SCHEMA, CellRecord
from bylot_paper.run import RunSetup, count_bad_periods, run_job
from bylot_paper.scenarios import (
    ALL_LEVELS,
    PAPER_DRAWS,
    PAPER_LEVELS,
    CrowdScenario,
    make_level_problem,
)

CROWD = make_synthetic_crowd()
SETUP = RunSetup(CROWD, rounds=400)


def make_job(*cells: Cell) -> ScenarioJob:
    """The single job that runs these cells."""
    (one,) = group_cells_by_scenario(cells)
    return one


def records_are_equal(one: CellRecord, other: CellRecord) -> bool:
    """Whether two records are equal to the last bit, curves included."""
    return one.keys() == other.keys() and all(
        np.array_equal(one[key], other[key])
        if isinstance(one[key], np.ndarray)
        else one[key] == other[key]
        for key in one
    )


def test_the_grids_have_as_many_cells_as_the_paper_says() -> None:
    assert len(list_cells("sweep")) == 2 * 3 * 5
    assert len(list_cells("crowd")) == len(set(list_cells("crowd"))) == 8 * 4 * 2 * 20
    assert len(list_cells("crowd", variants=True)) == 13 * 4 * 2 * 20
    assert {cell.policy for cell in list_cells("crowd", variants=True)} == set(
        PAPER_POLICIES
    ) | set(VARIANT_POLICIES)


def test_the_grids_beyond_the_paper_are_complete() -> None:
    counts = {name: len(list_cells(name)) for name in GRIDS}
    assert counts["beyond"] == 6 * 4 * 2 * 20
    assert counts["ablation"] == 2 * 6 * 2 * 2 * 20
    assert counts["periods"] == 4 * 4 * 2 * 2 * 5
    assert counts["default"] == len(COMPARED_POLICIES) * 5 * 2 * 20
    assert counts["worlds"] == len(COMPARED_POLICIES) * 9 * 6
    assert counts["spans"] == len(COMPARED_POLICIES) * 5 * 3 * 6
    assert {cell.period for cell in list_cells("periods", 1)} == {250, 1_000, 5_000, 20_000}
    assert {cell.period for cell in list_cells("periods", 1, rounds=300)} == {
        250,
        600,
    }  # the others are too long


def test_an_id_names_one_cell() -> None:
    cells = [
        *list_cells("crowd", variants=True),
        *(cell for name in GRIDS for cell in list_cells(name, 2)),
    ]
    assert len({cell.id for cell in cells}) == len(set(cells))


def test_levels_with_smoothed_skills_have_their_own_jobs() -> None:
    jobs = group_cells_by_scenario([*list_cells("beyond", 1), *list_cells("ablation", 1)])
    assert len({str(one) for one in jobs}) == len(jobs) == 4
    for one in jobs:
        assert {cell.level == "stress" for cell in one.cells} == {one.smoothing == 10}
        assert {cell.experiment for cell in one.cells} == {"beyond", "ablation"}


def test_all_policies_are_compared_for_the_default() -> None:
    assert {*COMPARED_POLICIES, "c2mab-v"} == set(POLICY_CLASSES)  # that one is for member scores
    assert "c2mab-v" in FEEDBACK_POLICIES


def test_periods_share_the_scenarios_of_the_comparison() -> None:
    jobs = group_cells_by_scenario(
        [*list_cells("default", 1), *list_cells("worlds", 1), *list_cells("spans", 1)]
    )
    assert len({str(one) for one in jobs}) == len(jobs) == 2 * 2 + 9
    with_spans = {one.environment for one in jobs if "spans" in {c.experiment for c in one.cells}}
    assert with_spans == {"stochastic", "regime", "hospital"}
    in_hospital = Cell("spans", "own", "hospital", "distinct", 8, 0, period=250)
    assert [one.experiment for one in group_cells_by_scenario([in_hospital])] == ["worlds"]


def test_a_pattern_chooses_cells_and_one_that_matches_nothing_is_an_error() -> None:
    selected = select_cells(
        list_cells("crowd", seeds=2), ["crowd/tight/*/omd/*", "*/random/*seed=01"]
    )
    assert len(selected) == 2 * 2 + 2 * 4
    with pytest.raises(BylotError, match="no cell matches --only 'tigt'"):
        select_cells(list_cells("sweep"), ["tigt"])


def test_jobs_have_every_cell_once_and_one_scenario_each() -> None:
    cells = list_cells("sweep", seeds=2) + list_cells("crowd", seeds=2)
    jobs = group_cells_by_scenario(cells)
    assert sorted(cell for one in jobs for cell in one.cells) == sorted(cells)
    assert len({str(one) for one in jobs}) == len(jobs) == 2 * 2 + 2 * 2


def test_the_levels_bound_workload_and_experts_as_in_table_1() -> None:
    pool = CROWD.pool(seed=0)
    mean = pool.workload.mean()
    for level, budget, cap in [("tight", 0.0, 2.0), ("medium", 0.1, 2.5), ("loose", 0.5, 5.0)]:
        bounds = make_level_problem(pool, level).bounds
        assert_allclose(bounds, [5 * mean + budget, cap], rtol=1e-15)
    assert make_level_problem(pool, "none").limits == ()
    assert make_level_problem(pool, "tight").floor == 0.002


def test_stress_is_tighter_and_smoother_than_the_papers_levels() -> None:
    plain, smooth = CROWD.pool(seed=0), CROWD.pool(seed=0, smoothing=ALL_LEVELS["stress"].smoothing)  # type: ignore[union-attr]
    assert_allclose(
        make_level_problem(smooth, "stress").bounds, [4 * plain.workload.mean(), 1], rtol=1e-15
    )
    assert plain.skills.max() == 1.0
    assert smooth.skills.min() > 0
    assert smooth.skills.max() < 1.0
    scenario = CrowdScenario(CROWD, "stochastic", 3, seed=0, rounds=50, smoothing=10, exact=True)
    assert list(scenario.problems) == ["stress"]
    assert_array_equal(scenario.pool.skills, smooth.skills)


def test_beyond_the_paper_the_optimum_uses_the_exact_costs() -> None:
    paper, exact = (
        CrowdScenario(CROWD, "regime", 3, 1, 300, exact=exact) for exact in (False, True)
    )
    for level in ("tight", "loose"):
        low, high = paper.find_optimum(level)[0], exact.find_optimum(level)[0]
        assert high.value >= low.value - 1e-9  # the surrogate is stricter
        q, limited = high.policy, exact.problems[level]
        assert measure_worst_excess(limited, limited.rows @ (1 - (1 - q) ** PAPER_DRAWS)) <= 1e-9
    assert exact.find_optimum("tight")[0].value > paper.find_optimum("tight")[0].value + 1e-4


def test_a_record_does_not_depend_on_the_other_cells_of_the_job() -> None:
    policies, levels = ("greedy", "cbwk", "ts", "omd"), ("tight", "loose", "none")
    cells = [Cell("crowd", lv, "regime", p, 3, 1) for p in policies for lv in levels]
    together = run_job(SETUP, make_job(*cells))
    for cell, row in zip(cells, together, strict=True):
        (alone,) = run_job(SETUP, make_job(cell))
        assert records_are_equal(row, alone), cell.id
    assert not records_are_equal(together[0], together[1])  # another level is another record


def test_policies_share_the_rounds_and_environments_share_the_pool() -> None:
    one, other = (CrowdScenario(CROWD, "regime", 3, seed=4, rounds=50) for _ in range(2))
    assert_array_equal(one.given.values, other.given.values)
    steady = CrowdScenario(CROWD, "stochastic", 5, seed=4, rounds=50)
    assert steady.pool.workers == one.pool.workers
    assert steady.given.shape == (5, 50)


def test_every_policy_of_the_paper_plays_at_every_level() -> None:
    cells = [
        Cell("crowd", lv, "stochastic", p, 3, 0)
        for p in PAPER_POLICIES + VARIANT_POLICIES
        for lv in PAPER_LEVELS
    ]
    for row in run_job(RunSetup(CROWD, rounds=60), make_job(*cells)):
        assert 0 < row["reward"] <= 3
        assert row["optimum_gap"] <= 1e-8
        assert row["regret_true"] == pytest.approx(row["curve_r1_true"][-1], abs=1e-12)
        assert (row["outside"] > 0) == (row["r2"] > 0)
        assert row["r2"] == row["curve_r2"][-1]
        assert (row["workload_bound"] is None) == (row["level"] == "none")


def test_records_beyond_the_paper_do_not_depend_on_the_job() -> None:
    """A job can have cells of several experiments, some of which share one run."""
    setup = RunSetup(CROWD, rounds=300)
    names = ["distinct", "distinct:eps=0.0", "ts-bwk"]
    cells = [Cell("beyond", "stress", "regime", name, 3, 2) for name in (*names, "omd")]
    cells += [Cell("ablation", "stress", "regime", name, 3, 2) for name in names[:2]]
    together = run_job(setup, make_job(*cells))
    for cell, row in zip(cells, together, strict=True):
        (alone,) = run_job(setup, make_job(cell))
        assert row.keys() == RECORD_SCHEMA.keys()
        assert records_are_equal(row, alone), cell.id
        assert row["refused"] is None
        assert (row["curve_t"] is None) == (cell.experiment == "ablation")
    assert together[0]["reward"] == together[4]["reward"] != together[1]["reward"]
    assert together[0]["outside"] == 0.0
    assert together[0]["optimum_gap"] >= 0.0


def test_a_refused_run_is_a_record_with_the_reason() -> None:
    cells = [Cell("periods", "stress", "stochastic", name, 3, 0, 1) for name in ("distinct", "omd")]
    refused, played = run_job(RunSetup(CROWD, rounds=20), make_job(*cells))
    assert "a period of 1 rounds is too short to guarantee the limits" in refused["refused"]
    assert refused.keys() == played.keys() == RECORD_SCHEMA.keys()
    assert refused["reward"] is None
    assert refused["cell"] == cells[0].id
    assert played["refused"] is None


def test_policies_without_periods_do_not_depend_on_the_period() -> None:
    setup = RunSetup(CROWD, rounds=300)  # so that a run has 600
    cells = [
        Cell("periods", "tight", "regime", policy, 3, 0, period)
        for policy in ("omd", "distinct")
        for period in (250, 600)
    ]
    omd_short, omd_long, distinct_short, distinct_long = run_job(setup, make_job(*cells))
    assert omd_short["reward"] == omd_long["reward"]
    assert (omd_short["periods"], omd_long["periods"]) == (2, 1)
    assert len(omd_short["curve_reward"]) == len(distinct_short["curve_reward"]) == 200
    assert distinct_short["reward"] != distinct_long["reward"]
    assert distinct_short["bad_periods"] == distinct_long["bad_periods"] == 0


@given(st.integers(1, 7), st.integers(0, 30), st.integers(0, 9))
def test_bad_periods_are_counted_one_by_one(period: int, rounds: int, seed: int) -> None:
    limited = make_level_problem(CROWD.pool(0), "tight")
    spend = limited.bounds * np.random.default_rng(seed).uniform(0.5, 1.5, (rounds, 2))
    starts = range(0, rounds - period + 1, period)
    bad = [measure_worst_excess(limited, spend[at : at + period].mean(axis=0)) > 0 for at in starts]
    assert count_bad_periods(limited, spend, period) == {
        "periods": len(bad),
        "bad_periods": sum(bad),
    }


def test_a_name_can_have_settings() -> None:
    assert make_experiment_policy(
        "distinct:eta=2.0,batch=5,guard=False,pace=None", "beyond", 3
    ) == Distinct(eta=2.0, batch=5, guard=False, pace=None)
    for name in GUARDED_POLICIES:
        for part in ABLATED_PARTS:
            assert make_experiment_policy(f"{name}:{part}", "ablation", 3) != POLICY_CLASSES[name]()
    for name in BEYOND_POLICIES:
        if name in PAPER_POLICIES:
            assert make_experiment_policy(name, "beyond", 3) == make_experiment_policy(
                name, "crowd", 3
            )


def test_a_job_can_run_its_first_rounds_only() -> None:
    """The first rounds compile all that the job needs; they are refused if the job would be."""
    cell = Cell("beyond", "tight", "stochastic", "distinct", 3, 0)
    (row,) = run_job(RunSetup(CROWD, rounds=300), make_job(cell), rounds=20)
    assert row["refused"] is None
    assert row["curve_t"][-1] == 20


def test_without_limits_constraint_aware_policies_equal_their_unaware_versions() -> None:
    cells = [Cell("crowd", "none", "stochastic", p, 3, 0) for p in ("cucb", "cbwk", "ts", "ts-bwk")]
    cucb, cbwk, ts, ts_bwk = (row["curve_reward"] for row in run_job(SETUP, make_job(*cells)))
    assert_array_equal(cucb, cbwk)
    assert_array_equal(ts, ts_bwk)
    assert not np.array_equal(cucb, ts)


def test_the_sweep_reports_regret_to_the_proxy_and_to_the_optimum() -> None:
    (row,) = run_job(SETUP, make_job(Cell("sweep", "tight", "stochastic", "omd", 5, 0)))
    assert_array_equal(row["curve_t"], np.arange(10, 401, 10))
    assert row["regret_proxy"] == pytest.approx(row["curve_r1_proxy"][-1])
    # q_T keeps the surrogate up to the violation of the dual, but it is not the optimum.
    assert row["curve_r1_true"][-1] > row["curve_r1_proxy"][-1]


def test_the_exact_expectation_agrees_with_the_papers_200_draws() -> None:
    scenario = CrowdScenario(CROWD, "stochastic", 3, seed=0, rounds=300)
    rng = np.random.default_rng(0)
    q = scenario.find_optimum("tight")[0].policy
    panels = rng.choice(scenario.stack.size, size=(300, 200, PAPER_DRAWS), p=q / q.sum())
    rounds = zip(scenario.given.values, panels, strict=True)
    earned = np.array([[sum_max(values, panel) for panel in drawn] for values, drawn in rounds])
    error = earned.std(axis=1, ddof=1) / np.sqrt(200)  # of each round's estimate
    total = np.sqrt((error**2).sum()) / 300
    assert abs(earned.mean() - scenario.expected(q).mean()) < 4 * total
    assert abs(earned.mean() - scenario.uniform) > 4 * total  # another policy would be noticed
    # As large as the draws' own error, no larger
    errors = earned.mean(axis=1) - scenario.expected(q)
    assert np.sqrt((errors**2).mean()) == pytest.approx(np.sqrt((error**2).mean()), rel=0.1)


def test_the_regime_shrinks_the_values_of_the_stationary_environment() -> None:
    steady, regime = (
        CrowdScenario(CROWD, name, 3, seed=0, rounds=500) for name in CROWD_ENVIRONMENTS
    )
    lost = steady.given.values.mean() - regime.given.values.mean()
    assert lost == pytest.approx(0.1 * 0.8 * steady.given.values.mean(), rel=0.25)


@given(
    arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.integers(0, 3))
)
def test_a_panel_costs_each_member_once(draws: Ints) -> None:
    rows = np.array([[0.5, 1.0, 2.0, 4.0], [1.0, 0.0, 0.0, 1.0]])
    expected = [[sum(row[i] for i in set(panel)) for row in rows] for panel in draws.tolist()]
    assert_allclose(compute_panel_costs(draws, rows), expected)


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 3)), st.integers(1, 50))
def test_a_rolling_mean_is_the_mean_of_the_last_rounds(rewards: Floats, window: int) -> None:
    expected = [rewards[max(0, t - window) : t].mean() for t in range(1, len(rewards) + 1)]
    t = np.arange(1, len(rewards) + 1)
    assert_allclose(rolling_mean(rewards, window, t), expected, atol=1e-12)
    assert_allclose(rolling_mean(rewards, window, t[::3]), expected[::3], atol=1e-12)


@given(st.integers(1, 3_000), st.sampled_from([10, None]))
def test_a_curve_ends_with_the_run(rounds: int, step: int | None) -> None:
    points = sample_rounds(rounds, step)
    assert points[-1] == rounds
    assert points[0] >= 1
    assert (np.diff(points) > 0).all()


def test_settings_quoted_for_raw_sums_are_converted() -> None:
    cbwk, moe, omd = (make_experiment_policy(name, "crowd", 3) for name in ("cbwk", "moe", "omd"))
    assert (cbwk.c, cbwk.step) == (2 / 3, 10 / 3)  # type: ignore[attr-defined]
    assert (moe.rate, moe.step) == (0.03, 4e-4 / 3)  # type: ignore[attr-defined]
    assert omd.eta_mult == 0.05 / 3  # type: ignore[attr-defined]
    assert make_experiment_policy("omd", "sweep", 5).eta_mult == 0.03 / 5  # type: ignore[attr-defined]
