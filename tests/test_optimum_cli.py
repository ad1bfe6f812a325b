"""`bylot optimum` reports what the library finds, in the units of the problem file."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import bylot
import hospital
from bylot.cli import main
from bylot.optima import iid_optimum, optimum
from bylot.optimum_report import compute_optimum_report, render_optimum
from bylot.problem_files import read
from bylot.scenario import scenario_from_outcomes

POOL = """\
draws: 2
costs: {usd: US dollars}
experts:
  - {name: ann, usd: 3, group: senior}
  - {name: bob, usd: 1, group: junior}
  - {name: cat, usd: 1, group: junior}
limits:
  - {cost: usd, at_most: 3, per: request}
  - {group: junior, at_least: 0.25, per: draw}
rewards: {from: 0, to: 10}
"""
TABLE = """\
qid,topic,ward,ann,bob,cat
1,heart,day,1,0,0
2,skin,day,1,1,0
3,skin,night,0.5,0,
4,heart,night,1,0,1
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A pool and a table."""
    (tmp_path / "pool.yaml").write_text(POOL)
    (tmp_path / "table.csv").write_text(TABLE)
    return [str(tmp_path / "pool.yaml"), "--outcomes", str(tmp_path / "table.csv")]


def run_optimum(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, Any]:
    """Exit code, text with details, and data."""
    code = main(["optimum", "--details", *arguments])
    text = capsys.readouterr()
    assert main(["optimum", "--json", *arguments]) == code
    return code, text.out + text.err, json.loads(capsys.readouterr().out)


def test_rewards_costs_prices_and_probabilities_are_reported(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = run_optimum([*files, "--dimension", "topic"], capsys)
    assert code == 0
    file = read(files[0])
    stack, _ = scenario_from_outcomes(file, files[2], dimension="topic").optimum_input(1, [0])
    best = iid_optimum(file.problem, stack, exact=True, floor=False)
    one = data["distributions"]["exact"]
    assert_allclose(one["reward"], 10 * best.value)
    most = optimum(file.problem, stack, fewer=True).ceiling
    assert_allclose(one["gap"], 10 * min(best.gap, most - best.value), atol=1e-9)
    assert_allclose(one["draw_probabilities"], [best.policy])
    assert_allclose([limit["price"] for limit in one["limits"]], 10 * best.prices)
    assert [limit["verdict"] for limit in one["limits"]] == ["agrees", "agrees"]
    inclusion = 1 - (1 - best.policy) ** 2
    assert_allclose([limit["cost"] for limit in one["limits"]], file.problem.rows @ inclusion)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert f"best i.i.d. draws, exact limits {10 * best.value:.6g}" in " ".join(lines)
    assert "best fixed panel: bob, cat" in lines
    assert any(line.startswith("usd at_most 3 per request 3 at the bound") for line in lines)
    assert any(f" {best.policy[0]:.4f} {inclusion[0]:.4f}" in line for line in lines)
    assert "blank answers, which count as 0: 1 of 12" in text


VALUES = np.array([[[1.0, 0, 0]], [[1, 1, 0]], [[0.5, 0, 0]], [[1, 0, 1]]])
"""The rows of TABLE, as somebody would give them in Python."""

LIMITS = POOL.partition("limits:\n")[2].partition("rewards:")[0]
DAILY = "  - {cost: usd, at_most: 6000, per: day}\n"


@pytest.mark.parametrize("kept", ["together", "each"])
@pytest.mark.parametrize("contexts", [None, ["day", "day", "night", "night"]])
@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(f"limits:\n{LIMITS}", id="limits on both sides"),
        pytest.param("", id="no limits"),
        pytest.param("limits: [{cost: usd, at_most: 1.5, per: request}]\n", id="smaller panels"),
        pytest.param(f"traffic: 2000\nlimits:\n{DAILY}", id="a budget per day"),
    ],
)
def test_python_and_the_command_line_give_the_same_number(
    files: list[str],
    limits: str,
    contexts: list[str] | None,
    kept: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path(files[0]).write_text(POOL.replace(f"limits:\n{LIMITS}", limits))
    arguments = files if contexts is None else [*files, "--context", "ward"]
    each = kept == "each"
    assert main(["optimum", "--json", *arguments, *["--each-context"] * each]) == 0
    found = json.loads(capsys.readouterr().out)
    panels = found["distributions"]["panels"]
    best = bylot.optimum(read(files[0]).problem, VALUES, contexts=contexts, each_context=each)
    assert panels["reward"] == pytest.approx(10 * best.value, abs=1e-9)
    assert panels["question"] == best.question
    said = found["summary"]["best reward"]
    assert said == f"{panels['reward']:.6g} per request, by {best.question}"
    assert set(found["missing"]) <= {"surrogate"}
    for kind in {"exact", "surrogate"} - set(found["missing"]):
        options: Any = {"contexts": contexts, "each_context": each, "exact": kind == "exact"}
        draws = bylot.iid_optimum(read(files[0]).problem, VALUES, **options)
        shown = found["distributions"][kind]
        assert shown["reward"] == pytest.approx(10 * draws.value, abs=1e-6)
        assert shown["question"] == draws.question


def test_four_numbers_come_first_and_everything_else_with_details(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*files, "--dimension", "topic"]
    code, details, data = run_optimum(arguments, capsys)
    assert main(["optimum", *arguments]) == code == 0
    lines = capsys.readouterr().out.splitlines()
    best = data["distributions"]["panels"]
    inclusion = np.array(best["inclusion"][0])
    most = data["any_policy"]["reward"] + data["any_policy"]["gap"]
    usd = best["limits"][0]
    assert lines == [
        f"best reward      {best['reward']:.6g} per request, by the best mixture of panels of 2 "
        "experts under the limits",
        f"upper bound      {most:.6g} per request: no policy that keeps the limits earns more, "
        "with panels of 1 to 2 experts",
        f"spend            {inclusion @ [3.0, 1.0, 1.0]:.4g} US dollars per request",
        f'limit to loosen  "usd at most 3 per request": 1% looser earns {0.03 * usd["price"]:.2g} '
        f"more (shadow price {usd['price']:.4g})",
        "Use --details for distributions, costs and all prices.",
    ]
    assert details.splitlines()[:4] == lines[:4]
    assert [f"{label:15}  {text}" for label, text in data["summary"].items()] == lines[:4]


def test_prices_are_per_unit_of_the_file(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A share per draw is two per request: one more of it moves twice as much."""
    Path(files[0]).write_text(POOL.replace("at_least: 0.25", "at_least: 0.6"))
    _, text, data = run_optimum(files, capsys)
    (junior,) = [
        one for one in data["distributions"]["exact"]["limits"] if one["side"] == "at_least"
    ]
    assert junior["price"] < -0.1
    assert f"junior at_least  {2 * junior['price']:.4g}" in text


