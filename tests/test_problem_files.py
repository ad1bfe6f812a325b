"""Problem files read the same in every format, and written problems read back equal."""

import re
from functools import partial
from pathlib import Path
from typing import Any, get_args
from unicodedata import normalize

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import bylot
import hospital
from broken_files import VALID_FILES
from bylot.errors import InfeasibleLimits, InfeasibleProblemFile, ProblemError, ProblemFileError
from bylot.problem import Limit, Problem, Share, at_least, at_most, share
from bylot.problem.calendar import WINDOW_NAMES
from bylot.problem.limits import WhenSpent
from bylot.problem.window_bounds import restate_per_request
from bylot.problem_files import ProblemFile, read, write
from bylot.problem_files.check import check_problem
from bylot.problem_files.check_report import describe_windows
from bylot.problem_files.schema import SCHEMA, packaged_text

EXAMPLES = Path(__file__).parent.parent / "examples"

DOCUMENT = (EXAMPLES.parent / "docs" / "problem-files.md").read_text(encoding="utf-8")

STARTER = packaged_text("starter.yaml")

fuzz_settings = settings(
    deadline=None,
    derandomize=True,
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def write_and_read_problem(
    folder: Path, content: str, ending: str = "yaml", **others: str
) -> ProblemFile:
    """Write a file with this content, and CSV files beside it, and read the problem."""
    for name, text in others.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    path = folder / f"problem.{ending}"
    path.write_text(content, encoding="utf-8")
    return read(path)


@pytest.mark.parametrize("ending", VALID_FILES)
def test_a_problem_is_the_same_in_every_format(tmp_path: Path, ending: str) -> None:
    found = write_and_read_problem(tmp_path, VALID_FILES[ending], ending)
    assert found.problem == Problem(
        experts=["ann", "bob", "cat"],
        costs={"usd": [4.0, 3.0, 1.0], "gpu": [2, 0, 1]},
        limits=[
            at_most("usd", 4.5),
            at_least("usd", 0.1),
            at_least(share("junior", ["cat"]), 0.5),
            at_most(share("night", ["bob"]), 0.9),
        ],
        draws=2,
        floor=0.05,
        period=500,
    )
    assert found.contexts == {"pain": 0.75, "headache": 0.25}
    assert found.rewards == (0.0, 10.0)
    assert found.units == {"usd": "US dollars per consultation", "gpu": "seconds"}
    members = {name: group.members for name, group in found.groups.items()}
    assert members["senior"] == ("ann", "bob")
    assert members["early"] == ("cat", "ann")


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_every_limit_knows_its_line(tmp_path: Path, ending: str) -> None:
    lines = VALID_FILES[ending].splitlines()
    for written in write_and_read_problem(tmp_path, VALID_FILES[ending], ending).limits:
        assert written.line is not None
        line = lines[written.line - 1]
        assert written.limit.side in line
        assert f"{written.written:g}" in line


def test_omitted_keys_have_defaults(tmp_path: Path) -> None:
    found = write_and_read_problem(tmp_path, "{draws: 1, experts: [{name: a}, {name: b}]}")
    assert found.problem == Problem(["a", "b"], {}, draws=1)
    assert (found.contexts, found.rewards, found.units, found.csv) == ({}, (0.0, 1.0), {}, None)
    assert write_and_read_problem(
        tmp_path, VALID_FILES["yaml"].replace("{pain: 3, headache: 1}", "[a, b]")
    ).contexts == {
        "a": 0.5,
        "b": 0.5,
    }


@pytest.mark.parametrize(("share", "draws"), [(0.04, 3), (0.1, 3), (0.07, 7), (1, 2), (0.25, 1)])
def test_a_bound_per_draw_is_draws_times_as_much_per_request(
    tmp_path: Path, share: float, draws: int
) -> None:
    text = (
        f"draws: {draws}\nexperts: [{{name: a, group: x}}, {{name: b}}, {{name: c}}]\n"
        f"limits: [{{group: x, at_most: {share}, per: draw}}]\n"
    )
    (limit,) = write_and_read_problem(tmp_path, text).limits
    assert limit.limit.bound == round(share * draws, 12)  # 0.3, not 0.30000000000000004
    assert (limit.written, limit.per) == (share, "draw")


def test_a_bound_per_draw_may_be_on_a_cost_and_above_one(tmp_path: Path) -> None:
    old, new = "at_most: 4.5, at_least: 0.1, per: request", "at_most: 2, per: draw"
    text = VALID_FILES["yaml"].replace(old, new)
    assert write_and_read_problem(tmp_path, text).problem.limits[0] == at_most("usd", 4.0)


CALENDAR = """\
draws: 2
traffic: 2000
costs: {usd: US dollars}
experts: [{name: ann, usd: 4}, {name: bob, usd: 3}, {name: cat, usd: 1, group: junior}]
limits:
  - {cost: usd, at_most: 9000, per: day, zone: Europe/Berlin, when_spent: refuse}
  - {cost: usd, at_most: 200000, per: month}
  - {cost: usd, at_most: 6, per: request}
  - {group: junior, at_least: 0.1, at_most: 0.9, per: week, zone: Europe/Berlin}
"""


def test_limits_of_the_calendar_stand_beside_those_per_request(tmp_path: Path) -> None:
    found = write_and_read_problem(tmp_path, CALENDAR)
    junior, berlin = share("junior", ["cat"]), "Europe/Berlin"
    assert found.problem.traffic == 2_000
    assert found.problem.limits == (
        at_most("usd", 9_000, per="day", zone=berlin, when_spent="refuse"),
        at_most("usd", 200_000, per="month"),
        at_most("usd", 6),
        at_most(junior, 0.9, per="week", zone=berlin),
        at_least(junior, 0.1, per="week", zone=berlin),
    )
    assert [one.words for one in found.limits] == [
        "usd at most 9,000 per day",
        "usd at most 200,000 per month",
        "usd at most 6 per request",
        "junior at most 0.9 per request in every week",
        "junior at least 0.1 per request in every week",
    ]
    assert [one.line for one in found.limits] == [6, 7, 8, 9, 9]
    month = 2_000 * 146_097 / 4_800
    assert [one.requests for one in found.limits] == [2_000, month, None, None, None]
    assert found.limits[1].unit(2) == 1 / month
    assert found.at_traffic(10).limits[0].requests == 10
    assert found.at_traffic(None).problem.traffic is None
    assert np.isnan(found.at_traffic(None).limits[0].unit(2))
    assert write_and_read_problem(tmp_path, write(found.problem)).problem == found.problem


SCOPED = """\
draws: 2
traffic: 2000
contexts: {icu: 1, er: 2, ward: 3}
costs: {usd: US dollars}
experts: [{name: ann, usd: 4}, {name: bob, usd: 3}, {name: cat, usd: 1, group: junior}]
limits:
  - {cost: usd, at_most: 20, per: month, scope: tenant}
  - {cost: usd, at_most: 9000, per: month}
  - {cost: usd, at_most: 5, where: {context: [icu]}}
  - {cost: usd, at_most: 100, per: day, where: {context: er}}
  - {group: junior, at_least: 0.1, per: week, scope: tenant, where: {context: [er, ward]}}
"""


def test_limits_for_each_tenant_and_for_some_contexts_stand_beside_others(tmp_path: Path) -> None:
    found = write_and_read_problem(tmp_path, SCOPED)
    others = {"context": ["er", "ward"]}
    assert found.problem.limits == (
        at_most("usd", 20, per="month", scope="tenant"),
        at_most("usd", 9_000, per="month"),
        at_most("usd", 5, where={"context": ["icu"]}),
        at_most("usd", 100, per="day", where={"context": ["er"]}),
        at_least(share("junior", ["cat"]), 0.1, per="week", scope="tenant", where=others),
    )
    assert [one.words for one in found.limits] == [
        "usd at most 20 per month for each tenant",
        "usd at most 9,000 per month",
        "usd at most 5 per request in icu",
        "usd at most 100 per day in er",
        "junior at least 0.1 per request in every week for each tenant in er, ward",
    ]
    month = 2_000 * 146_097 / 4_800
    assert [one.requests for one in found.limits] == [None, month, None, None, None]
    assert [found.format_limit(one.limit) for one in found.limits] == [
        f'"{one.words}"' for one in found.limits
    ]
    again = write_and_read_problem(tmp_path, write(found.problem)).problem
    assert again == found.problem
    odd = found.problem.replace(limits=[at_most("usd", 5, where={"context": ["a\nb"]})])
    with pytest.raises(ProblemError, match="printable"):
        write(odd)


def test_a_limit_in_some_contexts_is_in_conflict_with_those_of_the_same_requests_only(
    tmp_path: Path,
) -> None:
    text = SCOPED.replace("at_most: 5, where", "at_most: 0.5, where")
    with pytest.raises(InfeasibleProblemFile, match=r"0\.5 per request in icu \(line 9\)"):
        write_and_read_problem(tmp_path, text)
    apart = "  - {cost: usd, at_least: 6, where: {context: [er]}}\n"
    assert len(write_and_read_problem(tmp_path, SCOPED + apart).limits) == 6


def test_a_budget_of_the_calendar_is_in_no_conflict_as_requests_can_be_refused(
    tmp_path: Path,
) -> None:
    none = CALENDAR.replace("at_most: 9000", "at_most: 0")
    assert write_and_read_problem(tmp_path, none).problem.limits[0].bound == 0
    lines = "  - {group: junior, at_least: 0.95, per: request}\n"
    tight = CALENDAR.replace("at_most: 9000", "at_most: 1") + lines
    tight = tight.replace("at_least: 0.1, ", "")
    with pytest.raises(InfeasibleProblemFile) as caught:
        write_and_read_problem(tmp_path, tight)
    assert caught.value.lines == (9, 10)
    assert "'junior' at_most 0.9 per request in every week (line 9)" in str(caught.value)


def test_budgets_restated_per_request_have_the_bounds_of_the_traffic(tmp_path: Path) -> None:
    found = write_and_read_problem(tmp_path, CALENDAR).at_traffic(1_000)
    restated = restate_per_request(found.problem)
    assert restated.calendars == ()
    np.testing.assert_array_equal(restated.bounds, found.problem.bounds)
    np.testing.assert_array_equal(restated.rows, found.problem.rows)
    assert restated.bounds[0] == 9_000 / 1_000
    for limit, written in zip(restated.limits, found.limits, strict=True):
        assert found.format_limit(limit) == f'"{written.words}"'
    plain = write_and_read_problem(tmp_path, VALID_FILES["yaml"]).problem
    assert restate_per_request(plain) is plain


CSV = "who,group,site,usd,size\nann,senior,east,4.0,7\nbob,senior,west,3.0,\ncat,,west,1e0,70\n"
BY_CSV = "draws: 2\ncosts: {usd: US dollars}\nexperts: {csv: pool.csv}\n"


def test_experts_may_be_in_a_csv_file_beside_the_problem(tmp_path: Path) -> None:
    limits = "limits: [{group: senior, at_most: 1, per: request}]"
    found = write_and_read_problem(tmp_path, BY_CSV + limits, pool=CSV)
    assert found.problem == Problem(
        ["ann", "bob", "cat"],
        {"usd": [4.0, 3.0, 1.0]},
        [at_most(share("senior", ["ann", "bob"]), 1)],
        draws=2,
    )
    assert found.csv == tmp_path / "pool.csv"
    assert {name: group.members for name, group in found.groups.items()} == {
        "senior": ("ann", "bob")
    }


def test_groups_may_be_in_several_columns_or_follow_from_a_number(tmp_path: Path) -> None:
    text = BY_CSV.replace("pool.csv", "pool.csv, group: [group, site]")
    text += "groups: {large: {column: size, at_least: 70, blank: in}, small: {column: size, "
    text += "at_most: 69, blank: out}, pair: [cat, ann]}\n"
    groups = write_and_read_problem(tmp_path, text, pool=CSV).groups
    assert {name: group.members for name, group in groups.items()} == {
        "senior": ("ann", "bob"),
        "east": ("ann",),
        "west": ("bob", "cat"),
        "large": ("bob", "cat"),
        "small": ("ann",),
        "pair": ("cat", "ann"),
    }


def test_another_csv_file_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("name\tusd\nx\t1\ny\t2\n", encoding="utf-8-sig")
    path = tmp_path / "problem.yaml"
    path.write_text(BY_CSV)
    assert read(str(path), tmp_path / "other.csv").problem.experts == ("x", "y")
    path.write_text(VALID_FILES["yaml"])
    with pytest.raises(ProblemFileError, match="line 5: the experts are listed here"):
        read(path, tmp_path / "other.csv")


@pytest.mark.parametrize("name", ["crowd", "ads"])
def test_complete_examples_can_be_read(name: str) -> None:
    found = read(EXAMPLES / name / "problem.yaml")
    assert found.problem.limits
    assert found.problem.full_conflict is None
    assert set(found.units) < set(found.problem.costs)


def test_policies_can_run_on_the_starter(tmp_path: Path) -> None:
    assert (
        bylot.Router(write_and_read_problem(tmp_path, STARTER).problem, "distinct").decide().subset
    )


def test_every_commented_line_of_the_starter_can_be_enabled(tmp_path: Path) -> None:
    commented = re.findall(r"^# ([a-z]+: .*)$", STARTER, re.MULTILINE)
    assert len(commented) == 6
    for line in commented:
        write_and_read_problem(tmp_path, f"{STARTER}{line}\n")
    budgets = re.findall(r"^#   (- {.*})$", STARTER, re.MULTILINE)
    lines = "".join(f"  {one}\n" for one in budgets)
    found = write_and_read_problem(tmp_path, STARTER.replace("limits:\n", f"limits:\n{lines}"))
    assert list(found.problem.limits[:3]) == [
        at_most("usd", 500, per="day", zone="Europe/Berlin"),
        at_most("usd", 20, per="month", scope="tenant"),
        at_most("usd", 3, where={"context": ["chest pain"]}),
    ]


def test_the_hospital_example_equals_the_hospital_of_the_tests() -> None:
    found = read(
        EXAMPLES / "hospital" / "problem.yaml", hospital.find_folder() / "experts.csv"
    ).problem
    known = hospital.make_problem()
    assert sorted(found.experts) == sorted(known.experts)
    order = [found.experts.index(name) for name in known.experts]
    assert [limit.name for limit in found.limits[1:]] == [limit.name for limit in known.limits[1:]]
    np.testing.assert_array_equal(found.rows[1:, order], known.rows[1:])
    np.testing.assert_array_equal(found.bounds[1:], known.bounds[1:])
    np.testing.assert_allclose(
        found.rows[0, order] / found.bounds[0], known.rows[0] / known.bounds[0]
    )
    np.testing.assert_array_equal(found.signs, known.signs)


def test_the_document_on_problem_files_shows_files_that_can_be_read(tmp_path: Path) -> None:
    first, calendar, apart, second = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    found = write_and_read_problem(tmp_path, calendar)
    assert [limit.per for limit in found.problem.limits] == ["day", "month", "week"]
    (shown,) = re.findall(r"^    (usd at most 500 per day, by .*)$", DOCUMENT, re.MULTILINE)
    assert shown == describe_windows(found, check_problem(found))[0]
    limits = write_and_read_problem(tmp_path, apart).problem.limits
    assert [(one.scope, one.where) for one in limits] == [
        *(("tenant", ()), (None, ("icu", "er")), (None, ("icu",)))
    ]
    models = "model,lab,site,params_b,usd_per_call\na,x,our own,7,0.001\nb,y,,,0.002\n"
    assert write_and_read_problem(tmp_path, second, models=models).groups["large"].members == ("b",)
    (tmp_path / "pool.yaml").write_text(first)
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("pool.yaml", str(tmp_path / "pool.yaml")), names)
    assert write_and_read_problem(tmp_path, names["text"]).problem == names["file"].problem


