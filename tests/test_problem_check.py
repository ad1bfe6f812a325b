"""`bylot problem`: what a check reports about a file is what the policies then do."""

import json
from pathlib import Path
from typing import Any

import pytest

import hospital
from broken_files import VALID_FILES
from bylot.cli import main
from bylot.errors import PolicyError
from bylot.policies import (
    Auto,
    Distinct,
    NoisyOr,
    Policy,
    Tangent,
    noisy_or,
    policy_to_data,
    resolve_policy,
)
from bylot.policies.registry import describe_smaller_panels
from bylot.problem import Problem
from bylot.problem_files import read
from bylot.problem_files.check import check_problem
from bylot.problem_files.schema import packaged_text

GUARDED_POLICIES: tuple[Policy, ...] = (Distinct(), NoisyOr(), Tangent())
EXAMPLES = Path(__file__).parent.parent / "examples"
FEASIBLE = VALID_FILES["yaml"]
# Panels of two cost 4 or more
TIGHT = FEASIBLE.replace("at_most: 4.5, at_least: 0.1", "at_most: 1.5")
EMPTY_SURROGATE = """\
draws: 3
experts: [{name: a, group: x}, {name: b, group: y}, {name: c, group: z}, {name: d}]
limits:
  - {group: x, at_least: 0.4, per: request}
  - {group: y, at_least: 0.4, per: request}
  - {group: z, at_least: 0.4, per: request}
"""


def run_check(
    folder: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, Any]:
    """Exit code, text with details, and data of a check."""
    path = folder / "pool.yaml"
    path.write_text(content)
    code = main(["problem", "check", "--details", str(path)])
    text = capsys.readouterr()
    assert main(["problem", "check", "--json", str(path)]) == code
    return code, text.out + text.err, json.loads(capsys.readouterr().out)


