"""`bylot simulate` and `bylot optimum` under limits of the calendar: windows are judged."""

import json
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bylot import Problem, at_least, at_most, share, simulate
from bylot.cli import main
from bylot.cli.whatif import choose_policies
from bylot.environments import Outcomes, Traffic
from bylot.errors import BylotError
from bylot.evaluate.entries import entries_from_trace
from bylot.harness import summarize_play
from bylot.optima import ValueStack, optimum
from bylot.problem.calendar import Calendar, list_edges, list_edges_until
from bylot.problem_files import read
from bylot.trace import Trace
from bylot.whatif.plan import parse_sweep
from bylot.window_results import measure_windows
from report_pages import find_tables, is_rectangular

POOL = """\
draws: 2
costs: {usd: US dollars}
experts:
  - {name: ann, usd: 4}
  - {name: bob, usd: 3}
  - {name: cat, usd: 1, group: junior}
  - {name: dan, usd: 0.5, group: junior}
limits:
  - {cost: usd, at_most: 300, per: day, zone: Europe/Berlin}
  - {cost: usd, at_most: 7000, per: month, zone: Europe/Berlin, when_spent: fewer}
  - {group: junior, at_least: 0.3, per: week, zone: Europe/Berlin}
"""
TABLE = "qid,ann,bob,cat,dan\n1,1,1,0,0\n2,1,0,1,0\n3,1,0.5,1,0\n4,0,1,0,1\n5,1,1,0,1\n"
ZONE, START, PER_DAY, ROUNDS, SEEDS = "Europe/Berlin", "2026-03-20", 100, 2_400, 2
SPEC = f"bursts:per_day={PER_DAY},start={START},zone={ZONE}"
TRAFFIC = Traffic("bursts", per_day=PER_DAY, start=START, zone=ZONE)


def make_arguments(folder: Path, *options: str, verb: str = "simulate") -> list[str]:
    (folder / "table.csv").write_text(TABLE)
    arguments = [verb, str(folder / "pool.yaml"), "--outcomes", str(folder / "table.csv")]
    if verb == "optimum":
        return [*arguments, *options]
    arguments += ["--seeds", str(SEEDS), "--jobs", "1", "--out", str(folder / "out")]
    rounds = [] if "--rounds" in options else ["--rounds", str(ROUNDS)]
    return [*arguments, *rounds, *options]


def make_environment() -> Outcomes:
    lines = [line.split(",") for line in TABLE.splitlines()[1:]]
    return Outcomes([[float(one) for one in line[1:]] for line in lines])


