"""`bylot simulate`: a report whose numbers are those of the library, and errors in plain words."""

import itertools
import json
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import hospital
from bylot import Problem, policies, simulate
from bylot.cli import main
from bylot.cli.options import format_policy, split_policies
from bylot.environments import CallCosts, Noisy, Outcomes
from bylot.errors import BylotError
from bylot.metrics import measure_worst_violation
from bylot.optima import ValueStack, best_set, check_shadow_prices, iid_optimum, optimum
from bylot.parallel import ThreadEngine
from bylot.problem_files import read
from bylot.scenario import call_costs_from_text
from bylot.whatif.plan import parse_sweep
from report_pages import Page, find_tables, is_rectangular

POOL = """\
draws: 2
costs: {usd: US dollars}
experts:
  - {name: ann, usd: 4, group: senior}
  - {name: bob, usd: 3, group: senior}
  - {name: cat, usd: 1, group: junior}
  - {name: dan, usd: 1, group: junior}
limits:
  - {cost: usd, at_most: 4, per: request}
  - {group: junior, at_least: 0.25, per: draw}
rewards: {from: 1, to: 5}
"""
TABLE = """\
qid,topic,ann,bob,cat,dan,zoe
1,heart,1,0,0,0,1
2,heart,1,1,0,0,1
3,heart,1,0.5,1,,0
4,skin,0,1,0,1,0
5,skin,1,1,0,0,1
6,skin,0.5,0,1,0,1
"""
SKILLS = "dimension,ann,bob,cat,dan\nheart,0.9,0.5,0.3,0.1\nskin,0.6,0.9,0.3,0.4\n"
ROUNDS = 400
POLICIES = ("distinct", "omd", "ts-bwk")


def write_problem_file(run_folder: Path, content: str = POOL) -> Path:
    path = run_folder / "pool.yaml"
    path.write_text(content)
    return path


