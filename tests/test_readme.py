"""The README runs: every Python block in order, as a reader would paste them into one session."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from bylot.cli import parser

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(kind: str) -> list[str]:
    """The fenced blocks of one kind."""
    return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


def test_the_code_of_the_readme_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    for shown in blocks("text"):
        assert shown in printed


def test_every_command_of_the_readme_exists() -> None:
    lines = [line for block in blocks("console") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    verbs = [words[1:] for words in commands if words[0] == "bylot"]
    assert len(verbs) == 4
    for words in verbs:
        parser().parse_args(words)
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for target in [words[1] for words in commands if words[0] == "make"]:
        assert f"\n{target}:" in makefile