def test_the_document_on_problem_files_has_every_key() -> None:
    keys = re.findall(r"^\| `([$a-z_]+)` \|", DOCUMENT, re.MULTILINE)
    assert sorted(keys) == sorted(SCHEMA["properties"])


# ---- writing


signs = st.characters(codec="utf-8", exclude_categories=["C", "Z"])
TRAPS = [
    "no",
    "Yes",
    "null",
    "~",
    "1e3",
    "007",
    "1:30",
    "a: b",
    "a #b",
    "- a",
    "{a",
    '"',
    "\\",
    "é",
]
names = st.text(signs, min_size=1, max_size=6) | st.sampled_from(TRAPS)
ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata"]
WHEN_SPENT: tuple[WhenSpent, ...] = get_args(WhenSpent)
amounts = st.just(0.0) | st.floats(1e-3, 1e3) | st.sampled_from([1e-100, 1e100, 0.1, 3.0])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Problems of every kind, most of which are feasible."""
    experts = draw(st.lists(names, min_size=2, max_size=6, unique=True))
    costs = draw(st.dictionaries(names, st.lists(amounts, min_size=6, max_size=6), max_size=3))
    limits: list[Limit] = [at_most(name, draw(amounts)) for name in costs if draw(st.booleans())]
    for name in costs:
        for per in draw(st.lists(st.sampled_from(WINDOW_NAMES), max_size=2, unique=True)):
            zone, then = draw(st.sampled_from(ZONES)), draw(st.sampled_from(WHEN_SPENT))
            scope = draw(st.sampled_from([None, "tenant"]))
            labels = draw(st.lists(names, max_size=2, unique_by=partial(normalize, "NFC")))
            where = {"context": labels} if labels else None
            given: Any = {"zone": zone, "when_spent": then, "scope": scope, "where": where}
            limits.append(at_most(name, draw(amounts), per=per, **given))
    for name in draw(st.lists(names, max_size=3, unique=True)):
        members = draw(st.lists(st.sampled_from(experts), min_size=1, unique=True))
        if draw(st.booleans()):
            limits.append(at_least(Share(name, tuple(members)), draw(st.floats(0.01, 0.5))))
        if draw(st.booleans()):
            limits.append(at_most(Share(name, tuple(members)), draw(st.floats(0.5, 3))))
        if draw(st.booleans()):
            most = at_most(Share(name, tuple(members)), draw(st.floats(0.5, 3)), per="week")
            limits.append(most)
    draws = draw(st.integers(1, 4))
    try:
        return Problem(
            experts,
            {name: row[: len(experts)] for name, row in costs.items()},
            limits,
            draws=draws,
            min_draws=draw(st.none() | st.integers(1, draws)),
            floor=draw(st.none() | st.floats(1e-9, 1 / len(experts))),
            period=draw(st.none() | st.integers(1, 2**62 - 1)),
            traffic=draw(st.none() | st.floats(0.001, 1e12)),
        )
    except ProblemError:  # limits in conflict, or a share with the name of a cost
        assume(False)
        raise


@fuzz_settings
@given(problem=problems())
def test_a_problem_survives_writing_and_reading(tmp_path: Path, problem: Problem) -> None:
    assume(not {"name", "group"} & problem.costs.keys())
    found = write_and_read_problem(tmp_path, write(problem)).problem
    assert found == problem
    assert set(found.costs) == set(problem.costs)


def test_a_limit_on_the_row_of_a_share_by_its_name_is_written_too(tmp_path: Path) -> None:
    limits = [at_most(share("x", ["a"]), 0.9), at_least("x", 0.2)]
    problem = Problem(["a", "b"], {}, limits, draws=1)
    assert write_and_read_problem(tmp_path, write(problem)).problem == problem


@pytest.mark.parametrize("name", ["a\nb", " a", "a\x07", "x" * 201, "\ud800"])
def test_a_name_that_cannot_be_read_back_is_not_written(name: str) -> None:
    with pytest.raises(ProblemError, match=r"invalid name .*: expected 1 to 200 printable"):
        write(Problem([name, "b"], {}, draws=1))


@pytest.mark.parametrize("name", ["name", "group"])
def test_a_cost_named_like_a_key_is_not_written(name: str) -> None:
    with pytest.raises(ProblemError, match="rename it"):
        write(Problem(["a", "b"], {name: [1, 2]}, draws=1))


# ---- limits in conflict


def test_conflicting_limits_are_named_by_line_with_remedies(tmp_path: Path) -> None:
    text = VALID_FILES["yaml"].replace("at_most: 4.5", "at_most: 0.3")
    with pytest.raises(InfeasibleProblemFile) as caught:
        write_and_read_problem(tmp_path, text)
    error = caught.value
    assert isinstance(error, InfeasibleLimits)
    assert error.lines == (15,)
    assert error.limits == (at_most("usd", 0.3),)
    message = str(error)
    assert ", line 15: no policy can keep 'usd' at_most 0.3 per request (line 15);" in message
    assert message.endswith(
        "write at_most: 1.0 in line 15; these bounds are the nearest, so leave a margin"
    )


def test_limits_that_the_solver_cannot_decide_are_named_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bylot.numerics.result_cache.RESULTS_FOLDER", None)
    monkeypatch.setattr("bylot.problem.polytope.solve_linear_program", lambda *_: None)
    with pytest.raises(ProblemFileError, match=r"line 15, .*: the solver .*; measure each cost"):
        write_and_read_problem(tmp_path, VALID_FILES["yaml"])


def test_remedies_are_in_the_unit_of_their_line_and_work(tmp_path: Path) -> None:
    text = (
        "draws: 3\ncosts: {usd: dollars}\nexperts:\n"
        + "".join(f"  - {{name: e{i}, group: g{i % 2}, usd: {i % 2 * 7 + 1}}}\n" for i in range(6))
        + "limits:\n  - {cost: usd, at_most: 1.1, per: draw}\n"
        + "  - {group: g1, at_least: 0.31, per: draw}\n"
    )
    with pytest.raises(InfeasibleProblemFile, match="line 11, 12: ") as caught:
        write_and_read_problem(tmp_path, text)
    assert caught.value.lines == (11, 12)
    advice = str(caught.value).split("; write ")[1].split("; these")[0].split(" or ")
    assert len(advice) == 2
    for remedy in advice:  # "at_most: 2.48 in line 11"
        change, line = remedy.split(" in line ")
        side = change.split(":")[0]
        lines = text.splitlines()
        old = lines[int(line) - 1]
        lines[int(line) - 1] = old[: old.index(side)] + change + old[old.index(", per") :]
        write_and_read_problem(tmp_path, "\n".join(lines))


def test_more_draws_may_be_the_remedy(tmp_path: Path) -> None:
    text = "draws: 1\nexperts: [{name: a, group: x}, {name: b, group: y}]\n"
    text += "limits:\n  - {group: x, at_least: 0.8, per: request}\n"
    text += "  - {group: y, at_least: 0.8, per: request}\n"
    with pytest.raises(
        InfeasibleProblemFile,
        match=r"line 4, 5: .* or draws: 2; these bounds are the nearest, so leave a margin$",
    ):
        write_and_read_problem(tmp_path, text)


def test_smaller_panels_may_be_the_remedy(tmp_path: Path) -> None:
    text = (
        "draws: 3\nmin_draws: 3\nexperts: [{name: a, usd: 2}, {name: b, usd: 2}, {name: c, usd: 2}]"
    )
    text += "\ncosts: {usd: US dollars}\nlimits:\n  - {cost: usd, at_most: 5}\n"
    expected = r"line 6: no .* write at_most: 6.0 in line 6 or min_draws: 2; these bounds are the "
    with pytest.raises(InfeasibleProblemFile, match=expected):
        write_and_read_problem(tmp_path, text)
    smaller = write_and_read_problem(tmp_path, text.replace("min_draws: 3", "min_draws: 2"))
    assert smaller.problem.min_draws == 2
    with pytest.raises(
        ProblemFileError, match="line 2: invalid min_draws 4: expected an integer from 1 to 3"
    ):
        write_and_read_problem(tmp_path, text.replace("min_draws: 3", "min_draws: 4"))
