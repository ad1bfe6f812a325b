"""`bylot problem`: what is told of a file is what the policies then do."""

import json
from pathlib import Path
from typing import Any

import pytest

import hospital
from broken_files import GOOD
from bylot.cli import main
from bylot.errors import PolicyError
from bylot.policies import (
    Distinct,
    NoisyOr,
    Policy,
    Strict,
    Tangent,
    policy_to_data,
    resolve_policy,
)
from bylot.problem import Problem
from bylot.problem_files import read
from bylot.problem_files.check import check_problem
from bylot.problem_files.schema import packaged_text

GUARDED: tuple[Policy, ...] = (Distinct(), NoisyOr(), Tangent())
EXAMPLES = Path(__file__).parent.parent / "examples"
ROOMY = GOOD["yaml"]
THIN = ROOMY.replace("at_most: 4.5, at_least: 0.1", "at_most: 1.5")  # panels of two cost 4 or more
CROWDED = """\
draws: 3
experts: [{name: a, group: x}, {name: b, group: y}, {name: c, group: z}, {name: d}]
limits:
  - {group: x, at_least: 0.4, per: request}
  - {group: y, at_least: 0.4, per: request}
  - {group: z, at_least: 0.4, per: request}
"""


def told(folder: Path, content: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, Any]:
    """Exit code, text and data of a check."""
    path = folder / "pool.yaml"
    path.write_text(content)
    code = main(["problem", "check", str(path)])
    text = capsys.readouterr()
    assert main(["problem", "check", "--json", str(path)]) == code
    return code, text.out + text.err, json.loads(capsys.readouterr().out)


def test_a_check_tells_costs_groups_limits_and_policies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = told(tmp_path, ROOMY, capsys)
    assert code == 0
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "usd 1 2.667 4 US dollars per consultation" in lines
    assert "senior 2" in lines
    assert "junior at_least 0.25 per draw 0 0.5 0.4333 0.5 16" in lines
    assert "contexts and their shares of the requests: pain 0.75, headache 0.25" in lines
    assert "Panels of 2 different experts can keep them." in lines
    (limit,) = [one for one in data["limits"] if one.get("group") == "junior"]
    assert limit.pop("distinct") == pytest.approx([1.3 / 3, 0.5])  # 4.5 USD pay few without cat
    assert limit == {
        "group": "junior",
        "at_least": 0.25,
        "per": "draw",
        "per_request": 0.5,
        "line": 16,
        "lowest": 0.0,
        "highest": 0.5,
    }
    assert data["feasible"]
    assert data["experts"] == ["ann", "bob", "cat"]
    assert data["costs"]["usd"] == {
        "unit": "US dollars per consultation",
        "least": 1.0,
        "most": 4.0,
    }


def test_where_full_panels_are_out_of_reach_tangent_is_the_one_to_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = told(tmp_path, THIN, capsys)
    assert code == 0
    assert (
        "Panels of 2 different experts cannot keep 'usd' at_most 1.5 per request (line 15)" in text
    )
    assert data["full_panels"]["conflict"][0]["line"] == 15
    assert [data["policies"][name]["applies"] for name in ("distinct", "tangent")] == [False, True]


