"""`bylot reproduce default`: every policy in every scenario, and the report on the results."""

import json
import math
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal

import hospital
from bylot.cli import main
from bylot.policies import Auto, policy_to_data
from bylot.problem import Problem
from bylot_paper import scenarios
from bylot_paper.analysis import RecordGroups
from bylot_paper.claims.judge import describe_missing
from bylot_paper.crowd import make_synthetic_crowd
from bylot_paper.default_rule import LARGE_POOL_SIZE, ResultLine, choose_defaults
from bylot_paper.grid import (
    COMPARED_POLICIES,
    COMPARISON_EXPERIMENTS,
    Cell,
    group_cells_by_scenario,
)
from bylot_paper.records import Records
from bylot_paper.report.default import collect_contest_entries, draw_contest
from bylot_paper.reproduce import ReproduceRequest
from bylot_paper.run import RunSetup, run_job
from bylot_paper.scenarios import read_hospital
from comparison_records import LOST, make_comparison_records
from paper_records import write_report_without_figures

RUN = ["reproduce", "default", "--data", "synthetic", "--rounds", "120", "--jobs", "2"]
CELL_PATTERNS = (
    "default/tight/*/distinct",
    "default/tight/*/random",
    "*/late/distinct",
    "*/late/greedy",
)
ONLY_SOME_CELLS = [word for pattern in CELL_PATTERNS for word in ("--only", f"{pattern}/N*")]


