"""The three formats are read as others read them; the lines are ours."""

import json
import tomllib
from pathlib import Path
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bylot.problem_files import json_nodes, toml_nodes, yaml_nodes
from bylot.problem_files.nodes import Node, SourceText

fuzz = settings(deadline=None, derandomize=True, max_examples=300)

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


def bare(node: Node) -> Any:
    """A node without its lines."""
    if isinstance(node.value, dict):
        assert node.keys.keys() == node.value.keys()
        return {key: bare(value) for key, value in node.value.items()}
    return [bare(part) for part in node.value] if isinstance(node.value, list) else node.value


@fuzz
@given(value=values, indent=st.sampled_from([None, 2, "\t"]), ascii_only=st.booleans())
def test_json_is_read_as_the_standard_library_does(
    value: Any, indent: int | str | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert bare(json_nodes.parse_json(SourceText(Path("x.json"), text))) == value


class Dumper(yaml.SafeDumper):
    """PyYAML's, but that 1e3 is a number to us, as in YAML 1.2, and as a text needs quotes."""


def quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if yaml_nodes.resolve_scalar(text) == text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, quoted)


@fuzz
@given(value=values)
@example(value={"0E0": "1e3"})
def test_yaml_is_read_as_pyyaml_writes_it(value: Any) -> None:
    text = yaml.dump(value, Dumper=Dumper, allow_unicode=True)
    assert bare(yaml_nodes.parse_yaml(SourceText(Path("x.yaml"), text))) == value


TOML_TEXT = '''\
"a key" = 'lit"eral' # a "comment" [
x.y . "z.w" = [ 1, [2.5, "a]"], { b = true, c.d = """two
lines \\""" here""" }, ] # more
when = 2026-01-01 10:20:30
then = [2026-01-01,10:20:30]
empty = [
  # nothing
]
[t . u]
v = """"quoted""""
[[t.list]]
n = 0x1F
[[t.list]]
[t.list.sub]
n = 1_000
m = QQQ''q''QQQ
[[t.list.more]]
k = -inf
'''.replace("QQQ", "'" * 3)


def test_toml_is_read_as_the_standard_library_does() -> None:
    node = toml_nodes.parse_toml(SourceText(Path("x.toml"), TOML_TEXT))
    assert bare(node) == tomllib.loads(TOML_TEXT)
    t = node.value["t"].value
    assert t["u"].value["v"].place.line == 10
    assert [entry.place.line for entry in t["list"].value] == [11, 13]
    assert t["list"].value[1].value["sub"].value["m"].place.line == 16
    assert t["list"].value[1].value["more"].value[0].place.line == 17
    listed = node.value["x"].value["y"].value["z.w"].value
    assert [part.place.line for part in listed] == [2, 2, 2]
    assert node.value["when"].place.line == 4