def play(problem: Problem, seed: int, rounds: int = ROUNDS, policy: str = "distinct") -> Trace:
    times = TRAFFIC.arrivals(rounds, seed)
    return simulate(problem, make_environment(), policy, rounds=rounds, seed=seed, times=times)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two policies, one of which refuses; what it prints is in out/text."""
    folder = tmp_path_factory.mktemp("calendar")
    (folder / "pool.yaml").write_text(POOL)
    text = StringIO()
    with redirect_stdout(text):
        options = "--traffic", SPEC, "--policy", "distinct,omd"
        assert main(make_arguments(folder, *options)) == 0
    (folder / "out" / "text").write_text(text.getvalue())
    return folder


@pytest.fixture(scope="module")
def run_results(run_folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_folder / "out" / "whatif.json").read_text())
    return found


def test_a_refused_request_has_no_panel_no_score_and_no_log_entry() -> None:
    budget = at_most("usd", 60, per="day", zone=ZONE, when_spent="refuse")
    pool = Problem(["ann", "bob", "cat"], {"usd": [4, 3, 1]}, [budget], draws=2)
    times = TRAFFIC.arrivals(400, 1)
    dirty = [np.full(6 * 400, np.nan) for _ in range(9)]  # memory that the record may get
    del dirty
    trace = simulate(
        *(pool, Outcomes(np.full((5, 3), 2.0)), "distinct"),
        rounds=400,
        seed=1,
        times=times,
        rewards=(1.0, 5.0),
        feedback="members",
    )
    refused = trace.refused
    assert 0 < refused.sum() < 400
    assert_array_equal(trace.draws[refused], -1)
    assert_array_equal(trace.scores[refused], 1.0)
    assert not trace.record.feasible[refused].any()
    assert_array_equal(trace.record.distributions[refused], 0.0)
    entries = entries_from_trace(trace)
    assert [entry.t for entry in entries] == np.flatnonzero(~refused).tolist()


def test_runs_equal_those_of_simulate_at_the_arrivals_of_their_seed(
    run_folder: Path, run_results: dict[str, Any]
) -> None:
    problem = read(run_folder / "pool.yaml").problem
    for seed, run in enumerate(run_results["policies"]["distinct"]["runs"]):
        trace = play(problem, seed)
        assert run["reward"] == pytest.approx(trace.rewards.mean(), abs=1e-12)
        assert run["refused"] == trace.refused.sum()
        asked = [np.any(trace.draws == i, axis=1).mean() for i in range(4)]
        assert_allclose(run["asked"], asked)
        assert (run["periods"], run["by_period"], run["bad_periods"]) == (0, [], 0)
        assert_allclose(run["spend"], trace.spend[~trace.refused].mean(axis=0))
        times = TRAFFIC.arrivals(ROUNDS, seed)
        for per, one in zip(("day", "month", "week"), run["windows"], strict=True):
            edges = list_edges(Calendar(per, ZONE), int(times[0]), 100)  # type: ignore[arg-type]
            place = np.searchsorted(edges, times, side="right") - 1
            j = ("day", "month", "week").index(per)
            decided = np.bincount(place, ~trace.refused) if per == "week" else 1.0
            totals = np.bincount(place, trace.spend[:, j]) / decided
            assert_allclose(one["amounts"], totals)
            assert one["starts"] == edges[: totals.size].tolist()
            assert one["requests"] == np.cumsum(np.bincount(place)).tolist()
            last_is_open = int(edges[totals.size] > times[-1])
            assert last_is_open
            assert (one["per"], one["bad"]) == (per, 0)
            assert one["windows"] == totals.size - (per == "week") * last_is_open
            complete = totals[1:-1]  # the first one began before the first request
            if complete.size:
                assert one["used"] == pytest.approx(complete.mean() / problem.limits[j].bound)
    assert sum(run["refused"] for run in run_results["policies"]["distinct"]["runs"]) > 0


def test_numbers_of_windows_are_summed_over_seeds(run_results: dict[str, Any]) -> None:
    one = run_results["policies"]["distinct"]
    assert (one["keeps"], one["bad_windows"], one["kept"], one["periods"]) == (True, 0, SEEDS, 0)
    assert one["windows"] == sum(w["windows"] for run in one["runs"] for w in run["windows"])
    refused = sum(run["refused"] for run in one["runs"])
    assert one["refused_share"] == pytest.approx(refused / SEEDS / ROUNDS)
    assert run_results["horizon"] is None
    assert run_results["requests_per_day"] == PER_DAY
    assert run_results["traffic"] == {
        "shape": "bursts",
        "per_day": PER_DAY,
        "start": START,
        "zone": ZONE,
    }
    assert run_results["declared_traffic"] is None
    month = PER_DAY * 146_097 / 4_800
    windows = [one["window"] for one in run_results["problem"]["limits"]]
    assert [one["requests"] for one in windows] == [PER_DAY, month, None]
    assert [one["when_spent"] for one in windows] == ["cheapest", "fewer", None]
    bounds = [one["bound_per_request"] for one in run_results["problem"]["limits"]]
    assert bounds == pytest.approx([3.0, 7_000 / month, 0.3])


def test_text_and_report_speak_of_windows_and_refused_requests(
    run_folder: Path, run_results: dict[str, Any]
) -> None:
    text = (run_folder / "out" / "text").read_text()
    one, refused = (
        run_results["policies"]["distinct"],
        "omd did not run: limits per hour, day, week or month",
    )
    assert text.startswith(
        "Run distinct, which keeps all 3 limits in every window: at 100 requests a day expect"
    )
    assert f"windows within limits  refused\ndistinct  yes      {one['reward']:.4f}" in text
    percent = f"{100 * one['refused_share']:.1f}%"
    used = np.mean([run["windows"][0]["used"] for run in one["runs"]])
    (sentence,) = [line for line in run_results["summary"] if "in complete windows" in line]
    assert sentence.startswith(f'distinct used {100 * used:.1f}% of "usd at most 300 per day" ')
    assert sentence.endswith(f", and refused {percent} of the requests.")
    arrive = "Requests arrive from 2026-03-20 (Europe/Berlin) on, bursts, about 100 a day, for up"
    for page in (text, (run_folder / "out" / "report.md").read_text()):
        assert arrive in page
        assert "policies have to learn how many come." in page
        assert sentence in page
        assert refused in page
        assert "period" not in page
    assert "which must hold in every window of the calendar." in page
    assert 'At 100 requests per day, "usd at most 300 per day" is 3 per request; ' in page
    assert f"| refused requests | {percent} |" in page
    assert f"| usd at most 300 per day | {100 * used:.1f}% |" in page
    assert all(is_rectangular(lines) for lines in find_tables(page))


def test_references_are_those_of_bounds_per_request_at_the_traffic(
    run_results: dict[str, Any],
) -> None:
    junior = [0.0, 0.0, 1.0, 1.0]
    usd, per_month = [4.0, 3.0, 1.0, 0.5], PER_DAY * 146_097 / 4_800
    limits = [at_most("usd", 7_000 / per_month), at_least("junior", 0.3)]
    names = ["ann", "bob", "cat", "dan"]
    plain = Problem(names, {"usd": usd, "junior": junior}, limits, draws=2)
    values, weights, _ = make_environment().expected()
    best = optimum(plain, ValueStack(values, weights=weights))
    assert run_results["references"]["panels"]["value"] == pytest.approx(best.value)
    day, month, week = run_results["prices"]["panels"]
    assert [one["limit"] for one in (day, month, week)] == ["usd", "usd", "junior"]
    assert [one["per"] for one in (day, month, week)] == ["day", "month", "week"]
    assert (day["price"], month["verdict"]) == (pytest.approx(0), "agrees")
    assert month["price"] == pytest.approx(best.prices[0])
    assert month["gain_of_one_percent"] == pytest.approx(0.01 * limits[0].bound * best.prices[0])


def test_windows_outside_a_limit_are_counted(tmp_path: Path) -> None:
    """The same play, judged by tighter bounds."""
    (tmp_path / "pool.yaml").write_text(POOL)
    problem, times = read(tmp_path / "pool.yaml").problem, TRAFFIC.arrivals(ROUNDS, 0)
    trace = play(problem, 0)
    day, month, week = problem.limits
    tighter = [day.at(250), month, replace(week, bound=1.6)]
    judged = replace(trace, problem=problem.replace(limits=tighter))
    found = measure_windows(judged, times)
    assert found[0].bad == (found[0].amounts > 250).sum() > 0
    assert found[2].bad == (found[2].amounts[found[2].judged] < 1.6).sum() > 0
    summary = summarize_play(judged, ROUNDS, 100, times=times)
    assert (summary.kept, summary.kept_in_all_periods) == (False, False)
    assert summary.bad_windows == found[0].bad + found[2].bad
    before = summarize_play(trace, ROUNDS, 100, times=times)
    assert (before.kept, before.bad_windows) == (True, 0)


def test_a_share_is_judged_only_when_its_window_is_over(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    problem = read(tmp_path / "pool.yaml").problem
    trace, times = play(problem, 0, rounds=100), TRAFFIC.arrivals(100, 0)
    summary = summarize_play(trace, 100, 10, times=times)
    assert [one.windows for one in summary.windows][2] == 0
    assert (summary.bad_windows, summary.kept_in_all_periods) == (0, False)
    monthly = problem.replace(limits=problem.limits[:2])
    assert summarize_play(play(monthly, 0, 100), 100, 10, times=times).kept_in_all_periods


def test_many_windows_are_listed_in_parts() -> None:
    first = 1_767_225_600_000_000
    last = first + 5_000 * 3_600_000_000
    edges = list_edges_until(Calendar("hour"), first, last)
    assert_array_equal(np.diff(edges), 3_600_000_000)
    assert (edges[0], edges[-2], edges.size) == (first, last, 5_002)


def test_other_limits_are_judged_in_periods_and_the_traffic_of_the_file_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    average = "  - {cost: usd, at_most: 2.9, per: request}\n"
    path = tmp_path / "pool.yaml"
    path.write_text(f"traffic: 120\nperiod: 500\n{POOL}{average}")
    assert main(make_arguments(tmp_path, "--traffic", SPEC, "--policy", "distinct")) == 0
    text = capsys.readouterr().out
    assert "periods and windows within limits" in text
    assert "policies are told 120 a day, and learn what is different." in text
    found = json.loads((tmp_path / "out" / "whatif.json").read_text())
    one, problem = found["policies"]["distinct"], read(path).problem
    assert (found["declared_traffic"], problem.traffic) == (120, 120)
    for seed, run in enumerate(one["runs"]):
        trace = play(problem, seed)
        assert run["reward"] == pytest.approx(trace.rewards.mean(), abs=1e-12)
        decided = trace.spend[~trace.refused]
        assert run["periods"] == len(decided) // 500 == 4
        first = [decided[500 * n : 500 * (n + 1)].mean(axis=0) for n in range(4)]
        assert_allclose(run["by_period"], first)
        assert max(row[3] for row in run["by_period"]) <= 2.9 * (1 + 1e-12)
    assert (one["keeps"], one["bad_periods"], one["bad_windows"]) == (True, 0, 0)
    few = "--traffic", SPEC, "--policy", "distinct", "--rounds", "90"
    assert main(make_arguments(tmp_path, *few)) == 0
    assert "so not all limits can be judged: use --rounds 500 or more." in capsys.readouterr().out


def test_the_bound_of_one_window_can_be_swept(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    file = read(tmp_path / "pool.yaml").at_traffic(PER_DAY)
    for name in ("usd.day", "usd.at_most.day"):
        sweep = parse_sweep(file, f"{name}=100:300:3")
        assert sweep.limit == file.limits[0]
        bounds = [level.problem and level.problem.limits[0].bound for level in sweep.levels]
        assert bounds == [100, 200, 300]
    for name in ("usd", "usd.at_most"):
        with pytest.raises(BylotError, match=r"is limited several times; write usd\.at_most\.day="):
            parse_sweep(file, f"{name}=100:300:3")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            [],
            "the limits per day of {file} need to know when requests arrive; add --traffic "
            "daily:per_day=2000,start=2026-03-01,zone=Europe/Berlin",
        ),
        (["--traffic", "dayly:per_day=9"], "--traffic: invalid shape 'dayly'"),
        (["--traffic", "daily"], "--traffic: the traffic has no per_day; write daily:per_day"),
        (["--traffic", "daily:per_day=9,zone=Berlin"], "did you mean 'Europe/Berlin'?"),
        (["--traffic", "daily:per_day=9,begin=2026-01-01"], "no setting 'begin'"),
        (["--traffic", "daily:per_day=0"], "--traffic: invalid per_day 0.0"),
    ],
)
def test_a_traffic_that_cannot_be_played_is_refused(
    tmp_path: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    assert main(make_arguments(tmp_path, *options)) == 1
    assert words.format(file=tmp_path / "pool.yaml") in capsys.readouterr().err


def test_a_traffic_without_limits_of_the_calendar_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pool.yaml").write_text(POOL.partition("limits:")[0])
    for verb, given in (("simulate", SPEC), ("optimum", "2000")):
        assert main(make_arguments(tmp_path, "--traffic", given, verb=verb)) == 1
        err = capsys.readouterr().err
        assert "--traffic is for limits per hour, day, week or month, and the problem has" in err


def test_policies_that_keep_no_window_are_not_played_by_default(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    assert choose_policies(read(tmp_path / "pool.yaml")) == ["distinct", "noisy-or", "tangent"]
    (tmp_path / "pool.yaml").write_text(POOL.partition("limits:")[0])
    assert "omd" in choose_policies(read(tmp_path / "pool.yaml"))


def test_an_optimum_is_that_of_the_bounds_per_request_at_the_traffic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(POOL)
    assert main(make_arguments(tmp_path, verb="optimum")) == 1
    assert (
        "usd per day has no bound per request while the traffic is not known; give the requests "
        "per day: traffic=2000 in Python, traffic: 2000 in the problem file, or --traffic 2000"
    ) in capsys.readouterr().err
    assert main(make_arguments(tmp_path, "--traffic", "100", verb="optimum")) == 0
    said = capsys.readouterr().out
    said_twice = (
        'At 100 requests per day, "usd at most 300 per day" is 3 per request; "usd at most '
    )
    assert f'{said_twice}7,000 per month" is 2.3 per request.\n' in said
    path.write_text(f"traffic: 100\n{POOL}")
    assert main(make_arguments(tmp_path, "--json", verb="optimum")) == 0
    found = json.loads(capsys.readouterr().out)
    usd, junior = [4.0, 3.0, 1.0, 0.5], share("junior", ["cat", "dan"])
    per_request = 7_000 / (PER_DAY * 146_097 / 4_800)
    limits = [at_most("usd", per_request), at_least(junior, 0.3)]
    plain = Problem(["ann", "bob", "cat", "dan"], {"usd": usd}, limits, draws=2)
    values, weights, _ = make_environment().expected()
    best = optimum(plain, ValueStack(values, weights=weights))
    one = found["distributions"]["panels"]
    assert one["reward"] == pytest.approx(best.value)
    assert found["traffic"] == 100
    assert [limit["per"] for limit in one["limits"]] == ["day", "month", "week"]
    assert [limit["bound"] for limit in one["limits"]] == [300, 7_000, 0.3]
    bounds = [limit["bound_per_request"] for limit in one["limits"]]
    assert bounds == pytest.approx([3.0, per_request, 0.3])
    assert one["limits"][1]["price"] == pytest.approx(best.prices[0])
    assert one["limits"][1]["verdict"] == "agrees"


def test_an_optimum_says_if_a_budget_is_too_small_for_all_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    assert main(make_arguments(tmp_path, "--traffic", "1000", verb="optimum")) == 0
    assert (
        '"usd at most 300 per day" is 0.3 per request, less than the cheapest panels cost, so '
        "requests are refused: optima are at 1.575; "
    ) in capsys.readouterr().out
