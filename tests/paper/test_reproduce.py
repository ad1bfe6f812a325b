"""`bylot reproduce` from data to report: stopped, killed and continued."""

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
from bylot_paper.claims.measures import MIN_VERDICT_SEEDS
from bylot_paper.grid import list_cells
from bylot_paper.records import RECORD_SCHEMA

SMALL_RUN = ["--data", "synthetic", "--rounds", "200", "--seeds", "3"]
ONLY_TWO_POLICIES = ["--only", "*/omd/*", "--only", "*/cbwk/*"]
LONG_RUN = ["crowd", "--data", "synthetic", "--rounds", "4000", "--seeds", "4", "--only", "*/omd/*"]


def read_record_bytes(folder: Path) -> bytes:
    """The bytes of the table: everything that was measured, and nothing else."""
    return (folder / "records.parquet").read_bytes()


def start_reproduce(*arguments: str) -> "subprocess.Popen[str]":
    """Start a run in its own process, as at a terminal."""
    command = [sys.executable, "-m", "bylot", "reproduce", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_first_part(process: "subprocess.Popen[str]", folder: Path) -> None:
    """Wait until a part of the work, but not all of it, is on disk."""
    limit = time.monotonic() + 120
    while not list((folder / "parts").glob("*.parquet")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.01)


ONLY_SOME_BEYOND = ["--only", "*/distinct/*", "--only", "beyond/*/omd/*"]


@pytest.fixture(scope="module")
def paper_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of the paper's experiments."""
    folder = tmp_path_factory.mktemp("small")
    assert main(["reproduce", "paper", *SMALL_RUN, "--jobs", "2", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def beyond_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of some experiments beyond the paper."""
    folder = tmp_path_factory.mktemp("beyond")
    run = [
        "reproduce",
        "beyond",
        *SMALL_RUN,
        *ONLY_SOME_BEYOND,
        "--jobs",
        "2",
        "--out",
        str(folder),
    ]
    assert main(run) == 0
    return folder


def test_one_command_leaves_records_figures_report_and_claims(paper_run: Path) -> None:
    table = pl.read_parquet(paper_run / "records.parquet")
    assert len(table) == 2 * 3 * 3 + 8 * 4 * 2 * 3
    assert table["cell"].is_sorted()
    assert np.isfinite(table["regret_true"].to_numpy()).all()
    for name in ("sweep", "crowd", "rolling"):
        for kind in ("png", "svg"):
            assert (paper_run / "figures" / f"{name}.{kind}").stat().st_size > 10_000
    claims = json.loads((paper_run / "claims.json").read_text())
    assert {one["verdict"] for one in claims} <= {"holds", "does not hold", "cannot be tested"}
    summary = json.loads((paper_run / "summary.json").read_text())
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


def test_experiments_beyond_the_paper_have_their_own_records_figures_checks_and_report(
    beyond_run: Path,
) -> None:
    table = pl.read_parquet(beyond_run / "records.parquet")
    counts = dict(table.group_by("experiment").len().iter_rows())
    assert counts == {"beyond": 2 * 8 * 3, "ablation": 4 * 3, "periods": 4 * 3}
    assert np.isfinite(table["regret_true"].to_numpy()).all()
    distinct = table.filter(pl.col("policy") == "distinct")
    assert distinct["feasible"].all()
    assert distinct["bad_periods"].sum() == 0
    assert set(table["period"].drop_nulls()) == {400}  # as long as the play: others are too long
    text = (beyond_run / "report.md").read_text()
    assert "## Beyond the paper" in text
    assert "## Sentence by sentence" not in text
    assert (beyond_run / "figures" / "beyond.png").exists()
    assert not (beyond_run / "figures" / "crowd.png").exists()
    checks = {
        one["id"]: one["verdict"] for one in json.loads((beyond_run / "beyond.json").read_text())
    }
    assert checks["distinct-always-feasible"] == "holds"
    assert checks["tangent-always-feasible"] == "cannot be tested"


def test_adding_seeds_beyond_the_paper_gives_the_bytes_of_one_run(
    beyond_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [
        "reproduce",
        "beyond",
        "--data",
        "synthetic",
        "--rounds",
        "200",
        *ONLY_SOME_BEYOND,
        "--jobs",
        "1",
    ]
    for seeds in ("1", "3"):
        assert main([*run, "--seeds", seeds, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "24 to compute" in printed.err
    assert "48 to compute" in printed.err
    assert printed.err.count("... verdicts need 3 seeds, this run has 1: see --seeds") == 1
    assert "core-seconds" in printed.out
    assert re.search(r"^beyond \+ ablation +20 ", printed.out, re.MULTILINE)
    assert read_record_bytes(tmp_path) == read_record_bytes(beyond_run)


def test_pandas_reads_the_records_as_polars_does(paper_run: Path) -> None:
    pandas = pytest.importorskip("pandas")
    one, other = (
        read(paper_run / "records.parquet") for read in (pandas.read_parquet, pl.read_parquet)
    )
    assert list(one.columns) == other.columns
    assert (one["reward"].to_numpy() == other["reward"].to_numpy()).all()
    assert one["curve_t"][0].tolist() == other["curve_t"][0].to_list()


def test_the_columns_are_those_of_the_documents_and_its_example_runs(
    paper_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "records.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code.replace("out/paper", str(paper_run)), "records.md", "exec"), {})
    assert "ts-bwk" in capsys.readouterr().out
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == set(RECORD_SCHEMA)


def test_every_output_on_a_synthetic_crowd_says_so(paper_run: Path) -> None:
    for name in ("report.md", "report.html", "summary.json", "claims.json", "run.json"):
        assert "synthetic" in (paper_run / name).read_text().lower(), name
    for figure in (paper_run / "figures").glob("*.svg"):
        assert "SYNTHETIC" in figure.read_text(), figure


def test_a_second_run_computes_nothing_and_changes_no_record(
    paper_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_record_bytes(paper_run)
    assert main(["reproduce", "paper", *SMALL_RUN, "--out", str(paper_run)]) == 0
    assert "nothing was missing" in capsys.readouterr().out
    assert read_record_bytes(paper_run) == before


def test_figures_and_report_come_from_records_alone(paper_run: Path) -> None:
    kept = {
        path: path.read_bytes() for path in paper_run.rglob("*") if path.suffix in (".svg", ".md")
    }
    assert len(kept) == 4
    for path in kept:
        path.unlink()
    assert main(["plot", str(paper_run)]) == 0
    assert main(["report", str(paper_run)]) == 0
    assert {path: path.read_bytes() for path in kept} == kept


def test_results_go_into_a_folder_named_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["--data", "synthetic", "--rounds", "20", "--seeds", "1"]
    for experiment, name in (
        ("sweep", "paper"),
        ("crowd", "paper"),
        ("beyond", "beyond"),
        ("", "all"),
    ):
        subset = [
            "--only",
            "periods/tight/*/omd/*" if experiment == "beyond" else "*/tight/stoch*/omd/*",
        ]
        assert main(["reproduce", *([experiment] if experiment else []), *few, *subset]) == 0
        assert (tmp_path / "out" / name / "report.md").exists()
    kept = pl.read_parquet(tmp_path / "out" / "paper" / "records.parquet")
    assert set(kept["experiment"]) == {"sweep", "crowd"}  # one report of both


def test_the_help_does_not_depend_on_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "CPU cores (default: all)" in printed
    assert f"verdicts need at least {MIN_VERDICT_SEEDS}" in printed


def test_more_seeds_continue_a_run_with_fewer(paper_run: Path, tmp_path: Path) -> None:
    run = ["reproduce", "crowd", "--data", "synthetic", "--rounds", "200", *ONLY_TWO_POLICIES]
    for seeds in ("1", "3"):
        assert main([*run, "--records-only", "--seeds", seeds, "--out", str(tmp_path)]) == 0
    assert not (tmp_path / "report.md").exists()
    subset = pl.read_parquet(tmp_path / "records.parquet")
    every = pl.read_parquet(paper_run / "records.parquet")
    assert subset.equals(every.filter(pl.col("cell").is_in(subset["cell"].implode())))
    assert len(subset) == 2 * 4 * 2 * 3


def test_one_job_two_jobs_and_ray_give_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the engine of many machines needs Ray")
    subset = [*ONLY_TWO_POLICIES, "--only", "beyond/*/distinct/*", "--only", "periods/*/distinct/*"]
    run = ["reproduce", "all", "--data", "synthetic", "--rounds", "100", "--seeds", "2", *subset]
    engines = {"one": ["--jobs", "1"], "two": ["--jobs", "2"], "ray": ["--engine", "ray"]}
    for name, options in engines.items():
        assert main([*run, *options, "--records-only", "--out", str(tmp_path / name)]) == 0
    assert (
        read_record_bytes(tmp_path / "one")
        == read_record_bytes(tmp_path / "two")
        == read_record_bytes(tmp_path / "ray")
    )


def test_a_killed_run_continues_to_the_same_bytes(tmp_path: Path) -> None:
    killed, complete = tmp_path / "killed", tmp_path / "whole"
    assert main(["reproduce", *LONG_RUN, "--records-only", "--out", str(complete)]) == 0
    process = start_reproduce(*LONG_RUN, "--jobs", "1", "--out", str(killed))
    wait_for_first_part(process, killed)
    process.kill()
    process.communicate()
    assert not (killed / "records.parquet").exists()
    done = len(list((killed / "parts").glob("*.parquet")))
    assert 1 <= done < 8  # of the scenarios
    again = start_reproduce(*LONG_RUN, "--records-only", "--out", str(killed))
    _, printed = again.communicate(timeout=300)
    assert f"{len(list_cells('crowd', 4)) // 8 - 4 * done} to compute" in printed
    assert read_record_bytes(killed) == read_record_bytes(complete)


def test_after_ctrl_c_finished_cells_are_reported(tmp_path: Path) -> None:
    process = start_reproduce(*LONG_RUN, "--jobs", "1", "--out", str(tmp_path))
    wait_for_first_part(process, tmp_path)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "the same command resumes" in errors
    assert "statements of the paper's results" in printed
    assert 4 <= len(pl.read_parquet(tmp_path / "records.parquet")) < 32
    assert (tmp_path / "report.html").exists()


def test_a_folder_of_other_settings_is_refused_unless_fresh(
    paper_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["reproduce", "sweep", "--data", "synthetic", "--seeds", "1", "--only", "*/tight/*"]
    assert main([*run, "--rounds", "30", "--out", str(tmp_path)]) == 0
    assert main([*run, "--rounds", "40", "--out", str(tmp_path)]) == 1
    assert "rounds 30 (now 40)" in capsys.readouterr().err
    assert main([*run, "--rounds", "40", "--out", str(tmp_path), "--fresh"]) == 0
    (row, _) = pl.read_parquet(tmp_path / "records.parquet").to_dicts()
    assert row["curve_t"] == [10, 20, 30, 40]


VALID_CROWD = "".join(
    f"{task}\t{worker}\t{task % 2}\n" for task in range(8) for worker in range(60)
)
TRUTH = "".join(f"{task}\t{task % 2}\n" for task in range(8))
INVALID_DATA = {
    "missing": ("gone.txt", None, "no such file"),
    "garbage": ("crowd.txt", b"\xff\xfe\x00\x81" * 50, "crowd.txt"),
    "one class": ("crowd.txt", VALID_CROWD.replace("\t1\n", "\t0\n").encode(), "crowd.txt"),
    "short line": ("crowd.txt", (VALID_CROWD + "8\t1\n").encode(), "line 481"),
    "too few": ("crowd.txt", VALID_CROWD[:1500].encode(), "only"),
}


@pytest.mark.parametrize("kind", INVALID_DATA)
def test_invalid_data_gives_an_error_of_one_line_with_file_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    name, content, words = INVALID_DATA[kind]
    truth = tmp_path / "truth.txt"
    truth.write_text(TRUTH.replace("\t1\n", "\t0\n") if kind == "one class" else TRUTH)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    files = ["--crowd", str(tmp_path / name), "--truth", str(truth)]
    assert main(["reproduce", *files, "--rounds", "20", "--out", str(tmp_path / "out")]) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("...")]
    assert len(errors) == 1
    assert words in errors[0]
    assert ";" in errors[0]  # the remedy
    assert not (tmp_path / "out").exists()  # and no run was started


def test_an_experiment_runs_on_user_files(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(VALID_CROWD.replace("\t", ","))
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
        (["--data", "synthetic", "--rounds", "9"], "invalid --rounds 9: expected at least 10"),
        (["--data", "synthetic", "--out", "/dev/null/x"], "cannot be written"),
        (["--data", "synthetic", "--engine", "ray", "--address", "127.0.0.1:9"], "nothing answers"),
    ],
)
def test_invalid_options_give_an_error_of_one_line(
    options: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["--rounds", "20", "--seeds", "1"]
    assert main(["reproduce", "sweep", *short, *options]) == 1
    assert words in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("name", ["report.md", "figures/crowd.png"])
def test_a_page_that_cannot_be_written_is_named(
    paper_run: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(paper_run, copy)
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
