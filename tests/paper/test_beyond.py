"""The report beyond the paper: its checks hold or fail by records and do not affect the claims."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from beyond_records import make_beyond_records
from bylot.reports import BEYOND_POLICY_STYLES
from bylot_paper.analysis import GroupKey
from bylot_paper.claims.judge import CHECKS, FAILS, HOLDS, UNKNOWN, JudgedClaim, judge_claims
from bylot_paper.report import FIGURE_DRAWERS, write_report
from bylot_paper.report.figures import BEYOND_LEVEL_STYLES
from paper_records import AS_WRITTEN, make_paper_records, write_report_without_figures
from report_pages import Page, find_tables, is_rectangular

BEYOND_FIGURES = {name: draw for name, draw in FIGURE_DRAWERS.items() if name.startswith("beyond")}


def judge_checks(cells: pl.DataFrame, run: Any) -> list[JudgedClaim]:
    """The verdict on every check."""
    return judge_claims(cells, run, CHECKS)


@pytest.fixture(scope="module")
def good_records() -> Any:
    """Records with good results."""
    return make_beyond_records()


@pytest.fixture(scope="module")
def bad_records() -> Any:
    """Records with bad results."""
    return make_beyond_records(good=False)


@pytest.fixture(scope="module")
def report_folder(tmp_path_factory: pytest.TempPathFactory, good_records: Any) -> Path:
    """A report on the paper's experiments and on those beyond it, some of which were refused."""
    paper = make_paper_records(AS_WRITTEN, seeds=4)
    refused = good_records.cells.filter(
        pl.col("cell").str.contains("periods/tight/regime/distinct/P=250/")
    )
    cleared = [name for name in refused.columns if name not in ("cell", "seed", *GroupKey._fields)]
    refused = refused.with_columns(pl.lit(None).alias(name) for name in cleared).with_columns(
        pl.lit("a period of 250 rounds is too short").alias("refused")
    )
    rest = good_records.cells.filter(~pl.col("cell").is_in(refused["cell"].implode()))
    paper.cells = pl.concat([paper.cells, rest, refused.cast(rest.schema)]).sort("cell")
    folder = tmp_path_factory.mktemp("beyond")
    write_report(paper, folder)
    return folder


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_holds_on_good_records_and_fails_on_bad_ones(
    check: str, good_records: Any, bad_records: Any
) -> None:
    for records, verdict in ((good_records, HOLDS), (bad_records, FAILS)):
        [row] = [row for row in judge_checks(records.cells, records.run) if row.id == check]
        assert row.verdict == verdict, row.measured


def test_one_run_outside_a_limit_is_enough_to_fail(good_records: Any) -> None:
    one = pl.col("cell") == "beyond/loose/regime/tangent/N=3/seed=02"
    cells = good_records.cells.with_columns(
        pl.when(one).then(1e-6).otherwise(pl.col("outside")).alias("outside")
    )
    verdicts = {row.id: row.verdict for row in judge_checks(cells, good_records.run)}
    assert verdicts["tangent-always-feasible"] == FAILS
    assert verdicts["distinct-always-feasible"] == HOLDS


def test_without_records_no_check_can_be_tested(good_records: Any) -> None:
    for cells in (good_records.cells.clear(), make_beyond_records(seeds=2).cells):
        assert {row.verdict for row in judge_checks(cells, good_records.run)} == {UNKNOWN}


def test_a_check_names_missing_groups_and_synthetic_data(good_records: Any) -> None:
    fewer = good_records.cells.filter(pl.col("level") != "loose")
    (notes,) = {tuple(row.caveats) for row in judge_checks(fewer, good_records.run)}
    assert any("INCOMPLETE: 36 of the 48 groups of beyond" in note for note in notes)
    assert any("SYNTHETIC" in note for note in notes)


def make_short_records(seeds: int = 4) -> Any:
    """Records of runs of 1,000 rounds, in periods of 250, 1,000 and 2,000."""
    records = make_beyond_records(seeds=seeds, rounds=1_000)
    records.cells = (
        records.cells.filter(pl.col("period").is_null() | (pl.col("period") != 5_000))
        .with_columns(pl.col("period").replace({20_000: 2_000}))
        .with_columns(pl.col("cell").str.replace("P=20000", "P=2000"))
    )
    return records


def test_periods_longer_than_the_run_are_not_reported_as_missing() -> None:
    (notes,) = {
        tuple(row.caveats)
        for row in judge_checks(make_short_records().cells, make_short_records().run)
    }
    assert "no periods of 5,000 rounds, as they do not fit twice into 2,000" in notes
    assert not any("INCOMPLETE" in note for note in notes)
    fewer = make_short_records().cells.filter(
        pl.col("period").is_null() | (pl.col("period") != 250)
    )
    (notes,) = {tuple(row.caveats) for row in judge_checks(fewer, make_short_records().run)}
    assert "INCOMPLETE: 32 of the 48 groups of periods" in notes