@pytest.mark.parametrize("usd", ["1.5", "4.1"])  # out of reach of full panels, and just at it
def test_a_bound_that_is_proposed_lets_the_default_policy_be_taken(
    tmp_path: Path, usd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = ROOMY.replace("at_most: 4.5, at_least: 0.1", f"at_most: {usd}")
    code, text, data = told(tmp_path, content, capsys)
    assert code == 0
    assert " -0" not in text
    assert f"can run with at_most: {data['looser'][0]['at_most']} in line 15" in text
    for looser in data["looser"]:
        was = usd if "cost" in looser else "0.9"
        after = content.replace(f"at_most: {was}", f"at_most: {looser['at_most']}")
        _, text, told_now = told(tmp_path, after, capsys)
        assert "can run with" not in text
        assert told_now["policies"]["distinct"]["applies"]
        Distinct().bind(read(tmp_path / "pool.yaml").problem)


def test_what_full_panels_can_have_is_told_beside_what_any_panel_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, data = told(tmp_path, THIN, capsys)
    usd = next(one for one in data["limits"] if one.get("cost") == "usd")
    assert usd["lowest"] == 1.0  # the cheapest alone
    assert usd["distinct"][0] == pytest.approx(4.1)  # and the next in nine panels of ten
    assert "margin: the fraction" in text


def test_an_empty_stand_in_is_told_with_its_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = told(tmp_path, CROWDED, capsys)
    assert code == 0
    assert "The paper's surrogate of the limits is infeasible, because of" in text
    assert [one["line"] for one in data["surrogate"]["conflict"]] == [4, 5, 6]
    assert data["full_panels"] == {"feasible": True, "conflict": []}


def test_a_limit_that_the_others_keep_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, _ = told(tmp_path, ROOMY.replace("at_most: 0.9", "at_most: 1.5"), capsys)
    idle = [
        line.split("  ")[0] for line in text.splitlines() if line.endswith("implied by the others")
    ]
    assert idle == ["usd at_least", "night at_most"]  # whoever is asked costs 1 or more


def test_limits_in_conflict_are_told_with_lines_and_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = told(tmp_path, ROOMY.replace("at_most: 4.5", "at_most: 0.5"), capsys)
    assert code == 1
    assert "line 15: no policy can keep" in text
    assert text.rstrip().endswith(
        "write at_most: 1.0 in line 15; these bounds are the nearest, so leave a margin"
    )
    assert data["feasible"] is False
    assert data["conflict"] == [{"limit": "usd", "at_most": 0.5, "line": 15}]


def test_a_broken_file_is_told_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = told(tmp_path, ROOMY.replace("period", "perod"), capsys)
    assert code == 1
    assert text == f"bylot: {data['error']}\n"
    assert "line 22" in text
    assert data["feasible"] is None


def without_period(problem: Problem, period: int) -> Problem:
    """The same problem with another period."""
    return Problem(
        problem.experts, dict(problem.costs), problem.limits, draws=problem.draws, period=period
    )


def pools(folder: Path) -> list[Path]:
    """Files of several kinds."""
    made = []
    crowd = (EXAMPLES / "crowd" / "problem.yaml").read_text()
    contents = {"roomy": ROOMY, "thin": THIN, "crowded": CROWDED}
    contents["poor"] = crowd.replace("at_most: 15", "at_most: 4")
    for name, content in contents.items():
        made.append(folder / f"{name}.yaml")
        made[-1].write_text(content)
    return [*made, EXAMPLES / "crowd" / "problem.yaml", EXAMPLES / "ads" / "problem.yaml"]


def test_the_shortest_period_that_is_told_is_the_shortest_that_is_accepted(tmp_path: Path) -> None:
    met = 0
    for path in pools(tmp_path):
        file = read(path)
        for kind in GUARDED:
            one = check_problem(file)["policies"][kind.name]
            if one["reason"]:
                with pytest.raises(PolicyError):
                    kind.bind(file.problem)
                continue
            shortest = one["shortest_period"]
            kind.bind(without_period(file.problem, shortest))
            if shortest > 1:
                met += 1
                with pytest.raises(PolicyError, match=f"at least {shortest:,}"):
                    kind.bind(without_period(file.problem, shortest - 1))
    assert met > 5


def test_what_auto_takes_is_told_and_is_what_it_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, roomy = told(tmp_path, ROOMY, capsys)
    words = "auto:propensities=false,contexts=2"  # the file names two
    assert roomy["auto"] == {"auto": "distinct", words: "noisy-or"}
    assert f"auto, the default, selects distinct; {words}, for logs" in text
    _, text, thin = told(tmp_path, THIN, capsys)
    assert set(thin["auto"].values()) == {"tangent"}
    assert "auto, the default, selects tangent.\n" in text
    assert "noisy-or:explore" not in text
    for path in pools(tmp_path):
        file = read(path)
        for asked, took in check_problem(file)["auto"].items():
            assert took == policy_to_data(resolve_policy(asked, file.problem))["name"]
    _, text, _ = told(tmp_path, ROOMY.replace("period: 500", "period: 1"), capsys)
    assert "selects distinct (which cannot run, see above)" in text


def test_beliefs_of_panel_that_would_not_fit_are_told_before_they_are_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ", ".join(f"{{name: e{i}}}" for i in range(300))
    few, many = (f"contexts: [{', '.join(f'c{i}' for i in range(n))}]\n" for n in (5, 2_000))
    pool = f"draws: 3\nexperts: [{names}]\n"
    _, text, data = told(tmp_path, pool + few, capsys)
    assert data["policies"]["noisy-or"]["memory"] == 8 * 5 * 300**2
    assert data["policies"]["noisy-or"]["applies"]
    assert "pairs of 300 experts takes 3 MiB in 5 contexts" in text
    assert data["auto"]["auto:propensities=false,contexts=5"] == "noisy-or"
    _, text, data = told(tmp_path, pool + many, capsys)
    assert data["policies"]["noisy-or"]["reason"] == "its posterior would take more than 1 GiB"
    assert data["auto"]["auto:propensities=false,contexts=2000"] == "distinct"
    problem = read(tmp_path / "pool.yaml").problem
    with pytest.raises(PolicyError, match="beliefs about pairs"):
        NoisyOr().start(NoisyOr().bind(problem), 2_000)


def test_a_period_that_is_too_short_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, data = told(tmp_path, ROOMY.replace("period: 500", "period: 1"), capsys)
    assert "a period of 1 requests is too short" in text
    assert not data["policies"]["distinct"]["applies"]
    assert data["policies"]["distinct"]["shortest_period"] > 1


def test_strict_can_be_taken_where_it_is_said_to(tmp_path: Path) -> None:
    said = set()
    for path in pools(tmp_path):
        file = read(path)
        one = check_problem(file)["policies"]["strict"]
        said.add(bool(one["reason"]))
        if one["reason"]:
            with pytest.raises(PolicyError):
                Strict().bind(file.problem)
        else:
            Strict().bind(file.problem)
    assert said == {True, False}


def test_the_example_of_the_hospital_is_checked_with_experts_from_elsewhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    experts = hospital.folder() / "experts.csv"
    path = EXAMPLES / "hospital" / "problem.yaml"
    assert main(["problem", "check", str(path), "--experts", str(experts)]) == 0
    assert "39 experts" in capsys.readouterr().out
    assert main(["problem", "check", str(path)]) == 1
    assert "line 16: no CSV file" in capsys.readouterr().err


def test_new_and_schema_print_what_comes_with_the_package(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["problem", "new"]) == 0
    assert capsys.readouterr().out == packaged_text("starter.yaml")
    assert main(["problem", "schema"]) == 0
    assert capsys.readouterr().out == packaged_text("problem.schema.json")


def test_nothing_limited_is_no_reason_to_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = told(tmp_path, "{draws: 1, experts: [{name: a}, {name: b}]}", capsys)
    assert code == 0
    assert "Nothing is limited." in text
    assert data["limits"] == []
