"""The report beyond the paper: its checks hold or fail by records and do not affect the claims."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from beyond_records import make_beyond_records
from bylot.reports.style import BEYOND_POLICY_STYLES
from bylot_paper.analysis import GroupKey, RecordGroups
from bylot_paper.claims.judge import CHECKS, FAILS, HOLDS, UNKNOWN, JudgedClaim, judge_claims
from bylot_paper.grid import GUARDED_POLICIES, format_default_tuning
from bylot_paper.report import FIGURE_DRAWERS, write_report
from bylot_paper.report.beyond import collect_sweeps
from bylot_paper.report.figures import BEYOND_LEVEL_STYLES
from paper_records import AS_WRITTEN, make_paper_records
from test_report import Page, grids, is_grid

DRAWN = {name: draw for name, draw in FIGURE_DRAWERS.items() if name.startswith("beyond")}


def judge_checks(cells: pl.DataFrame, run: Any) -> list[JudgedClaim]:
    """The verdict on every check."""
    return judge_claims(cells, run, CHECKS)


@pytest.fixture(scope="module")
def good() -> Any:
    """Records with good results."""
    return make_beyond_records()


@pytest.fixture(scope="module")
def bad() -> Any:
    """Records with bad results."""
    return make_beyond_records(good=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, good: Any) -> Path:
    """A report on the paper's experiments and on ours, some of which were refused."""
    paper = make_paper_records(AS_WRITTEN, seeds=4)
    refused = good.cells.filter(pl.col("cell").str.contains("periods/tight/regime/distinct/P=250/"))
    gone = [name for name in refused.columns if name not in ("cell", "seed", *GroupKey._fields)]
    refused = refused.with_columns(pl.lit(None).alias(name) for name in gone).with_columns(
        pl.lit("a period of 250 rounds is too short").alias("refused")
    )
    rest = good.cells.filter(~pl.col("cell").is_in(refused["cell"].implode()))
    paper.cells = pl.concat([paper.cells, rest, refused.cast(rest.schema)]).sort("cell")
    place = tmp_path_factory.mktemp("beyond")
    write_report(paper, place)
    return place


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_holds_where_the_records_say_so_and_fails_where_not(
    check: str, good: Any, bad: Any
) -> None:
    for records, verdict in ((good, HOLDS), (bad, FAILS)):
        [row] = [row for row in judge_checks(records.cells, records.run) if row.id == check]
        assert row.verdict == verdict, row.measured


def test_one_run_outside_a_limit_is_enough_to_fail(good: Any) -> None:
    one = pl.col("cell") == "beyond/loose/regime/tangent/N=3/seed=02"
    cells = good.cells.with_columns(
        pl.when(one).then(1e-6).otherwise(pl.col("outside")).alias("outside")
    )
    verdicts = {row.id: row.verdict for row in judge_checks(cells, good.run)}
    assert verdicts["tangent-always-feasible"] == FAILS
    assert verdicts["distinct-always-feasible"] == HOLDS


def test_without_records_no_check_can_be_tested(good: Any) -> None:
    for cells in (good.cells.clear(), make_beyond_records(seeds=2).cells):
        assert {row.verdict for row in judge_checks(cells, good.run)} == {UNKNOWN}


def test_a_check_says_what_the_run_lacks(good: Any) -> None:
    few = good.cells.filter(pl.col("level") != "loose")
    (notes,) = {tuple(row.caveats) for row in judge_checks(few, good.run)}
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


def test_periods_longer_than_the_run_are_not_missing() -> None:
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
    paths = write_report(make_short_records(), tmp_path).paths
    assert not (tmp_path / "claims.json").exists()
    assert {path.name for path in paths} >= {"report.md", "beyond.json", "summary.json"}
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# SYNTHETIC: Policies beyond Multinomial Subset Routing\n")
    assert "sweep: 0 cells" not in text
    assert "periods: 192 cells (of 240), 4 seeds" in text
    assert "so few rounds; none did here" in text


