"""Decision logs: files round-trip, and errors name the line and the field."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from bylot import Router, simulate
from bylot.cli import make_parser
from bylot.errors import BylotError, DataError
from bylot.evaluate import (
    LogEntry,
    entries_from_trace,
    entry_from_decision,
    log,
    log_from_entries,
    read_log,
    write_log,
)
from bylot.evaluate.entries import LOG_FIELDS
from sample_problem import (
    make_five_expert_problem,
    make_recorded_environment,
    make_stationary_environment,
)

PROBLEM = make_five_expert_problem()
VALID_ENTRY = {
    "id": "d0",
    "t": 0,
    "draws": ["ann", "bob"],
    "draw_probabilities": [0.5, 0.25],
    "reward": 0.5,
}


def write_lines(folder: Path, *lines: Any) -> Path:
    """Write a file of these lines, as JSON if they are not text."""
    path = folder / "log.jsonl"
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(text) + "\n")
    return path


def read_error(folder: Path, *lines: Any) -> str:
    """The error message for a file of these lines."""
    with pytest.raises(DataError) as caught:
        read_log(write_lines(folder, *lines), PROBLEM)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("policy", ["omd", "tangent", "distinct", "random", "greedy"])
def test_decisions_of_a_router_round_trip(tmp_path: Path, policy: str, kind: str) -> None:
    router, entries = Router(PROBLEM, policy, seed=2), []
    for t in range(30):
        available = ["ann", "cat", "dan"] if t % 5 == 0 else None
        decision = router.decide(context="head" if t % 3 else None, available=available)
        entries.append(
            entry_from_decision(decision, 0.5 if t % 4 else None, router.policy, available)
        )
    write_log(tmp_path / f"log.{kind}", entries)
    assert read_log(tmp_path / f"log.{kind}", PROBLEM).entries == tuple(entries)
    has_probabilities = {
        (bool(one.draw_probabilities), one.propensity is not None) for one in entries
    }
    known = {"omd": (True, True), "tangent": (True, True), "greedy": (False, False)}
    assert has_probabilities == {known.get(policy, (False, True))}


@pytest.mark.parametrize("policy", ["tangent", "distinct", "random"])
def test_router_and_simulator_write_the_same_log(policy: str) -> None:
    trace = simulate(PROBLEM, make_stationary_environment(), policy, rounds=60, seed=5)
    router = Router(PROBLEM, policy, seed=5)
    for t, one in enumerate(entries_from_trace(trace)):
        decision = router.decide()
        router.reward(decision.id, float(trace.rewards[t]))
        assert entry_from_decision(decision, float(trace.rewards[t]), router.policy) == one


def test_kept_distributions_show_excluded_experts() -> None:
    trace = simulate(PROBLEM, make_recorded_environment(40), "omd", rounds=40)
    trace.record.distributions[7, 2] = 0.0
    assert [one.excluded for one in entries_from_trace(trace)][6:9] == [(), ("cat",), ()]


def test_a_replaced_panel_has_no_propensity() -> None:
    decision = structs.replace(Router(PROBLEM, "tangent").decide(), replaced=True)
    one = entry_from_decision(decision, 0.5, Router(PROBLEM, "tangent").policy)
    assert (one.draw_probabilities, one.propensity, one.replaced) == ((), None, True)
    assert one.draws == decision.subset


def test_entries_are_sorted_by_t(tmp_path: Path) -> None:
    late = {**VALID_ENTRY, "id": "d9", "t": 9}
    assert [
        one.id for one in read_log(write_lines(tmp_path, late, VALID_ENTRY), PROBLEM).entries
    ] == [
        "d0",
        "d9",
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rewrad": 1}, "unknown field 'rewrad'; did you mean 'reward'?"),
        ({"reward": None, "id": 7}, "invalid id 7: expected a non-empty string"),
        ({"id": ""}, "invalid id '': expected a non-empty string"),
        ({"t": 1.5}, "invalid t 1.5: expected a whole number"),
        ({"t": -1}, "invalid t -1: expected"),
        ({"t": True}, "invalid t True: expected"),
        ({"reward": "0.5"}, "invalid reward '0.5': expected a finite number"),
        ({"reward": 1e999}, "invalid reward inf: expected"),
        ({"reward": 10**400}, "expected a finite number"),
        ({"draws": "ann"}, "invalid draws 'ann': expected a list of"),
        ({"draws": []}, "invalid draws []: expected a list of at least one name"),
        ({"draws": ["ann", 3]}, "expected a list of"),
        ({"draws": ["ann", "bop"]}, "draws contains the unknown expert 'bop'; did you"),
        ({"subset": ["ann"]}, "expected either draws or subset"),
        ({"draws": None, "draw_probabilities": None}, "expected either draws or subset"),
        ({"draws": None, "subset": ["ann", "bob"]}, "draw_probabilities are of independent draws"),
        (
            {"draws": None, "subset": ["ann", "ann"], "draw_probabilities": None},
            "contains an expert twice",
        ),
        ({"draw_probabilities": [0.5]}, "1 draw_probabilities for 2 draws"),
        ({"draw_probabilities": [0.5, 0.0]}, "expected probabilities in (0, 1]"),
        ({"draw_probabilities": [0.5, 1.5]}, "expected probabilities in (0, 1]"),
        ({"draw_probabilities": [0.5, None]}, "expected a list of numbers"),
        (
            {"draw_probabilities": [0.75, 0.75]},
            "draw_probabilities of the members sum to 1.5",
        ),
        ({"draws": ["ann", "ann"]}, "an expert has two different draw_probabilities"),
        ({"propensity": 0.5}, "give this set with probability 0.25"),
        ({"draw_probabilities": None, "propensity": 1.5}, "invalid propensity 1.5: expected"),
        ({"draw_probabilities": None, "propensity": -0.5}, "invalid propensity -0.5: expected"),
        ({"replaced": "no"}, "invalid replaced 'no': expected true or false"),
        ({"available": ["ann", "eve"]}, "'bob' was drawn but is not available"),
        ({"available": ["ann", "bob", "zoe"]}, "available contains the unknown expert 'zoe'"),
        ({"excluded": ["ann"]}, "excluded contains a member of the panel"),
        ({"spend": 3}, "invalid spend 3: expected an object"),
        ({"spend": {"usd": "much"}}, "expected an object of numbers"),
        ({"context": 4}, "invalid context 4: expected a string"),
    ],
)
def test_an_invalid_entry_is_named_with_its_line(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    message = read_error(tmp_path, VALID_ENTRY, {**VALID_ENTRY, "id": "d1", "t": 1, **change})
    assert message.startswith(f"{tmp_path / 'log.jsonl'}, line 2: ")
    assert words in message
    assert "; " in message or ": expected " in message


@pytest.mark.parametrize("field", ["id", "t", "reward"])
def test_a_missing_required_field_is_an_error(tmp_path: Path, field: str) -> None:
    line = {name: value for name, value in VALID_ENTRY.items() if name != field}
    assert f"line 1: missing field {field!r}" in read_error(tmp_path, line)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["{"], "line 1: is not JSON"),
        (["[1]"], "line 1: invalid entry [1]: expected a JSON object"),
        (['{"id": "d0", "id": "d1"}'], "duplicate key 'id'"),
        (["[" * 100_000], "line 1: is not JSON"),
        ([VALID_ENTRY, "", {**VALID_ENTRY, "id": "d1", "t": 1}], "line 2: is not JSON"),
        ([VALID_ENTRY, {**VALID_ENTRY, "t": 1}], "id 'd0' is also that of"),
        ([VALID_ENTRY, {**VALID_ENTRY, "id": "d1"}], "t 0 is also that of"),
        ([""], "empty file"),
    ],
)
def test_a_file_that_is_not_a_log_is_refused(tmp_path: Path, lines: list[Any], words: str) -> None:
    assert words in read_error(tmp_path, *lines)


def test_unreadable_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("none.jsonl", "none.parquet"):
        with pytest.raises(DataError, match="no such file"):
            read_log(tmp_path / name, PROBLEM)
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(DataError, match="is not a Parquet file"):
        read_log(tmp_path / "text.parquet", PROBLEM)
    pl.DataFrame({"id": ["d0"], "t": [0]}).write_parquet(tmp_path / "short.parquet")
    with pytest.raises(DataError, match="row 1: missing field 'reward'"):
        read_log(tmp_path / "short.parquet", PROBLEM)
    with pytest.raises(DataError, match="the log has no entries"):
        log_from_entries(PROBLEM, [])
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(BylotError, match="needs polars"):
        log.read_log(tmp_path / "short.parquet", PROBLEM)


def test_entries_from_python_are_checked_like_those_of_a_file() -> None:
    with pytest.raises(DataError, match="entry 0: draws contains the unknown expert 'zoe'"):
        log_from_entries(PROBLEM, [LogEntry("d0", 0, ("zoe",), 0.5)])


def test_inclusion_probabilities_are_not_taken_for_draw_probabilities(tmp_path: Path) -> None:
    decision = Router(PROBLEM, "distinct", seed=1).decide()
    assert decision.inclusion is not None
    raw = {
        "id": decision.id,
        "t": 0,
        "draws": decision.draws,
        "draw_probabilities": [decision.inclusion[name] for name in decision.draws],
        "propensity": decision.propensity,
        "reward": 0.5,
    }
    assert "leave out draw_probabilities unless draws are independent" in read_error(tmp_path, raw)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.sampled_from(["ann", "d0", "", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
fields = st.sampled_from([*LOG_FIELDS, "other"])


def read_entries_or_error(path: Path) -> tuple[LogEntry, ...] | str:
    """The entries of a file, or its error message."""
    try:
        return read_log(path, PROBLEM).entries
    except DataError as error:
        return str(error)


@settings(
    deadline=None,
    derandomize=True,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(change=st.dictionaries(fields, values, max_size=3), cut=st.integers(0, 200))
def test_any_line_is_an_entry_or_an_error_of_one_line(
    tmp_path: Path, change: dict[str, Any], cut: int
) -> None:
    for text in (json.dumps({**VALID_ENTRY, **change}), json.dumps(VALID_ENTRY)[:cut]):
        found = read_entries_or_error(write_lines(tmp_path, text))
        if isinstance(found, str):
            assert len(found.splitlines()) == 1
            assert str(tmp_path) in found
        else:
            assert log_from_entries(PROBLEM, found).entries == found


def test_the_document_runs_and_names_every_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parent.parent / "docs" / "log.md").read_text()
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(code, "log.md", "exec"), scope)
    for line in re.findall(r"^bylot .*$", text, re.MULTILINE):
        make_parser().parse_args(shlex.split(line, comments=True)[1:])
    for field in LOG_FIELDS:
        assert f"| `{field}` |" in text


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_true_and_false_are_the_rewards_1_and_0(tmp_path: Path, kind: str) -> None:
    entries = [{**VALID_ENTRY, "id": f"d{t}", "t": t, "reward": t == 0} for t in range(2)]
    path = tmp_path / f"log.{kind}"
    if kind == "parquet":
        pl.DataFrame(entries).write_parquet(path)
    else:
        write_lines(tmp_path, *entries)
    rewards = [entry.reward for entry in read_log(path, PROBLEM).entries]
    assert rewards == [1.0, 0.0]
    assert not any(isinstance(reward, bool) for reward in rewards)