def read_records_without_times(folder: Path) -> pl.DataFrame:
    """The records without the measured times."""
    return pl.read_parquet(folder / "records.parquet").drop("micros")


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of some policies, without the hospital."""
    folder = tmp_path_factory.mktemp("default")
    assert main([*RUN, *ONLY_SOME_CELLS, "--seeds", "3", "--out", str(folder)]) == 0
    return folder


def test_one_command_leaves_records_a_figure_a_report_and_a_verdict(small_run: Path) -> None:
    cells = read_records_without_times(small_run)
    assert dict(cells.group_by("experiment").len().iter_rows()) == {
        "default": 2 * 2 * 3,
        "worlds": 2 * 3,
    }
    distinct = cells.filter(pl.col("policy") == "distinct")
    assert distinct["feasible"].all()
    assert distinct["propensities"].all()
    assert not cells.filter(pl.col("policy") == "greedy")["propensities"].any()
    for column in ("reward", "mixture", "mixture_gap", "optimum", "uniform", "size"):
        assert np.isfinite(cells[column].to_numpy()).all()
    assert (
        cells["mixture"] > cells["optimum"] - 1e-9
    ).all()  # no distribution of draws beats panels
    assert (small_run / "figures" / "default.png").stat().st_size > 10_000
    text = (small_run / "report.md").read_text()
    assert "SYNTHETIC" in text
    assert "Without the hospital: its files were not given" in text
    found = json.loads((small_run / "default.json").read_text())
    assert found["outcome"] in text
    assert found["choices"][0]["policy"] == "distinct"


def test_adding_seeds_to_a_run_gives_the_same_records_as_one_run(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seeds in ("1", "3"):
        assert main([*RUN, *ONLY_SOME_CELLS, "--seeds", seeds, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().err
    assert "6 to compute" in printed
    assert "12 to compute" in printed
    assert "without the hospital" in printed
    assert read_records_without_times(tmp_path).equals(read_records_without_times(small_run))


def test_a_second_run_computes_nothing(small_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (small_run / "records.parquet").read_bytes()
    assert main([*RUN, *ONLY_SOME_CELLS, "--seeds", "3", "--out", str(small_run)]) == 0
    assert "0 to compute" in capsys.readouterr().err
    assert (small_run / "records.parquet").read_bytes() == before


def test_the_hospital_is_a_scenario_if_its_files_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--hospital", str(hospital.find_folder()), "--only", "*/hospital/distinct/*"]
    assert main([*RUN, *files, "--seeds", "1", "--out", str(tmp_path)]) == 0
    assert "without the hospital" not in capsys.readouterr().err
    (row,) = read_records_without_times(tmp_path).iter_rows(named=True)
    assert (row["size"], row["dimensions"]) == (39, 8)
    assert round(row["mixture"], 4) == 0.8109
    assert round(row["optimum"], 4) == 0.7778
    other = [*RUN, "--only", "*/crowd/random/*", "--seeds", "1", "--out", str(tmp_path)]
    assert main(other) == 1
    assert "hospital" in capsys.readouterr().err  # a run with other settings


def test_a_folder_without_the_files_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, "--hospital", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert f"--hospital {tmp_path} has no outcomes.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("*/hospital/*", "add --hospital DIR, a folder with outcomes.csv, questions.csv, experts"),
        ("worlds/own/hospital/omd/*", r"or set \$BYLOT_HOSPITAL"),
        ("worlds/tight/synthetic/*", "its cells are named default/tight/stochastic"),
        ("*/hopsital/*", "no cell matches --only"),
    ],
)
def test_cells_of_an_unavailable_scenario_are_refused_with_a_remedy(
    pattern: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, "--only", pattern, "--out", str(tmp_path)]) == 1
    assert re.search(words, capsys.readouterr().err)


def test_a_synthetic_crowd_counts_once() -> None:
    made_up, measured = make_synthetic_crowd(), replace(make_synthetic_crowd(), synthetic=False)
    request = ReproduceRequest(experiments=COMPARISON_EXPERIMENTS, seeds=1)
    once, twice = (
        {cell.environment for cell in request.list_cells(data)} for data in (made_up, measured)
    )
    assert twice - once == {"synthetic"}
    records = make_comparison_records(seeds=1)
    assert describe_missing(RecordGroups(records.cells), "worlds", records.run) == [
        "1 seeds of worlds instead of 6"
    ]


def test_the_written_results_reproduce_the_verdict(small_run: Path) -> None:
    found = json.loads((small_run / "default.json").read_text())
    lines = [
        ResultLine(**{**line, "gaps": {int(seed): gap for seed, gap in line["gaps"].items()}})
        for line in found["lines"]
    ]
    again = choose_defaults(lines)
    assert [choice.policy for choice in again] == [choice["policy"] for choice in found["choices"]]
    assert [choice.excluded for choice in again] == [
        choice["excluded"] for choice in found["choices"]
    ]


def write_and_read_report(records: Any, folder: Path) -> str:
    """The report on made-up records."""
    write_report_without_figures(Records(records.cells, records.run), folder)
    return (folder / "report.md").read_text()


def test_a_policy_that_earns_most_but_breaks_limits_is_not_chosen(tmp_path: Path) -> None:
    text = write_and_read_report(make_comparison_records(), tmp_path)
    assert "The default is distinct by the rule" in text
    assert "| greedy | no: kept all limits in 2 of 4 runs of" in text
    records = make_comparison_records()
    kept = records.cells.with_columns(
        feasible=pl.lit(True), outside=pl.lit(0.0), propensities=pl.lit(True)
    )
    text = write_and_read_report(type(records)(cells=kept, run=records.run), tmp_path)
    assert "The default is greedy by the rule" in text  # if it kept the limits


def test_the_report_has_a_row_for_every_scenario_and_policy(tmp_path: Path) -> None:
    records = make_comparison_records()
    text = write_and_read_report(records, tmp_path)
    places = {choice.line.place for choice in collect_contest_entries(records.cells, records.run)}
    assert len(places) == 10 + 7 + 5 * 3
    for scenario in places:
        assert text.count(f"\n| {scenario} |") >= 2
    assert all(f"| {policy} |" in text for policy in COMPARED_POLICIES)
    assert "0/160" in text  # bad periods of a place: 4 seeds of 40


def test_a_policy_that_refuses_a_period_is_reported_and_not_chosen(tmp_path: Path) -> None:
    records = make_comparison_records(LOST | {"tangent": 0.01})
    assert "The default is tangent by the rule" in write_and_read_report(records, tmp_path)
    short = (pl.col("policy") == "tangent") & (pl.col("period") == 250)
    cleared = [
        pl.when(short).then(None).otherwise(pl.col(name)).alias(name)
        for name in (
            "reward",
            "feasible",
            "mixture",
            "propensities",
            "bad_periods",
            "periods",
            "micros",
        )
    ]
    why = pl.when(short).then(pl.lit("too short")).otherwise(None).alias("refused")
    refused = type(records)(cells=records.cells.with_columns(*cleared, why), run=records.run)
    text = write_and_read_report(refused, tmp_path)
    assert "The default is distinct by the rule" in text
    assert "too short" in text


def test_figures_are_drawn_from_complete_partial_and_empty_records(tmp_path: Path) -> None:
    records = make_comparison_records()
    png, svg = draw_contest(records.cells, records.run, tmp_path)
    assert min(png.stat().st_size, svg.stat().st_size) > 10_000
    assert "SYNTHETIC" in svg.read_text()
    part = records.cells.filter(pl.col("policy") == "omd", pl.col("environment") == "crowd")
    assert len(draw_contest(part, records.run, tmp_path)) == 2
    assert draw_contest(records.cells.clear(), records.run, tmp_path) == []
    spans = records.cells.filter(pl.col("experiment") == "spans")
    assert draw_contest(spans, records.run, tmp_path) == []


def compute_mean_changes(seed: int) -> np.ndarray:
    """(4, K): by how much the mean value of an expert moves from one block to the next."""
    values = scenarios.make_reshuffled_crowd(5_000, seed).given.values
    means = values.reshape(scenarios.RESHUFFLE_BLOCKS, 1_000, 3, scenarios.SMALL_CROWD_SIZE).mean(
        axis=1
    )
    return np.asarray(np.abs(np.diff(means, axis=0)).max(axis=1))


def test_half_of_the_experts_get_other_skills_in_the_next_block() -> None:
    # Ten standard errors of a mean of 1,000 values worth a third
    moved = compute_mean_changes(0) > 0.03
    assert (moved.sum(axis=1) <= scenarios.SMALL_CROWD_SIZE // 2).all()
    assert (
        moved.sum(axis=1) >= scenarios.SMALL_CROWD_SIZE // 4
    ).all()  # some get similar skills again
    assert (moved[0] != moved[1]).any()  # different experts each time


def test_specialists_are_skilled_in_few_dimensions() -> None:
    scenario = scenarios.make_specialists(400, seed=0)
    means = scenario.given.values.mean(axis=0) * scenarios.SPECIALTY_COUNT
    assert_array_equal((means > 0.4).sum(axis=0), scenarios.SPECIALTIES_PER_EXPERT)
    assert scenario.given.values.sum(axis=1).max() <= 1.0


def measure_pass_fail_panels(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean reward of each panel of pass-fail, and its cost in parts of the budget."""
    scenario = scenarios.make_pass_fail(4_000, seed)
    problem, values = scenario.problems["own"], scenario.given.values[:, 0]
    assert_array_equal(np.unique(values), (0.0, 1.0))
    panels = np.array(list(combinations(range(problem.size), problem.draws)))
    earned = np.array([values[:, panel].max(axis=1).mean() for panel in panels])
    return earned, problem.rows[0][panels].sum(axis=1) / problem.bounds[0]


