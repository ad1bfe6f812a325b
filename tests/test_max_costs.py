"""The largest cost of a call in problem files: beside experts, in lists, in CSV files, in edits."""

from pathlib import Path

import pytest

from bylot import Router, problem_files
from bylot.errors import ProblemFileError
from bylot.problem import Problem, at_most
from bylot.problem_files.check import check_problem
from bylot.problem_files.check_report import render_check
from bylot.router.config import problem_from_data, problem_to_data

BESIDE = """
draws: 1
costs: {usd: US dollars}
experts:
  - {name: ann, usd: 2, max_costs: {usd: 5}}
  - {name: bob, usd: 1, max_costs: {usd: 1.5}}
limits:
  - {cost: usd, at_most: 1.8}
"""


def read_text(folder: Path, text: str) -> Problem:
    """The problem of a YAML file with this text."""
    (folder / "pool.yaml").write_text(text)
    return problem_files.read(folder / "pool.yaml").problem


def test_three_ways_to_write_the_largest_costs_are_equal(tmp_path: Path) -> None:
    beside = read_text(tmp_path, BESIDE)
    assert beside.max_costs["usd"].tolist() == [5.0, 1.5]
    listed = read_text(
        tmp_path,
        "draws: 1\ncosts: {usd: [2, 1]}\nmax_costs: {usd: [5, 1.5]}\nexperts: [ann, bob]\n"
        "limits: [{cost: usd, at_most: 1.8}]",
    )
    (tmp_path / "experts.csv").write_text("name,usd,dearest\nann,2,5\nbob,1,1.5\n")
    from_csv = read_text(
        tmp_path,
        "draws: 1\ncosts: {usd: US dollars}\nmax_costs: {usd: dearest}\n"
        "experts: {csv: experts.csv}\nlimits: [{cost: usd, at_most: 1.8}]",
    )
    assert beside == listed == from_csv


def test_a_written_problem_reads_back_with_its_largest_costs(tmp_path: Path) -> None:
    problem = read_text(tmp_path, BESIDE)
    assert read_text(tmp_path, problem_files.write(problem)) == problem
    assert problem_from_data(problem_to_data(problem)) == problem
    plain = problem.replace(max_costs={})
    assert "max_costs" not in problem_to_data(plain)
    assert "max_costs" not in problem_files.write(plain)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (", max_costs: {usd: 1.5}", "", "expert 'bob' has no largest cost of 'usd'"),
        ("{usd: 1.5}", "{usd: 0.5}", "of expert 'bob' 0.5: expected at least its cost 1.0"),
        ("{usd: 5}", "{usd: 5, ms: 1}", "'ms', which is no cost"),
        ("{usd: 5}", "{usd: x}", "expected a finite number of 0 or more"),
        ("draws: 1", "draws: 1\nmax_costs: {usd: [5, 2]}", "is here and beside the experts"),
        ("draws: 1", "draws: 1\nmax_costs: {usd: dearest}", "the experts are not in a CSV file"),
    ],
)
def test_a_wrong_largest_cost_is_located(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ProblemFileError) as caught:
        read_text(tmp_path, BESIDE.replace(old, new, 1))
    assert message in str(caught.value)
    assert "line" in str(caught.value)


def test_the_check_names_the_promise_of_each_limit(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(BESIDE)
    file = problem_files.read(path)
    found = check_problem(file)
    assert [one["promise"] for one in found["limits"]] == ["certain"]
    assert "usd at_most: certain: it holds at the end of every period" in render_check(
        file, found, details=True
    )
    path.write_text(BESIDE.replace("{usd: 1.5}", "{usd: 1.9}"))  # more than the bound
    file = problem_files.read(path)
    found = check_problem(file)
    assert [one["promise"] for one in found["limits"]] == ["declared"]
    assert "usd at_most: certain if calls cost what is declared" in render_check(file, found, True)


@pytest.mark.parametrize("fewest", ["", "min_draws: 1\n"])
@pytest.mark.parametrize("bound", [2.2, 3.2, 9.0])
def test_the_check_and_a_router_promise_the_same(tmp_path: Path, fewest: str, bound: float) -> None:
    path = tmp_path / "pool.yaml"  # full panels cost 2 to 5 as declared, and at most 3 to 9
    path.write_text(
        f"{fewest}draws: 2\nexperts: [ann, bob, cat]\ncosts: {{usd: [1, 1, 4]}}\n"
        f"max_costs: {{usd: [1.5, 1.5, 7.5]}}\nlimits: [{{cost: usd, at_most: {bound}}}]\n"
    )
    file = problem_files.read(path)
    found = check_problem(file)
    text = render_check(file, found, details=True)
    promises = {}
    for name, key in (("auto", "promise"), ("noisy-or", "noisy_or_promise")):
        current = Router(file.problem, name).status().limits[0].current
        assert current is not None
        promises[name] = current.promise
        assert found["limits"][0][key] == current.promise
    assert ("With noisy-or, usd at_most: certain" in text) == (len(set(promises.values())) > 1)
    assert "with scores of members or winners, auto selects noisy-or" in text


def test_largest_costs_change_no_limit() -> None:
    pool = Problem(["a", "b"], {"usd": [1.0, 2.0]}, [at_most("usd", 1.5)], draws=1)
    assert pool.replace(max_costs={"usd": [9.0, 9.0]}).rows.tolist() == pool.rows.tolist()
