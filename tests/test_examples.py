"""The applications under examples/: their commands run, their texts show what is printed, and their
data is what the scripts beside it make.
"""

import argparse
import runpy
from pathlib import Path

import pytest

from bylot.cli import main, make_parser
from documents import blocks, commands

ROOT = Path(__file__).parent.parent
EXAMPLES = ("hospital", "crowd", "ads")
SMALL = {"simulate": ["--rounds", "400", "--seeds", "1", "--jobs", "1", "--policies", "distinct"]}
"""What a verb is told in addition, to be quick."""


def readme(name: str) -> str:
    return (ROOT / "examples" / name / "README.md").read_text(encoding="utf-8")


def verbs() -> set[str]:
    """Those that this version has."""
    (below,) = [
        one for one in make_parser()._actions if isinstance(one, argparse._SubParsersAction)
    ]
    return set(below.choices)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_commands_of_an_example_run_and_print_what_its_text_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    told = [words[1:] for words in commands(readme(name)) if words[0] == "bylot"]
    assert [words[0] for words in told] == ["problem", "optimum", "simulate"]
    printed = ""
    for words in told:
        if words[0] not in verbs():
            continue
        small = [str(tmp_path) if word.startswith("out/") else word for word in words]
        assert main([*small, *SMALL.get(words[0], [])]) == 0
        printed += capsys.readouterr().out
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    shown = [
        " ".join(line.split())
        for block in blocks(readme(name), "text")
        for line in block.splitlines()
    ]
    assert len(shown) >= 4
    for one in shown:
        assert any(line.startswith(one) for line in lines), one


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_data_of_an_example_is_what_its_script_makes_and_says_that_it_is_generated(
    name: str,
) -> None:
    folder = ROOT / "examples" / name
    made = runpy.run_path(str(folder / "generate.py"))["contents"]()
    assert {path.name for path in folder.glob("*.csv")} == set(made)
    for file, content in made.items():
        assert (folder / file).read_text(encoding="utf-8") == content
        assert file.startswith("generated-")
        assert all(line.startswith("generated-") for line in content.splitlines()[1:])
    assert "**generated**" in readme(name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_text_of_an_example_links_to_what_the_site_does_not_have(name: str) -> None:
    assert "](" not in readme(name)