def test_contexts_share_one_budget_or_keep_the_limits_each(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*files, "--context", "ward"]
    _, text, together = run_optimum(arguments, capsys)
    _, separate_text, separate = run_optimum([*arguments, "--each-context"], capsys)
    assert together["contexts"] == {"day": 0.5, "night": 0.5}
    assert "one budget for all" in text
    assert "each context keeps the limits" in separate_text
    assert "in night" in text
    both = together["distributions"]["exact"], separate["distributions"]["exact"]
    assert both[0]["reward"] > both[1]["reward"] + 1e-4
    for one in both:
        q = np.array(one["draw_probabilities"])
        spent = (1 - (1 - q) ** 2) @ np.array([3.0, 1.0, 1.0])
        assert_allclose(spent.mean(), one["limits"][0]["cost"])
        assert one["limits"][0]["kept"]
    assert (spent <= 3 + 1e-7).all()


def test_the_distributions_are_written_as_csv(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "best.csv"
    assert main(["optimum", *files, "--context", "ward", "--csv", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["distributions"]
    lines = list(csv.DictReader(out.read_text().splitlines()))
    assert len(lines) == 3 * 2 * 3
    for line in lines:
        x, i = ["day", "night"].index(line["context"]), ["ann", "bob", "cat"].index(line["expert"])
        one = found[line["kind"]]
        assert float(line["inclusion"]) == one["inclusion"][x][i]
        if line["kind"] == "panels":
            assert line["draw_probability"] == ""
        else:
            assert float(line["draw_probability"]) == one["draw_probabilities"][x][i]
    assert main(["optimum", *files, "--csv", str(tmp_path / "no" / "best.csv")]) == 1
    assert "give an existing folder" in capsys.readouterr().err


def test_an_empty_surrogate_is_reported_with_its_limits(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shares = "".join(f"\n  - {{group: g{i}, at_least: 0.45, per: request}}" for i in range(3))
    names = ", ".join(f"{{name: {n}, group: g{i}}}" for i, n in enumerate(["ann", "bob", "cat"]))
    Path(files[0]).write_text(f"draws: 2\nexperts: [{names}]\nlimits:{shares}\n")
    code, text, data = run_optimum(files, capsys)
    assert code == 0
    assert set(data["distributions"]) == {"panels", "exact"}
    assert 'the surrogate of "g0 at least 0.45 per request"' in text
    assert "infeasible: no fixed panel keeps all limits" in text
    assert data["fixed_panel"]["feasible"] is False


def test_panels_are_reported_if_no_iid_draws_keep_the_limits(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two i.i.d. draws are equal half of the time; a panel can have both experts."""
    limits = "".join(f"\n  - {{group: g{i}, at_least: 0.9, per: request}}" for i in range(2))
    names = "{name: ann, group: g0}, {name: bob, group: g1}"
    Path(files[0]).write_text(f"draws: 2\nexperts: [{names}]\nlimits:{limits}\n")
    code, text, data = run_optimum(files, capsys)
    assert code == 0
    assert "no fixed policy" in data["missing"]["exact"]
    assert data["distributions"]["panels"]["panels"] == [
        [{"members": ["ann", "bob"], "probability": 1.0}]
    ]
    assert data["fixed_panel"]["members"] == ["ann", "bob"]
    assert data["fixed_panel"]["feasible"] is True
    assert "best i.i.d. draws, exact limits" in text
    assert "none found, see below" in text
    assert "'g0'" not in text


def test_smaller_panels_are_reported_if_full_ones_cannot_keep_the_limits(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Full panels cost 2, and i.i.d. draws ask both experts or one of them almost never."""
    limits = "".join(f"\n  - {{group: g{i}, at_least: 0.5, per: request}}" for i in range(2))
    limits += "\n  - {cost: call, at_most: 1.05, per: request}"
    names = "{name: ann, group: g0, call: 1}, {name: bob, group: g1, call: 1}"
    Path(files[0]).write_text(
        f"draws: 2\ncosts: {{call: calls}}\nexperts: [{names}]\nlimits:{limits}\n"
    )
    code, text, data = run_optimum(files, capsys)
    assert code == 0
    assert set(data["missing"]) == {"exact", "surrogate"}
    assert data["distributions"]["panels"]["question"].startswith(
        "the best mixture of panels of 1 to 2 experts"
    )
    assert "use fewer=True" not in text


def test_a_problem_without_limits_and_outcomes_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "free.yaml").write_text("{draws: 1, experts: [{name: a}, {name: b}]}")
    code, text, data = run_optimum([str(tmp_path / "free.yaml"), "--rounds", "50"], capsys)
    assert code == 0
    assert "SYNTHETIC SCENARIO" in text
    assert "There are no limits." in text
    assert text.startswith("SYNTHETIC SCENARIO")
    assert "limit to loosen  none: there are no limits" in text
    assert data["scenario"]["rounds"] == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--questions", "x.csv"], "x.csv: no such file"),
        (["--skills", "x.csv", "--dimension", "topic"], "add --outcomes"),
    ],
)
def test_options_without_effect_are_refused(
    files: list[str], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = files[:1] if "--skills" in arguments else files
    assert main(["optimum", *given, *arguments]) == 1
    assert message in capsys.readouterr().err


def test_the_hospital_example_has_the_known_optimum() -> None:
    folder = hospital.find_folder()
    pool = Path(__file__).parent.parent / "examples" / "hospital" / "problem.yaml"
    file = read(pool, folder / "experts.csv")
    table = folder / "outcomes.csv", folder / "questions.csv"
    report = compute_optimum_report(
        file, scenario_from_outcomes(file, *table, dimension="specialty"), starts=1
    )
    assert_allclose(report.found["exact"].best.value, 0.77775, atol=5e-6)
    assert {price.verdict for price in report.found["exact"].prices} == {"agrees"}
    assert "the surrogate of " in render_optimum(report, details=True)
    assert render_optimum(report, details=False).startswith(
        "best reward      0.810858 per request, by the best mixture of panels of 3 experts"
    )


@pytest.mark.parametrize(
    ("cost", "price", "verdict"), [("1", "1", "edge"), ("1e-100", "1e+100", "not checked")]
)
def test_a_bound_of_0_has_a_price(
    tmp_path: Path, cost: str, price: str, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only bob earns anything, and the bound excludes him; a bound below 1e-100 is 0."""
    pool = f"draws: 1\nexperts: [{{name: ann, usd: 0}}, {{name: bob, usd: {cost}}}]\n"
    (tmp_path / "pool.yaml").write_text(
        f"costs: {{usd: dollars}}\n{pool}limits: [{{cost: usd, at_most: 0, per: request}}]\n"
    )
    (tmp_path / "table.csv").write_text("id,ann,bob\n1,0,1\n")
    arguments = [str(tmp_path / "pool.yaml"), "--outcomes", str(tmp_path / "table.csv")]
    _, text, data = run_optimum(arguments, capsys)
    line = next(
        line for line in text.splitlines() if " usd at_most " in line and "surrogate" in line
    )
    assert line.split()[6] == price
    assert line.endswith(verdict)
    assert data["distributions"]["surrogate"]["limits"][0]["price_below"] is None
