"""Simulations under limits for each tenant and limits of some contexts."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bylot import Problem, Router, at_least, at_most, share, simulate
from bylot.cli import main
from bylot.cli.whatif import choose_policies
from bylot.environments import Noisy, Traffic
from bylot.errors import BylotError, PolicyError, ProblemError, ValuesError
from bylot.harness import summarize_play
from bylot.optima import fluid_optimum, iid_optimum, optimum
from bylot.problem_files import read
from bylot.router_play import play
from bylot.whatif.plan import parse_sweep
from bylot.window_results import measure_windows

ICU, OTHERS = {"context": ["icu"]}, {"context": ["er", "ward"]}
NAMES, ROUNDS = ("icu", "er", "ward"), 6_000
EXPERTS, COSTS = ["ann", "bob", "cat", "dan"], {"usd": [4.0, 3.0, 1.0, 0.5]}
VALUES = [[[0.9, 0.6, 0.3, 0.2]], [[0.8, 0.7, 0.2, 0.3]], [[0.9, 0.5, 0.4, 0.1]]]
POOL = """\
draws: 2
costs: {usd: US dollars}
contexts: [icu, er]
experts:
  - {name: ann, usd: 4}
  - {name: bob, usd: 3}
  - {name: cat, usd: 1, group: junior}
  - {name: dan, usd: 0.5, group: junior}
limits:
"""
TENANT = "  - {cost: usd, at_most: 250, per: day, scope: tenant}\n"
SOME = """\
  - {cost: usd, at_most: 3, where: {context: [icu]}}
  - {group: junior, at_least: 0.8, per: week, where: {context: [er]}}