@pytest.mark.parametrize("seed", range(3))
def test_most_panels_pass_and_the_best_of_them_cost_too_much(seed: int) -> None:
    earned, cost = measure_pass_fail_panels(seed)
    assert np.median(earned) > 0.8
    assert cost[earned.argmax()] > 1.0
    assert (cost < 1.0).any()
    best = run_comparison_cell("pass-fail", "random", seed)["mixture"]
    assert earned[cost < 1.0].max() - 0.05 < best < earned.max()


def run_comparison_cell(scenario: str, policy: str, seed: int) -> dict[str, Any]:
    """Run one cell of a built-in scenario and return its record."""
    (job,) = group_cells_by_scenario(
        [Cell("worlds", "own", scenario, policy, scenarios.BUILT_IN_SCENARIOS[scenario][0], seed)]
    )
    return run_job(RunSetup(make_synthetic_crowd(), 4_000), job)[0]


def test_passes_are_independent_and_follow_the_skills() -> None:
    values = scenarios.make_pass_fail(8_000, seed=1).given.values[:, 0]
    correlations = np.corrcoef(values.T) - np.eye(20)
    assert np.abs(correlations).max() < 5 / math.sqrt(8_000)
    halves = np.diff(values.reshape(2, 4_000, 20).mean(axis=1), axis=0)
    assert np.abs(halves).max() < 5 * math.sqrt(0.5 / 4_000)  # each variance is at most 1/4
    assert np.ptp(values.mean(axis=0)) > 0.4  # skills differ
    assert_array_equal(scenarios.make_pass_fail(300, seed=1).given.values[:, 0], values[:300])


def test_the_late_scenario_delays_rewards() -> None:
    cells = [Cell("worlds", "own", name, "ts", 3, 0) for name in ("crowd", "late")]
    prompt, late = (
        run_job(RunSetup(make_synthetic_crowd(), 300), job)[0]
        for job in group_cells_by_scenario(cells)
    )
    assert prompt["mixture"] == late["mixture"]
    assert prompt["reward"] != late["reward"]


def test_the_hospital_of_the_study_has_twelve_labs() -> None:
    hospital_data = read_hospital(hospital.find_folder())
    assert len(hospital_data.problem.limits) == 14
    assert len(hospital_data.digest) == 64


def test_the_published_table_gives_the_published_verdict() -> None:
    page = Path(__file__).parents[2] / "docs" / "default"
    found = json.loads((page / "default.json").read_text())
    lines = [
        ResultLine(**{**line, "gaps": {int(seed): gap for seed, gap in line["gaps"].items()}})
        for line in found["lines"]
    ]
    assert [choice.policy for choice in choose_defaults(lines)] == [
        choice["policy"] for choice in found["choices"]
    ]
    assert found["outcome"] in (page / "report.md").read_text()
    assert {line.policy for line in lines} == set(COMPARED_POLICIES)


def test_auto_chooses_the_policy_of_the_published_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "default"
    choices = json.loads((page / "default.json").read_text())["choices"]
    chosen = {choice["problems"]: choice["policy"] for choice in choices}
    few, many = (
        Problem([f"e{n}" for n in range(K)], {}, draws=2)
        for K in (LARGE_POOL_SIZE, LARGE_POOL_SIZE + 1)
    )
    for propensities, words in ((True, "with propensities"), (False, "propensities not needed")):
        auto = Auto(propensities=propensities)
        assert (
            chosen[f"up to {LARGE_POOL_SIZE} experts, {words}"]
            == policy_to_data(auto.resolve(few))["name"]
        )
        assert (
            chosen[f"more than {LARGE_POOL_SIZE} experts, {words}"]
            == policy_to_data(auto.resolve(many))["name"]
        )
        for problems, choice in chosen.items():  # no period length needs another policy
            if problems.startswith("periods") and problems.endswith(words):
                assert choice == chosen[f"up to {LARGE_POOL_SIZE} experts, {words}"]
    assert chosen["all, with propensities"] == policy_to_data(Auto().resolve(few))["name"]
    assert COMPARISON_EXPERIMENTS == ("default", "worlds", "spans")