def make_arguments(run_folder: Path, *options: str, out: str = "out") -> list[str]:
    """Arguments of a short run on the table."""
    (run_folder / "table.csv").write_text(TABLE)
    policies = [] if "--policy" in options else ["--policy", ",".join(POLICIES)]
    return [
        *("simulate", str(run_folder / "pool.yaml"), "--outcomes", str(run_folder / "table.csv")),
        *("--dimension", "topic", *policies, "--seeds", "2"),
        *("--rounds", str(ROUNDS), "--out", str(run_folder / out), *options),
    ]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a sweep, in out/."""
    folder = tmp_path_factory.mktemp("simulate")
    write_problem_file(folder)
    assert main(make_arguments(folder, "--jobs", "1", "--sweep", "usd=0.2:5:4")) == 0
    return folder


@pytest.fixture(scope="module")
def run_results(run_folder: Path) -> dict[str, Any]:
    """The results of the run."""
    found: dict[str, Any] = json.loads((run_folder / "out" / "whatif.json").read_text())
    return found


def make_environment(problem: Problem) -> Outcomes:
    """The environment of the table, made by hand."""
    lines = [line.split(",") for line in TABLE.splitlines()[1:]]
    outcomes = [[float(one or "nan") for one in line[2:6]] for line in lines]
    return Outcomes(outcomes, [int(line[1] == "skin") for line in lines])


def test_runs_equal_those_of_simulate(run_folder: Path, run_results: dict[str, Any]) -> None:
    problem = read(run_folder / "pool.yaml").problem
    environment = make_environment(problem)
    for policy, one in run_results["policies"].items():
        assert (one["refused"], one["warning"]) == (None, None)
        for seed, run in enumerate(one["runs"]):
            trace = simulate(problem, environment, policy, rounds=ROUNDS, seed=seed, horizon=ROUNDS)
            assert run["reward"] == pytest.approx(1 + 4 * trace.rewards.mean(), abs=1e-12)
            assert run["late"] == pytest.approx(1 + 4 * trace.rewards[-40:].mean(), abs=1e-12)
            assert_allclose(run["spend"], trace.spend.mean(axis=0))
            assert run["outside"] == pytest.approx(measure_worst_violation(trace), abs=1e-12)
            assert (run["periods"], run["bad_periods"]) == (
                1,
                int(measure_worst_violation(trace) > 0),
            )
            asked_shares = [np.any(trace.draws == i, axis=1).mean() for i in range(4)]
            assert_allclose(run["asked"], asked_shares)
            assert run["t"][-1] == ROUNDS
            assert_allclose(run["spend_curve"][-1], run["spend"])
        assert one["reward"] == pytest.approx(np.mean([run["reward"] for run in one["runs"]]))


def test_references_and_prices_equal_those_of_the_library(
    run_folder: Path, run_results: dict[str, Any]
) -> None:
    problem = read(run_folder / "pool.yaml").problem
    values, weights, _ = make_environment(problem).expected()
    stack, references = ValueStack(values, weights=weights), run_results["references"]
    exact = iid_optimum(problem, stack, exact=True, floor=False, starts=2)
    assert references["exact"]["value"] == pytest.approx(1 + 4 * exact.value)
    assert references["exact"]["kept"]
    surrogate = iid_optimum(problem, stack, floor=False)
    assert references["surrogate"]["value"] == pytest.approx(1 + 4 * surrogate.value)
    fixed = best_set(problem, stack)
    assert references["set"]["value"] == pytest.approx(1 + 4 * fixed.value)
    assert all(name in references["set"]["note"] for name in fixed.members)
    pairs = [
        stack.values[:, 0, list(pair)].max(axis=1) for pair in itertools.combinations(range(4), 2)
    ]
    assert references["equal"]["value"] == pytest.approx(
        1 + 4 * np.mean([weights @ one for one in pairs])
    )
    assert not references["equal"]["kept"]  # two of them cost 4.5 on average
    unlimited = references["free-draws"]["value"]
    assert unlimited >= references["exact"]["value"] >= references["surrogate"]["value"]
    mixed = optimum(problem, stack)
    assert references["panels"]["value"] == pytest.approx(1 + 4 * mixed.value)
    assert_allclose(references["panels"]["asked"], mixed.inclusion)
    assert (
        references["most"]["value"]
        >= max(references["panels"]["value"], references["exact"]["value"]) - 1e-9
    )
    assert references["free-panels"]["value"] >= references["panels"]["value"]
    checked = {
        "panels": check_shadow_prices(problem, stack, mixed),
        "exact": check_shadow_prices(problem, stack, exact, exact=True, floor=False),
    }
    assert set(run_results["prices"]) == {"panels", "exact"}
    for kind, prices in checked.items():
        for reported, price in zip(run_results["prices"][kind], prices, strict=True):
            assert reported["price"] == pytest.approx(4 * price.price)
            assert reported["verdict"] == price.verdict
        assert run_results["prices"][kind][0]["price"] > 0
    kinds = {name: one["kind"] for name, one in run_results["policies"].items()}
    assert kinds == {"distinct": "panels", "omd": "exact", "ts-bwk": "panels"}


def test_auto_selects_a_policy_for_each_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_problem_file(tmp_path)
    specs = "auto,noisy-or:explore=0.5,pace=none"
    arguments = make_arguments(
        tmp_path, "--policy", specs, "--seeds", "1", "--sweep", "usd=1.5:4:2"
    )
    assert main([*arguments, "--jobs", "1"]) == 0
    assert "\nauto is distinct here\n" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "whatif.json").read_text())
    problem = read(tmp_path / "pool.yaml").problem
    for spec, settings in (("auto", "distinct"), ("noisy-or:explore=0.5,pace=none", "noisy-or")):
        reported = found["policies"][spec]
        assert (reported["kind"], reported["settings"]["name"]) == ("panels", settings)
        trace = simulate(problem, make_environment(problem), spec, rounds=ROUNDS, horizon=ROUNDS)
        assert reported["reward"] == pytest.approx(1 + 4 * trace.rewards.mean(), abs=1e-12)
    assert found["policies"]["noisy-or:explore=0.5,pace=none"]["settings"]["explore"] == 0.5
    levels = found["sweep"]["levels"]  # two different ones cost 2 or more
    assert [level["auto"] for level in levels] == [["auto is tangent"], ["auto is distinct"]]
    assert [set(level["best"]) for level in levels] == [{"panels", "exact"}] * 2
    assert set(levels[0]["policies"]) == {"auto"}
    report = (tmp_path / "out" / "report.md").read_text()
    assert "auto is distinct here, which draws panels" in report
    assert "At 1.5: auto is tangent." in report


@pytest.mark.parametrize("verb", ["simulate", "router create"])
def test_help_names_every_policy_of_the_registry(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*verb.split(), "--help"])
    words = capsys.readouterr().out.replace("-\n", "-").split()  # argparse breaks at hyphens
    named = "".join(words)
    for name in policies.POLICY_NAMES:
        assert name in named


@pytest.mark.parametrize(
    "text", [*policies.POLICY_NAMES[1:], "noisy-or:explore=0.02,pace=None", "omd:batch=7"]
)
def test_a_formatted_policy_can_be_parsed(text: str) -> None:
    assert split_policies(f"{text},ts") == [text, "ts"]
    found = policies.find_policy(text)
    assert not isinstance(found, policies.Auto)
    assert format_policy(found) == text


def test_the_sweep_runs_every_feasible_level(run_results: dict[str, Any]) -> None:
    levels = run_results["sweep"]["levels"]
    assert [level["bound"] for level in levels] == [0.2, 1.8, 3.4, 5.0]
    assert levels[0]["infeasible"]  # no expert is that cheap
    assert levels[0]["policies"] == {}
    best = [level["best"]["exact"] for level in levels[1:]]
    assert best == sorted(best)
    assert levels[1]["best"]["panels"] is None
    assert "usd at most" in levels[1]["refused"]["distinct"]
    assert set(levels[3]["policies"]) == set(POLICIES)
    assert "distinct" not in levels[1]["policies"]  # two different experts cost 2 at least


def test_the_report_is_complete_and_loads_nothing(
    run_folder: Path, run_results: dict[str, Any]
) -> None:
    out = run_folder / "out"
    page = Page((out / "report.html").read_text(encoding="utf-8"))
    assert len(page.loads) == 4
    assert all(one.startswith("data:image/svg+xml;base64,") for one in page.loads)
    text = (out / "report.md").read_text(encoding="utf-8")
    assert len(find_tables(text)) == 7  # prices of both kinds
    assert all(is_rectangular(lines) for lines in find_tables(text))
    for name in ("reward", "limits", "experts", "sweep"):
        for kind in ("png", "svg"):
            assert (out / "figures" / f"{name}.{kind}").stat().st_size > 5_000
    assert "4 (as in the file)" in text
    assert "At 0.2: no policy can keep all limits." in text
    assert "At 1.8: distinct did not run: " in text
    for expected in ("usd at most 4 per request", "Missing answers in the table: 1 of 24", "zoe"):
        assert expected in text
        assert expected in "".join(page.words)
    assert "SYNTHETIC" not in text
    for sentence in run_results["summary"]:
        assert sentence in "".join(page.words)


def test_every_output_starts_with_what_to_do(tmp_path: Path) -> None:
    """The terminal, both reports and the data say the same; ts-bwk violates limits here."""
    write_problem_file(tmp_path)
    text = StringIO()
    with redirect_stdout(text):
        assert main(make_arguments(tmp_path, "--per-day", "3000", "--jobs", "1")) == 0
    found = json.loads((tmp_path / "out" / "whatif.json").read_text())
    first = found["summary"][0]
    lines = text.getvalue().splitlines()
    assert lines[0] == first
    assert first.startswith(
        "Run distinct, which keeps all 2 limits in every run: at 3,000 requests"
    )
    report = (tmp_path / "out" / "report.md").read_text().split("\n\n")
    assert report[1:3] == ["## What to do", f"**{first}**"]
    assert first in "".join(Page((tmp_path / "out" / "report.html").read_text()).words)
    advice, distinct = found["advice"], found["policies"]["distinct"]
    assert (advice["policy"], advice["requests"]) == ("distinct", found["requests_per_day"])
    assert advice["total_reward"]["value"] == pytest.approx(3_000 * distinct["reward"])
    assert [advice["reward"]["low"], advice["reward"]["high"]] == distinct["interval"]
    assert advice["spend"]["usd"] == pytest.approx(np.dot(distinct["asked"], [4, 3, 1, 1]))
    assert found["policies"]["ts-bwk"]["keeps"] is False
    assert found["summary"][-2].startswith("Not allowed, because they break limits: ts-bwk (")
    assert found["summary"][-1].startswith("4.2% of the answers in the table are missing")
    rows = [line.split() for line in lines if line.startswith(POLICIES)]
    allowed = {row[0]: row[1] for row in rows if row[1] in ("yes", "NO")}
    assert allowed == {"distinct": "yes", "omd": "yes", "ts-bwk": "NO"}
    assert list(allowed)[-1] == "ts-bwk"


@pytest.mark.parametrize("feedback", ["members", "winner"])
def test_policies_learn_from_the_feedback_that_the_table_knows(
    feedback: Any, tmp_path: Path
) -> None:
    text = StringIO()
    problem = read(write_problem_file(tmp_path)).problem
    with redirect_stdout(text):
        options = "--policy", "omd,ts-bwk", "--jobs", "1", "--feedback", feedback
        assert main(make_arguments(tmp_path, *options)) == 0
    found = json.loads((tmp_path / "out" / "whatif.json").read_text())
    given: dict[str, Any] = {"rounds": ROUNDS, "horizon": ROUNDS, "seed": 1}
    environment, means = make_environment(problem), []
    for kind in (feedback, "panel"):
        trace = simulate(problem, environment, "ts-bwk", **given, feedback=kind)
        means.append(1 + 4 * trace.rewards.mean())
    assert found["feedback"] == feedback
    assert found["policies"]["ts-bwk"]["runs"][1]["reward"] == pytest.approx(means[0], abs=1e-12)
    assert means[0] != pytest.approx(means[1], abs=1e-12), "it makes a difference"
    words = {"members": "scores of members", "winner": "winners"}[feedback]
    said = f"omd ignores {words}: it learns from the reward alone."
    assert text.getvalue().count(said) == 1
    uses = {name: one["uses_feedback"] for name, one in found["policies"].items()}
    assert uses == {"omd": False, "ts-bwk": True}
    assert said in (tmp_path / "out" / "report.md").read_text()


def test_noisy_or_is_played_by_default(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(TABLE)
    arguments = [str(write_problem_file(tmp_path)), "--outcomes", str(tmp_path / "table.csv")]
    arguments += ["--rounds", "200", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert main(["simulate", *arguments]) == 0
    found = json.loads((tmp_path / "out" / "whatif.json").read_text())
    assert found["policies"]["noisy-or"]["runs"]
    assert next(iter(found["policies"])) == "distinct"


def test_the_requests_of_a_day_are_counted_by_the_times_of_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """6 questions in 2 dimensions from noon to noon are 3 requests a day, on 2 dates 1.5."""
    lines = TABLE.splitlines()
    for times, rate in (
        (["2026-05-01T12:00"] * 5 + ["2026-05-02T12:00+00:00"], 3.0),
        (["2026-05-01"] * 4 + ["2026-05-02"] * 2, 1.5),
    ):
        rows = [f"{a},{b}" for a, b in zip(lines, ["asked", *times], strict=True)]
        (tmp_path / "times.csv").write_text("\n".join(rows))
        arguments = make_arguments(tmp_path, "--policy", "omd", "--time", "asked", "--json")
        arguments[arguments.index(str(tmp_path / "table.csv"))] = str(tmp_path / "times.csv")
        write_problem_file(tmp_path)
        assert main(arguments) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["requests_per_day"] == pytest.approx(rate)
        assert "asked" not in found["scenario"]["unused"]


def test_times_need_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(write_problem_file(tmp_path)), "--time", "asked"]) == 1
    assert (
        "--time describes --outcomes, which is missing; add --outcomes" in capsys.readouterr().err
    )


def test_any_number_of_workers_gives_the_same_bytes(run_folder: Path, tmp_path: Path) -> None:
    write_problem_file(tmp_path)
    assert main(make_arguments(tmp_path, "--jobs", "2", "--sweep", "usd=0.2:5:4")) == 0
    one, two = (folder / "out" / "whatif.json" for folder in (run_folder, tmp_path))
    one_worker, two_workers = (json.loads(path.read_text()) for path in (one, two))
    for numbers in (one_worker, two_workers):
        del numbers["problem"]["file"]
    assert one_worker == two_workers


def test_json_output_equals_the_file_in_the_folder(
    run_folder: Path,
    run_results: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_problem_file(tmp_path)
    assert main(make_arguments(tmp_path, "--json")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "whatif.json").read_text())
    assert printed["policies"] == run_results["policies"]
    assert printed["sweep"] is None


def test_a_scenario_can_come_from_skills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "skills.csv").write_text(SKILLS)
    arguments = [
        "simulate",
        str(write_problem_file(tmp_path)),
        "--skills",
        str(tmp_path / "skills.csv"),
    ]
    arguments += ["--policy", "omd", "--seeds", "2", "--rounds", "300", "--out", str(tmp_path)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("Run omd, which keeps all 2 limits in every run: expect a reward of ")
    assert "SYNTHETIC" not in out
    found = json.loads((tmp_path / "whatif.json").read_text())
    assert found["scenario"]["dimensions"] == ["heart", "skin"]
    environment = Noisy([[0.9, 0.5, 0.3, 0.1], [0.6, 0.9, 0.3, 0.4]], worth=1 / 2)
    values = np.concatenate([environment.rounds(0, 300, seed).values for seed in (0, 1)])
    best = iid_optimum(read(tmp_path / "pool.yaml").problem, values, floor=False)
    assert found["references"]["surrogate"]["value"] == pytest.approx(1 + 4 * best.value)
    trace = simulate(
        read(tmp_path / "pool.yaml").problem, environment, "omd", rounds=300, horizon=300
    )
    earned = found["policies"]["omd"]["runs"][0]["reward"]
    assert earned == pytest.approx(1 + 4 * trace.rewards.mean(), abs=1e-12)


def test_every_output_on_a_synthetic_scenario_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["simulate", str(write_problem_file(tmp_path)), "--policy", "omd", "--seeds", "1"]
    assert main([*arguments, "--rounds", "100", "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("SYNTHETIC SCENARIO")
    out = tmp_path / "out"
    for name in ("report.md", "report.html", "whatif.json", "figures/reward.svg"):
        text = (out / name).read_text(encoding="utf-8")
        assert "SYNTHETIC SCENARIO" in text or "SYNTHETIC" in text
    assert (out / "report.md").read_text().startswith("# SYNTHETIC SCENARIO")


def test_with_periods_policies_keep_limits_per_period_and_get_no_horizon(tmp_path: Path) -> None:
    path = write_problem_file(tmp_path, f"period: 100\n{POOL}")
    assert main(make_arguments(tmp_path)) == 0
    found = json.loads((tmp_path / "out" / "whatif.json").read_text())
    assert found["horizon"] is None
    assert [run["periods"] for run in found["policies"]["distinct"]["runs"]] == [4, 4]
    assert found["policies"]["distinct"]["bad_periods"] == 0
    trace = simulate(
        read(path).problem, make_environment(read(path).problem), "distinct", rounds=ROUNDS, seed=1
    )
    mean = found["policies"]["distinct"]["runs"][1]["reward"]
    assert mean == pytest.approx(1 + 4 * trace.rewards.mean(), abs=1e-12)


def test_a_run_shorter_than_a_period_does_not_count_as_keeping_the_limits(tmp_path: Path) -> None:
    write_problem_file(tmp_path, f"period: 1000\n{POOL}")
    assert main(make_arguments(tmp_path)) == 0
    text = (tmp_path / "out" / "report.md").read_text()
    assert "400 requests are fewer than a period of 1,000" in text
    assert "No period of 1,000 requests is complete" in text
    found = json.loads((tmp_path / "out" / "whatif.json").read_text())
    assert not any(one["keeps"] or one["kept"] for one in found["policies"].values())


def test_an_incomplete_period_is_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """400 requests are a period of 300 and a third of another, in which policies may overspend."""
    path = write_problem_file(tmp_path, f"period: 300\n{POOL}")
    assert main(make_arguments(tmp_path)) == 0
    note = "The last 100 of 400 requests are an incomplete period"
    assert note in capsys.readouterr().out
    assert note in (tmp_path / "out" / "report.md").read_text()
    found = json.loads((tmp_path / "out" / "whatif.json").read_text())["policies"]["distinct"]
    problem = read(path).problem
    for seed, run in enumerate(found["runs"]):
        trace = simulate(problem, make_environment(problem), "distinct", rounds=ROUNDS, seed=seed)
        assert_allclose(run["by_period"], [trace.spend[:300].mean(axis=0)])
        assert_allclose(run["spend"], run["by_period"][0])
    assert (found["kept"], found["periods"]) == (2, 2)


def test_a_policy_that_refuses_to_run_is_reported_and_the_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_problem_file(tmp_path, POOL.replace("at_most: 4", "at_most: 1.9"))
    assert main(make_arguments(tmp_path)) == 0
    out = capsys.readouterr().out
    assert "distinct did not run: " in out
    assert "at_most(" not in out
    found = json.loads((tmp_path / "out" / "whatif.json").read_text())
    assert found["policies"]["distinct"]["refused"]
    assert "runs" not in found["policies"]["distinct"]
    assert found["policies"]["omd"]["runs"]
    assert found["policies"]["ts-bwk"]["warning"].startswith("this policy asks 2 different experts")
    assert "ts-bwk warns: " in (tmp_path / "out" / "report.md").read_text()


def test_if_no_policy_runs_the_exit_code_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_problem_file(tmp_path, POOL.replace("at_most: 4", "at_most: 1.9"))
    assert main(make_arguments(tmp_path, "--policy", "distinct")) == 1
    assert "No policy ran" in capsys.readouterr().out


def test_the_title_names_the_folder_and_the_problem_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bureau"
    folder.mkdir()
    arguments = make_arguments(folder, "--policy", "random", "--seeds", "1")
    arguments[arguments.index(str(write_problem_file(folder)))] = "pool.yaml"
    monkeypatch.chdir(folder)
    assert main(arguments) == 0
    text = (folder / "out" / "report.md").read_text()
    assert text.startswith("# What if bureau/pool.yaml went live?")
    assert "1 policy, 400 requests each, 1 seed;" in text
    assert "| random |" in text


def test_an_interrupted_run_reports_its_finished_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_all = ThreadEngine.run

    def run_three_jobs(self: ThreadEngine, jobs: Any, work: Any) -> Any:
        yield from itertools.islice(run_all(self, jobs, work), 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadEngine, "run", run_three_jobs)
    write_problem_file(tmp_path)
    assert main(make_arguments(tmp_path, "--jobs", "1")) == 130
    out, err = capsys.readouterr()
    assert "stopped after 3 of" in err
    assert "The cost of the limits is unknown." in out  # three plays were first
    found = json.loads((tmp_path / "out" / "whatif.json").read_text())
    assert found["stopped"]
    assert [len(one["runs"]) for one in found["policies"].values()] == [1, 1, 1]
    assert "This run was interrupted" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--policy", "omd,distinkt"], "no policy 'distinkt'; did you mean 'distinct'?"),
        (
            ["--policy", "omd,best"],
            "ones there are: auto, distinct, noisy-or, tangent, strict, omd",
        ),
        (
            ["--policy", "omd,noisy-or:explor=1"],
            "--policy: policy 'noisy-or' has no setting",
        ),
        (["--policy", "omd,explore=1"], "settings follow a colon"),
        (["--policy", "omd,omd"], "'omd' is listed twice"),
        (["--policy", ""], "there is no policy ''"),
        (["--sweep", "usd"], "expected NAME=FROM:TO:COUNT"),
        (["--sweep", "usd=1:2"], "expected NAME=FROM:TO:COUNT"),
        (["--sweep", "usd=3:1:5"], "to a larger one"),
        (["--sweep", "usd=1:nan:5"], "to a larger one"),
        (["--sweep", "usd=1:2:1"], "expected 2 to 100 levels"),
        (["--sweep", "uds=1:2:3"], "has no limit on 'uds'; did you mean 'usd'?"),
        (["--dimension", "topics"], "no column 'topics'; did you mean 'topic'?"),
        (["--out", "{folder}/table.csv"], "cannot be a folder for figures"),
        (["--experts", "nowhere.csv"], "experts"),
        (["--time", "tpoic"], "no column 'tpoic'; did you mean 'topic'?"),
        (
            ["--time", "topic"],
            "table.csv, line 2: topic 'heart' is not a time; write it as in 2026",
        ),
    ],
)
def test_invalid_options_are_explained(
    run_folder: Path, options: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = make_arguments(
        run_folder, *(one.format(folder=run_folder) for one in options), out="other"
    )
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert expected in err
    assert "Traceback" not in err


def test_a_sweep_of_a_limit_with_two_sides_names_the_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_problem_file(tmp_path, POOL.replace("at_most: 4", "at_least: 1.5, at_most: 4"))
    assert main(make_arguments(tmp_path, "--sweep", "usd=2:3:2")) == 1
    assert "write usd.at_most=... or usd.at_least=..." in capsys.readouterr().err
    assert main(make_arguments(tmp_path, "--sweep", "usd.at_least=1:2:2", "--policy", "omd")) == 0
    assert json.loads((tmp_path / "out" / "whatif.json").read_text())["sweep"]["side"] == "at_least"


def test_experts_missing_from_the_table_are_named_with_suggestions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_problem_file(
        tmp_path, POOL.replace("name: ann", "name: Anne").replace("name: dan", "name: xaver")
    )
    assert main(make_arguments(tmp_path)) == 1
    err = capsys.readouterr().err
    assert "table.csv, line 1: no column for 2 of the 4 experts of the problem" in err
    assert "'Anne' (did you mean 'ann'?), 'xaver'; not in the problem: " in err
    assert "'zoe'" in err


def test_a_run_on_the_hospital_keeps_all_limits_and_has_the_known_rewards(
    tmp_path: Path,
) -> None:
    files = hospital.find_folder()
    arguments = [
        *("simulate", str(Path(__file__).parent.parent / "examples" / "hospital" / "problem.yaml")),
        *("--experts", str(files / "experts.csv"), "--outcomes", str(files / "outcomes.csv")),
        *("--questions", str(files / "questions.csv"), "--policy", "distinct,tangent"),
        *("--seeds", "2", "--rounds", "5000", "--out", str(tmp_path)),
    ]
    assert main(arguments) == 0
    found = json.loads((tmp_path / "whatif.json").read_text())
    assert len(found["scenario"]["dimensions"]) == 8  # by the second column of the questions
    assert found["scenario"]["blanks"] == 1
    assert found["references"]["exact"]["value"] == pytest.approx(0.77775, abs=1e-5)
    assert found["references"]["surrogate"]["value"] is None
    assert found["references"]["panels"]["value"] == pytest.approx(0.810858, abs=1e-6)
    assert {price["verdict"] for price in found["prices"]["exact"]} == {"agrees"}
    assert {price["verdict"] for price in found["prices"]["panels"]} <= {"agrees", "kink"}
    for policy in ("distinct", "tangent"):
        assert found["policies"][policy]["keeps"]
        assert found["policies"][policy]["late"] > 0.75


def test_a_bound_can_be_swept_to_its_opposite_and_beyond(tmp_path: Path) -> None:
    least = "  - {cost: usd, at_least: 3, per: request}\nrewards"
    file = read(write_problem_file(tmp_path, POOL.replace("rewards", least)))
    crossed, meeting, separate = parse_sweep(file, "usd.at_most=2:4:3").levels
    assert crossed.problem is None
    assert "is above" in crossed.reason
    assert meeting.problem is not None
    assert separate.problem is not None


def test_calls_cost_what_the_options_say(tmp_path: Path) -> None:
    problem = read(write_problem_file(tmp_path)).problem
    text = StringIO()
    with redirect_stdout(text):
        options = "--policy", "distinct", "--jobs", "1"
        calls = "noise=0.3,usd=0.5,usd:bob=1.25,report=panel"
        assert main(make_arguments(tmp_path, *options, "--call-costs", calls)) == 0
    found = json.loads((tmp_path / "out" / "whatif.json").read_text())
    given: dict[str, Any] = {"rounds": ROUNDS, "horizon": ROUNDS, "seed": 1}
    means = {"usd": [2.0, 3.75, 0.5, 0.5]}
    same = CallCosts(means, noise=0.3, report="panel")
    trace = simulate(problem, make_environment(problem), "distinct", **given, calls=same)
    assert found["call_costs"] == {"means": means, "noise": 0.3, "tail": None, "report": "panel"}
    distinct = found["policies"]["distinct"]
    assert_allclose(distinct["runs"][1]["spend"], trace.spend.mean(axis=0))
    assert_allclose(found["advice"]["spend"]["usd"], distinct["spend"][0])
    # The references know the means, at which the budget allows better panels.
    stack = ValueStack(make_environment(problem).expected()[0])
    best, declared = (
        1 + 4 * optimum(one, stack).value for one in (problem.replace(costs=means), problem)
    )
    assert found["references"]["panels"]["value"] == pytest.approx(best)
    assert best > declared + 0.01
    said = "Calls cost other amounts of usd than declared, with a standard deviation of 30% of the "
    said += "mean, and what calls of each panel cost is reported"
    assert text.getvalue().count(f"{said}.") == 1
    assert f"{said}; the references know the means." in (tmp_path / "out/report.md").read_text()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("noise", "--call-costs 'noise': expected NAME=VALUE"),
        ("noise=x", "--call-costs: noise 'x': expected a number"),
        ("noise=-1", "--call-costs: invalid noise -1.0: expected a number of at least 0"),
        ("eur=1", "--call-costs: there is no 'eur'; the costs and settings are 'usd', 'noise'"),
        ("usd=-1", "--call-costs: usd '-1': expected a factor of 0 or more"),
        ("usd:zoe=1", "--call-costs: there is no expert 'zoe'; the experts are "),
        ("noise=1,tail=2", "noise and tail exclude each other"),
        ("report=all", "--call-costs: invalid report 'all': expected 'members'"),
    ],
)
def test_invalid_call_costs_are_refused(given: str, words: str, tmp_path: Path) -> None:
    file = read(write_problem_file(tmp_path))
    with pytest.raises(BylotError, match=re.escape(words)):
        call_costs_from_text(file, given)


def test_panels_of_several_sizes_are_not_called_full(tmp_path: Path) -> None:
    text = StringIO()
    for fewest, words in ((1, "panels of 1 to 2 experts"), (2, "full panels")):
        write_problem_file(tmp_path, f"min_draws: {fewest}\n{POOL}")
        with redirect_stdout(text):
            assert main(make_arguments(tmp_path, "--policy", "random", "--jobs", "1")) == 0
        report = (tmp_path / "out" / "report.md").read_text()
        assert f"best mixture of {words} under the limits" in report
        assert f"best {words} without limits" in report
        assert ("full panels" in report) == (fewest == 2)