def test_four_numbers_come_first_and_everything_else_with_details(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, details, data = run_check(tmp_path, FEASIBLE, capsys)
    assert main(["problem", "check", str(tmp_path / "pool.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    distinct, count = data["policies"]["distinct"], len(data["limits"])
    assert lines == [
        f"limits           {count} on panels of 2 of 3 experts: all can be kept together",
        "policies         3 of 3 checked can run (distinct, noisy-or, tangent); the "
        "default is distinct",
        f"margin           {100 * distinct['margin']:.1f}%: all limits could be this much tighter "
        "at once and distinct could keep them",
        f"shortest period  {distinct['shortest_period']} requests: at the end of as many, distinct "
        "can guarantee the limits; the period is 500",
        "Use --details for costs, groups, and the range and the promise of each limit.",
    ]
    assert details.splitlines()[:4] == lines[:4]
    assert [f"{label:15}  {text}" for label, text in data["summary"].items()] == lines[:4]


def test_what_lets_more_policies_run_is_on_the_first_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, details, data = run_check(tmp_path, TIGHT, capsys)
    assert main(["problem", "check", str(tmp_path / "pool.yaml")]) == 0
    text = capsys.readouterr().out
    assert "1 of 3 checked can run (tangent); the default is tangent\n" in text
    (looser,) = [line for line in text.splitlines() if "can run with" in line]
    assert looser in details
    assert f"at_most: {data['looser'][0]['at_most']}" in looser


def test_a_check_says_why_full_panels_cannot_be_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, hint = "draws: 2\nperiod: 2", "distinct and noisy-or can run with period: "
    limits = "[{cost: usd, at_most: 4.7}, {share: lead, members: [ann], at_least: 0.4}]"
    costs = "experts: [ann, bob, cat]\ncosts: {usd: [4, 3, 1]}"
    content = f"{costs}\nlimits: {limits}\n{line}\n"
    code, text, data = run_check(tmp_path, content, capsys)
    assert (code, data["policies"]["distinct"]["applies"]) == (1, False)
    shortest = data["policies"]["distinct"]["shortest_period"]
    assert f"{hint}{shortest}" in text
    _, _, longer = run_check(tmp_path, content.replace("od: 2", f"od: {shortest}"), capsys)
    assert longer["policies"]["distinct"]["applies"]


def test_a_check_says_that_panels_will_be_smaller_as_python_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, _ = run_check(tmp_path, TIGHT, capsys)
    warning = describe_smaller_panels(Auto(), read(tmp_path / "pool.yaml").problem)
    assert warning is not None
    start, _, end = str(warning).partition(str(warning.limits[0]))
    (line,) = [line for line in text.splitlines() if line.startswith("Warning: ")]
    assert line.startswith(f"Warning: {start}")
    assert line.endswith(f"{end}.")


def test_a_check_reports_costs_groups_limits_and_policies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = run_check(tmp_path, FEASIBLE, capsys)
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
        "window": None,
        "line": 16,
        "lowest": 0.0,
        "highest": 0.5,
        "promise": "certain",
        "noisy_or_promise": "certain",
    }
    assert ": certain: it holds at the end of every period.\n" in text  # without largest costs
    assert data["feasible"]
    assert data["experts"] == ["ann", "bob", "cat"]
    assert data["costs"]["usd"] == {
        "unit": "US dollars per consultation",
        "least": 1.0,
        "most": 4.0,
    }


def test_if_full_panels_are_infeasible_only_tangent_applies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = run_check(tmp_path, TIGHT, capsys)
    assert code == 0
    assert (
        "Panels of 2 different experts cannot keep 'usd' at_most 1.5 per request (line 15)" in text
    )
    assert data["full_panels"]["conflict"][0]["line"] == 15
    assert [data["policies"][name]["applies"] for name in ("distinct", "tangent")] == [False, True]


def test_smaller_panels_let_noisy_or_run_where_full_ones_are_infeasible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smaller = TIGHT.replace("draws: 2", "draws: 2\nmin_draws: 1")
    code, text, data = run_check(tmp_path, smaller, capsys)
    assert code == 0
    assert "panels of 1 to 2 of" in text
    assert "noisy-or may ask 1 to 2, and so keep them at less cost.\n" in text
    assert "\ndistinct can run with at_most:" in text
    applies = {name: one["applies"] for name, one in data["policies"].items()}
    assert [applies[name] for name in ("distinct", "noisy-or", "tangent")] == [False, True, True]
    assert list(data["auto"].values()) == ["tangent", "noisy-or"]
    NoisyOr().bind(read(tmp_path / "pool.yaml").problem)
    full = FEASIBLE.replace("draws: 2", "draws: 2\nmin_draws: 2")
    _, text, data = run_check(tmp_path, full, capsys)
    assert data["min_draws"] == 2
    assert data["policies"]["tangent"]["reason"] == "its panels may have fewer than 2 members"
    assert "noisy-or may ask" not in text


@pytest.mark.parametrize("usd", ["1.5", "4.1"])  # out of reach of full panels, and just at it
def test_a_proposed_bound_makes_the_default_policy_applicable(
    tmp_path: Path, usd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = FEASIBLE.replace("at_most: 4.5, at_least: 0.1", f"at_most: {usd}")
    code, text, data = run_check(tmp_path, content, capsys)
    assert code == 0
    assert " -0" not in text
    assert f"can run with at_most: {data['looser'][0]['at_most']} in line 15" in text
    for looser in data["looser"]:
        was = usd if "cost" in looser else "0.9"
        after = content.replace(f"at_most: {was}", f"at_most: {looser['at_most']}")
        _, text, data_now = run_check(tmp_path, after, capsys)
        assert "can run with" not in text
        assert data_now["policies"]["distinct"]["applies"]
        Distinct().bind(read(tmp_path / "pool.yaml").problem)


def test_ranges_of_full_panels_and_of_any_panels_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, data = run_check(tmp_path, TIGHT, capsys)
    usd = next(one for one in data["limits"] if one.get("cost") == "usd")
    assert usd["lowest"] == 1.0  # the cheapest expert alone
    assert usd["distinct"][0] == pytest.approx(4.1)  # and the next in nine panels of ten
    assert "all limits could be this much tighter at once and tangent could" in text


def test_an_empty_surrogate_is_reported_with_its_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = run_check(tmp_path, EMPTY_SURROGATE, capsys)
    assert code == 0
    assert "The paper's surrogate of the limits is infeasible, because of" in text
    assert [one["line"] for one in data["surrogate"]["conflict"]] == [4, 5, 6]
    assert data["full_panels"] == {"feasible": True, "conflict": []}


def test_a_limit_implied_by_the_others_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, _ = run_check(tmp_path, FEASIBLE.replace("at_most: 0.9", "at_most: 1.5"), capsys)
    implied = [
        line.split("  ")[0] for line in text.splitlines() if line.endswith("implied by the others")
    ]
    assert implied == ["usd at_least", "night at_most"]  # every expert costs 1 or more


def test_conflicting_limits_are_reported_with_lines_and_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = run_check(tmp_path, FEASIBLE.replace("at_most: 4.5", "at_most: 0.5"), capsys)
    assert code == 1
    assert "line 15: no policy can keep" in text
    assert text.rstrip().endswith(
        "write at_most: 1.0 in line 15; these bounds are the nearest, so leave a margin"
    )
    assert data["feasible"] is False
    assert data["conflict"] == [{"limit": "usd", "at_most": 0.5, "line": 15}]


def test_an_invalid_file_is_reported_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = run_check(tmp_path, FEASIBLE.replace("period", "perod"), capsys)
    assert code == 1
    assert text == f"bylot: {data['error']}\n"
    assert "line 22" in text
    assert data["feasible"] is None


def change_period(problem: Problem, period: int) -> Problem:
    """The same problem with another period."""
    return Problem(
        problem.experts, dict(problem.costs), problem.limits, draws=problem.draws, period=period
    )


def write_problem_files(folder: Path) -> list[Path]:
    """Problem files of several kinds."""
    paths = []
    crowd = (EXAMPLES / "crowd" / "problem.yaml").read_text()
    contents = {"feasible": FEASIBLE, "tight": TIGHT, "empty": EMPTY_SURROGATE}
    contents["poor"] = crowd.replace("at_most: 15", "at_most: 4")
    for name, content in contents.items():
        paths.append(folder / f"{name}.yaml")
        paths[-1].write_text(content)
    return [*paths, EXAMPLES / "crowd" / "problem.yaml", EXAMPLES / "ads" / "problem.yaml"]


def test_the_reported_shortest_period_is_the_shortest_accepted_one(tmp_path: Path) -> None:
    found = 0
    for path in write_problem_files(tmp_path):
        file = read(path)
        for policy in GUARDED_POLICIES:
            one = check_problem(file)["policies"][policy.name]
            if one["reason"]:
                with pytest.raises(PolicyError):
                    policy.bind(file.problem)
                continue
            shortest = one["shortest_period"]
            policy.bind(change_period(file.problem, shortest))
            if shortest > 1:
                found += 1
                with pytest.raises(PolicyError, match=f"at least {shortest:,}"):
                    policy.bind(change_period(file.problem, shortest - 1))
    assert found > 5


def test_the_reported_choice_of_auto_is_the_actual_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, feasible = run_check(tmp_path, FEASIBLE, capsys)
    words = "auto:propensities=false,contexts=2"  # the file names two
    assert feasible["auto"] == {"auto": "distinct", words: "noisy-or"}
    assert f"auto, the default, selects distinct; {words}, for logs" in text
    _, text, tight = run_check(tmp_path, TIGHT, capsys)
    assert set(tight["auto"].values()) == {"tangent"}
    assert "auto, the default, selects tangent.\n" in text
    assert "noisy-or:explore" not in text
    for path in write_problem_files(tmp_path):
        file = read(path)
        for spec, selected in check_problem(file)["auto"].items():
            assert selected == policy_to_data(resolve_policy(spec, file.problem))["name"]
    _, text, _ = run_check(tmp_path, FEASIBLE.replace("period: 500", "period: 1"), capsys)
    assert "selects distinct (which cannot run, see above)" in text


def test_a_posterior_of_noisy_or_that_is_too_large_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ", ".join(f"{{name: e{i}}}" for i in range(300))
    few, many = (f"contexts: [{', '.join(f'c{i}' for i in range(n))}]\n" for n in (300, 1_000))
    pool = f"draws: 3\nexperts: [{names}]\n"
    _, text, data = run_check(tmp_path, pool + few, capsys)
    assert data["policies"]["noisy-or"]["memory"] == 8 * (300**2 + 300 * 1_207)
    assert data["policies"]["noisy-or"]["applies"]
    assert "pairs of 300 experts takes 3 MiB in 300 contexts" in text
    assert data["auto"]["auto:propensities=false,contexts=300"] == "noisy-or"
    monkeypatch.setattr(noisy_or, "MAX_POSTERIOR_BYTES", 2**22)
    _, text, data = run_check(tmp_path, pool + many, capsys)
    assert (
        data["policies"]["noisy-or"]["reason"]
        == "its posterior would take more than 0.00390625 GiB"
    )
    assert data["auto"]["auto:propensities=false,contexts=1000"] == "distinct"
    problem = read(tmp_path / "pool.yaml").problem
    with pytest.raises(PolicyError, match="beliefs about pairs"):
        NoisyOr().start(NoisyOr().bind(problem), 1_000)


def test_a_period_that_is_too_short_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, data = run_check(tmp_path, FEASIBLE.replace("period: 500", "period: 1"), capsys)
    assert "a period of 1 requests is too short" in text
    assert not data["policies"]["distinct"]["applies"]
    assert data["policies"]["distinct"]["shortest_period"] > 1


def test_the_hospital_example_is_checked_with_experts_of_another_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    experts = hospital.find_folder() / "experts.csv"
    path = EXAMPLES / "hospital" / "problem.yaml"
    assert main(["problem", "check", str(path), "--experts", str(experts)]) == 0
    assert "39 experts" in capsys.readouterr().out
    assert main(["problem", "check", str(path)]) == 1
    assert "line 16: no CSV file" in capsys.readouterr().err


def test_new_and_schema_print_the_packaged_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["problem", "new"]) == 0
    assert capsys.readouterr().out == packaged_text("starter.yaml")
    assert main(["problem", "schema"]) == 0
    assert capsys.readouterr().out == packaged_text("problem.schema.json")


def test_a_problem_without_limits_passes_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = run_check(tmp_path, "{draws: 1, experts: [{name: a}, {name: b}]}", capsys)
    assert code == 0
    assert "Nothing is limited." in text
    assert data["limits"] == []


CALENDAR = """\
draws: 2
costs: {usd: US dollars}
experts: [{name: ann, usd: 4}, {name: bob, usd: 3}, {name: cat, usd: 1, group: junior}]
limits:
  - {cost: usd, at_most: 9000, per: day, zone: Europe/Berlin, when_spent: refuse}
  - {cost: usd, at_most: 200000, per: month}
  - {group: junior, at_least: 0.1, per: week}
"""
REFUSE = "as it runs out, panels get little cheaper, and requests are refused sooner."
CHEAPEST = (
    "as it runs out, panels get cheaper, and requests are refused when not even the cheapest fits."
)


SCOPED = """\
draws: 2
costs: {usd: US dollars}
contexts: [icu, er]
experts: [{name: ann, usd: 4}, {name: bob, usd: 3}, {name: cat, usd: 1, group: junior}]
limits:
  - {cost: usd, at_most: 200, per: month, scope: tenant}
  - {cost: usd, at_most: 90, per: day, where: {context: [icu]}}
  - {group: junior, at_least: 0.1, per: week, scope: tenant, where: {context: [icu, er]}}
  - {cost: usd, at_most: 6, where: {context: [er]}}
"""


def test_limits_for_each_tenant_and_of_some_contexts_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = run_check(tmp_path, SCOPED, capsys)
    assert code == 0
    fits = "The cheapest panel, of 2, costs 4, so it suffices for at most"
    for line in (
        "usd at most 200 per month for each tenant, by the calendar of UTC: what it means per "
        f"request depends on the tenant's own requests. {fits} 50 requests per month of a tenant; "
        f"{CHEAPEST}",
        "usd at most 90 per day in icu, by the calendar of UTC: what that is per request is "
        f"learned from the requests that count. {fits} 22 requests per day; {CHEAPEST}",
        "junior at least 0.1 per request in every week for each tenant in icu, er, by the calendar "
        "of UTC: the average over the requests of the tenant in icu and er of each week.",
    ):
        assert line in text.splitlines()
    assert "usd at_most in er" in text
    assert "usd at_most per month for each tenant" in text
    assert "can run with" not in text, "no other bound is needed"
    assert "records propensities only in rounds that it sets aside for exploration" in text
    assert "omd can keep" not in text
    running = {name for name, check in data["policies"].items() if check["applies"]}
    assert running == {"distinct", "noisy-or", "tangent"}
    assert data["auto"]["auto"] == "noisy-or"
    assert [one.get("scope") for one in data["limits"]] == ["tenant", None, "tenant", None]
    assert data["limits"][3]["where"] == {"context": ["er"]}
    assert [one["per_request"] for one in data["limits"]] == [None, None, 0.1, 6]
    assert data["limits"][3]["highest"] == 7, "of the requests that it counts"


def test_limits_that_full_panels_cannot_keep_are_named_with_bounds_that_are_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = "draws: 2\nexperts: [{name: a, usd: 4}, {name: b, usd: 1}]\ncosts: {usd: US dollars}\n"
    icu = "  - {cost: usd, at_most: 4, where: {context: icu}}\n"
    code, text, data = run_check(tmp_path, f"{pool}limits:\n{icu}", capsys)
    assert code == 0
    assert "1 of 3 checked can run (tangent); the default is tangent" in text
    assert [one["at_most"] for one in data["looser"]] == [5.05]
    assert run_check(tmp_path, f"{pool}limits:\n{icu}".replace("4, w", "5.05, w"), capsys)[0] == 0
    both = f"{pool}limits:\n{icu}  - {{cost: usd, at_most: 3}}\n"
    code, text, data = run_check(tmp_path, both, capsys)
    assert (code, data["looser"]) == (0, [])
    assert [limit["at_most"] for limit in data["looser_together"]] == [5.05, 5.05]
    enough = both.replace("4, w", "5.05, w").replace("3}", "5.05}")
    assert run_check(tmp_path, enough, capsys)[0] == 0


def test_a_budget_of_a_tenant_that_pays_for_no_panel_refuses_every_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, _ = run_check(tmp_path, SCOPED.replace("200", "3"), capsys)
    assert code == 0
    refused = "by refusing requests: every request of a tenant without a bound of its own, as "
    assert f'{refused}"usd at most 3 per month for each tenant" (line ' in text
    assert ") is less than the cheapest panel costs, 4\n" in text


def test_a_limit_on_some_contexts_has_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pool.yaml").write_text(SCOPED)
    assert main(["problem", "check", str(tmp_path / "pool.yaml")]) == 0
    sentence = "usd at most 6 per request in er: the average over the requests whose context is "
    assert f"{sentence}exactly er, which is kept at all times, in" in capsys.readouterr().out


def test_a_budget_of_the_calendar_is_explained_at_the_traffic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(CALENDAR)
    assert main(["problem", "check", str(path), "--traffic", "2000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:-1] == [
        "usd at most 9,000 per day, by the calendar of Europe/Berlin: 4.5 per request at 2,000 "
        "requests per day. The cheapest panel, of 2, costs 4, so it suffices for at most 2,250 "
        f"requests per day; {REFUSE}",
        "usd at most 200,000 per month, by the calendar of UTC: 3.285 per request at 2,000 "
        "requests per day, 60,874 per month. The cheapest panel, of 2, costs 4, so it suffices for "
        f"at most 50,000 requests per month; {CHEAPEST} At least 10,874 of 60,874 requests of an "
        "average month will be refused.",
        "junior at least 0.1 per request in every week, by the calendar of UTC: the average over "
        "the requests of each week.",
    ]
    assert main(["problem", "check", str(path), "--traffic", "2000", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    month = 2_000 * 146_097 / 4_800
    assert data["traffic"] == 2_000
    assert [one["per_request"] for one in data["limits"]] == [4.5, 200_000 / month, 0.1]
    assert [one["window"] for one in data["limits"]] == [
        {
            "per": "day",
            "zone": "Europe/Berlin",
            "when_spent": "refuse",
            "requests": 2_000.0,
            "per_request": 4.5,
            "cheapest_panel": 4.0,
            "most_requests": 2_250,
        },
        {
            "per": "month",
            "zone": "UTC",
            "when_spent": "cheapest",
            "requests": month,
            "per_request": 200_000 / month,
            "cheapest_panel": 4.0,
            "most_requests": 50_000,
        },
        {"per": "week", "zone": "UTC"},
    ]
    day = data["limits"][0]
    assert [day["lowest"], day["highest"]] == pytest.approx([2_000, 8_400])  # 4.2 by the month
    refused = (
        "all can be kept together by refusing requests: at least 10,874 of 60,874 in an average "
    )
    assert f'{refused}month, under "usd at most 200,000 per month" (line 6)' in lines[0]
    path.write_text(f"{CALENDAR}traffic: 2000\n")
    assert main(["problem", "check", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == lines, "the file may declare it too"


def test_without_a_traffic_it_is_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, data = run_check(tmp_path, CALENDAR, capsys)
    assert code == 0
    assert "per request is learned from the requests (or give --traffic). The cheapest pan" in text
    assert "margin" not in data["summary"]
    assert "omd can keep" not in text
    assert data["traffic"] is None
    day, _, week = data["limits"]
    assert (day["per_request"], day["lowest"], day["window"]["requests"]) == (None, None, None)
    assert day["window"]["most_requests"] == 2_250
    assert (week["per_request"], week["lowest"]) == (0.1, 0.0)
    assert "usd at_most per day and usd at_most per month: certain if calls cost" in text
    assert "junior at_least per week: certain: it holds at the end of every week.\n" in text
    assert "the limits hold in their windows of the calendar\n" in text


def test_smaller_panels_and_free_experts_change_what_a_budget_suffices_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, data = run_check(tmp_path, CALENDAR.replace("refuse", "fewer"), capsys)
    assert [one["window"]["most_requests"] for one in data["limits"][:2]] == [9_000, 200_000]
    assert "The cheapest panel, of 1, costs 1, so" in text
    assert "then smaller, down to one member, and requests are refused when no expert fits." in text
    free = CALENDAR.replace("usd: 1", "usd: 0").replace("refuse", "fewer")
    _, text, data = run_check(tmp_path, free, capsys)
    assert data["limits"][0]["window"]["most_requests"] is None
    assert "The cheapest panel costs nothing, so it is never spent." in text


@pytest.mark.parametrize(
    ("content", "traffic", "words"),
    [
        (FEASIBLE, "2000", "--traffic is for limits per hour, day, week or month"),
        (CALENDAR, "0", "invalid traffic 0.0: expected a number of requests per day"),
    ],
)
def test_a_traffic_that_cannot_be_used_is_refused(
    tmp_path: Path, content: str, traffic: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pool.yaml").write_text(content)
    path = str(tmp_path / "pool.yaml")
    assert main(["problem", "check", path, "--traffic", traffic]) == 1
    assert words in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["problem", "check", path, "--traffic", "many"])
