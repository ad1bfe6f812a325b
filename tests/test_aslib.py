"""Scenarios of the algorithm selection library: the reader, its refusals, and simulations."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from numpy.testing import assert_allclose, assert_array_equal

from aslib_files import write_aslib_scenario, write_small_scenario
from bylot.cli import main
from bylot.errors import DataError
from bylot.outcome_tables.aslib import find_aslib_folders, read_aslib

SHARED_ASLIB = Path(__file__).resolve().parents[2] / "shared" / "data" / "aslib"
CUTOFFS = {"SAT11-HAND": 5_000, "QBF-2014": 900, "ASP-POTASSCO": 600}
BLANK = float("nan")


def test_a_scenario_is_read_as_it_is_published(tmp_path: Path) -> None:
    found = read_aslib(write_small_scenario(tmp_path / "TINY-SAT"))
    assert (found.name, found.cutoff) == ("TINY-SAT", 5_000.0)
    assert found.outcomes.experts == ("glucose", "minisat", "walk")
    assert found.outcomes.questions == ("cnf/a.cnf", "cnf/b, 2.cnf", "cnf/c.cnf")
    # The second instance: solved at the cut-off, ok after it, and a crash; the last run is missing.
    assert_array_equal(found.outcomes.table, [[0, 1, 1], [0, 1, 0], [1, 0, BLANK]])


def test_letter_case_comments_quotes_and_a_missing_cut_off(tmp_path: Path) -> None:
    folder = write_small_scenario(tmp_path / "TINY")
    runs = (folder / "algorithm_runs.arff").read_text()
    runs = runs.replace("@ATTRIBUTE runtime NUMERIC", "% seconds\n@attribute 'RunTime' real")
    (folder / "algorithm_runs.arff").write_text(runs.replace("minisat,0.5", '"minisat" , 0.5'))
    about = (folder / "description.txt").read_text().replace("5000", '"?"')
    (folder / "description.txt").write_text(about)
    (folder / "feature_values.arff").unlink()
    found = read_aslib(folder)
    assert found.cutoff == float("inf")
    assert_array_equal(found.outcomes.table, [[0, 1, 1], [1, 1, 0], [1, 0, BLANK]])


def test_repetitions_are_requests_of_their_own(tmp_path: Path) -> None:
    runs = ["a,1,x,1,ok", "a,2,x,9,timeout", "b,1,x,1,ok", "a,1,y,1,ok", "a,2,y,2,ok"]
    found = read_aslib(write_aslib_scenario(tmp_path / "R", runs, ["a,1,3"], ["size"])).outcomes
    assert found.questions == ("a, repetition 1", "a, repetition 2", "b, repetition 1")
    assert_array_equal(found.table, [[1, 1], [0, 1], [1, BLANK]])


def edit(file: str, old: str, new: str) -> Callable[[Path], None]:
    """An edit of a file of a scenario."""

    def apply(folder: Path) -> None:
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))

    return apply


RUNS, ABOUT = "algorithm_runs.arff", "description.txt"


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (edit(RUNS, "0.5,ok", "0.5"), f"{RUNS}, line 10: 4 fields, and the file has 5 attributes"),
        (edit(RUNS, "0.5,ok", "fast,ok"), "line 10: invalid runtime 'fast': expected a number"),
        (edit(RUNS, "0.5,ok", "?,ok"), "line 10: a run that is ok has no run time"),
        (
            edit(RUNS, "0.5,ok", "0.5,solved"),
            "line 10: invalid runstatus 'solved': expected one of ok",
        ),
        (edit(RUNS, "12.25,ok", "12.25,?"), "line 12: runstatus is missing; fill it in"),
        (
            edit(RUNS, "cnf/a.cnf,1,walk", "cnf/a.cnf,1,minisat"),
            "line 12: .*as in line 10; keep one",
        ),
        (
            edit(RUNS, "'cnf/b, 2.cnf',1,walk", "'cnf/b, 2.cnf,1,walk"),
            "line 15: quotes do not match",
        ),
        (edit(RUNS, "cnf/c.cnf,1,glucose,1e2,ok", "{0 x, 2 y}"), "line 17: a sparse row"),
        (
            edit(RUNS, "@ATTRIBUTE runstatus", "@ATTRIBUTE status"),
            "no attribute 'runstatus'.*'status'",
        ),
        (
            edit(RUNS, "@ATTRIBUTE runtime NUMERIC", "@ATTRIBUTE runtime"),
            "line 6: .* is no attribute",
        ),
        (edit(RUNS, "@ATTRIBUTE runtime", "@ATTRIBUTE algorithm"), "line 6: a second attribute"),
        (edit(RUNS, "@DATA", "DATA"), "line 9: 'DATA' is no header of an ARFF file"),
        (edit(ABOUT, "5000", "soon"), f"{ABOUT}: invalid algorithm_cutoff_time 'soon'"),
        (
            edit(ABOUT, "type:\n    - runtime", "type:\n    - solution_quality"),
            "measures solution_quality",
        ),
        (lambda folder: (folder / ABOUT).unlink(), f"{ABOUT}: no such file"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(
    break_it: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    folder = write_small_scenario(tmp_path / "TINY")
    break_it(folder)
    with pytest.raises(DataError, match=words):
        read_aslib(folder)


def test_a_folder_is_a_scenario_or_has_some(tmp_path: Path) -> None:
    one, other = (write_small_scenario(tmp_path / name) for name in ("B", "A"))
    assert find_aslib_folders(one) == [one]
    assert find_aslib_folders(tmp_path) == [other, one]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no scenario of the algorithm selection library"):
        find_aslib_folders(tmp_path / "empty")


def write_problem(path: Path, experts: str) -> str:
    path.write_text(f"draws: 2\nexperts: [{experts}]\n", encoding="utf-8")
    return str(path)


def test_simulate_plays_a_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_small_scenario(tmp_path / "TINY"))
    problem = write_problem(tmp_path / "pool.yaml", "walk, minisat, glucose")
    run = ["simulate", problem, "--aslib", folder, "--policy", "random", "--rounds", "400"]
    assert main([*run, "--seeds", "2", "--json", "--out", str(tmp_path / "out")]) == 0
    data = json.loads(capsys.readouterr().out)
    assert "3 instances of TINY" in json.dumps(data)
    # Of the panels, two solve two instances of three, and minisat with glucose solves all.
    earned = [one["reward"] for one in data["policies"].values()]
    assert_allclose(earned, (2 / 3 + 2 / 3 + 1) / 3, atol=0.08)
    other = write_problem(tmp_path / "other.yaml", "walk, minisat, gluecose")
    assert main([*run[:1], other, *run[2:], "--out", str(tmp_path / "no")]) == 1
    assert "did you mean 'glucose'" in capsys.readouterr().err


@pytest.mark.parametrize("name", CUTOFFS)
def test_published_scenarios_are_read_as_their_tables_say(name: str, tmp_path: Path) -> None:
    if not (SHARED_ASLIB / name).is_dir():
        pytest.skip(f"no {SHARED_ASLIB / name}")
    folder = convert_tables(SHARED_ASLIB / name, tmp_path / name)
    found = read_aslib(folder)
    table = read_csv(SHARED_ASLIB / name / "outcomes.csv")
    assert found.outcomes.experts == tuple(sorted(table[0][1:]))
    order = [1 + table[0][1:].index(expert) for expert in found.outcomes.experts]
    rows = {row[0]: [float(row[i]) for i in order] for row in table[1:]}
    assert_array_equal(found.outcomes.table, [rows[one] for one in found.outcomes.questions])


def read_csv(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def convert_tables(source: Path, target: Path) -> Path:
    """Write tables of outcomes, run times and features in the published form."""
    outcomes, times, features = (
        read_csv(source / f"{name}.csv") for name in ("outcomes", "runtimes", "features")
    )
    runs = [
        f"'{solved[0]}',1,'{solver}',{time},{'ok' if float(outcome) else 'timeout'}"
        for solved, taken in zip(outcomes[1:], times[1:], strict=True)
        for solver, outcome, time in zip(outcomes[0][1:], solved[1:], taken[1:], strict=True)
    ]
    rows = [f"'{row[0]}',1," + ",".join(one or "?" for one in row[1:]) for row in features[1:]]
    cutoff = str(CUTOFFS[source.name])
    return write_aslib_scenario(target, runs, rows, features[0][1:], cutoff)
