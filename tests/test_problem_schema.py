"""The published JSON Schema and the reader say the same: neither can change without the other."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from broken_files import GOOD, KINDS, MEANING
from bylot.errors import ProblemFileError
from bylot.problem.validation import MAX_DRAWS_PER_REQUEST
from bylot.problem_files import read
from bylot.problem_files.document import DOCUMENT_PARSERS, Document
from bylot.problem_files.schema import (
    MAX_NAME_LENGTH,
    SCHEMA,
    check_value,
    packaged_text,
)

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*/problem.*"))
judge = Draft202012Validator(SCHEMA)
problem = json.loads(GOOD["json"])
by_csv = {
    "draws": 3,
    "costs": {"usd": "dollars"},
    "experts": {"csv": "pool.csv", "group": ["lab"]},
    "groups": {"large": {"column": "size", "at_least": 70, "blank": "in"}},
    "contexts": ["a", "b"],
}


def parsed(content: str, ending: str) -> Document:
    """The document of a content."""
    return DOCUMENT_PARSERS[f".{ending}"](Path(f"pool.{ending}"), content)


def fits(document: Document) -> bool:
    """Does the reader accept the document?"""
    try:
        check_value(document, (), document.data, SCHEMA)
    except ProblemFileError:
        return False
    return True


def test_the_schema_is_a_valid_schema_with_the_limits_of_a_problem() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["draws"]["maximum"] == MAX_DRAWS_PER_REQUEST
    assert SCHEMA["properties"]["period"]["maximum"] == 2**62 - 1
    assert SCHEMA["$defs"]["name"]["maxLength"] == MAX_NAME_LENGTH


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_every_example_is_valid(path: Path) -> None:
    judge.validate(parsed(path.read_text(encoding="utf-8"), path.suffix[1:]).data)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


def test_the_good_files_and_the_starter_are_valid() -> None:
    judge.validate(parsed(packaged_text("starter.yaml"), "yaml").data)
    judge.validate(by_csv)
    for ending, content in GOOD.items():
        judge.validate(parsed(content, ending).data)


def test_keys_are_described_for_editors() -> None:
    for part in (SCHEMA, SCHEMA["properties"]["rewards"], *SCHEMA["$defs"].values()):
        assert all(key["description"] for key in part.get("properties", {}).values())


NOTED = {"unknown key", "key of a limit", "no draws", "neither", "both", "no bound", "no unit"}
NOTED |= {"other unit", "weight", "one expert", "mapping", "list", "negative", "half a draw"}
NOTED |= {"name no", "name 12", "name null", "blank name", "no name", "number as text", "percent"}


@pytest.mark.parametrize(
    "broken",
    [one for one in (*KINDS, *MEANING) if one.what in NOTED],
    ids=lambda one: f"{one.form}: {one.what}",
)
def test_an_editor_would_notice_mistakes_in_shape(broken: Any) -> None:
    assert not judge.is_valid(parsed(broken.content, broken.form).data)


words = st.sampled_from(
    ["a", "usd", "name", "group", "per", "draws", "request", "in", "", " x", "x "]
)
numbers = st.sampled_from([-1, 0, 1, 2, 0.5, 1e-9, 20_000, 10**30, 0.7])
parts = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(words, part, max_size=3),
    max_leaves=5,
)


def branches(value: Any) -> list[Any]:
    """All lists and mappings inside a value."""
    inside = value.values() if isinstance(value, dict) else value
    found = [
        branch for part in inside if isinstance(part, dict | list) for branch in branches(part)
    ]
    return [value, *found]


@st.composite
def changed(draw: st.DrawFn) -> Any:
    """A good problem, one or two parts of which were replaced, removed, renamed or added."""
    value = copy.deepcopy(draw(st.sampled_from([problem, by_csv])))
    for _ in range(draw(st.integers(1, 2))):
        branch = draw(st.sampled_from(branches(value)))
        places = list(branch) if isinstance(branch, dict) else list(range(len(branch)))
        what = draw(st.sampled_from(["replace", "remove", "add", "rename"])) if places else "add"
        place = draw(st.sampled_from(places)) if places else None
        if what == "replace":
            branch[place] = draw(parts)
        elif what == "remove":
            del branch[place]
        elif isinstance(branch, list):
            branch.append(draw(parts))
        elif what == "rename":
            branch[draw(words)] = branch.pop(place)
        else:
            branch[draw(words | st.sampled_from(sorted(SCHEMA["properties"])))] = draw(parts)
    return value


@settings(
    deadline=None,
    derandomize=True,
    max_examples=1000,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(value=changed())
def test_what_the_schema_rejects_the_reader_rejects_and_the_other_way_round(
    tmp_path: Path, value: Any
) -> None:
    content = json.dumps(value)
    valid = judge.is_valid(value)
    assert fits(parsed(content, "json")) == valid
    if not valid:
        (tmp_path / "pool.json").write_text(content)
        with pytest.raises(ProblemFileError):
            read(tmp_path / "pool.json")


def test_the_changes_above_are_of_both_kinds() -> None:
    values = []

    @settings(deadline=None, derandomize=True, max_examples=200, database=None)
    @given(value=changed())
    def gather(value: Any) -> None:
        values.append(judge.is_valid(value))

    gather()
    assert 20 < sum(values) < len(values) - 20