"""
TABLE = """\
qid,ward,ann,bob,cat,dan
1,icu,1,1,0,0
2,er,1,0,1,0
3,icu,1,0.5,1,0
4,er,0,1,0,1
5,er,1,1,0,1
"""
TIMES = Traffic("daily", per_day=100, start="2026-03-01").arrivals(ROUNDS, 0)


def make_problem(*limits: Any) -> Problem:
    return Problem(EXPERTS, COSTS, limits, draws=2)


def test_limits_of_some_contexts_are_kept_in_these_and_nowhere_else() -> None:
    junior = share("junior", ["cat", "dan"])
    problem = make_problem(
        at_most("usd", 2.5, where=ICU),
        at_most("usd", 250, per="day", where=OTHERS),
        at_least(junior, 0.9, per="week", where={"context": ["ward"]}),
    )
    given: Any = {"rounds": ROUNDS, "times": TIMES, "context_names": NAMES}
    trace = simulate(problem, Noisy(VALUES), **given)
    contexts, decided = trace.record.contexts, ~trace.refused
    assert trace.counted.tolist() == [
        [name == "icu", name != "icu", name == "ward"] for name in np.array(NAMES)[contexts]
    ]
    assert not trace.spend[~trace.counted].any()
    costs = np.array(COSTS["usd"])[trace.draws].sum(axis=1) * decided
    icu = decided & (contexts == 0)
    assert costs[icu].mean() <= 2.5
    assert costs[decided & (contexts > 0)].mean() > 3, "the others are not as cheap"
    assert trace.mean_spend()[-1, 0] == pytest.approx(costs[contexts == 0].sum() / 2_000, rel=0.1)
    windows = measure_windows(trace, TIMES)
    assert [one.bad for one in windows] == [0, 0]
    days = (TIMES - TIMES[0]) // 86_400_000_000
    assert windows[0].amounts.sum() == pytest.approx(costs[contexts > 0].sum())
    assert windows[0].windows >= days[-1]
    members = np.isin(trace.draws, [2, 3]).sum(axis=1)
    ward = decided & (contexts == 2)
    assert members[ward].mean() >= 0.9
    found = summarize_play(trace, 3_000, 100, times=TIMES)
    assert found.kept_in_all_periods
    assert found.spend[0] == pytest.approx(costs[icu][: found.periods * 1_000].mean(), rel=0.05)
    assert found.by_period.shape == (1, 3) or found.by_period.shape == (2, 3)


def test_a_simulation_without_times_knows_contexts_by_their_numbers() -> None:
    problem = make_problem(at_most("usd", 2.5, where={"context": ["1"]}), at_most("usd", 5))
    trace = simulate(problem, Noisy(VALUES), rounds=3_000, horizon=3_000)
    assert trace.context_names == ("0", "1", "2")
    assert trace.mean_spend()[-1, 0] <= 2.5
    assert np.isnan(trace.mean_spend()[0, 0]) == (trace.record.contexts[0] != 1)
    assert summarize_play(trace, 3_000, 100).kept_in_all_periods


def test_a_router_in_the_same_environment_keeps_the_same_limits() -> None:
    problem = make_problem(at_most("usd", 2.5, where={"context": ["1"]}), at_most("usd", 5))
    trace = play(Router(problem, seed=3, horizon=500), Noisy(VALUES), rounds=500)
    assert trace.spend[trace.record.contexts == 1, 0].mean() <= 2.5
    assert not trace.spend[trace.record.contexts != 1, 0].any()


def test_all_requests_of_a_simulation_are_of_one_tenant() -> None:
    problem = make_problem(at_most("usd", 200, per="day", scope="tenant"))
    trace = simulate(problem, Noisy(VALUES), rounds=ROUNDS, times=TIMES)
    (windows,) = measure_windows(trace, TIMES)
    assert windows.bad == 0
    assert windows.used is not None
    assert windows.used > 0.85
    assert (trace.spend[~trace.refused, 0] > 0).all()


def test_names_of_contexts_are_checked() -> None:
    problem = make_problem(at_most("usd", 2.5, where=ICU))
    with pytest.raises(ValuesError, match=r"counts no context .*'0', '1', '2'.*context_names"):
        simulate(problem, Noisy(VALUES), rounds=10)
    with pytest.raises(ValuesError, match="context_names has 2 names, and there are 3 contexts"):
        simulate(problem, Noisy(VALUES), rounds=10, context_names=["icu", "er"])
    with pytest.raises(PolicyError, match="need the guard, which is off for omd"):
        simulate(problem, Noisy(VALUES), "omd", rounds=10, context_names=NAMES)


def test_optima_refuse_limits_of_some_contexts() -> None:
    problem = make_problem(at_most("usd", 2.5, where=ICU))
    for compute in (
        lambda: iid_optimum(problem, VALUES[0], floor=True),
        lambda: optimum(problem, VALUES[0]),
        lambda: fluid_optimum(problem, VALUES[0], TIMES),
    ):
        with pytest.raises(ProblemError, match="is not known; leave `where` out to compare"):
            compute()


def run_simulate(folder: Path, limits: str, *options: str, verb: str = "simulate") -> int:
    (folder / "pool.yaml").write_text(POOL + limits)
    (folder / "table.csv").write_text(TABLE)
    files = [str(folder / "pool.yaml"), "--outcomes", str(folder / "table.csv")]
    if verb == "optimum":
        return main([verb, *files, *options])
    more = ["--seeds", "1", "--jobs", "1", "--rounds", "5000", "--out", str(folder / "out")]
    return main([verb, *files, *more, *options])


def test_simulate_says_that_there_is_one_tenant_and_no_reference_for_contexts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traffic = "--traffic", "daily:per_day=100,start=2026-03-01"
    assert run_simulate(tmp_path, TENANT + SOME, "--context", "ward", *traffic) == 0
    text = capsys.readouterr().out
    assert text.startswith("All requests are played as those of one tenant")
    assert "Run noisy-or, which keeps all 3 limits in every period and window" in text
    data = json.loads((tmp_path / "out" / "whatif.json").read_text())
    assert set(data["policies"]) == {"distinct", "noisy-or", "tangent"}
    assert {one["value"] for one in data["references"].values()} == {None}
    assert "leave `where` out" in data["references"]["panels"]["note"]
    assert run_simulate(tmp_path, TENANT, "--context", "ward", *traffic) == 0
    data = json.loads((tmp_path / "out" / "whatif.json").read_text())
    assert data["references"]["panels"]["value"] == pytest.approx(0.95)
    assert data["prices"]["panels"][0]["price"] is not None
    assert {found["bad_windows"] for found in data["policies"].values()} == {0}


def test_simulate_reports_on_a_tenant_most_of_whose_requests_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = TENANT.replace("250", "15") + "  - {cost: usd, at_most: 6}\n"
    traffic = "--traffic", "weekend:per_day=500"
    assert run_simulate(tmp_path, limits, "--context", "ward", *traffic) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("All requests are played as those of one tenant")
    assert re.match(r"[a-z-]+ refused 9", second)
    assert '% of the requests: "usd at most 15 per day for each tenant" is too lit' in second
    assert "Run " not in second
    data = json.loads((tmp_path / "out" / "whatif.json").read_text())
    assert data["policies"]["noisy-or"]["periods"] == 0, "none is complete"
    report = (tmp_path / "out" / "report.md").read_text()
    assert report.index("played as those of one tenant") < report.index("What to do")


def test_the_numbers_are_written_before_figures_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no figure")

    monkeypatch.setattr("bylot.whatif.runner.draw_whatif", fail)
    with pytest.raises(RuntimeError, match="no figure"):
        run_simulate(tmp_path, "  - {cost: usd, at_most: 6}\n", "--context", "ward")
    assert json.loads((tmp_path / "out" / "whatif.json").read_text())["policies"]


def test_limits_on_some_contexts_are_judged_in_periods_of_their_requests() -> None:
    limits = at_most("usd", 2.5, where=ICU), at_most("usd", 7)
    problem = Problem(EXPERTS, COSTS, limits, draws=2, period=500)
    trace = simulate(problem, Noisy(VALUES), rounds=ROUNDS, context_names=NAMES)
    icu = trace.record.contexts == 0
    costs = np.array(COSTS["usd"])[trace.draws].sum(axis=1)[icu]
    found = summarize_play(trace, 500, 100)
    (one,) = found.counted
    means = costs[: costs.size // 500 * 500].reshape(-1, 500).mean(axis=1)
    assert one.amounts[one.judged] == pytest.approx(means)
    assert one.windows == costs.size // 500 < found.periods == ROUNDS // 500
    assert (one.bad, found.bad_periods, found.kept_in_all_periods) == (0, 0, True)
    assert found.spend[0] == pytest.approx(means.mean())
    assert found.all_periods == found.periods + one.windows
    tight = [problem.limits[0].at(0.99 * float(means.min())), problem.limits[1]]
    tighter = replace(trace, problem=problem.replace(limits=tight))
    found = summarize_play(tighter, 500, 100)
    assert (found.counted[0].bad, found.all_bad_periods) == (means.size, means.size)
    assert not found.kept_in_all_periods
    whole = summarize_play(trace, ROUNDS, 100)
    assert whole.counted[0].amounts == pytest.approx([costs.mean()])
    few = summarize_play(trace, ROUNDS - 1, 100)
    assert few.counted[0].amounts == pytest.approx([costs.mean()])
    assert few.counted[0].windows == 1, "no period is complete, so all that there is counts"


def test_simulate_explains_what_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_simulate(tmp_path, SOME.splitlines()[0] + "\n") == 1
    assert "needs to know the context of each request" in capsys.readouterr().err
    assert run_simulate(tmp_path, SOME, "--traffic", "100", verb="optimum") == 1
    assert "leave `where` out to compare" in capsys.readouterr().err
    assert run_simulate(tmp_path, TENANT, "--traffic", "100", verb="optimum") == 0
    text = capsys.readouterr().out
    assert "is 2.5 per request, if all are of one tenant" in text
    assert "(shadow price 0.00" in text


def test_a_swept_limit_is_named_with_the_requests_that_it_counts(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(f"{POOL}  - {{cost: usd, at_most: 9, per: day}}\n{TENANT}")
    file = read(tmp_path / "pool.yaml")
    swept = parse_sweep(file, "usd.at_most.day.tenant=10:20:2")
    assert swept.limit.limit.scope == "tenant"
    assert [one.problem.limits[1].bound for one in swept.levels if one.problem] == [10, 20]
    assert parse_sweep(file, "usd.at_most.day=10:20:2").limit.limit.scope is None
    assert parse_sweep(file, "usd.day.tenant=10:20:2").limit.limit.scope == "tenant"
    with pytest.raises(BylotError, match=r"usd\.at_most\.day=\.\.\. or usd\.at_most\.day\.tenant"):
        parse_sweep(file, "usd=10:20:2")
    assert choose_policies(file) == ["distinct", "noisy-or", "tangent"]
