"""Logs of decisions: what is written is read again, what is wrong is named and never guessed."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from small import five, recorded, steady

PROBLEM = five()
GOOD = {
    "id": "d0",
    "t": 0,
    "draws": ["ann", "bob"],
    "draw_probabilities": [0.5, 0.25],
    "reward": 0.5,
}


def written(folder: Path, *lines: Any) -> Path:
    """A file of these lines, as JSON where they are not text."""
    path = folder / "log.jsonl"
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(text) + "\n")
    return path


def complaint(folder: Path, *lines: Any) -> str:
    """The one line that is said about such a file."""
    with pytest.raises(DataError) as caught:
        read_log(written(folder, *lines), PROBLEM)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("policy", ["omd", "tangent", "distinct", "random", "greedy"])
def test_a_router_s_decisions_are_read_as_they_were_written(
    tmp_path: Path, policy: str, kind: str
) -> None:
    router, made = Router(PROBLEM, policy, seed=2), []
    for t in range(30):
        up = ["ann", "cat", "dan"] if t % 5 == 0 else None
        decision = router.decide(context="head" if t % 3 else None, available=up)
        made.append(entry_from_decision(decision, 0.5 if t % 4 else None, router.policy, up))
    write_log(tmp_path / f"log.{kind}", made)
    assert read_log(tmp_path / f"log.{kind}", PROBLEM).entries == tuple(made)
    told = {(bool(one.draw_probabilities), one.propensity is not None) for one in made}
    known = {"omd": (True, True), "tangent": (True, True), "greedy": (False, False)}
    assert told == {known.get(policy, (False, True))}


@pytest.mark.parametrize("policy", ["tangent", "distinct", "random"])
def test_router_and_simulator_write_the_same_log(policy: str) -> None:
    trace = simulate(PROBLEM, steady(), policy, rounds=60, seed=5)
    router = Router(PROBLEM, policy, seed=5)
    for t, one in enumerate(entries_from_trace(trace)):
        decision = router.decide()
        router.reward(decision.id, float(trace.rewards[t]))
        assert entry_from_decision(decision, float(trace.rewards[t]), router.policy) == one


def test_a_law_that_a_play_kept_says_who_had_no_chance() -> None:
    trace = simulate(PROBLEM, recorded(40), "omd", rounds=40)
    trace.record.distributions[7, 2] = 0.0
    assert [one.never for one in entries_from_trace(trace)][6:9] == [(), ("cat",), ()]


def test_a_replaced_panel_has_no_odds_to_tell() -> None:
    decision = Router(PROBLEM, "tangent").decide()._replace(replaced=True)
    one = entry_from_decision(decision, 0.5, Router(PROBLEM, "tangent").policy)
    assert (one.draw_probabilities, one.propensity, one.replaced) == ((), None, True)
    assert one.draws == decision.subset


def test_entries_are_put_in_the_order_of_t(tmp_path: Path) -> None:
    late = {**GOOD, "id": "d9", "t": 9}
    assert [one.id for one in read_log(written(tmp_path, late, GOOD), PROBLEM).entries] == [
        "d0",
        "d9",
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rewrad": 1}, "there is no field 'rewrad'; did you mean 'reward'?"),
        ({"reward": None, "id": 7}, "id=7 is no string"),
        ({"id": ""}, "id='' is no string"),
        ({"t": 1.5}, "t=1.5 is no whole number"),
        ({"t": -1}, "t=-1 is no whole number"),
        ({"t": True}, "t=True is no whole number"),
        ({"reward": "0.5"}, "reward='0.5' is no finite number"),
        ({"reward": 1e999}, "reward=inf is no finite number"),
        ({"reward": 10**400}, "is no finite number"),
        ({"draws": "ann"}, "draws='ann' is no list of names"),
        ({"draws": []}, "draws is empty"),
        ({"draws": ["ann", 3]}, "is no list of names"),
        ({"draws": ["ann", "bop"]}, "draws names 'bop', and no expert is called that; did you"),
        ({"subset": ["ann"]}, "wanted either draws or subset"),
        ({"draws": None, "draw_probabilities": None}, "wanted either draws or subset"),
        ({"draws": None, "subset": ["ann", "bob"]}, "draw_probabilities are of independent draws"),
        (
            {"draws": None, "subset": ["ann", "ann"], "draw_probabilities": None},
            "names somebody twice",
        ),
        ({"draw_probabilities": [0.5]}, "1 draw_probabilities of 2 draws"),
        ({"draw_probabilities": [0.5, 0.0]}, "give probabilities in (0, 1]"),
        ({"draw_probabilities": [0.5, 1.5]}, "give probabilities in (0, 1]"),
        ({"draw_probabilities": [0.5, None]}, "is no list of numbers"),
        (
            {"draw_probabilities": [0.75, 0.75]},
            "the draw_probabilities of the members add up to 1.5",
        ),
        ({"draws": ["ann", "ann"]}, "an expert has two different draw_probabilities"),
        ({"propensity": 0.5}, "give this set with probability 0.25"),
        ({"draw_probabilities": None, "propensity": 1.5}, "propensity=1.5"),
        ({"draw_probabilities": None, "propensity": -0.5}, "propensity=-0.5"),
        ({"replaced": "no"}, "replaced='no' is neither true nor false"),
        ({"available": ["ann", "eve"]}, "'bob' was drawn but is not available"),
        ({"available": ["ann", "bob", "zoe"]}, "available names 'zoe'"),
        ({"never": ["ann"]}, "a member of the panel is among never"),
        ({"spend": 3}, "spend=3 is no object"),
        ({"spend": {"usd": "much"}}, "has a cost that is no number"),
        ({"context": 4}, "context=4 is no string"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    said = complaint(tmp_path, GOOD, {**GOOD, "id": "d1", "t": 1, **change})
    assert said.startswith(f"{tmp_path / 'log.jsonl'}, line 2: ")
    assert words in said
    assert "; " in said  # and a remedy


@pytest.mark.parametrize("field", ["id", "t", "reward"])
def test_a_field_that_must_be_there_is_not_made_up(tmp_path: Path, field: str) -> None:
    line = {name: value for name, value in GOOD.items() if name != field}
    assert f"line 1: {field!r} is missing" in complaint(tmp_path, line)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["{"], "line 1: is not JSON"),
        (["[1]"], "line 1: [1] is no JSON object"),
        (['{"id": "d0", "id": "d1"}'], "'id' is given twice"),
        (["[" * 100_000], "line 1: is not JSON"),
        ([GOOD, "", {**GOOD, "id": "d1", "t": 1}], "line 2: is not JSON"),
        ([GOOD, {**GOOD, "t": 1}], "id 'd0' is that of"),
        ([GOOD, {**GOOD, "id": "d1"}], "t 0 is that of"),
        ([""], "empty file"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, lines: list[Any], words: str) -> None:
    assert words in complaint(tmp_path, *lines)


def test_files_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("none.jsonl", "none.parquet"):
        with pytest.raises(DataError, match="no such file"):
            read_log(tmp_path / name, PROBLEM)
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(DataError, match="is no Parquet file"):
        read_log(tmp_path / "text.parquet", PROBLEM)
    pl.DataFrame({"id": ["d0"], "t": [0]}).write_parquet(tmp_path / "short.parquet")
    with pytest.raises(DataError, match="row 1: 'reward' is missing"):
        read_log(tmp_path / "short.parquet", PROBLEM)
    with pytest.raises(DataError, match="the log has no entries"):
        log_from_entries(PROBLEM, [])
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(BylotError, match="needs polars"):
        log.read_log(tmp_path / "short.parquet", PROBLEM)


def test_an_entry_at_hand_is_checked_like_one_of_a_file() -> None:
    with pytest.raises(DataError, match="entry 0: draws names 'zoe'"):
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
    assert "if the draws were not independent, leave them out" in complaint(tmp_path, raw)


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


def found_in(path: Path) -> tuple[LogEntry, ...] | str:
    """The entries of a file, or what is said about it."""
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
def test_any_line_is_an_entry_or_a_complaint_in_one_line(
    tmp_path: Path, change: dict[str, Any], cut: int
) -> None:
    for text in (json.dumps({**GOOD, **change}), json.dumps(GOOD)[:cut]):
        found = found_in(written(tmp_path, text))
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
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(code, "log.md", "exec"), {})
    for line in re.findall(r"^bylot .*$", text, re.MULTILINE):
        make_parser().parse_args(shlex.split(line, comments=True)[1:])
    for field in LOG_FIELDS:
        assert f"| `{field}` |" in text
