"""The report: complete, self-contained, and clear about its records."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from bylot.reports import (
    Banner,
    Block,
    Bullets,
    Heading,
    Paragraph,
    TableBlock,
    render_html,
    render_markdown,
)
from bylot_paper.claims.judge import CLAIMS, UNKNOWN
from bylot_paper.report import write_report
from bylot_paper.report.formatting import summarize_run
from paper_records import AS_WRITTEN, make_paper_records, write_report_without_figures
from report_pages import Page, find_tables, is_rectangular


@pytest.fixture(scope="module")
def report_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a complete made-up run, with a variant."""
    records = make_paper_records(AS_WRITTEN)
    instant = pl.col("policy").replace({"cbwk": "cbwk-instant"})
    variant = records.cells.filter(pl.col("policy") == "cbwk").with_columns(instant)
    records.cells = pl.concat([records.cells, variant])
    folder = tmp_path_factory.mktemp("report")
    paths = write_report(records, folder, core_seconds=12.5).paths
    assert all(path.stat().st_size > 0 for path in paths)
    assert {path.name for path in paths} == {
        *(f"{name}.{kind}" for name in ("sweep", "crowd", "rolling") for kind in ("png", "svg")),
        *("report.md", "report.html", "summary.json", "claims.json"),
    }
    return folder


def test_the_page_is_well_formed_and_loads_nothing(report_folder: Path) -> None:
    text = (report_folder / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.loads) == 3
    assert all(one.startswith("data:image/svg+xml;base64,") for one in page.loads)
    assert len(set(page.ids)) == len(page.ids) == len(CLAIMS)
    for source in ("http:", "https:", "url(", "@import", "<script", "//cdn"):
        assert source not in text


def test_the_checks_of_pages_and_tables_can_fail() -> None:
    with pytest.raises(AssertionError):
        Page("<p><b>crossed</p></b>")
    with pytest.raises(AssertionError):
        Page("<div>")
    assert Page('<img src="https://elsewhere">').loads == ["https://elsewhere"]
    assert not is_rectangular(["| a | b |", "|---|---|", "| c |"])


def test_the_markdown_has_valid_tables_and_working_links(report_folder: Path) -> None:
    text = (report_folder / "report.md").read_text(encoding="utf-8")
    assert len(find_tables(text)) > 8
    assert all(map(is_rectangular, find_tables(text)))
    links = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert links == ["figures/sweep.png", "figures/crowd.png", "figures/rolling.png"]
    assert all((report_folder / link).exists() for link in links)


def test_every_output_on_a_synthetic_crowd_says_so(report_folder: Path) -> None:
    for name in ("report.md", "report.html", "summary.json", "claims.json"):
        assert "synthetic" in (report_folder / name).read_text(encoding="utf-8").lower()[:2_500_000]
    rows = json.loads((report_folder / "claims.json").read_text(encoding="utf-8"))
    assert all(any("SYNTHETIC" in note for note in row["caveats"]) for row in rows)
    page = Page((report_folder / "report.html").read_text(encoding="utf-8"))
    assert "".join(page.words).count("SYNTHETIC") > 5


def test_a_report_on_real_data_does_not_call_it_synthetic(tmp_path: Path) -> None:
    records = make_paper_records(
        AS_WRITTEN, seeds=3, data={"name": "trec", "digest": "1", "synthetic": False}
    )
    records.cells = records.cells.filter(pl.col("experiment") == "sweep")
    write_report(records, tmp_path)
    assert "synthetic" not in (tmp_path / "report.md").read_text(encoding="utf-8").lower()
    assert "no figure" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_the_report_has_every_claim_with_its_rule_and_the_counts_first(report_folder: Path) -> None:
    text = (report_folder / "report.md").read_text(encoding="utf-8")
    for claim in CLAIMS:
        assert f"| {claim} |" in text
    assert re.search(rf"Of {len(CLAIMS)} statements .* 0 cannot be tested", text)
    assert text.index("statements of the paper's results") < text.index("## Limits")
    assert "## Other readings" in text


def test_the_summary_has_a_row_for_each_group(report_folder: Path) -> None:
    found = json.loads((report_folder / "summary.json").read_text(encoding="utf-8"))
    assert found["data"] == "synthetic"
    assert (found["rounds"], found["seeds"], found["core_seconds"]) == (10_000, 20, 12.5)
    assert len(found["rows"]) == 6 + 2 * 4 * 9
    [row] = [
        row
        for row in found["rows"]
        if (row["environment"], row["level"], row["policy"]) == ("regime", "tight", "ts-bwk")
    ]
    assert row["feasible"] == {"0": 0.85, "0.001": 0.85, "0.01": 0.85}
    assert row["dimensions"] == 3
    records = make_paper_records(AS_WRITTEN)
    cells = records.cells.filter(pl.col("cell").str.starts_with("crowd/tight/regime/ts-bwk/"))
    assert row["reward_mean"] == pytest.approx(cells["reward"].mean())
    assert row["reward_std"] == pytest.approx(cells["reward"].std(ddof=1))
    assert row["regret_true_mean"] == pytest.approx(cells["regret_true"].mean())
    assert row["r2_mean"] == pytest.approx(cells["r2"].mean())


def test_a_single_seed_has_no_deviation() -> None:
    records = make_paper_records(AS_WRITTEN, seeds=1)
    rows = summarize_run(records.cells, records.run)["rows"]
    assert all(row["reward_std"] is None for row in rows)
    assert all(row["seeds"] == 1 for row in rows)


@pytest.mark.parametrize("empty", [True, False], ids=["no cells", "one cell"])
def test_one_cell_or_none_still_gives_a_report(empty: bool, tmp_path: Path) -> None:
    records = make_paper_records(AS_WRITTEN, seeds=1)
    records.cells = records.cells.head(0 if empty else 1)
    paths = write_report(records, tmp_path).paths
    assert len(paths) == (4 if empty else 8)
    Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert all(
        map(is_rectangular, find_tables((tmp_path / "report.md").read_text(encoding="utf-8")))
    )
    rows = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    assert {row["verdict"] for row in rows} == {UNKNOWN}


def test_an_empty_manifest_still_gives_a_report(tmp_path: Path) -> None:
    records: Any = make_paper_records(AS_WRITTEN, seeds=3)
    records.run = {}
    records.cells = records.cells.filter(pl.col("level") == "tight")
    write_report_without_figures(records, tmp_path)
    assert "Unknown rounds" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_markup_in_a_text_is_escaped() -> None:
    nasty = "<script>alert('x')</script> a|b *c* [d](e) & \"f\""
    blocks: list[Block] = [
        Heading(nasty),
        Paragraph(nasty),
        Banner(nasty),
        Bullets([nasty]),
        TableBlock(nasty, (nasty,), [(nasty,)]),
    ]
    page = render_html(blocks, nasty)
    Page(page)
    assert "<script" not in page
    text = render_markdown(blocks, Path())
    assert "<script" not in text
    assert all(map(is_rectangular, find_tables(text)))