def test_two_seeds_give_no_empty_table_but_reasons_in_words(tmp_path: Path) -> None:
    write_report(make_short_records(seeds=2), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| verdict | claim |" not in text
    why = "2 seeds of tangent in beyond (tight, stochastic, N = 3); a verdict needs 3"
    assert f"| tangent-always-feasible | {why} |" in text
    write_report(make_short_records(seeds=3), tmp_path)
    assert "| verdict | claim |" in (tmp_path / "report.md").read_text()


def test_records_beyond_the_paper_change_no_verdict_on_it(folder: Path) -> None:
    alone = make_paper_records(AS_WRITTEN, seeds=4)
    rows = [row._asdict() for row in judge_claims(alone.cells, alone.run)]
    written = json.loads((folder / "claims.json").read_text())
    assert [row["verdict"] for row in written] == [row["verdict"] for row in rows]
    assert [row["measured"] for row in written] == [row["measured"] for row in rows]
    checks = json.loads((folder / "beyond.json").read_text())
    assert [row["id"] for row in checks] == list(CHECKS)


def test_the_report_keeps_the_two_apart_and_says_what_was_refused(folder: Path) -> None:
    text = (folder / "report.md").read_text()
    paper, past = text.split("## Beyond the paper")
    for word in ("stress", "tangent", "distinct", "figures/beyond"):
        assert word not in paper.split("## Limits")[1]
    assert "## Sentence by sentence" in paper
    assert all(f"| {check} |" in past for check in CHECKS)
    assert "a period of 250 rounds is too short | 250 | 4 |" in past
    assert "Runs that a policy refused" in past
    assert "such runs are listed above" in past.split("Runs that a policy refused")[1]
    assert all(map(is_grid, grids(text)))
    for name in DRAWN:
        assert f"(figures/{name}.png)" in past
    Page((folder / "report.html").read_text())


def test_the_sentences_follow_the_numbers(folder: Path, bad: Any, tmp_path: Path) -> None:
    past = (folder / "report.md").read_text().split("## Beyond the paper")[1]
    assert "Within all limits in every run: tangent, distinct." in past
    assert re.search(r"Periods outside a limit, all lengths and cases: omd [1-9]", past)
    assert "distinct 0 of" in past
    assert "no guard" in past
    assert "best of these settings would have reduced" in past
    write_report(bad, tmp_path)
    other = (tmp_path / "report.md").read_text()
    assert "Within all limits in every run: none." in other
    assert "## Sentence by sentence" not in other  # nothing of the paper's was played
    assert "SYNTHETIC" in other


def test_the_sweep_over_settings_finds_the_best_and_what_it_would_gain(good: Any) -> None:
    found = collect_sweeps(RecordGroups(good.cells))
    assert [one.policy for one in found] == list(GUARDED_POLICIES)
    for one in found:
        assert one.lost.shape == (81, 4, 4)
        assert one.settings[one.best].startswith("eta=2.0,patience=30.0")
        assert one.settings[one.usual] == format_default_tuning(one.policy)
        assert one.gain == pytest.approx(one.default - one.lost[one.best].mean())
        assert 0 < one.gain_elsewhere < one.gain  # half of the gain is luck
    gone = good.cells.filter(~pl.col("policy").str.contains("eta=1.0,patience=100.0"))
    assert (
        collect_sweeps(RecordGroups(gone)) == []
    )  # without the default there is nothing to compare with


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_comes_out_of_whole_partial_and_empty_records(
    name: str, good: Any, tmp_path: Path
) -> None:
    draw = DRAWN[name]
    png, svg = draw(good.cells, good.run, tmp_path)
    assert png.name == f"{name}.png"
    assert min(png.stat().st_size, svg.stat().st_size) > 10_000
    assert "SYNTHETIC" in svg.read_text()
    part = good.cells.filter((pl.col("seed") == 0) & (pl.col("policy") == "distinct"))
    assert len(draw(part.filter(pl.col("level") == "stress"), good.run, tmp_path)) == 2
    assert draw(good.cells.clear(), good.run, tmp_path) == []
    assert (
        draw(make_paper_records(AS_WRITTEN, seeds=3).cells, good.run, tmp_path) == []
    )  # the paper's only


def test_series_differ_even_without_colour() -> None:
    for looks in (BEYOND_POLICY_STYLES, BEYOND_LEVEL_STYLES):
        assert len({look.colour for look in looks.values()}) == len(looks)
        assert len({look.marker for look in looks.values()}) == len(looks)
        assert len({str(look.line) for look in looks.values()}) == len(looks)