def test_a_report_beyond_the_paper_alone_has_no_claims(tmp_path: Path) -> None:
    paths = write_report_without_figures(make_short_records(), tmp_path)
    assert not (tmp_path / "claims.json").exists()
    assert {path.name for path in paths} >= {"report.md", "beyond.json", "summary.json"}
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# SYNTHETIC: Policies beyond Multinomial Subset Routing\n")
    assert "sweep: 0 cells" not in text
    assert "periods: 192 cells (of 240), 4 seeds" in text
    assert "so few rounds; none did here" in text


def test_with_two_seeds_reasons_replace_the_table_of_verdicts(tmp_path: Path) -> None:
    write_report_without_figures(make_short_records(seeds=2), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| verdict | claim |" not in text
    why = "2 seeds of tangent in beyond (tight, stochastic, N = 3); a verdict needs 3"
    assert f"| tangent-always-feasible | {why} |" in text
    write_report_without_figures(make_short_records(seeds=3), tmp_path)
    assert "| verdict | claim |" in (tmp_path / "report.md").read_text()


def test_records_beyond_the_paper_do_not_change_the_verdicts_on_the_paper(
    report_folder: Path,
) -> None:
    alone = make_paper_records(AS_WRITTEN, seeds=4)
    rows = [row._asdict() for row in judge_claims(alone.cells, alone.run)]
    reported = json.loads((report_folder / "claims.json").read_text())
    assert [row["verdict"] for row in reported] == [row["verdict"] for row in rows]
    assert [row["measured"] for row in reported] == [row["measured"] for row in rows]
    checks = json.loads((report_folder / "beyond.json").read_text())
    assert [row["id"] for row in checks] == list(CHECKS)


def test_the_report_separates_the_sections_and_lists_refused_runs(report_folder: Path) -> None:
    text = (report_folder / "report.md").read_text()
    paper, beyond = text.split("## Beyond the paper")
    for word in ("stress", "tangent", "distinct", "figures/beyond"):
        assert word not in paper.split("## Limits")[1]
    assert "## Sentence by sentence" in paper
    assert all(f"| {check} |" in beyond for check in CHECKS)
    assert "a period of 250 rounds is too short | 250 | 4 |" in beyond
    assert "Runs that a policy refused" in beyond
    assert "such runs are listed above" in beyond.split("Runs that a policy refused")[1]
    assert all(map(is_rectangular, find_tables(text)))
    for name in BEYOND_FIGURES:
        assert f"(figures/{name}.png)" in beyond
    Page((report_folder / "report.html").read_text())


def test_the_sentences_of_the_report_follow_the_numbers(
    report_folder: Path, bad_records: Any, tmp_path: Path
) -> None:
    beyond = (report_folder / "report.md").read_text().split("## Beyond the paper")[1]
    assert "Within all limits in every run: tangent, distinct." in beyond
    assert re.search(r"Periods outside a limit, all lengths and cases: omd [1-9]", beyond)
    assert "distinct 0 of" in beyond
    assert "no guard" in beyond
    write_report_without_figures(bad_records, tmp_path)
    other = (tmp_path / "report.md").read_text()
    assert "Within all limits in every run: none." in other
    assert "## Sentence by sentence" not in other  # no experiment of the paper was run
    assert "SYNTHETIC" in other


@pytest.mark.parametrize("name", BEYOND_FIGURES)
def test_figures_are_drawn_from_complete_partial_and_empty_records(
    name: str, good_records: Any, tmp_path: Path
) -> None:
    draw = BEYOND_FIGURES[name]
    png, svg = draw(good_records.cells, good_records.run, tmp_path)
    assert png.name == f"{name}.png"
    assert min(png.stat().st_size, svg.stat().st_size) > 10_000
    assert "SYNTHETIC" in svg.read_text()
    part = good_records.cells.filter((pl.col("seed") == 0) & (pl.col("policy") == "distinct"))
    assert len(draw(part.filter(pl.col("level") == "stress"), good_records.run, tmp_path)) == 2
    assert draw(good_records.cells.clear(), good_records.run, tmp_path) == []
    # Records of the paper only
    assert draw(make_paper_records(AS_WRITTEN, seeds=3).cells, good_records.run, tmp_path) == []


def test_series_differ_even_without_colour() -> None:
    for styles in (BEYOND_POLICY_STYLES, BEYOND_LEVEL_STYLES):
        assert len({style.colour for style in styles.values()}) == len(styles)
        assert len({style.marker for style in styles.values()}) == len(styles)
        assert len({str(style.line) for style in styles.values()}) == len(styles)
