"""The applications under examples/: their commands run, their texts show what is printed, and their
data is what the scripts beside it generate.
"""

import argparse
import runpy
from pathlib import Path

import pytest

from bylot.cli import main, make_parser
from documents import find_blocks, find_commands

ROOT = Path(__file__).parent.parent
EXAMPLES = ("hospital", "crowd", "ads")
SMALL = {"simulate": ["--rounds", "400", "--seeds", "1", "--jobs", "1", "--policy", "distinct"]}
"""Extra options of a verb that make it quick."""


def read_readme(name: str) -> str:
    return (ROOT / "examples" / name / "README.md").read_text(encoding="utf-8")


def list_verbs() -> set[str]:
    """The verbs of the command line."""
    (subcommands,) = [
        one for one in make_parser()._actions if isinstance(one, argparse._SubParsersAction)
    ]
    return set(subcommands.choices)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_commands_of_an_example_run_and_print_what_its_text_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    commands = [words[1:] for words in find_commands(read_readme(name)) if words[0] == "bylot"]
    assert [words[0] for words in commands] == ["problem", "optimum", "simulate"]
    printed = ""
    for words in commands:
        if words[0] not in list_verbs():
            continue
        shortened = [str(tmp_path) if word.startswith("out/") else word for word in words]
        assert main([*shortened, *SMALL.get(words[0], [])]) == 0
        printed += capsys.readouterr().out
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    shown = [
        " ".join(line.split())
        for block in find_blocks(read_readme(name), "text")
        for line in block.splitlines()
    ]
    assert len(shown) >= 4
    for one in shown:
        assert any(line.startswith(one) for line in lines), one


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_data_of_an_example_equals_its_script_and_is_marked_as_generated(
    name: str,
) -> None:
    folder = ROOT / "examples" / name
    generated = runpy.run_path(str(folder / "generate.py"))["contents"]()
    assert {path.name for path in folder.glob("*.csv")} == set(generated)
    for file, content in generated.items():
        assert (folder / file).read_text(encoding="utf-8") == content
        assert file.startswith("generated-")
        assert all(line.startswith("generated-") for line in content.splitlines()[1:])
    assert "**generated**" in read_readme(name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_text_of_an_example_has_no_links(name: str) -> None:
    assert "](" not in read_readme(name)
