"""YAML, JSON and TOML are read as other programs read them, with the line of each entry."""

import json
import tomllib
from pathlib import Path
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bylot.problem_files.document import Document, parse_document, resolve_scalar

fuzz_settings = settings(deadline=None, derandomize=True, max_examples=300)

signs = st.characters(codec="utf-8", exclude_categories=["C", "Z"])
keys = st.text(signs, max_size=5)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(signs, max_size=8),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(keys, part, max_size=4),
    max_leaves=12,
)


def parse_text(suffix: str, text: str) -> Document:
    return parse_document(Document(Path(f"x{suffix}")), text, suffix)


@fuzz_settings
@given(value=values, indent=st.sampled_from([None, 2, "\t"]), ascii_only=st.booleans())
def test_json_is_read_as_the_standard_library_does(
    value: Any, indent: int | str | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert parse_text(".json", text).data == value


class QuotingDumper(yaml.SafeDumper):
    """Quotes text such as "1e3", which is a number in YAML 1.2 but not to PyYAML."""


def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if resolve_scalar(text) == text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


QuotingDumper.add_representer(str, represent_text)


@fuzz_settings
@given(value=values)
@example(value={"0E0": "1e3"})
def test_yaml_is_read_as_pyyaml_writes_it(value: Any) -> None:
    text = yaml.dump(value, Dumper=QuotingDumper, allow_unicode=True)
    assert parse_text(".yaml", text).data == value


LINES = """\
# a comment
draws: 1
experts:
  - name: a
    usd: 2
  - {name: b,
     usd: 3}
groups: {x: [a, b]}
"""


def test_every_entry_has_the_line_of_its_key() -> None:
    document = parse_text(".yaml", LINES)
    assert document.lines == {
        (): 2,
        ("draws",): 2,
        ("experts",): 3,
        ("experts", 0): 4,
        ("experts", 0, "name"): 4,
        ("experts", 0, "usd"): 5,
        ("experts", 1): 6,
        ("experts", 1, "name"): 6,
        ("experts", 1, "usd"): 7,
        ("groups",): 8,
        ("groups", "x"): 8,
        ("groups", "x", 0): 8,
        ("groups", "x", 1): 8,
    }


def test_json_has_the_same_lines_as_yaml() -> None:
    text = '{"draws": 1,\n\t"experts": [\n  {"name": "a\\ud83d\\ude00"},\n{"name": "b"}]}'
    document = parse_text(".json", text)
    assert document.data["experts"][0]["name"] == "a\N{GRINNING FACE}"
    in_yaml = text.replace("\t", " ").replace("\\ud83d\\ude00", "\N{GRINNING FACE}")
    assert document.lines == parse_text(".yaml", in_yaml).lines
    assert document.line(("experts", 1, "name", "unknown")) == 4


def test_toml_is_read_as_the_standard_library_does() -> None:
    text = "a = 1\n[[t.list]]\nwhen = 2026-01-01"
    assert parse_text(".toml", text).data == tomllib.loads(text)
