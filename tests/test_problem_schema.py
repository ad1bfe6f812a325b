"""The published JSON Schema and the reader say the same: neither can change without the other."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from broken_files import SEMANTIC_ERRORS, TYPE_ERRORS, VALID_FILES
from bylot.errors import ProblemFileError
from bylot.problem.validation import MAX_DRAWS_PER_REQUEST
from bylot.problem_files import read
from bylot.problem_files.document import Document
from bylot.problem_files.document import parse_document as parse_any
from bylot.problem_files.schema import (
    MAX_NAME_LENGTH,
    SCHEMA,
    check_value,
    packaged_text,
)

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*/problem.*"))
validator = Draft202012Validator(SCHEMA)
valid_problem = json.loads(VALID_FILES["json"])
valid_problem_with_csv = {
    "draws": 3,
    "costs": {"usd": "dollars"},
    "experts": {"csv": "pool.csv", "group": ["lab"]},
    "groups": {"large": {"column": "size", "at_least": 70, "blank": "in"}},
    "contexts": ["a", "b"],
}


def parse_document(content: str, ending: str) -> Document:
    """Parse the content of a file."""
    return parse_any(Document(Path(f"pool.{ending}")), content, f".{ending}")


def is_accepted(document: Document) -> bool:
    """Whether the reader accepts the document."""
    try:
        check_value(document, (), document.data, SCHEMA)
    except ProblemFileError:
        return False
    return True


def test_the_schema_is_a_valid_schema_with_the_limits_of_a_problem() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["draws"]["maximum"] == MAX_DRAWS_PER_REQUEST
    assert SCHEMA["properties"]["period"]["anyOf"][0]["maximum"] == 2**62 - 1
    assert SCHEMA["$defs"]["name"]["maxLength"] == MAX_NAME_LENGTH


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_every_example_is_valid(path: Path) -> None:
    validator.validate(parse_document(path.read_text(encoding="utf-8"), path.suffix[1:]).data)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


def test_the_valid_files_and_the_starter_match_the_schema() -> None:
    validator.validate(parse_document(packaged_text("starter.yaml"), "yaml").data)
    validator.validate(valid_problem_with_csv)
    for ending, content in VALID_FILES.items():
        validator.validate(parse_document(content, ending).data)


def test_keys_are_described_for_editors() -> None:
    for part in (SCHEMA, SCHEMA["properties"]["rewards"], *SCHEMA["$defs"].values()):
        assert all(key["description"] for key in part.get("properties", {}).values())


SHAPE_ERRORS = {
    "unknown key",
    "key of a limit",
    "no draws",
    "neither",
    "both",
    "no bound",
    "no unit",
}
SHAPE_ERRORS |= {"other unit", "weight", "one expert", "mapping", "list", "negative", "half a draw"}
SHAPE_ERRORS |= {
    "name no",
    "name 12",
    "name null",
    "blank name",
    "no name",
    "number as text",
    "percent",
}


@pytest.mark.parametrize(
    "broken",
    [one for one in (*TYPE_ERRORS, *SEMANTIC_ERRORS) if one.what in SHAPE_ERRORS],
    ids=lambda one: f"{one.form}: {one.what}",
)
def test_the_schema_rejects_mistakes_in_shape(broken: Any) -> None:
    assert not validator.is_valid(parse_document(broken.content, broken.form).data)


words = st.sampled_from(
    ["a", "usd", "name", "group", "per", "draws", "request", "in", "", " x", "x "]
)
numbers = st.sampled_from([-1, 0, 1, 2, 0.5, 1e-9, 20_000, 10**30, 0.7])
parts = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(words, part, max_size=3),
    max_leaves=5,
)


def list_branches(value: Any) -> list[Any]:
    """All lists and mappings inside a value."""
    inside = value.values() if isinstance(value, dict) else value
    found = [
        branch for part in inside if isinstance(part, dict | list) for branch in list_branches(part)
    ]
    return [value, *found]


@st.composite
def change_problem(draw: st.DrawFn) -> Any:
    """A valid problem with one or two parts replaced, removed, renamed or added."""
    value = copy.deepcopy(draw(st.sampled_from([valid_problem, valid_problem_with_csv])))
    for _ in range(draw(st.integers(1, 2))):
        branch = draw(st.sampled_from(list_branches(value)))
        positions = list(branch) if isinstance(branch, dict) else list(range(len(branch)))
        change = (
            draw(st.sampled_from(["replace", "remove", "add", "rename"])) if positions else "add"
        )
        position = draw(st.sampled_from(positions)) if positions else None
        if change == "replace":
            branch[position] = draw(parts)
        elif change == "remove":
            del branch[position]
        elif isinstance(branch, list):
            branch.append(draw(parts))
        elif change == "rename":
            branch[draw(words)] = branch.pop(position)
        else:
            branch[draw(words | st.sampled_from(sorted(SCHEMA["properties"])))] = draw(parts)
    return value


@settings(
    deadline=None,
    derandomize=True,
    max_examples=1000,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(value=change_problem())
def test_the_schema_and_the_reader_reject_the_same_documents(tmp_path: Path, value: Any) -> None:
    content = json.dumps(value)
    valid = validator.is_valid(value)
    assert is_accepted(parse_document(content, "json")) == valid
    if not valid:
        (tmp_path / "pool.json").write_text(content)
        with pytest.raises(ProblemFileError):
            read(tmp_path / "pool.json")


def test_the_changes_above_give_valid_and_invalid_documents() -> None:
    values = []

    @settings(deadline=None, derandomize=True, max_examples=400, database=None)
    @given(value=change_problem())
    def collect_validity(value: Any) -> None:
        values.append(validator.is_valid(value))

    collect_validity()
    assert 20 < sum(values) < len(values) - 20
