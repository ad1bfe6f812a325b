"""`bylot reproduce` as a person runs it: from data to report, stopped, killed, continued."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from bylot.cli import main
from bylot_paper.claims.measures import MIN_VERDICT_SEEDS as NEEDED
from bylot_paper.grid import list_cells
from bylot_paper.records import RECORD_SCHEMA

SMALL = ["--data", "synthetic", "--rounds", "200", "--seeds", "3"]
FEW = ["--only", "*/omd/*", "--only", "*/cbwk/*"]
LONG = ["crowd", "--data", "synthetic", "--rounds", "4000", "--seeds", "4", "--only", "*/omd/*"]


def records(folder: Path) -> bytes:
    """The bytes of the table: everything that was measured, and nothing else."""
    return (folder / "records.parquet").read_bytes()


def started(*arguments: str) -> "subprocess.Popen[str]":
    """A run in a process of its own, as at a terminal."""
    command = [sys.executable, "-m", "bylot", "reproduce", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until_some_parts(process: "subprocess.Popen[str]", folder: Path) -> None:
    """Wait until a part of the work, but not all of it, is on disk."""
    limit = time.monotonic() + 120
    while not list((folder / "parts").glob("*.parquet")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.01)


PAST = ["--only", "*/distinct/*", "--only", "beyond/*/omd/*"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of the paper's experiments."""
    folder = tmp_path_factory.mktemp("small")
    assert main(["reproduce", "paper", *SMALL, "--jobs", "2", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of some of what is past the paper."""
    folder = tmp_path_factory.mktemp("past")
    run = ["reproduce", "beyond", *SMALL, *PAST, "--jobs", "2", "--out", str(folder)]
    assert main(run) == 0
    return folder


def test_one_command_leaves_records_figures_report_and_claims(small: Path) -> None:
    table = pl.read_parquet(small / "records.parquet")
    assert len(table) == 2 * 3 * 3 + 8 * 4 * 2 * 3
    assert table["cell"].is_sorted()
    assert np.isfinite(table["regret_true"].to_numpy()).all()
    for name in ("sweep", "crowd", "rolling"):
        for kind in ("png", "svg"):
            assert (small / "figures" / f"{name}.{kind}").stat().st_size > 10_000
    claims = json.loads((small / "claims.json").read_text())
    assert {one["verdict"] for one in claims} <= {"holds", "does not hold", "cannot be tested"}
    summary = json.loads((small / "summary.json").read_text())
    assert summary["core_seconds"] > 0
    assert (summary["rounds"], summary["seeds"]) == (200, 3)
    row = next(
        one
        for one in summary["rows"]
        if (one["experiment"], one["environment"], one["level"], one["policy"])
        == ("crowd", "regime", "tight", "omd")
    )
    inside = table.filter(pl.col("cell").str.starts_with("crowd/tight/regime/omd/"))
    assert row["reward_mean"] == pytest.approx(inside["reward"].mean())
    assert row["feasible"]["0"] == (inside["outside"] <= 0).mean()


def test_what_is_past_the_paper_has_records_figures_checks_and_a_report_of_its_own(
    past: Path,
) -> None:
    table = pl.read_parquet(past / "records.parquet")
    counts = dict(table.group_by("experiment").len().iter_rows())
    assert counts == {"beyond": 2 * 8 * 3, "ablation": 4 * 3, "periods": 4 * 3}
    assert np.isfinite(table["regret_true"].to_numpy()).all()
    ours = table.filter(pl.col("policy") == "distinct")
    assert ours["feasible"].all()
    assert ours["bad_periods"].sum() == 0
    assert set(table["period"].drop_nulls()) == {400}  # as long as the play: others are too long
    text = (past / "report.md").read_text()
    assert "## Beyond the paper" in text
    assert "## Sentence by sentence" not in text
    assert (past / "figures" / "beyond.png").exists()
    assert not (past / "figures" / "crowd.png").exists()
    checks = {one["id"]: one["verdict"] for one in json.loads((past / "beyond.json").read_text())}
    assert checks["distinct-always-feasible"] == "holds"
    assert checks["tangent-always-feasible"] == "cannot be tested"


def test_what_is_past_the_paper_goes_on_in_the_same_folder_to_the_same_bytes(
    past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["reproduce", "beyond", "--data", "synthetic", "--rounds", "200", *PAST, "--jobs", "1"]
    for seeds in ("1", "3"):
        assert main([*run, "--seeds", seeds, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "24 to compute" in said.err
    assert "48 to compute" in said.err
    assert said.err.count("... verdicts need 3 seeds, this run has 1: see --seeds") == 1
    assert "core-seconds" in said.out
    assert re.search(r"^beyond \+ ablation +20 ", said.out, re.MULTILINE)
    assert records(tmp_path) == records(past)


def test_pandas_reads_the_records_as_polars_does(small: Path) -> None:
    pandas = pytest.importorskip("pandas")
    one, other = (
        read(small / "records.parquet") for read in (pandas.read_parquet, pl.read_parquet)
    )
    assert list(one.columns) == other.columns
    assert (one["reward"].to_numpy() == other["reward"].to_numpy()).all()
    assert one["curve_t"][0].tolist() == other["curve_t"][0].to_list()


def test_the_columns_are_those_of_the_documents_and_its_example_runs(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parent.parent / "docs" / "records.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code.replace("out/paper", str(small)), "records.md", "exec"), {})
    assert "ts-bwk" in capsys.readouterr().out
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == set(RECORD_SCHEMA)


def test_what_was_made_up_says_so(small: Path) -> None:
    for name in ("report.md", "report.html", "summary.json", "claims.json", "run.json"):
        assert "synthetic" in (small / name).read_text().lower(), name
    for figure in (small / "figures").glob("*.svg"):
        assert "SYNTHETIC" in figure.read_text(), figure


def test_a_second_run_computes_nothing_and_changes_no_record(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = records(small)
    assert main(["reproduce", "paper", *SMALL, "--out", str(small)]) == 0
    assert "nothing was missing" in capsys.readouterr().out
    assert records(small) == before


def test_figures_and_report_come_from_records_alone(small: Path) -> None:
    kept = {path: path.read_bytes() for path in small.rglob("*") if path.suffix in (".svg", ".md")}
    assert len(kept) == 4
    for path in kept:
        path.unlink()
    assert main(["plot", str(small)]) == 0
    assert main(["report", str(small)]) == 0
    assert {path: path.read_bytes() for path in kept} == kept


def test_results_go_into_the_folder_that_is_called_like_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["--data", "synthetic", "--rounds", "20", "--seeds", "1"]
    for what, name in (("sweep", "paper"), ("crowd", "paper"), ("beyond", "beyond"), ("", "all")):
        some = ["--only", "periods/tight/*/omd/*" if what == "beyond" else "*/tight/stoch*/omd/*"]
        assert main(["reproduce", *([what] if what else []), *few, *some]) == 0
        assert (tmp_path / "out" / name / "report.md").exists()
    kept = pl.read_parquet(tmp_path / "out" / "paper" / "records.parquet")
    assert set(kept["experiment"]) == {"sweep", "crowd"}  # one report of both


def test_the_help_does_not_depend_on_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "CPU cores (default: all)" in said
    assert f"verdicts need at least {NEEDED}" in said


def test_more_seeds_go_on_from_fewer(small: Path, tmp_path: Path) -> None:
    run = ["reproduce", "crowd", "--data", "synthetic", "--rounds", "200", *FEW]
    for seeds in ("1", "3"):
        assert main([*run, "--seeds", seeds, "--out", str(tmp_path)]) == 0
    some = pl.read_parquet(tmp_path / "records.parquet")
    every = pl.read_parquet(small / "records.parquet")
    assert some.equals(every.filter(pl.col("cell").is_in(some["cell"].implode())))
    assert len(some) == 2 * 4 * 2 * 3


def test_one_job_two_jobs_and_ray_give_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the engine of many machines needs Ray")
    some = [*FEW, "--only", "beyond/*/distinct/*", "--only", "periods/*/distinct/*"]
    run = ["reproduce", "all", "--data", "synthetic", "--rounds", "100", "--seeds", "2", *some]
    ways = {"one": ["--jobs", "1"], "two": ["--jobs", "2"], "ray": ["--engine", "ray"]}
    for name, options in ways.items():
        assert main([*run, *options, "--out", str(tmp_path / name)]) == 0
    assert records(tmp_path / "one") == records(tmp_path / "two") == records(tmp_path / "ray")


def test_a_run_that_was_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    assert main(["reproduce", *LONG, "--out", str(whole)]) == 0
    process = started(*LONG, "--jobs", "1", "--out", str(killed))
    until_some_parts(process, killed)
    process.kill()
    process.communicate()
    assert not (killed / "records.parquet").exists()
    done = len(list((killed / "parts").glob("*.parquet")))
    assert 1 <= done < 8  # of the worlds
    again = started(*LONG, "--out", str(killed))
    _, said = again.communicate(timeout=300)
    assert f"{len(list_cells('crowd', 4)) // 8 - 4 * done} to compute" in said
    assert records(killed) == records(whole)


def test_after_ctrl_c_what_is_finished_is_usable(tmp_path: Path) -> None:
    process = started(*LONG, "--jobs", "1", "--out", str(tmp_path))
    until_some_parts(process, tmp_path)
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "the same command resumes" in said
    assert "statements of the paper's results" in printed
    assert 4 <= len(pl.read_parquet(tmp_path / "records.parquet")) < 32
    assert (tmp_path / "report.html").exists()


def test_a_folder_of_other_settings_is_refused_unless_fresh(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["reproduce", "sweep", "--data", "synthetic", "--seeds", "1", "--only", "*/tight/*"]
    assert main([*run, "--rounds", "30", "--out", str(tmp_path)]) == 0
    assert main([*run, "--rounds", "40", "--out", str(tmp_path)]) == 1
    assert "rounds 30 (now 40)" in capsys.readouterr().err
    assert main([*run, "--rounds", "40", "--out", str(tmp_path), "--fresh"]) == 0
    (row, _) = pl.read_parquet(tmp_path / "records.parquet").to_dicts()
    assert row["curve_t"] == [10, 20, 30, 40]


GOOD = "".join(f"{task}\t{worker}\t{task % 2}\n" for task in range(8) for worker in range(60))
TRUTH = "".join(f"{task}\t{task % 2}\n" for task in range(8))
BAD = {
    "missing": ("gone.txt", None, "no such file"),
    "garbage": ("crowd.txt", b"\xff\xfe\x00\x81" * 50, "crowd.txt"),
    "one class": ("crowd.txt", GOOD.replace("\t1\n", "\t0\n").encode(), "crowd.txt"),
    "short line": ("crowd.txt", (GOOD + "8\t1\n").encode(), "line 481"),
    "too few": ("crowd.txt", GOOD[:1500].encode(), "only"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_data_gives_one_line_that_names_the_file_and_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    name, content, words = BAD[kind]
    truth = tmp_path / "truth.txt"
    truth.write_text(TRUTH.replace("\t1\n", "\t0\n") if kind == "one class" else TRUTH)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    files = ["--crowd", str(tmp_path / name), "--truth", str(truth)]
    assert main(["reproduce", *files, "--rounds", "20", "--out", str(tmp_path / "out")]) == 1
    complaints = [
        line for line in capsys.readouterr().err.splitlines() if not line.startswith("...")
    ]
    assert len(complaints) == 1
    assert words in complaints[0]
    assert ";" in complaints[0]  # the remedy
    assert not (tmp_path / "out").exists()  # and nothing was begun


def test_files_of_ones_own_are_played(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(GOOD.replace("\t", ","))
    (tmp_path / "truth.csv").write_text("task,label\n" + TRUTH.replace("\t", ","))
    files = ["--crowd", str(tmp_path / "mine.csv"), "--truth", str(tmp_path / "truth.csv")]
    run = ["reproduce", "sweep", *files, "--rounds", "20", "--seeds", "1", "--only", "*/loose/*"]
    assert main([*run, "--out", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "run.json").read_text())["data"]["name"] == "mine"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--address", "127.0.0.1:6379"], "add --engine ray"),
        (["--crowd", "x"], "belong together"),
        (["--crowd", "x", "--truth", "y", "--data", "synthetic"], "give one of them"),
        (["--data", "synthetic", "--only", "tigt"], "no cell matches"),
        (["--data", "synthetic", "--only", "*/omd-sum/*"], "add --variants"),
        (["--data", "synthetic", "--only", "settings/tight/*"], "add --settings"),
        (["--data", "synthetic", "--rounds", "9"], "invalid --rounds 9: expected at least 10"),
        (["--data", "synthetic", "--out", "/dev/null/x"], "cannot be written"),
        (["--data", "synthetic", "--engine", "ray", "--address", "127.0.0.1:9"], "nothing answers"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    options: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--rounds", "20", "--seeds", "1"]
    assert main(["reproduce", "sweep", *small, *options]) == 1
    assert words in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("name", ["report.md", "figures/crowd.png"])
def test_a_page_that_cannot_be_written_is_named(
    small: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small, copy)
    (copy / name).unlink()
    (copy / name).mkdir()
    assert main(["report", str(copy)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line
    assert "use another --out or folder" in line


@pytest.mark.parametrize("verb", ["plot", "report"])
def test_a_folder_without_a_run_is_named(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, str(tmp_path)]) == 1
    assert "has no run.json" in capsys.readouterr().err
